"""Non-destructive queues: consumers are shown what there is, and remove nothing.

Each consumer has a cursor of its own, from the first message on, and follows what arrives; a
message costs O(1) for each consumer. It is in delivery while some consumer holds it, and waits all
the while: it leaves by expiry, a full ring, a later value of its key, or an operator only.

    shown to a consumer ──acknowledged──> that consumer is done with it
                        ──given back────> shown to that consumer again, with one attempt more
                        ──rejected, attempts used up──> a copy is a dead letter, and it is done

Attempts count for the consumer that made them: what one cannot use others may. What is on page
files is shown from there and stays there. Nothing is shown before it is on disk, if it is to be.
The conservation law is that of other queues, with nothing acknowledged, and with what is in
delivery among what waits.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Final

from gateway.model.message import EXPIRES, ONE_DELIVERY, PAGED, SCHEDULED, SHARED, Message
from gateway.model.ports import Consumer
from gateway.queues.indexed import Condition, Search, place_of
from gateway.queues.last_value import LastValueQueue
from gateway.queues.line import Line
from gateway.queues.ordered import is_heap
from gateway.queues.ports import Gone
from gateway.queues.ready import _key
from gateway.queues.selecting import Held

#: Messages that a consumer with a selector looks at in a turn.
TURN_LOOKS: Final = 512
#: What a consumer is shown at least in a turn, however many there are.
SHOWN_MIN: Final = 64


class Reader(Held):
    """A consumer, and how far it has looked.

    Attributes:
        search: its cursor among what is in memory; `seen` is what it was shown from pages.
        paged: from this seq on it looks on pages for what was not read into the queue.
        again: what it gave back, in delivery order.
        later: what it found on pages before its time, as a heap by time.
        attempts: failed deliveries to it, by seq.
        seen: the queue's `news` when it had seen all.
        behind: there may be more for it, and it had room.
        fetching: what is next for it is on its way from its page.
    """

    __slots__ = ("again", "attempts", "behind", "fetching", "later", "paged", "search", "seen")

    def __init__(self, consumer: Consumer, priority: int, condition: Condition | None) -> None:
        super().__init__(consumer, priority)
        self.search = Search(condition, takes=False)
        self.paged = 0
        self.again: deque[Message] = deque()
        self.later: list[tuple[int, int, Message]] = []
        self.attempts: dict[int, int] = {}
        self.seen = -1
        self.behind = self.fetching = False

    @property
    def waits(self) -> bool:
        """Whether it has not seen all that there is, and had room."""
        return self.behind or self.fetching

    def wants(self, message: Message) -> bool:
        """Whether it is for this consumer."""
        if self.barred is not None and message.seq in self.barred:
            return False
        condition = self.search.condition
        return condition is None or condition.matches(message)

    def check_invariants(self) -> None:
        """Assert that what it is shown again, now or later, is in order."""
        self.search.check_invariants()
        assert is_heap([entry[:2] for entry in self.later]), "what it found early is no heap"
        assert all(count > 0 for count in self.attempts.values()), "fewer than one attempt"
        assert self.paged >= 0, "it looks before the first page"


class NonDestructiveQueue(LastValueQueue):
    """See the module text."""

    __slots__ = ("_held_by", "_news", "_readers_waiting", "_turn")

    def _make_line(self, wake: Callable[[int], None], *, durable: bool) -> Line:
        self._held_by: dict[int, int] = {}  # seq -> by how many consumers it is held
        self._news = 0
        self._readers_waiting: list[Reader] = []
        self._turn = 0  # the place of the one that is served first
        return super()._make_line(wake, durable=durable)

    keeps = True

    @property
    def message_count(self) -> int:
        """All that the queue holds; what is in delivery is among what waits."""
        return len(self.line) + self.paged_count

    # ---- consumers

    def attach(
        self, consumer: Consumer, priority: int = 0, condition: Condition | None = None
    ) -> Held:
        """See Queue."""
        reader = Reader(consumer, priority, condition)
        reader.acknowledge = self.acknowledge
        self._index.searches.append(reader.search)
        self.seats.seat(reader)
        return reader

    def detach(self, held: Held) -> None:
        """See Queue."""
        assert isinstance(held, Reader), "a consumer of another queue"
        super().detach(held)
        self._index.searches.remove(held.search)

    def wait_for_search(self, member: Held) -> bool:
        """See Queue."""
        assert isinstance(member, Reader), "a consumer of another queue"
        if member.waits and member not in self._readers_waiting:
            self._readers_waiting.append(member)
        return member.waits

    # ---- in

    def take_places(self, count: int) -> int:
        """See Queue."""
        self._news += 1
        return super().take_places(count)

    def _arrived(self, messages: list[Message]) -> None:
        self._news += 1
        super()._arrived(messages)

    def _come_due(self, now_ms: int) -> None:
        self._news += 1
        super()._come_due(now_ms)

    # ---- out

    def dispatch(self, now_ms: int, limit: int) -> int:
        """See Queue."""
        total = super().dispatch(now_ms, limit)
        behind = [r for r in self.seats.all if isinstance(r, Reader) and r.behind]
        browsing = self.searches.unfinished
        self.searches.more = browsing or (bool(behind) and not self.paused)
        return total

    def _hand_out(self, now_ms: int, limit: int) -> int:
        """Show consumers what they have not seen; each gets its share of `limit`."""
        seats = self.seats
        if self.paused or not len(seats):
            return 0
        readers = seats.all[:1] if seats.exclusive else seats.all
        share = max(SHOWN_MIN, limit // len(readers))
        start = self._turn % len(readers)
        total = 0
        until = self._effects.synced_below(self)
        for at, reader in enumerate(readers[start:] + readers[:start], start):
            assert isinstance(reader, Reader), "a consumer of another queue"
            if not reader.attached or (reader.seen == self._news and not reader.again):
                continue
            if total >= limit:
                self._turn = at
                break
            reader.search.until = until
            total += self._show(reader, min(share, limit - total), now_ms)
        else:
            self._turn += 1
        self._tell_waiting()
        return total

    def _tell_waiting(self) -> None:
        waiting, self._readers_waiting = self._readers_waiting, []
        for reader in waiting:
            if reader.attached and reader.waits and reader.consumer.room() > 0:
                self._readers_waiting.append(reader)
            elif reader.attached:
                reader.consumer.exhausted()

    def _show(self, reader: Reader, most: int, now_ms: int) -> int:
        """Show a consumer up to `most` messages; returns how many it was."""
        reader.search.allowance = TURN_LOOKS if reader.search.condition else 2 * most + TURN_LOOKS
        reader.behind = reader.fetching = reader.search.held_up = False
        shown = 0
        while (room := reader.consumer.room()) > 0:
            if shown >= most:
                reader.behind = True
                break
            found = self._next_for(reader, min(room, most - shown), now_ms)
            if not found:
                break
            shown += len(found)
            any_flags = self.line.any_flags
            for message in found:
                any_flags |= message.flags
                self._held_by[message.seq] = self._held_by.get(message.seq, 0) + 1
            reader.count += len(found)
            self.out.count = len(self._held_by)
            reader.consumer.deliver(found, any_flags)
        return shown

    def _next_for(self, reader: Reader, count: int, now_ms: int) -> list[Message]:
        """Return what comes next for a consumer: given back, in memory, on pages."""
        found = self._given_back(reader, count, now_ms)
        search = reader.search
        early: list[Message] = []
        late: list[Message] = []
        while not found:
            messages = self._index.find(search, count)
            if not messages:
                break
            for message in messages:
                if message.flags & EXPIRES and message.expires <= now_ms:
                    late.append(message)
                elif message.flags & PAGED and search.seen and message.seq in search.seen:
                    continue  # it was shown from its page before it was read back
                elif message.seq >= search.until:
                    early.append(message)  # it has come due before it was on disk
                elif self._is_open(reader, message):
                    found.append(message)
        for message in early:
            heapq.heappush(search.returned[message.priority], place_of(message))
            search.held_up = True
        if late:
            self._index.remove(late)
            self._leave(late, Gone.EXPIRED)
            # What has expired may have come back as another message, for which a ring lets go.
            there = [m for m in found if self._is_there(m)]
            reader.behind = reader.behind or len(there) < len(found)
            found = there
        if found or reader.behind:
            return found
        if search.unfinished:
            reader.behind = True
        elif self.paged_count:
            return self._from_pages(reader, count, now_ms)
        elif not search.held_up:
            reader.seen = self._news
        return []

    @staticmethod
    def _is_open(reader: Reader, message: Message) -> bool:
        return reader.barred is None or message.seq not in reader.barred

    def _given_back(self, reader: Reader, count: int, now_ms: int) -> list[Message]:
        """Return what the consumer gave back and what has come due for it meanwhile."""
        while reader.later and reader.later[0][0] <= now_ms:
            reader.again.append(heapq.heappop(reader.later)[2])
        found: list[Message] = []
        while reader.again and len(found) < count:
            message = reader.again.popleft()
            late = message.flags & EXPIRES and message.expires <= now_ms
            if not late and self._is_open(reader, message) and self._is_there(message):
                found.append(message)
        return found

    def _is_there(self, message: Message) -> bool:
        backlog = self.backlog
        if message.flags & PAGED and backlog is not None and message.seq >= backlog.next:
            return True
        return self._index.has_place_of(message)

    def _from_pages(self, reader: Reader, count: int, now_ms: int) -> list[Message]:
        """Return what comes next of what is on pages and was not read into the queue."""
        assert self.backlog is not None, "messages on pages without pages"
        found: list[Message] = []
        while not found:
            if reader.search.allowance <= 0:
                reader.behind = True
                break
            messages, reader.paged, unsynced, coming = self.backlog.peek(reader.paged, count)
            if not messages:
                reader.search.held_up = reader.search.held_up or unsynced
                reader.fetching = coming
                break
            reader.search.allowance -= len(messages)
            for message in messages:
                if reader.search.seen is not None:
                    reader.search.seen.add(message.seq)
                if message.flags & EXPIRES and message.expires <= now_ms:
                    continue  # whoever reads the pages lets it go
                if not reader.wants(message):
                    continue
                if message.flags & SCHEDULED and message.due > now_ms:
                    heapq.heappush(reader.later, (message.due, message.seq, message))
                    self._effects.wake(self, reader.later[0][0])
                else:
                    found.append(message)
        return found

    # ---- back

    def acknowledge(self, held: Held, messages: list[Message]) -> int:
        """See Queue: the consumer is done with them, and they stay."""
        self._let_go(held, messages)
        return 0

    def kill(self, held: Held, messages: list[Message]) -> int:
        """See Queue: copies are dead letters, and they stay."""
        self._let_go(held, messages)
        self._effects.given_up(self, messages)
        return 0

    def release(
        self,
        held: Held,
        messages: list[Message],
        *,
        failed: bool = False,
        due: Callable[[Message], int] | None = None,
    ) -> int:
        """See Queue: the consumer is shown them again, at once whatever `due` says."""
        assert isinstance(held, Reader), "a consumer of another queue"
        self._let_go(held, messages)
        if self.deleted:
            return 0
        dead: list[Message] = []
        back = list(held.again)
        for message in messages:
            if not failed:
                back.append(message)
                continue
            held.attempts[message.seq] = attempts = held.attempts.get(message.seq, 0) + 1
            if 0 < self.max_attempts <= attempts:
                dead.append(message)
            else:
                back.append(_once_more(message))
        held.again = deque(sorted(back, key=_key))
        if dead:
            self._effects.given_up(self, dead)
        return 0

    def _let_go(self, held: Held, messages: list[Message]) -> None:
        held.count -= len(messages)
        assert held.count >= 0, "a consumer gave back more than it had"
        held_by = self._held_by
        for message in messages:
            left = held_by.get(message.seq, 0) - 1
            if left > 0:
                held_by[message.seq] = left
            else:
                held_by.pop(message.seq, None)  # or it is gone, and was not counted any more
        self.out.count = len(held_by)

    def _leave(self, messages: list[Message], why: Gone) -> int:
        for message in messages:
            self._held_by.pop(message.seq, None)
        self.out.count = len(self._held_by)
        return super()._leave(messages, why)

    def purge_pages(self) -> int:
        """See Queue: what was shown from its page is gone as well, and with it all there was."""
        count = super().purge_pages()
        self._held_by.clear()
        self.out.count = 0
        return count

    def check_invariants(self) -> None:
        """See Queue."""
        super().check_invariants()
        told = set(map(id, self._index.searches))
        for reader in self.seats.all:
            assert isinstance(reader, Reader), "a consumer of another queue"
            assert id(reader.search) in told, "one that is not told of what comes"
            reader.check_invariants()
        for reader in self._readers_waiting:
            assert self._readers_waiting.count(reader) == 1, "one waits twice for the same end"

    def _check_held(self) -> None:
        assert self.delivering == len(self._held_by), "delivering is miscounted"
        # What was shown from its page may wait for its time in memory since.
        there = len(self.line) - self.line.storing_count + self.paged_count
        assert self.delivering <= there, "in delivery, but not there"
        assert sum(self._held_by.values()) <= sum(h.count for h in self.seats.all)
        assert min(self._held_by.values(), default=1) > 0, "in delivery to nobody"
        self.out.check_invariants(len(self._held_by))


def _once_more(message: Message) -> Message:
    """Return a message as it looks after one attempt more; others see it as it was."""
    again = Message(message.body, message.seq, (message.flags + ONE_DELIVERY) & ~SHARED)
    if message.flags & EXPIRES:
        again.expires = message.expires
    if message.flags & SCHEDULED:
        again.due = message.due
    return again
