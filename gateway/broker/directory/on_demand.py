"""What is made on demand, for whom, and where a destination leads.

A sender may add the routing type it asks for to an address; a consumer may where its protocol
allows it. Whatever is durable is defined in the store before it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.broker.directory.address import Address
from gateway.broker.directory.conduct import check_subscription
from gateway.broker.directory.directory import Directory
from gateway.broker.directory.permitting import check_create, check_delete
from gateway.broker.directory.remembered import queue_definition
from gateway.model.address import Destination, RoutingType
from gateway.model.errors import Code, RefusedError
from gateway.model.grants import Grants
from gateway.model.objects import Kind
from gateway.model.principal import Principal, account_of
from gateway.queues.indexed import Condition
from gateway.queues.queue import Queue

MULTICAST: Final = RoutingType.MULTICAST


class OnDemand:
    """Finds what clients name, and makes it where settings and permissions allow it.

    `principal` is for whom something is to be made, as far as the directory's `objects` have room
    for its account; None is the gateway itself, which is never refused. Whether it may send or read
    is judged by those who call.

    Attributes:
        grants: what principals were allowed, and hold.
    """

    __slots__ = ("_directory", "_refilter", "grants")

    def __init__(
        self, directory: Directory, refilter: Callable[[Queue, Condition], None], grants: Grants
    ) -> None:
        """`refilter` has a queue keep nothing but what meets a condition."""
        self._directory = directory
        self._refilter = refilter
        self.grants = grants

    # ---- looking

    def find(self, name: str) -> Destination | None:
        """See the Broker port."""
        queue = self._directory.queues.get(name)
        if queue is not None:
            return Destination(queue.address, name)
        address = self._directory.addresses.get(name)
        return Destination(name) if address is not None and address.temporary else None

    def check_there(self, destination: Destination) -> None:
        """Raise RefusedError (not-found) where an address, or the queue of it, would be made."""
        directory = self._directory
        if destination.queue is not None:
            directory.find_queue(destination.queue)
        directory.find_address(destination.address)

    # ---- sending

    def for_sending(
        self,
        destination: Destination,
        routing: RoutingType | None,
        principal: Principal | None = None,
    ) -> tuple[Address, Queue | None]:
        """Return where a sender's messages go, making it where allowed. Raises RefusedError."""
        settings = self._directory.settings.for_address(destination.address)
        address = self._directory.addresses.get(destination.address)
        if address is None and not settings.auto_create_addresses:
            raise _not_found(destination.address)
        if destination.queue is not None:
            return self._fqqn(destination, routing, principal)
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
        name = destination.address
        check_create(principal, name, address, kind=wanted, queue=name if makes else None)
        self._directory.check_room(destination.address, account_of(principal), queue=makes)
        if address is None:
            address = self._directory.make_address(
                destination.address, auto_created=True, user=account_of(principal)
            )
        if wanted is not None:
            self._directory.add_type(address, wanted)
        if makes:
            self._make_on_demand(address.name, address.name, RoutingType.ANYCAST, principal)
        return address, None

    def _fqqn(
        self, destination: Destination, routing: RoutingType | None, principal: Principal | None
    ) -> tuple[Address, Queue]:
        """Return a named queue and its address, made where they are not there."""
        directory, name, of = self._directory, destination.queue, destination.address
        assert name is not None, "an address alone has no queue to look for"
        queue = directory.queues.get(name)
        address = directory.addresses.get(of)
        settings = directory.settings.for_address(of)
        if queue is None and not settings.auto_create_queues:
            raise RefusedError.of(
                Code.NOT_FOUND,
                f"Queue: {name!r} does not exist, and auto-create-queues is false for its address.",
            )
        if queue is not None and (address is None or queue.address != of):
            raise RefusedError.of(
                Code.NOT_FOUND,
                f"Queue {name!r} belongs to address {queue.address!r}, not to {of!r}.",
            )
        if queue is None or address is None:
            kind = routing or settings.default_queue_routing_type
            check_create(principal, of, address, kind=kind, queue=name)
            directory.check_room(of, account_of(principal), queue=True)
            if address is None:
                address = directory.make_address(of, auto_created=True, user=account_of(principal))
            queue = self._make_on_demand(name, of, kind, principal)
        return address, queue

    # ---- consuming

    def consuming_type(
        self, destination: Destination, routing: RoutingType | None, *, may_add: bool
    ) -> RoutingType:
        """Return how a consumer of this destination is served. Raises RefusedError."""
        address = self._directory.addresses.get(destination.address)
        settings = self._directory.settings.for_address(destination.address)
        if destination.queue is not None and destination.queue in self._directory.queues:
            return self._directory.queues[destination.queue].routing
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

    def read_queue(self, destination: Destination) -> str:
        """Return the queue that `for_consuming` leads to, by its name; makes nothing."""
        if destination.queue is not None:
            return destination.queue
        address = self._directory.addresses.get(destination.address)
        chosen = None if address is None else _chosen(address)
        return destination.address if chosen is None else chosen.name

    def for_consuming(
        self,
        destination: Destination,
        routing: RoutingType | None,
        principal: Principal | None = None,
    ) -> Queue:
        """Return the queue that a consumer reads, making it where allowed. Raises RefusedError."""
        settings = self._directory.settings.for_address(destination.address)
        address = self._directory.addresses.get(destination.address)
        if address is None and not settings.auto_create_addresses:
            raise _not_found(destination.address)
        if destination.queue is not None:
            return self._fqqn(destination, routing, principal)[1]
        chosen = None if address is None else _chosen(address)
        if chosen is not None:
            return chosen
        if not settings.auto_create_queues:
            raise RefusedError.of(
                Code.NOT_FOUND,
                f"Address {destination.address!r} has no queue, and auto-create-queues is "
                "false for it.",
            )
        name = destination.address
        check_create(principal, name, address, kind=RoutingType.ANYCAST, queue=name)
        self._directory.check_room(name, account_of(principal), queue=True)
        if address is None:
            self._directory.make_address(name, auto_created=True, user=account_of(principal))
        return self._make_on_demand(name, name, RoutingType.ANYCAST, principal)

    def _make_on_demand(
        self, name: str, address: str, kind: RoutingType, principal: Principal | None
    ) -> Queue:
        self._directory.objects.check(Kind.QUEUES, account_of(principal))
        queue = self._directory.make_queue(
            name, address, kind, auto_created=True, user=account_of(principal)
        )
        self._directory.watcher.queue_made(queue)
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
        principal: Principal | None = None,
    ) -> Queue:
        """Return the queue of a subscription, durable by name or temporary. Raises RefusedError.

        `temporary` with a name: shared by that name, and gone with its last consumer; without one
        it is `owner`'s alone. `condition` and `no_local` decide what it takes, and keeps.
        """
        queue = self._subscription_there(durable_name, name)
        fresh = durable_name or make_name()
        if queue is None or queue.address != name or not _same(queue, condition, no_local):
            durable = durable_name is not None and not temporary
            self._check_topic(principal, name, queue, fresh, durable=durable)
        self._make_topic(name, principal, queue)
        if durable_name is None:
            user = account_of(principal)
            made = self._directory.make_queue(fresh, name, MULTICAST, temporary=True, user=user)
            made.owner = owner
            self._begin(made, condition, no_local)
            return made
        if queue is not None and queue.address != name:
            self._directory.drop_queue(queue)
            queue = None
        if queue is None:
            queue = self._directory.make_queue(
                durable_name,
                name,
                RoutingType.MULTICAST,
                auto_created=True,
                temporary=temporary,
                user=account_of(principal),
            )
            if not shared:
                queue.max_consumers = 1
            self._begin(queue, condition, no_local)
        elif not _same(queue, condition, no_local):
            if queue.consumer_count:
                raise RefusedError.of(
                    Code.IN_USE,
                    f"Subscription {durable_name!r} has consumers with the selector "
                    f"{queue.filter_text!r}{' and no-local' if queue.no_local else ''}; close "
                    "them first, or subscribe as they did.",
                )
            self._directory.set_filter(queue, condition, no_local)
            if condition is not None:
                self._refilter(queue, condition)
            if queue.durable:
                self._directory.store.define(queue_definition(queue))
        return queue

    def _check_topic(
        self,
        principal: Principal | None,
        name: str,
        old: Queue | None,
        queue: str,
        *,
        durable: bool,
    ) -> None:
        """Raise RefusedError unless a subscription's queue may be made for a principal.

        It takes the place of an old one, which loses what it holds.
        """
        if old is not None:
            check_delete(principal, old)
        address = self._directory.addresses.get(name)
        kind = RoutingType.MULTICAST
        check_create(principal, name, address, kind=kind, queue=queue, durable=durable)

    def _subscription_there(self, durable_name: str | None, address: str) -> Queue | None:
        """Return the subscription of a name, which may move to an address. Raises RefusedError."""
        if durable_name is None:
            return None
        queue = self._directory.queues.get(durable_name)
        check_subscription(durable_name, queue, address)
        if queue is not None and queue.address != address and queue.consumer_count:
            raise RefusedError.of(
                Code.IN_USE,
                f"Subscription {durable_name!r} is on address {queue.address!r} and "
                f"has consumers; it cannot move to {address!r}.",
            )
        return queue

    def _make_topic(self, name: str, principal: Principal | None, queue: Queue | None) -> None:
        """See to it that there is a multicast address, and room for a queue if there is none yet.

        Raises RefusedError, and has made nothing then.
        """
        known = name in self._directory.addresses
        if not known and not self._directory.settings.for_address(name).auto_create_addresses:
            raise _not_found(name)
        # One that moves takes the place that it had, unless another user had that.
        stays = queue is not None and (
            queue.address == name or queue.made_by == account_of(principal)
        )
        self._directory.check_room(name, account_of(principal), queue=not stays)
        if not known:
            self._directory.make_address(name, auto_created=True, user=account_of(principal))
        self._directory.add_type(self._directory.addresses[name], RoutingType.MULTICAST)

    def _begin(self, queue: Queue, condition: Condition | None, no_local: str) -> None:
        """Have a new subscription take what it asks for."""
        self._directory.set_filter(queue, condition, no_local)
        if queue.durable:
            self._directory.store.define(queue_definition(queue))
        self._directory.watcher.queue_made(queue)


def _chosen(address: Address) -> Queue | None:
    """Return the queue of those who name an address alone."""
    namesake = [queue for queue in address.anycast if queue.name == address.name]
    return next(iter(namesake or address.anycast), None)


def _same(queue: Queue, condition: Condition | None, no_local: str) -> bool:
    """Whether a subscription's queue takes what is asked for."""
    return queue.filter_text == _text(condition) and queue.no_local == no_local


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
