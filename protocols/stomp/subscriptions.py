"""The subscriptions of a connection: SUBSCRIBE, UNSUBSCRIBE, and what an ACK or NACK names.

    version    SUBSCRIBE id                     ACK and NACK name a delivery by
    1.0        optional: subscription/<dest>    message-id
    1.1        required                         message-id and subscription, which must agree
    1.2        required                         id, the ack header of MESSAGE

A message id is `<connection>-<n>-<number>`: <n> names the subscription in this connection. The id
of another connection is therefore never taken for one of ours. It knows what the headers mean
(`subscribe_headers`), not how frames come or what is answered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from gateway.model.address import Destination, RoutingType
from gateway.model.errors import Code, RefusedError
from gateway.model.message import Message
from gateway.model.objects import Kind, weight_of
from gateway.model.ports import Broker
from gateway.model.stream_start import StreamStart
from protocols.stomp.destinations import required, resolve
from protocols.stomp.heads import shown
from protocols.stomp.message_frames import Convert, MessageFrames
from protocols.stomp.places import Places, answer_to
from protocols.stomp.styles import Named, Place, read_destination
from protocols.stomp.subscribe_headers import (
    browses,
    check_durable,
    durable_name,
    selector_of,
    start_of,
    wants_no_local,
    window_of,
)
from protocols.stomp.subscription import AckMode, Host, StompConsumer
from protocols.stomp.versions import Version
from protocols.stomp.window import NO_WINDOW, Window

_TYPE_HEADERS: Final = ("subscription-type", "destination-type")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9.]")
#: Digits of a delivery's number: more than a connection can count to.
_NUMBER_DIGITS: Final = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a subscription is to be: `name` is its id, the others are as SUBSCRIBE has them."""

    name: str
    version: Version
    mode: AckMode
    window: Window
    routing: RoutingType | None
    durable: str | None = None
    browser: bool = False
    selector: str = ""
    no_local: str = ""
    start: StreamStart | None = None


