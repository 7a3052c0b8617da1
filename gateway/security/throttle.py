"""Slows down guessing, by whom it comes from and whom it is about, and locks nobody else out.

Three counts of wrong passwords, each a bucket that fills again:

    one user from one address   five, then a wait that doubles from 12 s up to five minutes
    all users from one address  fifty, then one try in six seconds
    one user from anywhere      twenty, then one try in twelve seconds

The last two hold back strangers only: who has come in by a user from an address goes on to,
whatever others try. A right password, or a minute of an open door without a wrong one, forgets the
first. An IPv6 network of 64 bits is one address, since one host has all of it; and this machine
itself, where everybody may come from behind a proxy, is not counted as an address. Names that
differ in case or in spaces around them are one user. Pure: time is an argument, in seconds.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import Final

FAILURES: Final = 5.0
REFILL_SECONDS: Final = 12.0
WAIT_FIRST: Final = 12.0
WAIT_MAX: Final = 300.0
FORGET_SECONDS: Final = 60.0
PLACE_FAILURES: Final = 50.0
PLACE_SECONDS: Final = 6.0
USER_FAILURES: Final = 20.0
USER_SECONDS: Final = 12.0
#: Of each table; the oldest goes first. An attacker who pushes entries out has spent as many
#: guesses.
PAIRS_MAX: Final = 10_000
#: As much of a name is looked at: none that can log in is longer.
_NAME_CHARS: Final = 255
_NETWORK_BITS: Final = 64

#: Address of the peer, and user.
Pair = tuple[str, str]


def place_of(address: str) -> str:
    """Return what counts as one address: an IPv4 address, or an IPv6 network."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is None:
            if found.is_loopback:
                return "::1"
            return str(ipaddress.ip_network((found, _NETWORK_BITS), strict=False))
        found = found.ipv4_mapped
    return str(found)


def _is_here(place: str) -> bool:
    """Whether a place is this machine."""
    return place in ("", "::1") or place.startswith("127.")


class _Bucket:
    __slots__ = ("closed_until", "left", "updated", "wait")

    def __init__(self, now: float) -> None:
        self.left = FAILURES
        self.updated = now
        self.wait = WAIT_FIRST
        self.closed_until = 0.0


class _Paced:
    """Buckets that let one try through, again and again, when they are empty."""

    __slots__ = ("_buckets", "_full", "_refill")

    def __init__(self, full: float, refill: float) -> None:
        self._full = full
        self._refill = refill
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def closed_for(self, key: str, now: float) -> float:
        return max(0.0, (1.0 - self._left(key, now)) * self._refill)

    def failed(self, key: str, now: float) -> None:
        # Not below empty: many tries at once would hold back everybody for as many waits.
        left = max(0.0, self._left(key, now) - 1.0)
        self._buckets.pop(key, None)
        if len(self._buckets) >= PAIRS_MAX:
            self._buckets.popitem(last=False)
        self._buckets[key] = (left, now)

    def _left(self, key: str, now: float) -> float:
        left, updated = self._buckets.get(key, (self._full, now))
        return min(self._full, left + (now - updated) / self._refill)

    def __len__(self) -> int:
        return len(self._buckets)


class FailureThrottle:
    """All buckets."""

    __slots__ = ("_buckets", "_known", "_places", "_users")

    def __init__(self) -> None:
        self._buckets: dict[Pair, _Bucket] = {}
        self._places = _Paced(PLACE_FAILURES, PLACE_SECONDS)
        self._users = _Paced(USER_FAILURES, USER_SECONDS)
        #: Who has come in from where, the latest last.
        self._known: OrderedDict[Pair, None] = OrderedDict()

    def knows(self, pair: Pair) -> bool:
        """Return whether this user has come in from there before."""
        return _plain(pair) in self._known

    def allows(self, pair: Pair, now: float) -> bool:
        """Return whether this peer may try this user now."""
        return not self.closed_for(pair, now)

    def closed_for(self, pair: Pair, now: float) -> float:
        """Return for how many seconds this peer may not try this user; 0: it may now."""
        pair = place, user = _plain(pair)
        bucket = self._buckets.get(pair)
        closed = 0.0 if bucket is None else max(0.0, bucket.closed_until - now)
        if pair in self._known:
            return closed
        far = 0.0 if _is_here(place) else self._places.closed_for(place, now)
        return max(closed, far, self._users.closed_for(user, now))

    def failed(self, pair: Pair, now: float) -> None:
        """Count a wrong password."""
        pair = place, user = _plain(pair)
        bucket = self._buckets.pop(pair, None)
        if bucket is None or now - max(bucket.updated, bucket.closed_until) >= FORGET_SECONDS:
            bucket = _Bucket(now)
        bucket.left = min(FAILURES, bucket.left + (now - bucket.updated) / REFILL_SECONDS) - 1
        bucket.updated = now
        if bucket.left < 1 or bucket.closed_until:
            bucket.closed_until = now + bucket.wait
            bucket.wait = min(bucket.wait * 2, WAIT_MAX)
        if len(self._buckets) >= PAIRS_MAX:
            del self._buckets[next(iter(self._buckets))]
        self._buckets[pair] = bucket
        if not _is_here(place):
            self._places.failed(place, now)
        self._users.failed(user, now)

    def succeeded(self, pair: Pair) -> None:
        """Forget the failures of a pair, and know it from now on."""
        pair = _plain(pair)
        self._buckets.pop(pair, None)
        self._known[pair] = None
        self._known.move_to_end(pair)
        if len(self._known) > PAIRS_MAX:
            self._known.popitem(last=False)

    def __len__(self) -> int:
        """Return how many entries the largest table has."""
        return max(len(self._buckets), len(self._places), len(self._users), len(self._known))


def _plain(pair: Pair) -> Pair:
    address, user = pair
    return place_of(address), user[:_NAME_CHARS].strip().casefold()
