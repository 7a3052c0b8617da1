"""Which segments still hold something that lives, and how much.

For each queue it knows what range of seqs lies in which segment, which of them are gone, and how
many live. A segment may go when nothing in it lives and every older one is gone: a removal that it
records may concern an older segment that is still there. Pure.

Bytes of what lives are exact when something is added or copied; a removal takes the average of its
extent, since it does not say what was large.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from storage.batch import Batch, run_bound
from storage.ranges import merged_ranges, without_ranges

#: Seqs of ranges of an extent that may wait to be joined.
_LOOSE_MAX: Final = 64


class _Extent:
    """The seqs of one queue in one segment, `first` to `last`; `live` of them are there still.

    All below `floor` are not: queues drain from the front, so that this is most of what is to say.
    `gone` are others that are not, as first, last, first, last ..., and may overlap. Of these those
    before `head` are below the floor, and up to `ordered` they ascend.
    """

    __slots__ = (
        "bytes",
        "first",
        "floor",
        "gone",
        "head",
        "last",
        "live",
        "ordered",
        "segment",
    )

    def __init__(self, first: int, last: int, segment: int, live: int, size: int) -> None:
        self.first = self.floor = first
        self.last = last
        self.segment = segment
        self.live = live
        self.bytes = size
        self.gone: list[int] = []
        self.head = self.ordered = 0

    def lose(self, low: int, high: int) -> None:
        """Note that a range is gone."""
        if low <= self.floor:
            if high >= self.floor:
                self._raise(high + 1)
            return
        gone = self.gone
        if gone and gone[-1] == low - 1:
            gone[-1] = high
            return
        ordered = self.ordered
        if ordered == len(gone) and (not gone or gone[-1] < low):
            self.ordered = ordered + 2
        elif len(gone) - ordered > _LOOSE_MAX + ordered - self.head:
            gone.append(low)
            gone.append(high)
            self.join()
            return
        gone.append(low)
        gone.append(high)

    def _raise(self, floor: int) -> None:
        """Move the floor up, over what follows and is gone already."""
        gone, head, ordered = self.gone, self.head, self.ordered
        while head < ordered and gone[head] <= floor:
            floor = max(floor, gone[head + 1] + 1)
            head += 2
        self.floor = floor
        if head > _LOOSE_MAX and 2 * head > len(gone):
            del gone[:head]
            self.ordered = ordered - head
            head = 0
        self.head = head

    def join(self) -> list[tuple[int, int]]:
        """Sort and join what is gone, and return it as pairs."""
        ranges = merged_ranges([*self._below(), *self.gone[self.head :]])
        self._take(ranges)
        return ranges

    def _below(self) -> tuple[int, ...]:
        """Return what is below the floor as a range, if something is."""
        return (self.first, self.floor - 1) if self.floor > self.first else ()

    def _take(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Begin anew with these ranges, sorted and joined."""
        self.gone = [seq for pair in ranges for seq in pair]
        self.ordered = len(self.gone)
        self.head = 0
        self._raise(self.first)

    def absorb(self, part: _Extent) -> None:
        """Become one with the extent that follows."""
        assert self.last < part.first, "the other one does not follow"
        if part.first > self.last + 1:
            self.lose(self.last + 1, part.first - 1)
        self.last = part.last
        self.live += part.live
        self.bytes += part.bytes
        self.gone += [*part._below(), *part.gone[part.head :]]
        self.join()

    def part(self, first: int, last: int, segment: int) -> _Extent:
        """Return the part between two seqs; its bytes are a share."""
        ranges = self.join()
        alive = without_ranges([(first, last)], ranges)
        live = sum(high - low + 1 for low, high in alive)
        size = self.bytes * live // self.live if self.live else 0
        part = _Extent(first, last, segment, live, size)
        part._take(
            [
                (max(low, first), min(high, last))
                for low, high in ranges
                if low <= last and high >= first
            ]
        )
        return part

    def check_invariants(self) -> None:
        """Assert that gone seqs are within, and no more messages live than there are places."""
        assert self.first <= self.last, f"{self.first} to {self.last}"
        assert 0 <= self.live <= self.last - self.first + 1, f"{self.live} live"
        assert self.bytes >= 0, f"{self.bytes} bytes"
        assert self.first <= self.floor <= self.last + 1, f"{self.floor} is no floor of it"
        assert len(self.gone) % 2 == 0, "half a range is gone"
        assert 0 <= self.head <= self.ordered <= len(self.gone), "places in what is gone"
        known = self.gone[self.head : self.ordered]
        assert known == sorted(known), "what is said to ascend does not"


