"""A sender's route to one address: admission, routing and storing, a run at a time. Hot.

The common case (one anycast queue, no limit near) is one pass of `send`; everything else goes
through the guarded and the many-queue paths below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gateway.addresses.settings import NO_LIMIT, AddressSettings
from gateway.broker.address import Address
from gateway.broker.admission import Admission, Usage, admit, full_because
from gateway.broker.ports import Store
from gateway.model.address import RoutingType
from gateway.model.errors import Refusal
from gateway.model.message import COUNT_SHIFT, DURABLE, EXPIRES
from gateway.model.ports import ProducerOwner
from gateway.queues.queue import Queue

#: What a message costs beside its body: the object, its place in a deque, the bytes object's own
#: head.
OVERHEAD_BYTES = 160
_SENT_BITS = (1 << COUNT_SHIFT) - 1


class Core(Protocol):
    """What a producer needs of the gateway."""

    store: Store
    memory: int
    memory_max: int
    messages: int
    messages_max: int
    received: int

    def touch(self, queue: Queue) -> None: ...

    def now_ms(self) -> int: ...

    def watch_block(self, address: Address) -> None: ...

    def refused(self, refusal: Refusal, count: int) -> None: ...


class Route:
    """Implements the Producer port. `only` is the queue of an `address::queue` producer."""

    __slots__ = (
        "_address",
        "_core",
        "_key",
        "_only",
        "_owner",
        "_queue",
        "_routing",
        "_rules",
        "_store",
        "_version",
        "refusal",
        "taken",
        "ticket",
    )

    def __init__(
        self,
        core: Core,
        address: Address,
        routing: RoutingType | None,
        owner: ProducerOwner | None,
        *,
        only: Queue | None = None,
    ) -> None:
        self._core = core
        self._store = core.store
        self._address = address
        self._routing = routing
        self._owner = owner
        self._only = only
        self._version = -1
        self._queue: Queue | None = None
        self._rules = False
        self._key = id(self)
        self.taken = 0
        self.ticket = 0
        self.refusal: Refusal | None = None
        if owner is not None:
            address.producers[self._key] = self

    @property
    def address(self) -> str:
        return self._address.name

    def close(self) -> None:
        self._address.producers.pop(self._key, None)

    def block(self, refusal: Refusal) -> None:
        if self._owner is not None:
            self._owner.producer_blocked(refusal)

    def unblock(self) -> None:
        if self._owner is not None:
            self._owner.producer_unblocked()

    def blocked(self) -> Refusal | None:
        return self._address.blocked

    def _resolve(self) -> None:
        """Look at the address' bindings again."""
        address = self._address
        self._version = address.version
        settings = address.settings
        self._rules = (
            settings.no_expiry
            or settings.expiry_delay != NO_LIMIT
            or settings.min_expiry_delay != NO_LIMIT
            or settings.max_expiry_delay != NO_LIMIT
        )
        targets = self._targets()
        self._queue = (
            targets[0] if len(targets) == 1 and not address.taps and not self._rules else None
        )

    def _targets(self) -> list[Queue]:
        """Return all queues that could take a message from here."""
        if self._only is not None:
            return [self._only]
        address = self._address
        if self._routing is RoutingType.ANYCAST:
            return address.anycast
        if self._routing is RoutingType.MULTICAST:
            return address.multicast
        return address.anycast + address.multicast

    # ---- the hot path

    def send(self, bodies: Sequence[bytes], flags: int, expires: int = 0) -> int:
        """See the Producer port."""
        address = self._address
        core = self._core
        if self._version != address.version:
            self._resolve()
        size = sum(map(len, bodies))
        count = len(bodies)
        charge = size + OVERHEAD_BYTES * count
        if address.guarded or core.memory + charge > core.memory_max or core.messages_max >= 0:
            return self._send_guarded(bodies, [flags] * count, [expires] * count)
        queue = self._queue
        if queue is None:
            return self._send_many(bodies, flags, expires)
        core.received += count
        core.memory += charge
        core.messages += count
        address.size_bytes += charge
        address.messages += count
        address.routed += count
        first = queue.add_run(bodies, flags, expires, size)
        if not queue.touched:
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
            )
        if queue.ring_size >= 0:
            queue.trim_ring(count)
        return ticket

    def send_mixed(
        self, bodies: Sequence[bytes], flags: Sequence[int], expires: Sequence[int]
    ) -> int:
        """See the Producer port."""
        address = self._address
        core = self._core
        if self._version != address.version:
            self._resolve()
        size = sum(map(len, bodies))
        count = len(bodies)
        charge = size + OVERHEAD_BYTES * count
        queue = self._queue
        if (
            address.guarded
            or core.memory + charge > core.memory_max
            or core.messages_max >= 0
            or queue is None
        ):
            return self._send_guarded(bodies, flags, expires)
        core.received += count
        core.memory += charge
        core.messages += count
        address.size_bytes += charge
        address.messages += count
        address.routed += count
        first = queue.add_mixed(bodies, flags, expires, size)
        if not queue.touched:
            core.touch(queue)
        ticket = 0
        if queue.durable:
            kept = [b if f & DURABLE else None for b, f in zip(bodies, flags, strict=True)]
            if any(kept):
                ticket = self._store.append_mixed(
                    ((queue.queue_id, first),),
                    kept,
                    flags,
                    expires=expires,
                    size=size,
                    now_ms=core.now_ms(),
                )
        if queue.ring_size >= 0:
            queue.trim_ring(count)
        return ticket

    # ---- limits near

    def _send_guarded(
        self, bodies: Sequence[bytes], flags: Sequence[int], expires: Sequence[int]
    ) -> int:
        """Ask admission for each message; where nothing is limited equal ones go together."""
        ticket = 0
        address = self._address
        self.refusal = None
        if not address.guarded and self._core.messages_max < 0 and self._has_room(bodies):
            return self._send_equal_ones(bodies, flags, expires)
        for index, body in enumerate(bodies):
            refusal = self._full()
            match admit(refusal, address.settings.address_full_policy):
                case Admission.STORE:
                    ticket = max(ticket, self._send_many((body,), flags[index], expires[index]))
                case Admission.BLOCK:
                    # It came on credit that was given before; what is not given is more of it.
                    ticket = max(ticket, self._send_many((body,), flags[index], expires[index]))
                case Admission.DROP:
                    address.dropped += 1
                    assert refusal is not None
                    self._core.refused(refusal, 1)
                case Admission.FAIL:
                    assert refusal is not None
                    self._core.refused(refusal, len(bodies) - index)
                    self.taken = index
                    self.ticket = ticket
                    self.refusal = refusal
                    self._look_for_block()
                    return -1
        self._look_for_block()
        return ticket

    def _has_room(self, bodies: Sequence[bytes]) -> bool:
        core = self._core
        return core.memory + sum(map(len, bodies)) + OVERHEAD_BYTES * len(bodies) <= core.memory_max

    def _send_equal_ones(
        self, bodies: Sequence[bytes], flags: Sequence[int], expires: Sequence[int]
    ) -> int:
        """Store a mixed run as runs of neighbours that share flags and expiry."""
        ticket = start = 0
        for index in range(1, len(bodies) + 1):
            if (
                index == len(bodies)
                or flags[index] != flags[start]
                or expires[index] != expires[start]
            ):
                ticket = max(
                    ticket, self._send_many(bodies[start:index], flags[start], expires[start])
                )
                start = index
        return ticket

    def _full(self) -> Refusal | None:
        core = self._core
        address = self._address
        usage = Usage(
            size_bytes=address.size_bytes,
            messages=address.messages,
            global_bytes=core.memory,
            global_bytes_max=core.memory_max,
            global_messages=core.messages,
            global_messages_max=core.messages_max,
        )
        return full_because(address.name, usage, address.settings)

    def _look_for_block(self) -> None:
        if self._address.blocked is None:
            self._core.watch_block(self._address)

    # ---- several queues, taps, expiry rules

    def _send_many(self, bodies: Sequence[bytes], flags: int, expires: int) -> int:
        core = self._core
        address = self._address
        if self._rules:
            flags, expires = apply_expiry_rules(address.settings, flags, expires, core.now_ms())
        core.received += len(bodies)
        if self._only is not None:
            groups: list[tuple[Queue, Sequence[bytes]]] = [(self._only, bodies)]
        else:
            groups = self._anycast_groups(bodies)
        copies = (
            []
            if self._only is not None or self._routing is RoutingType.ANYCAST
            else address.multicast
        )
        if not groups and not copies and not address.taps:
            address.unrouted += len(bodies)
            return 0
        address.routed += len(bodies)
        if len(groups) <= 1:
            return self._store_copies([g[0] for g in groups] + copies, bodies, flags, expires)
        ticket = max(self._store_one(queue, part, flags, expires) for queue, part in groups)
        if copies or address.taps:
            ticket = max(ticket, self._store_copies(copies, bodies, flags, expires))
        return ticket

    def _anycast_groups(self, bodies: Sequence[bytes]) -> list[tuple[Queue, Sequence[bytes]]]:
        """Deal a run out over the anycast queues in turn, those with consumers first."""
        address = self._address
        if self._routing is RoutingType.MULTICAST or not address.anycast:
            return []
        if len(address.anycast) == 1:
            return [(address.anycast[0], bodies)]
        able = [q for q in address.anycast if q.consumer_count] or address.anycast
        start = address.cursor
        address.cursor = (start + len(bodies)) % (1 << 30)
        n = len(able)
        dealt = [(able[(start + i) % n], bodies[i::n]) for i in range(n)]
        return [(queue, part) for queue, part in dealt if part]

    def _charge(self, count: int, size: int) -> None:
        charge = size + OVERHEAD_BYTES * count
        self._core.memory += charge
        self._core.messages += count
        self._address.size_bytes += charge
        self._address.messages += count

    def _store_one(self, queue: Queue, bodies: Sequence[bytes], flags: int, expires: int) -> int:
        size = sum(map(len, bodies))
        self._charge(len(bodies), size)
        first = queue.add_run(bodies, flags, expires, size)
        self._core.touch(queue)
        ticket = 0
        if flags & DURABLE and queue.durable:
            ticket = self._store.append(
                ((queue.queue_id, first),),
                bodies,
                flags,
                expires=expires,
                size=size,
                now_ms=self._core.now_ms(),
            )
        queue.trim_ring(len(bodies))
        return ticket

    def _store_copies(
        self, queues: list[Queue], bodies: Sequence[bytes], flags: int, expires: int
    ) -> int:
        """Give each queue and each tap the whole run, stored once."""
        core = self._core
        size = sum(map(len, bodies))
        count = len(bodies)
        now_ms = core.now_ms()
        targets: list[tuple[int, int]] = []
        for queue in queues:
            self._charge(count, size)
            first = queue.add_run(bodies, flags, expires, size)
            core.touch(queue)
            if flags & DURABLE and queue.durable:
                targets.append((queue.queue_id, first))
        taps = self._address.taps
        bases = [tap.record(bodies, flags, now_ms) for tap in taps]
        targets += [(tap.stream_id, base) for tap, base in zip(taps, bases, strict=True)]
        ticket = 0
        if targets:
            ticket = self._store.append(
                targets, bodies, flags, expires=expires, size=size, now_ms=now_ms
            )
        for queue in queues:
            queue.trim_ring(count)
        for tap, base in zip(taps, bases, strict=True):
            tap.recorded(base, count, ticket)
        # Only a durable message's sender waits; a tap alone makes nobody wait.
        return ticket if flags & DURABLE else 0


def apply_expiry_rules(
    settings: AddressSettings, flags: int, expires: int, now_ms: int
) -> tuple[int, int]:
    """Return flags and expiry after the address' expiry-delay, min-, max- and no-expiry."""
    if settings.no_expiry:
        return flags & ~EXPIRES, 0
    if not flags & EXPIRES:
        delay = next(
            (
                d
                for d in (
                    settings.expiry_delay,
                    settings.max_expiry_delay,
                    settings.min_expiry_delay,
                )
                if d != NO_LIMIT
            ),
            NO_LIMIT,
        )
        return (flags, 0) if delay == NO_LIMIT else (flags | EXPIRES, now_ms + delay)
    if settings.max_expiry_delay != NO_LIMIT:
        expires = min(expires, now_ms + settings.max_expiry_delay)
    if settings.min_expiry_delay != NO_LIMIT:
        expires = max(expires, now_ms + settings.min_expiry_delay)
    return flags, expires
