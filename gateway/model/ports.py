"""The seams between layers, as structural types.

Nothing answers inside the call that asked. A confirmation that needs the disk is a *ticket*: `send`
and `acknowledge` tell the number of the journal batch that their records are in (0: nothing to
wait for), and
`DurableListener.durable_up_to(ticket)` comes on a later turn, after that batch is synced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from gateway.model.address import Destination, RoutingType
from gateway.model.amqp_types import Value
from gateway.model.errors import Refusal
from gateway.model.message import Message
from gateway.model.principal import Principal
from gateway.model.run import MixedRun, Outcome, Run
from gateway.model.stream_start import StreamStart


class DurableListener(Protocol):
    """Whoever holds confirmations back until the journal has what they promise."""

    def durable_up_to(self, ticket: int) -> None:
        """All records up to this ticket are on disk: send what was held back, in order."""

    def consumed(self, tickets: Sequence[int]) -> None:
        """All that was sent with one of these tickets was consumed, and need not be stored.

        Nothing is said of what was not sent, nor of earlier tickets.
        """

    def store_failed(self, refusal: Refusal) -> None:
        """The journal has stopped for good: confirm nothing more, close without outcome."""


class ProducerOwner(Protocol):
    """The protocol's side of a producer."""

    def producer_unblocked(self) -> None:
        """There is room again after `Producer.blocked()` told a refusal: grant credit, read on."""

    def producer_blocked(self, refusal: Refusal) -> None:
        """The address became full (BLOCK): grant no more credit, stop reading."""

    def producer_refused(self, refusal: Refusal) -> None:
        """One of its producers refuses all it is given from now on: it is not allowed any more.

        It is to be closed. Another one may be opened for its address, and is judged anew.
        """


class Producer(Protocol):
    """A sender's route to one address, resolved once; hot."""

    @property
    def address(self) -> str: ...

    def send(self, run: Run) -> Outcome:
        """Take a run; a ticket of 0 says: confirm at the end of the turn."""

    def send_mixed(self, run: MixedRun) -> Outcome:
        """As `send`, for messages that differ."""

    def stamped(self, run: Run) -> Run:
        """Return messages as they are kept: with the time, where the address asks for it."""

    @property
    def durability(self) -> str:
        """What is done before a durable message is confirmed: fsync, write or memory."""

    credited: bool  # what comes was promised before, by credit; a protocol without sets it to False
    remakes: bool  # whether an address that was deleted is made again for what is sent next
    stamps: bool  # whether it gives messages the time; what transactions keep is asked for it

    def blocked(self) -> Refusal | None:
        """Return why no credit should be given now (a limit is reached), or None."""

    @property
    def waits(self) -> bool:
        """Whether one that `blocked` holds back waits; else what it sends is refused at once."""

    @property
    def holds(self) -> bool:
        """Whether one that `blocked` holds back keeps what it has until there is room.

        So it is with BLOCK, an operator's block, and a journal that is behind. Of what is sent all
        the same one that is not `credited` is rid only as far as there is room; the outcome of a
        send has how much that is, and why it is not more.
        """

    def credit(self, most: int, size: int) -> int:
        """Return how many messages of about `size` bytes the sender may be told to send.

        At least 1, at most `most`: its share of the room that the address has left in bytes, so
        that many senders do not overshoot a limit by all that each was promised.
        """

    def close(self) -> None: ...


#: A run of one message on its way, in a transaction.
Send: TypeAlias = tuple[Producer, Run]


