"""The first bytes of a connection: which of an acceptor's protocols they are. Pure.

more bytes are needed ──> a speaker takes them
                     └──> no speaker does: the peer is a stranger, with an answer or without
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from protocols.transport.speaking import Speaker
from protocols.transport.strangers import Stranger

#: What the guess is called when the bytes are too few for one.
_MORE: Final = "more"
_TLS: Final = "TLS"

#: Says what first bytes are: `more` are needed, or the name of a protocol.
Tell = Callable[[bytes], str]
#: Returns a name and an answer for what no speaker takes, or None while more is needed.
Decline = Callable[[str, bytes], tuple[str, bytes] | None]


class FirstBytes:
    """What has come before a protocol is known.

    Attributes:
        data: all of it, for the session.
    """

    __slots__ = ("_decline", "_secure", "_speakers", "_tell", "data")

    def __init__(
        self, speakers: tuple[Speaker, ...], tell: Tell, decline: Decline, *, secure: bool
    ) -> None:
        """`secure`: the bytes come out of TLS, in which nobody is told of TLS in the clear."""
        self._speakers = speakers
        self._tell = tell
        self._decline = decline
        self._secure = secure
        self.data = b""

    @property
    def only(self) -> Speaker | None:
        """The one speaker of an acceptor that has no other: it needs no first bytes."""
        return self._speakers[0] if len(self._speakers) == 1 else None

    def take(self, data: bytes) -> Speaker | Stranger | None:
        """Return the speaker that takes all that came, or a stranger; None: more must come."""
        self.data += data
        guess = self._tell(self.data)
        if guess == _MORE:
            return None
        for speaker in self._speakers:
            if speaker.guess == guess:
                return speaker
        declined = self._decline(guess, self.data)
        if declined is None:
            return None
        name, answer = declined
        return Stranger(name, b"" if self._secure and guess == _TLS else answer)
