"""Which queue has something to do at what time, and the one alarm that all of them share. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from gateway.queues.queue import Queue


class Timetable:
    """Queues by the time at which they want to be dispatched.

    Attributes:
        alarm: asked to have the gateway called at a time (ms of broker time) or soon after; an
            earlier time replaces a later one.
    """

    __slots__ = ("_entries", "_numbers", "_planned", "alarm")

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, Queue]] = []
        self._numbers = count()
        self._planned: dict[int, int] = {}  # by queue id: the time that counts
        self.alarm: Callable[[int], None] = _no_alarm

    def wake(self, queue: Queue, at_ms: int) -> None:
        """Plan a queue; only its earliest time counts."""
        known = self._planned.get(queue.queue_id)
        if known is not None and known <= at_ms:
            return
        self._planned[queue.queue_id] = at_ms
        heapq.heappush(self._entries, (at_ms, next(self._numbers), queue))
        if self._entries[0][0] == at_ms:
            self.alarm(at_ms)

    def take(self, now_ms: int) -> list[Queue]:
        """Return the queues whose time has come, and set the alarm for the next one."""
        entries = self._entries
        ripe: list[Queue] = []
        while entries and entries[0][0] <= now_ms:
            at_ms, _, queue = heapq.heappop(entries)
            if self._planned.get(queue.queue_id) == at_ms:
                del self._planned[queue.queue_id]
                ripe.append(queue)
        if entries:
            self.alarm(entries[0][0])
        return ripe


def _no_alarm(at_ms: int) -> None:
    """Stand for a clock that is not there yet."""
