"""Silence on a connection, both ways [AMQP 2.4.5]. Pure.

The gateway gives a peer up after `idle_ms`, and lets the peer wait for half of the idle-time-out in
its open.
"""

from __future__ import annotations

from typing import Final

#: The shortest time until the next look, for clocks that are not exact.
_LOOK_SECONDS_MIN: Final = 0.05


class Pulse:
    """That of one connection. Times are seconds of the shell's clock.

    Attributes:
        last_in: when the peer was heard last, or could not be.
        last_out: when something was written last.
        remote_idle: how long the peer waits for us; 0 for ever.
    """

    __slots__ = ("_idle", "last_in", "last_out", "remote_idle")

    def __init__(self, idle_ms: int) -> None:
        self._idle = idle_ms / 1000
        self.last_in = self.last_out = self.remote_idle = 0.0

    def is_dead(self, now: float) -> bool:
        """Whether the peer has been silent for too long."""
        return bool(self._idle) and now >= self.last_in + self._idle

    def is_due(self, now: float) -> bool:
        """Whether the peer is to hear something, be it an empty frame."""
        return bool(self.remote_idle) and now >= self.last_out + self.remote_idle / 2

    def deadlines(self, now: float) -> list[float]:
        """Return when to look again, once what was due is written."""
        looks = []
        if self._idle:
            looks.append(max(self.last_in + self._idle, now + _LOOK_SECONDS_MIN))
        if self.remote_idle:
            last_out = now if self.is_due(now) else self.last_out
            looks.append(last_out + self.remote_idle / 2)
        return looks
