"""What clients are told for whom there is no place, in the words of what they speak.

    STOMP    ERROR, once its CONNECT is whole
    HTTP     503 with Retry-After, once the head of its request is: a WebSocket begins so
    AMQP     nothing: its client would have to be let in first
    else     nothing

Each of them is heard out like a stranger, with the same bounds of time and bytes. Pure.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from gateway.model.errors import Refusal
from protocols.stomp.frame import error
from protocols.transport.first_bytes import Decline
from protocols.transport.sniff import Guess
from protocols.transport.strangers import Stranger
from protocols.websocket.requests import reject_for

#: Who has sent so much is told without the end of it.
_FIRST_BYTES_MAX: Final = 16_384


def turn_away(refusal: Refusal) -> Decline:
    """Return what tells a client of a refusal, by what its first bytes are."""

    def decline(guess: str, first: bytes) -> Stranger | None:
        match guess:
            case Guess.STOMP.value:
                end, answer = b"\0", error(refusal)
            case Guess.HTTP.value:
                end = b"\r\n\r\n"
                answer = reject_for(HTTPStatus.SERVICE_UNAVAILABLE, refusal).answer
            case _:
                return Stranger(guess, b"")
        whole = end in first or len(first) >= _FIRST_BYTES_MAX
        return Stranger(guess, answer) if whole else None

    return decline
