"""Broker time: what expiry, delays and scheduled deliveries go by. Pure; both clocks are passed in.

The wall clock may be set, by people and by NTP; a monotonic clock may not, but knows no date.
Broker time is the monotonic clock plus an offset that follows the wall clock:

    wall ahead, up to STEP_MAX      followed at once
    wall behind, up to STEP_MAX     broker time goes at half the speed until they agree
    a larger step either way        distrusted: broker time goes on as if it had not been; told,
                                    and taken over after TRUST_SECONDS, or when an operator says so

So an accident of NTP expires nothing, and no wait is negative. Broker time goes back only when a
large step back is taken over: otherwise one wrong year would count for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

_SECOND: Final = 1_000_000_000
#: Larger steps than that are no correction of a clock that runs a little wrong.
STEP_MAX_SECONDS: Final = 3600
#: Longer than NTP needs to see that it was wrong.
TRUST_SECONDS: Final = 600


class ClockChange(Enum):
    """What a reading has found out."""

    DISTRUSTED = "distrusted"  # the wall clock has made a large step
    RETURNED = "returned"  # it is back where it was before the step
    FOLLOWED = "followed"  # the step is taken over


class BrokerClock:
    """See the module text. Both clocks are read in nanoseconds.

    Attributes:
        on_change: told what has changed, and how far the wall clock was ahead, in seconds.
    """

    __slots__ = ("_last", "_monotonic", "_offset", "_since", "_step", "_wall", "on_change")

    def __init__(self, *, wall: Callable[[], int], monotonic: Callable[[], int]) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._last = monotonic()
        self._offset = wall() - self._last
        self._since: int | None = None  # when the step was first seen, while it is distrusted
        self._step = 0
        self.on_change: Callable[[ClockChange, float], None] = _nothing

    def now_ms(self) -> int:
        """Return broker time in ms since 1970."""
        now = self._monotonic()
        step = self._wall() - now - self._offset
        if step or self._since is not None:
            self._judge(step, now)
        self._last = now
        return (now + self._offset) // 1_000_000

    @property
    def step_seconds(self) -> float:
        """How far the wall clock is ahead while it is distrusted; 0: it is trusted."""
        return 0.0 if self._since is None else self._step / _SECOND

    @property
    def trusted_in(self) -> float:
        """Seconds until the wall clock is followed again; 0: it is."""
        if self._since is None:
            return 0.0
        return max(0.0, TRUST_SECONDS - (self._monotonic() - self._since) / _SECOND)

    def trust(self) -> bool:
        """Take over the wall clock's time now; False when it is followed anyway."""
        self.now_ms()
        if self._since is None:
            return False
        self._follow()
        return True

    def _judge(self, step: int, now: int) -> None:
        if abs(step) <= STEP_MAX_SECONDS * _SECOND:
            if self._since is not None:
                self._since = None
                self.on_change(ClockChange.RETURNED, step / _SECOND)
            # Never by more than half of what has passed, so that time does not stand still.
            self._offset += max(step, (self._last - now) // 2)
            return
        moved = abs(step - self._step) > STEP_MAX_SECONDS * _SECOND
        if self._since is None or moved:
            self._since, self._step = now, step
            self.on_change(ClockChange.DISTRUSTED, step / _SECOND)
            return
        self._step = step
        if now - self._since >= TRUST_SECONDS * _SECOND:
            self._follow()

    def _follow(self) -> None:
        self._offset += self._step
        self._since = None
        self.on_change(ClockChange.FOLLOWED, self._step / _SECOND)


def _nothing(change: ClockChange, seconds: float) -> None:
    """Stand for whoever does not want to know."""
