"""The journal: what the gateway promises to remember, made durable in batches.

Group commit needs no timer: while one batch is written and synced on the writer's thread, the next
one fills. `flush()`, called at the end of each reactor turn, hands the next batch over as soon as
the writer is free.

    append / remove / note ──> open batch ──full, or flush──> fixed ──writer──> synced ──> ticket

Until a batch is fixed, a removal of what it adds cancels both; it then has its place in a segment.
While the writer is busy and consumers overtake it, turns are set aside one by one (`storage.aside`)
and are one batch again when it is free; `on_consumed` tells the tickets of those that nothing is
left of, and is not written either. Whoever removes what is not written yet is told so by ticket 0,
unless it stands for something else that goes (`storage.bonds`).

A batch that concerns only queues of `lax` is reported when the kernel has it; `sync`, called now
and then, has what was so reported synced. Headers, segments and copies go by what is synced alone.

A ticket is the number of the batch that a record is in; on disk batches are numbered without the
gaps of those that were never written. Everything here runs on one thread; the writer is a port.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from storage.aside import Aside
from storage.batch import Batch
from storage.bonds import Bonds
from storage.compaction import COPY_BYTES, Compaction, CompactionRule, Piece
from storage.live import LiveIndex
from storage.pages import PageBlock
from storage.record import SEGMENT_HEADER_BYTES, AddRun
from storage.silent import ignore_failure, ignore_ticket, ignore_tickets, never
from storage.writing import Writer

#: A batch larger than this is closed and the next one filled: bounds what one sync writes and what
#: a crash discards.
BATCH_BYTES_MAX: Final = 8 << 20
BATCH_RECORDS_MAX: Final = 4096
#: Unsynced bytes above which senders must wait: the disk is slower than what comes in.
BACKLOG_BYTES_MAX: Final = 64 << 20
#: Messages that may wait for the disk before senders must.
TASKS_MAX: Final = 10_000
DEFAULT_SEGMENT_BYTES: Final = 32 << 20


class Journal:
    """See the module text.

    Figures (read only): `synced` last durable ticket, `batches`, `stored`, `cancelled` messages,
    `bytes_written`, `bytes_cancelled` (never written, since what they hold was consumed before),
    `tasks` (messages that wait for the disk), `syncs`, `segment` (number of the one that is being
    filled), `failure` (why it stopped for good, or None); those of `compaction`.

    Attributes:
        cancels: what is consumed before it is written need not be.
        lax: queues whose records need not be synced before they are reported.
        lingers: asked before the open batch is fixed although it is not full; at yes it stays open,
            and whoever says so calls `flush` again.
        task_limit: above so many messages that wait for the disk senders should wait.
    """

    __slots__ = (
        "_aside",
        "_backlog",
        "_bonds",
        "_busy",
        "_bytes",
        "_closed",
        "_covered",
        "_found",
        "_looked",
        "_number",
        "_on_disk",
        "_open",
        "_overtaken",
        "_pending",
        "_segment_bytes",
        "_segment_room",
        "_segment_synced",
        "_stopping",
        "_told",
        "_unsynced",
        "_writer",
        "_written_as",
        "batches",
        "bytes_cancelled",
        "bytes_written",
        "cancelled",
        "cancels",
        "compaction",
        "failure",
        "index",
        "lax",
        "lingers",
        "on_consumed",
        "on_durable",
        "on_failed",
        "segment",
        "snapshot",
        "stalled",
        "stored",
        "synced",
        "syncs",
        "task_limit",
        "tasks",
    )

    def __init__(
        self,
        *,
        next_ticket: int,
        next_segment: int,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        suspect: bool = False,
        rule: CompactionRule | None = None,
        seen: int = 0,
        suspect_before: int = 0,
    ) -> None:
        """Begin behind what was recovered; `suspect`: the stop before was not in order.

        Without `rule` nothing is compacted. What is compacted gets the flag `seen` when a consumer
        may have seen it: all that was stored before the ticket `suspect_before`.
        """
        self._number = next_ticket
        self._open = Batch(next_ticket)
        self._open.suspect = suspect
        self._covered = 0 if suspect else next_ticket - 1
        self._aside, self._bonds = Aside(), Bonds()
        # 2: consumers overtook the disk since the writer got its batch; 1: while it had the last
        self._overtaken = 0
        self._written_as = next_ticket  # of the next batch, as on disk
        self._on_disk = next_ticket - 1  # the last one that is synced, as on disk
        self._pending: deque[Batch] = deque()
        self.segment = self._found = next_segment - 1
        self._segment_bytes = segment_bytes
        self._segment_room = 0  # the first batch opens a segment: old ones are not appended to
        self._segment_synced = 0
        self._writer: Writer | None = None
        self._busy: Batch | None = None
        self._backlog = 0
        self.failure: BaseException | None = None
        self._closed: Callable[[], None] | None = None
        self._stopping = False
        self.index = LiveIndex()
        self.compaction = Compaction(
            self.index,
            rule or CompactionRule(min_files=0),
            seen=seen,
            suspect_before=next_ticket if suspect else suspect_before,
        )
        self.synced = next_ticket - 1
        self._looked = self._told = self.synced
        self._unsynced: list[Batch] = []  # reported, and not synced
        self.cancels = True
        self.lax: set[int] = set()
        self.lingers: Callable[[Batch], bool] = never
        self.task_limit = TASKS_MAX
        self.tasks = self.syncs = 0
        self.stalled = 0.0  # seconds that the writer has hung, as whoever watches it says
        self.batches = self.stored = self.cancelled = 0
        self.bytes_written = self.bytes_cancelled = 0
        self.snapshot: Callable[[], list[bytes]] = list
        self.on_durable: Callable[[int], None] = ignore_ticket
        self.on_consumed: Callable[[list[int]], None] = ignore_tickets
        self.on_failed: Callable[[BaseException], None] = ignore_failure

    def start(self, writer: Writer) -> None:
        """Give the journal its writer; until then nothing is written."""
        self._writer = writer

    # ---- what goes in

    @property
    def ticket(self) -> int:
        """The number of the batch that the next record goes into."""
        return self._open.number

    @property
    def unsynced(self) -> int:
        """The number of the last batch that holds something and is not on disk; 0 without any."""
        if self._open.asked or not self._open.is_empty():
            return self._open.number
        if self._aside.batches:
            return self._aside.batches[-1].number
        return self._pending[-1].number if self._pending else self.busy_with

    def waiting(self) -> Iterator[Batch]:
        """Go through what is not on disk, the oldest first."""
        busy = () if self._busy is None else (self._busy,)
        return chain(busy, self._pending, self._aside.batches, (self._open,))

    @property
    def congested(self) -> bool:
        """Whether more waits for the disk than should: messages, or BACKLOG_BYTES_MAX."""
        return self.tasks >= self.task_limit or self.waiting_bytes > BACKLOG_BYTES_MAX

    @property
    def relieved(self) -> bool:
        """Whether at most nine tenths of that wait."""
        few = self.tasks <= self.task_limit * 9 // 10
        return few and self.waiting_bytes <= BACKLOG_BYTES_MAX * 9 // 10

    @property
    def waiting_bytes(self) -> int:
        """Return the bytes that wait for the disk, at most."""
        return self._backlog + self._aside.bytes + self._open.bytes_bound + self._open.page_bytes

    @property
    def reached(self) -> tuple[int, int]:
        """The segment of the last synced batch, and its number as on disk."""
        return self._segment_synced or self._found, self._on_disk

    @property
    def writing(self) -> bool:
        """Whether the writer has a batch."""
        return self._busy is not None

    @property
    def busy_with(self) -> int:
        """The number of the batch that the writer has, 0 for none."""
        return self._busy.number if self._busy else 0

    def append(self, run: AddRun, size: int) -> int:
        """Add a run of messages whose bodies sum up to `size`; returns the ticket."""
        batch = self._open
        if (
            batch.bytes_bound > BATCH_BYTES_MAX or len(batch.adds) >= BATCH_RECORDS_MAX
        ) and not batch.atomic:
            batch = self._close_open()
        batch.add(run, size)
        self.tasks += len(run.bodies)
        return batch.number

    def share(self, run: AddRun, targets: Sequence[tuple[int, int]]) -> int:
        """Have a run of the open batch, which is atomic, be for other queues too; the ticket."""
        assert self._open.atomic, "the run may be in a batch that is closed"
        self._open.share(run, targets)
        return self._open.number

    def make_room(self) -> int:
        """Begin the next batch when this one is full of pages; returns the ticket."""
        batch = self._open
        full = batch.bytes_bound + batch.page_bytes > BATCH_BYTES_MAX
        if (full or len(batch.pages) >= BATCH_RECORDS_MAX) and not batch.atomic:
            batch = self._close_open()
        return batch.number

    def append_block(self, block: PageBlock) -> None:
        """Add a block of a page; it may grow until the batch is closed."""
        block.ticket = self._open.number
        self._open.add_page_block(block)

    def grow_pages(self, size: int) -> None:
        """Count bytes that were added to blocks of the open batch."""
        self._open.page_bytes += size

    def remove_paged(self, queue_id: int, first: int, last: int) -> int:
        """Record that messages on pages are gone; returns the ticket."""
        self._open.remove_paged(queue_id, first, last)
        self._bonds.gave(self._open)
        self.compaction.changes.removed(queue_id, first, last)
        return self._open.number

    def drop_pages(self, store: int, pages: Sequence[int]) -> None:
        """Delete pages; the record that says that they are gone is durable."""
        if self._writer is not None and self.failure is None and not self._stopping:
            self._writer.drop_pages(store, pages)

    def remove(
        self, queue_id: int, first: int, last: int, count: int, *, consumed: bool = True
    ) -> int:
        """Record that the `count` stored messages between two seqs are gone; returns the ticket.

        What is not written yet need not be, but for what a transaction takes. `consumed`: not
        because another message came. 0: none of them will be on disk, nor what they stand for.
        """
        batch = self._open
        self.compaction.changes.removed(queue_id, first, last)
        if not self.cancels or batch.atomic:
            batch.remove_stored(queue_id, first, last, count)
            self._bonds.gave(batch)
            return batch.number
        if self._aside.batches:
            whole = self._aside.remove(batch, queue_id, first, last, count, consumed=consumed)
            self._overtaken = 2
        else:
            whole = batch.remove(queue_id, first, last, count, consumed=consumed)
            if batch.cancelled:
                self._overtaken = 2
        if not consumed:
            self._bonds.bind(queue_id, batch.number)
        if whole:
            if consumed and self._bonds.free(queue_id, self.synced):
                return 0
            batch.asked = True
        return batch.number

    def count(self, queue_id: int, entries: Sequence[tuple[int, int]]) -> int:
        """Record new flags (delivery counts) of stored messages, as (seq, flags)."""
        self._open.count(queue_id, entries)
        self.compaction.changes.count(queue_id, entries)
        return self._open.number

    def postpone(self, queue_id: int, entries: Sequence[tuple[int, int]]) -> int:
        """Record new due times of stored messages, as (seq, due in ms); returns the ticket."""
        self._open.postpone(queue_id, entries)
        self.compaction.changes.postpone(queue_id, entries)
        return self._open.number

    def note(self, note: bytes) -> int:
        """Record a definition. Each new segment begins with `snapshot()`, so old notes may go."""
        self._open.add_note(note)
        return self._open.number

    def forget(self, queue_id: int) -> int:
        """Record that a queue is gone with all it held, once this batch is durable."""
        self._open.forgotten.append(queue_id)
        self.compaction.changes.forget_queue(queue_id)
        return self._open.number

    def begin_atomic(self) -> None:
        """Keep all that follows in one batch until `end_atomic`, however large it grows."""
        self._bonds.begin(self._open)

    def end_atomic(self) -> None:
        """End what `begin_atomic` began."""
        self._bonds.end(self._open)

    def _close_open(self) -> Batch:
        """Fix the open batch; what goes on with it may be in the middle of something."""
        self._gather()
        batch = self._open
        self._place(batch)
        self._pending.append(batch)
        self._backlog += batch.bytes_bound + batch.page_bytes
        self._begin_next()
        self._open.whole = False
        return self._open

    def _begin_next(self) -> None:
        self._number += 1
        self._open = Batch(self._number)

    def _gather(self) -> None:
        """Make what was set aside one batch with the open one."""
        for elder in reversed(self._aside.batches):
            self._open.absorb(elder)
        self._aside.clear()

    def _set_aside(self) -> None:
        """Tell whom consumers have saved the wait, and keep what this turn brought by itself."""
        void = self._aside.take_void()
        batch = self._open
        if (batch.adds or batch.asked) and batch.is_void():
            void.append(batch)
            self._begin_next()
        elif self._overtaken and self._aside.takes(batch):
            self._aside.add(batch)
            self._begin_next()
        if void:
            for one in void:
                self._drop(one)
            self.on_consumed([one.number for one in void])

    def _drop(self, batch: Batch) -> None:
        """Count a batch that nothing is left of; what it would have marked the next one does."""
        self._open.suspect = self._open.suspect or batch.suspect
        self.tasks -= batch.tasks
        self.cancelled += batch.saved
        self.bytes_cancelled += batch.saved_bytes

    def _place(self, batch: Batch) -> None:
        """Fix what a batch holds and where it goes.

        Now and not when the writer is free: what a new segment begins with must be what holds at
        this ticket, not what later ones have made of it.
        """
        lax = bool(self.lax) and batch.concerns_only(self.lax)
        batch.settle_cancelled()
        self.cancelled += batch.saved
        self.bytes_cancelled += batch.saved_bytes
        used = batch.bytes_bound
        if batch.bytes_bound > self._segment_room:
            self.segment += 1
            batch.add_snapshot(self.snapshot())
            self._segment_room = max(self._segment_bytes - SEGMENT_HEADER_BYTES, batch.bytes_bound)
            self.index.open_segment(self.segment)
        self._segment_room -= batch.bytes_bound
        batch.segment = self.segment
        batch.written_as = self._written_as
        for block in batch.pages:
            block.written_as = batch.written_as
        self._written_as += 1
        batch.firm = not lax or bool(batch.notes)
        self.index.use(self.segment, used)
        self.index.add_batch(batch)

    def cover(self) -> None:
        """Write an empty batch behind the last one when nothing was written since the last call.

        Rot in the last batch of all looks like a torn tail. With one behind it, it is told apart.
        """
        looked, self._looked = self._looked, self.synced
        if looked != self.synced or self._stopping or self._busy is not None or self._pending:
            return
        if self._covered != self.synced:
            self._open.covers = True
            self.flush()

    # ---- what goes out

    def flush(self) -> None:
        """Hand the next batch to the writer when it is free."""
        if self._writer is None or self.failure is not None:
            return
        if self._busy is not None:
            if not self._open.atomic:
                self._set_aside()
            return
        if not self._pending and not self._close_next():
            return
        batch = self._pending.popleft()
        self._backlog -= batch.bytes_bound + batch.page_bytes
        batch.synced = self._on_disk
        stores = batch.adds or batch.copies or batch.removes or batch.counts or batch.postponed
        if not (stores or batch.pages or batch.notes):
            self._covered = batch.number  # nothing would be missed
        self._busy = batch
        self._writer.write(batch)

    def _close_next(self) -> bool:
        """Fix the open batch if it is time and something of it is left to write."""
        if self._open.atomic:
            return False
        self._gather()
        batch = self._open
        if batch.cancelled:
            batch.settle_cancelled()
        if not batch.is_empty():
            if self.lingers(batch):
                return False
            self._close_open()
            self._open.whole = True
            self._overtaken = max(0, self._overtaken - 1)
            return True
        if batch.tasks or batch.asked:
            self._begin_next()
            self._drop(batch)
            self._tell(batch.number)  # all before it is on disk
        return False

    def segment_size(self, batch: Batch) -> int:
        """Return the file size for the segment that `batch` opens."""
        return max(self._segment_bytes, SEGMENT_HEADER_BYTES + batch.bytes_bound)

    def written(self, batch: Batch, size: int) -> None:
        """The writer's answer: `batch` is on the device, or, if it is not firm, with the kernel."""
        if self.failure is not None:
            return
        assert batch is self._busy, "the writer answered for another batch"
        self._busy = None
        self.batches += 1
        self.bytes_written += size
        self.stored += batch.stored
        self.tasks -= batch.tasks
        self._unsynced.append(batch)
        if batch.firm:
            self._settle(batch)
        self.flush()
        self._tell(batch.number if self.unsynced else self._number - 1)
        if self._closed is None:
            if batch.firm:
                self._reclaim(batch.segment)
                self._compact()
        elif self._busy is None:
            self._finish()

    def _tell(self, ticket: int) -> None:
        if ticket > self._told:  # an empty batch behind it may have been told before
            self._told = ticket
            self.on_durable(ticket)

    def _settle(self, batch: Batch) -> None:
        """All up to this batch is on the device."""
        self.syncs += 1
        self.synced = batch.number
        self._on_disk = batch.written_as
        self._segment_synced = batch.segment
        for one in self._unsynced:
            self.index.settle_batch(one)
        self._unsynced.clear()

    def sync(self) -> None:
        """Have what was reported and is not synced synced, with what comes next or by itself."""
        if self._unsynced and not self._stopping:
            self._open.covers = True
            self.flush()

    def _reclaim(self, synced_segment: int) -> None:
        # Only now, and only what is older than the last synced batch's segment: the removals that
        # make these segments garbage are durable, and so are the definitions that held in them.
        free = self.index.reclaimable(synced_segment)
        if free and self._writer is not None:
            for segment in free:
                self.index.drop_segment(segment)
            self._writer.delete(free)

    # ---- compaction

    @property
    def compacting(self) -> bool:
        """Whether a step of the compaction is under way."""
        compaction = self.compaction
        return compaction.reading or compaction.waiting or compaction.ticket > self.synced

    def _compact(self) -> None:
        """Take the next step of carrying forward what lives in the oldest segment.

        One step waits for the one before to be durable: what it moved counts then, and senders
        have the disk in between.
        """
        compaction = self.compaction
        ready = self.failure is None and not self._stopping and not self._open.atomic
        if not ready or self._writer is None or compaction.ticket > self.synced:
            return
        busy = [] if self._busy is None else [self._busy]
        unsettled = [*self._unsynced, *busy, *self._pending, *self._aside.removals()]
        limit = min(COPY_BYTES, self._segment_bytes // 4)
        synced = self._segment_synced, self.synced
        offset = compaction.advance(self._open, unsettled, limit, synced)
        if offset is not None:
            self._writer.read(compaction.segment, offset)
        elif self._open.copies:
            self.flush()

    def empty(self, segment: int, places: Mapping[int, int]) -> None:
        """Have a segment emptied that has rotted; see `Compaction.empty`. Call `go_on`, too."""
        self.compaction.empty(segment, places)
        if segment == self.segment or not self._segment_synced:
            self._segment_room = 0  # what comes goes to another, and something has to come
            self._open.covers = True
            self.flush()
        self._compact()

    def go_on(self) -> None:
        """Try again to empty what is damaged: what a consumer had may have come back."""
        if self.compaction.damaged:
            self.compaction.ask_again()
            self._compact()

    def piece_read(self, segment: int, piece: Piece) -> None:
        """The writer's answer: part of a segment."""
        self.compaction.take(segment, piece)
        self._compact()

    def piece_failed(self, segment: int, error: Exception) -> None:
        """The writer's answer: a segment could not be read. It stays, and so do all behind it."""
        self.compaction.failed(segment, error)
        self._compact()

    def failed(self, error: BaseException) -> None:
        """The writer's answer: the disk refused. Nothing is retried; nothing more is confirmed."""
        if self.failure is not None:
            return
        self._busy = None
        self.failure = error
        self.on_failed(error)
        if self._closed is not None:
            self._finish()

    def close(self, done: Callable[[], None]) -> None:
        """Write what is open and the mark of a clean stop, then call `done`.

        The mark has a batch of its own: rot in the last batch looks like a torn tail, and this one
        holds nothing else that could be lost.
        """
        self._gather()
        if not self._open.is_empty():
            self._close_open()
        self._open.clean = True
        self._closed = done
        self._stopping = True
        self.flush()
        if self._busy is None:
            self._finish()

    def _finish(self) -> None:
        done, self._closed = self._closed, None
        if done is not None:
            if self._writer is None:
                done()
            else:
                self._writer.stop(done)
