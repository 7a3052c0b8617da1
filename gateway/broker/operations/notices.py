"""Notices: messages of the gateway's own to whoever listens at `activemq.notifications`.

One message for each event: Artemis' names as application properties, and the same facts under
plain names as a JSON object, since no name that starts with `_AMQ_` passes to STOMP. It is sent
only while that address has a queue: who wants notices subscribes first, for example to
`/topic/activemq.notifications`. A notice is not durable, and nobody waits for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from gateway.broker.directory.address import Address
from gateway.broker.ports.turns import Clock
from gateway.broker.pressure.slow import SlowConsumer
from gateway.broker.routing.routing import Routing
from gateway.model.address import NOTIFICATIONS
from gateway.model.amqp_types import Symbol, encode
from gateway.model.errors import RefusedError
from gateway.model.message import DEFAULT_PRIORITY

#: properties, application-properties and data [AMQP 3.2.4-6] before their values.
_PROPERTIES: Final = b"\x00\x53\x73"
_APPLICATION: Final = b"\x00\x53\x74"
_DATA: Final = b"\x00\x53\x75"
#: Six properties come before content-type.
_JSON: Final = [None] * 6 + [Symbol("application/json")]


class Notices:
    """Sends notices."""

    __slots__ = ("_addresses", "_clock", "_routing")

    def __init__(self, addresses: Mapping[str, Address], routing: Routing, clock: Clock) -> None:
        self._addresses = addresses  # by name
        self._routing = routing
        self._clock = clock

    def consumer_slow(self, found: SlowConsumer) -> None:
        """Tell of a slow consumer."""
        who = found.who
        self._send(
            "CONSUMER_SLOW",
            {
                "Address": found.address,
                "RoutingName": found.queue,
                "ConsumerCount": found.consumers,
                "ConsumerName": who.name,
                "ConnectionName": who.connection,
                "RemoteAddress": who.remote,
                "Protocol_Name": who.protocol,
                "User": who.user,
            },
        )

    def _send(self, kind: str, facts: dict[str, str | int | None]) -> None:
        address = self._addresses.get(NOTIFICATIONS)
        if address is None or not address.queues:
            return
        told = {"NotifType": kind, "NotifTimestamp": self._clock.now_ms(), **facts}
        body = b"".join(
            (
                _PROPERTIES + encode(_JSON),
                _APPLICATION + encode({f"_AMQ_{n}": v for n, v in told.items() if v is not None}),
                _DATA + encode(json.dumps(_plain(told)).encode()),
            )
        )
        try:
            self._routing.internal(NOTIFICATIONS).send_copy(body, DEFAULT_PRIORITY)
        except RefusedError:
            return  # the address went meanwhile: nobody listens


def _plain(facts: dict[str, str | int | None]) -> dict[str, str | int | None]:
    """Return the facts under the names of our own API: `ConsumerCount` is `consumerCount`."""
    return {(n[0].lower() + n[1:]).replace("_N", "N"): v for n, v in facts.items()}
