"""The ends of what connections have logged in with: tokens, certificates. One heap for all. Pure.

    watched ──its date has come──> ended: all of them at once ──in slices──> told, one by one
       └──renewed──> watched until the later date       └──forgotten before──> nobody is told

That something has ended is one flag of its principal, which deliveries and reads look at: they stop
in the turn in which the date has come, however many end with it. To close a connection costs more,
so that this is done in slices, between which everybody else has a turn.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Final

from gateway.model.principal import Principal

#: Of one slice. Closing what it has told comes on top, at the end of the same turn.
SLICE_SECONDS: Final = 0.004
#: How often it is to be looked.
END_LOOK_SECONDS: Final = 0.2
_SPARE: Final = 64


class Ends:
    """See the module text."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        seconds: Callable[[], float],
        later: Callable[[Callable[[], None]], None],
    ) -> None:
        """`now_ms` is the date; `seconds` a clock for slices; `later` calls in another turn."""
        self._now_ms = now_ms
        self._seconds = seconds
        self._later = later
        self._watched: dict[Principal, tuple[Callable[[], None], Callable[[], None]]] = {}
        self._heap: list[tuple[int, int, Principal]] = []
        self._pushed = 0
        self._due: deque[Principal] = deque()
        self._going = False

    def __len__(self) -> int:
        return len(self._watched)

    def watch(self, principal: Principal, ended: Callable[[], None]) -> None:
        """Call `ended`, on a later turn, when the principal's end has come, renewed or not."""
        if principal in self._watched:
            return

        def changed() -> None:
            self._push(principal)

        self._watched[principal] = ended, changed
        principal.changed.append(changed)
        self._push(principal)

    def forget(self, principal: Principal) -> None:
        """It is of no interest any more."""
        found = self._watched.pop(principal, None)
        if found is not None:
            principal.changed.remove(found[1])
            # Entries that nobody waits for any more go when they are most of the heap.
            if len(self._heap) > 2 * len(self._watched) + _SPARE:
                self._heap = [one for one in self._heap if self._counts(one)]
                heapq.heapify(self._heap)

    def look(self) -> None:
        """Mark what has ended by now, and begin to tell."""
        now, heap = self._now_ms(), self._heap
        while heap and heap[0][0] <= now:
            entry = heapq.heappop(heap)
            if self._counts(entry):
                entry[2].ended = True
                self._due.append(entry[2])
        if self._due and not self._going:
            self._going = True
            self._tell()

    def _counts(self, entry: tuple[int, int, Principal]) -> bool:
        """Whether an entry of the heap is the latest of its principal."""
        until_ms, _, principal = entry
        return principal in self._watched and principal.until_ms == until_ms

    def _push(self, principal: Principal) -> None:
        if principal.until_ms is not None:
            self._pushed += 1
            heapq.heappush(self._heap, (principal.until_ms, self._pushed, principal))

    def _tell(self) -> None:
        until = self._seconds() + SLICE_SECONDS
        due = self._due
        while due:
            principal = due.popleft()
            found = self._watched.get(principal)
            if found is not None:
                self.forget(principal)
                found[0]()
            if self._seconds() >= until:
                break
        if due:
            self._later(self._tell)
        else:
            self._going = False
