"""Which addresses and queues exist, who may make them, and where a destination leads.

Rules of making on demand: a sender may add the routing type it asks for to an address; a consumer
may where its protocol allows it. Whatever is durable is defined in the store before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gateway.broker.address import Address
from gateway.broker.conduct import check, check_lasting, check_subscription
from gateway.broker.inventory import Inventory
from gateway.broker.remembered import queue_definition
from gateway.model.address import Destination, RoutingType, check_name
from gateway.model.attributes import changed
from gateway.model.errors import Code, RefusedError
from gateway.model.objects import Kind
from gateway.queues.indexed import Condition
from gateway.queues.queue import Queue
from gateway.selectors import compile_selector


class Directory(Inventory):
    """What there is, and the rules by which it is made and changed.

    `user` is for whom something is to be made on demand, as far as `objects` has room for it; None
    is the gateway itself, which is never refused.
    """

    # ---- sending

    def for_sending(
        self, destination: Destination, routing: RoutingType | None, user: str | None = None
    ) -> tuple[Address, Queue | None]:
        """Return where a sender's messages go, making it where allowed. Raises RefusedError."""
        settings = self._settings.for_address(destination.address)
        address = self.addresses.get(destination.address)
        if address is None and not settings.auto_create_addresses:
            raise _not_found(destination.address)
        if destination.queue is not None:
            return self._fqqn_address(destination, user), self._fqqn(destination, routing, user)
        known = frozenset() if address is None else address.routing_types
        wanted = routing or (None if known else settings.default_address_routing_type)
        has_queue = False
        if address is not None:
            has_queue = bool(address.anycast)
            adds = bool(known) and wanted is not None and wanted not in known
            if wanted is not None and adds and not settings.auto_create_addresses:
                raise _mismatch(address, wanted)
        kinds = known if wanted is None else {wanted}
        makes = RoutingType.ANYCAST in kinds and not has_queue and settings.auto_create_queues
        self._check_room(destination.address, user, queue=makes)
        if address is None:
            address = self.make_address(destination.address, auto_created=True, user=user)
        if wanted is not None:
            self._add_type(address, wanted)
        if makes:
            self._make_on_demand(address.name, address.name, RoutingType.ANYCAST, user)
        return address, None

    def _fqqn_address(self, destination: Destination, user: str | None) -> Address:
        """Return the address of a named queue, made if it is not there."""
        address = self.addresses.get(destination.address)
        if address is None:
            settings = self._settings.for_address(destination.address)
            makes = destination.queue not in self.queues and settings.auto_create_queues
            self._check_room(destination.address, user, queue=makes)
            address = self.make_address(destination.address, auto_created=True, user=user)
        return address

    def _fqqn(
        self, destination: Destination, routing: RoutingType | None, user: str | None
    ) -> Queue:
        assert destination.queue is not None
        queue = self.queues.get(destination.queue)
        if queue is None:
            settings = self._settings.for_address(destination.address)
            if not settings.auto_create_queues:
                raise RefusedError.of(
                    Code.NOT_FOUND,
                    f"Queue: {destination.queue!r} does not exist, and auto-create-queues "
                    "is false for its address.",
                )
            kind = routing or settings.default_queue_routing_type
            return self._make_on_demand(destination.queue, destination.address, kind, user)
        if queue.address != destination.address:
            raise RefusedError.of(
                Code.NOT_FOUND,
                f"Queue {destination.queue!r} belongs to address {queue.address!r}, not "
                f"to {destination.address!r}.",
            )
        return queue

    # ---- consuming

    def consuming_type(
        self, destination: Destination, routing: RoutingType | None, *, may_add: bool
    ) -> RoutingType:
        """Return how a consumer of this destination is served. Raises RefusedError."""
        address = self.addresses.get(destination.address)
        settings = self._settings.for_address(destination.address)
        if destination.queue is not None and destination.queue in self.queues:
            return self.queues[destination.queue].routing
        if address is None or not address.routing_types:
            return routing or settings.default_queue_routing_type
        if routing is None:
            return (
                RoutingType.ANYCAST
                if RoutingType.ANYCAST in address.routing_types
                else RoutingType.MULTICAST
            )
        if routing not in address.routing_types and not (
            may_add and settings.auto_create_addresses
        ):
            raise _mismatch(address, routing)
        return routing

    def for_consuming(
        self, destination: Destination, routing: RoutingType | None, user: str | None = None
    ) -> Queue:
        """Return the queue that a consumer reads, making it where allowed. Raises RefusedError."""
        settings = self._settings.for_address(destination.address)
        address = self.addresses.get(destination.address)
        if address is None and not settings.auto_create_addresses:
            raise _not_found(destination.address)
        if destination.queue is not None:
            self._fqqn_address(destination, user)
            return self._fqqn(destination, routing, user)
        if address is not None and address.anycast:
            namesake = [queue for queue in address.anycast if queue.name == address.name]
            return (namesake or address.anycast)[0]
        if not settings.auto_create_queues:
            raise RefusedError.of(
                Code.NOT_FOUND,
                f"Address {destination.address!r} has no queue, and auto-create-queues is "
                "false for it.",
            )
        name = destination.address
        self._check_room(name, user, queue=True)
        if address is None:
            self.make_address(name, auto_created=True, user=user)
        return self._make_on_demand(name, name, RoutingType.ANYCAST, user)

    def _make_on_demand(
        self, name: str, address: str, kind: RoutingType, user: str | None
    ) -> Queue:
        self.objects.check(Kind.QUEUES, user)
        queue = self.make_queue(name, address, kind, auto_created=True, user=user)
        self._owner.queue_made(queue)
        return queue

    def subscription_queue(
        self,
        name: str,
        durable_name: str | None,
        *,
        shared: bool,
        make_name: Callable[[], str],
        temporary: bool = False,
        condition: Condition | None = None,
        no_local: str = "",
        owner: object | None = None,
        user: str | None = None,
    ) -> Queue:
        """Return the queue of a subscription, durable by name or temporary. Raises RefusedError.

        `temporary` with a name: shared by that name, and gone with its last consumer; without one
        the queue is `owner`'s alone. `condition`
        and `no_local` decide what the queue takes, and with others than before what it keeps.
        """
        queue = self._subscription_there(durable_name, name)
        self._make_topic(name, user, queue)
        if durable_name is None:
            kind = RoutingType.MULTICAST
            made = self.make_queue(make_name(), name, kind, temporary=True, user=user)
            made.owner = owner
            self._begin(made, condition, no_local)
            return made
        if queue is not None and queue.address != name:
            self.drop_queue(queue)
            queue = None
        if queue is None:
            queue = self.make_queue(
                durable_name,
                name,
                RoutingType.MULTICAST,
                auto_created=True,
                temporary=temporary,
                user=user,
            )
            if not shared:
                queue.max_consumers = 1
            self._begin(queue, condition, no_local)
        elif queue.filter_text != _text(condition) or queue.no_local != no_local:
            if queue.consumer_count:
                raise RefusedError.of(
                    Code.IN_USE,
                    f"Subscription {durable_name!r} has consumers with the selector "
                    f"{queue.filter_text!r}{' and no-local' if queue.no_local else ''}; close "
                    "them first, or subscribe as they did.",
                )
            self._set_filter(queue, condition, no_local)
            if condition is not None:
                self.refilter(queue, condition)
            if queue.durable:
                self._store.define(queue_definition(queue))
        return queue

    def _subscription_there(self, durable_name: str | None, address: str) -> Queue | None:
        """Return the subscription of a name, which may move to an address. Raises RefusedError."""
        if durable_name is None:
            return None
        queue = self.queues.get(durable_name)
        check_subscription(durable_name, queue, address)
        if queue is not None and queue.address != address and queue.consumer_count:
            raise RefusedError.of(
                Code.IN_USE,
                f"Subscription {durable_name!r} is on address {queue.address!r} and "
                f"has consumers; it cannot move to {address!r}.",
            )
        return queue

    def _make_topic(self, name: str, user: str | None, queue: Queue | None) -> None:
        """See to it that there is a multicast address, and room for a queue if there is none yet.

        Raises RefusedError, and has made nothing then.
        """
        known = name in self.addresses
        if not known and not self._settings.for_address(name).auto_create_addresses:
            raise _not_found(name)
        # One that moves takes the place that it had, unless another user had that.
        stays = queue is not None and (queue.address == name or queue.made_by == user)
        self._check_room(name, user, queue=not stays)
        if not known:
            self.make_address(name, auto_created=True, user=user)
        self._add_type(self.addresses[name], RoutingType.MULTICAST)

    def _begin(self, queue: Queue, condition: Condition | None, no_local: str) -> None:
        """Have a new subscription take what it asks for."""
        self._set_filter(queue, condition, no_local)
        if queue.durable:
            self._store.define(queue_definition(queue))
        self._owner.queue_made(queue)

    def _set_filter(self, queue: Queue, condition: Condition | None, no_local: str = "") -> None:
        """Have senders look at what the queue takes from now on."""
        queue.filter = condition
        queue.no_local = no_local
        self.addresses[queue.address].version += 1

    # ---- changing and removing

    def make_letter_queue(self, name: str, address: str, origin: str) -> None:
        """Make a queue for what died or expired at one address. Raises RefusedError."""
        quoted = origin.replace("'", "''")
        condition = compile_selector(f"_AMQ_ORIG_ADDRESS = '{quoted}'", address)
        queue = self.make_queue(name, address, RoutingType.MULTICAST, auto_created=True)
        self._set_filter(queue, condition)
        self._store.define(queue_definition(queue))

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
        queue = self.make_queue(name, address, routing, durable=durable, attributes=attributes)
        self._set_filter(queue, condition)
        if ring_size is not None:
            queue.ring_size = ring_size
        if max_consumers is not None:
            queue.max_consumers = max_consumers
        ticket = self._store.define(queue_definition(queue)) if queue.durable else 0
        self._owner.queue_made(queue)
        return queue, max(ticket, self._store.ticket) if ticket else 0

    def _behave(self, queue: Queue, attributes: Mapping[str, object]) -> None:
        if attributes:
            queue.behave(changed(queue.attributes, attributes))
            self.addresses[queue.address].look_at_queues()
            self._owner.touch(queue)

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
        queue = self.find_queue(name)
        check_lasting(queue, attributes or {})
        if selector is not None:
            condition = compile_selector(selector, queue.address) if selector else None
            self._set_filter(queue, condition, queue.no_local)
        if ring_size is not None:
            queue.ring_size = ring_size
        if max_consumers is not None:
            queue.max_consumers = max_consumers
        self._behave(queue, attributes or {})
        if paused is not None:
            queue.paused = paused
        if attributes or paused is False:
            self._owner.touch(queue)  # others may have what waits now
        return queue, self._store.define(queue_definition(queue)) if queue.durable else 0

    def delete_subscription(self, name: str) -> int:
        """Delete the queue of a durable subscription; returns the ticket.

        Raises RefusedError (not-found, in-use).
        """
        queue = self.queues.get(name)
        if queue is None or queue.routing is not RoutingType.MULTICAST:
            raise RefusedError.of(Code.NOT_FOUND, f"Subscription {name!r} does not exist.")
        if queue.consumer_count:
            raise RefusedError.of(
                Code.IN_USE,
                f"Subscription {name!r} has {queue.consumer_count} consumers; close them first.",
            )
        return self.drop_queue(queue)

    def delete_queue(self, name: str, *, remove_consumers: bool = False) -> int:
        """Delete a queue with what it holds; returns the ticket.

        Raises RefusedError (not-found, in-use).
        """
        queue = self.find_queue(name)
        if queue.consumer_count and not remove_consumers:
            raise RefusedError.of(
                Code.IN_USE,
                f"Queue {name!r} has {queue.consumer_count} consumers; close them, or "
                "delete with removeConsumers=true.",
            )
        return self.drop_queue(queue)

    def delete_address(self, name: str, *, force: bool = False) -> int:
        """Delete an address; returns the ticket.

        Raises RefusedError while it has queues, unless `force`.
        """
        address = self.find_address(name)
        if address.queues and not force:
            raise RefusedError.of(
                Code.IN_USE,
                f"Address {name!r} has {len(address.queues)} queues; delete them first.",
            )
        for queue in address.queues:
            self.drop_queue(queue)
        return self.forget_address(name)


def _text(condition: Condition | None) -> str:
    """Return the text of a selector; "" for none."""
    return "" if condition is None else condition.text


def _not_found(name: str) -> RefusedError:
    return RefusedError.of(
        Code.NOT_FOUND,
        f"Address {name!r} does not exist, and auto-create-addresses is false for it.",
    )


def _mismatch(address: Address, wanted: RoutingType) -> RefusedError:
    kind = "topic (MULTICAST)" if wanted is RoutingType.MULTICAST else "queue (ANYCAST)"
    return RefusedError.of(
        Code.ROUTING_MISMATCH, f"Address {address.name} is not configured for {kind} support."
    )
