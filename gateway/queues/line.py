"""All that waits in one queue: for the disk, for its time, and for a consumer.

    add ──> storing ──its batch is on disk──> ready, scheduled     where dispatch waits for the disk
    add ──> ready                                                  else
    add, release ──with a time──> scheduled ──time──> ready

What comes in goes to the tail: the ready messages themselves, or, while something has to wait for
the disk, the waiting room. With the first search the ready messages become an index, and they stay
one until the line is empty and nothing searches. The line knows no consumer, counter or clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final, Protocol, TypeVar

from gateway.model.message import COUNT_SHIFT, EXPIRES, PRIORITY_MASK, SCHEDULED, SHARED, Message
from gateway.queues.indexed import IndexedReady
from gateway.queues.ready import Ready
from gateway.queues.scheduled import NEVER, Scheduled
from gateway.queues.storing import Storing

#: A ticket that all others are below.
_ALL: Final = 1 << 62
#: Flags that a message keeps: annotating makes its body its own, and deliveries are counted.
_LASTING: Final = ((1 << COUNT_SHIFT) - 1) & ~SHARED
_Order = TypeVar("_Order", Ready, IndexedReady)


class Tail(Protocol):
    """Where what comes in goes."""

    def add_run(self, messages: list[Message], priority: int, /) -> None: ...

    def add(self, message: Message, /) -> None: ...


class Line:
    """See the module text.

    Attributes:
        ready: what waits for a consumer.
        scheduled: what waits for its time.
        room: what waits for the disk; None while nothing does, nor will.
        any_flags: at least the union of the flags of all that waits or is in delivery.
        all_flags: at most what all of these have in common, of flags that messages keep.
        durable: whether the queue's messages can be on disk at all.
    """

    __slots__ = (
        "_keeps_index",
        "_tail",
        "_wake",
        "all_flags",
        "any_flags",
        "durable",
        "ready",
        "room",
        "scheduled",
    )

    def __init__(
        self, wake: Callable[[int], None], *, durable: bool, index: IndexedReady | None = None
    ) -> None:
        """`wake` gets the time of what is due before all others; an `index` is kept for good."""
        self.ready: Ready | IndexedReady = Ready() if index is None else index
        self.scheduled = Scheduled()
        self.room: Storing | None = None
        self.any_flags = 0
        self.all_flags = -1
        self.durable = durable
        self._keeps_index = index is not None
        self._tail: Tail = self.ready
        self._wake = wake

    @property
    def storing_count(self) -> int:
        """Messages that wait for the disk."""
        return 0 if self.room is None else self.room.count

    @property
    def waiting_count(self) -> int:
        """Messages that wait for a consumer or for the disk: what a ring bounds."""
        return len(self.ready) + self.storing_count

    def __len__(self) -> int:
        return self.waiting_count + len(self.scheduled)

    @property
    def ready_count(self) -> int:
        """Messages that wait for a consumer."""
        return len(self.ready)

    @property
    def scheduled_count(self) -> int:
        """Messages that wait for their time."""
        return len(self.scheduled)

    def holdings(self) -> Iterator[Message]:
        """Go through what is ready, in delivery order, then through what is scheduled."""
        return chain(self.ready, self.scheduled)

    def storing(self) -> Iterator[Message]:
        """Go through what waits for the disk, in the order in which it came."""
        return iter(() if self.room is None else self.room)

    # ---- in

    def note(self, flags: int) -> None:
        """Remember that there is a message with these flags."""
        self.any_flags |= flags
        self.all_flags &= flags

    def add_run(self, messages: list[Message], flags: int) -> None:
        """Take in messages that share flags and are newer than all others."""
        self.any_flags |= flags
        self.all_flags &= flags
        if not flags & SCHEDULED:
            self._tail.add_run(messages, flags & PRIORITY_MASK)
        elif self.room is None:
            self.schedule(messages)
        else:
            self.room.add_run(messages)

    def add(self, message: Message) -> None:
        """Take in one message that is for now and newer than all others."""
        self.note(message.flags)
        self._tail.add(message)

    def restore(self, messages: list[Message], *, amid: bool) -> None:
        """Put back what was found, in arrival order; `amid`: between others."""
        assert messages[0].seq <= messages[-1].seq, "found in no order"
        kinds = {m.flags for m in messages}
        if len(kinds) == 1 and not amid and not messages[0].flags & SCHEDULED:
            self.ready.add_run(messages, messages[0].flags & PRIORITY_MASK)
        else:
            add = self.ready.put_back if amid else self.ready.add
            for message in messages:
                # What has come due meanwhile passes the ring's check as if it had come due now.
                (self.scheduled.add if message.flags & SCHEDULED else add)(message)
        for flags in kinds:
            self.note(flags)

    def schedule(self, messages: list[Message]) -> None:
        """Keep messages until they are due."""
        scheduled = self.scheduled
        before = scheduled.next_due
        for message in messages:
            scheduled.add(message)
        if scheduled.next_due < before:
            self._wake(scheduled.next_due)

    def _arrive(self, messages: list[Message]) -> None:
        """Put a run, which is on disk, where it would have gone at once."""
        flags = messages[0].flags
        # They may have been forgotten while these were not among what waits.
        self.note(flags)
        if flags & SCHEDULED:
            self.schedule(messages)
        else:
            self.ready.add_run(messages, flags & PRIORITY_MASK)

    # ---- out

    def take_expired(self, now_ms: int) -> list[Message]:
        """Remove and return what has expired; O(n) when any can expire."""
        if not self.any_flags & EXPIRES:
            return []
        doomed = {m.seq for m in self.ready if m.flags & EXPIRES and m.expires <= now_ms}
        late = self.ready.remove_if(doomed) if doomed else []
        return late + self.scheduled.take_expired(now_ms)

    def remove_if(self, seqs: set[int]) -> list[Message]:
        """Remove and return those of these that wait, for whatever; O(n)."""
        removed = self.ready.remove_if(seqs) + self.scheduled.remove_if(seqs)
        stored = [] if self.room is None else self.room.remove_if(seqs)
        for message in stored:
            self.note(message.flags)
        self._leave_room()
        return removed + stored

    def clear(self) -> list[Message]:
        """Remove and return everything."""
        if self.room is not None:
            self.room.stamp(_ALL)
            self.stored(_ALL)
        assert not self.storing_count, "it is cleared, and something waits for the disk"
        return self.ready.clear() + self.scheduled.clear()

    def forget_flags(self) -> bool:
        """Forget the flags of what was there once nothing is ready or scheduled; whether so."""
        if self.ready or self.scheduled.next_due != NEVER:
            return False
        self.any_flags = 0
        self.all_flags = -1
        return True

    # ---- the index

    def make_index(self) -> IndexedReady:
        """Return the ready messages as an index; O(n) when they were none."""
        ready = self.ready
        if isinstance(ready, IndexedReady):
            return ready
        return self._become(IndexedReady(ready))

    def forget_index(self) -> None:
        """Go back to the cheap order once nothing is ready; the caller knows of no search."""
        if isinstance(self.ready, IndexedReady) and not self._keeps_index and not self.ready:
            self._become(Ready())

    def _become(self, ready: _Order) -> _Order:
        assert len(ready) == len(self.ready), "messages lost on the way to the other order"
        if self._tail is self.ready:
            self._tail = ready
        self.ready = ready
        return ready

    # ---- the disk

    @property
    def serialized(self) -> bool:
        """Whether what is durable is always on disk before it is delivered."""
        return self.room is not None and self.room.always

    @property
    def stores_first(self) -> bool:
        """Whether what is durable and comes now is on disk before it is delivered."""
        return self.room is not None and (self.room.always or self.room.meanwhile)

    def serialize(self, always: bool) -> None:  # noqa: FBT001 - says it by name
        """Have all that is durable wait for the disk from now on, or let it go at once again."""
        if self.durable and (always or self.room is not None):
            self._open_room().always = always
            self._leave_room()

    def store_first(self, meanwhile: bool) -> None:  # noqa: FBT001 - says it by name
        """Have all that is durable wait while the disk lags, or let it go at once again.

        What waits already keeps its place before what comes later, whichever way it changes.
        """
        if self.durable and (meanwhile or self.room is not None):
            self._open_room().meanwhile = meanwhile
            self._leave_room()

    def hold(self) -> None:
        """Have all that comes now wait for a ticket, until `let_go`."""
        self._open_room().holding = True

    def let_go(self) -> None:
        """What comes from now on need not wait, if it need not always."""
        if self.room is not None:
            self.room.holding = False
            self._leave_room()

    def stamp(self, ticket: int) -> None:
        """What came last, and has to wait, is on disk with this ticket."""
        if self.room is not None:
            self.room.stamp(ticket)

    def stored(self, ticket: int) -> int:
        """All up to this ticket is on disk; returns how many messages need not wait any more."""
        if self.room is None or not self.room.count:
            return 0
        count = self.room.let_out(ticket)
        self._leave_room()
        return count

    def _open_room(self) -> Storing:
        if self.room is None:
            self._tail = self.room = Storing(self._arrive)
        return self.room

    def _leave_room(self) -> None:
        """Let what comes go straight to the ready ones again, once nothing is before it."""
        if self.room is not None and self.room.idle:
            self.room = None
            self._tail = self.ready

    def check_invariants(self) -> None:
        """Assert that each message waits at one place, that flags cover it, and of the parts."""
        self.ready.check_invariants()
        self.scheduled.check_invariants()
        if self.room is not None:
            self.room.check_invariants()
            assert not self.room.idle, "a waiting room for nobody"
            assert self.durable or not self.stores_first, (
                "waits for a disk that has no place for it"
            )
        assert self._tail is (self.ready if self.room is None else self.room), "another's tail"
        assert isinstance(self.ready, IndexedReady) or not self._keeps_index, "the index is gone"
        for message in self.holdings():
            assert not message.flags & ~self.any_flags, "flags that nobody knows of"
            assert not self.all_flags & _LASTING & ~message.flags, "flags that not all have"
        seqs = [message.seq for message in chain(self.holdings(), self.storing())]
        assert len(set(seqs)) == len(seqs) == len(self), "a message waits at two places"
