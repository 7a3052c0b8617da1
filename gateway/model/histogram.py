"""A histogram of durations, as Prometheus counts them: how many took at most so long. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """May be observed by one thread and read by another.

    Attributes:
        name, text: of the metric, without the common prefix.
        bounds: in seconds, ascending; above the last one there is one more class.
        counts: by class, each on its own.
        sum: of all that was observed.
    """

    __slots__ = ("bounds", "counts", "name", "sum", "text")

    def __init__(self, name: str, text: str, bounds: Sequence[float]) -> None:
        self.name = name
        self.text = text
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds

    def totals(self) -> list[int]:
        """Return, for each bound, how many took at most so long, and then how many there were."""
        found, total = [], 0
        for count in list(self.counts):
            total += count
            found.append(total)
        return found
