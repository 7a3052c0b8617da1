"""Deadlines of all connections of a reactor, on one timer of its."""

from __future__ import annotations

import heapq
from typing import Final, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

#: So many entries are not looked through for those of connections that are gone.
_STALE_MAX: Final = 1000


class Ticking(Protocol):
    """What has deadlines."""

    def tick(self, deadline: float) -> None:
        """Do what is due; a deadline that a sooner one replaced is stale."""


class Timers:
    """One reactor timer for all connections: a heap of deadlines, a few entries a connection.

    The heap has the connections' numbers alone, so that one that is gone is not held until the last
    of its deadlines has passed.
    """

    __slots__ = ("_call", "_heap", "_last", "_there", "clock")

    def __init__(self, clock: IReactorTime) -> None:
        self.clock = clock
        self._heap: list[tuple[float, int]] = []
        self._there: dict[int, Ticking] = {}
        self._last = 0
        self._call: IDelayedCall | None = None

    def now(self) -> float:
        return self.clock.seconds()

    def join(self, one: Ticking) -> int:
        """Return the number under which `one` has deadlines from now on."""
        self._last += 1
        self._there[self._last] = one
        return self._last

    def add(self, deadline: float, number: int) -> None:
        """Call `tick()` of the one with that number at `deadline`; one that has left has none."""
        if number not in self._there:
            return
        heapq.heappush(self._heap, (deadline, number))
        self._arm()

    def leave(self, number: int) -> None:
        """Forget the one with that number."""
        self._there.pop(number, None)
        if len(self._heap) > _STALE_MAX and len(self._heap) > 4 * len(self._there):
            self._heap = [entry for entry in self._heap if entry[1] in self._there]
            heapq.heapify(self._heap)

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
            deadline, number = heapq.heappop(self._heap)
            one = self._there.get(number)
            if one is not None:
                one.tick(deadline)
        self._arm()
