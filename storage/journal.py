"""The journal: what the gateway promises to remember, made durable in batches.

Group commit needs no timer: while one batch is written and synced on the writer's thread, the next
one fills. `flush()`, called at the end of each reactor turn, hands the next batch over as soon as
the writer is free.

    append / remove / note ──> open batch ──full, or flush──> fixed ──writer──> synced ──> ticket

Until a batch is fixed, a removal of what it adds cancels both; it then has its place in a segment.

A batch that concerns only queues of `lax` is reported when the kernel has it; `sync`, called now
and then, has what was so reported synced. Headers, segments and copies go by what is synced alone.

A ticket is the number of the batch that a record is in. Everything here runs on one thread; the
writer is a port.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from storage.batch import Batch
from storage.compaction import COPY_BYTES, Compaction, CompactionRule, Piece
from storage.live import LiveIndex
from storage.pages import PageBlock
from storage.record import SEGMENT_HEADER_BYTES, AddRun

#: A batch larger than this is closed and the next one filled: bounds what one sync writes and what
#: a crash discards.
BATCH_BYTES_MAX: Final = 8 << 20
BATCH_RECORDS_MAX: Final = 4096
#: Unsynced bytes above which senders must wait: the disk is slower than what comes in.
BACKLOG_BYTES_MAX: Final = 64 << 20
#: Messages that may wait for the disk before senders must.
TASKS_MAX: Final = 10_000
DEFAULT_SEGMENT_BYTES: Final = 32 << 20


class Writer(Protocol):
    """Writes batches in order; answers by `written` or `failed` on the journal's thread."""

    def write(self, batch: Batch) -> None:
        """Encode, write and sync `batch` into its segment (made when it is not there)."""

    def delete(self, segments: Sequence[int]) -> None:
        """Delete the files of these segments; later than all writes asked for before."""

    def drop_pages(self, store: int, pages: Sequence[int]) -> None:
        """Delete these page files; later than all writes asked for before."""

    def read(self, segment: int, offset: int) -> None:
        """Read what a synced segment adds from `offset` (0: its begin) on, a piece of it.

        Answers by `piece_read` or `piece_failed`; no answer when the store has failed.
        """

    def stop(self, done: Callable[[], None]) -> None:
        """Finish what was asked for, then call `done`."""


