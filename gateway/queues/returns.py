"""Messages that consumers give back: to their old places, to a later time, to their page, or dead.

An attempt that has failed is counted; a message that has used up its attempts is dead. A full ring
keeps the newest, see `ring`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from gateway.model.message import (
    ACQUIRED,
    COUNT_SHIFT,
    DURABLE,
    ONE_DELIVERY,
    SCHEDULED,
    Message,
)
from gateway.queues.in_delivery import InDelivery
from gateway.queues.line import Line
from gateway.queues.ports import Backlog, Effects, Gone
from gateway.queues.ring import Leave, Ring
from gateway.queues.searching import Ahead
from gateway.queues.selecting import Held

_COUNT_MAX: Final = 0xFFFF
#: Tells when a message is due again.
DueOf = Callable[[Message], int]
Q = TypeVar("Q")


class Returns(Generic[Q]):
    """See the module text.

    Attributes:
        max_attempts: failed deliveries after which a message is dead; -1 never.
    """

    __slots__ = (
        "_ahead",
        "_effects",
        "_leave",
        "_line",
        "_out",
        "_queue",
        "_ring",
        "max_attempts",
    )

    def __init__(
        self,
        line: Line,
        out: InDelivery,
        ring: Ring,
        ahead: Ahead,
        *,
        leave: Leave,
        effects: Effects[Q],
        queue: Q,
    ) -> None:
        """`effects` are told of what happens to `queue`."""
        self._line = line
        self._out = out
        self._ring = ring
        self._ahead = ahead
        self._leave = leave
        self._effects = effects
        self._queue = queue
        self.max_attempts = 10

    def take_back(
        self,
        held: Held,
        messages: list[Message],
        backlog: Backlog | None,
        *,
        failed: bool,
        due: DueOf | None,
        deleted: bool,
    ) -> int:
        """Put messages in delivery back; those of a deleted queue are gone. Returns the ticket."""
        ticket = 0
        out = self._out
        if out.marked:
            messages = out.as_held(messages)
        if failed:
            messages, dead = self._count_attempt(messages)
            if dead:
                self._out.take_back(held, dead)
                ticket = self._leave(dead, Gone.KILLED)
        self._out.take_back(held, messages)
        if deleted and messages:
            ticket = max(ticket, self._leave(messages, Gone.REMOVED))
            messages = []
        elif len(messages) > 1:
            messages = sorted(messages, key=lambda m: m.seq, reverse=True)
        kept, replaced = self._ring.sort_returned(messages, backlog, later=due is not None)
        assert len(kept) + len(replaced) >= len(messages), "neither kept nor replaced"
        if due is not None:
            ticket = max(ticket, self._postpone(kept, due))
        else:
            if failed and kept:
                stored = [m for m in kept if m.flags & DURABLE]
                ticket = max(ticket, self._effects.counted(self._queue, stored))
            stay = kept if backlog is None else self._ahead.put_back(backlog, kept)
            for message in stay:
                self._line.ready.put_back(message)
            replaced = replaced + self._ring.push_out(len(kept))
        if replaced:
            ticket = max(ticket, self._leave(replaced, Gone.REPLACED))
        return ticket

    def _postpone(self, messages: list[Message], due: DueOf) -> int:
        for message in messages:
            message.flags |= SCHEDULED
            message.due = due(message)
            self._line.any_flags |= message.flags
        self._line.schedule(messages)
        return self._effects.postponed(self._queue, [m for m in messages if m.flags & DURABLE])

    def _count_attempt(self, messages: list[Message]) -> tuple[list[Message], list[Message]]:
        """Count one delivery more for each; returns those that stay and those that are dead."""
        stay: list[Message] = []
        dead: list[Message] = []
        for message in messages:
            if message.flags >> COUNT_SHIFT < _COUNT_MAX:
                message.flags += ONE_DELIVERY
            self._line.any_flags |= message.flags
            attempts = message.flags >> COUNT_SHIFT
            (dead if 0 < self.max_attempts <= attempts else stay).append(message)
        assert len(stay) + len(dead) == len(messages), "neither waiting again nor dead"
        return stay, dead

    def note_acquired(self, messages: list[Message]) -> None:
        """Messages in delivery were with a consumer: the next one is not the first."""
        assert len(messages) <= self._out.count, "more than are in delivery"
        for message in self._out.unmarked(messages):
            message.flags |= ACQUIRED
        self._line.any_flags |= ACQUIRED
