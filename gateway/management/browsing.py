"""What a browse over HTTP shows: what waits in a queue, in which state, and nothing that is late.

    ready       in delivery order
    paged       on page files, in order of arrival
    scheduled   by the time at which they are due

What has expired is left out though no scan has found it yet. What is on pages comes when the disk
has given it; what has left the queue meanwhile is not shown. Reads the core, changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from gateway.broker import Gateway
from gateway.broker.operations.walk import PageWalk, still_waits
from gateway.model.message import DURABLE, EXPIRES, PAGED, Message
from gateway.queues.queue import Queue

#: A message and the state that it is in.
Shown = tuple[Message, str]


def waiting(queue: Queue, now_ms: int) -> Iterator[Message]:
    """Go through what is in memory and has not expired."""
    return filter(alive(now_ms), queue.holdings())


def waiting_count(queue: Queue) -> int:
    """Return how many messages wait: ready, on pages, for their time; not what consumers hold."""
    return queue.ready_count + queue.paged_count + queue.scheduled_count


class Window:
    """Some of the messages of a queue, by place, as it was when it was looked at.

    What has expired on pages takes a place, and so does what cannot be read, so that places there
    need no reading of what is before.
    """

    def __init__(self, queue: Queue, offset: int, limit: int, now_ms: int) -> None:
        """Look for up to `limit` messages from place `offset` on."""
        self._alive = living = alive(now_ms)
        ready: Iterator[Message] = islice(queue.holdings(), queue.ready_count)
        scheduled: Iterator[Message] = islice(queue.holdings(), queue.ready_count, None)
        before = queue.ready_count
        if queue.any_flags & EXPIRES:
            before = sum(map(living, islice(queue.holdings(), queue.ready_count)))
            ready, scheduled = filter(living, ready), filter(living, scheduled)
        self._found = list(islice(ready, offset, offset + limit))
        offset = max(0, offset - before)
        left = limit - len(self._found)
        self._paged = max(0, min(left, queue.paged_count - offset))
        self._start = 0
        if self._paged and queue.backlog is not None:
            self._start = queue.backlog.skip(offset)
        left -= self._paged
        offset = max(0, offset - queue.paged_count)
        self._scheduled = list(islice(scheduled, offset, offset + left))
        self._queue = queue
        self._walk: PageWalk | None = None
        self._done: Callable[[list[Message]], None] = _forget

    def read(self, done: Callable[[list[Message]], None]) -> None:
        """Call `done` with the messages, now or when their pages were read."""
        self._done = done
        if self._paged:
            self._walk = PageWalk(self._queue, self._go_on, start=self._start)
        self._go_on()

    def cancel(self) -> None:
        """Read nothing more."""
        self._paged = 0
        self._done = _forget

    def _go_on(self) -> None:
        while self._paged and self._walk is not None:
            found = self._walk.look(self._paged)[: self._paged]
            self._paged -= len(found)
            self._found += filter(self._alive, found)
            if self._walk.waits:
                return
            if self._walk.ended:
                break
        done, self._done = self._done, _forget
        done(self._found + self._scheduled)


def states(queue: Queue) -> Callable[[Message], str]:
    """Return what tells the state of messages, as it is now."""
    later: set[int] = set()
    if queue.scheduled_count:
        later.update(m.seq for m in islice(queue.holdings(), queue.ready_count, None))
    backlog = queue.backlog

    def state(message: Message) -> str:
        if message.seq in later:
            return "scheduled"
        paged = message.flags & PAGED and backlog is not None and backlog.unread(message.seq)
        return "paged" if paged else "ready"

    return state


def shown(queue: Queue, found: list[Message], now_ms: int, *, at_once: bool = False) -> list[Shown]:
    """Return those of these that still wait, each once, with the state that it is in now.

    `at_once`: nothing has happened since they were found.
    """
    state = states(queue)
    if at_once:
        return [(message, state(message)) for message in found]
    waits, living = still_waits(queue), alive(now_ms)
    once = {message.seq: message for message in found}
    return [(m, state(m)) for m in once.values() if living(m) and waits(m)]


def on_disk(gateway: Gateway, queue: Queue) -> Callable[[Message], bool]:
    """Return what tells whether messages are where they have to be before they are shown."""
    first = gateway.store.first_unsynced(queue.queue_id)
    if first is None:
        return lambda _: True
    below = first[1]
    return lambda m: m.seq < below or not m.flags & DURABLE or bool(m.flags & PAGED)


def _forget(found: list[Message]) -> None:
    """Stand for whoever is gone."""


def alive(now_ms: int) -> Callable[[Message], bool]:
    """Return what tells whether messages have not expired."""
    return lambda m: not (m.flags & EXPIRES and m.expires <= now_ms)
