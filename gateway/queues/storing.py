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
from typing import Final

from gateway.model.message import DURABLE, PRIORITY_MASK, SCHEDULED, Message
from gateway.queues.scheduled import Scheduled
from gateway.queues.selecting import Searched

#: A ticket that all others are below.
_ALL: Final = 1 << 62


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
            for runs in (*(runs for _, runs in self._waiting), self._open):
                kept = [[m for m in run if m.seq not in doomed] for run in runs]
                runs[:] = [run for run in kept if run]
            self.count -= len(removed)
        return removed

    def let_out(self, ticket: int) -> int:
        """Let arrive what is on disk with this ticket; returns how many messages that are."""
        count = self.count
        waiting = self._waiting
        while waiting and waiting[0][0] <= ticket:
            for run in waiting.popleft()[1]:
                self.count -= len(run)
                self._arrive(run)
        return count - self.count


class Serialized(Searched):
    """The part of a queue that waits for the disk."""

    __slots__ = ("_owed", "_storing", "all_flags", "any_flags", "durable")

    _scheduled: Scheduled
    durable: bool

    def __init__(self) -> None:
        super().__init__()
        self.any_flags = 0
        self.all_flags = -1
        self._owed = 0  # that a ring evicts when what waits for the disk has arrived
        self._storing: Storing | None = None

    @property
    def waiting_count(self) -> int:
        """Messages that wait for a consumer or for the disk: what a ring bounds."""
        return len(self._ready) + self.storing_count

    @property
    def storing_count(self) -> int:
        """Messages that wait for the disk before they can be delivered."""
        return 0 if self._storing is None else self._storing.count

    def storing(self) -> Iterator[Message]:
        """Go through these, in the order in which they came."""
        return iter(() if self._storing is None else self._storing)

    @property
    def serialized(self) -> bool:
        """Whether what is durable is always on disk before it is delivered."""
        return self._storing is not None and self._storing.always

    def serialize(self, always: bool) -> None:  # noqa: FBT001 - says it by name
        """Have all that is durable wait for the disk from now on, or let it go at once again."""
        if self.durable and (always or self._storing is not None):
            self._waiting_room().always = always
            self._leave_waiting_room()

    @property
    def stores_first(self) -> bool:
        """Whether what is durable and comes now is on disk before it is delivered."""
        storing = self._storing
        return storing is not None and (storing.always or storing.meanwhile)

    def store_first(self, meanwhile: bool) -> None:  # noqa: FBT001 - says it by name
        """Have all that is durable wait while the disk lags, or let it go at once again.

        What waits already keeps its place before what comes later, whichever way it changes.
        """
        if self.durable and (meanwhile or self._storing is not None):
            self._waiting_room().meanwhile = meanwhile
            self._leave_waiting_room()

    def hold(self) -> None:
        """Have all that comes now wait for a ticket, until `let_go`."""
        self._waiting_room().holding = True

    def let_go(self) -> None:
        """What comes from now on need not wait, if it need not always."""
        if self._storing is not None:
            self._storing.holding = False
            self._leave_waiting_room()

    def stamp(self, ticket: int) -> None:
        """What came last, and has to wait, is on disk with this ticket."""
        if self._storing is not None:
            self._storing.stamp(ticket)

    def stored(self, ticket: int) -> int:
        """All up to this ticket is on disk; returns how many messages need not wait any more.

        The caller then calls `trim_ring` with what `take_owed` says, and dispatches.
        """
        storing = self._storing
        if storing is None or not storing.count:
            return 0
        count = storing.let_out(ticket)
        self._leave_waiting_room()
        return count

    def take_owed(self) -> int:
        """Return how many a ring could not evict when they came in, and forget that."""
        owed, self._owed = self._owed, 0
        return owed

    def _come_in_later(self, messages: list[Message]) -> None:
        """Take in what waits for its time."""
        if self._storing is None:
            self._schedule(messages)
        else:
            self._storing.add_run(messages)

    def _remove_storing(self, seqs: set[int]) -> list[Message]:
        """Remove those of these that wait for the disk; returns them."""
        removed = [] if self._storing is None else self._storing.remove_if(seqs)
        for message in removed:
            self.any_flags |= message.flags
            self.all_flags &= message.flags
        return removed

    def _store_none(self) -> None:
        """Let out all that waits for the disk, because it is to be removed."""
        if self._storing is not None:
            self._storing.stamp(_ALL)
            self.stored(_ALL)

    def _waiting_room(self) -> Storing:
        if self._storing is None:
            self._tail = self._storing = Storing(self._arrive)
        return self._storing

    def _leave_waiting_room(self) -> None:
        """Let what comes go straight to the ready ones again, once nobody is before it."""
        if self._storing is not None and self._storing.idle:
            self._storing = None
            self._tail = self._ready

    def _arrive(self, messages: list[Message]) -> None:
        """Put a run where it would have gone at once."""
        flags = messages[0].flags
        # They may have been forgotten while these were not among what waits.
        self.any_flags |= flags
        self.all_flags &= flags
        if flags & SCHEDULED:
            self._schedule(messages)
        else:
            self._ready.add_run(messages, flags & PRIORITY_MASK)

    def _schedule(self, messages: list[Message]) -> None:
        """Keep messages until they are due."""
        raise NotImplementedError
