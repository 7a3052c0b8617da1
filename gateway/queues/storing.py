"""What a queue has taken in and may not hand out before it is on disk.

    add ──> storing ──its batch is on disk──> ready, or scheduled

Only where dispatch waits for the disk: always, for a queue that is serialized, while the disk
lags, or while a transaction's messages are on their way. Until then what comes goes straight to
the ready ones, and nothing here is asked: the queue's tail is its ready messages, or, while
somebody has to wait, this.

A message that need not wait itself still stays behind one that does: order is as it was sent. It
knows no store; tickets are numbers that ascend.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain

from gateway.model.message import DURABLE, SCHEDULED, Message
from gateway.queues.ordered import ascends


class Storing:
    """Runs in the order in which they came, with the ticket of each; stands for the queue's tail.

    Attributes:
        always: whatever is durable waits.
        meanwhile: so it does as long as the disk lags.
        holding: all that comes now waits.
        count: messages.
    """

    __slots__ = ("_arrive", "_open", "_waiting", "always", "count", "holding", "meanwhile")

    def __init__(self, arrive: Callable[[list[Message]], None]) -> None:
        self._arrive = arrive
        self._waiting: deque[tuple[int, list[list[Message]]]] = deque()
        self._open: list[list[Message]] = []  # whose ticket is not known yet
        self.always = self.meanwhile = False
        self.holding = False
        self.count = 0

    @property
    def idle(self) -> bool:
        """Whether nobody waits, and nobody will."""
        return not (self.always or self.meanwhile or self.holding or self.count)

    def add_run(self, messages: list[Message], _priority: int = 0) -> None:
        """Keep a run until its ticket, or that of the one before it, is on disk."""
        waits = (self.always or self.meanwhile) and messages[0].flags & DURABLE
        if self._open or self.holding or waits:
            self._open.append(messages)
        elif self._waiting:
            self._waiting[-1][1].append(messages)
        else:
            self._arrive(messages)
            return
        self.count += len(messages)

    def add(self, message: Message) -> None:
        """Keep one message; neighbours that are alike become a run."""
        runs = self._open
        if runs and runs[-1][-1].flags == message.flags and not message.flags & SCHEDULED:
            runs[-1].append(message)
            self.count += 1
        else:
            self.add_run([message])

    def stamp(self, ticket: int) -> None:
        """What came last is on disk with this ticket."""
        runs = self._open
        if not runs:
            return
        self._open = []
        if self._waiting and self._waiting[-1][0] >= ticket:
            self._waiting[-1][1].extend(runs)
        else:
            self._waiting.append((ticket, runs))

    def __iter__(self) -> Iterator[Message]:
        """Go through the messages in the order in which they came."""
        runs = chain.from_iterable(runs for _, runs in self._waiting)
        return chain.from_iterable(chain(runs, self._open))

    def remove_if(self, doomed: set[int]) -> list[Message]:
        """Remove and return the messages whose `seq` is in `doomed`; O(n)."""
        removed = [message for message in self if message.seq in doomed]
        if removed:
            left = [(ticket, _without(runs, doomed)) for ticket, runs in self._waiting]
            # A ticket for which nobody waits is told to nobody: what came next would wait for it.
            self._waiting = deque((ticket, runs) for ticket, runs in left if runs)
            self._open = _without(self._open, doomed)
            self.count -= len(removed)
            assert self.count >= 0, "more were removed than waited"
        return removed

    def let_out(self, ticket: int) -> int:
        """Let arrive what is on disk with this ticket; returns how many messages that are."""
        count = self.count
        waiting = self._waiting
        while waiting and waiting[0][0] <= ticket:
            for run in waiting.popleft()[1]:
                self.count -= len(run)
                self._arrive(run)
        assert self.count >= 0, "more were let out than waited"
        return count - self.count

    def check_invariants(self) -> None:
        """Assert that all wait in the order in which they came, and for tickets in theirs."""
        assert ascends(ticket for ticket, _ in self._waiting), "tickets in no order"
        assert ascends(message.seq for message in self), "what waits for the disk is in no order"
        runs = [run for _, runs in self._waiting for run in runs] + self._open
        assert all(runs), "nothing waits, as a run"
        assert all(runs for _, runs in self._waiting), "nobody waits for a ticket"
        count = sum(map(len, runs))
        assert self.count == count, f"{self.count} are counted, and {count} wait for the disk"
        for run in runs:
            assert len({m.flags for m in run}) == 1, "a run of messages that differ"


def _without(runs: list[list[Message]], doomed: set[int]) -> list[list[Message]]:
    """Return what is left of runs without these messages."""
    kept = [[message for message in run if message.seq not in doomed] for run in runs]
    return [run for run in kept if run]
