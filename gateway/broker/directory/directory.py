"""Which addresses and queues exist: found, made, counted, remembered and forgotten.

Whatever is durable is defined in the store before it is used. Who may make what, and when, is not
decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from gateway.addresses.match import SettingsTable
from gateway.broker.directory.address import Address
from gateway.broker.directory.conduct import begin, follow, wanted
from gateway.broker.directory.kinds import build
from gateway.broker.directory.remembered import address_definition, queue_definition
from gateway.broker.ports.store import Store
from gateway.broker.ports.streams import Tap
from gateway.model.address import RoutingType, check_name
from gateway.model.definitions import AddressDefinition, QueueDefinition
from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.objects import Kind, Objects
from gateway.queues.indexed import Condition
from gateway.queues.queue import Effects, Queue
from gateway.selectors import compile_selector


class Watcher(Protocol):
    """Hears of what is made and goes."""

    def touch(self, queue: Queue) -> None:
        """The queue may have something to hand out."""

    def address_made(self, address: Address, *, new: bool) -> None:
        """An address was made, or brought back at the start."""

    def queue_made(self, queue: Queue) -> None:
        """A queue was made, and has the filter that it is to have."""

    def address_gone(self, name: str) -> None:
        """An address was deleted, and what it knew is forgotten."""

    def queues_changed(self, address: Address) -> None:
        """An address has got or lost a queue."""


class Directory:
    """Addresses and queues by name. `serialized`: types whose dispatch waits for the disk.

    `user` is who has something made on demand; None is the gateway itself, or an operator.
    `objects` counts what was made on demand.
    """

    effects: Effects[Queue]  # what queues report to
    watcher: Watcher

    def __init__(self, settings: SettingsTable, store: Store) -> None:
        """`effects` and `watcher` are to be set before anything is made."""
        self.settings = settings
        self.store = store
        self.addresses: dict[str, Address] = {}
        self.queues: dict[str, Queue] = {}
        self.objects = Objects()
        self.next_id = 1
        self.serialized: frozenset[RoutingType] = frozenset()
        self.taps_on: Callable[[str], Sequence[Tap]] = _no_taps

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

    # ---- making

    def make_address(
        self,
        name: str,
        types: frozenset[RoutingType] = frozenset(),
        *,
        auto_created: bool = False,
        temporary: bool = False,
        user: str | None = None,
    ) -> Address:
        """Make an address and remember it. Raises RefusedError (bad-name)."""
        check_name(name, "address")
        address = Address(name, self.settings.for_address(name))
        address.auto_created = auto_created
        address.temporary = temporary
        address.made_by = user
        address.routing_types = types
        address.taps = self.taps_on(name)
        self.addresses[name] = address
        self._count(Kind.ADDRESSES, address)
        self.watcher.address_made(address, new=True)
        if not temporary:
            self.store.define(address_definition(address))
        return address

    def check_room(self, address: str, user: str | None, *, queue: bool) -> None:
        """Raise RefusedError (too-many) unless what is missing may be made for a user.

        Both are asked for before anything is made: who may have no queue gets no address either.
        """
        if address not in self.addresses:
            self.objects.check(Kind.ADDRESSES, user)
        if queue:
            self.objects.check(Kind.QUEUES, user)

    def _count(self, kind: Kind, made: Address | Queue) -> None:
        if made.auto_created or made.temporary:
            self.objects.add(kind, made.made_by)

    def _discount(self, kind: Kind, made: Address | Queue) -> None:
        if made.auto_created or made.temporary:
            self.objects.remove(kind, made.made_by)

    def keep(self, made: Address | Queue) -> None:
        """What was made on demand is the operator's from now on, and counts for nobody.

        What is temporary stays its connection's.
        """
        if not made.temporary:
            self._discount(Kind.QUEUES if isinstance(made, Queue) else Kind.ADDRESSES, made)
            made.auto_created, made.made_by = False, None

    def add_type(self, address: Address, kind: RoutingType) -> None:
        """Have an address serve another routing type as well."""
        if kind not in address.routing_types:
            address.routing_types |= {kind}
            address.version += 1
            if not address.temporary:
                self.store.define(address_definition(address))

    def make_queue(
        self,
        name: str,
        address_name: str,
        routing: RoutingType,
        *,
        durable: bool = True,
        auto_created: bool = False,
        temporary: bool = False,
        user: str | None = None,
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
        settings = self.settings.for_address(address_name)
        queue = build(
            wanted(settings, attributes or {}),
            name,
            address_name,
            self.take_id(),
            self.effects,
            routing=routing,
            durable=durable and not temporary,
            temporary=temporary,
            auto_created=auto_created,
        )
        queue.made_by = user
        begin(settings, queue, self.serialized, self.store.relax)
        self._count(Kind.QUEUES, queue)
        self._bind(queue)
        if queue.durable:
            self.store.define(queue_definition(queue))
        return queue

    def _bind(self, queue: Queue) -> None:
        self.queues[queue.name] = queue
        address = self.addresses.get(queue.address)
        if address is None:
            address = self.make_address(queue.address, frozenset({queue.routing}))
        self.add_type(address, queue.routing)
        address.bind(queue)
        self.watcher.queues_changed(address)

    def make_letter_queue(self, name: str, address: str, origin: str) -> None:
        """Make a queue for what died or expired at one address. Raises RefusedError."""
        quoted = origin.replace("'", "''")
        condition = compile_selector(f"_AMQ_ORIG_ADDRESS = '{quoted}'", address)
        queue = self.make_queue(name, address, RoutingType.MULTICAST, auto_created=True)
        self.set_filter(queue, condition)
        self.store.define(queue_definition(queue))

    def make_temporary(
        self, name: str, routing: RoutingType, owner: object, user: str | None = None
    ) -> None:
        """Make an address that is remembered nowhere, with its queue when it is anycast.

        Raises RefusedError (too-many).
        """
        with_queue = routing is RoutingType.ANYCAST
        self.check_room(name, user, queue=with_queue)
        self.make_address(name, frozenset({routing}), temporary=True, user=user).owner = owner
        if with_queue:
            self.make_queue(name, name, routing, temporary=True, user=user)

    def set_filter(self, queue: Queue, condition: Condition | None, no_local: str = "") -> None:
        """Have senders look at what the queue takes from now on."""
        queue.filter = condition
        queue.no_local = no_local
        self.addresses[queue.address].version += 1

    # ---- removing

    def drop_queue(self, queue: Queue) -> int:
        """Delete a queue, ending its consumers; returns the ticket.

        Whoever still settles what it was given by the queue may do so, and changes only figures.
        """
        if queue.deleted:
            return 0
        queue.delete()
        del self.queues[queue.name]
        self._discount(Kind.QUEUES, queue)
        self.addresses[queue.address].unbind(queue)
        self.watcher.queues_changed(self.addresses[queue.address])
        ticket = self.store.undefine(queue_definition(queue)) if queue.durable else 0
        refusal = Refusal(code=Code.QUEUE_DELETED, text=f"Queue {queue.name!r} was deleted.")
        browsing = [browser.consumer for browser in queue.browsers]
        for consumer in [held.consumer for held in queue.consumers] + browsing:
            consumer.removed(refusal)
        return ticket

    def forget_address(self, name: str) -> int:
        """Remove an address without queues."""
        address = self.addresses.pop(name)
        self._discount(Kind.ADDRESSES, address)
        address.gone = True
        address.taps = ()
        address.version += 1
        if address.blocked is not None:
            # Whoever is held back here goes on where the name leads next.
            address.blocked = None
            for producer in list(address.producers.values()):
                producer.unblock()
        self.watcher.address_gone(name)
        if address.temporary:
            return 0
        return self.store.undefine(address_definition(address))

    def drop_temporary(self, name: str) -> None:
        """Remove what `make_temporary` made, if it is still there."""
        address = self.addresses.get(name)
        if address is not None and address.temporary:
            for queue in address.queues:
                self.drop_queue(queue)
            self.forget_address(name)

    # ---- restoring

    def restore_address(self, definition: AddressDefinition) -> None:
        """Bring back an address that the store remembers."""
        address = self.addresses.get(definition.name)
        if address is None:
            address = Address(definition.name, self.settings.for_address(definition.name))
            address.taps = self.taps_on(definition.name)
            self.addresses[definition.name] = address
            self.watcher.address_made(address, new=False)
        self._discount(Kind.ADDRESSES, address)
        address.auto_created, address.made_by = definition.auto_created, definition.made_by
        self._count(Kind.ADDRESSES, address)
        address.routing_types |= definition.routing_types

    def restore_queue(self, definition: QueueDefinition) -> Queue:
        """Bring back a queue that the store remembers, empty."""
        queue = build(
            definition.attributes,
            definition.name,
            definition.address,
            definition.queue_id,
            self.effects,
            routing=definition.routing,
            durable=True,
            auto_created=definition.auto_created,
        )
        queue.made_by = definition.made_by
        self._count(Kind.QUEUES, queue)
        queue.ring_size = definition.ring_size
        queue.max_consumers = definition.max_consumers
        settings = self.settings.for_address(definition.address)
        follow(settings, queue, self.serialized, self.store.relax)
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
        self.watcher.queues_changed(self.addresses[queue.address])
        return queue

    def snapshot(self) -> list[QueueDefinition | AddressDefinition]:
        """Return all that is to be remembered."""
        addresses = [address_definition(a) for a in self.addresses.values() if not a.temporary]
        return [*addresses, *(queue_definition(q) for q in self.queues.values() if q.durable)]


def _no_taps(name: str) -> Sequence[Tap]:
    return ()
