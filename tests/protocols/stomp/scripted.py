"""A broker that does what a test tells it, and writes every call into one list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gateway.model import stomp_form
from gateway.model.address import Destination, RoutingType
from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.message import DURABLE, ONE_DELIVERY, SCHEDULED, STOMP, Message
from gateway.model.ports import Consumer, DurableListener, ProducerOwner
from gateway.model.run import MixedRun, Outcome, Run
from gateway.selectors import compile_selector
from protocols.stomp.limits import StompLimits
from protocols.stomp.session import StompSession


class ScriptedProducer:
    """Takes everything, or what the test says."""

    durability = "fsync"
    stamps = False
    credited = True

    def __init__(self, broker: ScriptedBroker, address: str, owner: ProducerOwner) -> None:
        self.broker = broker
        self.address = address
        self.owner = owner
        self.full: Refusal | None = None
        self.capacity: int | None = None  # FAIL: how many more are taken
        self.closed = False

    def send(self, run: Run) -> Outcome:
        if run.due:
            self.broker.note("due", run.due)
        flags = run.flags & ~SCHEDULED
        ticket = self.broker.ticket if flags & DURABLE else 0
        taken = run.count if self.capacity is None else min(run.count, self.capacity)
        self.broker.note("send", self.address, list(run.bodies[:taken]), flags, run.expires)
        if self.capacity is not None:
            self.capacity -= taken
        if taken < run.count:
            return Outcome(ticket, self.broker.refusal, taken)
        return Outcome(ticket)

    def stamped(self, run: Run) -> Run:
        return run

    def send_mixed(self, run: MixedRun) -> Outcome:
        raise AssertionError("STOMP sends runs that share flags")

    def blocked(self) -> Refusal | None:
        return self.full

    @property
    def waits(self) -> bool:
        return True

    @property
    def holds(self) -> bool:
        return self.capacity is None

    def block(self) -> None:
        self.full = self.broker.refusal
        self.owner.producer_blocked(self.full)

    def unblock(self) -> None:
        self.full = None
        self.owner.producer_unblocked()

    def close(self) -> None:
        self.closed = True
        self.broker.note("close producer", self.address)


class ScriptedRelay:
    """Told when the disk is full."""

    def __init__(self, broker: ScriptedBroker, owner: ProducerOwner) -> None:
        self.broker = broker
        self.owner = owner
        self.closed = False

    def blocked(self) -> Refusal | None:
        return self.broker.disk

    def refuse(self, count: int) -> Refusal | None:
        if self.broker.disk is not None:
            self.broker.note("refuse", count)
        return self.broker.disk

    def close(self) -> None:
        assert not self.closed
        self.closed = True


class ScriptedSubscription:
    """Hands out what the test offers, as far as there is room."""

    def __init__(self, broker: ScriptedBroker, address: str, consumer: Consumer) -> None:
        self.broker = broker
        self.address = self.queue_name = address
        self.consumer = consumer
        self.waiting: list[Message] = []
        self.delivering: dict[int, Message] = {}
        self.rooms: list[int] = []
        self.closed = False

    def offer(self, *messages: Message) -> None:
        self.waiting += messages
        self.dispatch()

    def dispatch(self) -> None:
        while self.waiting and not self.closed:
            room = self.consumer.room()
            self.rooms.append(room)
            if room <= 0:
                return
            now, self.waiting = self.waiting[:room], self.waiting[room:]
            self.delivering.update((m.seq, m) for m in now)
            any_flags = 0
            for message in now:
                any_flags |= message.flags
            self.consumer.deliver(now, any_flags)

    def ready(self) -> None:
        self.broker.dispatches.append(self)

    def dispatch_now(self) -> None:
        self.dispatch()

    def keeps_searching(self) -> bool:
        return False

    def _settle(self, what: str, messages: list[Message]) -> int:
        for message in messages:
            assert self.delivering.pop(message.seq) is message, "not in delivery"
        self.broker.note(what, self.address, [m.seq for m in messages])
        return self.broker.ticket

    def acknowledge(self, messages: list[Message]) -> int:
        return self._settle("ack", messages)

    def release(
        self,
        messages: list[Message],
        *,
        failed: bool = False,
        undeliverable_here: bool = False,
        delayed: bool = False,
        unseen: bool = False,
    ) -> int:
        return self._settle("release failed" if failed else "release", messages)

    def reject(self, messages: list[Message]) -> int:
        return self._settle("reject", messages)

    def close(self) -> None:
        assert not self.delivering, "a consumer left with messages"
        assert not self.closed
        self.closed = True
        self.broker.note("close subscription", self.address)


class ScriptedTransaction:
    """Remembers; commits to the list."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.sends: list[tuple[str, bytes]] = []
        self.settled: list[tuple[str, ScriptedSubscription, list[Message]]] = []

    def send(self, producer: ScriptedProducer, run: Run) -> Refusal | None:
        if self.broker.refuse_in_transaction:
            return self.broker.refusal
        self.sends.append((producer.address, run.bodies[0]))
        return None

    def acknowledge(self, subscription: ScriptedSubscription, messages: list[Message]) -> None:
        self.settled.append(("ack", subscription, messages))

    def reject(
        self, subscription: ScriptedSubscription, messages: list[Message], *, dead_letter: bool
    ) -> None:
        self.settled.append(("reject" if dead_letter else "release failed", subscription, messages))

    def commit(self) -> int:
        if self.broker.refuse_commit:
            raise RefusedError(self.broker.refusal)
        self.broker.note("commit", list(self.sends))
        for what, subscription, messages in self.settled:
            subscription._settle(what, messages)
        return self.broker.ticket

    def rollback(self) -> None:
        self.broker.note("rollback")
        for _, subscription, messages in self.settled:
            subscription._settle("release failed", messages)


