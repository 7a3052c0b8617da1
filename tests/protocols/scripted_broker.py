"""A broker in memory for the tests of both protocols: it does what a test tells it, and notes it.

All calls are in one list, `calls`, in their order; `of` picks those of one kind:

    open producer, close producer       address; the first with a routing type
    send, send mixed                    address, bodies, flags, expires
    due                                 time in ms of what is sent next
    commit, commit ends, rollback       the first with [(address, body, flags, expires)]
    subscribe                           destination, routing type, options
    close subscription                  queue
    acknowledge, reject, release, release failed
                                        queue, seqs
    annotate                            seqs, annotations, size_max
    delete subscription                 durable name
    create temporary, delete temporary  name; the first with a routing type
    refuse                              how many a relay was asked for while the disk is full

Durable sends and settlements get the ticket of the open batch; `sync` closes it. Queues hand out in
`turn`, as the real broker does at the end of a reactor turn. Transactions are the real ones,
watched. Frames, and the client that speaks them, are in the `peer` of each protocol's tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gateway.broker.transactions import Settled, Work
from gateway.model.address import Destination, RoutingType
from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.message import DURABLE, ONE_DELIVERY, SCHEDULED, Message
from gateway.model.ports import Consumer, DurableListener, Producer, ProducerOwner, Send
from gateway.model.principal import By, Principal
from gateway.model.run import Run
from gateway.model.stream_start import StreamStart
from gateway.selectors import compile_selector
from tests.protocols.scripted_ends import ScriptedProducer, ScriptedRelay, ScriptedSubscription

if TYPE_CHECKING:
    from gateway.model.ports import Authenticator, Broker

FULL = Refusal(code=Code.ADDRESS_FULL, text="Address is full.", transient=True)


class ScriptedWork(Work):
    """The real transaction, watched."""

    def __init__(self, broker: ScriptedBroker) -> None:
        super().__init__(_Core(broker))
        self._broker = broker

    @property
    def over(self) -> bool:
        return self._ended

    @property
    def waiting(self) -> list[Run]:
        return [] if self._ended else [send[1] for send in self._sends]

    def rollback(self) -> None:
        self._broker.note("rollback")
        super().rollback()


class _Core:
    """What a transaction needs of the gateway."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self._broker = broker

    def begin_atomic(self) -> None:
        """What is atomic begins with `commit` in the list."""

    def end_atomic(self, ticket: int) -> None:
        self._broker.note("commit ends")

    def full_disk(self, producer: Producer, flags: int) -> Refusal | None:
        return self._broker.refuse_work or self._broker.disk

    def refusal(self, sends: Sequence[Send], leaving: Sequence[Settled]) -> Refusal | None:
        return self._broker.refuse_commit if sends else None

    def send_all(self, sends: Sequence[Send]) -> int:
        broker = self._broker
        for _, run in sends:
            if run.due:
                broker.note("due", run.due)
        taken = [
            (producer.address, body, run.flags & ~SCHEDULED, run.expires)
            for producer, run in sends
            for body in run.bodies
        ]
        broker.note("commit", taken)
        return broker.record() if any(flags & DURABLE for _, _, flags, _ in taken) else 0