class Relay(Protocol):
    """A sender that chooses an address for each message: what holds all of them back, if it does.

    Its owner is told as that of a producer is.
    """

    def blocked(self) -> Refusal | None:
        """Return why nothing can be sent anywhere now (a full disk), or None."""

    def refuse(self, count: int) -> Refusal | None:
        """As `blocked`, for so many messages that are refused for it, and counted."""

    def credit(self, most: int, size: int) -> int:
        """Return how many messages of about `size` bytes the sender may be told to send."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerFacts:
    """Who a consumer is: for people, and asked for rarely.

    Attributes:
        protocol: AMQP or STOMP.
        connection: the gateway's name for it.
        remote: the peer's network address.
        user: its login; None without one.
        name: the link's or the subscription's name at the client.
    """

    protocol: str
    connection: str
    remote: str
    user: str | None
    name: str


class Consumer(Protocol):
    """The protocol's side of a subscription; the queue core calls it while it dispatches."""

    def room(self) -> int:
        """Return how many messages it takes now, by credit, window and pressure; none below 1."""

    def deliver(self, messages: list[Message], any_flags: int) -> None:
        """Send these (never more than `room()` said), in this order.

        They stay `delivering` until settled through the subscription. `any_flags` holds at least
        the union of
        the messages' flags, so that `any_flags & SPECIAL == 0` allows the fast path. The list is
        the consumer's to keep.
        """

    def removed(self, refusal: Refusal) -> None:
        """The queue is gone (deleted) or the subscription was ended by the gateway."""

    def facts(self) -> ConsumerFacts:
        """Say who it is."""

    def expelled(self, refusal: Refusal) -> None:
        """Its connection is closed for this; what it holds goes back as from one that was cut."""

    def exhausted(self) -> None:
        """All that waits has been looked at, and nothing more is for this consumer now.

        Told once to a browser when it has seen what was there, and after a true
        `Subscription.keeps_searching`.
        """


class Progress(NamedTuple):
    """How far a replay is: the stream, the offset that comes next, how many messages lie ahead."""

    stream: str
    offset: int
    lag: int


class Subscription(Protocol):
    """A consumer's hold on one queue, or its replay of a stream, which takes nothing.

    Lists of messages are those that `deliver` handed out, in any order.
    """

    @property
    def queue_name(self) -> str:
        """The queue, or the stream that it replays."""

    @property
    def progress(self) -> Progress | None:
        """How far its replay of a stream is; None on a queue."""

    @property
    def address(self) -> str: ...

    @property
    def browses(self) -> bool:
        """Whether it looks, and takes nothing."""

    @property
    def in_flight(self) -> int:
        """How many messages the consumer has and has not settled; 0 for a browser."""

    def ready(self) -> None:
        """Credit or room has come: dispatch at the end of this turn."""

    def dispatch_now(self) -> None:
        """Dispatch at once what `room()` allows (drain [AMQP 2.6.7])."""

    def keeps_searching(self) -> bool:
        """Whether messages wait that it may yet get: to be judged, or on their way from a page.

        If so, `Consumer.exhausted` tells when there are none, or its room has ended.
        """

    def acknowledge(self, messages: list[Message]) -> int:
        """Remove them for good; returns the ticket after which they cannot come back.

        0: they cannot, as they are, since none of them will ever be on disk.
        """

    def release(
        self,
        messages: list[Message],
        *,
        failed: bool = False,
        undeliverable_here: bool = False,
        delayed: bool = False,
        unseen: bool = False,
    ) -> int:
        """Give them back to their old places.

        `failed` counts one delivery attempt more, and may dead-letter. `delayed`: the consumer gave
        them back itself, so that the redelivery delay of their address holds. `unseen`: they were
        not written to it yet, so that the next one to have them is the first.
        """

    def annotate(
        self, messages: list[Message], annotations: Mapping[str, Value], size_max: int
    ) -> None:
        """Merge message-annotations into those that are given back next [AMQP 3.4.5].

        One that would have more than `size_max` bytes, or cannot take them, stays as it is.
        """

    def reject(self, messages: list[Message]) -> int:
        """Dead-letter them at once."""

    def close(self) -> None:
        """End the subscription.

        The consumer has settled or released all that it held before (`failed=True` when its
        connection was cut: the peer may have seen them).
        """


class Transaction(Protocol):
    """Sends and settlements that happen together or not at all."""

    def send(self, producer: Producer, run: Run) -> Refusal | None:
        """Keep a run of one message; returns why the transaction takes no more."""

    def acknowledge(self, subscription: Subscription, messages: list[Message]) -> None: ...

    def reject(
        self, subscription: Subscription, messages: list[Message], *, dead_letter: bool
    ) -> None:
        """Inside the transaction: NACK; `dead_letter` at once, else a failed release at commit."""

    def release(
        self,
        subscription: Subscription,
        messages: list[Message],
        *,
        failed: bool = False,
        undeliverable_here: bool = False,
    ) -> None:
        """Inside the transaction: give back, as `Subscription.release` says, at commit."""

    def annotate(
        self,
        subscription: Subscription,
        messages: list[Message],
        annotations: Mapping[str, Value],
        size_max: int,
    ) -> None:
        """Inside the transaction: as `Subscription.annotate` says, at commit."""

    def prepare(self) -> None:
        """Ask whether the sends would be taken now; `commit` in the same turn will not ask again.

        Raises RefusedError when not all would: then it can only be rolled back.
        """

    def commit(self) -> int:
        """Apply all in one journal batch; returns the ticket.

        Raises RefusedError when it cannot; then nothing is applied.
        """

    def rollback(self) -> None:
        """Forget the sends; messages acknowledged here go back, with one attempt more."""


