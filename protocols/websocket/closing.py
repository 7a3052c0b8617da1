"""The code and the reason of a Close frame, ours and the peer's [RFC 6455 7.4]. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from wsproto.frame_protocol import CloseReason

from gateway.model.peers import Cause, Ending

#: By why a connection ends; what is not here is a policy's doing, or passes with time.
_CODES: Final[Mapping[Cause, CloseReason]] = {
    Cause.CLIENT: CloseReason.NORMAL_CLOSURE,
    Cause.STOPPING: CloseReason.GOING_AWAY,
    Cause.PROTOCOL_ERROR: CloseReason.PROTOCOL_ERROR,
    Cause.STORE_FAILED: CloseReason.INTERNAL_ERROR,
    # What waiting helps against.
    Cause.FULL: CloseReason.TRY_AGAIN_LATER,
}


class Closing(NamedTuple):
    """What a Close says; no code where none was given."""

    code: int | None
    reason: str

    @property
    def shown(self) -> str:
        """It as the log has it."""
        code = "without a code" if self.code is None else str(self.code)
        return f"WebSocket close {code} {self.reason}".rstrip()


def closing_for(ending: Ending) -> Closing:
    """Return what we say when what is inside has ended: a word, never what it has told its peer.

    The word is the log's cause, or the code that the peer was refused with.
    """
    told = ending.code if ending.cause in (Cause.REFUSED, Cause.FULL) else None
    return say(ending, ending.cause.value if told is None else told.value)


def say(ending: Ending, words: str) -> Closing:
    """Return a Close with these words, and with how long to wait, where waiting helps.

    A page may see no more of the end than this.
    """
    seconds = ending.retry_after
    usual = CloseReason.POLICY_VIOLATION if seconds is None else CloseReason.TRY_AGAIN_LATER
    reason = words if seconds is None else f"{words.rstrip('.')}, retry-after {seconds}"
    return Closing(_CODES.get(ending.cause, usual).value, reason)
