"""What a ring keeps: at each add, at each return, and when it is told to.

A ring of `size` bounds what waits. At the tail a new message pushes one out: the oldest, or the one
that would be delivered next (`evicts_next`). A message that comes back is judged by when it was
sent and by nothing else, whatever its priority and in whatever order and pieces consumers give
back: it stays when fewer than `size` later ones are there, waiting or in delivery, and then pushes
out the oldest that waits if those that wait have become too many. So of the messages in delivery
the newest are left, whichever consumer gave back first.

A ring therefore knows what is in delivery; a queue without a ring keeps no such list. Set on a
queue that has handed out before, a ring learns of deliveries from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from gateway.model.message import Message
from gateway.queues.in_delivery import InDelivery
from gateway.queues.line import Line
from gateway.queues.ports import Backlog, Gone

#: Accounts for messages that left a queue, and tells the broker; returns the ticket.
Leave = Callable[[list[Message], Gone], int]


class Ring:
    """See the module text.

    Attributes:
        size: most that may wait; -1 no limit.
        evicts_next: the victim is what would be delivered next.
        owed: messages that could not be evicted when others came in, since they wait for the disk.
    """

    __slots__ = ("_leave", "_line", "_out", "evicts_next", "owed", "size")

    def __init__(self, line: Line, out: InDelivery, leave: Leave) -> None:
        self._line = line
        self._out = out
        self._leave = leave
        self.size = -1
        self.evicts_next = False
        self.owed = 0

    def make_room(self, added: int) -> None:
        """Evict for `added` new messages: at most one each, so sending never lowers the count."""
        excess = min(added, self._line.waiting_count - self.size) if self.size >= 0 else 0
        if excess > 0:
            now = min(excess, len(self._line.ready))
            self.owed += excess - now
            if now:
                self.evict(now)

    def take_owed(self) -> int:
        """Return how many could not be evicted when they came in, and forget that."""
        owed, self.owed = self.owed, 0
        return owed

    def trim(self) -> int:
        """Evict down to the size; returns how many went."""
        excess = len(self._line.ready) - self.size if self.size >= 0 else 0
        if excess > 0:
            self.evict(excess)
        return max(0, excess)

    def victims(self) -> Iterator[Message]:
        """Go through the ready messages in the order in which a full ring evicts them."""
        ready = self._line.ready
        return iter(ready) if self.evicts_next else iter(sorted(ready, key=lambda m: m.seq))

    def evict(self, count: int) -> None:
        """Have so many victims leave."""
        ready = self._line.ready
        assert 0 < count <= len(ready), "more victims than wait"
        victims = ready.take_next(count) if self.evicts_next else ready.take_oldest(count)
        assert len(victims) == count, "fewer victims than were to go"
        self._leave(victims, Gone.REPLACED)

    def admit_due(self, due: list[Message]) -> list[Message]:
        """Let what has come due wait, in due order; returns what is replaced at once."""
        ready, count = self._line.ready, len(due)
        room = count if self.size < 0 else max(0, self.size - len(ready))
        replaced = due[: count - room] if room < count else []
        for message in due[len(replaced) :]:
            ready.put_back(message)
        return replaced

    def sort_returned(
        self, messages: list[Message], backlog: Backlog | None, *, later: bool
    ) -> tuple[list[Message], list[Message]]:
        """Return what of these, newest first, stays and what is replaced.

        `later`: they will wait for their time, and take no room of the ring until then.
        """
        size = self.size
        if size < 0:
            return messages, []
        line = self._line
        behind = line.storing_count  # what has yet to arrive came after all that was handed out
        if backlog is not None and not backlog.ahead:
            behind += backlog.count
        if len(messages) + self._out.count + len(line.ready) + behind <= size:
            return messages, []
        size -= behind
        for at, message in enumerate(messages):
            room = size - (0 if later else at) - self._out.count_newer(message.seq)
            if room <= 0 or line.ready.has_newer(message.seq, room):
                return messages[:at], messages[at:]  # those that follow are older still
        return messages, []

    def push_out(self, returned: int) -> list[Message]:
        """Return the oldest that wait in excess of the ring, one at most for each that came back.

        They are in the queue no more, and not accounted for.
        """
        line = self._line
        excess = min(returned, line.waiting_count - self.size) if self.size >= 0 else 0
        return line.ready.take_oldest(min(excess, len(line.ready))) if excess > 0 else []

    def check_invariants(self) -> None:
        """Assert that it owes what can be evicted later, and that none is noted at two places."""
        assert self.size >= -1, f"a ring of {self.size}"
        assert self.owed >= 0, "it has evicted more than it owed"
        noted = set(self._out.seqs)
        if noted:
            waiting = chain(self._line.holdings(), self._line.storing())
            assert noted.isdisjoint(m.seq for m in waiting), "in delivery, and it waits"
