"""Which addresses and queues exist, who may make them, and where a destination leads.

Rules of making on demand: a sender may add the routing type it asks for to an address; a consumer
may where its protocol allows it. Whatever is durable is defined in the store before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from gateway.addresses.match import SettingsTable
from gateway.broker.address import Address
from gateway.broker.conduct import begin, check, check_lasting, check_subscription, follow, wanted
from gateway.broker.kinds import build
from gateway.broker.ports import Store, Tap
from gateway.model.address import Destination, RoutingType, check_name
from gateway.model.attributes import changed
from gateway.model.definitions import AddressDefinition, QueueDefinition
from gateway.model.errors import Code, Refusal, RefusedError
from gateway.queues.indexed import Condition
from gateway.queues.queue import Effects, Queue
from gateway.selectors import compile_selector


class Owner(Effects, Protocol):
    """What the directory needs of the gateway: queues report their effects to it."""

    def touch(self, queue: Queue) -> None: ...

    def address_made(self, address: Address, *, new: bool) -> None: ...

    def queue_made(self, queue: Queue) -> None: ...

    def address_gone(self, name: str) -> None: ...

    def queues_changed(self, address: Address) -> None: ...


class Directory:
    """Addresses and queues by name. `serialized`: types whose dispatch waits for the disk."""

    def __init__(self, owner: Owner, settings: SettingsTable, store: Store) -> None:
        self._owner = owner
        self._settings = settings
        self._store = store
        self.addresses: dict[str, Address] = {}
        self.queues: dict[str, Queue] = {}
        self.next_id = 1
        self.serialized: frozenset[RoutingType] = frozenset()
        self.taps_on: Callable[[str], Sequence[Tap]] = _no_taps
        self.refilter: Callable[[Queue, Condition], None]  # has a queue keep nothing else

    def use_settings(self, settings: SettingsTable) -> None:
        """Use other settings for what is made from now on."""
        self._settings = settings

    def take_id(self) -> int:
        """Return a number for a queue or stream that none ever had."""
        number = self.next_id
        self.next_id += 1
        return number

    # ---- looking up

    def find_queue(self, name: str) -> Queue:
        """Return a queue. Raises RefusedError (not-found)."""
        queue = self.queues.get(name)
        if queue is None:
            raise RefusedError.of(Code.NOT_FOUND, f"Queue {name!r} does not exist.")
        return queue

    def find_address(self, name: str) -> Address:
        """Return an address. Raises RefusedError (not-found)."""
        address = self.addresses.get(name)
        if address is None:
            raise RefusedError.of(Code.NOT_FOUND, f"Address {name!r} does not exist.")
        return address

    # ---- sending

    def for_sending(
        self, destination: Destination, routing: RoutingType | None
    ) -> tuple[Address, Queue | None]:
        """Return where a sender's messages go, making it where allowed. Raises RefusedError."""
        settings = self._settings.for_address(destination.address)
        address = self.addresses.get(destination.address)
        if address is None:
            if not settings.auto_create_addresses:
                raise _not_found(destination.address)
            address = self.make_address(destination.address, auto_created=True)
        if destination.queue is not None:
            return address, self._fqqn(destination, routing)
        wanted = routing or (
            settings.default_address_routing_type if not address.routing_types else None
        )
        if wanted is not None and wanted not in address.routing_types:
            if address.routing_types and not settings.auto_create_addresses:
                raise _mismatch(address, wanted)
            self._add_type(address, wanted)
        if (
            RoutingType.ANYCAST in address.routing_types
            and wanted is not RoutingType.MULTICAST
            and not address.anycast
            and settings.auto_create_queues
        ):
            self._make_on_demand(address.name, address.name, RoutingType.ANYCAST)
        return address, None

    def _fqqn(self, destination: Destination, routing: RoutingType | None) -> Queue:
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
            return self._make_on_demand(destination.queue, destination.address, kind)
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

    def for_consuming(self, destination: Destination, routing: RoutingType | None) -> Queue:
        """Return the queue that a consumer reads, making it where allowed. Raises RefusedError."""
        settings = self._settings.for_address(destination.address)
        address = self.addresses.get(destination.address)
        if address is None and not settings.auto_create_addresses:
            raise _not_found(destination.address)
        if destination.queue is not None:
            if address is None:
                self.make_address(destination.address, auto_created=True)
            return self._fqqn(destination, routing)
        if address is not None and address.anycast:
            namesake = [queue for queue in address.anycast if queue.name == address.name]
            return (namesake or address.anycast)[0]
        if not settings.auto_create_queues:
            raise RefusedError.of(
                Code.NOT_FOUND,
                f"Address {destination.address!r} has no queue, and auto-create-queues is "
                "false for it.",
            )
        if address is None:
            self.make_address(destination.address, auto_created=True)
        return self._make_on_demand(destination.address, destination.address, RoutingType.ANYCAST)

    def _make_on_demand(self, name: str, address: str, kind: RoutingType) -> Queue:
        queue = self.make_queue(name, address, kind, auto_created=True)
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
    ) -> Queue:
        """Return the queue of a subscription, durable by name or temporary. Raises RefusedError.

        `temporary` with a name: shared by that name, and gone with its last consumer; without one
        the queue is `owner`'s alone. `condition`
        and `no_local` decide what the queue takes, and with others than before what it keeps.
        """
        if name not in self.addresses:
            if not self._settings.for_address(name).auto_create_addresses:
                raise _not_found(name)
            self.make_address(name, auto_created=True)
        self._add_type(self.addresses[name], RoutingType.MULTICAST)
        if durable_name is None:
            made = self.make_queue(make_name(), name, RoutingType.MULTICAST, temporary=True)
            made.owner = owner
            self._begin(made, condition, no_local)
            return made
        queue = self.queues.get(durable_name)
        check_subscription(durable_name, queue, name)
        if queue is not None and queue.address != name:
            if queue.consumer_count:
                raise RefusedError.of(
                    Code.IN_USE,
                    f"Subscription {durable_name!r} is on address {queue.address!r} and "
                    f"has consumers; it cannot move to {name!r}.",
                )
            self.drop_queue(queue)
            queue = None
        if queue is None:
            queue = self.make_queue(
                durable_name, name, RoutingType.MULTICAST, auto_created=True, temporary=temporary
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
                self._store.define(self.definition_of(queue))
        return queue

    def _begin(self, queue: Queue, condition: Condition | None, no_local: str) -> None:
        """Have a new subscription take what it asks for."""
        self._set_filter(queue, condition, no_local)
        if queue.durable:
            self._store.define(self.definition_of(queue))
        self._owner.queue_made(queue)

    def _set_filter(self, queue: Queue, condition: Condition | None, no_local: str = "") -> None:
        """Have senders look at what the queue takes from now on."""
        queue.filter = condition
        queue.no_local = no_local
        self.addresses[queue.address].version += 1

    # ---- making

    def make_address(
        self,
        name: str,
        types: frozenset[RoutingType] = frozenset(),
        *,
        auto_created: bool = False,
        temporary: bool = False,
    ) -> Address:
        """Make an address and remember it. Raises RefusedError (bad-name)."""
        check_name(name, "address")
        address = Address(name, self._settings.for_address(name))
        address.auto_created = auto_created
        address.temporary = temporary
        address.routing_types = types
        address.taps = self.taps_on(name)
        self.addresses[name] = address
        self._owner.address_made(address, new=True)
        if not temporary:
            self._store.define(
                AddressDefinition(name=name, routing_types=types, auto_created=auto_created)
            )
        return address

    def _add_type(self, address: Address, kind: RoutingType) -> None:
        if kind not in address.routing_types:
            address.routing_types |= {kind}
            address.version += 1
            if not address.temporary:
                self._store.define(
                    AddressDefinition(
                        name=address.name,
                        routing_types=address.routing_types,
                        auto_created=address.auto_created,
                    )
                )

    def make_queue(
        self,
        name: str,
        address_name: str,
        routing: RoutingType,
        *,
        durable: bool = True,
        auto_created: bool = False,
        temporary: bool = False,
        attributes: Mapping[str, object] | None = None,
    ) -> Queue:
        """Make a queue with its address' defaults, and remember it. Raises RefusedError.

        `attributes` are those that are said.
        """
        check_name(name, "queue")
        if name in self.queues:
            other = self.queues[name]
            raise RefusedError.of(
                Code.ALREADY_EXISTS, f"Queue {name!r} exists already, on address {other.address!r}."
            )
        settings = self._settings.for_address(address_name)
        queue = build(
            wanted(settings, attributes or {}),
            name,
            address_name,
            self.take_id(),
            self._owner,
            routing=routing,
            durable=durable and not temporary,
            temporary=temporary,
            auto_created=auto_created,
        )
        begin(settings, queue, self.serialized, self._store.relax)
        self._bind(queue)
        if queue.durable:
            self._store.define(self.definition_of(queue))
        return queue

    def make_letter_queue(self, name: str, address: str, origin: str) -> None:
        """Make a queue for what died or expired at one address. Raises RefusedError."""
        quoted = origin.replace("'", "''")
        condition = compile_selector(f"_AMQ_ORIG_ADDRESS = '{quoted}'", address)
        queue = self.make_queue(name, address, RoutingType.MULTICAST, auto_created=True)
        self._set_filter(queue, condition)
        self._store.define(self.definition_of(queue))

    def _bind(self, queue: Queue) -> None:
        self.queues[queue.name] = queue
        address = self.addresses.get(queue.address)
        if address is None:
            address = self.make_address(queue.address, frozenset({queue.routing}))
        self._add_type(address, queue.routing)
        address.bind(queue)
        self._owner.queues_changed(address)

    def make_temporary(self, name: str, routing: RoutingType, owner: object) -> None:
        """Make an address that is remembered nowhere, with its queue when it is anycast."""
        self.make_address(name, frozenset({routing}), temporary=True).owner = owner
        if routing is RoutingType.ANYCAST:
            self.make_queue(name, name, routing, temporary=True)

    @staticmethod
    def definition_of(queue: Queue) -> QueueDefinition:
        """Return what is remembered of a queue."""
        return QueueDefinition(
            queue_id=queue.queue_id,
            name=queue.name,
            address=queue.address,
            routing=queue.routing,
            durable=queue.durable,
            auto_created=queue.auto_created,
            ring_size=queue.ring_size,
            max_consumers=queue.max_consumers,
            paused=queue.paused,
            filter=queue.filter_text,
            no_local=queue.no_local,
            attributes=queue.attributes,
        )

    # ---- changing and removing

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
        ticket = self._store.define(self.definition_of(queue)) if queue.durable else 0
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
        return queue, self._store.define(self.definition_of(queue)) if queue.durable else 0

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

    def drop_queue(self, queue: Queue) -> int:
        """Delete a queue, ending its consumers; returns the ticket.

        Whoever still settles what it was given by the queue may do so, and changes only figures.
        """
        if queue.deleted:
            return 0
        queue.delete()
        del self.queues[queue.name]
        self.addresses[queue.address].unbind(queue)
        self._owner.queues_changed(self.addresses[queue.address])
        ticket = self._store.undefine(self.definition_of(queue)) if queue.durable else 0
        refusal = Refusal(code=Code.QUEUE_DELETED, text=f"Queue {queue.name!r} was deleted.")
        browsing = [browser.consumer for browser in queue.browsers]
        for consumer in [held.consumer for held in queue.consumers] + browsing:
            consumer.removed(refusal)
        return ticket

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

    def forget_address(self, name: str) -> int:
        """Remove an address without queues."""
        address = self.addresses.pop(name)
        address.gone = True
        address.taps = ()
        address.version += 1
        if address.blocked is not None:
            # Whoever is held back here goes on where the name leads next.
            address.blocked = None
            for producer in list(address.producers.values()):
                producer.unblock()
        self._owner.address_gone(name)
        if address.temporary:
            return 0
        return self._store.undefine(
            AddressDefinition(name=name, routing_types=address.routing_types)
        )

    # ---- restoring

    def restore_address(self, definition: AddressDefinition) -> None:
        """Bring back an address that the store remembers."""
        address = self.addresses.get(definition.name)
        if address is None:
            address = Address(definition.name, self._settings.for_address(definition.name))
            address.taps = self.taps_on(definition.name)
            self.addresses[definition.name] = address
            self._owner.address_made(address, new=False)
        address.auto_created = definition.auto_created
        address.routing_types |= definition.routing_types

    def restore_queue(self, definition: QueueDefinition) -> Queue:
        """Bring back a queue that the store remembers, empty."""
        queue = build(
            definition.attributes,
            definition.name,
            definition.address,
            definition.queue_id,
            self._owner,
            routing=definition.routing,
            durable=True,
            auto_created=definition.auto_created,
        )
        queue.ring_size = definition.ring_size
        queue.max_consumers = definition.max_consumers
        settings = self._settings.for_address(definition.address)
        follow(settings, queue, self.serialized, self._store.relax)
        queue.paused = definition.paused
        if definition.filter:
            queue.filter = compile_selector(definition.filter, definition.address)
        queue.no_local = definition.no_local
        self.queues[queue.name] = queue
        if queue.address not in self.addresses:
            self.restore_address(
                AddressDefinition(name=queue.address, routing_types=frozenset({queue.routing}))
            )
        self.addresses[queue.address].bind(queue)
        self._owner.queues_changed(self.addresses[queue.address])
        return queue

    def snapshot(self) -> list[QueueDefinition | AddressDefinition]:
        """Return all that is to be remembered."""
        found: list[QueueDefinition | AddressDefinition] = [
            AddressDefinition(
                name=a.name, routing_types=a.routing_types, auto_created=a.auto_created
            )
            for a in self.addresses.values()
            if not a.temporary
        ]
        return found + [self.definition_of(q) for q in self.queues.values() if q.durable]


def _text(condition: Condition | None) -> str:
    """Return the text of a selector; "" for none."""
    return "" if condition is None else condition.text


def _no_taps(name: str) -> Sequence[Tap]:
    return ()


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
