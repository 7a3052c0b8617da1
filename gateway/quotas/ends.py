"""The ends of links as the broker and the sessions meet them, held to the quotas of their client.

    MeteredProducer    in front of the broker's producer: counts what is sent, once a run
    MeteredConsumer    in front of a session's consumer: says less room, counts what is delivered
    MeteredRelay       in front of the relay of an AMQP link without a target of its own

Where nothing is limited an end is only the functions of what is behind it, so that a call costs
what it costs without. Whatever came by credit that was given before is taken, and is owed; credit
is given in shares of what is left. A sender without credit (STOMP) is rid of as much as there is
left, and keeps the others until it is told.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.model.errors import Refusal
from gateway.model.message import Message
from gateway.model.ports import Consumer, Producer, ProducerOwner, Relay, Subscription
from gateway.model.quota import Scope
from gateway.model.run import MixedRun, Outcome, Run
from gateway.quotas.meter import Flow
from gateway.quotas.meters import Meters, Use


class _End:
    """What the ends have in common: their flows, and waiting for one of them.

    Attributes:
        served: when something last passed, as a number that grows.
    """

    __slots__ = (
        "_again",
        "_connection",
        "_flows",
        "_held",
        "_meters",
        "_size",
        "_turn",
        "_use",
        "served",
    )

    def __init__(
        self, meters: Meters, use: Use, connection: str, again: Callable[[], None]
    ) -> None:
        """`again` is called when something is left, after there was nothing."""
        self._again = again
        self._meters = meters
        self._use = use
        self._connection = connection
        self._flows: tuple[Flow, ...] = ()
        self._held: Flow | None = None
        self._size = 1
        self._turn = False  # it has waited, and may pass others who still do
        self.served = 0

    def _short(self, flows: tuple[Flow, ...], now: float) -> Flow | None:
        """Return a flow that nothing is left of, or that others wait for; None: it may go on."""
        size = self._size
        for flow in flows:
            if flow.allowed(size, now) < 1 or (flow.waiting and not self._turn):
                return flow
        return None

    def _wait(self, flow: Flow, now: float) -> None:
        held = self._held
        if held is not None and held is not flow:
            self._meters.leave(held, self)
        self._held = flow
        self._turn = False
        self._meters.hold(flow, self, self._connection, now)

    def _count(self, count: int, size: int, now: float) -> Flow | None:
        """So much has passed; returns a flow that nothing is left of, or None. Hot."""
        meters = self._meters
        meters.serial = self.served = meters.serial + 1
        self._turn = False
        if count:
            self._size = size // count
        short = None
        for flow in self._flows:
            if not flow.take(count, size, now) or flow.waiting:
                short = flow
        return short

    def _leave(self) -> None:
        if self._held is not None:
            self._meters.leave(self._held, self)
            self._held = None
        self._flows = ()
        self._use.end()

    def refilled(self) -> None:
        """See Waiter."""
        self._held = None
        self._turn = True
        self._again()


class MeteredProducer(_End):
    """Implements the Producer port; see the module text.

    Attributes:
        inner: the broker's own.
    """

    __slots__ = (
        "_checked",
        "_owner",
        "_relayed",
        "_shares",
        "blocked",
        "credit",
        "inner",
        "send",
        "send_mixed",
        "stamped",
    )

    blocked: Callable[[], Refusal | None]
    credit: Callable[[int, int], int]
    send: Callable[[Run], Outcome]
    send_mixed: Callable[[MixedRun], Outcome]
    stamped: Callable[[Run], Run]

    def __init__(
        self,
        meters: Meters,
        use: Use,
        connection: str,
        inner: Producer,
        owner: ProducerOwner,
        *,
        relayed: bool = False,
    ) -> None:
        """`relayed`: one address of a link that has none of its own, and gets its credit."""
        super().__init__(meters, use, connection, owner.producer_unblocked)
        self.inner = inner
        self._owner = owner
        self._relayed = relayed
        self._shares: tuple[Flow, ...] = ()  # where it has a share of the credit
        self._checked: tuple[Flow, ...] = ()  # that are asked before something is taken
        self.stamped = inner.stamped
        use.changed = self.retune
        self.retune()

    def retune(self) -> None:
        """Be held to the limits that are in force now."""
        for flow in self._shares:
            flow.senders -= 1
        flows = [meter.inward for meter in self._use.meters]
        self._flows = tuple(flow for flow in flows if flow.limited)
        credited = self.inner.credited and not self._relayed
        self._shares = self._flows if credited else ()
        for flow in self._shares:
            flow.senders += 1
        inner = self.inner
        if not self._flows:
            self.send, self.send_mixed = inner.send, inner.send_mixed
            self.credit, self.blocked = inner.credit, inner.blocked
            self._checked = ()
            return
        self.send = self.send_mixed = self._send_credited if credited else self._send
        self.credit, self.blocked = self._credit, self._blocked
        self._checked = () if credited else self._flows
        if self._relayed:  # its link is held back for the user and the remote
            addresses = [f for f in self._flows if f.meter.scope is Scope.ADDRESS]
            self._checked = tuple(addresses)

    # ---- the port's facts

    @property
    def address(self) -> str:
        return self.inner.address

    @property
    def durability(self) -> str:
        """See the Producer port."""
        return self.inner.durability

    @property
    def credited(self) -> bool:
        return self.inner.credited

    @credited.setter
    def credited(self, credited: bool) -> None:
        self.inner.credited = credited
        self.retune()

    @property
    def remakes(self) -> bool:
        return self.inner.remakes

    @remakes.setter
    def remakes(self, remakes: bool) -> None:
        self.inner.remakes = remakes

    @property
    def stamps(self) -> bool:
        return self.inner.stamps

    @stamps.setter
    def stamps(self, stamps: bool) -> None:
        self.inner.stamps = stamps

    @property
    def waits(self) -> bool:
        """See the Producer port."""
        return self._held is not None or self.inner.waits

    @property
    def holds(self) -> bool:
        """See the Producer port."""
        return self._held is not None or self.inner.holds

    def close(self) -> None:
        """See the Producer port."""
        for flow in self._shares:
            flow.senders -= 1
        self._shares = ()
        self._leave()
        self.inner.close()

    @property
    def metered(self) -> bool:
        """Whether it is held to anything."""
        return bool(self._flows)

    # ---- where something is limited

    def _send_credited(self, run: Run | MixedRun) -> Outcome:
        """Take what was promised by credit. Hot."""
        return self._pass(run, self._meters.seconds())

    def _send(self, run: Run | MixedRun) -> Outcome:
        now = self._meters.seconds()
        if self._checked:
            self._size = run.size // run.count
            left = 0
            if self._short(self._checked, now) is None:
                left = min(flow.allowed(self._size, now) for flow in self._checked)
            if left < run.count:
                return self._send_part(run, left, now)
        return self._pass(run, now)

    def _pass(self, run: Run | MixedRun, now: float) -> Outcome:
        """Send, and count what was taken."""
        inner = self.inner
        outcome = inner.send(run) if isinstance(run, Run) else inner.send_mixed(run)
        count, size = run.count, run.size
        if outcome.refusal is not None:
            count = outcome.taken
            size = sum(map(len, run.bodies[:count]))
        self.passed(count, size, now)
        return outcome

    def _send_part(self, run: Run | MixedRun, left: int, now: float) -> Outcome:
        """Send as many as there is something left for; the others stay with their sender."""
        ticket = taken = 0
        for one in run.runs():
            part = one.part(0, left - taken)
            if left > taken:
                outcome = self._pass(part, now)
                ticket = max(ticket, outcome.ticket)
                if outcome.refusal is not None:
                    return Outcome(ticket, outcome.refusal, taken + outcome.taken)
                taken += part.count
        flow = self._short(self._checked, now)
        if flow is None:  # the size of one differs from that of the next
            flow = min(self._checked, key=lambda one: one.allowed(self._size, now))
        if not self._relayed:
            self._wait(flow, now)
        return Outcome(ticket, flow.refusal(now), taken)

    def passed(self, count: int, size: int, now: float) -> None:
        """Count what was sent, and hold the sender back where nothing is left."""
        flow = self._count(count, size, now)
        if flow is None or self._held is not None:
            return
        if not self._relayed:
            self._wait(flow, now)
        self._owner.producer_blocked(flow.refusal(now))

    def _blocked(self) -> Refusal | None:
        now = self._meters.seconds()
        flow = self._short(self._flows, now)
        if flow is None:
            return self.inner.blocked()
        if not self._relayed:
            self._wait(flow, now)
        return flow.refusal(now)

    def _credit(self, most: int, size: int) -> int:
        now = self._meters.seconds()
        return _share(self._flows, self.inner.credit(most, size), size, now)


class MeteredRelay(_End):
    """Implements the Relay port for a link that names an address with each message."""

    __slots__ = ("_closed", "_inner")

    def __init__(
        self,
        meters: Meters,
        use: Use,
        connection: str,
        inner: Relay,
        owner: ProducerOwner,
        *,
        closed: Callable[[], None],
    ) -> None:
        """`closed` is called when it sends no more."""
        super().__init__(meters, use, connection, owner.producer_unblocked)
        self._closed = closed
        self._inner = inner
        use.changed = self.retune
        self.retune()

    def retune(self) -> None:
        """Be held to the limits that are in force now."""
        for flow in self._flows:
            flow.senders -= 1
        flows = [meter.inward for meter in self._use.meters]
        self._flows = tuple(flow for flow in flows if flow.limited)
        for flow in self._flows:
            flow.senders += 1

    def blocked(self) -> Refusal | None:
        """See the Relay port."""
        if self._flows:
            now = self._meters.seconds()
            flow = self._short(self._flows, now)
            if flow is not None:
                self._wait(flow, now)
                return flow.refusal(now)
        return self._inner.blocked()

    def refuse(self, count: int) -> Refusal | None:
        """See the Relay port."""
        return self._inner.refuse(count)

    def credit(self, most: int, size: int) -> int:
        """See the Relay port."""
        most = self._inner.credit(most, size)
        return _share(self._flows, most, size, self._meters.seconds()) if self._flows else most

    def close(self) -> None:
        """See the Relay port."""
        for flow in self._flows:
            flow.senders -= 1
        self._leave()
        self._closed()
        self._inner.close()


class MeteredConsumer(_End):
    """Implements the Consumer port; see the module text.

    Attributes:
        subscription: its hold; set right after subscribing.
        spared: it was held back since somebody last asked, so that it is not slow.
    """

    __slots__ = (
        "_inner",
        "deliver",
        "exhausted",
        "expelled",
        "facts",
        "removed",
        "room",
        "spared",
        "subscription",
    )

    room: Callable[[], int]
    deliver: Callable[[list[Message], int], None]

    def __init__(self, meters: Meters, use: Use, connection: str, inner: Consumer) -> None:
        super().__init__(meters, use, connection, self._ready)
        self._inner = inner
        self.subscription: Subscription | None = None
        self.spared = False
        self.removed, self.facts = inner.removed, inner.facts
        self.expelled, self.exhausted = inner.expelled, inner.exhausted
        use.changed = self.retune
        self.retune()

    def retune(self) -> None:
        """Be held to the limits that are in force now."""
        flows = [meter.outward for meter in self._use.meters]
        self._flows = tuple(flow for flow in flows if flow.limited)
        if self._flows:
            self.room, self.deliver = self._room, self._deliver
        else:
            self.room, self.deliver = self._inner.room, self._inner.deliver

    def _room(self) -> int:
        room = self._inner.room()
        if room < 1:
            return room
        now, size = self._meters.seconds(), self._size
        for flow in self._flows:
            left = flow.allowed(size, now)
            if left < 1 or (flow.waiting and not self._turn):
                self.spared = True
                self._wait(flow, now)
                return 0
            room = min(room, left)
        return room

    def _deliver(self, messages: list[Message], any_flags: int) -> None:
        # Before it is given away: what a replay has sent it keeps no body of.
        count, size = len(messages), sum([len(message.body) for message in messages])
        self._inner.deliver(messages, any_flags)
        self._count(count, size, self._meters.seconds())

    def _ready(self) -> None:
        if self.subscription is not None:
            self.subscription.ready()

    @property
    def held_back(self) -> bool:
        """Whether it waits until something is left."""
        return self._held is not None

    def gone(self) -> None:
        """Its subscription is over."""
        self._leave()


def spares(consumer: Consumer) -> bool:
    """Return whether a consumer was held back since it was last asked."""
    if not isinstance(consumer, MeteredConsumer):
        return False
    spared, consumer.spared = consumer.spared, consumer.held_back
    return spared


def _share(flows: tuple[Flow, ...], most: int, size: int, now: float) -> int:
    """Return how many a sender may be told to send, of what is left for all of them."""
    for flow in flows:
        most = min(most, max(1, flow.allowed(size, now) // max(1, flow.senders)))
    return most
