"""Giving runs to queues and taps: what is in memory, and in the journal when it is durable. Hot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from gateway.broker.address import Address
from gateway.broker.admission import Usage
from gateway.broker.branches import Branches
from gateway.broker.disk_gate import DiskGate
from gateway.broker.duplicates import Duplicates
from gateway.broker.holds import Holds
from gateway.broker.pager import Pager
from gateway.broker.ports import Appends, Store
from gateway.broker.store_gate import StoreGate
from gateway.model.address import Destination, RoutingType
from gateway.model.errors import Refusal
from gateway.model.message import DURABLE, Share
from gateway.model.ports import ProducerOwner
from gateway.queues.queue import Queue

if TYPE_CHECKING:
    from gateway.broker.forecast import Forecast
    from gateway.broker.moves import Mover

#: What a message costs beside its body: the object, its place in a deque, the bytes object's own
#: head.
OVERHEAD_BYTES = 160


class Core(Protocol):
    """What a producer needs of the gateway."""

    store: Store
    memory: int
    memory_max: int
    messages: int
    messages_max: int
    received: int
    disk: DiskGate
    branches: Branches
    duplicates: Duplicates
    forecast: Forecast
    pager: Pager
    holds: Holds
    mover: Mover
    busy: StoreGate

    def touch(self, queue: Queue) -> None: ...

    def now_ms(self) -> int: ...

    def find_again(
        self, destination: Destination, routing: RoutingType | None, user: str | None = None
    ) -> tuple[Address, Queue | None]: ...

    def overflow(self, queue: Queue, added: int) -> None: ...

    def usage(self, address: Address) -> Usage: ...

    def watch_block(self, address: Address) -> None: ...

    def refused(self, refusal: Refusal, count: int) -> None: ...


class Spread:
    """The storing half of a route; `due` is of the run that is on its way, 0: it is for now."""

    __slots__ = ("_address", "_core", "_origin", "_store", "due")

    _address: Address
    _core: Core
    _only: Queue | None
    _origin: str
    _owner: ProducerOwner | None
    _store: Appends
    due: int

    def _charge(self, count: int, charge: int) -> None:
        """Count messages, each once however many queues hold it."""
        self._core.memory += charge
        self._core.messages += count
        self._address.size_bytes += charge
        self._address.messages += count

    def _send_to(
        self,
        able: list[Queue],
        copies: list[Queue],
        bodies: Sequence[bytes],
        flags: int,
        expires: int,
    ) -> int:
        """Give a run to one of the able ones in turn, and a copy to each of the others."""
        address = self._address
        count = len(bodies)
        queues = len(copies) + (1 if able else 0)
        if not queues and not address.taps:
            address.unrouted += count
            return self.give_up(bodies, flags)
        address.routed += count
        if queues:
            self._charge(count, sum(map(len, bodies)) + OVERHEAD_BYTES * count * queues)
        shares = [[queues] for _ in bodies] if queues > 1 else []
        if len(able) <= 1:
            if able and len(address.anycast) > 1 and self._only is None:
                address.chose(able[0])
            return self._store_copies(able + copies, bodies, flags, expires, shares=shares)
        ticket = self._deal(able, bodies, flags, expires, shares=shares)
        if copies or address.taps:
            more = self._store_copies(copies, bodies, flags, expires, shares=shares)
            ticket = max(ticket, more)
        return ticket

    def give_up(self, bodies: Sequence[bytes], flags: int) -> int:
        """A client sent what no queue wants: where settings say so, these are dead letters."""
        if self._owner is None or not self._address.settings.send_to_dla_on_no_route:
            return 0
        return self._core.mover.unrouted(self._address.name, bodies, flags)

    def _deal(
        self,
        able: list[Queue],
        bodies: Sequence[bytes],
        flags: int,
        expires: int,
        *,
        shares: Sequence[Share],
    ) -> int:
        """Deal a run out over the anycast queues in turn."""
        address = self._address
        ways = len(able)
        address.chose(able[(len(bodies) - 1) % ways])
        ticket = 0
        for way in range(min(ways, len(bodies))):
            one = self._store_one(
                able[way],
                bodies[way::ways],
                flags,
                expires,
                shares=shares[way::ways],
            )
            ticket = max(ticket, one)
        return ticket

    def _store_one(
        self,
        queue: Queue,
        bodies: Sequence[bytes],
        flags: int,
        expires: int,
        *,
        shares: Sequence[Share],
    ) -> int:
        """Give a run to one queue."""
        core = self._core
        size = sum(map(len, bodies))
        due = self.due
        first = queue.add_run(
            bodies, flags, expires, size, shares, due=due, origin=self._mark(queue)
        )
        core.touch(queue)
        ticket = 0
        if flags & DURABLE and queue.durable:
            ticket = self._store.append(
                ((queue.queue_id, first),),
                bodies,
                flags,
                expires=expires,
                size=size,
                now_ms=core.now_ms(),
                due=due,
            )
        self._follow(queue, len(bodies))
        return ticket

    def _follow(self, queue: Queue, added: int) -> None:
        """Have the queue let go of what an add, which is recorded, leaves no place for."""
        if queue.replaces:
            queue.drop_superseded()
        if 0 <= queue.ring_size < queue.waiting_count and not self.due:
            self._core.overflow(queue, added)

    def _mark(self, queue: Queue) -> str:
        """Return where a message comes from, if some consumer of the queue has to know."""
        return self._origin if queue.told_apart else ""

    def _store_copies(
        self,
        queues: list[Queue],
        bodies: Sequence[bytes],
        flags: int,
        expires: int,
        *,
        shares: Sequence[Share],
    ) -> int:
        """Give each queue and each tap the whole run, stored once."""
        core = self._core
        size = sum(map(len, bodies))
        count = len(bodies)
        now_ms = core.now_ms()
        targets: list[tuple[int, int]] = []
        due = self.due
        for queue in queues:
            first = queue.add_run(
                bodies, flags, expires, size, shares, due=due, origin=self._mark(queue)
            )
            core.touch(queue)
            if flags & DURABLE and queue.durable:
                targets.append((queue.queue_id, first))
        taps = self._address.taps
        bases = [tap.record(bodies, flags, now_ms) for tap in taps]
        targets += [(tap.stream_id, base) for tap, base in zip(taps, bases, strict=True)]
        ticket = 0
        if targets:
            ticket = self._store.append(
                targets, bodies, flags, expires=expires, size=size, now_ms=now_ms, due=due
            )
        for tap, base in zip(taps, bases, strict=True):
            tap.recorded(base, count, ticket)
        for queue in queues:
            self._follow(queue, count)
        # Only a durable message's sender waits; a tap alone makes nobody wait.
        return ticket if flags & DURABLE else 0
