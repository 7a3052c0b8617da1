"""What the rooms of the broker ask of the turn that they act in."""

from __future__ import annotations

from typing import Protocol

from gateway.queues.queue import Queue


class Clock(Protocol):
    """Broker time."""

    def now_ms(self) -> int:
        """Return the ms since the epoch; read once a turn."""


class Dispatching(Protocol):
    """Has queues hand out what they hold."""

    def touch(self, queue: Queue) -> None:
        """See to it that the queue is dispatched at the end of this turn."""

    def need_end(self) -> None:
        """See to it that this turn ends, though no queue was touched: the store has something."""

    def dispatch_queue(self, queue: Queue) -> None:
        """Hand out at once what the queue's consumers have room for."""

    def overflow(self, queue: Queue, added: int) -> None:
        """A ring has too much after an add: what consumers take at once is not evicted."""

    def wake(self, queue: Queue, at_ms: int) -> None:
        """Have the queue dispatched when broker time is `at_ms`, or soon after."""
