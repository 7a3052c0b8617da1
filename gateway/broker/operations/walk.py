"""Going through what a queue has on pages, as its blocks come from the disk.

    there are messages ──look──> returned, untouched, each once, in order of arrival
    the next block is on its way ──> nothing, `waits`; `wake` is called when to look again
    the end, or nothing more on disk ──> nothing, `ended`

The queue may change meanwhile. What comes later than the walk is left out, what is gone when the
walk comes there is not found, and what was read into memory before the walk came there is found
there, if it still waits.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from gateway.model.message import PAGED, Message
from gateway.queues.queue import Queue


class PageWalk:
    """See the module text; what is in memory when it begins is not its concern.

    Attributes:
        waits: the last look has found nothing, and `wake` will be called.
        ended: there is nothing more to look at.
    """

    __slots__ = ("_at", "_end", "_queue", "_wake", "ended", "waits")

    def __init__(
        self, queue: Queue, wake: Callable[[], None], *, start: int = 0, end: int | None = None
    ) -> None:
        """Go from seq `start` up to `end`, by default all that is there now."""
        self._queue = queue
        self._wake = wake
        self._end = queue.next_seq if end is None else min(end, queue.next_seq)
        self._at = start if queue.backlog is None else max(start, queue.backlog.next)
        self.waits = self.ended = False

    def look(self, count: int) -> list[Message]:
        """Return about `count` messages, or what was read back since the last look."""
        self.waits = False
        backlog = self._queue.backlog
        if backlog is None or self._at >= self._end:
            self.ended = True
            return []
        if backlog.next > self._at:
            messages = self._read_back(backlog.next)
            self._at = backlog.next
            if messages:
                return messages
        messages, self._at, _, self.waits = backlog.peek(self._at, count, self._wake)
        self.ended = not (messages or self.waits)
        return [message for message in messages if message.seq < self._end]

    def _read_back(self, below: int) -> list[Message]:
        """Return what waits in memory and would have been found on pages before."""
        queue = self._queue
        low, high = self._at, min(below, self._end)
        found = [m for m in queue.holdings() if m.flags & PAGED and low <= m.seq < high]
        return sorted(found, key=lambda message: message.seq)


def still_waits(queue: Queue) -> Callable[[Message], bool]:
    """Return what tells whether messages of a queue wait there, as it is now."""
    here = {message.seq for message in chain(queue.holdings(), queue.storing())}
    backlog = queue.backlog
    return lambda m: m.seq in here or (backlog is not None and backlog.unread(m.seq))
