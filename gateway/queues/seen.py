"""Which messages somebody was shown: their seqs as ranges that do not touch one another."""

from __future__ import annotations

from bisect import bisect_right


class Seen:
    """See the module text. Adding in ascending order costs O(log n) of the number of ranges."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def __len__(self) -> int:
        """Return how many ranges there are."""
        return len(self._firsts)

    def __contains__(self, seq: int) -> bool:
        at = bisect_right(self._firsts, seq) - 1
        return at >= 0 and seq <= self._lasts[at]

    def add(self, seq: int) -> None:
        """Add one."""
        firsts, lasts = self._firsts, self._lasts
        at = bisect_right(firsts, seq)
        if at and seq <= lasts[at - 1]:
            return
        behind = bool(at) and lasts[at - 1] == seq - 1
        before = at < len(firsts) and firsts[at] == seq + 1
        if behind and before:
            lasts[at - 1] = lasts.pop(at)
            del firsts[at]
        elif behind:
            lasts[at - 1] = seq
        elif before:
            firsts[at] = seq
        else:
            firsts.insert(at, seq)
            lasts.insert(at, seq)

    def discard(self, seq: int) -> None:
        """Take one out again, if it is there."""
        firsts, lasts = self._firsts, self._lasts
        at = bisect_right(firsts, seq) - 1
        if at < 0 or seq > lasts[at]:
            return
        first, last = firsts[at], lasts[at]
        parts = [(low, high) for low, high in ((first, seq - 1), (seq + 1, last)) if low <= high]
        assert first <= seq <= last, "taken out of a range that has it not"
        firsts[at : at + 1] = [low for low, _ in parts]
        lasts[at : at + 1] = [high for _, high in parts]

    def check_invariants(self) -> None:
        """Assert that ranges ascend, hold something, and do not touch."""
        assert len(self._firsts) == len(self._lasts), "a range without an end"
        for first, last in zip(self._firsts, self._lasts, strict=True):
            assert first <= last, f"a range from {first} to {last}"
        for last, first in zip(self._lasts, self._firsts[1:], strict=False):
            assert last + 1 < first, f"ranges that touch, at {first}"
