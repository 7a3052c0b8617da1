"""One SUBSCRIBE: how many messages it takes, what it has sent, and what waits for an ACK.

    stage         input         next
    SUBSCRIBED    START         OPEN      the RECEIPT of SUBSCRIBE has gone: it comes first
    OPEN          ALL_SHOWN     SHOWN     a browser has seen what was there, and gets nothing more
    the three     END           ENDED     what was not settled goes back
    ENDED         FREE          GONE      no transaction holds deliveries of it any more

    ack header           room                                  settled
    auto                 what the output takes                 when written
    client               output, window, prefetch-count        by ACK, with all earlier ones
    client-individual    output, window, prefetch-count        by ACK, each on its own

The queue is told a number of messages, which is a guess where the room is counted in bytes; what
turns out not to fit waits in `_later` and goes with the next ACK.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, Protocol

from gateway.model.errors import Refusal
from gateway.model.message import REPLAYED, Message, let_go
from gateway.model.ports import ConsumerFacts, Subscription
from gateway.model.principal import Principal
from protocols.stomp.holds import CumulativeHold, Hold, IndividualHold
from protocols.stomp.limits import StompLimits
from protocols.stomp.message_frames import MessageFrames
from protocols.stomp.outbox import Outbox
from protocols.stomp.window import ROOM_MAX, Window

#: Bytes of messages that are written at once, should they be larger than was guessed.
_BURST_BYTES_MAX: Final = 4 << 20


class AckMode(Enum):
    """The `ack` header of SUBSCRIBE."""

    AUTO = "auto"
    CLIENT = "client"
    INDIVIDUAL = "client-individual"

    @classmethod
    def of(cls, text: str) -> AckMode:
        """Return the mode that `text` names; any other word is client, as in Artemis."""
        return next((mode for mode in cls if mode.value == text), cls.CLIENT)


class Stage(Enum):
    """How far a subscription is; see the module text."""

    SUBSCRIBED = "subscribed"
    OPEN = "open"
    SHOWN = "shown"
    ENDED = "ended"
    GONE = "gone"


class Input(Enum):
    """What can happen to it."""

    START = "start"
    ALL_SHOWN = "all-shown"
    END = "end"
    FREE = "free"


_NEXT: Final[Mapping[tuple[Stage, Input], Stage]] = {
    (Stage.SUBSCRIBED, Input.START): Stage.OPEN,
    (Stage.OPEN, Input.ALL_SHOWN): Stage.SHOWN,
    (Stage.SUBSCRIBED, Input.END): Stage.ENDED,
    (Stage.OPEN, Input.END): Stage.ENDED,
    (Stage.SHOWN, Input.END): Stage.ENDED,
    (Stage.ENDED, Input.FREE): Stage.GONE,
}
#: Compared with once a run: names of the module cost less than those of the class.
_OPEN: Final = Stage.OPEN
_SHOWN: Final = Stage.SHOWN


class Host(Protocol):
    """What a subscription needs of its connection."""

    outbox: Outbox
    limits: StompLimits
    principal: Principal
    now: float

    def must_hear_acks(self) -> None:
        """A delivery that waits for an ACK went out: do not stop reading now."""

    def flush_soon(self) -> None:
        """There is something to send."""

    def facts(self, subscription: str) -> ConsumerFacts:
        """Return who has the subscription of that id."""

    def expel(self, refusal: Refusal) -> None:
        """Answer with ERROR and end."""

    def subscription_removed(self, refusal: Refusal) -> None:
        """The queue side has ended a subscription: tell the peer, on a later turn."""


class StompConsumer:
    """The protocol's side of one subscription.

    Attributes:
        id: the subscription's id.
        key: what its message ids start with.
        number: of this connection's subscriptions, by age.
        durable_name: of a durable subscription, else None.
        automatic: opened by the reply-to of a SEND.
        stage: see the module text.
        subscription: the hold on the queue; set right after subscribing.
    """

    __slots__ = (
        "_browser",
        "_forget",
        "_frames",
        "_hold",
        "_host",
        "_later",
        "_starved",
        "_transactions",
        "_window",
        "automatic",
        "durable_name",
        "id",
        "key",
        "number",
        "stage",
        "subscription",
    )

    subscription: Subscription

    def __init__(
        self,
        host: Host,
        identity: tuple[str, bytes],
        mode: AckMode,
        frames: MessageFrames,
        *,
        forget: Callable[[StompConsumer], None],
        window: Window,
        durable_name: str | None = None,
        browser: bool = False,
    ) -> None:
        """Prepare; `forget` is called when the queue side has ended it.

        A `browser` is shown what waits, then a MESSAGE with the header `browser:end`, and nothing
        more.
        """
        self._host = host
        self.id, self.key = identity
        self.number = 0
        self._frames = frames
        self._hold: Hold | None = None
        if mode is AckMode.CLIENT:
            self._hold = CumulativeHold()
        elif mode is AckMode.INDIVIDUAL:
            self._hold = IndividualHold()
        self._window = window
        self._later: list[Message] = []
        self._starved = False
        self._transactions = 0
        self._browser = browser
        self._forget = forget
        self.durable_name = durable_name
        self.automatic = False
        self.stage = Stage.SUBSCRIBED

    @property
    def delivered(self) -> int:
        """Messages that went out."""
        return self._frames.next_number - 1

    @property
    def credit(self) -> int | None:
        """How many messages it takes beyond what it holds; None: as many as the output takes."""
        return None if self._hold is None else self._window.credit(self._hold.count)

    @property
    def unacked(self) -> int:
        """Deliveries that wait for an ACK."""
        return 0 if self._hold is None else self._hold.count

    def room(self) -> int:
        """Return how many messages are taken now [gateway.model.ports.Consumer]."""
        host = self._host
        outbox = host.outbox
        left = host.limits.output_bytes_max - outbox.size
        if left <= 0 or not outbox.write_room:
            if not self._starved:
                self._starved = True
                outbox.starved.append(self)
            return 0
        if self.stage is not _OPEN or host.principal.ended:
            return 0
        window = self._window
        room = min(ROOM_MAX, left // window.size + 1)
        hold = self._hold
        if hold is None:
            return room
        return 0 if self._later else window.room(room, hold.count)

    def deliver(self, messages: list[Message], any_flags: int) -> None:
        """Send these [gateway.model.ports.Consumer]; in auto mode they are acknowledged at once.

        Written in this turn is as far as STOMP can see: what is lost with the connection after
        that is lost to auto mode by its definition.
        """
        host = self._host
        hold = self._hold
        # By the first and the last of them: to look at each would cost more than it is worth.
        if (len(messages[0].body) + len(messages[-1].body)) * len(messages) > _BURST_BYTES_MAX:
            messages = self._bounded(messages)
        if hold is None:
            data = self._frames.render(messages, any_flags)
            host.outbox.write(data, self._frames.sizes)
            self._window.size = len(data) // len(messages) + 1
            self.subscription.acknowledge(messages)
            host.flush_soon()
            return
        if self._window.counts_bytes:
            fitting = self._window.fitting(messages, hold.count, self._frames.overhead)
            if fitting < len(messages):
                self._later = messages[fitting:]
                messages = messages[:fitting]
        if messages:
            self._send(hold, messages, any_flags)

    def _bounded(self, messages: list[Message]) -> list[Message]:
        """Return those that may be written at once, one at least; the others go back."""
        size = 0
        for index, message in enumerate(messages):
            size += len(message.body)
            if size > _BURST_BYTES_MAX and index:
                self.subscription.release(messages[index:], unseen=True)
                return messages[:index]
        return messages

    def _send(self, hold: Hold, messages: list[Message], any_flags: int) -> None:
        host = self._host
        first = self._frames.next_number
        data = self._frames.render(messages, any_flags)
        host.outbox.write(data, self._frames.sizes)
        self._window.size = len(data) // len(messages) + 1
        hold.add(first, messages)
        if any_flags & REPLAYED:
            let_go(messages)
        host.must_hear_acks()
        host.flush_soon()

    def removed(self, refusal: Refusal) -> None:
        """Tell the peer that its subscription is gone [gateway.model.ports.Consumer].

        What it holds is given back, as the broker's figures count it until then.
        """
        self._end(failed=False)
        self._forget(self)
        self._host.subscription_removed(refusal)

    def facts(self) -> ConsumerFacts:
        """Say who it is [gateway.model.ports.Consumer]."""
        return self._host.facts(self.id)

    def expelled(self, refusal: Refusal) -> None:
        """End the connection with an ERROR [gateway.model.ports.Consumer]."""
        self._host.expel(refusal)

    def exhausted(self) -> None:
        """Tell a browser that it has seen all [gateway.model.ports.Consumer]."""
        if self._browser and self.stage is _OPEN:
            self._step(Input.ALL_SHOWN)
            self._host.outbox.write(self._frames.end_of_browse())
            self._host.flush_soon()

    def take(self, number: int) -> list[Message] | None:
        """Return what an ACK or NACK of `number` settles; None when it settles nothing."""
        if self._hold is None:
            return None
        settled = self._hold.take(number)
        if settled is not None and self._window.counts_bytes:
            self._window.settled(settled, self._frames.overhead)
        return settled

    def again(self) -> None:
        """There may be room again: send what waited, then ask the queue for more."""
        self._starved = False
        if self.stage is not _OPEN and self.stage is not _SHOWN:
            return
        hold = self._hold
        if self._later and hold is not None:
            fitting = self._window.fitting(self._later, hold.count, self._frames.overhead)
            messages, self._later = self._later[:fitting], self._later[fitting:]
            if messages:
                self._send(hold, messages, -1)
        if not self._later:
            self.subscription.ready()

    def start(self) -> None:
        """SUBSCRIBE is confirmed: messages may follow, if it was not ended before."""
        if self.stage is Stage.SUBSCRIBED:
            self._step(Input.START)
            self.subscription.ready()

    def unsubscribe(self) -> None:
        """End it; what waits for an ACK goes back without a mark [STOMP 1.2 UNSUBSCRIBE]."""
        self._end(failed=False)

    def leave(self) -> None:
        """End it with its connection: what the peer may have seen counts as a delivery."""
        self._end(failed=True)

    def _end(self, *, failed: bool) -> None:
        if self.stage is Stage.ENDED or self.stage is Stage.GONE:
            return  # the queue goes, or the connection, while a transaction still holds deliveries
        self._step(Input.END)
        if self._later:
            self.subscription.release(self._later, unseen=True)
            self._later = []
        held = [] if self._hold is None else self._hold.take_all()
        if held:
            self.subscription.release(held, failed=failed)
        self._close_when_free()

    def enter_transaction(self) -> None:
        """A transaction holds deliveries of this subscription, which stays until it ends."""
        self._transactions += 1

    def leave_transaction(self) -> None:
        """The transaction has settled them."""
        self._transactions -= 1
        assert self._transactions >= 0, "each one leaves as often as it has entered"
        self._close_when_free()

    def _close_when_free(self) -> None:
        if self.stage is Stage.ENDED and not self._transactions:
            self._step(Input.FREE)
            self.subscription.close()

    def _step(self, what: Input) -> None:
        following = _NEXT.get((self.stage, what))
        assert following is not None, f"{what.value} in stage {self.stage.value}"
        self.stage = following
