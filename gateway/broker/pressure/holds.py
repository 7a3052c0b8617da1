"""Dispatch that waits for the disk: between the append of a run and its place in the queue.

What waits: durable messages on a queue that is serialized (`strict-dispatch` of its address, or
concurrent store and dispatch switched off for its routing type), durable messages on any queue
while the disk lags (see `lag`), and what a transaction sends, on any queue, whether it is durable
or not: it is seen whole. All others never meet this module: a route takes `HeldStore` in place of
the store when it looks at its address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.broker.directory.address import Address
from gateway.broker.ports.store import Appends
from gateway.broker.ports.turns import Dispatching
from gateway.model.run import StoredRun
from gateway.queues.queue import Queue


class Holds:
    """See the module text. `held` (read only): messages that had to wait so far."""

    __slots__ = (
        "_addresses",
        "_changed",
        "_dispatch",
        "_meanwhile",
        "_pending",
        "_store",
        "_waiting",
        "held",
    )

    def __init__(
        self, addresses: Mapping[str, Address], store: Appends, dispatch: Dispatching
    ) -> None:
        self._addresses = addresses  # by name
        self._store = store
        self._dispatch = dispatch
        self._waiting: dict[int, Queue] = {}  # by id
        self._pending: dict[int, Queue] = {}  # of the transaction that is being committed
        self._meanwhile = False  # the disk lags: all that is durable waits
        self._changed: dict[int, Queue] = {}  # that were made to wait for that alone
        self.held = 0

    @property
    def waiting(self) -> bool:
        """Whether something waits for the disk before it can be handed out."""
        return bool(self._waiting)

    def store_for(self, queues: Sequence[Queue]) -> Appends:
        """Return the store, or what stands for it where one of these queues waits for it."""
        store = self._store
        if self._meanwhile:
            for queue in queues:
                if queue.durable and not queue.stores_first:
                    queue.line.store_first(True)
                    self._changed[queue.queue_id] = queue
        return HeldStore(store, self, queues) if any(q.stores_first for q in queues) else store

    def store_first(self, meanwhile: bool) -> None:  # noqa: FBT001 - says it by name
        """Have all that is durable wait from now on, of whatever queue, or only what must again.

        Each route finds out with its next send: only queues that are sent to are changed.
        """
        self._meanwhile = meanwhile
        if not meanwhile:
            changed, self._changed = self._changed, {}
            for queue in changed.values():
                queue.line.store_first(False)
        for address in self._addresses.values():
            address.version += 1

    def stamp(self, queue: Queue, ticket: int) -> None:
        """What came last to the queue is on disk with this ticket."""
        if queue.storing_count:
            queue.line.stamp(ticket)
            self._waiting[queue.queue_id] = queue

    def begin(self, queues: Sequence[Queue]) -> None:
        """Have all that these take in from now on wait, until `end`."""
        for queue in queues:
            queue.line.hold()
            self._pending[queue.queue_id] = queue

    def end(self, ticket: int) -> None:
        """What came since `begin` is on disk with this ticket; 0: it need not be."""
        pending, self._pending = self._pending, {}
        for queue in pending.values():
            self.stamp(queue, ticket)
            queue.line.let_go()
        if not ticket and pending:
            self.durable_up_to(0)

    def durable_up_to(self, ticket: int) -> None:
        """Let go what is on disk now."""
        if not self._waiting:
            return
        for queue_id, queue in list(self._waiting.items()):
            count = queue.line.stored(ticket)
            if not queue.storing_count:
                del self._waiting[queue_id]
            if count:
                self.held += count
                queue.drop_superseded()
                self._dispatch.touch(queue)
                if owed := queue.ring.take_owed():
                    self._dispatch.overflow(queue, owed)


class HeldStore:
    """Implements `Appends`: queues that are written for learn the ticket."""

    __slots__ = ("_holds", "_queues", "_store")

    def __init__(self, store: Appends, holds: Holds, queues: Sequence[Queue]) -> None:
        self._store = store
        self._holds = holds
        self._queues = {queue.queue_id: queue for queue in queues}

    def append(
        self, targets: Sequence[tuple[int, int]], run: StoredRun, size: int, now_ms: int
    ) -> int:
        """See the Store port."""
        ticket = self._store.append(targets, run, size, now_ms)
        self._stamp(targets, ticket)
        return ticket

    def _stamp(self, targets: Sequence[tuple[int, int]], ticket: int) -> None:
        for queue_id, _ in targets:
            queue = self._queues.get(queue_id)  # None: a stream
            if queue is not None:
                self._holds.stamp(queue, ticket)
