"""Which segments still hold something that lives.

A segment may go when nothing in it lives and every older one is gone: a removal that it records may
concern an older segment that is still there. Pure.
"""

from __future__ import annotations

from bisect import bisect_right

from storage.batch import Batch


class LiveIndex:
    """Live messages per segment."""

    __slots__ = ("_extents", "_starts", "live")

    def __init__(self) -> None:
        self.live: dict[int, int] = {}
        self._starts: dict[int, list[int]] = {}  # per queue: first seq of each extent, ascending
        self._extents: dict[int, list[tuple[int, int]]] = {}  # per queue: (last seq, segment)

    def open_segment(self, segment: int) -> None:
        self.live.setdefault(segment, 0)

    def added(self, queue_id: int, first: int, last: int, segment: int, stored: int) -> None:
        """Note that seqs `first`..`last` are in `segment`; `stored` of them have a record."""
        self.live[segment] = self.live.get(segment, 0) + stored
        starts = self._starts.setdefault(queue_id, [])
        extents = self._extents.setdefault(queue_id, [])
        if extents and extents[-1][1] == segment:
            extents[-1] = (last, segment)
        else:
            starts.append(first)
            extents.append((last, segment))

    def add_batch(self, batch: Batch) -> None:
        """Note all that a taken batch stores."""
        for run in batch.adds:
            count = len(run.bodies)
            stored = count - run.bodies.count(None) if not isinstance(run.flags, int) else count
            for queue_id, first in run.targets:
                self.added(queue_id, first, first + count - 1, batch.segment, stored)

    def removed(self, queue_id: int, first: int, last: int, count: int) -> None:
        """Note that `count` stored messages between two seqs are gone.

        A range over several segments holds stored messages only (callers split what does not).
        """
        starts = self._starts.get(queue_id)
        if not starts:
            return
        extents = self._extents[queue_id]
        at = bisect_right(starts, first) - 1
        at = max(at, 0)
        end, segment = extents[at]
        if last <= end:
            self.live[segment] -= count
        else:
            low = first
            while at < len(extents) and low <= last:
                end, segment = extents[at]
                high = min(last, end)
                if high >= low:
                    self.live[segment] -= high - low + 1
                    low = high + 1
                at += 1

    def forget_queue(self, queue_id: int) -> None:
        """Forget a deleted queue; callers removed its messages first."""
        self._starts.pop(queue_id, None)
        self._extents.pop(queue_id, None)

    def reclaimable(self, current: int) -> list[int]:
        """Return the oldest segments, before `current`, in which nothing lives."""
        free: list[int] = []
        for segment in sorted(self.live):
            if segment >= current or self.live[segment] > 0:
                break
            free.append(segment)
        return free

    def drop_segment(self, segment: int) -> None:
        """Forget a segment whose file is gone."""
        del self.live[segment]
        for queue_id, extents in list(self._extents.items()):
            if extents and extents[0][1] == segment:
                extents.pop(0)
                self._starts[queue_id].pop(0)
