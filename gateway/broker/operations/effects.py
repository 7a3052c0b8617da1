"""What follows when a queue changes: records go, memory is given back, dead letters move on.

Implements the queues' Effects port. What leaves a queue is forgotten by the store in the same batch
as what takes its place elsewhere: both happen, or neither.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.broker.directory.directory import Directory
from gateway.broker.operations.moves import Mover
from gateway.broker.operations.pager import Pager
from gateway.broker.operations.redelivery import redelivery_delay
from gateway.broker.operations.shares import joined_ranges, without_copies
from gateway.broker.ports.turns import Clock, Dispatching
from gateway.broker.pressure.load import OVERHEAD_BYTES
from gateway.broker.pressure.pressure import Pressure
from gateway.broker.pressure.visible import Visible
from gateway.model.message import DURABLE, PAGED, SHARED, Message
from gateway.model.turn import Turn
from gateway.queues.queue import Gone, Queue

#: The journal's call for messages between two seqs that are gone: (queue id, first, last, count).
Forget = Callable[[int, int, int, int], int]


class QueueEffects:
    """See the module text. `chance`: a number from 0 to 1, for delays that spread."""

    __slots__ = (
        "_clock",
        "_directory",
        "_dispatch",
        "_load",
        "_mover",
        "_pager",
        "_room",
        "_store",
        "_turn",
        "_visible",
        "chance",
    )

    def __init__(
        self,
        directory: Directory,
        pressure: Pressure,
        pager: Pager,
        mover: Mover,
        visible: Visible,
        *,
        turn: Turn,
        clock: Clock,
        dispatch: Dispatching,
    ) -> None:
        self._directory = directory
        self._store = directory.store
        self._load = pressure.load
        self._room = pressure.room
        self._pager = pager
        self._mover = mover
        self._visible = visible
        self._turn = turn
        self._clock = clock
        self._dispatch = dispatch
        self.chance: Callable[[], float] = _middle

    # ---- the Effects port

    def gone(self, queue: Queue, messages: list[Message], why: Gone, size: int) -> int:
        """See the port: forget records, give memory back, move on what is moved on."""
        if why is Gone.EXPIRED or why is Gone.KILLED:
            self._store.begin_atomic()  # gone here and stored there, or neither
            try:
                ticket = self._let_go(queue, messages, size, why)
                self._mover.move(queue, messages, why)
            finally:
                self._store.end_atomic()
        else:
            ticket = self._let_go(queue, messages, size, why)
        self._room.made()
        if self._pager.idle:
            self._pager.room_made()
        return ticket

    def _let_go(self, queue: Queue, messages: list[Message], size: int, why: Gone) -> int:
        ticket = 0
        if queue.line.any_flags & PAGED:
            messages, ticket = self._pager.finish(queue, messages)
            size = sum([len(m.body) for m in messages])
        if queue.paged_count and queue.consumer_count:
            self._dispatch.touch(queue)  # a limit may have kept more from being read
        count = len(messages)
        if messages and queue.durable and queue.line.any_flags & DURABLE and not queue.deleted:
            forget = self._store.replace if why is Gone.REPLACED else self._store.remove
            ticket = max(ticket, self._forget(queue, messages, forget))
        charge = size + OVERHEAD_BYTES * count
        if queue.line.any_flags & SHARED:
            count, kept_bytes = without_copies(messages)
            charge -= kept_bytes
        account = queue.account
        assert account is not None, "a queue without address"
        load = self._load
        load.memory -= charge
        load.messages -= count
        account.size_bytes -= charge
        account.messages -= count
        return ticket

    def _forget(self, queue: Queue, messages: list[Message], forget: Forget) -> int:
        if not self._turn.begun:  # until the store has its batch, a kill brings back what is gone
            self._turn.need_end()
        count = len(messages)
        first = messages[0].seq
        if count == 1:
            return forget(queue.queue_id, first, first, 1) if messages[0].flags & DURABLE else 0
        if queue.line.all_flags & DURABLE:
            last = messages[-1].seq
            if last - first == count - 1 and [m.seq for m in messages] == list(
                range(first, last + 1)
            ):
                return forget(queue.queue_id, first, last, count)
        ticket = 0
        for low, high in joined_ranges(sorted([m.seq for m in messages if m.flags & DURABLE])):
            # 0: gone without a record, which must not hide an earlier one.
            ticket = max(ticket, forget(queue.queue_id, low, high, high - low + 1))
        return ticket

    def counted(self, queue: Queue, messages: list[Message]) -> int:
        """See the port."""
        ticket = 0
        if queue.durable and messages:
            # Of the others there is no record whose flags could change.
            stored = [m for m in messages if m.flags & DURABLE]
            if stored:
                entries = [(m.seq, m.flags & ~(SHARED | PAGED)) for m in stored]
                ticket = self._store.count(queue.queue_id, entries)
            if queue.line.any_flags & PAGED:
                self._pager.counted(queue, messages)
        return ticket

    def given_up(self, queue: Queue, messages: list[Message]) -> None:
        """See the port."""
        self._mover.move(queue, messages, Gone.KILLED)

    def postponed(self, queue: Queue, messages: list[Message]) -> int:
        """See the port."""
        ticket = 0
        if queue.durable and messages:
            ticket = self.counted(queue, messages)
            due = [(m.seq, m.due) for m in messages if m.flags & DURABLE]
            if due:
                ticket = self._store.postpone(queue.queue_id, due)
            if queue.line.any_flags & PAGED:
                self._pager.postponed(queue, messages)
        return ticket

    def synced_below(self, queue: Queue) -> int:
        """See the port."""
        return self._visible.below(queue)

    def wake(self, queue: Queue, at_ms: int) -> None:
        """See the port."""
        self._dispatch.wake(queue, at_ms)

    # ---- settlements

    def redelivery(self, queue: Queue) -> Callable[[Message], int] | None:
        """Return what says when a message that comes back is due again; None: it is at once."""
        settings = self._directory.settings.for_address(queue.address)
        if settings.redelivery_delay <= 0:
            return None
        now_ms, chance = self._clock.now_ms(), self.chance
        return lambda m: now_ms + redelivery_delay(settings, m.delivery_count, chance)

    def rejects_as_modified(self, queue: Queue) -> bool:
        """Whether a message that a consumer rejects comes back instead of dying."""
        return self._directory.settings.for_address(queue.address).reject_as_modified


def _middle() -> float:
    """Stand for a source of chance that is not there yet."""
    return 0.5
