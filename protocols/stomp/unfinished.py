"""The bytes of a frame that is not complete, and what would make another look at them worth it.

    waits for    worth a look
    LINE         when a line end or a NUL comes, or so many bytes are here
    NUL          when a NUL comes, or so many bytes are here
    BYTES        when so many bytes are here

So a frame that comes in many small pieces is scanned once, and not once for every piece. The number
of bytes is the size at which a limit is passed, or of the whole frame where that is known. It knows
no frame; it also keeps what comes while nothing is to be parsed. Pure.
"""

from __future__ import annotations

from enum import Enum
from typing import assert_never


class Wanted(Enum):
    """What a partial frame waits for; see the module text."""

    LINE = "line"
    NUL = "nul"
    BYTES = "bytes"


class Unfinished:
    """That of one connection.

    Attributes:
        kept: the bytes.
        wanted: see the module text.
        need: the number of bytes that is meant there.
    """

    __slots__ = ("kept", "need", "wanted")

    def __init__(self) -> None:
        self.kept = bytearray()
        self.wanted = Wanted.BYTES
        self.need = 0

    def want(self, what: Wanted, need: int) -> None:
        """Set what the frame that is kept waits for."""
        assert need > 0, "a frame that needs nothing more is complete"
        self.wanted = what
        self.need = need

    def join(self, data: bytes) -> bytes | None:
        """Add what came; returns all that is kept, and gives it up, when it is worth a look."""
        self.kept += data
        return self.take() if self._worth_a_look(data) else None

    def take(self) -> bytes:
        """Return all that is kept, and give it up."""
        whole = bytes(self.kept)
        self.kept.clear()
        return whole

    def drop(self) -> None:
        """Give up all that is kept, and its memory."""
        self.kept = bytearray()

    def _worth_a_look(self, data: bytes) -> bool:
        if len(self.kept) >= self.need:
            return True
        match self.wanted:
            case Wanted.LINE:
                return b"\0" in data or b"\n" in data
            case Wanted.NUL:
                return b"\0" in data
            case Wanted.BYTES:
                return False
            case _:
                assert_never(self.wanted)
