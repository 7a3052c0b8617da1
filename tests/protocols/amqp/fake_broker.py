"""A broker in memory that does what a test tells it and writes every call into one list.

Durable sends and settlements get the ticket of the open batch; `sync` closes it. Queues hand out in
`turn`, as the real broker does at the end of a reactor turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gateway.broker.transactions import Work
from gateway.model.address import Destination, RoutingType
from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.message import DURABLE, ONE_DELIVERY, SCHEDULED, Message
from gateway.model.ports import Consumer, DurableListener, ProducerOwner
from gateway.model.run import MixedRun, Outcome, Run
from gateway.selectors import compile_selector

FULL = Refusal(code=Code.ADDRESS_FULL, text='Address "q" is full.', transient=True)


class FakeProducer:
    """Takes everything, or as many as the test allows."""

    durability = "fsync"
    stamps = False

    def __init__(self, broker: FakeBroker, address: str, owner: ProducerOwner) -> None:
        self.broker = broker
        self.address = address
        self.owner = owner
        self.capacity: int | None = None
        self.full: Refusal | None = None
        self.share: int | None = None  # bytes that it may be promised
        self.closed = False

    def send(self, run: Run) -> Outcome:
        self.broker.dues += [run.due] * run.count if run.due else []
        flags = run.flags & ~SCHEDULED
        return self._take(run.bodies, [flags] * run.count, [run.expires] * run.count)

    def stamped(self, run: Run) -> Run:
        return run

    def send_mixed(self, run: MixedRun) -> Outcome:
        assert not run.dues, "what is due later comes in runs"
        return self._take(run.bodies, run.flags, run.expires)

    def _take(
        self, bodies: Sequence[bytes], flags: Sequence[int], expires: Sequence[int]
    ) -> Outcome:
        assert not self.closed, "a closed producer was used"
        assert bodies, "an empty run"
        assert len(bodies) == len(flags) == len(expires)
        assert all(type(body) is bytes for body in bodies)
        count = len(bodies) if self.capacity is None else min(self.capacity, len(bodies))
        taken = list(zip(bodies, flags, expires, strict=True))[:count]
        self.broker.runs.append((self.address, count))
        self.broker.sent += [(self.address, *one) for one in taken]
        durable = any(one[1] & DURABLE for one in taken)
        ticket = self.broker.record() if durable else 0
        if count == len(bodies):
            if self.capacity is not None:
                self.capacity -= count
            return Outcome(ticket)
        self.capacity = 0
        return Outcome(ticket, self.broker.refusal, count)

    def blocked(self) -> Refusal | None:
        return self.full

    def credit(self, most: int, size: int) -> int:
        return most if self.share is None else max(1, min(most, self.share // size))

    def block(self) -> None:
        self.full = self.broker.refusal
        self.owner.producer_blocked(self.full)

    def unblock(self) -> None:
        self.full = None
        self.capacity = None
        self.owner.producer_unblocked()

    def close(self) -> None:
        assert not self.closed, "closed twice"
        self.closed = True
        self.broker.note("close producer", self.address)


class FakeRelay:
    """Told when the disk is full."""

    def __init__(self, broker: FakeBroker, owner: ProducerOwner) -> None:
        self.broker = broker
        self.owner = owner
        self.closed = False

    def blocked(self) -> Refusal | None:
        return self.broker.disk

    def refuse(self, count: int) -> Refusal | None:
        raise AssertionError("AMQP asks each message's own producer")

    def close(self) -> None:
        assert not self.closed, "closed twice"
        self.closed = True


class FakeSubscription:
    """Hands out what the test offers, as far as there is room; `queue` is shared by its address."""

    def __init__(
        self, broker: FakeBroker, address: str, name: str, consumer: Consumer, queue: list[Message]
    ) -> None:
        self.broker = broker
        self.address = address
        self.queue_name = name
        self.consumer = consumer
        self.queue = queue
        self.delivering: dict[int, Message] = {}
        self.barred: set[int] = set()
        self.closed = False

    def ready(self) -> None:
        assert not self.closed
        self.broker.touched[id(self)] = self

    def dispatch_now(self) -> None:
        self.dispatch()

    def keeps_searching(self) -> bool:
        return False

    def dispatch(self) -> None:
        while not self.closed:
            able = [m for m in self.queue if m.seq not in self.barred]
            room = self.consumer.room() if able else 0
            if room <= 0:
                return
            now = able[: min(room, self.broker.run_max)]
            gone = {m.seq for m in now}
            self.queue[:] = [m for m in self.queue if m.seq not in gone]
            self.delivering.update((m.seq, m) for m in now)
            any_flags = 0
            for message in now:
                any_flags |= message.flags
            self.consumer.deliver(now, any_flags)

    def _settle(self, what: str, messages: list[Message]) -> int:
        assert not self.closed, "settled after close"
        for message in messages:
            assert self.delivering.pop(message.seq) is message, "not in delivery"
        self.broker.note(what, self.queue_name, [m.seq for m in messages])
        durable = any(m.flags & DURABLE for m in messages)
        return self.broker.record() if durable and what != "release" else 0

    def acknowledge(self, messages: list[Message]) -> int:
        return self._settle("acknowledge", messages)

    def release(
        self,
        messages: list[Message],
        *,
        failed: bool = False,
        undeliverable_here: bool = False,
        delayed: bool = False,
        unseen: bool = False,
    ) -> int:
        if undeliverable_here:
            self.barred |= {m.seq for m in messages}
        ticket = self._settle("release failed" if failed else "release", messages)
        for message in messages:
            message.flags += ONE_DELIVERY if failed else 0
        self.queue[:] = sorted([*self.queue, *messages], key=lambda m: m.seq)
        self.broker.touch(self.queue)
        return ticket

    def annotate(self, messages: list[Message], annotations, size_max: int) -> None:
        self.broker.note("annotate", [m.seq for m in messages], annotations, size_max)

    def reject(self, messages: list[Message]) -> int:
        return self._settle("reject", messages)

    def close(self) -> None:
        assert not self.delivering, "a consumer left with messages"
        assert not self.closed, "closed twice"
        self.closed = True
        self.broker.subscriptions.remove(self)
        self.broker.note("close subscription", self.queue_name)


class FakeWork(Work):
    """The real transaction, watched."""

    @property
    def over(self) -> bool:
        return self._ended

    @property
    def waiting(self) -> list[Run]:
        return [] if self._ended else [send[1] for send in self._sends]


class _Core:
    """What a transaction needs of the gateway; `broker.commit_refusal` refuses the next commits."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker

    def begin_atomic(self) -> None:
        self._broker.note("commit begins")

    def end_atomic(self, ticket: int) -> None:
        self._broker.note("commit ends")

    def full_disk(self, producer: Any, flags: int) -> Refusal | None:
        return self._broker.disk

    def refusal(self, sends: Sequence[Any], _leaving: Sequence[Any] = ()) -> Refusal | None:
        return self._broker.commit_refusal if sends else None

    def send_all(self, sends: Sequence[Any]) -> int:
        durable = False
        for producer, run in sends:
            flags = run.flags & ~SCHEDULED
            self._broker.sent.append((producer.address, run.bodies[0], flags, run.expires))
            self._broker.dues.append(run.due)
            durable = durable or bool(flags & DURABLE)
        return self._broker.record() if durable else 0


