"""The code and the reason of a Close frame, ours and the peer's [RFC 6455 7.4]. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from wsproto.frame_protocol import CloseReason

from gateway.model.peers import Cause

#: By why a connection ends; what is not here is a policy's doing.
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


def closing_for(cause: Cause, text: str = "") -> Closing:
    """Return what we say because of `cause`; its own word where there is no text."""
    code = _CODES.get(cause, CloseReason.POLICY_VIOLATION)
    return Closing(code.value, text or cause.value)