class Journal:
    """See the module text.

    Figures (read only): `synced` last durable ticket, `batches`, `stored`, `cancelled` messages,
    `bytes_written`, `bytes_cancelled` (never written, since what they hold was consumed before),
    `tasks` (messages that wait for the disk), `syncs`; those of `compaction`.

    Attributes:
        cancels: what is consumed before it is written need not be.
        lax: queues whose records need not be synced before they are reported.
        lingers: asked before the open batch is fixed although it is not full; at yes it stays open,
            and whoever says so calls `flush` again.
        task_limit: above so many messages that wait for the disk senders should wait.
    """

    __slots__ = (
        "_backlog",
        "_busy",
        "_bytes",
        "_closed",
        "_covered",
        "_failure",
        "_looked",
        "_number",
        "_open",
        "_pending",
        "_segment",
        "_segment_bytes",
        "_segment_room",
        "_segment_synced",
        "_stopping",
        "_unsynced",
        "_writer",
        "batches",
        "bytes_cancelled",
        "bytes_written",
        "cancelled",
        "cancels",
        "compaction",
        "index",
        "lax",
        "lingers",
        "on_durable",
        "on_failed",
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
        self._pending: deque[Batch] = deque()
        self._segment = next_segment - 1
        self._segment_bytes = segment_bytes
        self._segment_room = (
            0  # the first batch opens a new segment: an old one is never appended to
        )
        self._segment_synced = 0
        self._writer: Writer | None = None
        self._busy: Batch | None = None
        self._backlog = 0
        self._failure: BaseException | None = None
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
        self._looked = self.synced
        self._unsynced: list[Batch] = []  # reported, and not synced
        self.cancels = True
        self.lax: set[int] = set()
        self.lingers: Callable[[Batch], bool] = _never
        self.task_limit = TASKS_MAX
        self.tasks = self.syncs = 0
        self.stalled = 0.0  # seconds that the writer has hung, as whoever watches it says
        self.batches = self.stored = self.cancelled = 0
        self.bytes_written = self.bytes_cancelled = 0
        self.snapshot: Callable[[], list[bytes]] = list
        self.on_durable: Callable[[int], None] = _ignore_ticket
        self.on_failed: Callable[[BaseException], None] = _ignore_failure

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
        if not self._open.is_empty():
            return self._open.number
        if self._pending:
            return self._pending[-1].number
        return 0 if self._busy is None else self._busy.number

    @property
    def congested(self) -> bool:
        """Whether more waits for the disk than should: messages, or BACKLOG_BYTES_MAX."""
        batch = self._open
        waiting = self._backlog + batch.bytes_bound + batch.page_bytes
        return self.tasks >= self.task_limit or waiting > BACKLOG_BYTES_MAX

    @property
    def relieved(self) -> bool:
        """Whether at most nine tenths of that wait."""
        batch = self._open
        waiting = self._backlog + batch.bytes_bound + batch.page_bytes
        return self.tasks <= self.task_limit * 9 // 10 and waiting <= BACKLOG_BYTES_MAX * 9 // 10

    @property
    def writing(self) -> bool:
        """Whether the writer has a batch."""
        return self._busy is not None

    @property
    def busy_with(self) -> int:
        """The number of the batch that the writer has, 0 for none."""
        return 0 if self._busy is None else self._busy.number

    @property
    def failure(self) -> BaseException | None:
        """Why the journal stopped for good, or None."""
        return self._failure

    @property
    def segment(self) -> int:
        """The number of the segment that is being filled."""
        return self._segment

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
        if (
            batch.bytes_bound + batch.page_bytes > BATCH_BYTES_MAX
            or len(batch.pages) >= BATCH_RECORDS_MAX
        ) and not batch.atomic:
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
        self.compaction.changes.removed(queue_id, first, last)
        return self._open.number

    def drop_pages(self, store: int, pages: Sequence[int]) -> None:
        """Delete pages; the record that says that they are gone is durable."""
        if self._writer is not None and self._failure is None and not self._stopping:
            self._writer.drop_pages(store, pages)

    def remove(self, queue_id: int, first: int, last: int, count: int) -> int:
        """Record that the `count` stored messages between two seqs are gone; returns the ticket.

        What is not written yet need not be, but for what a transaction takes.
        """
        batch = self._open
        if self.cancels and not batch.atomic:
            batch.remove(queue_id, first, last, count)
        else:
            batch.remove_stored(queue_id, first, last, count)
        self.compaction.changes.removed(queue_id, first, last)
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
        self._open.atomic = True

    def end_atomic(self) -> None:
        """End what `begin_atomic` began."""
        self._open.atomic = False

    def _close_open(self) -> Batch:
        batch = self._open
        self._place(batch)
        self._pending.append(batch)
        self._backlog += batch.bytes_bound + batch.page_bytes
        self._number += 1
        self._open = Batch(self._number)
        return self._open

    def _place(self, batch: Batch) -> None:
        """Fix what a batch holds and where it goes.

        Now and not when the writer is free: what a new segment begins with must be what holds at
        this ticket, not what later ones have made of it.
        """
        lax = bool(self.lax) and batch.concerns_only(self.lax)
        self.cancelled += batch.settle_cancelled()
        self.bytes_cancelled += batch.saved_bytes
        used = batch.bytes_bound
        if batch.bytes_bound > self._segment_room:
            self._segment += 1
            batch.add_snapshot(self.snapshot())
            self._segment_room = max(self._segment_bytes - SEGMENT_HEADER_BYTES, batch.bytes_bound)
            self.index.open_segment(self._segment)
        self._segment_room -= batch.bytes_bound
        batch.segment = self._segment
        batch.firm = not lax or bool(batch.notes)
        self.index.use(self._segment, used)
        self.index.add_batch(batch)

    def cover(self) -> None:
        """Write an empty batch behind the last one when nothing was written since the last call.

        Rot in the last batch of all looks like a torn tail. With one behind it, it is told apart.
        """
        quiet, self._looked = self._looked == self.synced, self.synced
        if not quiet or self._stopping or self._busy is not None or self._pending:
            return
        if self._covered != self.synced:
            self._open.covers = True
            self.flush()

    # ---- what goes out

    def flush(self) -> None:
        """Hand the next batch to the writer when it is free."""
        if self._busy is not None or self._writer is None or self._failure is not None:
            return
        if not self._pending:
            if self._open.is_empty() or self._open.atomic or self.lingers(self._open):
                return
            self._close_open()
        batch = self._pending.popleft()
        self._backlog -= batch.bytes_bound + batch.page_bytes
        batch.synced = self.synced
        stores = batch.adds or batch.copies or batch.removes or batch.counts or batch.postponed
        if not (stores or batch.pages or batch.notes):
            self._covered = batch.number  # nothing would be missed
        self._busy = batch
        self._writer.write(batch)

    def segment_size(self, batch: Batch) -> int:
        """Return the file size for the segment that `batch` opens."""
        return max(self._segment_bytes, SEGMENT_HEADER_BYTES + batch.bytes_bound)

    def written(self, batch: Batch, size: int) -> None:
        """The writer's answer: `batch` is on the device, or, if it is not firm, with the kernel."""
        if self._failure is not None:
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
        self.on_durable(batch.number)
        if self._closed is None:
            if batch.firm:
                self._reclaim(batch.segment)
                self._compact()
        elif self._busy is None:
            self._finish()

    def _settle(self, batch: Batch) -> None:
        """All up to this batch is on the device."""
        self.syncs += 1
        self.synced = batch.number
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
        ready = self._failure is None and not self._stopping and not self._open.atomic
        if not ready or self._writer is None or compaction.ticket > self.synced:
            return
        busy = [] if self._busy is None else [self._busy]
        unsettled = [*self._unsynced, *busy, *self._pending]
        limit = min(COPY_BYTES, self._segment_bytes // 4)
        while compaction.waiting:
            compaction.fill(self._open, unsettled, limit)
            if self._open.copies:
                compaction.ticket = self._open.number
                self.flush()
                return
        offset = compaction.choose(self._segment_synced, self.synced)
        if offset is not None:
            self._writer.read(compaction.segment, offset)

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
        if self._failure is not None:
            return
        self._busy = None
        self._failure = error
        self.on_failed(error)
        if self._closed is not None:
            self._finish()

    def close(self, done: Callable[[], None]) -> None:
        """Write what is open and the mark of a clean stop, then call `done`.

        The mark has a batch of its own: rot in the last batch looks like a torn tail, and this one
        holds nothing else that could be lost.
        """
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


def _never(batch: Batch) -> bool:
    """Stand for a reason to wait that is not there."""
    return False


def _ignore_ticket(ticket: int) -> None:
    """Stand for a listener that is not there yet."""


def _ignore_failure(error: BaseException) -> None:
    """Stand for a listener that is not there yet."""
