"""Broker time: read once a turn, so that all that happens in a turn happens at one time. Pure."""

from __future__ import annotations

from collections.abc import Callable

from gateway.model.turn import Turn


class TurnClock:
    """See the module text. `at_ms`: ms since the epoch when it was read last."""

    __slots__ = ("_read_ms", "_turn", "at_ms")

    def __init__(self, turn: Turn, read_ms: Callable[[], int]) -> None:
        self._turn = turn
        self._read_ms = read_ms
        self.at_ms = read_ms()

    def now_ms(self) -> int:
        """Return broker time."""
        if not self._turn.begun:
            self.at_ms = self._read_ms()
        return self.at_ms

    def read(self) -> None:
        """Begin a turn, or what is done outside of one."""
        self.at_ms = self._read_ms()
