"""Would all sends of a transaction be taken? Asked before its commit does anything.

A walk over the sends with figures of its own: each message is admitted as if those before it were
there already, and a full ring has evicted for it. What was admitted so is then sent without asking
again, so that a commit is whole or nothing whatever the walk did not foresee (a ring whose consumer
takes messages at once evicts less than the walk thinks).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from gateway.addresses.settings import FullPolicy
from gateway.broker.directory.address import Address
from gateway.broker.pressure.admission import Admission, Usage, full_because, judge
from gateway.broker.pressure.load import OVERHEAD_BYTES
from gateway.broker.routing.fan import Part
from gateway.broker.routing.route import Route
from gateway.broker.routing.shared import Shared
from gateway.broker.routing.way import Way
from gateway.model.errors import Refusal
from gateway.model.message import IDENTIFIED, SHARED, Message
from gateway.model.ports import Producer, Send, Subscription
from gateway.model.run import Run, joined
from gateway.paging.forecast import PageForecast
from gateway.queues.last_value import LastValueQueue
from gateway.queues.queue import Queue

Settled = tuple[Subscription, list[Message]]


class Forecast:
    """What a transaction needs of the gateway."""

    __slots__ = ("_addresses", "_shared")

    def __init__(self, shared: Shared, addresses: Mapping[str, Address]) -> None:
        self._shared = shared
        self._addresses = addresses  # by name

    def begin_atomic(self) -> None:
        """Keep all that is recorded from now on in one batch of the store."""
        self._shared.store.begin_atomic()

    def end_atomic(self, ticket: int) -> None:
        """End what `begin_atomic` began; what was sent is seen once the ticket is on disk."""
        self._shared.store.end_atomic()
        self._shared.holds.end(ticket)

    def full_disk(self, producer: Producer, flags: int) -> Refusal | None:
        """Return why a full disk takes no further message, or None; one refused is counted."""
        disk = self._shared.disk
        if disk.refusal is None:
            return None
        assert isinstance(producer, Route), "a producer of another gateway"
        refusal = disk.refuses(producer.target.settings, flags)
        if refusal is not None:
            self._shared.load.refuse(refusal, 1)
        return refusal

    def refusal(self, sends: Sequence[Send], leaving: Sequence[Settled] = ()) -> Refusal | None:
        """Return why not all of these would be taken now, or None.

        `leaving` is what the same commit takes from queues: that makes room for these.
        """
        again = self._shared.duplicates.refusal(sends, _target)
        if again is not None:
            self._shared.load.refuse(again, len(sends))
            return again
        walk = _Walk(self._shared, self._addresses)
        walk.leave(leaving)
        for producer, run in sends:
            assert isinstance(producer, Route), "a producer of another gateway"
            refusal = producer.resolve() or walk.send(producer, run)
            if refusal is not None:
                self._shared.load.refuse(refusal, len(sends))
                return refusal
        return None

    def why_not(self, parts: Sequence[Part]) -> Refusal | None:
        """Return why not all addresses would take their part of one message now, or None."""
        return _Walk(self._shared, self._addresses).go_all(parts)

    def send_all(self, sends: Sequence[Send]) -> int:
        """Send what `refusal` had nothing against; neighbours that can, in one run."""
        ticket = start = 0
        for index in range(1, len(sends) + 1):
            if index < len(sends) and _alike(sends[start], sends[index]):
                continue
            route = sends[start][0]
            assert isinstance(route, Route), "a producer of another gateway"
            run = joined([one for _, one in sends[start:index]])
            route.hold()
            plain = run.marked(run.flags & ~IDENTIFIED, run.expires)
            ticket = max(ticket, route.send_admitted(plain))
            if run.flags & IDENTIFIED:
                ticket = max(ticket, self._shared.duplicates.remember(route.target, run))
            start = index
        return ticket


def _target(producer: Producer) -> Address:
    assert isinstance(producer, Route), "a producer of another gateway"
    producer.resolve()
    return producer.target


def _alike(one: Send, other: Send) -> bool:
    return one[0] is other[0] and one[1].alike(other[1])


class _Ring:
    """What a ring queue would evict, in order."""

    __slots__ = ("_new", "_room", "_victims")

    def __init__(self, queue: Queue) -> None:
        self._room = queue.ring_size - queue.waiting_count
        self._victims: Iterator[Message] = queue.victims()
        self._new: deque[int] = deque()

    def add(self, freed_bytes: int) -> int:
        """Take a message that gives back so much; returns what its victim does, or -1: none."""
        self._new.append(freed_bytes)
        if self._room > 0:
            self._room -= 1
            return -1
        victim = next(self._victims, None)
        if victim is None:
            return self._new.popleft()
        return _freed_by(victim)


def _freed_by(message: Message) -> int:
    """Return what a message that leaves its queue gives back: others may hold copies."""
    if message.flags & SHARED and message.share[0] > 1:
        return OVERHEAD_BYTES
    return len(message.body) + OVERHEAD_BYTES


class _Values:
    """What later values of a queue would replace."""

    __slots__ = ("_gone", "_new", "_queue")

    def __init__(self, queue: LastValueQueue) -> None:
        self._queue = queue
        self._new: dict[str, int] = {}
        self._gone: set[int] = set()

    def add(self, message: Message, freed_bytes: int) -> int:
        """As of a ring: returns what the value that is replaced gives back, or -1: none."""
        key, old = self._queue.would_replace(message)
        if key is None:
            return -1
        before = self._new.get(key, -1)
        self._new[key] = freed_bytes
        if before >= 0 or old is None or old.seq in self._gone:
            return before
        self._gone.add(old.seq)
        return _freed_by(old)


class _Walk:
    """Figures of the gateway and its addresses as they would be."""

    def __init__(self, shared: Shared, addresses: Mapping[str, Address]) -> None:
        self._clock = shared.clock
        self._load = shared.load
        self._addresses = addresses
        self._bytes = shared.load.memory
        self._messages = shared.load.messages
        self._held: dict[str, list[int]] = {}  # by address: bytes, messages, messages dealt out
        self._rings: dict[str, _Ring] = {}
        self._values: dict[str, _Values] = {}
        self._pages: dict[str, PageForecast] = {}

    def leave(self, settled: Sequence[Settled]) -> None:
        """Count what leaves its queue where senders wait for room: they must not wait for this.

        Others are judged as if nothing left before them.
        """
        for subscription, messages in settled:
            address = self._addresses.get(subscription.address)
            if address is None or address.settings.address_full_policy is not FullPolicy.BLOCK:
                continue
            held = self._held.setdefault(address.name, [address.size_bytes, address.messages, 0])
            for message in messages:
                freed = _freed_by(message)
                held[0] -= freed
                held[1] -= freed > OVERHEAD_BYTES or not message.flags & SHARED

    def send(self, route: Route, run: Run) -> Refusal | None:
        """Go on by one message to all addresses that get it."""
        if not route.credited:
            refusal = self._uncredited(route)
            if refusal is not None:
                return refusal
        if route.fan is None:
            return self.step(route, run)
        return self.go_all(route.fan.plan(run))

    def _uncredited(self, route: Route) -> Refusal | None:
        """Return why an address that holds senders takes nothing of one without credit.

        What credit promised is taken beyond the limit; to this one nothing was. Its sends were
        kept by the transaction, so that the commit is the first moment to say no.
        """
        for address in (route.target, *(() if route.fan is None else route.fan.addresses())):
            if not address.holds:
                continue
            if address.operator_block:
                blocked: Refusal | None = address.blocked
                return blocked
            self._held.setdefault(address.name, [address.size_bytes, address.messages, 0])
            why = full_because(address.name, self._usage(address), address.settings)
            if why is not None:
                return why
        return None

    def go_all(self, parts: Sequence[Part]) -> Refusal | None:
        """Go on by one message's parts; returns the first refusal."""
        for part in parts:
            leg = part.leg
            if leg is None or part.ring or part.taps_only:
                continue
            refusal = self.step(leg, part.run)
            if refusal is not None:
                return refusal
        return None

    def step(self, route: Way, run: Run) -> Refusal | None:
        """Go on by a run of one message; returns the refusal that it would meet."""
        address = route.target
        held = self._held.setdefault(address.name, [address.size_bytes, address.messages, 0])
        decision, why = judge(address.name, self._usage(address), address.settings, run.flags)
        message = next(run.messages())
        if decision is Admission.PAGE or address.paging or address.name in self._pages:
            takers = route.takers_of(message, held[2])
            held[2] += 1
            return self._page(address, takers, run.size)
        match decision:
            case Admission.FAIL:
                return why
            case Admission.DROP:
                return None
            case Admission.STORE | Admission.BLOCK:
                takers = route.takers_of(message, held[2])
                held[2] += 1
                if takers:
                    self._change(held, run.size + OVERHEAD_BYTES * len(takers), 1)
                    # What waits for its time takes no room of a ring.
                    if not run.as_of(self._clock.now_ms()).due:
                        self._evict(held, takers, message)
                return None

    def _page(self, address: Address, takers: list[Queue], size: int) -> Refusal | None:
        """Go on by a message that goes to pages; those that follow it do as well."""
        pages = self._pages.get(address.name)
        if pages is None:
            pages = PageForecast(address.name, address.settings, address.paging)
            self._pages[address.name] = pages
        return pages.step(takers, size)

    def _usage(self, address: Address) -> Usage:
        held = self._held[address.name]
        return Usage(
            size_bytes=held[0],
            messages=held[1],
            global_bytes=self._bytes,
            global_bytes_max=self._load.memory_max,
            global_messages=self._messages,
            global_messages_max=self._load.messages_max,
        )

    def _change(self, held: list[int], size: int, count: int) -> None:
        held[0] += size
        held[1] += count
        self._bytes += size
        self._messages += count

    def _evict(self, held: list[int], takers: list[Queue], message: Message) -> None:
        # A copy of what other queues hold as well gives back little: its message stays.
        alone = len(takers) == 1
        gives_back = OVERHEAD_BYTES + (len(message.body) if alone else 0)
        for queue in takers:
            freed = self._replace(queue, message, gives_back)
            if freed < 0 and queue.ring_size >= 0:
                ring = self._rings.get(queue.name)
                if ring is None:
                    ring = self._rings[queue.name] = _Ring(queue)
                freed = ring.add(gives_back)
            if freed >= 0:
                self._change(held, -freed, -1 if freed > OVERHEAD_BYTES or alone else 0)

    def _replace(self, queue: Queue, message: Message, gives_back: int) -> int:
        """Return what an earlier value of the message's key gives back, or -1: there is none."""
        if not queue.replaces or not isinstance(queue, LastValueQueue):
            return -1
        values = self._values.get(queue.name)
        if values is None:
            values = self._values[queue.name] = _Values(queue)
        return values.add(message, gives_back)
