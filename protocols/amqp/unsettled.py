"""Deliveries of one session that the peer has not settled, by contiguous delivery-id.

A chunk is a run of deliveries of one link. A disposition over a range costs what it covers of them,
never more: a range over four thousand million ids that nobody knows costs two searches [AMQP
2.7.6]. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Protocol

from gateway.model.message import Message
from gateway.model.serial import distance
from protocols.amqp.performatives import Outcome


class Holder(Protocol):
    """The owner of deliveries: their link, or a transaction that they are enlisted in."""

    def settle(self, outcome: Outcome | None, messages: list[Message]) -> int:
        """The receiver settles them; returns the ticket after which it cannot be undone."""

    def delivered_on(self, link: object) -> bool:
        """Whether they went out on this link."""


class Chunk:
    """Deliveries `first` .. `first + len(messages) - 1`, as positions on an unbounded line."""

    __slots__ = ("first", "link", "messages")

    def __init__(self, first: int, messages: list[Message], link: Holder) -> None:
        self.first = first
        self.messages = messages
        self.link = link


def neighbours(found: list[Chunk]) -> Iterator[tuple[int, int, list[Chunk]]]:
    """Group chunks that follow one another without a hole: (first, behind the last, chunks)."""
    start = 0
    for index, chunk in enumerate(found):
        end = chunk.first + len(chunk.messages)
        if index + 1 == len(found) or found[index + 1].first != end:
            yield found[start].first, end, found[start : index + 1]
            start = index + 1


class Unsettled:
    """Chunks in ascending order. Delivery-ids are 32-bit serials, unwrapped inside onto a line."""

    __slots__ = ("_chunks", "_firsts", "_next")

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []
        self._firsts: list[int] = []
        self._next = 0

    def __len__(self) -> int:
        return sum(len(c.messages) for c in self._chunks)

    def add(self, delivery_id: int, messages: list[Message], link: Holder) -> None:
        """Note a run that was sent; ids follow one another over the whole session."""
        first = self._next + distance(self._next & 0xFFFFFFFF, delivery_id)
        self._chunks.append(Chunk(first, messages, link))
        self._firsts.append(first)
        self._next = first + len(messages)

    def pop_range(self, first_id: int, last_id: int) -> list[Chunk]:
        """Remove and return what is known of a range of ids, in order; cuts chunks at its ends."""
        if not self._chunks:
            return []
        low, high, start, stop = self._places(first_id, last_id)
        found: list[Chunk] = []
        kept: list[Chunk] = []
        for chunk in self._chunks[start:stop]:
            self._cut(chunk, low, high, found, kept)
        self._chunks[start:stop] = kept
        self._firsts[start:stop] = [c.first for c in kept]
        return found

    def holes(self, first_id: int, last_id: int, found: list[Chunk]) -> list[tuple[int, int]]:
        """Return what `found` leaves out of a range of ids: (position, behind the last)."""
        low = self._next + distance(self._next & 0xFFFFFFFF, first_id)
        end = low + ((last_id - first_id) & 0xFFFFFFFF) + 1
        holes = []
        for chunk in found:
            if chunk.first > low:
                holes.append((low, chunk.first))
            low = chunk.first + len(chunk.messages)
        if low < end:
            holes.append((low, end))
        return holes

    def _places(self, first_id: int, last_id: int) -> tuple[int, int, int, int]:
        """Return a range of ids on the line, and where the chunks are that may be in it."""
        base = self._firsts[0]
        low = base + distance(base & 0xFFFFFFFF, first_id)
        high = low + ((last_id - first_id) & 0xFFFFFFFF)
        start = max(0, bisect_right(self._firsts, low) - 1)
        return low, high, start, bisect_right(self._firsts, high)

    def between(self, first_id: int, last_id: int) -> list[Chunk]:
        """Return the chunks that a range of ids touches."""
        if not self._chunks:
            return []
        low, _, start, stop = self._places(first_id, last_id)
        return [c for c in self._chunks[start:stop] if c.first + len(c.messages) > low]

    def put(self, chunk: Chunk) -> None:
        """Put a chunk back that was popped."""
        at = bisect_right(self._firsts, chunk.first)
        self._chunks.insert(at, chunk)
        self._firsts.insert(at, chunk.first)

    @staticmethod
    def _cut(chunk: Chunk, low: int, high: int, found: list[Chunk], kept: list[Chunk]) -> None:
        first = chunk.first
        last = first + len(chunk.messages) - 1
        if low <= first and last <= high:
            found.append(chunk)
            return
        if last < low or first > high:
            kept.append(chunk)
            return
        begin = max(0, low - first)
        end = min(last, high) - first + 1
        messages = chunk.messages
        if begin:
            kept.append(Chunk(first, messages[:begin], chunk.link))
        found.append(Chunk(first + begin, messages[begin:end], chunk.link))
        if end < len(messages):
            kept.append(Chunk(first + end, messages[end:], chunk.link))

    def pop_link(self, link: Holder) -> list[Message]:
        """Remove and return all messages of a link, in order."""
        messages = [m for c in self._chunks if c.link is link for m in c.messages]
        self._chunks = [c for c in self._chunks if c.link is not link]
        self._firsts = [c.first for c in self._chunks]
        return messages

    def of(self, owned: Callable[[Holder], bool]) -> list[Chunk]:
        """Return the chunks with such an owner, in order."""
        return [c for c in self._chunks if owned(c.link)]

    def drop(self, owned: Callable[[Holder], bool]) -> list[Chunk]:
        """Remove and return the chunks with such an owner, in order."""
        found = self.of(owned)
        if found:
            self._chunks = [c for c in self._chunks if not owned(c.link)]
            self._firsts = [c.first for c in self._chunks]
        return found