class ScriptedBroker:
    """The Broker port."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.ticket = 1
        self.refusal = Refusal(code=Code.ADDRESS_FULL, text="Address is full.", transient=True)
        self.refuse_open: RefusedError | None = None
        self.refuse_subscribe: RefusedError | None = None
        self.refuse_delete: RefusedError | None = None
        self.refuse_in_transaction = False
        self.refuse_commit = False
        self.full_addresses: set[str] = set()
        self.relays: list[ScriptedRelay] = []
        self.disk: Refusal | None = None
        self.clock_ms = 1_000_000
        self.producers: dict[str, ScriptedProducer] = {}
        self.subscriptions: dict[str, ScriptedSubscription] = {}
        self.listeners: list[DurableListener] = []
        self.dispatches: list[ScriptedSubscription] = []

    def note(self, *call: object) -> None:
        self.calls.append(call)

    def of(self, kind: str) -> list[tuple[object, ...]]:
        return [call[1:] for call in self.calls if call[0] == kind]

    def bodies(self) -> list[bytes]:
        """Return all message bodies that were sent, without their stored headers."""
        return [
            stomp_form.unpack(stored)[1]
            for _, stored_ones, _, _ in self.of("send")
            for stored in stored_ones  # type: ignore[attr-defined]
        ]

    def turn(self) -> None:
        """End a reactor turn: dispatch."""
        dispatches, self.dispatches = self.dispatches, []
        for subscription in dispatches:
            subscription.dispatch()

    def sync(self, ticket: int | None = None) -> None:
        """Say that the journal is on disk up to `ticket`, by default all; what follows is later."""
        if ticket is None:
            ticket = self.ticket
            self.ticket += 1
        listeners, self.listeners = self.listeners, []
        for listener in listeners:
            listener.durable_up_to(ticket)

    def now_ms(self) -> int:
        return self.clock_ms

    def open_producer(
        self,
        destination: Destination,
        routing: RoutingType | None,
        owner: ProducerOwner,
        *,
        origin: str = "",
        user: str | None = None,
    ) -> ScriptedProducer:
        if self.refuse_open is not None:
            raise self.refuse_open
        self.note("open producer", destination, routing)
        producer = ScriptedProducer(self, destination.address, owner)
        if destination.address in self.full_addresses:
            producer.full = self.refusal
        self.producers[destination.address] = producer
        return producer

    def open_relay(self, owner: ProducerOwner) -> ScriptedRelay:
        relay = ScriptedRelay(self, owner)
        self.relays.append(relay)
        return relay

    def fill_disk(self) -> None:
        self.disk = Refusal(code=Code.DISK_FULL, text="The disk is full.", transient=True)
        for relay in self.relays:
            relay.owner.producer_blocked(self.disk)

    def free_disk(self) -> None:
        self.disk = None
        for relay in self.relays:
            relay.owner.producer_unblocked()

    def subscribe(
        self,
        destination: Destination,
        routing: RoutingType | None,
        consumer: Consumer,
        *,
        durable_name: str | None = None,
        shared: bool = False,
        browse: bool = False,
        temporary: bool = False,
        priority: int | None = None,
        selector: str = "",
        no_local: str = "",
        owner: object | None = None,
        user: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> ScriptedSubscription:
        if self.refuse_subscribe is not None:
            raise self.refuse_subscribe
        if selector:
            compile_selector(selector, destination.address)
        self.note("subscribe", destination, routing, durable_name)
        subscription = ScriptedSubscription(self, destination.address, consumer)
        self.subscriptions[destination.address] = subscription
        return subscription

    def delete_subscription(self, durable_name: str) -> None:
        if self.refuse_delete is not None:
            raise self.refuse_delete
        self.note("delete subscription", durable_name)

    def create_temporary(self, routing: RoutingType, owner: object, user: str | None = None) -> str:
        raise AssertionError("not used by STOMP")

    def delete_temporary(self, name: str) -> None:
        raise AssertionError("not used by STOMP")

    def begin(self) -> Any:
        return ScriptedTransaction(self)

    def await_durable(self, listener: DurableListener) -> None:
        assert listener not in self.listeners, "asked twice"
        self.listeners.append(listener)


class ScriptedAuthenticator:
    """Lets everybody in, or waits for the test's word."""

    def __init__(self, *, is_open: bool = True, users: bool = False) -> None:
        """`users`: there are some, whoever else may be let in."""
        self.open = is_open
        self._users = users or not is_open
        self.asked: list[tuple[str, str]] = []
        self.answer: Callable[[bool], None] | None = None

    def proves(self, user: str) -> bool:
        return bool(user) and self._users

    def check(self, user: str, password: str, done: Callable[[bool], None]) -> None:
        self.asked.append((user, password))
        self.answer = done


