"""Subscriptions: how far each reader is, and who may say so.

Pure values. A subscription belongs to one stream and has

    floor   the lowest offset it may still ask for; only ever rises
    epoch   the life of the stream it belongs to
    fence   counts its attachments: only the newest may move the floor

Where it starts is decided once, when it is made: `earliest`, `latest`, or an offset; from then on
its floor holds retention back. `subscription` begins where one stands, and demands that there is
one. A reader that names the place it has come to (its checkpoint) is taken at its word when the
subscription was lost. Its selector never changes: a batch that is read again must have the rows
that it had.

File form: JSON, `{"version": 1, "subscriptions": [{...}]}`, sorted by name; without the selector
where there is none, as versions before selectors wrote it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Final

from gateway.model.errors import Code, RefusedError

_VERSION: Final = 1
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
SUBSCRIPTION: Final = "subscription"
READER: Final = ""
ARCHIVE: Final = "archive"
ARCHIVED: Final = "archived"
ROLES: Final = (READER, ARCHIVE, ARCHIVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """One reader's hold on a stream; times in ms of broker time.

    Attributes:
        lifted: a commit has moved the floor: it is no longer where the subscription was made.
        role: `archive` copies the stream to a table, `archived` reads such a table too; empty:
            reads here alone.
    """

    name: str
    epoch: int
    floor: int
    fence: int
    created_ms: int
    seen_ms: int
    selector: str = ""
    lifted: bool = False
    role: str = READER


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a stream offers: the offsets that can be read."""

    epoch: int
    first: int
    head: int


def attach(
    name: str,
    known: Subscription | None,
    place: Place,
    *,
    starting: str,
    position: int | None,
    now_ms: int,
    fence: int | None = None,
    role: str = READER,
    selector: str = "",
) -> Subscription:
    """Return the subscription as it stands after one more attachment.

    Args:
        name: chosen by the user; one for each reading query.
        known: what is stored; of an earlier epoch it counts as lost.
        place: the stream now.
        starting: `earliest`, `latest` or an offset in decimal, only for a new one; or
            `subscription`.
        position: where the reader's checkpoint stands in this epoch, if it has one.
        now_ms: broker time.
        fence: of this attachment, where several streams share one; else the next one.
        role: of the reader, one of ROLES.
        selector: what its reader wants to see, one that compiles; empty for everything.

    Raises:
        RefusedError: bad-value, when `starting` or `role` is none of those; in-use, for another
            selector than the one it was made with; not-found, for `subscription` without one.
    """
    _check_selector(known, selector)
    if role not in ROLES:
        raise RefusedError.of(
            Code.BAD_VALUE, f"The role {role[:40]!r} is none of: '', 'archive', 'archived'."
        )
    alive = known is not None and known.epoch == place.epoch
    floor = _start(name, starting, place, goes_on=alive or position is not None)
    if fence is None:
        fence = 1 if known is None else known.fence + 1
    if known is not None and alive:
        return replace(known, fence=fence, seen_ms=now_ms, role=role)
    floor = floor if position is None else position
    return Subscription(
        name=name,
        epoch=place.epoch,
        floor=min(max(floor, place.first), place.head),
        fence=fence,
        created_ms=now_ms,
        seen_ms=now_ms,
        selector=selector,
        role=role,
    )


def _check_selector(known: Subscription | None, selector: str) -> None:
    if known is not None and known.selector != selector:
        had, wanted = (repr(text) if text else "none" for text in (known.selector, selector))
        raise RefusedError.of(
            Code.IN_USE,
            f"The subscription {known.name!r} has the selector {had}, the query names {wanted}. A "
            "selector is fixed for the life of a subscription and its checkpoint: give the query "
            "the same one, or a new subscription and a new checkpoint.",
        )


def _start(name: str, starting: str, place: Place, *, goes_on: bool) -> int:
    """Return where a new subscription begins; `goes_on`: it has a place that counts instead."""
    if starting == SUBSCRIPTION:
        if goes_on:
            return 0
        raise RefusedError.of(
            Code.NOT_FOUND,
            f"There is no subscription {name!r} to go on from, and startingOffsets is "
            "'subscription'. Begin it with 'earliest', 'latest' or an offset.",
        )
    if starting == EARLIEST:
        return place.first
    if starting == LATEST:
        return place.head
    if starting.isascii() and starting.isdigit() and len(starting) <= 19:
        return int(starting)
    raise RefusedError.of(
        Code.BAD_VALUE,
        f"The starting offset {starting[:40]!r} is none of 'earliest', 'latest', "
        "'subscription' and a number.",
    )


def commit(
    known: Subscription, place: Place, *, epoch: int, offset: int, fence: int, now_ms: int
) -> Subscription:
    """Return the subscription with its floor lifted to `offset`; a lower one changes nothing.

    Raises RefusedError: in-use when a newer attachment has taken over, not-found when the stream
    is another life, bad-value when the offset was never advertised.
    """
    if fence != known.fence:
        raise replaced(known.name, known.fence, fence)
    if epoch != known.epoch or epoch != place.epoch:
        raise RefusedError.of(
            Code.NOT_FOUND,
            f"The subscription {known.name!r} reads life {place.epoch} of its stream; the commit "
            f"names life {epoch}, which was deleted.",
        )
    if offset > place.head:
        raise RefusedError.of(
            Code.BAD_VALUE,
            f"The commit of {known.name!r} names offset {offset}; the stream ends at {place.head}.",
        )
    lifted = known.lifted or offset > known.floor
    return replace(known, floor=max(known.floor, offset), seen_ms=now_ms, lifted=lifted)


def replaced(name: str, newest: int, fence: int) -> RefusedError:
    """Return the refusal of a reader with `fence`, which a newer one has replaced."""
    return RefusedError.of(
        Code.IN_USE,
        f"The subscription {name!r} was attached again (fence {newest}) after this "
        f"reader's attachment (fence {fence}). Two queries use one name: give each its own.",
    )


def encode(subscriptions: Iterable[Subscription]) -> bytes:
    """Return the file form."""
    ordered = sorted(subscriptions, key=lambda s: s.name)
    value = {"version": _VERSION, "subscriptions": [_fields(s) for s in ordered]}
    return json.dumps(value, indent=1).encode()


def _fields(known: Subscription) -> dict[str, object]:
    fields = asdict(known)
    if not known.selector:
        del fields["selector"]
    return fields


def decode(data: bytes) -> list[Subscription]:
    """Read the file form. Raises ValueError for what is not one."""
    value = json.loads(data)
    if not isinstance(value, dict) or value.get("version") != _VERSION:
        raise ValueError("not a subscription file of version 1")
    return [Subscription(**fields) for fields in value["subscriptions"]]
