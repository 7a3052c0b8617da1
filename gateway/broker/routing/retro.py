"""Retroactive addresses: a new queue begins with the last messages of its address.

Where `retroactive-message-count` says so, an address keeps what is sent to it in two ring queues of
an internal address, one for each routing type, besides whatever queues it has. A queue that is made
there gets what its type's ring holds and its filter lets in, before anything else.

The rings are ordinary durable queues, so their messages are there after a restart. Clients cannot
name them; what expires in them goes nowhere.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

from gateway.broker.directory.address import Address
from gateway.broker.directory.conduct import follow
from gateway.broker.directory.directory import Directory
from gateway.broker.directory.remembered import queue_definition
from gateway.broker.routing.route import Route
from gateway.broker.routing.shared import Shared
from gateway.model.address import INTERNAL_PREFIX, RoutingType, is_internal
from gateway.model.definitions import AddressDefinition
from gateway.model.message import DURABLE, EXPIRES, GROUPED, PRIORITY_MASK, SCHEDULED, STOMP, TEXT
from gateway.model.run import Run
from gateway.queues.queue import Queue

_KEPT: Final = PRIORITY_MASK | DURABLE | STOMP | TEXT | EXPIRES | GROUPED
_BOTH: Final = frozenset(RoutingType)


def home_of(address: str) -> str:
    """Return the name of the internal address that keeps the last messages of an address."""
    return f"{INTERNAL_PREFIX}{address}.address.retro"


def ring_of(address: str, routing: RoutingType) -> str:
    """Return the name of the queue there for queues of one routing type."""
    return f"{INTERNAL_PREFIX}{address}.queue.{routing.value.lower()}.retro"


class Retro:
    """See the module text."""

    __slots__ = ("_directory", "_shared")

    def __init__(self, shared: Shared, directory: Directory) -> None:
        self._shared = shared
        self._directory = directory

    # ---- addresses

    def look_at(self, address: Address) -> None:
        """Keep the last messages of an address from now on, or no more, as its settings say."""
        if address.temporary or is_internal(address.name):
            return
        count = address.settings.retroactive_message_count
        if not count:
            self.gone(address.name)
            address.keep_last(None)
            return
        directory = self._directory
        home = directory.addresses.get(home_of(address.name)) or self._make_home(address.name)
        for kind in sorted(RoutingType, key=lambda kind: kind.value):
            ring = directory.queues.get(ring_of(address.name, kind))
            if ring is None:
                ring = self._make_ring(home, ring_of(address.name, kind), kind)
            elif ring.ring_size == count:
                continue
            ring.ring_size = count
            self._shared.store.define(queue_definition(ring))
        address.keep_last(home)

    def _make_home(self, address: str) -> Address:
        name = home_of(address)
        home = Address(name, self._directory.settings.for_address(name))
        home.routing_types = _BOTH
        self._directory.addresses[name] = home
        self._shared.store.define(AddressDefinition(name=name, routing_types=_BOTH))
        return home

    def _make_ring(self, home: Address, name: str, kind: RoutingType) -> Queue:
        directory = self._directory
        ring = Queue(name, home.name, directory.take_id(), directory.effects, routing=kind)
        follow(home.settings, ring, (), self._shared.store.relax)
        directory.queues[name] = ring
        home.bind(ring)
        return ring

    def start(self) -> None:
        """Look at all addresses that a start has brought back."""
        for address in list(self._directory.addresses.values()):
            self.look_at(address)

    def gone(self, name: str) -> None:
        """An address was deleted, or keeps nothing any more."""
        directory = self._directory
        home = directory.addresses.get(home_of(name))
        if home is None or is_internal(name):
            return
        for ring in home.queues:
            directory.drop_queue(ring)
        directory.forget_address(home.name)

    # ---- queues

    def fill(self, queue: Queue) -> None:
        """Give a new queue what its address kept for it."""
        store, clock = self._shared.store, self._shared.clock
        address = self._directory.addresses[queue.address]
        if address.retro is None:
            return
        ring = self._directory.queues.get(ring_of(address.name, queue.routing))
        if ring is None:
            return
        if not address.taking([queue]):
            return
        route = Route(self._shared, address, None, None, only=queue)
        store.begin_atomic()
        try:
            held = sorted(chain(ring.holdings(), ring.storing()), key=lambda m: m.seq)
            for message in held[-ring.ring_size :]:
                due = message.flags & SCHEDULED and message.due > clock.now_ms()
                if due or (queue.filter is not None and not queue.filter.matches(message)):
                    continue
                expires = message.expires if message.flags & EXPIRES else 0
                route.hand_over(queue, Run((message.body,), message.flags & _KEPT, expires))
        finally:
            store.end_atomic()
