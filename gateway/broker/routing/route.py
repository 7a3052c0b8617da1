"""A sender's route to one address: admission, routing and storing, a run at a time. Hot.

The common case (one anycast queue, no limit near) is one pass of `send`; everything else goes
through the guarded and the many-queue paths below it. Which queues a message is for the `Placement`
says; the `Spread` gives it to several of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.addresses.settings import Durability, FullPolicy
from gateway.broker.directory.address import Address
from gateway.broker.ports.store import Appends
from gateway.broker.pressure.admission import headroom, promise
from gateway.broker.pressure.load import OVERHEAD_BYTES
from gateway.broker.routing.expiry_rules import apply_expiry_rules, with_end
from gateway.broker.routing.fan import Fan
from gateway.broker.routing.guarded import send_admitted, send_at_full_disk, send_guarded
from gateway.broker.routing.ingress import stamp_run
from gateway.broker.routing.placement import Placement
from gateway.broker.routing.shared import Shared
from gateway.broker.routing.spread import Spread
from gateway.model.address import Destination, RoutingType
from gateway.model.bounds import NO_LIMIT
from gateway.model.errors import Refusal, RefusedError
from gateway.model.grants import Grant
from gateway.model.message import DURABLE, IDENTIFIED, SCHEDULED, Message
from gateway.model.ports import ProducerOwner
from gateway.model.principal import Principal
from gateway.model.run import TAKEN, MixedRun, Outcome, Run
from gateway.queues.queue import Queue


class Route:
    """Implements the Producer port. `only` is the queue of an `address::queue` producer."""

    __slots__ = (
        "_address",
        "_copies",
        "_fan",
        "_key",
        "_load",
        "_origin",
        "_owner",
        "_place",
        "_queue",
        "_revoked",
        "_rules",
        "_shared",
        "_spread",
        "_store",
        "_version",
        "credited",
        "grant",
        "is_leg",
        "principal",
        "promised",
        "remakes",
        "sent",
    )

    stamps: bool = False

    def __init__(
        self,
        shared: Shared,
        address: Address,
        routing: RoutingType | None,
        owner: ProducerOwner | None,
        *,
        only: Queue | None = None,
        origin: str = "",
        is_leg: bool = False,
    ) -> None:
        """`is_leg`: part of another one's fan, and without one of its own."""
        self._shared = shared
        self._load = shared.load
        self._store: Appends = shared.store
        self._address = address
        self._owner = owner
        self._place = Placement(address, routing, only, origin)
        self._spread = Spread(shared, self._place, origin, is_owned=owner is not None)
        self._version = -1
        self.is_leg = is_leg
        self.principal: Principal | None = None  # who sends, and makes the address again
        self.grant: Grant | None = None  # given back at the end
        self._revoked: Refusal | None = None  # why nothing is taken any more
        self.credited = True
        self.remakes = True
        self._fan: Fan | None = None  # where what is sent goes elsewhere as well
        self._copies = 1  # queues that a message from here may be in
        self._queue: Queue | None = None
        self._rules = False
        self.promised = 0  # bytes that the sender may still send, as it was told last
        self._origin = origin
        self._key = id(self)
        self.sent = 0
        if owner is not None:
            shared.branches.begins(address, self._key, self)

    @property
    def address(self) -> str:
        return self._address.name

    @property
    def routing(self) -> RoutingType | None:
        return self._place.routing

    @property
    def origin(self) -> str:
        return self._origin

    @property
    def is_fixed(self) -> bool:
        """Whether it leads to one queue."""
        return self._place.only is not None

    @property
    def is_picky(self) -> bool:
        """Whether some queue does not take everything; known once it is resolved."""
        return self._place.picky

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
            self._shared, address, routing, owner, only=only, origin=self._origin, is_leg=True
        )

    def close(self) -> None:
        if self.grant is not None:
            self.grant.give_back()
        self._shared.branches.ends(self._address, self._key)
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

    def revoke(self, refusal: Refusal) -> None:
        """Take nothing any more, and tell whoever sends here."""
        self._revoked = refusal
        self._version = -1  # what is sent next asks where it leads
        if self._owner is not None:
            self._owner.producer_refused(refusal)

    def blocked(self) -> Refusal | None:
        disk = self._shared.disk
        blocked = self._address.blocked or self._shared.busy.refusal
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
        if self._shared.busy.refusal is not None:
            return True
        on_the_way = [] if self._fan is None else self._fan.addresses()
        return any(one.blocked is not None and one.holds for one in (self._address, *on_the_way))

    def credit(self, most: int, size: int) -> int:
        """See the Producer port."""
        if self._fan is not None:
            most = self._fan.credit(most, size)
        room = headroom(self._load.usage(self._address), self._address.settings)
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
        if self._revoked is not None:
            return self._revoked
        if self._owner is None:
            self._shared.branches.look_at(self._address)  # nobody tells it of changes
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
        targets = self._place.look_again()
        self._copies = max(1, len(targets))
        plain = not (address.taps or self._rules or self._place.picky or address.purging)
        plain = plain and not address.replacing
        self._queue = targets[0] if len(targets) == 1 and plain else None
        if self._fan is not None or address.branched:
            self._branch()
        self._store = self._spread.store = self._shared.holds.store_for(targets)
        return None

    def _branch(self) -> None:
        """Have a fan where the address has branches; what names its queue goes nowhere else."""
        if self._fan is not None:
            self._fan.close()
            self._fan = None
        if self._address.branched and self._place.only is None and not self.is_leg:
            self._fan = Fan(self, self._shared)

    def _find_again(self) -> None:
        """Go on at the address that has the name of the deleted one. Raises RefusedError."""
        old = self._address
        place = self._place
        only = None if place.only is None else place.only.name
        destination = Destination(old.name, only)
        if not self.remakes:
            self._shared.on_demand.check_there(destination)
        self._address, queue = self._shared.on_demand.for_sending(
            destination, place.routing, self.principal
        )
        place.move(self._address, queue)
        if self._shared.branches.ends(old, self._key):
            self._shared.branches.begins(self._address, self._key, self)

    @property
    def target(self) -> Address:
        return self._address

    # ---- the hot path

    def send(self, run: Run) -> Outcome:
        """See the Producer port."""
        flags = run.flags
        if flags & IDENTIFIED:
            return self._shared.duplicates.send(self, run)
        address = self._address
        shared = self._shared
        count = run.count
        if self._version != address.version:
            refusal = self.resolve()
            if refusal is not None:
                return self.refuse(refusal, count)
            address = self._address
        if shared.disk.refusal is not None and self._owner is not None:
            return send_at_full_disk(shared, self, run)
        charge = run.size + OVERHEAD_BYTES * count * self._copies
        load = self._load
        if (
            address.guarded or load.memory + charge >= load.memory_max or load.messages_max >= 0
        ) and not self._fits(charge, count):
            return self._send_guarded(run)
        queue = self._queue
        if queue is None or flags & SCHEDULED:
            return Outcome(self._send_many(run))
        load.received += count
        self.sent += count
        load.memory += charge
        load.messages += count
        address.size_bytes += charge
        address.messages += count
        address.routed += count
        first = queue.add_run(run)
        if not queue.touched:
            shared.dispatch.touch(queue)
        ticket = 0
        if flags & DURABLE and queue.durable:
            ticket = self._store.append(
                ((queue.queue_id, first),), run, run.size, shared.clock.now_ms()
            )
        if 0 <= queue.ring.size < queue.line.waiting_count:
            shared.dispatch.overflow(queue, count)
        return Outcome(ticket) if ticket else TAKEN

    def send_mixed(self, run: MixedRun) -> Outcome:
        """See the Producer port."""
        shared = self._shared
        count = run.count
        refusal = self.resolve()
        if refusal is not None:
            return self.refuse(refusal, count)
        if shared.disk.refusal is not None and self._owner is not None:
            return send_at_full_disk(shared, self, run)
        address = self._address
        charge = run.size + OVERHEAD_BYTES * count * self._copies
        if not self._fits(charge, count):
            return self._send_guarded(run)
        queue = self._queue
        if queue is None or run.dues:
            return Outcome(self._send_runs(run))
        self._load.received += count
        self.sent += count
        self._load.charge(address, count, charge)
        address.routed += count
        first = queue.add_mixed(run)
        shared.dispatch.touch(queue)
        ticket = 0
        stored = run.durable_part() if queue.durable else None
        if stored is not None:
            ticket = self._store.append(
                ((queue.queue_id, first),), stored, run.size, shared.clock.now_ms()
            )
        if 0 <= queue.ring.size < queue.line.waiting_count:
            shared.dispatch.overflow(queue, count)
        return Outcome(ticket) if ticket else TAKEN

    def refuse(self, refusal: Refusal, count: int, taken: int = 0, ticket: int = 0) -> Outcome:
        """Count the refusal of the last `count` messages; returns it."""
        self._load.refuse(refusal, count)
        return Outcome(ticket, refusal, taken)

    # ---- limits near

    def _fits(self, charge: int, count: int) -> bool:
        """Whether a run leaves every limit unreached, so that none of it need be asked for."""
        load = self._load
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
            and load.memory + charge < load.memory_max
            and (load.messages_max < 0 or load.messages + count < load.messages_max)
        )

    def _send_guarded(self, run: Run | MixedRun) -> Outcome:
        """Ask for each message where some limit may say no."""
        if self._fan is not None:
            return self._fan.send(run)
        return send_guarded(self._shared, self, run, is_owned=self._owner is not None)

    def send_admitted(self, run: Run) -> int:
        """As `send` for what was admitted as a whole before: nothing is refused any more."""
        refusal = self.resolve()
        assert refusal is None, "admitted to an address that is not there"
        if self._fan is not None:
            return self._fan.send_admitted(run)
        return send_admitted(self._shared, self, run, is_owned=self._owner is not None)

    def stamped(self, run: Run) -> Run:
        """See the Producer port."""
        if not self._address.settings.enable_ingress_timestamp:
            return run
        return stamp_run(run, self._shared.clock.now_ms())

    def hold(self) -> None:
        """Have what is sent from here wait until its transaction knows its ticket."""
        fanned = [] if self._fan is None else self._fan.targets()
        self._shared.holds.begin(self.targets() + fanned)

    def fits(self, run: Run, ways: int) -> bool:
        """Whether a run fits, if as much is sent on so many ways at once."""
        charge = run.size + OVERHEAD_BYTES * run.count * self._copies
        return self._fits(charge * ways, run.count * ways)

    def store_run(self, run: Run) -> int:
        """Store what was found to fit, or what no limit holds for."""
        return self._send_many(run)

    def hand_over(self, queue: Queue, run: Run) -> None:
        """Give one queue of the address a message that was sent before it was there."""
        self.resolve()  # or a queue that waits for the disk never hears that it is there
        self._load.charge(self._address, run.count, run.size + OVERHEAD_BYTES * run.count)
        self._spread.give_one(queue, run, ())

    def send_copy(self, body: bytes, flags: int) -> bool:
        """Send a message of the gateway's own; returns whether some queue or tap has it."""
        return self.has_taker_for(Run((body,), flags))

    def has_taker_for(self, run: Run) -> bool:
        """Send a message; returns whether some queue or tap has it now."""
        if self.resolve() is not None:
            return False
        address = self._address
        lost = address.unrouted + address.dropped
        taken = self.send(run).refusal is None
        return taken and address.unrouted + address.dropped == lost

    def _send_runs(self, run: Run | MixedRun) -> int:
        """Store neighbours that are alike together."""
        ticket = 0
        for one in run.runs():
            ticket = max(ticket, self._send_many(one))
        return ticket

    # ---- what fans, the pager and forecasts need

    def targets(self) -> list[Queue]:
        """Return all queues that could take a message from here."""
        return self._place.targets()

    def takers_of(self, message: Message, later: int = 0) -> list[Queue]:
        """Return the queues that would get this message if it came behind `later` others."""
        return self._place.takers_of(message, later)

    def routed(self, run: Run) -> Sequence[tuple[Run, list[Queue], list[Queue]]]:
        """See Placement."""
        return self._place.routed(run)

    def give_up(self, run: Run) -> int:
        """See Spread."""
        return self._spread.give_up(run)

    def ruled(self, run: Run) -> Run:
        """Return a run as it is now, with flags and expiry by the address' rules."""
        if run.due:
            run = run.as_of(self._shared.clock.now_ms())
        if not self._rules:
            return run
        settings = self._address.settings
        flags = run.flags
        if settings.durability is Durability.MEMORY:
            flags &= ~DURABLE
        now_ms = self._shared.clock.now_ms()
        return with_end(run, *apply_expiry_rules(settings, flags, run.expires, now_ms))

    def record_taps(self, run: Run) -> int:
        """Give a run to the taps alone; returns the ticket."""
        return self._spread.give_all([], run, ())

    # ---- several queues, taps, expiry rules

    def _send_many(self, run: Run) -> int:
        run = self.ruled(run)
        self._load.received += run.count
        self.sent += run.count
        if not self._address.replacing:
            return self._send_each(run)
        # A value and the removal of what it replaces: never the one without the other.
        self._shared.store.begin_atomic()
        try:
            return self._send_each(run)
        finally:
            self._shared.store.end_atomic()

    def _send_each(self, run: Run) -> int:
        ticket = 0
        for part, able, copies in self._place.routed(run):
            ticket = max(ticket, self._spread.give(able, copies, part))
        return ticket