def convert(body: bytes, flags: int, address: str, *, expires: int = 0) -> bytes:
    """Stand in for protocols.convert."""
    return stomp_form.pack(address, b"converted " + body, headers=[("from", "amqp")])


class Peer:
    """A client at the other end of a session, with a clock.

    `hurried`: each turn is over after one frame, so that what came with it waits for the next.
    """

    hurried = False

    def __init__(
        self,
        version: str | None = "1.2",
        *,
        limits: StompLimits | None = None,
        authenticator: ScriptedAuthenticator | None = None,
        connect: str = "",
    ) -> None:
        self.broker = ScriptedBroker()
        self.authenticator = authenticator or ScriptedAuthenticator()
        self.limits = limits or StompLimits()
        self.session = StompSession(self.broker, self.authenticator, self.limits, "c1", convert)
        self.wakes = 0
        self.session.wake = self._wake
        self.session.spent = lambda: self.hurried
        self.now = 100.0
        if version is not None:
            accept = "" if version == "1.0" else f"accept-version:{version}\n"
            self.greeting = self.say(f"CONNECT\n{accept}host:h\n{connect}\n\0".encode())

    def _wake(self) -> None:
        self.wakes += 1

    def say(self, data: bytes) -> bytes:
        """Send bytes, end the turn, and return what comes back."""
        self.session.receive_data(data, self.now)
        return self.hear()

    def hear(self) -> bytes:
        """End the turn and return what the session wants to send."""
        out = self.session.data_to_send()
        while True:
            self.broker.turn()
            waited = self.session.behind
            if waited:
                self.session.go_on(self.now)
            more = self.session.data_to_send()
            if not more and not waited:
                return out
            out += more

    def sync(self, ticket: int | None = None) -> bytes:
        self.broker.sync(ticket)
        return self.hear()

    def offer(self, address: str, *messages: Message) -> bytes:
        self.broker.subscriptions[address].offer(*messages)
        return self.hear()


def frames(data: bytes) -> list[tuple[str, dict[str, str], bytes]]:
    """Parse what the gateway sent, in the plainest way: no escapes, first header wins."""
    found = []
    while data:
        data = data.lstrip(b"\r\n")
        if not data:
            break
        head, blank, rest = data.partition(b"\n\n")
        assert blank, data
        command, *lines = head.decode().split("\n")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers.setdefault(name, value)
        if "content-length" in headers:
            size = int(headers["content-length"])
            body, end, data = rest[:size], rest[size : size + 2], rest[size + 2 :]
        else:
            body, nul, data = rest.partition(b"\0")
            end, data = nul + data[:1], data[1:]
        assert end == b"\0\n", (head, end)
        found.append((command, headers, body))
    return found


def message(body: bytes, seq: int, *, flags: int = STOMP | 4, count: int = 0) -> Message:
    """Return a stored STOMP message to `q`."""
    return Message(stomp_form.pack("q", body), seq, flags | count * ONE_DELIVERY)
