"""Work that is done again and again, each at a distance of its own.

start ──> due ──> done ──the same seconds later──> due ...
                    └──it failed──> told, and never done again
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure


class Recurring:
    """See the module text. Lives on the reactor's thread."""

    def __init__(self, clock: IReactorTime, failed: Callable[[Failure], None]) -> None:
        """`failed` is told of work that raised an error."""
        self._clock = clock
        self._failed = failed
        self._loops: list[LoopingCall] = []
        self._paced: dict[str, LoopingCall] = {}

    def start(self, work: Callable[[], object], seconds: float, key: str = "") -> LoopingCall:
        """Do this every so many seconds, the first time after so many; 0: not before `pace`.

        `key` is what `pace` knows it by.
        """
        loop = LoopingCall(work)
        loop.clock = self._clock
        self._loops.append(loop)
        if key:
            self._paced[key] = loop
        self._begin(loop, seconds)
        return loop

    def pace(self, key: str, seconds: float) -> None:
        """Do what `key` names at another distance; 0 or less: no more."""
        loop = self._paced[key]
        if loop.running:
            loop.stop()
        self._begin(loop, seconds)

    def _begin(self, loop: LoopingCall, seconds: float) -> None:
        if seconds > 0:
            loop.start(seconds, now=False).addErrback(self._failed)

    def stop(self, *, but: LoopingCall | None = None) -> None:
        """End all of it; `but` goes on."""
        for loop in self._loops:
            # One that failed has stopped: it is why the others are stopped now.
            if loop.running and loop is not but:
                loop.stop()
