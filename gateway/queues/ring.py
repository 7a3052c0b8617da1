"""What a ring keeps: at each add, at each return, and when it is told to.

A ring of `ring_size` bounds what waits. At the tail a new message pushes one out: the oldest, or
what would be delivered next (`evicts_next`). What comes back is judged by when it was sent and by
nothing else, whatever its priority and in whatever order and pieces consumers give back: it stays
when fewer than `ring_size` later ones are there, waiting or in delivery, and then pushes out the
oldest that waits if those that wait have become too many. So of what was in delivery the newest
are left, whoever gave back first.

A ring therefore knows what is in delivery; a queue without a ring keeps no such list. Set on a
queue that has handed out before, a ring learns of deliveries from then on.
"""

from __future__ import annotations

from collections.abc import Iterator

from gateway.model.message import Message
from gateway.queues.grouped import Grouped
from gateway.queues.ports import Gone


class Ringed(Grouped):
    """The part of a queue that a ring bounds."""

    __slots__ = ()

    def trim_ring(self, added: int) -> None:
        """Evict for `added` new messages: at most one each, so sending never lowers the count."""
        excess = min(added, self.waiting_count - self.ring_size) if self.ring_size >= 0 else 0
        if excess > 0:
            now = min(excess, len(self._ready))
            self._owed += excess - now
            if now:
                self._evict(now)

    def trim(self) -> int:
        """Evict down to the ring size; returns how many went."""
        excess = len(self._ready) - self.ring_size if self.ring_size >= 0 else 0
        if excess > 0:
            self._evict(excess)
        return max(0, excess)

    def victims(self) -> Iterator[Message]:
        """Go through the ready messages in the order in which a full ring evicts them."""
        if self.evicts_next:
            return iter(self._ready)
        return iter(sorted(self._ready, key=lambda m: m.seq))

    def _evict(self, count: int) -> None:
        ready = self._ready
        victims = ready.take_next(count) if self.evicts_next else ready.take_oldest(count)
        self.replaced += count
        self._leave(victims, Gone.REPLACED)

    def _admit_due(self, due: list[Message]) -> list[Message]:
        """Let what has come due wait, in due order; returns what is replaced at once."""
        count = len(due)
        room = count if self.ring_size < 0 else max(0, self.ring_size - len(self._ready))
        replaced = due[: count - room] if room < count else []
        for message in due[len(replaced) :]:
            self._ready.put_back(message)
        return replaced

    def _sort_returned(
        self, messages: list[Message], *, later: bool
    ) -> tuple[list[Message], list[Message]]:
        """Return what of these, newest first, stays and what is replaced.

        `later`: they will wait for their time, and take no room of the ring until then.
        """
        size = self.ring_size
        if size < 0:
            return messages, []
        behind = self.storing_count  # what has yet to arrive came after all that was handed out
        if self.backlog is not None and not self.backlog.ahead:
            behind += self.backlog.count
        if len(messages) + self.delivering + len(self._ready) + behind <= size:
            return messages, []
        size -= behind
        for at, message in enumerate(messages):
            room = size - (0 if later else at) - self._out.count_newer(message.seq)
            if room <= 0 or self._ready.has_newer(message.seq, room):
                return messages[:at], messages[at:]  # those that follow are older still
        return messages, []

    def _push_out(self, returned: int) -> list[Message]:
        """Return the oldest that wait in excess of the ring, one at most for each that came back.

        They are in the queue no more, and not accounted for.
        """
        excess = min(returned, self.waiting_count - self.ring_size) if self.ring_size >= 0 else 0
        return self._ready.take_oldest(min(excess, len(self._ready))) if excess > 0 else []

    def _leave(self, messages: list[Message], why: Gone) -> None:
        raise NotImplementedError
