"""Deadlines of all connections of a reactor, on one timer of its."""

from __future__ import annotations

import heapq
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime


class Ticking(Protocol):
    """What has deadlines."""

    def tick(self, deadline: float) -> None:
        """Do what is due; a deadline that a sooner one replaced is stale."""


class Timers:
    """One reactor timer for all connections: a heap of deadlines, one entry a connection."""

    __slots__ = ("_call", "_heap", "_serial", "clock")

    def __init__(self, clock: IReactorTime) -> None:
        self.clock = clock
        self._heap: list[tuple[float, int, Ticking]] = []
        self._serial = 0
        self._call: IDelayedCall | None = None

    def now(self) -> float:
        return self.clock.seconds()

    def add(self, deadline: float, one: Ticking) -> None:
        """Call `one.tick()` at `deadline`."""
        self._serial += 1
        heapq.heappush(self._heap, (deadline, self._serial, one))
        self._arm()

    def _arm(self) -> None:
        if not self._heap:
            return
        deadline = self._heap[0][0]
        if self._call is not None and self._call.active():
            if self._call.getTime() <= deadline:
                return
            self._call.cancel()
        self._call = self.clock.callLater(max(0.0, deadline - self.now()), self._fire)

    def _fire(self) -> None:
        now = self.now()
        while self._heap and self._heap[0][0] <= now:
            deadline, _, one = heapq.heappop(self._heap)
            one.tick(deadline)
        self._arm()
