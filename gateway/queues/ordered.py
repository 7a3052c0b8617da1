"""What a list that is kept in order promises, for those that assert their invariants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise


def ascends(numbers: Iterable[int]) -> bool:
    """Whether each number is above the one before it."""
    return all(a < b for a, b in pairwise(numbers))


def is_heap(entries: Sequence[tuple[int, ...]]) -> bool:
    """Whether no entry is below its parent in the heap."""
    return all(entries[at] >= entries[(at - 1) // 2] for at in range(1, len(entries)))
