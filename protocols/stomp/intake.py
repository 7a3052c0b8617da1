"""Whether a connection is read: the reasons that keep it from being read now, and its parser.

    LOGIN    a password is being checked
    ROOM     an address or the disk is full, and no ACK of the peer's could make room
    TURN     the others have their turn first; the socket may be read meanwhile

Reasons come and go each on its own, so that every set of ROOM and TURN happens: they are no states
of one machine. The parser is halted while there is one. The intake knows no session: the part that
finds a reason brings it, and the session asks what the reasons come to.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from protocols.stomp.parser import Mode, Parser


class Pause(Enum):
    """A reason not to go on reading; see the module text."""

    LOGIN = "login"
    ROOM = "room"
    TURN = "turn"


#: Of nearly all connections, which share it: a set costs 216 bytes.
_NONE: Final[frozenset[Pause]] = frozenset()


class Intake:
    """That of one connection.

    Attributes:
        held_up: the socket is not to be read now, for what the peer has sent.
        behind: what has come waits for another turn.
    """

    __slots__ = ("_parser", "_pauses", "behind", "held_up")

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._pauses = _NONE
        self.held_up = self.behind = False

    def pause(self, why: Pause) -> None:
        """Parse nothing until this reason and all others are gone."""
        if self._parser.mode is Mode.DROPPED:
            return  # the connection was ended by the call that found the reason
        self._pauses |= {why}
        self._parser.halt()
        self._sum_up()

    def resume(self, why: Pause) -> None:
        """This reason is gone, if it was there; go on if it was the last one."""
        if why not in self._pauses:
            return
        assert self._parser.mode is Mode.HALTED, "there is a reason"
        self._pauses = self._pauses - {why} or _NONE
        self._sum_up()
        if not self._pauses:
            self._parser.resume()

    def end(self) -> None:
        """The connection has ended: nothing is read any more, for whatever reason."""
        self._pauses = _NONE
        self._sum_up()
        self._parser.drop()

    def _sum_up(self) -> None:
        """Say what the reasons come to: asked for in every turn, other than the reasons."""
        self.behind = Pause.TURN in self._pauses
        self.held_up = not self._pauses <= {Pause.TURN}