class Subscriptions:
    """All of one connection.

    Attributes:
        by_id: the open ones.
        places: where destinations lead.
        origin: what this connection's messages are told by, for no-local.
    """

    __slots__ = (
        "_before",
        "_broker",
        "_by_key",
        "_convert",
        "_count",
        "_host",
        "_prefix",
        "by_id",
        "origin",
        "places",
    )

    def __init__(self, broker: Broker, host: Host, convert: Convert, name: str) -> None:
        """Start without any; `name` is the connection's and goes into message ids."""
        self._broker = broker
        self._host = host
        self._convert = convert
        self._prefix = _UNSAFE.sub("_", name)
        self.origin = f"STOMP {name}"
        self._count = 0
        self._before = 0  # delivered to those that are gone
        self.places = Places(broker, host.limits, self)
        self._by_key: dict[bytes, StompConsumer] = {}
        self.by_id: dict[str, StompConsumer] = {}

    @property
    def delivered(self) -> int:
        """Messages that went out on all of them."""
        return self._before + sum([consumer.delivered for consumer in self.by_id.values()])

    @property
    def unacked(self) -> bool:
        """Whether a delivery waits for an ACK."""
        return any(consumer.unacked for consumer in self.by_id.values())

    def subscribe(
        self, headers: Mapping[str, str], version: Version, client_id: str | None
    ) -> StompConsumer:
        """Open a subscription; it sends nothing until `start()`. Raises RefusedError."""
        selector = selector_of(headers)
        named, routing = resolve(headers, "SUBSCRIBE", _TYPE_HEADERS, self._host.limits)
        if named.place is Place.OWN:
            self._end_automatic(named.text)
        name = self._free_id(headers, version)
        durable = durable_name(headers, client_id, "SUBSCRIBE")
        check_durable(durable, routing, temporary=named.place is Place.OWN)
        start = start_of(headers, durable)
        browser = start is None and browses(headers, durable, routing)
        asked = Asked(
            name=name,
            version=version,
            mode=AckMode.of(headers.get("ack", "auto")),
            window=window_of(headers, self._host.limits.window_bytes),
            routing=routing,
            durable=durable,
            browser=browser,
            selector=selector,
            no_local=self.origin if wants_no_local(headers) else "",
            start=start,
        )
        return self._open(asked, self._find(named))

    def _find(self, named: Named) -> Destination:
        destination = self.places.find(named, self._host.principal)
        if destination is None:
            raise RefusedError.of(
                Code.NOT_FOUND,
                f"'{shown(named.text)}' is gone with the connection that asked for answers there.",
            )
        return destination

    def reply_to(self, text: str, version: Version) -> str:
        """Return the reply-to of a SEND as others answer to it; raises RefusedError.

        Of a temporary destination that is its real address. It is subscribed to by its own word,
        unless the connection has done so itself.
        """
        named = read_destination(text, self._host.limits)
        if named.place is not Place.OWN:
            return text
        address = self.places.own(named, self._host.principal)
        if not any(one.subscription.address == address for one in self.by_id.values()):
            self._check_id(text)
            asked = Asked(
                name=text,
                version=version,
                mode=AckMode.AUTO,
                window=Window(NO_WINDOW),
                routing=named.routing,
            )
            consumer = self._open(asked, Destination(address))
            consumer.automatic = True
            consumer.start()
        return answer_to(named, address)

    def _end_automatic(self, word: str) -> None:
        """End the subscription that a reply-to opened: the connection subscribes itself."""
        consumer = self.by_id.get(word)
        if consumer is not None and consumer.automatic:
            self.drop(consumer)
            consumer.unsubscribe()

    def _open(self, asked: Asked, destination: Destination) -> StompConsumer:
        """Open a subscription; raises RefusedError."""
        host = self._host
        weight = weight_of(asked.name)
        host.limits.objects.check(Kind.CONSUMERS, host.principal.account, weight)
        self._count += 1
        key = f"{self._prefix}-{self._count}".encode()
        frames = MessageFrames(
            asked.version,
            asked.name,
            key,
            with_ack=asked.mode is not AckMode.AUTO,
            address=destination.address,
            convert=self._convert,
            apart=host.limits.frames_apart,
        )
        consumer = StompConsumer(
            host,
            (asked.name, key),
            asked.mode,
            frames,
            forget=self.drop,
            window=asked.window,
            durable_name=asked.durable,
            browser=asked.browser,
        )
        consumer.subscription = self._broker.subscribe(
            destination,
            RoutingType.MULTICAST if asked.durable is not None else asked.routing,
            consumer,
            durable_name=asked.durable,
            # Two connections of one client-id share a durable subscription, as in Artemis.
            shared=asked.durable is not None,
            browse=asked.browser,
            selector=asked.selector,
            no_local=asked.no_local,
            owner=self,
            principal=host.principal,
            start=asked.start,
        )
        consumer.number = self._count
        host.limits.objects.add(Kind.CONSUMERS, host.principal.account, weight)
        self.by_id[asked.name] = consumer
        self._by_key[key] = consumer
        return consumer

    def _free_id(self, headers: Mapping[str, str], version: Version) -> str:
        name = headers.get("id")
        if name is None:
            if version is not Version.V1_0:
                required(headers, "id", "SUBSCRIBE")
            name = f"subscription/{required(headers, 'destination', 'SUBSCRIBE')}"
        self._check_id(name)
        return name

    def _check_id(self, name: str) -> None:
        """Raise RefusedError unless one more subscription may be opened by this id."""
        if name in self.by_id:
            raise RefusedError.of(
                Code.ALREADY_EXISTS,
                f"Subscription id '{shown(name)}' is in use on this connection; choose another.",
            )
        limit = self._host.limits.subscriptions_max
        if len(self.by_id) >= limit:
            raise RefusedError.of(
                Code.TOO_MANY,
                f"This connection has {limit} subscriptions, which is the limit; end one first.",
            )

    def unsubscribe(
        self, headers: Mapping[str, str], version: Version, client_id: str | None
    ) -> None:
        """Close a subscription; delete a durable one whose name is given. Raises RefusedError."""
        durable = durable_name(headers, client_id, "UNSUBSCRIBE")
        name = headers.get("id")
        if name is None and version is Version.V1_0 and "destination" in headers:
            name = f"subscription/{headers['destination']}"
        if name is None and durable is None:
            required(headers, "id", "UNSUBSCRIBE")
        consumer = self.by_id.get(name) if name is not None else None
        if consumer is not None:
            self.drop(consumer)
            consumer.unsubscribe()
        elif durable is None:
            raise RefusedError.of(
                Code.NOT_FOUND, f"No subscription '{shown(name or '')}' is open on this connection."
            )
        if durable is not None:
            self._broker.delete_subscription(durable, self._host.principal)

    def drop(self, consumer: StompConsumer) -> None:
        """Forget a subscription that has ended or is about to."""
        # Its id may be another one's by now, where a transaction has kept it.
        if self.by_id.get(consumer.id) is consumer:
            del self.by_id[consumer.id]
            self._before += consumer.delivered
            self._discount(consumer)
        self._by_key.pop(consumer.key, None)

    def leave_all(self) -> None:
        """End all of them with the connection."""
        consumers = list(self.by_id.values())
        self._before = self.delivered
        self.by_id.clear()
        self._by_key.clear()
        for consumer in consumers:
            self._discount(consumer)
            consumer.leave()
        self.places.leave()

    def _discount(self, consumer: StompConsumer) -> None:
        host = self._host
        host.limits.objects.remove(Kind.CONSUMERS, host.principal.account, weight_of(consumer.id))

    def named(
        self, headers: Mapping[str, str], command: str, version: Version
    ) -> tuple[StompConsumer, list[Message]]:
        """Return what an ACK or NACK settles; raises RefusedError, then nothing is settled."""
        if version is Version.V1_2:
            text = required(headers, "id", command)
        else:
            text = required(headers, "message-id", command)
        found = self._by_key.get(text.rpartition("-")[0].encode())
        if version is Version.V1_1:
            name = required(headers, "subscription", command)
            if found is not None and found.id != name:
                raise RefusedError.of(
                    Code.NOT_FOUND,
                    f"Message '{shown(text)}' was not sent to subscription '{shown(name)}'.",
                )
        return self._settled(text, command)

    def _settled(self, text: str, command: str) -> tuple[StompConsumer, list[Message]]:
        key, _, digits = text.rpartition("-")
        consumer = self._by_key.get(key.encode())
        if consumer is not None and digits.isdecimal() and len(digits) <= _NUMBER_DIGITS:
            messages = consumer.take(int(digits))
            if messages is not None:
                return consumer, messages
        raise _unknown_delivery(text, command)

    def acknowledge_all(self, ids: Iterable[bytes]) -> RefusedError | None:
        """Settle a run of ids, those of one subscription together, up to the first that is refused.

        Only 1.2 has ACKs that are nothing but an id, and in 1.2 a refusal ends the connection.
        """
        refused: RefusedError | None = None
        current: StompConsumer | None = None
        gathered: list[Message] = []
        for raw in ids:
            key, _, digits = raw.rpartition(b"-")
            consumer = self._by_key.get(key)
            messages: list[Message] | None = None
            if consumer is not None and digits.isdigit() and len(digits) <= _NUMBER_DIGITS:
                messages = consumer.take(int(digits))
            if messages is None:
                refused = _unknown_delivery(raw.decode(), "ACK")
                break
            if consumer is not current and gathered:
                _acknowledge(current, gathered)
                gathered = []
            current = consumer
            gathered += messages
        if gathered:
            _acknowledge(current, gathered)
        return refused


def _acknowledge(consumer: StompConsumer | None, messages: list[Message]) -> None:
    assert consumer is not None
    consumer.subscription.acknowledge(messages)
    consumer.again()


def _unknown_delivery(text: str, command: str) -> RefusedError:
    return RefusedError.of(
        Code.NOT_FOUND,
        f"{command} names '{shown(text)}', which waits for no ACK here: it is unknown, settled "
        "already, or its subscription is in auto mode.",
    )
