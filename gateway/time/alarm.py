"""One timer for all that happens at a time of the broker's clock.

The broker's clock follows the machine's, which may be set, and goes on while the process is
stopped; the reactor's does neither. So no wait is longer than a second before the broker looks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

_WAIT_MAX_SECONDS: Final = 1.0
_WAIT_MIN_SECONDS: Final = 0.001


class Alarm:
    """Calls `ring` when the broker's clock shows a time, or soon after.

    `ring` sets the alarm again for what is still to come.
    """

    def __init__(
        self, reactor: IReactorTime, now_ms: Callable[[], int], ring: Callable[[], object]
    ) -> None:
        self._reactor = reactor
        self._now_ms = now_ms
        self._ring = ring
        self._call: IDelayedCall | None = None
        self._at_ms = 0

    def set(self, at_ms: int) -> None:
        """Ring at `at_ms`, unless it rings earlier anyway."""
        if self._call is not None:
            if self._at_ms <= at_ms:
                return
            self._call.cancel()
        self._at_ms = at_ms
        wait = (at_ms - self._now_ms()) / 1000
        self._call = self._reactor.callLater(
            max(_WAIT_MIN_SECONDS, min(wait, _WAIT_MAX_SECONDS)), self._fire
        )

    def _fire(self) -> None:
        self._call = None
        self._ring()

    def stop(self) -> None:
        """Ring no more."""
        if self._call is not None:
            self._call.cancel()
            self._call = None
