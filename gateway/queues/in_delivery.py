"""What consumers of one queue hold: how many, with a ring which, and what was marked for them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

from gateway.model.message import Message
from gateway.queues.ordered import ascends
from gateway.queues.selecting import Held


class InDelivery:
    """See the module text.

    Attributes:
        count: messages.
        is_listed: which they are is noted from now on.
        seqs: those of them that were noted, ascending; empty for a queue without a ring.
        marked: what is in delivery with a mark, by seq, as the queue holds it; None: nothing.
    """

    __slots__ = ("count", "is_listed", "marked", "seqs")

    def __init__(self) -> None:
        self.count = 0
        self.is_listed = False
        self.seqs: list[int] | tuple[()] = ()
        self.marked: dict[int, Message] | None = None

    def hand_out(self, held: Held, messages: list[Message]) -> None:
        """A consumer has these now."""
        count = len(messages)
        held.count += count
        self.count += count
        if self.is_listed:
            self._add(messages)

    def take_back(self, held: Held, messages: list[Message]) -> None:
        """It has these no more; some may have been handed out before they were noted."""
        count = len(messages)
        held.count = left = held.count - count
        assert left >= 0, "a consumer gave back more than it had"
        self.count -= count
        if self.seqs:
            self._remove(messages)

    def mark(self, message: Message) -> None:
        """A consumer has a copy of this one, which is marked."""
        assert self.count, "nobody has what is marked"
        if self.marked is None:
            self.marked = {}
        self.marked[message.seq] = message

    def as_held(self, messages: list[Message]) -> list[Message]:
        """Return messages as the queue holds them, and forget their marks."""
        marked = self.marked
        return [marked.pop(m.seq, m) for m in messages] if marked else messages

    def unmarked(self, messages: list[Message]) -> list[Message]:
        """As `as_held`, and the marks stay known."""
        marked = self.marked
        return [marked.get(m.seq, m) for m in messages] if marked else messages

    def count_newer(self, seq: int) -> int:
        """Return how many of those that were noted were sent after `seq`."""
        return len(self.seqs) - bisect_right(self.seqs, seq)

    def _add(self, messages: list[Message]) -> None:
        if isinstance(self.seqs, tuple):
            self.seqs = []
        seqs = self.seqs
        for message in messages:
            if not seqs or message.seq > seqs[-1]:
                seqs.append(message.seq)
            else:
                insort(seqs, message.seq)

    def _remove(self, messages: list[Message]) -> None:
        seqs = self.seqs
        assert isinstance(seqs, list), "nothing was noted"
        gone = [message.seq for message in messages]
        # What is settled in order lies at one place.
        at = bisect_left(seqs, gone[0]) if gone else 0
        if seqs[at : at + len(gone)] == gone:
            del seqs[at : at + len(gone)]
            return
        for seq in gone:
            at = bisect_left(seqs, seq)
            if at < len(seqs) and seqs[at] == seq:
                del seqs[at]

    def check_invariants(self, held: int) -> None:
        """Assert that consumers hold so many, and that what was noted is among these."""
        assert self.count == held, f"{self.count} are in delivery, and {held} are held"
        assert ascends(self.seqs), "what is in delivery is noted in no order"
        assert len(self.seqs) <= self.count, "noted, and not in delivery"
        marked = self.marked or {}
        assert len(marked) <= self.count, "marked, and not in delivery"
        for seq, message in marked.items():
            assert seq == message.seq, "the mark of another message"
