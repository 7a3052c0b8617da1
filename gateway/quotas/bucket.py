"""A token bucket: what may pass at a rate, with what was left over kept for a burst. Pure.

    level(now) = min(capacity, level + rate * seconds that went by)

What has come already is always taken out, also below zero: a debt, which is over when the rate has
paid it. So what passes in t seconds is at most the capacity, rate * t, and the last thing that
passed while there was something left.
"""

from __future__ import annotations


class Bucket:
    """See the module text. Times are seconds of one clock; where it goes back, nothing is added.

    Attributes:
        rate: tokens a second, above 0.
        capacity: tokens that it may hold, 1 at least.
    """

    __slots__ = ("_at", "_level", "capacity", "rate")

    def __init__(self, rate: float, capacity: float, now: float) -> None:
        """Begin full."""
        self.rate = rate
        self.capacity = max(1.0, capacity)
        self._level = self.capacity
        self._at = now

    def level(self, now: float) -> float:
        """Return what is there; below 0 it is owed."""
        passed = now - self._at
        self._at = now
        if passed > 0 and self._level < self.capacity:
            self._level = min(self.capacity, self._level + passed * self.rate)
        return self._level

    def take(self, count: float, now: float) -> float:
        """Take so many out, whether they are there or not; returns what is left. Hot."""
        passed = now - self._at
        self._at = now
        level = self._level
        if passed > 0:
            level += passed * self.rate
            level = min(level, self.capacity)
        self._level = level = level - count
        return level

    def wait(self, wanted: float, now: float) -> float:
        """Return the seconds until so many are there, or all that it can hold."""
        missing = min(wanted, self.capacity) - self.level(now)
        return max(0.0, missing / self.rate)

    def change(self, rate: float, capacity: float, now: float) -> None:
        """Go on with other bounds: nobody waits longer than the new ones would have them."""
        self.level(now)
        self.rate = rate
        self.capacity = max(1.0, capacity)
        self._level = min(max(self._level, -self.capacity), self.capacity)
