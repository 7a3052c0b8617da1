"""What an operator does with messages that wait: remove, expire, dead-letter, move, count.

Long queues are worked through in steps, each a turn of its own, so that nobody waits for all of it:

    started ──step: look, select, act──> ... ──> ended ──all durable──> done (count, why not more)
               │  ^                       └──cancelled──> what was done stays
               v  │ a block of a page is there
             waiting

What came after the start is left alone; what was consumed meanwhile is passed over. Each step is
whole or not at all: of a moved message the copy and the removal are in one journal batch. What is
on pages is looked at as its blocks come from the disk; other errands, and consumers, go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final, Protocol

from gateway.broker.operations.walk import PageWalk
from gateway.broker.ports.store import Store
from gateway.model.errors import Refusal
from gateway.model.message import (
    PAGED,
    Message,
)
from gateway.model.ports import DurableListener
from gateway.model.turn import Turn
from gateway.queues.indexed import Condition
from gateway.queues.queue import Gone, Queue

#: Messages that one step acts on, unless it is told otherwise: some 30 ms of the dearest.
STEP: Final = 200
#: Messages that one step looks at: some milliseconds of selecting.
LOOK: Final = 2000
#: Steps of the longest errand in memory: each one goes through that to take its share out.
_STEPS_MAX: Final = 64

#: Acts on messages that were selected; returns how many it did something with, and why not others.
Act = Callable[[list[Message]], tuple[int, Refusal | None]]
Selects = Callable[[Message], bool]
#: How many messages, and why not more.
Done = Callable[[int, Refusal | None], None]


class Confirming(Protocol):
    """Confirms what is recorded, a turn at a time. Implemented by the gateway."""

    @property
    def turn(self) -> Turn: ...

    @property
    def store(self) -> Store: ...

    def await_durable(self, listener: DurableListener) -> None:
        """Tell the listener once of the next tickets that are on disk."""


class Errand:
    """One operation on the messages of one queue. Implements the DurableListener port."""

    __slots__ = (
        "_act",
        "_count",
        "_done",
        "_ended",
        "_gateway",
        "_limit",
        "_looks",
        "_refusal",
        "_rest",
        "_selects",
        "_step_size",
        "_synced",
        "_ticket",
        "_waiting",
        "_walk",
    )

    def __init__(
        self,
        gateway: Confirming,
        queue: Queue,
        act: Act,
        *,
        selects: Selects | None = None,
        looks: bool = False,
        limit: int | None = None,
        step: int | None = None,
        among: list[Message] | None = None,
        only: int | None = None,
    ) -> None:
        """Prepare; at most `limit` of the messages that `selects` finds are acted on.

        They are looked for `among` these, by default among all that wait, step by `step`; then on
        the queue's pages, from where they are read back to be acted on. With `only` it is that seq.
        """
        waiting = list(queue.holdings()) if among is None else among
        if only is not None:
            waiting = [m for m in waiting if m.seq == only]
        self._gateway = gateway
        self._act = act
        self._selects = selects
        self._looks = looks  # and changes nothing: there is nothing to wait for
        self._limit = len(waiting) + queue.paged_count if limit is None else limit
        self._rest = deque(waiting)  # looked up and not looked at
        start, end = (0, None) if only is None else (only, only + 1)
        self._walk = PageWalk(queue, self._woken, start=start, end=end)
        self._step_size = step or max(STEP, len(waiting) // _STEPS_MAX)
        self._count = 0
        self._done: Done = _nothing
        self._refusal: Refusal | None = None
        self._ended = self._waiting = False
        self._ticket = self._synced = 0

    def start(self, done: Done) -> None:
        """Take the first step now and the others later; `done` may be called before this ends."""
        self._done = done
        self._step()

    def cancel(self) -> None:
        """Do nothing more, and tell nobody: who asked for it is gone."""
        self._ended = True
        self._done = _nothing

    def _step(self) -> None:
        if self._ended:
            return
        gateway = self._gateway
        chosen, more = self._look()
        if chosen:
            count, self._refusal = self._act(chosen)
            self._count += count
            # Also what others recorded before: it is on disk no later.
            ticket = 0 if self._looks else gateway.store.unsynced
            if ticket:
                self._ticket = ticket
                gateway.await_durable(self)
        gateway.turn.need_end()
        self._ended = self._refusal is not None or not more or self._count >= self._limit
        if not self._ended:
            if not self._waiting:
                gateway.turn.after(self._step)
        elif self._synced >= self._ticket:
            self._done(self._count, self._refusal)

    def _woken(self) -> None:
        """A block is there: look it up at once, before it has to make room, and go on."""
        if not self._waiting or self._ended:
            return
        self._look_up()
        if not self._waiting:
            self._gateway.turn.after(self._step)

    def durable_up_to(self, ticket: int) -> None:
        """See the DurableListener port."""
        self._synced = ticket
        if ticket < self._ticket:
            self._gateway.await_durable(self)
        elif self._ended:
            self._done(self._count, self._refusal)

    def consumed(self, tickets: Sequence[int]) -> None:
        """See the DurableListener port: nothing is sent from here."""

    def store_failed(self, refusal: Refusal) -> None:
        """See the DurableListener port: nothing is known to be done."""
        self._refusal = refusal
        self._count = self._ticket = 0
        if self._ended:
            self._done(0, refusal)
        else:
            self._rest.clear()
            self._walk.ended = True
            if self._waiting:
                self._waiting = False
                self._gateway.turn.after(self._step)

    def _look(self) -> tuple[list[Message], bool]:
        """Return the messages of the next step, and whether there may be more behind them."""
        selects = self._selects
        most = min(self._step_size, self._limit - self._count)
        looked = 0
        chosen: list[Message] = []
        while most > 0 and (self._rest or self._look_up()):
            message = self._rest.popleft()
            if message.flags & PAGED:
                most = min(most, STEP)
            looked += 1
            if selects is None or selects(message):
                chosen.append(message)
            if len(chosen) >= most or (selects is not None and looked >= LOOK):
                return chosen, True
        return chosen, self._waiting

    def _look_up(self) -> bool:
        """Look up what is next on pages; returns whether there is something."""
        if not self._walk.ended:
            self._rest.extend(self._walk.look(STEP))
            self._waiting = self._walk.waits
        return bool(self._rest)


def read_back(queue: Queue, messages: list[Message]) -> set[int]:
    """Have those of these that are on pages wait in memory, to be acted on; returns their seqs."""
    backlog = queue.backlog
    if backlog is None:
        return set()
    paged = [m for m in messages if m.flags & PAGED and backlog.unread(m.seq)]
    if paged:
        backlog.take(paged)
    return {m.seq for m in paged}


def counting(count: Callable[[Message], None]) -> Act:
    """Return what only looks."""

    def act(messages: list[Message]) -> tuple[int, Refusal | None]:
        for message in messages:
            count(message)
        return len(messages), None

    return act


def removing(queue: Queue, why: Gone) -> Act:
    """Return what takes messages out: REMOVED for good, EXPIRED and KILLED to where these go."""

    def act(messages: list[Message]) -> tuple[int, Refusal | None]:
        read_back(queue, messages)
        return len(queue.take_out({m.seq for m in messages}, why)), None

    return act


def refilter(gateway: Confirming, queue: Queue, condition: Condition) -> None:
    """Remove what a queue's new filter does not want: from memory now, from its pages in steps."""
    matches = condition.matches
    waiting = chain(queue.holdings(), queue.storing())
    queue.take_out({m.seq for m in waiting if not matches(m)}, Gone.REMOVED)
    if queue.paged_count:
        act = removing(queue, Gone.REMOVED)
        Errand(gateway, queue, act, selects=lambda m: not matches(m), among=[]).start(_nothing)


def passing(queue: Queue, do: Callable[[list[Message]], int]) -> Act:
    """Return what does something with those that still wait, and tells how many it was."""

    def act(messages: list[Message]) -> tuple[int, Refusal | None]:
        count = do(that_wait(queue, messages))
        queue.ahead.give_back(queue.backlog)
        return count, None

    return act


def that_wait(queue: Queue, messages: list[Message]) -> list[Message]:
    """Return those of these messages that still wait, read back from pages where they lie there."""
    there = read_back(queue, messages)
    if len(there) < len(messages):
        there |= {m.seq for m in queue.holdings()}
    return [m for m in messages if m.seq in there]


def _nothing(count: int, refusal: Refusal | None) -> None:
    """Stand for whoever does not want to know."""
