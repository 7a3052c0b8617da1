"""The messages of one queue that wait for a consumer, in delivery order.

Order: higher priority first, then what was scheduled and has come due, in due order, then arrival
(`seq`). Two parts make it cheap:

* ten levels, one a priority, each a deque in arrival order, for what was added at the tail and
  what came back in front of (or behind) all that waits there;
* a heap for what has come due, and what came back to a place between others, normally empty. A
  returned message is found
  in O(log n), and the levels never need an insertion in the middle.

It knows no consumer, clock or store.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import islice
from operator import attrgetter
from typing import Final

from gateway.model.message import PRIORITY_MASK, SCHEDULED, Message
from gateway.queues.ordered import ascends, is_heap

_LEVELS = 10
#: More than any seq has bits; a due time in front of it takes 64.
_SEQ_BITS = 48
_EARLY = 1 << (64 + _SEQ_BITS)
_seq_of: Final = attrgetter("seq")
#: A level that has never held anything, of all queues: an empty deque has 600 bytes.
_NOTHING: Final[deque[Message]] = deque(maxlen=0)


def _key(message: Message) -> tuple[int, int]:
    """Return the sorting key: what is delivered sooner is smaller."""
    if message.flags & SCHEDULED:
        # Negative: before all that was never scheduled; by due time, then by seq.
        return (
            _LEVELS - (message.flags & PRIORITY_MASK),
            (message.due << _SEQ_BITS) + message.seq - _EARLY,
        )
    return (_LEVELS - (message.flags & PRIORITY_MASK), message.seq)


class Ready:
    """Ready messages in delivery order; `len()` is O(1)."""

    __slots__ = ("_bits", "_count", "_levels", "_returned")

    def __init__(self) -> None:
        self._levels: list[deque[Message]] = [_NOTHING] * _LEVELS
        self._bits = 0  # bit p is set while level p holds something
        self._returned: list[tuple[int, int, Message]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add_run(self, messages: list[Message], priority: int) -> None:
        """Append messages that share a priority and are newer than all others."""
        level = self._levels[priority]
        if level is _NOTHING:
            level = self._levels[priority] = deque()
        level.extend(messages)
        self._bits |= 1 << priority
        self._count += len(messages)

    def add(self, message: Message) -> None:
        """Append one message that is newer than all others."""
        priority = message.flags & PRIORITY_MASK
        level = self._levels[priority]
        if level is _NOTHING:
            level = self._levels[priority] = deque()
        level.append(message)
        self._bits |= 1 << priority
        self._count += 1

    def put_back(self, message: Message) -> None:
        """Put a message back to its old place, or one that has come due to its first one."""
        if message.flags & SCHEDULED:
            heapq.heappush(self._returned, (*_key(message), message))
            self._count += 1
            return
        priority = message.flags & PRIORITY_MASK
        level = self._levels[priority]
        if level is _NOTHING:
            level = self._levels[priority] = deque()
        if not level or message.seq < level[0].seq:
            # The usual case: what a consumer held is older than what waits, newest returned first.
            level.appendleft(message)
            self._bits |= 1 << priority
        elif message.seq > level[-1].seq:
            level.append(message)
        else:
            heapq.heappush(self._returned, (*_key(message), message))
        self._count += 1

    def take(self, count: int) -> list[Message]:
        """Remove and return up to `count` messages: those next in order that share a priority.

        The list ascends in `seq` but for what was scheduled; fewer than `count` come when the level
        ends or returned ones come first.
        """
        if self._returned:
            return self._take_mixed(count)
        bits = self._bits
        if not bits:
            return []
        priority = bits.bit_length() - 1
        level = self._levels[priority]
        if count >= len(level):
            taken = list(level)
            level.clear()
            self._bits = bits & ~(1 << priority)
        else:
            pop = level.popleft
            taken = [pop() for _ in range(count)]
        self._count -= len(taken)
        return taken

    def _take_mixed(self, count: int) -> list[Message]:
        taken: list[Message] = []
        while count > 0 and self._count:
            message = self._pop()
            if taken and (message.flags ^ taken[-1].flags) & PRIORITY_MASK:
                self.put_back(message)
                break
            taken.append(message)
            count -= 1
        return taken

    def _head(self) -> Message | None:
        """Return the first message of the levels."""
        return self._levels[self._bits.bit_length() - 1][0] if self._bits else None

    def _pop(self) -> Message:
        head = self._head()
        if self._returned and (head is None or self._returned[0][:2] < _key(head)):
            self._count -= 1
            return heapq.heappop(self._returned)[2]
        assert head is not None, "pop from an empty queue"
        self._drop_head(head.flags & PRIORITY_MASK)
        return head

    def _drop_head(self, priority: int) -> None:
        level = self._levels[priority]
        assert level, "the head of an empty level"
        level.popleft()
        if not level:
            self._bits &= ~(1 << priority)
        self._count -= 1

    def take_oldest(self, count: int) -> list[Message]:
        """Remove and return the `count` that arrived first, whatever their priority."""
        assert count <= self._count, "more are to go than wait"
        bits = self._bits
        if not self._returned and not bits & (bits - 1):
            return self.take(count)  # all have one priority, so that arrival is the order
        return [self._pop_oldest() for _ in range(count)]

    def has_newer(self, seq: int, least: int) -> bool:
        """Whether at least `least` were sent after `seq`."""
        count = sum(entry[2].seq > seq for entry in self._returned)
        for level in self._levels:
            if count >= least:
                return True
            if not level or level[-1].seq < seq:
                continue
            # In arrival order: looked up, not walked through, since a ring may be long.
            older = 0 if level[0].seq > seq else bisect_right(level, seq, key=_seq_of)
            count += len(level) - older
        return count >= least

    def take_next(self, count: int) -> list[Message]:
        """Remove and return the `count` that would be delivered next."""
        assert count <= self._count, "more are to go than wait"
        taken: list[Message] = []
        while len(taken) < count:
            taken += self.take(count - len(taken))
        return taken

    def _pop_oldest(self) -> Message:
        best: Message | None = None
        for priority in range(_LEVELS):
            if self._bits >> priority & 1:
                head = self._levels[priority][0]
                if best is None or head.seq < best.seq:
                    best = head
        if self._returned:
            oldest = min(self._returned, key=lambda entry: entry[2].seq)
            if best is None or oldest[2].seq < best.seq:
                self._returned.remove(oldest)
                heapq.heapify(self._returned)
                self._count -= 1
                return oldest[2]
        assert best is not None, "pop from an empty queue"
        self._drop_head(best.flags & PRIORITY_MASK)
        return best

    def oldest(self) -> int | None:
        """Return about the lowest seq: of what came back only the next one is looked at."""
        seqs = [level[0].seq for level in self._levels if level]
        if self._returned:
            seqs.append(self._returned[0][2].seq)
        return min(seqs, default=None)

    def __iter__(self) -> Iterator[Message]:
        """Go through the messages in delivery order; the queue must not change meanwhile."""
        levels = (
            (_key(m)[0], m.seq, m) for p in range(_LEVELS - 1, -1, -1) for m in self._levels[p]
        )
        for entry in heapq.merge(
            sorted(self._returned, key=lambda e: e[:2]), levels, key=lambda e: e[:2]
        ):
            yield entry[2]

    def window(self, offset: int, limit: int) -> list[Message]:
        """Return up to `limit` messages from place `offset` on, without removing them."""
        return list(islice(self, offset, offset + limit))

    def remove_if(self, doomed: set[int]) -> list[Message]:
        """Remove and return the messages whose `seq` is in `doomed`; O(n)."""
        removed: list[Message] = []
        for priority, level in enumerate(self._levels):
            if any(m.seq in doomed for m in level):
                removed += [m for m in level if m.seq in doomed]
                self._levels[priority] = kept = deque(m for m in level if m.seq not in doomed)
                if not kept:
                    self._bits &= ~(1 << priority)
        removed += [e[2] for e in self._returned if e[2].seq in doomed]
        self._returned = [e for e in self._returned if e[2].seq not in doomed]
        heapq.heapify(self._returned)
        self._count -= len(removed)
        assert self._count >= 0, "removed more than waited"
        return removed

    def clear(self) -> list[Message]:
        """Remove and return everything, in delivery order."""
        everything = list(self)
        assert len(everything) == self._count, "what waits is miscounted"
        for level in self._levels:
            level.clear()
        self._returned.clear()
        self._bits = self._count = 0
        return everything

    def check_invariants(self) -> None:
        """Assert that levels, bits and count say the same, and that all is in order."""
        for priority, level in enumerate(self._levels):
            assert self._bits >> priority & 1 == bool(level), (
                f"the bit of level {priority} is wrong"
            )
            assert ascends(m.seq for m in level), f"level {priority} is in no order"
            for message in level:
                assert message.flags & PRIORITY_MASK == priority, "waits in another level"
                assert not message.flags & SCHEDULED, "came due, and waits behind others"
        assert not self._bits >> _LEVELS, "a bit of no level"
        assert is_heap([entry[:2] for entry in self._returned]), "what came back is no heap"
        for level_key, place, message in self._returned:
            assert (level_key, place) == _key(message), "came back to the place of another"
        count = sum(map(len, self._levels)) + len(self._returned)
        assert self._count == count, f"{self._count} are counted, and {count} wait"
