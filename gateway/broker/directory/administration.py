"""Queues and addresses made, changed and removed on an operator's word, or on a client's."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.broker.directory.conduct import check, check_lasting
from gateway.broker.directory.directory import Directory
from gateway.broker.directory.permitting import check_delete
from gateway.broker.directory.remembered import queue_definition
from gateway.model.address import RoutingType, check_name
from gateway.model.attributes import changed
from gateway.model.errors import Code, RefusedError
from gateway.model.principal import Principal
from gateway.queues.queue import Queue
from gateway.selectors import compile_selector


class Administration:
    """See the module text."""

    __slots__ = ("_directory",)

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def create_queue(
        self,
        name: str,
        address: str,
        routing: RoutingType,
        *,
        durable: bool = True,
        ring_size: int | None = None,
        max_consumers: int | None = None,
        selector: str = "",
        attributes: Mapping[str, object] | None = None,
    ) -> tuple[Queue, int]:
        """Make a queue for an operator; returns it and its ticket. Raises RefusedError.

        Only what `selector` matches enters it.
        """
        check(ring_size, max_consumers, attributes or {})
        check_name(address, "address")
        condition = compile_selector(selector, address) if selector else None
        queue = self._directory.make_queue(
            name, address, routing, durable=durable, attributes=attributes
        )
        self._directory.set_filter(queue, condition)
        if ring_size is not None:
            queue.ring_size = ring_size
        if max_consumers is not None:
            queue.max_consumers = max_consumers
        ticket = self._directory.store.define(queue_definition(queue)) if queue.durable else 0
        self._directory.watcher.queue_made(queue)
        return queue, max(ticket, self._directory.store.ticket) if ticket else 0

    def _behave(self, queue: Queue, attributes: Mapping[str, object]) -> None:
        if attributes:
            queue.behave(changed(queue.attributes, attributes))
            self._directory.addresses[queue.address].look_at_queues()
            self._directory.watcher.touch(queue)

    def update_queue(
        self,
        name: str,
        *,
        ring_size: int | None = None,
        max_consumers: int | None = None,
        paused: bool | None = None,
        selector: str | None = None,
        attributes: Mapping[str, object] | None = None,
    ) -> tuple[Queue, int]:
        """Change a queue's attributes; returns it and the ticket.

        A new `selector` ("": none) is for what comes from now on; what the queue holds stays.
        Nothing changes when RefusedError is raised.
        """
        check(ring_size, max_consumers, attributes or {})
        queue = self._directory.find_queue(name)
        check_lasting(queue, attributes or {})
        if selector is not None:
            condition = compile_selector(selector, queue.address) if selector else None
            self._directory.set_filter(queue, condition, queue.no_local)
        if ring_size is not None:
            queue.ring_size = ring_size
        if max_consumers is not None:
            queue.max_consumers = max_consumers
        self._behave(queue, attributes or {})
        if paused is not None:
            queue.paused = paused
        if attributes or paused is False:
            self._directory.watcher.touch(queue)  # others may have what waits now
        return queue, self._directory.store.define(queue_definition(queue)) if queue.durable else 0

    def delete_subscription(self, name: str, principal: Principal | None = None) -> int:
        """Delete the queue of a durable subscription; returns the ticket.

        Raises RefusedError (not-found, in-use, not-authorized).
        """
        queue = self._directory.queues.get(name)
        if queue is None or queue.routing is not RoutingType.MULTICAST:
            raise RefusedError.of(Code.NOT_FOUND, f"Subscription {name!r} does not exist.")
        if queue.consumer_count:
            raise RefusedError.of(
                Code.IN_USE,
                f"Subscription {name!r} has {queue.consumer_count} consumers; close them first.",
            )
        check_delete(principal, queue)
        return self._directory.drop_queue(queue)

    def delete_queue(self, name: str, *, remove_consumers: bool = False) -> int:
        """Delete a queue with what it holds; returns the ticket.

        Raises RefusedError (not-found, in-use).
        """
        queue = self._directory.find_queue(name)
        if queue.consumer_count and not remove_consumers:
            raise RefusedError.of(
                Code.IN_USE,
                f"Queue {name!r} has {queue.consumer_count} consumers; close them, or "
                "delete with removeConsumers=true.",
            )
        return self._directory.drop_queue(queue)

    def delete_address(self, name: str, *, force: bool = False) -> int:
        """Delete an address; returns the ticket.

        Raises RefusedError while it has queues, unless `force`.
        """
        address = self._directory.find_address(name)
        if address.queues and not force:
            raise RefusedError.of(
                Code.IN_USE,
                f"Address {name!r} has {len(address.queues)} queues; delete them first.",
            )
        for queue in address.queues:
            self._directory.drop_queue(queue)
        return self._directory.forget_address(name)
