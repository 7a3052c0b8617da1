"""Lists in pages: a limit, a cursor, and how many there are.

    {"items": [...], "total": 1200, "cursor": "..."}     cursor: null when nothing follows

Without a limit all of it is answered, as ever, in pieces that leave one by one. With one, `cursor`
is where the next page begins: behind the last one shown, by what the list is sorted by, so that
what comes or goes between two pages shifts nothing. `total` counts what fits the filters now.
Pure.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from gateway.management.answers import list_response
from gateway.management.http import Request, Response, query_int, shorten
from gateway.model.errors import Code, RefusedError

#: Of one page; whoever wants all of it leaves the limit out.
LIMIT_MAX: Final = 1000
#: What every list takes in its query, beside its filters.
PAGING: Final = ("limit", "cursor")
_DEFAULT_LIMIT: Final = 100

Thing = TypeVar("Thing")
#: What a list is sorted by; no two things of it have the same.
Key = tuple[Any, ...]


def page(
    request: Request,
    found: Sequence[Thing],
    key: Callable[[Thing], Key],
    view: Callable[[Thing], dict[str, object]],
    *,
    order: str = "",
    descending: bool = False,
) -> Response:
    """Answer with one page of what was found, or all of it.

    `found` need not be sorted. `order` names the key: a cursor holds for that order only. Raises
    RefusedError (bad-value) for a wrong limit or cursor.
    """
    rows = sorted(((key(thing), at) for at, thing in enumerate(found)), reverse=descending)
    total = len(rows)
    if "limit" not in request.query and "cursor" not in request.query:
        return list_response((view(found[at]) for _, at in rows), total, total=total)
    limit = query_int(request, "limit", _DEFAULT_LIMIT, low=1, high=LIMIT_MAX)
    cursor = request.query.get("cursor")
    if cursor is not None:
        after = _place(cursor, order)
        try:
            rows = [row for row in rows if (row[0] < after if descending else row[0] > after)]
        except TypeError:
            raise _bad(cursor) from None
    shown = rows[:limit]
    following = written(order, shown[-1][0]) if len(rows) > limit else None
    views = (view(found[at]) for _, at in shown)
    return list_response(views, len(shown), total=total, cursor=following)


def written(order: str, key: Key) -> str:
    """Return the cursor for what is behind a key."""
    return urlsafe_b64encode(msgspec.json.encode([order, *key])).decode().rstrip("=")


def _place(cursor: str, order: str) -> Key:
    try:
        padded = cursor.encode() + b"=" * (-len(cursor) % 4)
        told, *key = msgspec.json.decode(urlsafe_b64decode(padded), type=list[Any])
    except (ValueError, msgspec.DecodeError):
        raise _bad(cursor) from None
    if told != order:
        raise _bad(cursor)
    return tuple(key)


def at_offset(offset: int) -> str:
    """Return the cursor of a list that is gone through by place."""
    return written("offset", (offset,))


def place_of(request: Request, name: str, high: int) -> int:
    """Return where a list that is gone through by place is to begin; raises RefusedError."""
    cursor = request.query.get("cursor")
    if cursor is None:
        return query_int(request, name, 0, high=high)
    if name in request.query:
        message = f"The query has both 'cursor' and {name!r}; both say where to begin."
        raise RefusedError.of(Code.BAD_VALUE, message)
    match _place(cursor, "offset"):
        case (int(offset),) if 0 <= offset <= high:
            return offset
    raise _bad(cursor)


def _bad(cursor: str) -> RefusedError:
    message = (
        f"The query field 'cursor' is {shorten(cursor)}, which is none of this list in this order; "
        "take it from the answer before, or leave it out to begin."
    )
    return RefusedError.of(Code.BAD_VALUE, message)
