"""Which segments still hold something that lives.

For each queue it knows what range of seqs lies in which segment and how many of them live. A
segment may go when nothing in it lives and every older one is gone: a removal that it records may
concern an older segment that is still there. Pure.
"""

from __future__ import annotations

from bisect import bisect_right

from storage.batch import Batch


class _Extent:
    """The seqs of one queue in one segment, up to `last`; `live` of them are there still."""

    __slots__ = ("last", "live", "segment")

    def __init__(self, last: int, segment: int, live: int) -> None:
        self.last = last
        self.segment = segment
        self.live = live


class LiveIndex:
    """Live messages per segment."""

    __slots__ = ("_extents", "_starts", "live")

    def __init__(self) -> None:
        self.live: dict[int, int] = {}
        self._starts: dict[int, list[int]] = {}  # per queue: first seq of each extent, ascending
        self._extents: dict[int, list[_Extent]] = {}

    def open_segment(self, segment: int) -> None:
        """Note that there is such a segment."""
        self.live.setdefault(segment, 0)

    def added(self, queue_id: int, first: int, last: int, segment: int, stored: int) -> None:
        """Note that seqs `first`..`last` are in `segment`; `stored` of them have a record."""
        self.live[segment] = self.live.get(segment, 0) + stored
        extents = self._extents.setdefault(queue_id, [])
        if extents and extents[-1].segment == segment:
            newest = extents[-1]
            newest.last = last
            newest.live += stored
        else:
            self._starts.setdefault(queue_id, []).append(first)
            extents.append(_Extent(last, segment, stored))

    def add_batch(self, batch: Batch) -> None:
        """Note all that a closed batch stores, and set its `stored`: each message counts once."""
        total = 0
        for run in batch.adds:
            count = stored = len(run.bodies)
            if not isinstance(run.flags, int):
                stored -= run.bodies.count(None)
            total += stored
            for queue_id, first in run.targets:
                self.added(queue_id, first, first + count - 1, batch.segment, stored)
        batch.stored = total

    def settle_batch(self, batch: Batch) -> None:
        """Note all that a synced batch removes."""
        for queue_id, first, last, count in batch.removed_live:
            self.removed(queue_id, first, last, count)
        for queue_id in batch.forgotten:
            self.forget_queue(queue_id)

    def removed(self, queue_id: int, first: int, last: int, count: int) -> None:
        """Note that `count` stored messages between two seqs are gone.

        A range over several segments holds stored messages only (callers split what does not).
        """
        starts = self._starts.get(queue_id)
        if not starts:
            return
        extents = self._extents[queue_id]
        at = max(0, bisect_right(starts, first) - 1)
        if last <= extents[at].last:
            self._take(extents[at], count)
            return
        low = first
        while at < len(extents) and low <= last:
            high = min(last, extents[at].last)
            if high >= low:
                self._take(extents[at], high - low + 1)
                low = high + 1
            at += 1

    def _take(self, extent: _Extent, count: int) -> None:
        # Never more than there is: a wrong count must not free what other queues have there.
        gone = min(count, extent.live)
        extent.live -= gone
        self.live[extent.segment] -= gone

    def forget_queue(self, queue_id: int) -> None:
        """Forget a queue that is gone with all it held."""
        self._starts.pop(queue_id, None)
        for extent in self._extents.pop(queue_id, ()):
            self.live[extent.segment] -= extent.live

    def reclaimable(self, current: int) -> list[int]:
        """Return the oldest segments, before `current`, in which nothing lives."""
        free: list[int] = []
        for segment in sorted(self.live):
            if segment >= current or self.live[segment] > 0:
                break
            free.append(segment)
        return free

    def drop_segment(self, segment: int) -> None:
        """Forget a segment whose file is gone; none is older."""
        del self.live[segment]
        for queue_id, extents in list(self._extents.items()):
            if extents and extents[0].segment == segment:
                extents.pop(0)
                self._starts[queue_id].pop(0)
            if not extents:
                del self._extents[queue_id], self._starts[queue_id]
