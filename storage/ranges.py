"""Sets of seqs as ranges: flat (first, last, first, last ...) or as sorted pairs. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import sub


def merged_ranges(flat: Sequence[int]) -> list[tuple[int, int]]:
    """Return sorted, joined pairs of a flat sequence, whose ranges may overlap."""
    assert len(flat) % 2 == 0, "half a range"
    lows, highs = flat[::2], flat[1::2]
    if min(map(sub, lows[1:], highs), default=2) >= 2:
        return list(zip(lows, highs, strict=True))  # as it is where a queue was drained in order
    joined: list[tuple[int, int]] = []
    for low, high in sorted(zip(lows, highs, strict=True)):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return joined


def without_ranges(
    ranges: Sequence[tuple[int, int]], gone: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return what is left of sorted ranges without other sorted, joined ones."""
    if not gone:
        return list(ranges)
    left: list[tuple[int, int]] = []
    for first, high in ranges:
        low = first
        at = max(0, bisect_left(gone, (low, 0)) - 1)
        while at < len(gone) and gone[at][0] <= high:
            start, end = gone[at]
            if end >= low:
                if start > low:
                    left.append((low, start - 1))
                low = end + 1
            at += 1
        if low <= high:
            left.append((low, high))
    return left
