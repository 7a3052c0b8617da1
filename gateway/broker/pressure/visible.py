"""What browsers may see: nothing that a power cut could still take back.

A browser's message may be copied, counted, acted on; so it is shown once it is on disk. Consumers
do not wait, since what they settle is recorded itself, but those of a non-destructive queue, which
are browsers too. Nothing is noted when messages come: the store knows with which message of a queue
begins what it has yet to write, and all before it is shown, however long the disk stands. Queues
that are browsed and have more are remembered here, with the ticket after which there is more to
see.
"""

from __future__ import annotations

from gateway.broker.ports.store import Store
from gateway.broker.ports.turns import Dispatching
from gateway.queues.queue import Queue


class Visible:
    """See the module text."""

    __slots__ = ("_dispatch", "_store", "_waiting")

    def __init__(self, store: Store, dispatch: Dispatching) -> None:
        self._store = store
        self._dispatch = dispatch
        self._waiting: dict[int, tuple[int, Queue]] = {}  # by queue id: the ticket

    @property
    def waiting(self) -> bool:
        """Whether some browser waits for the disk."""
        return bool(self._waiting)

    def below(self, queue: Queue) -> int:
        """Return the seq below which all is on disk; the queue is touched when there is more."""
        first = self._store.first_unsynced(queue.queue_id) if queue.durable else None
        if first is None:
            self._waiting.pop(queue.queue_id, None)
            return queue.next_seq
        ticket, seq = first
        self._waiting[queue.queue_id] = ticket, queue
        return seq

    def durable_up_to(self, ticket: int) -> None:
        """More is on disk."""
        for number, (wanted, queue) in list(self._waiting.items()):
            if wanted <= ticket:
                del self._waiting[number]
                if queue.browsers or queue.keeps:
                    self._dispatch.touch(queue)
