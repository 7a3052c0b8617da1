"""Which messages of a ring consumers hold, for the question how many of them are newer than one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

from gateway.model.message import Message


class InDelivery:
    """Which messages of a ring consumers hold: their seqs, ascending. Empty for other queues."""

    __slots__ = ("seqs",)

    def __init__(self) -> None:
        self.seqs: list[int] = []

    def add(self, messages: list[Message]) -> None:
        """These have been handed out."""
        seqs = self.seqs
        for message in messages:
            if not seqs or message.seq > seqs[-1]:
                seqs.append(message.seq)
            else:
                insort(seqs, message.seq)

    def remove(self, messages: list[Message]) -> None:
        """These are not in delivery any more; some may have been handed out before the ring."""
        seqs = self.seqs
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

    def count_newer(self, seq: int) -> int:
        """Return how many of these were sent after `seq`."""
        return len(self.seqs) - bisect_right(self.seqs, seq)