class ScriptedBroker:
    """The Broker port.

    Attributes:
        refusal: why a producer with no capacity refuses.
        refuse_open, refuse_subscribe, refuse_delete, refuse_commit: why these calls are refused.
        refuse_work: why a transaction takes no further send.
        full_addresses: their producers are full from the beginning.
        disk: why the disk takes nothing.
        redelivers: messages that consumers give back wait in their queue again.
        ticket: of the open batch.
        subscriptions: those that are open.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.refusal = FULL
        self.refuse_open: Refusal | None = None
        self.refuse_subscribe: Refusal | None = None
        self.refuse_delete: Refusal | None = None
        self.refuse_work: Refusal | None = None
        self.refuse_commit: Refusal | None = None
        self.full_addresses: set[str] = set()
        self.disk: Refusal | None = None
        self.redelivers = True
        self.works: list[ScriptedWork] = []
        self.relays: list[ScriptedRelay] = []
        self.producers: list[ScriptedProducer] = []
        self.subscriptions: list[ScriptedSubscription] = []
        self.queues: dict[str, list[Message]] = {}
        self.touched: dict[int, ScriptedSubscription] = {}
        self.temporaries: set[str] = set()
        self.listeners: list[DurableListener] = []
        self.run_max = 2048
        self.clock_ms = 1_000_000
        self.ticket = 1
        self.recorded = False
        self._made = 0
        self._seq = 0

    # ---- what was said

    def note(self, *call: Any) -> None:
        self.calls.append(call)

    def of(self, kind: str) -> list[tuple[Any, ...]]:
        return [call[1:] for call in self.calls if call[0] == kind]

    @property
    def sent(self) -> list[tuple[str, bytes, int, int]]:
        """(address, body, flags, expires) of every message taken, in order."""
        return [one for kind, *call in self.calls for one in _messages(kind, call)]

    @property
    def runs(self) -> list[tuple[str, int]]:
        """(address, count) of every run that was sent, in order."""
        return [(c[1], len(c[2])) for c in self.calls if c[0] in ("send", "send mixed")]

    def bodies(self) -> list[bytes]:
        return [body for _, body, _, _ in self.sent]

    def producer(self, address: str) -> ScriptedProducer:
        """Return the last one that was opened there."""
        return [one for one in self.producers if one.address == address][-1]

    def subscription(self, address: str) -> ScriptedSubscription | None:
        """Return the last one that is open there."""
        return next((s for s in reversed(self.subscriptions) if s.address == address), None)

    # ---- what happens

    def offer(self, name: str, *bodies: bytes, flags: int = 4, count: int = 0) -> list[Message]:
        """Put new messages into a queue."""
        first = self._seq + 1
        self._seq += len(bodies)
        flags |= count * ONE_DELIVERY
        made = [Message(body, seq, flags) for seq, body in enumerate(bodies, first)]
        self.put(name, made)
        return made

    def put(self, name: str, messages: Iterable[Message]) -> None:
        """Put messages into a queue."""
        queue = self.queues.setdefault(name, [])
        queue += messages
        self.touch(queue)

    def touch(self, queue: list[Message]) -> None:
        for subscription in self.subscriptions:
            if subscription.queue is queue:
                self.touched[id(subscription)] = subscription

    def turn(self) -> None:
        """End a reactor turn: dispatch."""
        touched, self.touched = self.touched, {}
        for subscription in touched.values():
            subscription.dispatch_now()

    def record(self) -> int:
        self.recorded = True
        return self.ticket

    def sync(self, ticket: int | None = None) -> None:
        """The journal is on disk up to a ticket.

        Without one: with the open batch, which never gets there when nothing is in it.
        """
        if ticket is None:
            if not self.recorded:
                return
            ticket, self.ticket, self.recorded = self.ticket, self.ticket + 1, False
        listeners, self.listeners = self.listeners, []
        for listener in listeners:
            listener.durable_up_to(ticket)

    def fail_store(self) -> None:
        listeners, self.listeners = self.listeners, []
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
        principal: Principal | None = None,
    ) -> ScriptedProducer:
        _refuse(self.refuse_open)
        self.note("open producer", named(destination), routing)
        producer = ScriptedProducer(self, destination.address, owner)
        if destination.address in self.full_addresses:
            producer.full = self.refusal
        self.producers.append(producer)
        return producer

    def open_relay(self, owner: ProducerOwner, principal: Principal | None = None) -> ScriptedRelay:
        relay = ScriptedRelay(self, owner)
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
        principal: Principal | None = None,
        options: Mapping[str, str] | None = None,
        start: StreamStart | None = None,
    ) -> ScriptedSubscription:
        _refuse(self.refuse_subscribe)
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
            "start": start,
        }
        shown = {key: value for key, value in facts.items() if value}
        self.note("subscribe", named(destination), routing, shown)
        name = durable_name or destination.queue or destination.address
        made = ScriptedSubscription(self, destination.address, name, consumer)
        self.subscriptions.append(made)
        return made

    def find(self, name: str) -> Destination | None:
        if name in self.queues:
            return Destination(name, name)
        return Destination(name) if name in self.temporaries else None

    def find_subscription(self, durable_name: str) -> tuple[str, bool] | None:
        return ("", False) if durable_name in self.queues else None

    def delete_subscription(self, durable_name: str, principal: Principal | None = None) -> None:
        _refuse(self.refuse_delete)
        self.note("delete subscription", durable_name)

    def create_temporary(
        self, routing: RoutingType, owner: object, principal: Principal | None = None
    ) -> str:
        self._made += 1
        name = f"temporary-{self._made}"
        self.temporaries.add(name)
        self.note("create temporary", name, routing)
        return name

    def delete_temporary(self, name: str) -> None:
        self.temporaries.remove(name)
        self.note("delete temporary", name)

    def begin(self) -> ScriptedWork:
        work = ScriptedWork(self)
        self.works.append(work)
        return work

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
        self.seconds = 0.0

    def held(self, user: str) -> float:
        return self.seconds

    def proves(self, user: str) -> bool:
        return bool(user) and self._users

    def anybody(self, user: str | None) -> Principal:
        return Principal(user)

    def check(self, user: str, password: str, done: Callable[[Principal | None], None]) -> None:
        self.asked.append((user, password))
        principal = Principal(user, by=By.PASSWORD if self.proves(user) else By.NOTHING)
        self.answer = lambda good: done(principal if good else None)


def named(destination: Destination) -> str:
    """Return a destination as clients write it."""
    address, queue = destination.address, destination.queue
    return address if queue is None else f"{address}::{queue}"


def _refuse(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise RefusedError(refusal)


def _messages(kind: str, call: list[Any]) -> Iterator[tuple[str, bytes, int, int]]:
    """Go through the messages of one call."""
    match kind:
        case "send":
            address, bodies, flags, expires = call
            yield from ((address, body, flags, expires) for body in bodies)
        case "send mixed":
            address, *columns = call
            yield from ((address, *one) for one in zip(*columns, strict=True))
        case "commit":
            yield from call[0]


if TYPE_CHECKING:  # the checker compares them with the ports

    def _ports(
        broker: ScriptedBroker, users: ScriptedAuthenticator
    ) -> tuple[Broker, Authenticator]:
        return broker, users
