"""Ready messages that can be taken out of the middle: for queues with selectors or browsers.

The same order and the same calls as `ready`, at a higher price for each message (about 0.2 us).
Two parts:

* `waiting`, all messages by place: what is not in it is not there, whatever else names it;
* ten levels, one a priority, each a list of places that ascends. A message that was taken out of
  the middle leaves its place behind. Empty places are passed over, and swept out when they are more
  than the others.

The place of a message is its seq, or a number below all seqs if it was scheduled and has come due.

A `Search` is a place in each level: what lies before was judged, what comes to lie before it is
judged as it comes back. An arrival costs a search nothing. It is found by bisection, so that a
search goes on where it was, however much others took meanwhile.

It knows no consumer, clock or store.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Final, Protocol

from gateway.model.message import PRIORITY_MASK, SCHEDULED, Message
from gateway.queues.ordered import ascends, is_heap
from gateway.queues.ready import _key
from gateway.queues.seen import Seen

_LEVELS: Final = 10
#: Places that may be empty before a sweep is worth its while.
_SWEEP_MIN: Final = 64
#: Places in front of the head that are kept, so that not every take moves the whole list.
_HEAD_MAX: Final = 512
#: Before every place, and behind every one.
_FIRST: Final = -1 << 128
_LAST: Final = 1 << 128


def place_of(message: Message) -> int:
    """Return where a message is among those of its priority."""
    return _key(message)[1] if message.flags & SCHEDULED else message.seq


class Condition(Protocol):
    """What a selector is to a queue."""

    @property
    def text(self) -> str: ...

    @property
    def matches(self) -> Callable[[Message], bool]: ...


class Search:
    """How far somebody has looked through a queue, and what for (None: for everything).

    Attributes:
        takes: what it finds leaves the index; else it stays: of browsers, groups, and readers.
        cursors: for each level the last place that was judged.
        returned: for each level a heap of places before the cursor where something has come back
            that matches.
        seen: what a browser, or a reader on pages, was shown; None for who takes.
        until: messages with this seq and those behind it must not be found yet.
        held_up: some were not found for that.
        allowance: how many more places may be looked at this turn.
        unfinished: the allowance has ended before the messages did.
    """

    __slots__ = (
        "allowance",
        "condition",
        "cursors",
        "held_up",
        "returned",
        "seen",
        "takes",
        "unfinished",
        "until",
    )

    def __init__(self, condition: Condition | None, *, takes: bool) -> None:
        self.condition = condition
        self.takes = takes
        self.seen = None if takes else Seen()
        self.until = _LAST
        self.held_up = False
        self.cursors = [_FIRST] * _LEVELS
        self.returned: list[list[int]] = [[] for _ in range(_LEVELS)]
        self.allowance = 0
        self.unfinished = False

    def rewind(self, messages: list[Message]) -> None:
        """Look at these, and at those of their levels that follow them, once more."""
        for message in messages:
            if self.seen is not None:
                self.seen.discard(message.seq)
            level = message.flags & PRIORITY_MASK
            self.cursors[level] = min(self.cursors[level], place_of(message) - 1)

    def check_invariants(self) -> None:
        """Assert that what it remembers is whole and in order."""
        assert len(self.cursors) == len(self.returned) == _LEVELS, "a level without a cursor"
        for heap in self.returned:
            assert is_heap([(place,) for place in heap]), "what came back for a search is no heap"
        assert self.takes == (self.seen is None), "who takes needs not know what it was shown"
        if self.seen is not None:
            self.seen.check_invariants()


class _Level:
    """Places in ascending order; those in front of `head` are forgotten."""

    __slots__ = ("head", "places")

    def __init__(self) -> None:
        self.places: list[int] = []
        self.head = 0

    def __len__(self) -> int:
        return len(self.places) - self.head

    def insert(self, place: int) -> None:
        """Make sure that a place is there."""
        places, head = self.places, self.head
        at = bisect_left(places, place, head)
        if at < len(places) and places[at] == place:
            return
        if at == head and head:
            self.head = head - 1
            places[head - 1] = place
        else:
            places.insert(at, place)

    def drop_head(self, count: int) -> None:
        """Forget the first `count`."""
        self.head += count
        assert self.head <= len(self.places), "the head behind the end"
        if self.head == len(self.places):
            self.places.clear()
            self.head = 0
        elif self.head > _HEAD_MAX and self.head * 2 > len(self.places):
            del self.places[: self.head]
            self.head = 0

    def sweep(self, waiting: dict[int, Message]) -> None:
        """Forget empty places."""
        self.places = [place for place in self.places[self.head :] if place in waiting]
        self.head = 0

    def check_invariants(self, messages: dict[int, Message]) -> None:
        """Assert that places ascend, and that all of these messages have theirs."""
        assert 0 <= self.head <= len(self.places), "the head behind the end"
        assert self.head < len(self.places) or not self.head, "a level of what is forgotten"
        assert ascends(self.places[self.head :]), "places in no order"
        there = set(self.places[self.head :])
        assert messages.keys() <= there, "a message waits that no level knows"


class IndexedReady:
    """See the module text. `len()` is O(1)."""

    __slots__ = ("_bits", "_levels", "searches", "waiting")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        """Start with messages in delivery order."""
        self.waiting: dict[int, Message] = {}
        self.searches: list[Search] = []
        self._levels = [_Level() for _ in range(_LEVELS)]
        self._bits = 0  # bit p is set while level p holds a place
        for message in messages:
            self.add(message)

    def __len__(self) -> int:
        return len(self.waiting)

    # ---- in

    def add_run(self, messages: list[Message], priority: int) -> None:
        """Append messages that share a priority and are newer than all others."""
        places = [m.seq for m in messages]
        self.waiting.update(zip(places, messages, strict=True))
        self._levels[priority].places += places
        self._bits |= 1 << priority

    def add(self, message: Message) -> None:
        """Append one message that comes behind all others of its priority."""
        priority = message.flags & PRIORITY_MASK
        place = place_of(message)
        self.waiting[place] = message
        self._levels[priority].places.append(place)
        self._bits |= 1 << priority

    def put_back(self, message: Message) -> None:
        """Put a message back to its old place; a search that has passed it judges it now."""
        priority = message.flags & PRIORITY_MASK
        place = place_of(message)
        self.waiting[place] = message
        self._levels[priority].insert(place)
        self._bits |= 1 << priority
        for search in self.searches:
            if place > search.cursors[priority]:
                continue
            if search.seen is not None and message.seq in search.seen:
                continue
            if search.condition is None or search.condition.matches(message):
                found = search.returned[priority]
                heapq.heappush(found, place)
                if len(found) > 2 * len(self.waiting) + _SWEEP_MIN:
                    # Others have taken what came back here, again and again.
                    found[:] = sorted({p for p in found if p in self.waiting})

    # ---- out

    def take(self, count: int) -> list[Message]:
        """Remove and return up to `count` messages: those next in order that share a priority."""
        waiting = self.waiting
        taken: list[Message] = []
        while self._bits and not taken and count > 0:
            priority = self._bits.bit_length() - 1
            level = self._levels[priority]
            places = level.places
            at = level.head
            while at < len(places) and len(taken) < count:
                message = waiting.pop(places[at], None)
                at += 1
                if message is not None:
                    taken.append(message)
            level.drop_head(at - level.head)
            if not level.places:
                self._bits &= ~(1 << priority)
        return taken

    def take_next(self, count: int) -> list[Message]:
        """Remove and return the `count` that would be delivered next."""
        assert count <= len(self.waiting), "more are to go than wait"
        taken: list[Message] = []
        while len(taken) < count:
            taken += self.take(count - len(taken))
        return taken

    def has_newer(self, seq: int, least: int) -> bool:
        """Whether at least `least` were sent after `seq`."""
        # By the places alone, which may be empty; only where these do not tell it is counted.
        newer = early = places_left = 0
        for level in self._levels:
            places, head = level.places, level.head
            places_left += len(level)
            newer += len(places) - bisect_right(places, seq, head)
            # What was scheduled has its place before all others, whenever it was sent.
            early += bisect_left(places, 0, head) - head
        if newer + early < least:
            return False
        empty = places_left - len(self.waiting)
        return newer - empty >= least or self._counts_newer(seq, least)

    def _counts_newer(self, seq: int, least: int) -> bool:
        count = 0
        get = self.waiting.get
        for level in self._levels:
            places, head = level.places, level.head
            early = islice(places, head, bisect_left(places, 0, head))
            later = islice(reversed(places), len(places) - bisect_right(places, seq, head))
            for place in chain(later, early):
                if count >= least:
                    return True
                message = get(place)
                count += message is not None and message.seq > seq
        return count >= least

    def take_oldest(self, count: int) -> list[Message]:
        """Remove and return the `count` that arrived first, whatever their priority."""
        assert count <= len(self.waiting), "more are to go than wait"
        return [self._pop_oldest() for _ in range(count)]

    def _pop_oldest(self) -> Message:
        best: Message | None = None
        for level in self._levels:
            for message in self._oldest_of(level):
                if best is None or message.seq < best.seq:
                    best = message
        assert best is not None, "pop from an empty queue"
        del self.waiting[place_of(best)]
        self._sweep()
        return best

    def _oldest_of(self, level: _Level) -> Iterator[Message]:
        """Go through what has come due, and the first of the others."""
        places = level.places
        while level.places and places[level.head] not in self.waiting:
            level.drop_head(1)
        for at in range(level.head, len(places)):
            message = self.waiting.get(places[at])
            if message is not None:
                yield message
                if places[at] >= 0:
                    return

    def has(self, message: Message) -> bool:
        """Whether this very message waits here."""
        return self.waiting.get(place_of(message)) is message

    def has_place_of(self, message: Message) -> bool:
        """Whether this message, or that of which it is a copy, waits here."""
        return place_of(message) in self.waiting

    def remove(self, messages: Iterable[Message]) -> None:
        """Remove messages that wait here; O(1) each."""
        for message in messages:
            del self.waiting[place_of(message)]
        self._sweep()

    def remove_if(self, doomed: set[int]) -> list[Message]:
        """Remove and return the messages whose `seq` is in `doomed`; O(n)."""
        removed = [m for m in self if m.seq in doomed]
        for message in removed:
            del self.waiting[place_of(message)]
        self._sweep()
        return removed

    def clear(self) -> list[Message]:
        """Remove and return everything, in delivery order."""
        everything = list(self)
        assert len(everything) == len(self.waiting), "a message waits that no level knows"
        self.waiting.clear()
        self._sweep()
        return everything

    def _sweep(self) -> None:
        """Forget empty places when they are more than the others."""
        if sum(map(len, self._levels)) <= 2 * len(self.waiting) + _SWEEP_MIN:
            return
        for level in self._levels:
            level.sweep(self.waiting)
        self._bits = sum(1 << p for p, level in enumerate(self._levels) if level.places)
        assert self._bits or not self.waiting, "a message waits that no level knows"

    # ---- looking

    def oldest(self) -> int | None:
        """Return the seq of the message that is next to go, whatever its priority."""
        message = next(iter(self), None)
        return None if message is None else message.seq

    def __iter__(self) -> Iterator[Message]:
        """Go through the messages in delivery order; the queue must not change meanwhile."""
        get = self.waiting.get
        for level in reversed(self._levels):
            for place in islice(level.places, level.head, None):
                message = get(place)
                if message is not None:
                    yield message

    def window(self, offset: int, limit: int) -> list[Message]:
        """Return up to `limit` messages from place `offset` on, without removing them."""
        return list(islice(self, offset, offset + limit))

    # ---- searching

    def find(self, search: Search, count: int) -> list[Message]:
        """Return up to `count` messages that match, next in order, of one priority.

        A level is finished before the next lower one is looked at: with an empty list,
        `search.unfinished` tells whether there is more to look at. Searches that take remove them.
        """
        bits = self._bits
        found: list[Message] = []
        while bits:
            priority = bits.bit_length() - 1
            bits &= ~(1 << priority)
            if search.returned[priority]:
                self._find_returned(search, search.returned[priority], found, count)
            finished = self._find_in(search, priority, found, count)
            if found:
                if search.takes:
                    for message in found:
                        del self.waiting[place_of(message)]
                    self._sweep()
                return found
            if not finished:
                search.unfinished = True
                return found
        search.unfinished = False
        return found

    def _find_returned(
        self, search: Search, heap: list[int], found: list[Message], count: int
    ) -> None:
        """Move what came back and matches to `found`."""
        # It may have been out once more, and have a delivery count now that does not match.
        matches = None if search.condition is None else search.condition.matches
        last = _FIRST
        while heap and len(found) < count:
            place = heapq.heappop(heap)
            message = self.waiting.get(place)
            if message is not None and place != last and (matches is None or matches(message)):
                found.append(message)
            last = place

    def _find_in(self, search: Search, priority: int, found: list[Message], count: int) -> bool:
        """Judge messages of a level behind its cursor; returns whether all of it is judged."""
        level = self._levels[priority]
        places = level.places
        at = start = bisect_right(places, search.cursors[priority], level.head)
        stop = len(places)
        if stop and places[-1] >= search.until:
            stop = max(start, bisect_left(places, search.until, level.head))
            search.held_up = search.held_up or stop < len(places)
        end = min(stop, start + search.allowance)
        get = self.waiting.get
        matches = None if search.condition is None else search.condition.matches
        while at < end and len(found) < count:
            message = get(places[at])
            at += 1
            if message is not None and (matches is None or matches(message)):
                found.append(message)
        if at > start:
            search.cursors[priority] = places[at - 1]
            search.allowance -= at - start
            assert search.allowance >= 0, "a search has looked at more than it may"
        return at >= stop

    def check_invariants(self) -> None:
        """Assert that levels, bits and `waiting` agree, and of the searches."""
        by_level: list[dict[int, Message]] = [{} for _ in range(_LEVELS)]
        for place, message in self.waiting.items():
            assert place == place_of(message), "waits at the place of another"
            by_level[message.flags & PRIORITY_MASK][place] = message
        for priority, level in enumerate(self._levels):
            level.check_invariants(by_level[priority])
            assert self._bits >> priority & 1 or not level.places, f"no bit for level {priority}"
        assert not self._bits >> _LEVELS, "a bit of no level"
        seqs = {message.seq for message in self.waiting.values()}
        assert len(seqs) == len(self.waiting), "a message waits at two places"
        assert len(set(map(id, self.searches))) == len(self.searches), "a search is told twice"
        for search in self.searches:
            search.check_invariants()