class SegmentIndex:
    """Live messages per segment.

    Attributes:
        live: per segment, oldest first, how many messages of how many queues live in it.
        used: per segment the bytes of its records, without the definitions that open it.
        used_bytes: the sum of `used`.
        live_bytes: about how much of it lives.
    """

    __slots__ = ("_extents", "_starts", "live", "live_bytes", "used", "used_bytes")

    def __init__(self) -> None:
        self.live: dict[int, int] = {}
        self.used: dict[int, int] = {}
        self.used_bytes = 0
        self.live_bytes = 0
        self._starts: dict[int, list[int]] = {}  # per queue: first seq of each extent, ascending
        self._extents: dict[int, list[_Extent]] = {}

    def open_segment(self, segment: int, used: int = 0) -> None:
        """Note that there is such a segment, with so many bytes of records."""
        self.live.setdefault(segment, 0)
        self.use(segment, used)

    def use(self, segment: int, size: int) -> None:
        """Note that so many bytes were put into a segment."""
        assert size >= 0, f"{size} bytes"
        self.used[segment] = self.used.get(segment, 0) + size
        self.used_bytes += size

    def oldest(self) -> int | None:
        """Return the oldest segment there is."""
        return min(self.live, default=None)

    def added(
        self, queue_id: int, first: int, last: int, segment: int, stored: int, *, size: int = 0
    ) -> None:
        """Note that seqs `first`..`last` are in `segment`; `stored` of them have a record."""
        self.live[segment] = self.live.get(segment, 0) + stored
        self.live_bytes += size
        extents = self._extents.setdefault(queue_id, [])
        if extents and extents[-1].segment == segment:
            newest = extents[-1]
            if first > newest.last + 1:
                newest.lose(newest.last + 1, first - 1)
            newest.last = last
            newest.live += stored
            newest.bytes += size
        else:
            self._starts.setdefault(queue_id, []).append(first)
            extents.append(_Extent(first, last, segment, stored, size))

    def add_batch(self, batch: Batch) -> None:
        """Note all that a closed batch stores, and set its `stored`: each message counts once."""
        total = 0
        for run, size in zip(batch.adds, batch.sizes, strict=True):
            bodies = run.bodies
            count = stored = len(bodies)
            if not isinstance(run.flags, int):
                stored -= bodies.count(None)
            total += stored
            share = run_bound(run, size) // len(run.targets) if stored else 0
            for queue_id, first in run.targets:
                self.added(queue_id, first, first + count - 1, batch.segment, stored, size=share)
                if stored != count:
                    extent = self._extents[queue_id][-1]
                    for seq, body in enumerate(bodies, first):
                        if body is None:
                            extent.lose(seq, seq)
        batch.stored = total

    def settle_batch(self, batch: Batch) -> None:
        """Note all that a synced batch moves and removes."""
        for queue_id, first, last, size, source in batch.moves:
            self.moved(queue_id, first, last, size, source=source, segment=batch.segment)
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
            self._take(extents[at], first, last, count)
            return
        low = first
        while at < len(extents) and low <= last:
            low = max(low, starts[at])
            high = min(last, extents[at].last)
            if high >= low:
                self._take(extents[at], low, high, high - low + 1)
                low = high + 1
            at += 1

    def _take(self, extent: _Extent, low: int, high: int, count: int) -> None:
        # Never more than there is: a wrong count must not free what other queues have there.
        gone = min(count, extent.live)
        if not gone:
            return
        size = extent.bytes * gone // extent.live
        extent.live -= gone
        extent.bytes -= size
        self.live_bytes -= size
        self.live[extent.segment] -= gone
        extent.lose(low, high)

    def alive(self, queue_id: int, segment: int, first: int, last: int) -> list[tuple[int, int]]:
        """Return the ranges of seqs between two that live, and live in this segment."""
        ranges: list[tuple[int, int]] = []
        starts = self._starts.get(queue_id, [])
        extents = self._extents.get(queue_id, [])
        for at in range(max(0, bisect_right(starts, first) - 1), len(extents)):
            extent = extents[at]
            if extent.first > last:
                break
            low, high = max(first, extent.first), min(last, extent.last)
            if extent.segment == segment and extent.live and low <= high:
                ranges += without_ranges([(low, high)], extent.join())
        return ranges

    def living(self, segment: int) -> dict[int, list[tuple[int, int]]]:
        """Return per queue the ranges of seqs that live in a segment, ascending."""
        found: dict[int, list[tuple[int, int]]] = {}
        for queue_id, extents in self._extents.items():
            ranges = [
                pair
                for extent in extents
                if extent.segment == segment and extent.live
                for pair in without_ranges([(extent.first, extent.last)], extent.join())
            ]
            if ranges:
                found[queue_id] = ranges
        return found

    def moved(
        self, queue_id: int, first: int, last: int, size: int, *, source: int, segment: int
    ) -> None:
        """Note that what lives between two seqs was copied out of `source`, into `size` bytes."""
        extents = self._extents.get(queue_id, [])
        at = max(0, bisect_right(self._starts.get(queue_id, []), first) - 1)
        while at < len(extents) and extents[at].first <= last:
            extent = extents[at]
            low, high = max(first, extent.first), min(last, extent.last)
            if extent.segment != source or low > high:
                at += 1
                continue
            middle = extent.part(low, high, segment)
            assert source != segment, "a copy is where it was"
            parts = [extent.part(extent.first, low - 1, source)] if low > extent.first else []
            parts.append(middle)
            if high < extent.last:
                parts.append(extent.part(high + 1, extent.last, source))
            self.live[source] -= middle.live
            self.live[segment] = self.live.get(segment, 0) + middle.live
            middle.bytes = size
            parts = [part for part in parts if part.live]
            self.live_bytes += sum(part.bytes for part in parts) - extent.bytes
            at = self._replace(queue_id, at, parts)

    def _replace(self, queue_id: int, at: int, parts: list[_Extent]) -> int:
        """Put parts in an extent's place, joined with a neighbour of the same segment."""
        extents, starts = self._extents[queue_id], self._starts[queue_id]
        before = extents[at - 1] if at else None
        if before is not None and parts and before.segment == parts[0].segment:
            before.absorb(parts.pop(0))
        extents[at : at + 1] = parts
        starts[at : at + 1] = [part.first for part in parts]
        return at + len(parts)

    def forget_queue(self, queue_id: int) -> None:
        """Forget a queue that is gone with all it held."""
        self._starts.pop(queue_id, None)
        for extent in self._extents.pop(queue_id, ()):
            self.live[extent.segment] -= extent.live
            self.live_bytes -= extent.bytes

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
        assert segment == self.oldest(), f"{segment} is not the oldest of {self.live}"
        assert not self.live[segment], f"{self.live[segment]} messages live in {segment}"
        del self.live[segment]
        self.used_bytes -= self.used.pop(segment, 0)
        for queue_id, extents in list(self._extents.items()):
            if all(extent.segment != segment for extent in extents):
                continue
            kept = [extent for extent in extents if extent.segment != segment]
            if kept:
                self._extents[queue_id] = kept
                self._starts[queue_id] = [extent.first for extent in kept]
            else:
                del self._extents[queue_id], self._starts[queue_id]

    def check_invariants(self) -> None:
        """Assert that sums are those of their parts, and that extents are in order.

        It goes through all extents.
        """
        assert self.used_bytes == sum(self.used.values()), "bytes in segments are miscounted"
        assert set(self.used) <= set(self.live), "bytes of segments that are not there"
        assert set(self._starts) == set(self._extents), "queues that have extents or none"
        live = dict.fromkeys(self.live, 0)
        size = 0
        for queue_id, extents in self._extents.items():
            starts = self._starts[queue_id]
            assert [extent.first for extent in extents] == starts, f"extents of {queue_id}"
            assert all(a.last < b.first for a, b in pairwise(extents)), f"order of {queue_id}"
            for extent in extents:
                extent.check_invariants()
                live[extent.segment] += extent.live
                size += extent.bytes
        assert live == self.live, f"{live} live in segments, {self.live} are counted"
        assert size == self.live_bytes, f"{size} bytes live, {self.live_bytes} are counted"
