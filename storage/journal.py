"""The journal: what the gateway promises to remember, made durable in batches.

Group commit needs no timer: while one batch is written and synced on the writer's thread, the next
one fills. `flush()`, called at the end of each reactor turn, hands the next batch over as soon as
the writer is free.

    append / remove / note ──> open batch ──full, or flush──> fixed ──writer──> synced ──> ticket

A ticket is the number of the batch that a record is in. Batches are told in their order, but for
those that nothing is left of. A batch that concerns only queues of `lax` is told when the kernel
has it; `sync`, called now and then, has what was so told synced. Headers, segments and copies go by
what is synced alone. The journal is three parts:

- `Journal`: what goes in, whether the writer has it, and what is told when.
- `storage.overtaking`: messages that are consumed before they are written are not written.
- `storage.rotation`: where batches go, and how their segments are given back.

Everything here runs on one thread; the writer is a port.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Final

from storage.backlog import Backlog
from storage.batch import Batch
from storage.batch_state import State
from storage.compaction import CompactionRule, Piece
from storage.covering import Covering
from storage.overtaking import Overtaking
from storage.pages import PageBlock
from storage.record import AddRun
from storage.rotation import Rotation
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
#: A member of an Enum is looked up more slowly than a name, and these are for each removal.
_ATOMIC: Final = State.ATOMIC
_OPEN: Final = State.OPEN


class Journal:
    """See the module text.

    Figures (read only): `synced` last durable ticket, `batches`, `stored`, `cancelled` messages,
    `bytes_written`, `bytes_cancelled` (never written, since what they hold was consumed before),
    `tasks` (messages that wait for the disk), `syncs`, `stalled` (seconds that the writer has hung,
    as its watch says), `failure` (why it stopped for good, or None); those of `compaction`.

    Attributes:
        cancels: what is consumed before it is written need not be.
        lax: queues whose records need not be synced before they are reported.
        lingers: asked before the open batch is fixed although it is not full; at yes it stays open,
            and whoever says so calls `flush` again.
        task_limit: above so many messages that wait for the disk senders should wait.
        index, compaction: of `rotation`.
    """

    __slots__ = (
        "_backlog", "_closed", "_covering", "_open", "_overtaking", "_stopping", "_told", "_writer",
        "batches", "bytes_cancelled", "bytes_written", "cancelled", "cancels", "compaction",
        "failure", "index", "lax", "lingers", "on_consumed", "on_durable", "on_failed", "rotation",
        "stalled", "stored", "synced", "syncs", "task_limit", "tasks",
    )  # fmt: skip

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
        self._open = Batch(next_ticket)
        self._overtaking = Overtaking()
        self.rotation = Rotation(
            next_batch=next_ticket,
            next_segment=next_segment,
            segment_bytes=segment_bytes,
            suspect=suspect,
            rule=rule or CompactionRule(min_files=0),
            seen=seen,
            suspect_before=next_ticket if suspect else suspect_before,
        )
        self.index, self.compaction = self.rotation.index, self.rotation.compaction
        self.synced = self._told = next_ticket - 1
        self._covering = Covering(self.synced, suspect=suspect)
        self._backlog = Backlog()
        self._writer: Writer | None = None
        self._closed: Callable[[], None] | None = None
        self._stopping = False
        self.failure: BaseException | None = None
        self.cancels = True
        self.lax: set[int] = set()
        self.lingers: Callable[[Batch], bool] = never
        self.task_limit = TASKS_MAX
        self.stalled = 0.0
        self.tasks = self.syncs = self.batches = self.stored = self.cancelled = 0
        self.bytes_written = self.bytes_cancelled = 0
        self.on_durable: Callable[[int], None] = ignore_ticket
        self.on_consumed: Callable[[list[int]], None] = ignore_tickets
        self.on_failed: Callable[[BaseException], None] = ignore_failure

    def start(self, writer: Writer) -> None:
        """Give the journal its writer; until then nothing is written."""
        assert self._writer is None, "two writers for one journal"
        self._writer = writer

    # ---- what waits

    @property
    def ticket(self) -> int:
        """The number of the batch that the next record goes into."""
        return self._open.number

    @property
    def segment(self) -> int:
        """The number of the segment that is being filled."""
        return self.rotation.segment

    @property
    def unsynced(self) -> int:
        """The number of the last batch that holds something and is not on disk; 0 without any."""
        if self._open.asked or not self._open.is_empty():
            return self._open.number
        turns = self._overtaking.turns
        return turns[-1].number if turns else self._backlog.last

    def waiting(self) -> Iterator[Batch]:
        """Go through what is not on disk, the oldest first."""
        return chain(self._backlog.batches, self._overtaking.turns, (self._open,))

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
        size = self._open.bytes_bound + self._open.page_bytes
        return self._backlog.bytes + self._overtaking.bytes + size

    @property
    def _busy(self) -> Batch | None:
        return self._backlog.busy

    @property
    def writing(self) -> bool:
        """Whether the writer has a batch."""
        return self._busy is not None

    @property
    def busy_with(self) -> int:
        """The number of the batch that the writer has, 0 for none."""
        return self._busy.number if self._busy else 0

    # ---- what goes in

    def append(self, run: AddRun, size: int) -> int:
        """Add a run of messages whose bodies sum up to `size`; returns the ticket."""
        batch = self._open
        if (
            batch.bytes_bound > BATCH_BYTES_MAX or len(batch.adds) >= BATCH_RECORDS_MAX
        ) and batch.state is not _ATOMIC:
            batch = self._fix_open(whole=False)
        batch.add(run, size)
        self.tasks += len(run.bodies)
        return batch.number

    def share(self, run: AddRun, targets: Sequence[tuple[int, int]]) -> int:
        """Have a run of the open batch, which is atomic, be for other queues too; the ticket."""
        assert self._open.state is _ATOMIC, "the run may be in a batch that is closed"
        self._open.share(run, targets)
        return self._open.number

    def make_room(self) -> int:
        """Begin the next batch when this one is full of pages; returns the ticket."""
        batch = self._open
        full = batch.bytes_bound + batch.page_bytes > BATCH_BYTES_MAX
        if (full or len(batch.pages) >= BATCH_RECORDS_MAX) and batch.state is not _ATOMIC:
            batch = self._fix_open(whole=False)
        return batch.number

    def append_block(self, block: PageBlock) -> None:
        """Add a block of a page; it may grow until the batch is closed."""
        block.ticket = self._open.number
        self._open.add_page_block(block)

    def grow_pages(self, size: int) -> None:
        """Count bytes that were added to blocks of the open batch."""
        assert self._open.pages, "the blocks are in a batch that is closed"
        self._open.page_bytes += size

    def remove_paged(self, queue_id: int, first: int, last: int) -> int:
        """Record that messages on pages are gone; returns the ticket."""
        self._open.remove_paged(queue_id, first, last)
        self._overtaking.recorded(self._open)
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
        if not self.cancels or batch.state is _ATOMIC:
            batch.remove_stored(queue_id, first, last, count)
            self._overtaking.recorded(batch)
            return batch.number
        told = self._overtaking.remove(
            batch, queue_id, first, last, count, consumed=consumed, synced=self.synced
        )
        return 0 if told else batch.number

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
        """Record a definition. Each new segment begins with all that hold, so old ones may go."""
        self._open.add_note(note)
        return self._open.number

    def forget(self, queue_id: int) -> int:
        """Record that a queue is gone with all it held, once this batch is durable."""
        self._open.forgotten.append(queue_id)
        self.compaction.changes.forget_queue(queue_id)
        return self._open.number

    def begin_atomic(self) -> None:
        """Keep all that follows in one batch until `end_atomic`, however large it grows."""
        self._overtaking.begin_atomic(self._open)

    def end_atomic(self) -> None:
        """End what `begin_atomic` began."""
        self._overtaking.end_atomic(self._open)

    # ---- what is fixed

    def _fix_open(self, *, whole: bool) -> Batch:
        """Fix the open batch and return the next, of which nothing is in this one if `whole`."""
        batch = self._open
        self._overtaking.gather(batch)
        lax = bool(self.lax) and batch.concerns_only(self.lax)
        batch.settle_cancelled()
        self.cancelled += batch.saved
        self.bytes_cancelled += batch.saved_bytes
        self.rotation.place(batch, lax=lax)
        self._backlog.put(batch)
        return self._begin_next(whole=whole)

    def _begin_next(self, *, whole: bool = True) -> Batch:
        assert self._open.state not in (_OPEN, _ATOMIC), "a batch is lost"
        self._open = Batch(self._open.number + 1, whole=whole)
        return self._open

    def _fix_next(self) -> bool:
        """Fix the open batch if it is time and something of it is left to write."""
        batch = self._open
        if batch.state is _ATOMIC:
            return False
        self._overtaking.gather(batch)
        if batch.cancelled:
            batch.settle_cancelled()
        if not batch.is_empty():
            if self.lingers(batch):
                return False
            self._fix_open(whole=True)
            self._overtaking.next_batch()
            return True
        if batch.tasks or batch.asked:
            batch.become(State.GONE)
            self._begin_next()
            self._drop(batch)
            self._tell(batch.number)  # all before it is on disk
        return False

    def _end_turn(self) -> None:
        """Keep what this turn brought by itself, and tell senders of batches that are void."""
        void = self._overtaking.end_turn(self._open)
        if self._open.state is not _OPEN:
            self._begin_next()
        if void:
            for one in void:
                self._drop(one)
            self.on_consumed([one.number for one in void])

    def _drop(self, batch: Batch) -> None:
        """Count a batch that nothing is left of."""
        assert batch.state is State.GONE, "a batch that is written is counted as if it were not"
        self.tasks -= batch.tasks
        self.cancelled += batch.saved
        self.bytes_cancelled += batch.saved_bytes

    def cover(self) -> None:
        """Write an empty batch behind the last one when nothing was written since the last call."""
        at_rest = self._covering.at_rest(self.synced) and not self._backlog.last
        if at_rest and not self._stopping and self._covering.missing(self.synced):
            self._open.cover()
            self.flush()

    def sync(self) -> None:
        """Have what was reported and is not synced synced, with what comes next or by itself."""
        if self.rotation.told and not self._stopping:
            self._open.cover()
            self.flush()

    # ---- what goes out

    def flush(self) -> None:
        """Hand the next batch to the writer when it is free."""
        if self._writer is None or self.failure is not None:
            return
        if self._backlog.busy is not None:
            if self._open.state is _OPEN:
                self._end_turn()
            return
        if not self._backlog.pending and not self._fix_next():
            return
        batch = self._backlog.hand_over(self.rotation.on_disk)
        self._covering.handed_over(batch)
        self._writer.write(batch)

    def written(self, batch: Batch, size: int) -> None:
        """The writer's answer: `batch` is on the device, or, if it is not firm, with the kernel."""
        if self.failure is not None:
            return
        assert batch is self._backlog.busy, "the writer answered for another batch"
        self.rotation.written(batch)
        self._backlog.take_back()
        self.batches += 1
        self.bytes_written += size
        self.stored += batch.stored
        self.tasks -= batch.tasks
        if batch.firm:
            self.syncs += 1
            self.synced = batch.number
        self.flush()
        self._tell(batch.number if self.unsynced else self.ticket - 1)
        if self._closed is None:
            if batch.firm:
                assert self._writer is not None, "nobody has written it"
                free = self.rotation.take_empty()
                if free:
                    self._writer.delete(free)
                self._compact()
        elif self._busy is None:
            self._finish()

    def _tell(self, ticket: int) -> None:
        """Tell senders that all up to a ticket is stored, as safely as their queues ask for."""
        if ticket > self._told:  # an empty batch behind it may have been told before
            assert ticket < next(self.waiting()).number, f"{ticket} is told and not stored"
            self._told = ticket
            self.on_durable(ticket)

    # ---- compaction

    def _compact(self) -> None:
        """Take the next step of carrying forward what lives in the oldest segment."""
        compaction, batch = self.compaction, self._open
        ready = self.failure is None and not self._stopping and batch.state is State.OPEN
        if not ready or self._writer is None or compaction.ticket > self.synced:
            return
        removals = [turn for turn in self._overtaking.turns if turn.removed_live]
        waiting = [*self._backlog.batches, *removals]
        offset = self.rotation.compact(batch, waiting, self.synced)
        if offset is not None:
            self._writer.read(compaction.segment, offset)
        elif batch.copies:
            self.flush()

    def empty(self, segment: int, places: Mapping[int, int]) -> None:
        """Have a segment emptied that has rotted; see `Compaction.empty`. Call `go_on`, too."""
        self.compaction.empty(segment, places)
        if self.rotation.leave(segment):
            self._open.cover()  # what comes goes to another, and something has to come
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

    # ---- the end

    def failed(self, error: BaseException) -> None:
        """The writer's answer: the disk refused. Nothing is retried; nothing more is confirmed."""
        if self.failure is not None:
            return
        self._backlog.take_back()
        self.failure = error
        self.on_failed(error)
        if self._closed is not None:
            self._finish()

    def close(self, done: Callable[[], None]) -> None:
        """Write what is open and the mark of a clean stop, then call `done`.

        The mark has a batch of its own: rot in the last batch looks like a torn tail, and this one
        holds nothing else that could be lost.
        """
        self._overtaking.gather(self._open)
        if not self._open.is_empty():
            self._fix_open(whole=True)
        self._open.mark_stop()
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

    def check_invariants(self) -> None:
        """Assert all that holds between calls, of the parts too."""
        batches = list(self.waiting())
        assert all(a.number < b.number for a, b in pairwise(batches)), "tickets in no order"
        assert self.synced <= self._told < batches[0].number, "told, and it waits"
        assert self._open.state in (State.OPEN, State.ATOMIC), self._open.state.name
        self._backlog.check_invariants()
        for batch in self.rotation.told:
            assert self.synced < batch.number <= self._told, f"{batch.number} is told, or not"
        self._overtaking.check_invariants(self._open)
        if self.failure is None:  # else the batch that failed is missing
            tasks = sum(batch.tasks for batch in batches)
            assert self.tasks == tasks, f"{self.tasks} messages counted, {tasks} wait"
            self.rotation.check_invariants(self._backlog.batches)
