"""A consumer's hold on a queue, or a browser's look at it: the broker side of Subscription."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from gateway.broker.consuming.annotating import annotate
from gateway.broker.operations.effects import QueueEffects
from gateway.broker.operations.pager import Pager
from gateway.broker.ports.turns import Dispatching
from gateway.broker.pressure.load import Load
from gateway.model.amqp_types import Value
from gateway.model.grants import Grant
from gateway.model.message import Message
from gateway.model.ports import Consumer, Progress
from gateway.queues.indexed import Condition
from gateway.queues.queue import Held, Queue


class Settling(Protocol):
    """What a subscription needs of those around it."""

    @property
    def dispatch(self) -> Dispatching: ...

    @property
    def effects(self) -> QueueEffects: ...

    @property
    def pager(self) -> Pager: ...

    @property
    def load(self) -> Load: ...

    def closed(self, queue: Queue) -> None:
        """A consumer has left the queue."""


class Bindings(Protocol):
    """An address: senders look again when its version has changed."""

    version: int


class Hold:
    """Implements the Subscription port; `grant` is given back at its end."""

    __slots__ = ("_around", "_closed", "_held", "consumer", "grant", "queue")

    def __init__(
        self,
        around: Settling,
        queue: Queue,
        consumer: Consumer,
        priority: int | None = None,
        condition: Condition | None = None,
    ) -> None:
        """Attach a consumer; without a `priority` it has that of its queue."""
        self._around = around
        self.queue = queue
        self.consumer = consumer
        if priority is None:
            priority = queue.attributes.consumer_priority
        self._held: Held = queue.attach(consumer, priority, condition)
        self._closed = False
        self.grant: Grant | None = None

    @property
    def queue_name(self) -> str:
        return self.queue.name

    @property
    def address(self) -> str:
        return self.queue.address

    @property
    def progress(self) -> Progress | None:
        return None

    @property
    def browses(self) -> bool:
        return False

    @property
    def in_flight(self) -> int:
        return self._held.count

    def ready(self) -> None:
        """See the Subscription port."""
        if self.queue.ready_count or self.queue.paged_count:
            self._around.dispatch.touch(self.queue)

    def dispatch_now(self) -> None:
        """See the Subscription port."""
        self._around.dispatch.dispatch_queue(self.queue)

    def keeps_searching(self) -> bool:
        """See the Subscription port."""
        if self.queue.wait_for_search(self._held):
            return True
        return self._around.pager.keeps_reading(self.queue, self._held)

    def acknowledge(self, messages: list[Message]) -> int:
        """See the Subscription port."""
        if not messages:
            return 0
        held = self._held
        return held.acknowledge(held, messages)

    def release(
        self,
        messages: list[Message],
        *,
        failed: bool = False,
        undeliverable_here: bool = False,
        delayed: bool = False,
        unseen: bool = False,
    ) -> int:
        """See the Subscription port."""
        if not messages:
            return 0
        queue = self.queue
        around = self._around
        if undeliverable_here:
            self._held.bar(messages)
        due = around.effects.redelivery(queue) if delayed else None
        if not (failed or unseen or queue.keeps):  # else it was shown a copy
            queue.returns.note_acquired(messages)
        ticket = queue.release(self._held, messages, failed=failed, due=due)
        around.dispatch.touch(queue)
        return ticket if failed or due else 0

    def annotate(
        self, messages: list[Message], annotations: Mapping[str, Value], size_max: int
    ) -> None:
        """See the Subscription port."""
        annotate(self._around.load, self.queue, messages, annotations, size_max)

    def reject(self, messages: list[Message]) -> int:
        """See the Subscription port."""
        if not messages:
            return 0
        if self._around.effects.rejects_as_modified(self.queue):
            return self.release(messages, failed=True, delayed=True)
        return self.queue.kill(self._held, messages)

    def close(self) -> None:
        """See the Subscription port."""
        if self._closed:
            return
        self._closed = True
        if self.grant is not None:
            self.grant.give_back()
        self.queue.detach(self._held)
        self._around.closed(self.queue)


class Look:
    """Implements the Subscription port for a browser: settling what it shows changes nothing."""

    __slots__ = ("_around", "_browser", "_closed", "consumer", "grant", "queue")

    def __init__(
        self, around: Settling, queue: Queue, consumer: Consumer, condition: Condition | None
    ) -> None:
        self._around = around
        self.queue = queue
        self.consumer = consumer
        self._browser = queue.searches.join_browser(consumer, condition)
        self._closed = False
        self.grant: Grant | None = None

    @property
    def queue_name(self) -> str:
        return self.queue.name

    @property
    def address(self) -> str:
        return self.queue.address

    @property
    def progress(self) -> Progress | None:
        return None

    @property
    def browses(self) -> bool:
        return True

    @property
    def in_flight(self) -> int:
        return 0

    def ready(self) -> None:
        """See the Subscription port."""
        if not self._closed:
            self._around.dispatch.touch(self.queue)

    def dispatch_now(self) -> None:
        """See the Subscription port."""
        self._around.dispatch.dispatch_queue(self.queue)

    def keeps_searching(self) -> bool:
        """See the Subscription port."""
        self._browser.patient = self._browser.waits
        return self._browser.waits

    def acknowledge(self, messages: list[Message]) -> int:
        """Nothing was taken, so that nothing is removed."""
        return 0

    def release(
        self,
        messages: list[Message],
        *,
        failed: bool = False,
        undeliverable_here: bool = False,
        delayed: bool = False,
        unseen: bool = False,
    ) -> int:
        """Show messages again that could not be sent after all; else there is nothing to do."""
        if self._browser.delivering:
            self._browser.rewind(messages)
            self.ready()
        return 0

    def annotate(
        self, messages: list[Message], annotations: Mapping[str, Value], size_max: int
    ) -> None:
        """Nothing was taken, and nothing changes."""

    def reject(self, messages: list[Message]) -> int:
        """Nothing was taken."""
        return 0

    def close(self) -> None:
        """See the Subscription port."""
        if self._closed:
            return
        self._closed = True
        if self.grant is not None:
            self.grant.give_back()
        self.queue.searches.leave_browser(self._browser)


class NotFrom:
    """A condition: what does not come from a certain connection, and meets another condition."""

    __slots__ = ("_origin", "_other", "text")

    def __init__(self, origin: str, other: Condition | None) -> None:
        self._origin = origin
        self._other = other
        self.text = "" if other is None else other.text

    @property
    def matches(self) -> Callable[[Message], bool]:
        return self._matches

    def _matches(self, message: Message) -> bool:
        if getattr(message, "origin", "") == self._origin:
            return False
        return self._other is None or self._other.matches(message)


class LocalHold(Hold):
    """A hold whose consumer gets nothing that its own connection sends."""

    __slots__ = ("_bindings",)

    def __init__(
        self,
        around: Settling,
        bindings: Bindings,
        queue: Queue,
        consumer: Consumer,
        condition: NotFrom,
    ) -> None:
        super().__init__(around, queue, consumer, condition=condition)
        self._bindings = bindings
        queue.told_apart += 1
        bindings.version += 1

    def close(self) -> None:
        """See the Subscription port."""
        if not self._closed:
            self.queue.told_apart -= 1
            self._bindings.version += 1
        super().close()
