"""A sender's route to one address: admission, routing and storing, a run at a time. Hot.

The common case (one anycast queue, no limit near) is one pass of `send`; everything else goes
through the guarded and the many-queue paths below it.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.addresses.settings import NO_LIMIT, Durability, FullPolicy
from gateway.broker.address import Address
from gateway.broker.admission import Admission, admit_always, headroom, judge, promise
from gateway.broker.choosing import Choosing
from gateway.broker.expiry_rules import apply_expiry_rules
from gateway.broker.fan import Fan
from gateway.broker.ingress import stamp_all
from gateway.broker.pager import uses_pages
from gateway.broker.picking import is_picky
from gateway.broker.spread import OVERHEAD_BYTES, Core
from gateway.model.address import Destination, RoutingType
from gateway.model.errors import Refusal, RefusedError
from gateway.model.message import DURABLE, IDENTIFIED, SCHEDULED
from gateway.model.ports import ProducerOwner
from gateway.queues.queue import Queue

__all__ = ["OVERHEAD_BYTES", "Route"]


class Route(Choosing):
    """Implements the Producer port. `only` is the queue of an `address::queue` producer."""

    __slots__ = (
        "_copies",
        "_fan",
        "_key",
        "_owner",
        "_queue",
        "_rules",
        "_version",
        "credited",
        "is_leg",
        "promised",
        "refusal",
        "sent",
        "taken",
        "ticket",
        "user",
    )

    stamps: bool = False

    def __init__(
        self,
        core: Core,
        address: Address,
        routing: RoutingType | None,
        owner: ProducerOwner | None,
        *,
        only: Queue | None = None,
        origin: str = "",
        is_leg: bool = False,
    ) -> None:
        """`is_leg`: part of another one's fan, and without one of its own."""
        self._core = core
        self._store = core.store
        self._address = address
        self._routing = routing
        self._owner = owner
        self._only = only
        self._version = -1
        self.is_leg = is_leg
        self.user: str | None = None  # for whom the address is made again; None: the gateway
        self.credited = True
        self._fan: Fan | None = None  # where what is sent goes elsewhere as well
        self._copies = 1  # queues that a message from here may be in
        self.due = 0  # of the run that is on its way; 0: it is for now
        self._queue: Queue | None = None
        self._rules = False
        self._picky = False
        self.promised = 0  # bytes that the sender may still send, as it was told last
        self._origin = origin
        self._key = id(self)
        self.sent = self.taken = self.ticket = 0
        self.refusal: Refusal | None = None
        if owner is not None:
            core.branches.begins(address, self._key, self)

    @property
    def address(self) -> str:
        return self._address.name

    @property
    def core(self) -> Core:
        return self._core

    @property
    def routing(self) -> RoutingType | None:
        return self._routing

    @property
    def origin(self) -> str:
        return self._origin

    @property
    def is_fixed(self) -> bool:
        """Whether it leads to one queue."""
        return self._only is not None

    @property
    def fan(self) -> Fan | None:
        return self._fan

    def branch_to(
        self,
        address: Address,
        routing: RoutingType | None,
        owner: ProducerOwner | None,
        *,
        only: Queue | None = None,
    ) -> Route:
        """Return a way for copies of what is sent here; `owner` hears when it is held back."""
        return Route(
            self._core, address, routing, owner, only=only, origin=self._origin, is_leg=True
        )

    def close(self) -> None:
        self._core.branches.ends(self._address, self._key)
        if self._fan is not None:
            self._fan.close()

    @property
    def durability(self) -> str:
        """See the Producer port."""
        return self._address.settings.durability.value

    def block(self, refusal: Refusal) -> None:
        if self._owner is not None:
            self._owner.producer_blocked(refusal)

    def unblock(self) -> None:
        if self._owner is not None:
            self._owner.producer_unblocked()

    def blocked(self) -> Refusal | None:
        disk = self._core.disk
        blocked = self._address.blocked or self._core.busy.refusal
        if blocked is None and self._fan is not None:
            blocked = self._fan.blocked()
        if disk.refusal is None:
            return blocked
        return disk.holds(self._address.settings) or blocked

    @property
    def waits(self) -> bool:
        """See the Producer port."""
        address = self._address
        fails = address.settings.address_full_policy is FullPolicy.FAIL and address.paging is None
        return address.blocked is None or address.operator_block or not fails

    @property
    def holds(self) -> bool:
        """See the Producer port."""
        if self._core.busy.refusal is not None:
            return True
        on_the_way = [] if self._fan is None else self._fan.addresses()
        return any(one.blocked is not None and one.holds for one in (self._address, *on_the_way))

    def credit(self, most: int, size: int) -> int:
        """See the Producer port."""
        if self._fan is not None:
            most = self._fan.credit(most, size)
        room = headroom(self._core.usage(self._address), self._address.settings)
        if room is None:
            return most
        producers = self._address.producers
        each = size + OVERHEAD_BYTES
        if room > 2 * most * each * len(producers):
            self.promised = most * each
            return most
        others = [p.promised for p in producers.values() if p is not self]
        count, self.promised = promise(room, others, most, each)
        return count

    # ---- where it leads

    def resolve(self) -> Refusal | None:
        """Look at the address and its bindings again; returns why there is no way any more."""
        if self._owner is None:
            self._core.branches.look_at(self._address)  # nobody tells it of changes
        if self._version == self._address.version:
            return None
        if self._address.gone and not self._address.temporary:
            try:
                self._find_again()
            except RefusedError as error:
                return error.refusal
        address = self._address
        self._version = address.version
        settings = address.settings
        self._rules = (
            settings.no_expiry
            or settings.expiry_delay != NO_LIMIT
            or settings.min_expiry_delay != NO_LIMIT
            or settings.max_expiry_delay != NO_LIMIT
            or settings.durability is Durability.MEMORY
        )
        only = self._only
        if only is not None and only.deleted:
            # Until another one takes its name, what is sent here is unrouted.
            self._only = next((q for q in address.queues if q.name == only.name), only)
        targets = self.targets()
        self._copies = max(1, len(targets))
        self._picky = is_picky(targets)
        plain = not (address.taps or self._rules or self._picky or address.purging)
        plain = plain and not address.replacing
        self._queue = targets[0] if len(targets) == 1 and plain else None
        if self._fan is not None or address.branched:
            self._branch()
        self._store = self._core.holds.store_for(targets)
        return None

    def _branch(self) -> None:
        """Have a fan where the address has branches; what names its queue goes nowhere else."""
        if self._fan is not None:
            self._fan.close()
            self._fan = None
        if self._address.branched and self._only is None and not self.is_leg:
            self._fan = Fan(self)

    def _find_again(self) -> None:
        """Go on at the address that has the name of the deleted one. Raises RefusedError."""
        old = self._address
        only = None if self._only is None else self._only.name
        self._address, self._only = self._core.find_again(
            Destination(old.name, only), self._routing, self.user
        )
        if self._core.branches.ends(old, self._key):
            self._core.branches.begins(self._address, self._key, self)

    @property
    def target(self) -> Address:
        return self._address

    # ---- the hot path

    def send(self, bodies: Sequence[bytes], flags: int, expires: int = 0) -> int:
        """See the Producer port."""
        if flags & IDENTIFIED:
            return self._core.duplicates.send(self, bodies, flags, expires)
        address = self._address
        core = self._core
        count = len(bodies)
        if self._version != address.version:
            refusal = self.resolve()
            if refusal is not None:
                return self.refuse(refusal, count)
            address = self._address
        if core.disk.refusal is not None and self._owner is not None:
            return self._meet_full_disk([flags] * count)
        size = sum(map(len, bodies))
        charge = size + OVERHEAD_BYTES * count * self._copies
        if (
            address.guarded or core.memory + charge >= core.memory_max or core.messages_max >= 0
        ) and not self._fits(charge, count):
            return self._send_guarded(bodies, [flags] * count, [expires] * count)
        queue = self._queue
        if queue is None or flags & SCHEDULED:
            return self._send_many(bodies, flags, expires)
        core.received += count
        self.sent += count
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
        if 0 <= queue.ring_size < queue.waiting_count:
            core.overflow(queue, count)
        return ticket

    def send_later(self, bodies: Sequence[bytes], flags: int, expires: int, due: int) -> int:
        """See the Producer port."""
        if due <= self._core.now_ms():
            return self.send(bodies, flags, expires)
        self.due = due
        try:
            return self.send(bodies, flags | SCHEDULED, expires)
        finally:
            self.due = 0

    def send_mixed(
        self, bodies: Sequence[bytes], flags: Sequence[int], expires: Sequence[int]
    ) -> int:
        """See the Producer port."""
        address = self._address
        core = self._core
        count = len(bodies)
        refusal = self.resolve()
        if refusal is not None:
            return self.refuse(refusal, count)
        if core.disk.refusal is not None and self._owner is not None:
            return self._meet_full_disk(flags)
        address = self._address
        size = sum(map(len, bodies))
        charge = size + OVERHEAD_BYTES * count * self._copies
        if not self._fits(charge, count):
            return self._send_guarded(bodies, flags, expires)
        queue = self._queue
        if queue is None:
            return self._send_equal_ones(bodies, flags, expires)
        core.received += count
        self.sent += count
        self._charge(count, charge)
        address.routed += count
        first = queue.add_mixed(bodies, flags, expires, size)
        core.touch(queue)
        ticket = 0
        if queue.durable:
            stored = [b if f & DURABLE else None for b, f in zip(bodies, flags, strict=True)]
            if stored.count(None) < count:
                ticket = self._store.append_mixed(
                    ((queue.queue_id, first),),
                    stored,
                    flags,
                    expires=expires,
                    size=size,
                    now_ms=core.now_ms(),
                )
        if 0 <= queue.ring_size < queue.waiting_count:
            core.overflow(queue, count)
        return ticket

    def refuse(self, refusal: Refusal, count: int, taken: int = 0, ticket: int = 0) -> int:
        """Count and remember a refusal; returns -1."""
        self._core.refused(refusal, count)
        self.taken = taken
        self.ticket = ticket
        self.refusal = refusal
        return -1

    # ---- limits near

    def _meet_full_disk(self, flags: Sequence[int]) -> int:
        """Refuse or drop what comes while the disk is full, each message by its own flags."""
        disk, settings = self._core.disk, self._address.settings
        for index, each in enumerate(flags):
            refusal = disk.refuses(settings, each)
            if refusal is not None:
                return self.refuse(refusal, len(flags) - index, index)
            self._drop(1)
        return 0

    def _drop(self, count: int) -> None:
        refusal = self._core.disk.refusal
        assert refusal is not None, "dropped though the disk has room"
        self._address.dropped += count
        self._core.refused(refusal, count)

    def _fits(self, charge: int, count: int) -> bool:
        """Whether a run leaves every limit unreached, so that none of it need be asked for."""
        core = self._core
        address = self._address
        settings = address.settings
        return (
            self._fan is None
            and address.paging is None
            and address.size_bytes + charge < address.unasked_bytes
            and (
                settings.max_size_messages < 0
                or address.messages + count < settings.max_size_messages
            )
            and core.memory + charge < core.memory_max
            and (core.messages_max < 0 or core.messages + count < core.messages_max)
        )

    def _send_guarded(
        self, bodies: Sequence[bytes], flags: Sequence[int], expires: Sequence[int]
    ) -> int:
        """Ask admission for each message where it may say no."""
        if self._fan is not None:
            return self._fan.send(bodies, flags, expires)
        address = self._address
        settings = address.settings
        ticket = 0
        if uses_pages(address):
            return self._send_paging(bodies, flags, expires)
        if not self.credited and address.holds:
            return self._send_while_room(bodies, flags, expires)
        # The gateway's own sends are not what a reject threshold is for.
        takes_all = settings.rejects_above < 0 or self._owner is None
        if admit_always(settings.address_full_policy) and takes_all:
            # It came on credit that was given before; what is not given is more of it.
            ticket = self._send_equal_ones(bodies, flags, expires)
            self._look_for_block()
            return ticket
        for index, body in enumerate(bodies):
            usage = self._core.usage(address)
            decision, refusal = judge(address.name, usage, settings, flags[index])
            match decision:
                case Admission.STORE | Admission.BLOCK | Admission.PAGE:
                    ticket = max(ticket, self._send_many((body,), flags[index], expires[index]))
                case Admission.DROP:
                    address.dropped += 1
                    assert refusal is not None
                    self._core.refused(refusal, 1)
                case Admission.FAIL:
                    assert refusal is not None
                    self._look_for_block()
                    return self.refuse(refusal, len(bodies) - index, index, ticket)
        self._look_for_block()
        return ticket

    def _send_while_room(
        self, bodies: Sequence[bytes], flags: Sequence[int], expires: Sequence[int]
    ) -> int:
        """Store what comes without credit up to the message that reaches a limit; -1 beyond it.

        Nothing is refused for good: its sender keeps the others until there is room.
        """
        address, ticket = self._address, 0
        for index, body in enumerate(bodies):
            self._look_for_block()
            if address.blocked is not None:
                self.taken, self.ticket, self.refusal = index, ticket, address.blocked
                return -1
            ticket = max(ticket, self._send_many((body,), flags[index], expires[index]))
        self._look_for_block()
        return ticket

    def send_admitted(self, bodies: Sequence[bytes], flags: int, expires: int, due: int = 0) -> int:
        """As `send` for what was admitted as a whole before: nothing is refused any more."""
        self.due = due if due > self._core.now_ms() else 0
        try:
            return self._send_admitted(bodies, flags | (SCHEDULED if self.due else 0), expires)
        finally:
            self.due = 0

    def stamped(self, bodies: Sequence[bytes], flags: int) -> Sequence[bytes]:
        """See the Producer port."""
        if not self._address.settings.enable_ingress_timestamp:
            return bodies
        return stamp_all(bodies, flags, self._core.now_ms())

    def hold(self) -> None:
        """Have what is sent from here wait until its transaction knows its ticket."""
        fanned = [] if self._fan is None else self._fan.targets()
        self._core.holds.begin(self.targets() + fanned)

    def _send_admitted(self, bodies: Sequence[bytes], flags: int, expires: int) -> int:
        refusal = self.resolve()
        assert refusal is None, "admitted to an address that is not there"
        if self._fan is not None:
            return self._fan.send_admitted(bodies, flags, expires)
        settings, disk = self._address.settings, self._core.disk
        if disk.refusal is not None and disk.refuses(settings, flags) is None:
            self._drop(len(bodies))
            return 0
        count = len(bodies)
        if uses_pages(self._address):
            return self._send_paging(bodies, [flags] * count, [expires] * count, admitted=True)
        if settings.address_full_policy is FullPolicy.DROP:
            return self._send_guarded(bodies, [flags] * count, [expires] * count)
        ticket = self._send_many(bodies, flags, expires)
        self._look_for_block()
        return ticket

    def fits(self, bodies: Sequence[bytes], ways: int) -> bool:
        """Whether a run fits, if as much is sent on so many ways at once."""
        charge = sum(map(len, bodies)) + OVERHEAD_BYTES * len(bodies) * self._copies
        return self._fits(charge * ways, len(bodies) * ways)

    def store_run(self, bodies: Sequence[bytes], flags: int, expires: int, due: int) -> int:
        """Store what was found to fit."""
        self.due = due
        try:
            return self._send_many(bodies, flags, expires)
        finally:
            self.due = 0

    def hand_over(self, queue: Queue, body: bytes, flags: int, expires: int) -> None:
        """Give one queue of the address what was sent before it was there."""
        self.resolve()  # or a queue that waits for the disk never hears that it is there
        self._charge(1, len(body) + OVERHEAD_BYTES)
        self._store_one(queue, (body,), flags, expires, shares=())

    def send_copy(self, body: bytes, flags: int) -> bool:
        """Send a message of the gateway's own; returns whether some queue or tap has it."""
        refusal = self.resolve()
        if refusal is not None:
            return False
        address = self._address
        lost = address.unrouted + address.dropped
        return self.send([body], flags) >= 0 and address.unrouted + address.dropped == lost

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

    def _send_paging(
        self,
        bodies: Sequence[bytes],
        flags: Sequence[int],
        expires: Sequence[int],
        *,
        admitted: bool = False,
    ) -> int:
        """Store up to the message that reaches a limit, and send the others to pages."""
        count = len(bodies)
        taken, ticket, refusal = self._core.pager.send(
            self, bodies, flags, expires, admitted=admitted
        )
        self._look_for_block()
        if refusal is not None:
            return self.refuse(refusal, count - taken, taken, ticket)
        return ticket

    # ---- what the pager needs

    def routed(
        self, bodies: Sequence[bytes], flags: int, expires: int
    ) -> Sequence[tuple[int, int, list[Queue], list[Queue]]]:
        """Return first, end, queues of which one gets a message in turn, and those that all do."""
        picker = self._picker()
        if picker is None:
            return ((0, len(bodies), self._able(), self._copied_to()),)
        return list(picker.runs(bodies, flags, expires, self._address.cursor))

    def send_to_memory(self, body: bytes, flags: int, expires: int) -> int:
        """Store one message as if no limit were near."""
        return self._send_many((body,), flags, expires)

    def ruled(self, flags: int, expires: int) -> tuple[int, int]:
        """Return flags and expiry by the address' rules."""
        if not self._rules:
            return flags, expires
        settings = self._address.settings
        if settings.durability is Durability.MEMORY:
            flags &= ~DURABLE
        return apply_expiry_rules(settings, flags, expires, self._core.now_ms())

    def record_taps(self, bodies: Sequence[bytes], flags: int, expires: int) -> int:
        """Give a run to the taps alone; returns the ticket."""
        return self._store_copies([], bodies, flags, expires, shares=())

    def _look_for_block(self) -> None:
        if self._address.blocked is None:
            self._core.watch_block(self._address)

    # ---- several queues, taps, expiry rules

    def _send_many(self, bodies: Sequence[bytes], flags: int, expires: int) -> int:
        core = self._core
        count = len(bodies)
        flags, expires = self.ruled(flags, expires)
        core.received += count
        self.sent += count
        if not self._address.replacing:
            return self._send_each(bodies, flags, expires)
        # A value and the removal of what it replaces: never the one without the other.
        core.store.begin_atomic()
        try:
            return self._send_each(bodies, flags, expires)
        finally:
            core.store.end_atomic()

    def _send_each(self, bodies: Sequence[bytes], flags: int, expires: int) -> int:
        count = len(bodies)
        ticket = 0
        for first, end, able, copies in self.routed(bodies, flags, expires):
            run = bodies if end - first == count else bodies[first:end]
            ticket = max(ticket, self._send_to(able, copies, run, flags, expires))
        return ticket
