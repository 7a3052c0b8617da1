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
#: A peer that has been silent for so long is asked for a sign of life: the browser answers it,
#: also for a tab whose timers it runs once a minute only.
PING_SECONDS: Final = 20.0
#: What may come while what is inside wants to be told no more: heart-beats, and frames that a
#: client was about to send. Above it nothing is read; a read has more, and is kept as over TCP.
HELD_BYTES_MAX: Final = 16_384
#: How long a peer may take to say Close after we did.
CLOSE_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSocketLimits:
    """The settings of an acceptor for WebSocket.

    Attributes:
        message_bytes_max: of one message, all its frames together.
        origins: pages that may connect beside those of the same origin and of loopback, as
            browsers write them: `https://shop.example`, in lower case; `*` is any.
        open_to_all: clients need no login, so that a name which somebody else's DNS server points
            at this gateway proves nothing.
    """

    message_bytes_max: int = 1 << 20
    origins: frozenset[str] = frozenset()
    open_to_all: bool = False
