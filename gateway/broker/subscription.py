"""A consumer's hold on a queue: the broker side of the Subscription port."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gateway.model.message import Message
from gateway.model.ports import Consumer
from gateway.queues.queue import Held, Queue


class Core(Protocol):
    """What a subscription needs of the gateway.

    `recorded` is the ticket of the last record: set to 0 before a change, it tells afterwards what
    the change waits for. Where nothing was recorded no batch would ever be reported.
    """

    recorded: int

    def touch(self, queue: Queue) -> None: ...

    def dispatch_queue(self, queue: Queue) -> None: ...

    def rejects_as_modified(self, queue: Queue) -> bool: ...

    def redelivery(self, queue: Queue) -> Callable[[Message], int] | None: ...

    def subscription_closed(self, queue: Queue) -> None: ...


class Hold:
    """Implements the Subscription port."""

    __slots__ = ("_closed", "_core", "_held", "consumer", "queue")

    def __init__(self, core: Core, queue: Queue, consumer: Consumer, priority: int) -> None:
        self._core = core
        self.queue = queue
        self.consumer = consumer
        self._held: Held = queue.attach(consumer, priority)
        self._closed = False

    @property
    def queue_name(self) -> str:
        return self.queue.name

    @property
    def address(self) -> str:
        return self.queue.address

    def ready(self) -> None:
        """See the Subscription port."""
        if self.queue.ready_count:
            self._core.touch(self.queue)

    def dispatch_now(self) -> None:
        """See the Subscription port."""
        self._core.dispatch_queue(self.queue)

    def acknowledge(self, messages: list[Message]) -> int:
        """See the Subscription port."""
        if not messages:
            return 0
        core = self._core
        core.recorded = 0
        self.queue.acknowledge(self._held, messages)
        return core.recorded

    def release(
        self,
        messages: list[Message],
        *,
        failed: bool = False,
        undeliverable_here: bool = False,
        delayed: bool = False,
    ) -> int:
        """See the Subscription port."""
        if not messages:
            return 0
        queue = self.queue
        core = self._core
        if undeliverable_here:
            queue.bar(self._held, messages)
        core.recorded = 0
        due = core.redelivery(queue) if delayed else None
        queue.release(self._held, messages, failed=failed, due=due)
        core.touch(queue)
        return core.recorded if failed or due else 0

    def reject(self, messages: list[Message]) -> int:
        """See the Subscription port."""
        if not messages:
            return 0
        core = self._core
        if core.rejects_as_modified(self.queue):
            return self.release(messages, failed=True, delayed=True)
        core.recorded = 0
        self.queue.kill(self._held, messages)
        return core.recorded

    def close(self) -> None:
        """See the Subscription port."""
        if self._closed:
            return
        self._closed = True
        self.queue.detach(self._held)
        self._core.subscription_closed(self.queue)
