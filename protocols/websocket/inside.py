"""What is inside of a WebSocket: the subprotocol has told it, or the first bytes do. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wsproto.frame_protocol import CloseReason

from protocols.transport.sniff import Guess, sniff
from protocols.transport.speaking import PeerFacts, Session, Speaker
from protocols.websocket.closing import Closing
from protocols.websocket.frames import BINARY_ONLY

_TEXTLESS: Final = Guess.AMQP.value
#: Of output that may be cut anywhere: clients on Netty take no larger frame, where nobody has told
#: them.
PIECE_BYTES_MAX: Final = 65_536


class Inside:
    """That of one connection.

    Attributes:
        first: payload that has told no protocol yet.
    """

    __slots__ = ("_facts", "_speakers", "_told", "first")

    def __init__(self, speakers: Mapping[str, Speaker], facts: PeerFacts, told: str | None) -> None:
        """`told` is what the subprotocol says."""
        self._speakers = speakers
        self._facts = facts
        self._told = told
        self.first = b""

    def find(self, payload: bytes, *, text: bool) -> Session | Closing | None:
        """Return a session for `first`, which has all payload by now, or why there is none.

        `text` is whether some of it came as text.
        """
        self.first += payload
        name = self._told
        if name is None:
            guess = sniff(self.first)
            if guess is Guess.MORE:
                return None
            name = guess.value
        speaker = self._speakers.get(name)
        if speaker is None:
            spoken = " and ".join(self._speakers)
            said = f"The first bytes are those of no protocol that is spoken here: {spoken}."
            return Closing(CloseReason.UNSUPPORTED_DATA.value, said)
        if text and name == _TEXTLESS:
            return Closing(CloseReason.UNSUPPORTED_DATA.value, BINARY_ONLY)
        self._told = name
        return speaker.build(self._facts)

    @property
    def binary_only(self) -> bool:
        """Whether it is known that no text may come."""
        return self._told == _TEXTLESS
