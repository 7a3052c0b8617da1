"""What one queue has on one page: a range of seqs, and which of them it is done with.

No object per message: the blocks are two arrays, what is done is a floor and, only where something
was done out of order, one byte per place. The floor is the lowest seq that is not done.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator

from gateway.queues.ordered import ascends

_DONE = b"\x01"


class Part:
    """See the module text.

    Attributes:
        first: the seq of the first message.
        last: the seq of the last one.
        readable: the seq of the last one that is durable.
        floor: the lowest seq that is not done.
        live: how many are not done.
    """

    __slots__ = ("_blocks", "_marks", "_seqs", "first", "floor", "last", "live", "readable")

    def __init__(self, first: int) -> None:
        self.first = self.floor = first
        self.last = self.readable = first - 1
        self.live = 0
        self._seqs = array("Q")  # first seq in each block
        self._blocks = array("I")
        self._marks: bytearray | None = None  # from `first` on

    # ---- what is there

    def grow(self, first: int, count: int) -> None:
        """Append messages; seqs that were left out in between count as done."""
        missing = first - self.last - 1
        assert missing >= 0, "grows by what it has"
        self.last += missing + count
        self.live += missing + count
        if missing:
            self.finish(first - missing, first - 1)

    def index(self, block: int, first: int, count: int) -> None:
        """Note that a block with `count` of the messages is durable."""
        assert self.readable < first, "a block that is durable already"
        assert first + count - 1 <= self.last, "durable, and never appended"
        self._seqs.append(first)
        self._blocks.append(block)
        self.readable = first + count - 1

    def block_of(self, seq: int) -> tuple[int, int]:
        """Return the block that a readable message is in, and the seq of the first one there."""
        assert seq <= self.readable, "the block of what is not durable"
        at = bisect_right(self._seqs, seq) - 1
        return self._blocks[at], self._seqs[at]

    def blocks_from(self, seq: int) -> Iterator[tuple[int, int]]:
        """Yield (block, its last seq) of the readable ones, from the one that has `seq` on."""
        seqs = self._seqs
        for at in range(max(0, bisect_right(seqs, seq) - 1), len(seqs)):
            yield self._blocks[at], seqs[at + 1] - 1 if at + 1 < len(seqs) else self.readable

    def block_with(self, seq: int) -> tuple[int, int]:
        """Return the block that a readable message is in, and the seq of the last one there."""
        seqs = self._seqs
        at = bisect_right(seqs, seq)
        return self._blocks[at - 1], seqs[at] - 1 if at < len(seqs) else self.readable

    # ---- what is done

    def finish(self, first: int, last: int) -> int:
        """Be done with what lies between two seqs; returns how many were not done before."""
        low, high = max(first, self.floor), min(last, self.last)
        if high < low:
            return 0
        marks = self._marks
        if marks is None and low == self.floor:
            self.floor = high + 1
            count = high - low + 1
        else:
            if marks is None:
                marks = self._marks = bytearray()
            marks.extend(bytes(self.last - self.first + 1 - len(marks)))
            start, stop = low - self.first, high + 1 - self.first
            count = stop - start - marks.count(_DONE, start, stop)
            marks[start:stop] = _DONE * (stop - start)
            if low == self.floor:
                at = marks.find(0, start)
                self.floor = self.first + (at if at >= 0 else len(marks))
        self.live -= count
        assert self.live >= 0, "done with more than there was"
        if not self.live:
            self._marks = None
            self.floor = self.last + 1
        return count

    def next_waiting(self, start: int) -> int:
        """Return the first seq from `start` on that is not done; one behind the last without."""
        at = max(start, self.floor)
        marks = self._marks
        if marks is None or at - self.first >= len(marks):
            return at
        place = marks.find(0, at - self.first)
        return self.first + (place if place >= 0 else len(marks))

    def waiting(self, start: int) -> Iterator[tuple[int, int]]:
        """Yield (first, last) of what is not done, from `start` on."""
        at = max(start, self.floor)
        marks = self._marks
        if marks is None:
            if at <= self.last:
                yield at, self.last
            return
        end = self.last - self.first + 1
        place = at - self.first
        while place < end:
            low = marks.find(0, place) if place < len(marks) else place
            if low < 0:
                low = len(marks)
            if low >= end:
                return
            high = marks.find(_DONE, low)
            place = high if high >= 0 else end
            yield self.first + low, self.first + place - 1

    def marks(self) -> bytes:
        """Return one byte per place from `first` on where something was done out of order."""
        return bytes(self._marks) if self._marks is not None else b""

    def restore_marks(self, first: int, floor: int, marks: bytes) -> int:
        """Be done with what a snapshot says; returns how many were not done before."""
        assert first >= self.first, "marks of what is not there"
        count = self.finish(first, floor - 1)
        place = marks.find(_DONE)
        while place >= 0:
            end = marks.find(0, place)
            end = end if end >= 0 else len(marks)
            count += self.finish(first + place, first + end - 1)
            place = marks.find(_DONE, end)
        return count

    def check_invariants(self) -> None:
        """Assert that floor, marks and count say the same, and that blocks are in order."""
        assert self.first <= self.floor <= self.last + 1, "the floor is outside"
        assert self.readable <= self.last, "durable, and never appended"
        live = sum(high - low + 1 for low, high in self.waiting(self.first))
        assert self.live == live, f"{self.live} are counted, and {live} are not done"
        assert self.next_waiting(self.first) == self.floor, "the floor is not the lowest"
        assert len(self.marks()) <= self.last + 1 - self.first, "marks of what is not there"
        assert self.live or self._marks is None, "marks, and all is done"
        assert len(self._seqs) == len(self._blocks), "a block without its seq"
        assert ascends(self._seqs), "seqs of blocks in no order"
        assert ascends(self._blocks), "blocks in no order"
        if self._seqs:
            assert self.first <= self._seqs[0], "a block that begins before its part"
            assert self._seqs[-1] <= self.readable, "a block behind what is durable"
