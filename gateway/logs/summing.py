"""Events that a stranger can cause at will: some are told whole, the rest counted and summed.

    quiet ──event──> told whole, up to `whole` in a period
          ──more───> counted; one sum at the end of each period, until one passes without any

So a log says who it is and how many they are, and cannot be filled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.internet.interfaces import IReactorTime

#: Told whole in a period.
WHOLE: Final = 10
PERIOD_SECONDS: Final = 60.0


class Summed:
    """One kind of event. `tell(count, seconds)` says how many were not told whole.

    Attributes:
        summing: events are only counted now.
    """

    __slots__ = ("_clock", "_count", "_running", "_seconds", "_tell", "_whole", "summing")

    def __init__(
        self,
        clock: IReactorTime,
        tell: Callable[[int, float], None],
        *,
        whole: int = WHOLE,
        seconds: float = PERIOD_SECONDS,
    ) -> None:
        self._clock = clock
        self._tell = tell
        self._whole = whole
        self._seconds = seconds
        self._count = 0
        self._running = False
        self.summing = False

    def whole(self) -> bool:
        """Count an event; returns whether it is to be told whole."""
        if not self._running:
            self._running = True
            self._clock.callLater(self._seconds, self._end)
        if not self.summing and self._count < self._whole:
            self._count += 1
            return True
        if not self.summing:
            self.summing = True
            self._count = 0
        self._count += 1
        return False

    def _end(self) -> None:
        """A period is over."""
        count, self._count = self._count, 0
        self._running = False
        if not self.summing:
            return
        if count:
            self._tell(count, self._seconds)
            self._running = True
            self._clock.callLater(self._seconds, self._end)
        else:
            self.summing = False
