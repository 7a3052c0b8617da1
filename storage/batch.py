"""The batch that is being filled; what is consumed before it is written is never written.

Until a batch is fixed, a removal of a message that it adds cancels both. What is fixed stays so for
good: later removals of it become REMOVE records of a later batch. `storage.batch_state` has the
states. Pure.

Order inside a batch does not matter to recovery, since it is durable whole or not at all: notes
first, then adds, copies, removals, counts, new due times, pages; the mark of a suspect start comes
before all of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import Final

from storage.batch_state import Kind, State
from storage.pages import PageBlock
from storage.ranges import merged_ranges
from storage.record import (
    BATCH_HEADER_BYTES,
    CLEAN_RECORD,
    SUSPECT_RECORD,
    AddRun,
    encode_add,
    encode_count,
    encode_note,
    encode_paged,
    encode_postponed,
    encode_remove,
)

#: Upper bound of a record's own bytes beside bodies, per run and per message; for room in a
#: segment.
_RUN_BYTES: Final = 64
_MESSAGE_BYTES: Final = 16
_RANGE_BYTES: Final = 16
_NOTE_BYTES: Final = 8
#: The marks of a suspect start and of a clean stop.
_MARK_BYTES: Final = 2
#: Members of an Enum are looked up slowly; these are for each turn.
_OPEN: Final = State.OPEN
_ATOMIC: Final = State.ATOMIC
_TOLD: Final = State.TOLD
_RECORDS: Final = Kind.RECORDS


class Batch:
    """Records that become durable together, numbered by their ticket.

    Attributes:
        state, kind: see `storage.batch_state`.
        whole: what has its ticket has no part in the batch before; else the batch was begun in the
            middle of something.
        asked: its ticket was given for what consumers have taken.
        firm: synced before it is told; else told when the kernel has it. Known when it is fixed.
        suspect: it says that the stop before was not in order. Known when it is fixed.
    """

    __slots__ = (
        "adds",
        "asked",
        "bytes_bound",
        "cancelled",
        "copies",
        "counts",
        "firm",
        "first_seqs",
        "forgotten",
        "kind",
        "moves",
        "notes",
        "number",
        "owed",
        "page_bytes",
        "pages",
        "postponed",
        "removed_live",
        "removes",
        "saved",
        "saved_bytes",
        "segment",
        "sizes",
        "state",
        "stored",
        "suspect",
        "synced",
        "tasks",
        "whole",
        "written_as",
    )

    def __init__(self, number: int, *, whole: bool = True) -> None:
        self.number = number  # its ticket
        self.state: State = _OPEN
        self.kind: Kind = _RECORDS
        self.whole = whole
        self.written_as = 0  # its number on disk, where there are no gaps; known when it is fixed
        self.synced = 0  # the last synced batch when the writer got this one, as on disk
        self.segment = 0
        self.stored = 0  # messages that it stores, known when it is fixed
        self.adds: list[AddRun] = []
        self.sizes: list[int] = []  # bytes of the bodies of each of `adds`
        self.saved = self.saved_bytes = 0  # that cancelling left out, known when it is fixed
        self.copies: list[AddRun] = []  # what compaction carries forward; nothing cancels it
        #: queue, first, last, bytes of the copies, segment that they are copied out of
        self.moves: list[tuple[int, int, int, int, int]] = []
        self.removes: dict[int, list[int]] = {}
        self.notes: list[bytes] = []
        self.counts: dict[int, list[tuple[int, int]]] = {}
        self.postponed: dict[int, list[tuple[int, int]]] = {}
        self.first_seqs: dict[int, int] = {}  # per queue: the first seq that this batch adds
        self.cancelled: dict[int, list[int]] = {}  # per queue: first, last, first, last ...
        #: queue, first, last, stored messages among them
        self.removed_live: list[tuple[int, int, int, int]] = []
        self.forgotten: list[int] = []  # queues that are gone with all they held
        self.bytes_bound = BATCH_HEADER_BYTES + _MARK_BYTES
        self.pages: list[PageBlock] = []  # written to page files before this batch is
        self.page_bytes = 0
        self.suspect = False
        self.firm = True
        self.tasks = 0  # messages that it was given, cancelled ones too
        self.owed = 0  # places of messages, less those that consumers have taken
        self.asked = False

    def become(self, state: State) -> None:
        """Go on to another state. Asserts that there is a way."""
        assert state in self.state.ways, f"batch {self.number}: {self.state.name} to {state.name}"
        assert state is not _TOLD or not self.firm, f"batch {self.number} is not synced"
        self.state = state

    def cover(self) -> None:
        """Have it written although it may be empty."""
        if self.kind is _RECORDS:
            self.kind = Kind.COVER

    def mark_stop(self) -> None:
        """Have it hold the mark of a clean stop, and nothing else."""
        assert self.is_empty(), "records beside the mark may pass for a torn tail"
        self.kind = Kind.STOP

    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (
            self.adds
            or self.copies
            or self.removes
            or self.notes
            or self.counts
            or self.postponed
            or self.pages
            or self.kind is not _RECORDS
        )

    def is_special(self) -> bool:
        """Whether it is more than what messages and consumers do."""
        return bool(
            self.notes
            or self.copies
            or self.pages
            or self.forgotten
            or self.state is _ATOMIC
            or self.kind is not _RECORDS
        )

    def is_void(self) -> bool:
        """Whether consumers have taken all that it adds, and there is nothing else to write."""
        if self.owed > 0 or not self.whole or self.removes or self.counts:
            return False
        if self.state is _ATOMIC:
            return False
        if self.cancelled:
            self.settle_cancelled()
        return self.is_empty()

    def add(self, run: AddRun, size: int) -> None:
        """Append a run whose bodies sum up to `size` bytes."""
        self.adds.append(run)
        self.sizes.append(size)
        count = len(run.bodies)
        self.tasks += count
        self.owed += count * len(run.targets)
        # As `run_bound`, which would cost a call per run.
        self.bytes_bound += (
            size + _RUN_BYTES + _MESSAGE_BYTES * count + _RANGE_BYTES * len(run.targets)
        )
        firsts = self.first_seqs
        for queue_id, first in run.targets:
            if queue_id not in firsts:
                firsts[queue_id] = first

    def share(self, run: AddRun, targets: Sequence[tuple[int, int]]) -> None:
        """Have a run of this batch be for other queues as well."""
        assert targets, "for no queue"
        run.targets = [*run.targets, *targets]
        self.owed += len(run.bodies) * len(targets)
        self.bytes_bound += _RANGE_BYTES * len(targets)
        for queue_id, first in targets:
            self.first_seqs.setdefault(queue_id, first)

    def remove(
        self, queue_id: int, first: int, last: int, count: int, *, consumed: bool = True
    ) -> bool:
        """Record that `count` stored messages between two seqs are gone, or cancel them here.

        `consumed`: for itself; not since another message of this store came. Returns whether all
        of them are cancelled.
        """
        start = self.first_seqs.get(queue_id)
        if start is not None and last >= start:
            if first >= start:
                self.cancel(queue_id, first, last, consumed=consumed)
                return True
            # The range straddles: stored ones in front, ours behind. Seqs of one queue are stored
            # without a gap but for those that are not durable, and callers with such give single
            # seqs.
            self.cancel(queue_id, start, last, consumed=consumed)
            count -= last - start + 1
            last = start - 1
        self.remove_stored(queue_id, first, last, count)
        return False

    def cancel(self, queue_id: int, first: int, last: int, *, consumed: bool) -> None:
        """Leave out messages that this batch adds."""
        _extend(self.cancelled, queue_id, first, last)
        if consumed:
            self.owed -= last - first + 1

    def absorb(self, elder: Batch) -> None:
        """Take in what came before, of which nothing is special: it is gone by itself."""
        assert elder.number < self.number, "the elder stands in front"
        assert not elder.is_special(), "it holds messages and no more"
        elder.become(State.GONE)
        self.adds[:0] = elder.adds
        self.sizes[:0] = elder.sizes
        self.removed_live[:0] = elder.removed_live
        for mine, theirs in ((self.removes, elder.removes), (self.cancelled, elder.cancelled)):
            for queue_id, ranges in theirs.items():
                mine[queue_id] = [*ranges, *mine.get(queue_id, ())]
        for own, entries in ((self.counts, elder.counts), (self.postponed, elder.postponed)):
            for queue_id, pairs in entries.items():
                own[queue_id] = [*pairs, *own.get(queue_id, ())]
        self.first_seqs |= elder.first_seqs
        self.saved += elder.saved
        self.saved_bytes += elder.saved_bytes
        self.bytes_bound += elder.bytes_bound - BATCH_HEADER_BYTES - _MARK_BYTES
        self.tasks += elder.tasks
        self.owed += elder.owed
        self.whole = self.whole and elder.whole

    def remove_stored(self, queue_id: int, first: int, last: int, count: int) -> None:
        """Record that `count` stored messages between two seqs are gone, those of this batch too.

        Without cancelling what this batch adds.
        """
        _extend(self.removes, queue_id, first, last)
        self.removed_live.append((queue_id, first, last, count))
        self.bytes_bound += _RANGE_BYTES + _RUN_BYTES

    def add_note(self, note: bytes) -> None:
        """Append a definition."""
        self.notes.append(note)
        self.bytes_bound += len(note) + _NOTE_BYTES

    def add_snapshot(self, notes: list[bytes]) -> None:
        """Put all definitions that hold in front of the others: the batch opens a segment."""
        self.notes[:0] = notes
        for note in notes:
            self.bytes_bound += len(note) + _NOTE_BYTES

    def count(self, queue_id: int, entries: Sequence[tuple[int, int]]) -> None:
        """Append new flags of stored messages."""
        self.counts.setdefault(queue_id, []).extend(entries)
        self.bytes_bound += _RUN_BYTES + 12 * len(entries)

    def postpone(self, queue_id: int, entries: Sequence[tuple[int, int]]) -> None:
        """Append new due times of stored messages."""
        self.postponed.setdefault(queue_id, []).extend(entries)
        self.bytes_bound += _RUN_BYTES + 16 * len(entries)

    def copy(self, run: AddRun) -> int:
        """Append a run that is stored in an older segment; returns the bytes that it may take."""
        self.copies.append(run)
        bound = run_bound(run)
        self.bytes_bound += bound
        return bound

    def move(self, queue_id: int, first: int, last: int, size: int, source: int) -> None:
        """Note that what lives of a range, in the segment `source`, has its copies here."""
        if self.moves:
            before = self.moves[-1]
            if (before[0], before[2] + 1, before[4]) == (queue_id, first, source):
                self.moves[-1] = queue_id, before[1], last, before[3] + size, source
                return
        self.moves.append((queue_id, first, last, size, source))

    def add_page_block(self, block: PageBlock) -> None:
        """Append a block of a page: it exists once this batch is durable."""
        assert block.ticket == self.number, "another batch says that the block exists"
        self.pages.append(block)
        self.bytes_bound += _RUN_BYTES

    def remove_paged(self, queue_id: int, first: int, last: int) -> None:
        """Record that messages on pages are gone: no segment holds them, nothing is cancelled."""
        _extend(self.removes, queue_id, first, last)
        self.bytes_bound += _RANGE_BYTES + _RUN_BYTES

    def concerns_only(self, queues: Collection[int]) -> bool:
        """Whether it does nothing but add, remove and count messages of these queues."""
        whole = self.notes or self.copies or self.pages or self.forgotten
        if whole or self.kind is not _RECORDS:
            return False
        settled = (*self.removes, *self.counts, *self.postponed, *self.cancelled)
        return all(queue_id in queues for queue_id in settled) and all(
            queue_id in queues for run in self.adds for queue_id, _ in run.targets
        )

    def settle_cancelled(self) -> int:
        """Leave out what was consumed before it was written; returns how many bodies that are.

        Called when the batch is fixed, or before. `bytes_bound` then says what is left, so that
        what is not written takes no room of the segment.
        """
        if not self.cancelled:
            return 0
        gone = {queue_id: merged_ranges(ranges) for queue_id, ranges in self.cancelled.items()}
        kept: list[AddRun] = []
        sizes: list[int] = []
        saved = before = after = 0
        for run, size in zip(self.adds, self.sizes, strict=True):
            saved += _stored(run)
            before += run_bound(run, size)
            for part in self._surviving(run, gone):
                kept.append(part)
                saved -= _stored(part)
                sizes.append(size if part.bodies is run.bodies else _size(part))
                after += run_bound(part, sizes[-1])
        self.adds = kept
        self.sizes = sizes
        assert saved >= 0, "more bodies are left than there were"
        self.saved_bytes += before - after
        self.bytes_bound -= before - after
        self.saved += saved
        self.cancelled = {}
        return saved

    def _surviving(self, run: AddRun, gone: dict[int, list[tuple[int, int]]]) -> list[AddRun]:
        if len(run.targets) > 1:
            return self._surviving_many(run, gone)
        queue_id, first = run.targets[0]
        ranges = gone.get(queue_id)
        if ranges is None:
            return [run]
        last = first + len(run.bodies) - 1
        start = max(0, bisect_left(ranges, (first, 0)) - 1)
        stop = bisect_left(ranges, (last + 1, 0), start)
        if not isinstance(run.flags, int):
            return _without(run, first, ranges[start:stop])
        parts: list[AddRun] = []
        at = first
        for low, high in ranges[start:stop]:
            if high < at:
                continue
            if low > at:
                parts.append(cut_run(run, at - first, low - first))
            at = max(at, high + 1)
        if at == first:
            return [run]
        if at <= last:
            parts.append(cut_run(run, at - first, last - first + 1))
        return parts

    def _surviving_many(self, run: AddRun, gone: dict[int, list[tuple[int, int]]]) -> list[AddRun]:
        """Drop the targets that need nothing any more.

        Where only a part of one is gone, its add and its removal are both written.
        """
        count = len(run.bodies)
        targets: list[tuple[int, int]] = []
        for queue_id, first in run.targets:
            last = first + count - 1
            hits = [
                (max(low, first), min(high, last))
                for low, high in gone.get(queue_id, ())
                if low <= last and high >= first
            ]
            if sum(high - low + 1 for low, high in hits) == count:
                continue
            targets.append((queue_id, first))
            for low, high in hits:
                _extend(self.removes, queue_id, low, high)
                self.removed_live.append((queue_id, low, high, high - low + 1))
                self.bytes_bound += _RANGE_BYTES + _RUN_BYTES
        if not targets:
            return []
        return [AddRun(targets, run.bodies, run.flags, run.expires, run.accepted_ms, run.due)]

    def encode(self) -> bytes:
        """Return the payload; any thread, after the batch was fixed."""
        parts = [SUSPECT_RECORD] if self.suspect else []
        parts += [encode_note(note) for note in self.notes]
        for run in self.adds:
            encode_add(run, parts)
        for run in self.copies:
            encode_add(run, parts)
        parts += [encode_remove(queue_id, ranges) for queue_id, ranges in self.removes.items()]
        parts += [encode_count(queue_id, entries) for queue_id, entries in self.counts.items()]
        parts += [encode_postponed(queue_id, due) for queue_id, due in self.postponed.items()]
        held = {(block.store, block.page): block.number + 1 for block in self.pages}
        parts += [encode_paged(store, page, blocks) for (store, page), blocks in held.items()]
        if self.kind is Kind.STOP:
            parts.append(CLEAN_RECORD)
        return b"".join(parts)


def _without(run: AddRun, first: int, gone: list[tuple[int, int]]) -> list[AddRun]:
    """Return a run of which some seqs are gone: their places are without record, as others are."""
    bodies = list(run.bodies)
    for low, high in gone:
        start, stop = max(0, low - first), min(len(bodies), high - first + 1)
        if stop > start:
            bodies[start:stop] = [None] * (stop - start)
    if bodies.count(None) == len(bodies):
        return []
    if bodies.count(None) == run.bodies.count(None):
        return [run]
    return [AddRun(run.targets, bodies, run.flags, run.expires, run.accepted_ms, run.due)]


def _stored(run: AddRun) -> int:
    """Return how many messages of a run are stored: a run with one value for all stores all."""
    count = len(run.bodies)
    return count if isinstance(run.flags, int) else count - run.bodies.count(None)


def run_bound(run: AddRun, size: int | None = None) -> int:
    """Return at least the bytes of the run's record; `size` is the sum of its bodies."""
    if size is None:
        size = _size(run)
    return size + _RUN_BYTES + _MESSAGE_BYTES * len(run.bodies) + _RANGE_BYTES * len(run.targets)


def _size(run: AddRun) -> int:
    return sum([len(body) for body in run.bodies if body is not None])


def _extend(ranges: dict[int, list[int]], queue_id: int, first: int, last: int) -> None:
    """Add a range to a queue's flat list, growing the last one where it continues it."""
    known = ranges.get(queue_id)
    if known is None:
        ranges[queue_id] = [first, last]
    elif known[-1] == first - 1:
        known[-1] = last
    else:
        known.append(first)
        known.append(last)


def cut_run(run: AddRun, start: int, stop: int) -> AddRun:
    """Return the part of a run from one index up to another."""
    assert 0 <= start < stop, f"from {start} to {stop}"
    return AddRun(
        [(queue_id, first + start) for queue_id, first in run.targets],
        run.bodies[start:stop],
        run.flags if isinstance(run.flags, int) else run.flags[start:stop],
        run.expires if isinstance(run.expires, int) else run.expires[start:stop],
        run.accepted_ms,
        run.due,
    )
