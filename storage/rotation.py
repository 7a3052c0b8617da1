"""Where batches go: the segments that are filled one after the other, emptied and given back.

    fixed ──> place in a segment ──synced──> settled ──all before it empty──> segments given back
                   └──no room──> the next segment begins with all that holds

Only what is synced counts: removals of a batch free what they remove when it is, and a segment goes
when all in it and in those before it is free, and a later segment is synced. On disk batches are
numbered without gaps, in the order in which they are placed. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from storage.batch import Batch
from storage.batch_state import State
from storage.compaction import COPY_BYTES, Compaction, CompactionRule
from storage.record import SEGMENT_HEADER_BYTES
from storage.segment_index import SegmentIndex


class Rotation:
    """See the module text.

    Attributes:
        segment: number of the one that is being filled (read only).
        on_disk: number on disk of the last batch that is synced (read only).
        index: what lives where.
        compaction: what is carried forward out of old segments.
        snapshot: returns the definitions that hold now; each segment begins with them.
    """

    __slots__ = (
        "_found",
        "_next",
        "_room",
        "_segment_bytes",
        "_suspect",
        "_synced_segment",
        "_told",
        "compaction",
        "index",
        "on_disk",
        "segment",
        "snapshot",
    )

    def __init__(
        self,
        *,
        next_batch: int,
        next_segment: int,
        segment_bytes: int,
        suspect: bool,
        rule: CompactionRule,
        seen: int,
        suspect_before: int,
    ) -> None:
        """Begin behind what was recovered; see `storage.journal.Journal`.

        `next_batch` is the number on disk of the next batch; `suspect`: it says that the stop
        before was not in order.
        """
        assert next_batch > 0, "batches are counted from 1"
        assert next_segment > 0, "segments are counted from 1"
        self._next = next_batch
        self.on_disk = next_batch - 1
        self.segment = self._found = next_segment - 1
        self._segment_bytes = segment_bytes
        self._room = 0  # the first batch opens a segment: old ones are not appended to
        self._synced_segment = 0
        self._suspect = suspect
        self._told: list[Batch] = []  # with the kernel, and not synced
        self.snapshot: Callable[[], list[bytes]] = list
        self.index = SegmentIndex()
        self.compaction = Compaction(self.index, rule, seen=seen, suspect_before=suspect_before)

    # ---- a place

    def place(self, batch: Batch, *, lax: bool) -> None:
        """Fix where a batch goes; `lax`: it may be told before it is synced.

        Now and not when the writer is free: what a new segment begins with must be what holds at
        this ticket, not what later ones have made of it.
        """
        assert not batch.cancelled, "cancelled messages take room"
        used = batch.bytes_bound
        batch.suspect, self._suspect = self._suspect, False
        if used > self._room:
            self._roll(batch)
        self._room -= batch.bytes_bound
        assert self._room >= 0, "the batch does not fit into its segment"
        batch.segment = self.segment
        batch.written_as = self._next
        for block in batch.pages:
            block.written_as = batch.written_as
        self._next += 1
        batch.firm = not lax or batch.suspect or bool(batch.notes)
        batch.become(State.FIXED)
        self.index.use(self.segment, used)
        self.index.add_batch(batch)

    def _roll(self, batch: Batch) -> None:
        """Begin the next segment with this batch."""
        self.segment += 1
        batch.add_snapshot(self.snapshot())
        self._room = max(self._segment_bytes - SEGMENT_HEADER_BYTES, batch.bytes_bound)
        self.index.open_segment(self.segment)

    def segment_size(self, batch: Batch) -> int:
        """Return the file size in bytes for the segment that `batch` opens."""
        return max(self._segment_bytes, SEGMENT_HEADER_BYTES + batch.bytes_bound)

    @property
    def reached(self) -> tuple[int, int]:
        """The segment of the last synced batch, and its number as on disk."""
        return self._synced_segment or self._found, self.on_disk

    @property
    def told(self) -> Sequence[Batch]:
        """The batches that were told and are not synced, the oldest first."""
        return self._told

    # ---- an answer of the writer

    def written(self, batch: Batch) -> None:
        """Note that the kernel has a batch, and if it is firm that the device has it."""
        assert batch.synced == self.on_disk, "the batch says of another one that it is synced"
        if not batch.firm:
            batch.become(State.TOLD)
            self._told.append(batch)
            return
        assert batch.written_as == self.on_disk + len(self._told) + 1, "a batch was left out"
        for one in (*self._told, batch):
            one.become(State.SYNCED)
            self.index.settle_batch(one)
        self._told.clear()
        self.on_disk = batch.written_as
        self._synced_segment = batch.segment

    def take_empty(self) -> list[int]:
        """Give up the segments that nothing is left of, and return them, the oldest first.

        Only what is older than the segment of the last synced batch: the removals that make these
        segments garbage are durable, and so are the definitions that held in them.
        """
        free = self.index.reclaimable(self._synced_segment)
        for segment in free:
            assert segment < self._synced_segment, "the segments behind it are not synced"
            self.index.drop_segment(segment)
        return free

    # ---- compaction

    def compact(self, batch: Batch, waiting: Sequence[Batch], synced: int) -> int | None:
        """Put copies into the open batch, or return the offset at which to read on, or None.

        `waiting` are the closed batches that are not with the kernel, `synced` is the last ticket
        that is on disk. One step waits for the one before to be durable: what it moved counts then,
        and senders have the disk in between.
        """
        assert batch.state is State.OPEN, "copies would be in the middle of an atomic part"
        limit = min(COPY_BYTES, self._segment_bytes // 4)
        place = self._synced_segment, synced
        return self.compaction.advance(batch, [*self._told, *waiting], limit, place)

    def leave(self, segment: int) -> bool:
        """Have the next batch go elsewhere if that is where it would go; returns whether it is.

        Also where nothing is synced yet: then something has to be, before anything can be emptied.
        """
        if segment != self.segment and self._synced_segment:
            return False
        self._room = 0
        return True

    def check_invariants(self, placed: Sequence[Batch]) -> None:
        """Assert that numbers and segments ascend.

        `placed` are the fixed batches that are not with the kernel, the oldest first.
        """
        assert self._found <= self.segment, "segments go backwards"
        assert self._room >= 0, "the segment is more than full"
        assert self._synced_segment <= self.segment, "the synced segment is not begun"
        number, segment = self.on_disk, self._synced_segment
        for batch in (*self._told, *placed):
            number += 1
            assert batch.written_as == number, f"{batch.written_as} on disk where {number} comes"
            assert segment <= batch.segment <= self.segment, "a batch goes to an older segment"
            segment = batch.segment
        assert self._next == number + 1, f"{self._next} comes after {number}"
        for batch in self._told:
            assert batch.state is State.TOLD, f"{batch.state.name} and counted as told"
        self.index.check_invariants()
        self.compaction.check_invariants()
