"""SEND: what its headers say, and the routes that the parser hands runs of bodies to.

A destination is resolved once and kept open as a `Sender`. A head that can repeat (no transaction)
gets a `Route`: the sender, the flags and the expiry that all its messages share.

It knows the rules of SEND's headers [STOMP 1.2 SEND], not how frames come or what is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gateway.model import stomp_form
from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.identity import DUPLICATE_ID
from gateway.model.message import (
    DEFAULT_PRIORITY,
    DURABLE,
    EXPIRES,
    GROUPED,
    IDENTIFIED,
    STOMP,
    TEXT,
)
from gateway.model.ports import Broker, Producer, Relay
from gateway.model.principal import ANYBODY
from gateway.model.run import Outcome, Run
from protocols.stomp.destinations import required, resolve
from protocols.stomp.frame import Head
from protocols.stomp.heads import shown
from protocols.stomp.limits import StompLimits
from protocols.stomp.nowhere import Nowhere
from protocols.stomp.places import Places
from protocols.stomp.styles import Place

#: Its group goes to one consumer.
GROUP_HEADER: Final = "JMSXGroupID"
_TYPE_HEADER: Final = "destination-type"
_REPLY_HEADER: Final = "reply-to"
_TEMPORARY: Final = ("/temp-queue/", "/temp-topic/")
#: ms from now; a head with it is no other's, since each of its messages has a time of its own.
DELAY_HEADER: Final = "AMQ_SCHEDULED_DELAY"
_TIME_HEADER: Final = "AMQ_SCHEDULED_TIME"
_FLAG_WORDS: Final = {"true": True, "false": False}
#: ms since the epoch that fit a signed 64-bit field.
_TIME_DIGITS: Final = 18


class Sender:
    """One destination of this connection, open for sending. Implements ProducerOwner.

    Attributes:
        producer: the broker's side.
        full: the address has reached a limit since the last send.
        routing_header: destination-type to store with its messages; None when nobody named a type.
        lost: it leads nowhere; what comes next for its destination is looked at anew.
    """

    __slots__ = ("_refused", "_unblocked", "full", "lost", "producer", "routes", "routing_header")

    producer: Producer

    def __init__(
        self, unblocked: Callable[[Sender], None], refused: Callable[[Sender], None]
    ) -> None:
        self._unblocked = unblocked
        self._refused = refused
        self.full = self.lost = False
        self.routes: dict[int, Route] = {}
        self.routing_header: str | None = None

    def producer_blocked(self, refusal: Refusal) -> None:
        """Remember it for the next send [gateway.model.ports.ProducerOwner]."""
        self.full = True

    def producer_unblocked(self) -> None:
        """Go on, if nothing else holds [gateway.model.ports.ProducerOwner]."""
        self.full = self.producer.blocked() is not None and self.producer.waits
        self._unblocked(self)

    def producer_refused(self, refusal: Refusal) -> None:
        """Be dropped, so that the next send is judged anew [gateway.model.ports.ProducerOwner]."""
        self._refused(self)
        self.full = False
        self._unblocked(self)  # what waits for room is refused now


class DiskWait:
    """What a full disk tells a connection that sends. Implements ProducerOwner.

    Attributes:
        producer: the broker's side.
        full: the disk is full.
    """

    __slots__ = ("_unblocked", "full", "producer")

    producer: Relay

    def __init__(self, broker: Broker, unblocked: Callable[[DiskWait], None]) -> None:
        self._unblocked = unblocked
        self.producer = broker.open_relay(self)
        self.full = self.producer.blocked() is not None

    def producer_blocked(self, refusal: Refusal) -> None:
        """Remember it for the next send [gateway.model.ports.ProducerOwner]."""
        self.full = True

    def producer_unblocked(self) -> None:
        """Go on [gateway.model.ports.ProducerOwner]."""
        self.full = False
        self._unblocked(self)

    def producer_refused(self, refusal: Refusal) -> None:
        """A disk allows nothing to anybody [gateway.model.ports.ProducerOwner]."""


class Route:
    """Where messages with one head go. Immutable."""

    __slots__ = ("due", "expires", "flags", "sender")

    def __init__(self, sender: Sender, flags: int, expires: int, due: int = 0) -> None:
        self.sender = sender
        self.flags = flags
        self.expires = expires
        self.due = due  # 0: at once

    def run(self, bodies: Sequence[bytes]) -> Run:
        """Return stored messages as a run."""
        return Run(bodies, self.flags, self.expires, self.due)

    def send(self, bodies: Sequence[bytes]) -> Outcome:
        """Send stored messages [gateway.model.ports.Producer.send]."""
        return self.sender.producer.send(Run(bodies, self.flags, self.expires, self.due))


class Sending:
    """The senders of one connection."""

    __slots__ = (
        "_broker",
        "_limits",
        "_on_evict",
        "_origin",
        "_places",
        "_reply_to",
        "_senders",
        "_unblocked",
        "principal",
    )

    def __init__(
        self,
        broker: Broker,
        limits: StompLimits,
        unblocked: Callable[[Sender], None],
        on_evict: Callable[[], None],
        *,
        places: Places,
        reply_to: Callable[[str], str],
        origin: str,
    ) -> None:
        """Start without senders; `on_evict` is called when routes handed out so far are void.

        `reply_to` makes of a SEND's what others answer to, and raises RefusedError.
        `principal`: for whom it sends; set when it is known.
        """
        self.principal = ANYBODY
        self._broker = broker
        self._limits = limits
        self._unblocked = unblocked
        self._on_evict = on_evict
        self._places = places
        self._reply_to = reply_to
        self._origin = origin
        self._senders: dict[tuple[str, str | None], Sender] = {}

    def crowded(self, headers: Mapping[str, str]) -> bool:
        """Whether opening this destination would close the others first."""
        key = (headers.get("destination", ""), headers.get(_TYPE_HEADER))
        return len(self._senders) >= self._limits.destinations_max and key not in self._senders

    def prepare(self, head: Head) -> Route:
        """Judge a SEND head and lead it to its route; raises RefusedError, changing nothing."""
        headers = head.headers
        priority = _priority(headers)
        persistent = _persistent(headers, default=self._limits.default_persistent)
        expires = _time(headers, "expires", "0 for never")
        due = self._due(headers)
        sender = self._sender(headers)
        flags = priority | STOMP | (DURABLE if persistent else 0) | (EXPIRES if expires else 0)
        if head.length < 0:
            flags |= TEXT
        if DUPLICATE_ID in headers:
            flags |= IDENTIFIED
        if GROUP_HEADER in headers:
            flags |= GROUPED
        if expires or due:
            route = Route(sender, flags, expires, due)
        else:
            route = sender.routes.setdefault(flags, Route(sender, flags, 0))
        stored = headers
        if sender.routing_header is not None and _TYPE_HEADER not in headers:
            stored = {_TYPE_HEADER: sender.routing_header, **headers}
        if DELAY_HEADER in stored:
            # Whoever reads it later knows nothing of the moment that the delay counts from.
            stored = {n: v for n, v in stored.items() if n not in (DELAY_HEADER, _TIME_HEADER)}
            if due:
                stored[_TIME_HEADER] = str(due)
        reply_to = headers.get(_REPLY_HEADER)
        if reply_to is not None:
            answered = self._reply_to(reply_to)
            if answered != reply_to:
                stored = {**stored, _REPLY_HEADER: answered}
        before, behind = stomp_form.outline(
            headers["destination"],
            priority,
            persistent,
            content_type=headers.get("content-type"),
            expires=expires,
            headers=stored.items(),
        )
        head.lead_to(route, before, behind, dated="timestamp" in headers)
        return route

    def _due(self, headers: Mapping[str, str]) -> int:
        """Return when the message is to be delivered; 0 at once. A time counts before a delay."""
        due = _time(headers, _TIME_HEADER, "0 for at once")
        delay = _time(headers, DELAY_HEADER, "0 for at once")
        return due or (self._broker.now_ms() + delay if delay else 0)

    def _sender(self, headers: Mapping[str, str]) -> Sender:
        text = required(headers, "destination", "SEND")
        key = (text, headers.get(_TYPE_HEADER))
        sender = self._senders.get(key)
        if sender is not None:
            return sender
        named, routing = resolve(headers, "SEND", (_TYPE_HEADER,), self._limits)
        destination = self._places.find(named, self.principal)
        if destination is None:
            return self._lost(named.name)
        if len(self._senders) >= self._limits.destinations_max:
            self.close_all()
        sender = Sender(self._unblocked, self._drop)
        sender.producer = self._broker.open_producer(
            destination, routing, sender, origin=self._origin, principal=self.principal
        )
        sender.producer.credited = False
        sender.producer.remakes = named.place is not Place.EXISTING
        sender.full = sender.producer.blocked() is not None
        sender.routing_header = None if routing is None else routing.value
        self._senders[key] = sender
        return sender

    def _lost(self, name: str) -> Sender:
        """Return a sender to a requester that is gone."""
        sender = Sender(self._unblocked, self._drop)
        sender.producer = Nowhere(name)
        sender.lost = True
        return sender

    def _drop(self, sender: Sender) -> None:
        """Close one sender, which has become void."""
        for key, one in list(self._senders.items()):
            if one is sender:
                del self._senders[key]
        self._on_evict()
        sender.producer.close()

    def addresses(self) -> list[str]:
        """Return where it sends to, as far as routes are open."""
        return [sender.producer.address for sender in self._senders.values()]

    def close_all(self) -> None:
        """Close every sender; destinations are resolved anew when they are named again."""
        senders, self._senders = self._senders, {}
        self._on_evict()
        for sender in senders.values():
            sender.producer.close()


def _priority(headers: Mapping[str, str]) -> int:
    text = headers.get("priority")
    if text is None:
        return DEFAULT_PRIORITY
    if len(text) != 1 or not "0" <= text <= "9":
        raise RefusedError.of(
            Code.BAD_VALUE, f"priority '{shown(text)}' is not a whole number from 0 to 9."
        )
    return int(text)


def _persistent(headers: Mapping[str, str], *, default: bool) -> bool:
    text = headers.get("persistent")
    if text is None:
        return default
    value = _FLAG_WORDS.get(text.lower())
    if value is None:
        raise RefusedError.of(
            Code.BAD_VALUE, f"persistent '{shown(text)}' is neither true nor false."
        )
    return value


def _time(headers: Mapping[str, str], name: str, or_else: str) -> int:
    text = headers.get(name)
    if text is None:
        return 0
    if name == DELAY_HEADER:
        kind, unit = "delay", "milliseconds"
        digits = text.removeprefix("-")  # below 0 is as 0
    else:
        kind, unit, digits = "time", "milliseconds since 1970", text
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _TIME_DIGITS):
        raise RefusedError.of(
            Code.BAD_VALUE,
            f"{name} '{shown(text)}' is no {kind}: write {unit} in at most "
            f"{_TIME_DIGITS} digits, or {or_else}.",
        )
    return max(0, int(text))


def is_single(headers: Mapping[str, str]) -> bool:
    """Whether no other SEND can share the route of this one, however alike.

    A transaction may be over, a delay counts from each message, and the subscription for the
    answers may have ended.
    """
    return (
        "transaction" in headers
        or DELAY_HEADER in headers
        or headers.get(_REPLY_HEADER, "").startswith(_TEMPORARY)
    )
