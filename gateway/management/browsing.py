"""What a browse over HTTP shows: what waits in a queue, in which state, and nothing that is late.

    ready       in delivery order
    paged       on page files, in order of arrival
    scheduled   by the time at which they are due

What has expired is left out though no scan has found it yet. Pure: reads the core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from gateway.broker.errand import on_page
from gateway.model.message import DURABLE, EXPIRES, PAGED, Message
from gateway.queues.queue import Queue

#: A message and the state that it is in.
Shown = tuple[Message, str]


def waiting(queue: Queue, now_ms: int) -> Iterator[Message]:
    """Go through what is in memory and has not expired."""
    return filter(_alive(now_ms), queue.holdings())


def window(queue: Queue, offset: int, limit: int, now_ms: int) -> list[Shown]:
    """Return up to `limit` messages from place `offset` on.

    What has expired on pages takes a place, so that places there need no reading of what is before.
    """
    alive = _alive(now_ms)
    ready: Iterator[Message] = islice(queue.holdings(), queue.ready_count)
    scheduled: Iterator[Message] = islice(queue.holdings(), queue.ready_count, None)
    before = queue.ready_count
    if queue.any_flags & EXPIRES:
        before = sum(map(alive, islice(queue.holdings(), queue.ready_count)))
        ready, scheduled = filter(alive, ready), filter(alive, scheduled)
    found = [(m, "ready") for m in islice(ready, offset, offset + limit)]
    offset = max(0, offset - before)
    paged = queue.paged_count
    left = limit - len(found)
    if left and offset < paged and queue.backlog is not None:
        some = queue.backlog.browse(offset, left)
        left -= len(some)
        found += [(m, "paged") for m in some if alive(m)]
    offset = max(0, offset - paged)
    return found + [(m, "scheduled") for m in islice(scheduled, offset, offset + left)]


def states(queue: Queue) -> Callable[[Message], str]:
    """Return what tells the state of messages, as it is now."""
    later = {m.seq for m in islice(queue.holdings(), queue.ready_count, None)}
    backlog = queue.backlog

    def state(message: Message) -> str:
        if message.seq in later:
            return "scheduled"
        paged = message.flags & PAGED and backlog is not None and backlog.unread(message.seq)
        return "paged" if paged else "ready"

    return state


def find(queue: Queue, seq: int, now_ms: int) -> Shown | None:
    """Return a message by its seq; None when it does not wait, or has expired."""
    message = next((m for m in waiting(queue, now_ms) if m.seq == seq), None)
    if message is None:
        paged = on_page(queue, seq)
        message = paged if paged is not None and _alive(now_ms)(paged) else None
    return None if message is None else (message, states(queue)(message))


def unsynced(shown: list[Shown], ticket: int) -> int:
    """Return the ticket to wait for before these are shown; 0 when none of them needs the disk."""
    return ticket if any(m.flags & DURABLE for m, _ in shown) else 0


def _alive(now_ms: int) -> Callable[[Message], bool]:
    return lambda m: not (m.flags & EXPIRES and m.expires <= now_ms)