class Broker(Protocol):
    """The one face that sessions talk to."""

    def now_ms(self) -> int:
        """Broker time in ms since the epoch; never goes back."""

    def open_producer(
        self,
        destination: Destination,
        routing: RoutingType | None,
        owner: ProducerOwner,
        *,
        origin: str = "",
        principal: Principal | None = None,
    ) -> Producer:
        """Resolve (and, where allowed, make) the address. Raises RefusedError.

        `origin` is what `no_local` of a subscription is compared with. What is made counts for
        the account of `principal`, which must be allowed to do it; None is the gateway itself,
        which may do all, here and below.
        """

    def open_relay(self, owner: ProducerOwner, principal: Principal | None = None) -> Relay:
        """Look after a sender that chooses an address for each message.

        With a `principal` it is a link of its own, which gets credit.
        """

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
    ) -> Subscription:
        """Attach a consumer. Raises RefusedError.

        `priority`: higher is served first; None as the queue says.

        routing MULTICAST with `durable_name` is a durable subscription queue of that name,
        without one a
        temporary queue that goes with the subscription. `temporary` with a name: a queue that is
        shared by that name and goes with its last consumer.

        It gets what `selector` matches, and nothing whose sender's origin is `no_local`. Those of a
        subscription hold for its queue: with others than before, what it holds and does not match
        any more is removed. `browse` shows what waits in a queue, and takes nothing; a
        subscription's own queue is browsed by naming it.

        With `start` the stream of the address is replayed from there, and neither queue nor stream
        is made; of the others only `selector` counts then.

        `owner`: the connection. A temporary address, and the queue of a subscription without a
        name, are read by the one that made them alone.
        """

    def find(self, name: str) -> Destination | None:
        """Return what has this name, and make nothing: a queue as `address::queue`.

        A temporary address without a queue of its name is itself; None when there is neither.
        """

    def find_subscription(self, durable_name: str) -> tuple[str, bool] | None:
        """Return the selector of a durable subscription ("": none) and whether it is no-local.

        None when there is no such subscription.
        """

    def delete_subscription(self, durable_name: str, principal: Principal | None = None) -> None:
        """Delete a durable subscription's queue. Raises RefusedError."""

    def create_temporary(
        self, routing: RoutingType, owner: object, principal: Principal | None = None
    ) -> str:
        """Make a temporary address with a name nobody else has; returns it. Raises RefusedError.

        All may send to it; only subscriptions of `owner`, the connection, read from it.
        """

    def delete_temporary(self, name: str) -> None: ...

    def begin(self) -> Transaction: ...

    def await_durable(self, listener: DurableListener) -> None:
        """Call `listener.durable_up_to` once, after the next journal batch is synced.

        At the end of the turn when everything is on disk already.
        """


class Renewer(Protocol):
    """Has who came in by a token go on by a later one."""

    def renew(
        self, principal: Principal, token: str, done: Callable[[Refusal | None], None]
    ) -> None:
        """Judge a token, and have `principal` go on by it; `done` is told why not, later."""


class Authenticator(Protocol):
    """Who may come in."""

    @property
    def open(self) -> bool:
        """True when no user is configured: any login, or none, is taken."""

    def anybody(self, user: str | None) -> Principal:
        """Return for whom a peer acts that is let in unproved, and called itself `user`."""

    def check(self, user: str, password: str, done: Callable[[Principal | None], None]) -> None:
        """Verify off the reactor; `done` gets the answer later, never inside this call.

        None: it is not let in. A token may stand in the password's place.
        """

    def held(self, user: str) -> float:
        """Return for how many seconds no login of a user is looked at; 0: the next one is."""

    def proves(self, user: str) -> bool:
        """Whether who is let in by this name has to prove it; else anybody may give it."""
