"""Slows down guessing: after a few wrong passwords a peer must wait before its next try.

A bucket of five failures for each pair of peer and user, one more every twelve seconds. An empty
bucket closes the door for twelve seconds; each failure after that closes it for twice as long as
the time before, up to five minutes. A right password, or a minute of an open door without a wrong
one, forgets all that. Pure: time is an argument, in seconds.
"""

from __future__ import annotations

from typing import Final

FAILURES: Final = 5.0
REFILL_SECONDS: Final = 12.0
WAIT_FIRST: Final = 12.0
WAIT_MAX: Final = 300.0
FORGET_SECONDS: Final = 60.0
#: Pairs remembered; the oldest goes first. An attacker who pushes entries out has spent as many
#: guesses.
PAIRS_MAX: Final = 10_000

Pair = tuple[str, str]


class _Bucket:
    __slots__ = ("closed_until", "left", "updated", "wait")

    def __init__(self, now: float) -> None:
        self.left = FAILURES
        self.updated = now
        self.wait = WAIT_FIRST
        self.closed_until = 0.0


class FailureThrottle:
    """All buckets."""

    __slots__ = ("_buckets",)

    def __init__(self) -> None:
        self._buckets: dict[Pair, _Bucket] = {}

    def allows(self, pair: Pair, now: float) -> bool:
        """Return whether this peer may try this user now."""
        bucket = self._buckets.get(pair)
        return bucket is None or now >= bucket.closed_until

    def closed_for(self, pair: Pair, now: float) -> float:
        """Return for how many seconds this peer may not try this user; 0: it may now."""
        bucket = self._buckets.get(pair)
        return 0.0 if bucket is None else max(0.0, bucket.closed_until - now)

    def failed(self, pair: Pair, now: float) -> None:
        """Count a wrong password."""
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

    def succeeded(self, pair: Pair) -> None:
        """Forget the failures of a pair."""
        self._buckets.pop(pair, None)

    def __len__(self) -> int:
        return len(self._buckets)
