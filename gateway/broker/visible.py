"""What browsers may see: nothing that a power cut could still take back.

A browser's message may be copied, counted, acted on; so it is shown once it is on disk. Consumers
do not wait, since what they settle is recorded itself, but those of a non-destructive queue, which
are browsers too. Only queues that are browsed are remembered here, as (ticket, seq): with that
ticket all below that seq is on disk.
"""

from __future__ import annotations

from typing import Protocol

from gateway.broker.ports import Store
from gateway.queues.queue import Queue


class Core(Protocol):
    """What is needed of the gateway."""

    @property
    def store(self) -> Store: ...

    def touch(self, queue: Queue) -> None: ...


class _Marks:
    """What is known of one queue."""

    __slots__ = ("below", "queue", "waiting")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.below = 0
        self.waiting: list[tuple[int, int]] = []


class Visible:
    """See the module text."""

    __slots__ = ("_core", "_marks")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._marks: dict[int, _Marks] = {}

    @property
    def waiting(self) -> bool:
        """Whether some browser may wait for the disk."""
        return bool(self._marks)

    def below(self, queue: Queue) -> int:
        """Return the seq below which all is on disk; the queue is touched when there is more."""
        unsynced = self._core.store.unsynced if queue.durable else 0
        if not unsynced:
            self._marks.pop(queue.queue_id, None)
            return queue.next_seq
        marks = self._marks.setdefault(queue.queue_id, _Marks(queue))
        if marks.waiting and marks.waiting[-1][0] == unsynced:
            marks.waiting.pop()
        marks.waiting.append((unsynced, queue.next_seq))
        return marks.below

    def durable_up_to(self, ticket: int) -> None:
        """More is on disk."""
        for number, marks in list(self._marks.items()):
            waiting = marks.waiting
            if not (marks.queue.browsers or marks.queue.keeps):
                del self._marks[number]
            elif waiting and waiting[0][0] <= ticket:
                while waiting and waiting[0][0] <= ticket:
                    marks.below = waiting.pop(0)[1]
                self._core.touch(marks.queue)