class FakeBroker:
    """The Broker port."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        #: (address, body, flags, expires) of every message taken, in order.
        self.sent: list[tuple[str, bytes, int, int]] = []
        self.runs: list[tuple[str, int]] = []
        self.refusal = FULL
        self.refuse_open: Refusal | None = None
        self.refuse_subscribe: Refusal | None = None
        self.refuse_delete: Refusal | None = None
        self.blocked_addresses: set[str] = set()
        self.disk: Refusal | None = None
        self.commit_refusal: Refusal | None = None
        self.works: list[FakeWork] = []
        self.relays: list[FakeRelay] = []
        self.producers: list[FakeProducer] = []
        self.dues: list[int] = []  # of what was sent later, 0 for at once
        self.subscriptions: list[FakeSubscription] = []
        self.queues: dict[str, list[Message]] = {}
        self.touched: dict[int, FakeSubscription] = {}
        self.temporaries: set[str] = set()
        self.run_max = 2048
        self.clock_ms = 1_000_000
        self._made = 0
        self._seq = 0
        self._ticket = 1
        self._recorded = False
        self._listeners: list[DurableListener] = []

    # ---- what tests use

    def note(self, *call: Any) -> None:
        self.calls.append(call)

    def of(self, kind: str) -> list[tuple[Any, ...]]:
        return [call[1:] for call in self.calls if call[0] == kind]

    def bodies(self) -> list[bytes]:
        return [body for _, body, _, _ in self.sent]

    def offer(self, name: str, *bodies: bytes, flags: int = 4, count: int = 0) -> list[Message]:
        """Put messages into a queue."""
        made = []
        for body in bodies:
            self._seq += 1
            made.append(Message(body, self._seq, flags | count * ONE_DELIVERY))
        queue = self.queues.setdefault(name, [])
        queue += made
        self.touch(queue)
        return made

    def touch(self, queue: list[Message]) -> None:
        for subscription in self.subscriptions:
            if subscription.queue is queue:
                self.touched[id(subscription)] = subscription

    def turn(self) -> None:
        """End a reactor turn: dispatch."""
        touched, self.touched = self.touched, {}
        for subscription in touched.values():
            subscription.dispatch()

    def record(self) -> int:
        self._recorded = True
        return self._ticket

    def sync(self) -> None:
        """The open batch is on disk; a batch that nothing is in never gets there."""
        if not self._recorded:
            return
        ticket, self._ticket, self._recorded = self._ticket, self._ticket + 1, False
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.durable_up_to(ticket)

    def fail_store(self) -> None:
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.store_failed(Refusal(code=Code.STORE_FAILED, text="The disk is gone."))

    def drop_queue(self, name: str) -> None:
        refusal = Refusal(code=Code.QUEUE_DELETED, text=f"Queue {name!r} was deleted.")
        for subscription in [s for s in self.subscriptions if s.queue_name == name]:
            subscription.consumer.removed(refusal)
        self.queues.pop(name, None)

    def fill_disk(self) -> None:
        """Tell the relays; producers are blocked by the test."""
        self.disk = Refusal(code=Code.DISK_FULL, text="The disk is full.", transient=True)
        for relay in self.relays:
            relay.owner.producer_blocked(self.disk)

    def free_disk(self) -> None:
        self.disk = None
        for relay in self.relays:
            relay.owner.producer_unblocked()

    # ---- the port

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
    ) -> FakeProducer:
        if self.refuse_open is not None:
            raise RefusedError(self.refuse_open)
        self.note("open producer", destination.address, routing)
        producer = FakeProducer(self, destination.address, owner)
        if destination.address in self.blocked_addresses:
            producer.full = self.refusal
        self.producers.append(producer)
        return producer

    def open_relay(self, owner: ProducerOwner) -> FakeRelay:
        relay = FakeRelay(self, owner)
        self.relays.append(relay)
        return relay

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
    ) -> FakeSubscription:
        if self.refuse_subscribe is not None:
            raise RefusedError(self.refuse_subscribe)
        if selector:
            compile_selector(selector, destination.address)
        facts = {
            "shared": shared,
            "browse": browse,
            "priority": priority,
            "durable": durable_name,
            "temporary": temporary,
            "selector": selector,
            "no_local": no_local,
        }
        shown = {key: value for key, value in facts.items() if value}
        self.note("subscribe", destination.address, routing, shown)
        name = durable_name or destination.queue or destination.address
        queue = self.queues.setdefault(name, [])
        made = FakeSubscription(self, destination.address, name, consumer, queue)
        self.subscriptions.append(made)
        return made

    def find_subscription(self, durable_name: str) -> tuple[str, bool] | None:
        return ("", False) if durable_name in self.queues else None

    def delete_subscription(self, durable_name: str) -> None:
        if self.refuse_delete is not None:
            raise RefusedError(self.refuse_delete)
        self.note("delete subscription", durable_name)

    def create_temporary(self, routing: RoutingType, owner: object, user: str | None = None) -> str:
        self._made += 1
        name = f"temporary-{self._made}"
        self.temporaries.add(name)
        self.note("create temporary", name, routing)
        return name

    def delete_temporary(self, name: str) -> None:
        self.temporaries.remove(name)
        self.note("delete temporary", name)

    def begin(self) -> Work:
        work = FakeWork(_Core(self))
        self.works.append(work)
        return work

    def await_durable(self, listener: DurableListener) -> None:
        if listener not in self._listeners:
            self._listeners.append(listener)


class FakeAuthenticator:
    """Lets everybody in, or waits for the test's word."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.open = is_open
        self.asked: list[tuple[str, str]] = []
        self.answer: Callable[[bool], None] | None = None

    def proves(self, user: str) -> bool:
        return bool(user) and not self.open

    def check(self, user: str, password: str, done: Callable[[bool], None]) -> None:
        self.asked.append((user, password))
        self.answer = done
