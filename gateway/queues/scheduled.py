"""The messages of one queue that wait for their time, the one that is due first in front.

A heap by (due, seq): adding and taking cost O(log n), `next_due` costs nothing. It knows no clock:
whoever asks says what time it is.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final

from gateway.model.message import EXPIRES, SCHEDULED, Message
from gateway.queues.ordered import is_heap

#: Later than any time that a message can name.
NEVER: Final = 1 << 64


class Scheduled:
    """Messages by the time at which they are due; `len()` is O(1).

    Attributes:
        next_due: when the first of them is due, in ms of broker time; NEVER without any.
    """

    __slots__ = ("_heap", "next_due")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Message]] = []
        self.next_due = NEVER

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, message: Message) -> None:
        """Keep a message until its `due`."""
        assert message.flags & SCHEDULED, "waits for a time that it has not"
        due = message.due
        heapq.heappush(self._heap, (due, message.seq, message))
        self.next_due = min(self.next_due, due)

    def take_due(self, now_ms: int) -> list[Message]:
        """Remove and return what is due, in due order, ties in the order of arrival."""
        heap = self._heap
        taken: list[Message] = []
        while heap and heap[0][0] <= now_ms:
            taken.append(heapq.heappop(heap)[2])
        self.next_due = heap[0][0] if heap else NEVER
        assert self.next_due > now_ms, "due, and it still waits"
        return taken

    def take_expired(self, now_ms: int) -> list[Message]:
        """Remove and return what has expired before it was due, in due order; O(n)."""
        return self.remove_if({m.seq for m in self if m.flags & EXPIRES and m.expires <= now_ms})

    def remove_if(self, doomed: set[int]) -> list[Message]:
        """Remove and return the messages whose `seq` is in `doomed`, in due order; O(n)."""
        removed = [m for m in self if m.seq in doomed] if doomed and self._heap else []
        if removed:
            self._heap = [entry for entry in self._heap if entry[1] not in doomed]
            heapq.heapify(self._heap)
            self.next_due = self._heap[0][0] if self._heap else NEVER
        return removed

    def __iter__(self) -> Iterator[Message]:
        """Go through the messages in due order."""
        return (message for _, _, message in sorted(self._heap, key=lambda entry: entry[:2]))

    def clear(self) -> list[Message]:
        """Remove and return everything, in due order."""
        everything = list(self)
        self._heap.clear()
        self.next_due = NEVER
        return everything

    def check_invariants(self) -> None:
        """Assert that the heap is one, and that what is due first is known."""
        assert is_heap([entry[:2] for entry in self._heap]), "what is scheduled is no heap"
        first = min((entry[0] for entry in self._heap), default=NEVER)
        assert self.next_due == first, f"next is due at {self.next_due}, not {first}"
        for due, seq, message in self._heap:
            assert message.flags & SCHEDULED, "waits for a time that it has not"
            assert (due, seq) == (message.due, message.seq), "waits for the time of another"
