"""How late the reactor comes to what is due: ten calls a second, and by how much each missed."""

from __future__ import annotations

from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from gateway.model.histogram import Histogram

_SECONDS: Final = 0.1


class ReactorLag:
    """Counts in the histogram `late`; `start` and `stop` it."""

    def __init__(self, clock: IReactorTime, late: Histogram) -> None:
        self._clock = clock
        self.late = late
        self._due = 0.0
        self._call: IDelayedCall | None = None

    def start(self) -> None:
        """Look from now on."""
        self._due = self._clock.seconds() + _SECONDS
        self._call = self._clock.callLater(_SECONDS, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None

    def _look(self) -> None:
        self.late.observe(max(0.0, self._clock.seconds() - self._due))
        self.start()
