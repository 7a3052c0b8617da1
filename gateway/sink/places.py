"""Places for publications: how many have their stages open at a time.

A publication that goes on has a place. One that is held up keeps its place while nobody else wants
it; else it gives it up with its file and its rows, waits, and takes another one. So a thousand
batches that wait for room have no more files and rows in memory than a few, and others pass them.
"""

from __future__ import annotations

from typing import Final

from twisted.internet.defer import Deferred, DeferredSemaphore

#: Stages that are read at a time; each has up to two slices, and a batch of its file, in memory.
PLACES: Final = 8
#: Publications that gave way ask again about a hundred times a second, all together.
_PAUSE_EACH: Final = 0.01


class Places:
    """See the module text. `waiting` (read only): publications that gave way and pause."""

    def __init__(self, count: int = PLACES) -> None:
        self._free = DeferredSemaphore(count)
        self.waiting = 0

    def take(self) -> Deferred[DeferredSemaphore]:
        """Return what fires when there is a place, in the order of asking."""
        return self._free.acquire()

    def give(self) -> None:
        """Give a place up."""
        self._free.release()

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for a place."""
        return bool(self._free.waiting)

    def pause(self, least: float) -> float:
        """Return for how many seconds one that gave way waits before it asks again."""
        return max(least, self.waiting * _PAUSE_EACH)
