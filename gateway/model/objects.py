"""How many objects clients have had made, and hold open: for each user, for all, and the limits.

    addresses, queues   made on demand, also temporary; counted until they are gone. What outlives
                        its connection counts for who had it made
    consumers, links    open; a link is one of AMQP, in either direction

Whoever has not proved a login is one user, NOBODY: names that nobody checks are free to make up.
What the gateway makes of itself (user None) counts for all and is never refused, since messages
would be lost. Plain bookkeeping: it makes nothing and knows nobody's names but as texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final

from gateway.model.errors import Code, RefusedError

NOBODY: Final = ""
#: A name is kept as long as what it names; so much of it is part of what one object costs.
NAME_PART: Final = 1024


class Kind(Enum):
    """What is counted; the value is how keys of the configuration, and metrics, call it."""

    ADDRESSES = "addresses"
    QUEUES = "queues"
    CONSUMERS = "consumers"
    LINKS = "links"


#: A queue with its address and a message was measured at 12.3 KB, so that what one user may have
#: made adds 35 MiB; the floods of all four kinds stay below 64 MiB [tests/attack].
USER_DEFAULTS: Final[Mapping[Kind, int]] = MappingProxyType(
    {Kind.ADDRESSES: 8_000, Kind.QUEUES: 8_000, Kind.CONSUMERS: 10_000, Kind.LINKS: 10_000}
)
GATEWAY_DEFAULTS: Final[Mapping[Kind, int]] = MappingProxyType(
    {Kind.ADDRESSES: 40_000, Kind.QUEUES: 40_000, Kind.CONSUMERS: 50_000, Kind.LINKS: 50_000}
)
_NAMES: Final = {
    Kind.ADDRESSES: "addresses made on demand",
    Kind.QUEUES: "queues made on demand, subscriptions among them",
    Kind.CONSUMERS: "consumers",
    Kind.LINKS: "links",
}
_ADVICE: Final = {
    Kind.ADDRESSES: "Delete what is not used, or let auto-delete-addresses do it",
    Kind.QUEUES: "Delete what is not used, or let auto-delete-queues do it",
    Kind.CONSUMERS: "Close some",
    Kind.LINKS: "Detach some",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectLimits:
    """How many a user may have, and all together; -1 no limit.

    `origins`: key of the configuration -> where it was written; the others have their default.
    """

    user: Mapping[Kind, int] = field(default_factory=lambda: USER_DEFAULTS)
    gateway: Mapping[Kind, int] = field(default_factory=lambda: GATEWAY_DEFAULTS)
    origins: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A limit that is reached: its key, whose it is (None: the gateway's), what is held."""

    key: str
    user: str | None
    limit: int
    value: int
    text: str


def weight_of(name: str) -> int:
    """Return for how many a consumer or link counts that has this name."""
    return 1 + len(name) // NAME_PART


class Objects:
    """See the module text.

    Attributes:
        limits: in force; others may be set at any time, and nothing that exists goes for it.
        refused: key of a limit -> how often it was in the way.
    """

    __slots__ = ("_struck", "_total", "_users", "limits", "refused")

    def __init__(self, limits: ObjectLimits | None = None) -> None:
        self.limits = limits or ObjectLimits()
        self.refused: Counter[str] = Counter()
        self._total: Counter[Kind] = Counter()
        self._users: dict[str, Counter[Kind]] = {}
        self._struck: set[tuple[Kind, str | None]] = set()  # in the way since the last look

    # ---- counting

    def add(self, kind: Kind, user: str | None, count: int = 1) -> None:
        """One was made or opened."""
        self._total[kind] += count
        if user is not None:
            held = self._users.get(user)
            if held is None:
                held = self._users[user] = Counter()
            held[kind] += count

    def remove(self, kind: Kind, user: str | None, count: int = 1) -> None:
        """One is gone."""
        self._total[kind] -= count
        assert self._total[kind] >= 0, f"more {kind.value} went than came"
        if user is None:
            return
        held = self._users[user]
        held[kind] -= count
        assert held[kind] >= 0, f"more {kind.value} of a user went than came"
        if not any(held.values()):
            del self._users[user]

    def held(self, kind: Kind, user: str | None = None) -> int:
        """Return how many a user has; of None: how many there are."""
        if user is None:
            return self._total[kind]
        return self._users[user][kind] if user in self._users else 0

    @property
    def users(self) -> Mapping[str, Mapping[Kind, int]]:
        """Who has any, and how many."""
        return self._users

    # ---- limits

    def check(self, kind: Kind, user: str | None, count: int = 1) -> None:
        """Raise RefusedError (too-many) unless a user may have so many more."""
        if user is None:
            return
        for whose in (user, None):
            limit = self._limit(kind, whose)
            held = self.held(kind, whose)
            if 0 <= limit < held + count:
                self.refused[_key(kind, whose)] += 1
                self._struck.add((kind, whose))
                where = self.limits.origins.get(_key(kind, whose), "by default")
                stands = self._text(kind, whose).removesuffix(".")
                text = f"{stands} ({where}). {_ADVICE[kind]}, or raise the limit."
                raise RefusedError.of(Code.TOO_MANY, text, transient=True)

    def has_room(self, kind: Kind, user: str | None) -> bool:
        """Return whether one more would pass `check`; nothing is counted as refused."""
        limits = [(self._limit(kind, who), self.held(kind, who)) for who in (user, None)]
        return all(limit < 0 or held < limit for limit, held in limits)

    def reached(self) -> Iterator[Reached]:
        """Yield the limits that are reached now, or were in the way since the last time."""
        struck, self._struck = self._struck, set()
        users = dict.fromkeys([None, *self._users, *(user for _, user in struck)])
        for kind in Kind:
            for user in users:
                limit = self._limit(kind, user)
                if 0 <= limit <= self.held(kind, user) or (limit >= 0 and (kind, user) in struck):
                    yield self.look(kind, user)

    def look(self, kind: Kind, user: str | None) -> Reached:
        """Return how a limit stands."""
        return Reached(
            key=_key(kind, user),
            user=user,
            limit=self._limit(kind, user),
            value=self.held(kind, user),
            text=self._text(kind, user),
        )

    def _limit(self, kind: Kind, user: str | None) -> int:
        limits = self.limits
        return (limits.gateway if user is None else limits.user).get(kind, -1)

    def _text(self, kind: Kind, user: str | None) -> str:
        whose = f"User {user!r} has"
        if user is None:
            whose = "All users together have"
        elif user == NOBODY:
            whose = "Clients that proved no login count as one user, which has"
        return (
            f"{whose} {self.held(kind, user)} {_NAMES[kind]}, and {_key(kind, user)} is "
            f"{self._limit(kind, user)}."
        )


def _key(kind: Kind, user: str | None) -> str:
    return f"{'global' if user is None else 'user'}-max-{kind.value}"
