"""What a WebSocket connection may have, and who may come from where. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Browsers send cookies of up to 4 KiB each; what is longer than this is no browser's.
HEAD_BYTES_MAX: Final = 16_384
#: A browser's handshake has about fifteen.
HEADERS_MAX: Final = 100
#: Frames of one message. Whoever streams a large one sends frames of a few KiB at least.
FRAMES_MAX: Final = 1024
#: As long as the first bytes of a connection may take without WebSocket: for the handshake, and
#: for the first bytes behind it.
FIRST_BYTES_SECONDS: Final = 10.0
#: Ping and Pong frames that a peer may send at once, and how many are forgotten in a second.
#: Whoever measures a way sends a few in a second, and so does who was not read from for long.
CONTROLS_MAX: Final = 1000
CONTROLS_A_SECOND: Final = 10.0
#: What may come while what is inside wants to be told no more: heart-beats, and frames that a
#: client was about to send. Above it nothing is read; a read has more, and is kept as over TCP.
HELD_BYTES_MAX: Final = 16_384
#: How long a peer may take to say Close after we did, or to end a request that is refused.
CLOSE_SECONDS: Final = 2.0
#: What is read of that, and dropped.
REFUSED_BYTES_MAX: Final = 16 << 20


#: RabbitMQ's, Artemis', Azure's, and what anybody would try.
PATHS: Final = ("/", "/ws", "/stomp", "/amqp", "/$servicebus/websocket")
#: Where the HTTP API has the others.
MANAGEMENT_PATHS: Final = ("/stomp", "/amqp")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSocketLimits:
    """The settings of a listener for WebSocket.

    Attributes:
        message_bytes_max: of one message, all its frames together.
        origins: pages that may connect beside those of the same origin and of loopback, as
            browsers write them: `https://shop.example`, in lower case; `*` is any.
        open_to_all: clients need no login, so that a name which somebody else's DNS server points
            at this gateway proves nothing.
        origins_key: the setting of `origins`.
        ping_seconds: a peer that was silent for so long is asked for a sign of life, which a
            browser gives also for a tab whose timers it runs once a minute only; 0 never.
        deflate: permessage-deflate is agreed to.
        paths: where it is served.
        hosts: names that a request's Host may have beside loopback's and our own address, in lower
            case; None: any.
        hosts_key: the setting of `hosts`.
        token_cookie: a cookie of this name may hold the token of a page; empty: none.
    """

    message_bytes_max: int = 1 << 20
    origins: frozenset[str] = frozenset()
    open_to_all: bool = False
    origins_key: str = "allowed-origins"
    ping_seconds: float = 20.0
    deflate: bool = False
    paths: tuple[str, ...] = PATHS
    hosts: frozenset[str] | None = None
    hosts_key: str = "allowed-hosts"
    token_cookie: str = ""
