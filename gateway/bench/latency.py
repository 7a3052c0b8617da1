"""Latency by run: one clock reading for each run of messages, percentiles over all of them.

A driver that read the clock for every message would measure itself. Here a run (what one write
carries) shares its time of sending, and what one read answers shares its time of arrival; a sample
is a pair of nanoseconds and the number of messages it stands for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence


class RunTimes:
    """When each of a row of numbered messages was sent or asked for; numbers start at 0."""

    __slots__ = ("_ends", "_times", "samples")

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._times: list[int] = []
        #: (nanoseconds, messages)
        self.samples: list[tuple[int, int]] = []

    def add(self, end: int, now: int) -> None:
        """The messages from the last run's end up to `end` (not included) start at `now` ns."""
        self._ends.append(end)
        self._times.append(now)

    def arrived(self, first: int, end: int, now: int) -> None:
        """The messages `first` to `end` (not included) are answered at `now` ns."""
        ends, times = self._ends, self._times
        at = bisect_right(ends, first)
        while first < end and at < len(ends):
            upto = min(end, ends[at])
            self.samples.append((now - times[at], upto - first))
            first = upto
            at += 1


def percentiles(
    samples: Iterable[tuple[int, int]], wanted: Sequence[float] = (0.5, 0.99, 1.0)
) -> list[float]:
    """Return the wanted percentiles of weighted samples in milliseconds; nothing for no samples."""
    ordered = sorted(samples)
    total = sum(weight for _, weight in ordered)
    if not total:
        return []
    found = []
    for share in wanted:
        left = share * total
        value = ordered[-1][0]
        for nanoseconds, weight in ordered:
            left -= weight
            if left <= 0:
                value = nanoseconds
                break
        found.append(value / 1e6)
    return found
