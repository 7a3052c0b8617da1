"""Last-value queues: of the messages that wait with one key only the last stays.

    enters (sent, come due) ──> the last of its key ──a later one enters──> superseded
                                      │                    waits: replaced at once
                                      v                    in delivery: let be, but when it
                                   delivered, gone                      comes back it is replaced

A message is later than another when it began to wait later; what is scheduled begins to wait when
it is due, and what comes back keeps its rank. A message without a key is an ordinary one. What is
superseded still waits until `drop_superseded`: the record of the later value goes into the journal
before the removal of the earlier one. Nothing is handed out between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from gateway.model.message import SCHEDULED, Message
from gateway.queues.in_delivery import InDelivery
from gateway.queues.indexed import IndexedReady
from gateway.queues.line import Line
from gateway.queues.ports import Backlog, Gone
from gateway.queues.queue import Queue
from gateway.queues.ring import Leave, Ring

#: Returns the key of a message, or None.
KeyOf = Callable[[Message], str | None]


class Values(Protocol):
    """What a queue asks about values."""

    def enter(self, message: Message) -> None:
        """It waits from now on, or comes back."""

    def is_last(self, message: Message) -> bool:
        """Whether no later value of its key is there."""

    def left(self, messages: list[Message]) -> None:
        """These are gone."""

    def take_superseded(self) -> list[Message]:
        """Return, once, those that were the last of their key before another one entered."""

    def check_invariants(self, waiting: Iterable[Message]) -> None:
        """Assert that of what waits each is the last of its key, or about to go."""


class NoValues:
    """Values of a queue that keeps all."""

    __slots__ = ()

    def enter(self, message: Message) -> None:
        """See Values."""

    def is_last(self, message: Message) -> bool:
        """See Values."""
        return True

    def left(self, messages: list[Message]) -> None:
        """See Values."""

    def take_superseded(self) -> list[Message]:
        """See Values."""
        return []

    def check_invariants(self, waiting: Iterable[Message]) -> None:
        """See Values."""


class LastValues:
    """Values by key; O(1) for each message."""

    __slots__ = ("_keys", "_superseded", "_values", "key_of")

    def __init__(self, key_of: KeyOf) -> None:
        self.key_of = key_of
        self._keys: dict[int, str] = {}  # by seq, of those that have entered
        self._values: dict[str, dict[int, Message]] = {}  # by key, in the order of entering
        self._superseded: list[Message] = []

    def enter(self, message: Message) -> None:
        """See Values."""
        if message.seq in self._keys:
            return
        key = self.key_of(message)
        if key is None:
            return
        self._keys[message.seq] = key
        values = self._values.get(key)
        if values is None:
            self._values[key] = {message.seq: message}
        else:
            # Those before the last one are in delivery, or it would have replaced them.
            self._superseded.append(values[next(reversed(values))])
            values[message.seq] = message

    def is_last(self, message: Message) -> bool:
        """See Values."""
        key = self._keys.get(message.seq)
        return key is None or next(reversed(self._values[key])) == message.seq

    def left(self, messages: list[Message]) -> None:
        """See Values."""
        for message in messages:
            key = self._keys.pop(message.seq, None)
            if key is not None:
                values = self._values[key]
                del values[message.seq]
                if not values:
                    del self._values[key]

    def take_superseded(self) -> list[Message]:
        """See Values."""
        taken, self._superseded = self._superseded, []
        return taken

    def check_invariants(self, waiting: Iterable[Message]) -> None:
        """See Values."""
        named = sum(map(len, self._values.values()))
        assert named == len(self._keys), f"{named} values, and {len(self._keys)} have keys"
        for key, values in self._values.items():
            assert values, f"no value for {key!r}, and it is known"
            for seq, message in values.items():
                assert seq == message.seq, "the value of another message"
                assert self._keys.get(seq) == key, "a value under another's key"
        superseded = {message.seq for message in self._superseded}
        for message in waiting:
            assert self.is_last(message) or message.seq in superseded, "waits behind its successor"

    def last(self, key: str) -> Message | None:
        """Return the last value of a key."""
        values = self._values.get(key)
        return None if values is None else values[next(reversed(values))]


class _Index(IndexedReady):
    """An index that tells what arrives in it; what is put back does not."""

    __slots__ = ("_arrived",)

    def __init__(self, arrived: Callable[[list[Message]], None]) -> None:
        super().__init__()
        self._arrived = arrived

    def add_run(self, messages: list[Message], priority: int) -> None:
        """See IndexedReady."""
        super().add_run(messages, priority)
        self._arrived(messages)

    def add(self, message: Message) -> None:
        """See IndexedReady."""
        super().add(message)
        self._arrived([message])


class ValueRing(Ring):
    """A ring in which a later value takes the place of the earlier one with its key.

    Attributes:
        values: those of this queue, or none.
    """

    __slots__ = ("_dropped", "_index", "values")

    def __init__(self, line: Line, out: InDelivery, leave: Leave, index: IndexedReady) -> None:
        super().__init__(line, out, leave)
        self.values: Values = NoValues()
        self._index = index
        self._dropped = 0  # by the last add

    def would_replace(self, message: Message) -> tuple[str | None, Message | None]:
        """Return the key of a message that is not there yet, and what waits with that key."""
        values = self.values
        key = values.key_of(message) if isinstance(values, LastValues) else None
        last = values.last(key) if key is not None and isinstance(values, LastValues) else None
        return key, last if last is not None and self._index.has(last) else None

    def drop_superseded(self) -> None:
        """Let go of what later values have replaced, now that those are recorded."""
        waiting = len(self._index)
        gone = self._take_superseded()
        # What was scheduled took no room of the ring, and its going makes none.
        self._dropped = waiting - len(self._index)
        if gone:
            self._leave(gone, Gone.REPLACED)

    def make_room(self, added: int) -> None:
        """See Ring: what has replaced another has not made the queue longer.

        What still waits for the disk may replace others when it arrives, and evicts nothing before.
        """
        added, self._dropped = added - self._dropped, 0
        if added <= 0 or self.size < 0:
            return
        now = min(added, max(0, len(self._index) - self.size))
        if self._line.storing_count:
            self.owed += added - now
        if now:
            self.evict(now)

    def trim(self) -> int:
        """See Ring."""
        self.drop_superseded()
        return super().trim()

    def admit_due(self, due: list[Message]) -> list[Message]:
        """See Ring."""
        for message in due:
            self.values.enter(message)
        fresh, replaced = self._without_superseded(due)
        return replaced + super().admit_due(fresh)

    def sort_returned(
        self, messages: list[Message], backlog: Backlog | None, *, later: bool
    ) -> tuple[list[Message], list[Message]]:
        """See Ring."""
        fresh, replaced = self._without_superseded(messages)
        kept, over = super().sort_returned(fresh, backlog, later=later)
        return kept, replaced + over

    def _take_superseded(self) -> list[Message]:
        """Take what is superseded from where it waits; what is in delivery is let be."""
        superseded = self.values.take_superseded()
        if not superseded:
            return []
        has = self._index.has
        gone = [m for m in superseded if has(m)]
        self._index.remove(gone)
        later = {m.seq for m in superseded if m.flags & SCHEDULED} - {m.seq for m in gone}
        if later:
            gone += self._line.scheduled.remove_if(later)
        gone.sort(key=lambda m: m.seq)
        return gone

    def _without_superseded(self, messages: list[Message]) -> tuple[list[Message], list[Message]]:
        """Return those that are the last of their keys; the others, with what they supersede."""
        is_last = self.values.is_last
        replaced = [m for m in messages if not is_last(m)]
        if replaced:
            messages = [m for m in messages if is_last(m)]
        return messages, self._take_superseded() + replaced

    def check_invariants(self) -> None:
        """See Ring; and the values are those of what is there."""
        super().check_invariants()
        assert self._dropped >= 0, "dropped fewer than none"
        assert self._line.ready is self._index, "values of an index that is gone"
        self.values.check_invariants(self._line.holdings())


class LastValueQueue(Queue):
    """See the module text."""

    __slots__ = ("_index", "_values")

    def _make_line(self, wake: Callable[[int], None], *, durable: bool) -> Line:
        self._index = _Index(self._arrived)
        return Line(wake, durable=durable, index=self._index)

    def _make_ring(self, leave: Leave) -> Ring:
        self._values = ValueRing(self.line, self.out, leave, self._index)
        return self._values

    def be_keyed(self, key_of: KeyOf) -> None:
        """Keep only last values; called while the queue is empty."""
        assert not self.message_count, "values are kept only from the first message on"
        self._values.values = LastValues(key_of)

    @property
    def replaces(self) -> bool:
        """See Queue."""
        return not isinstance(self._values.values, NoValues)

    def would_replace(self, message: Message) -> tuple[str | None, Message | None]:
        """See ValueRing."""
        return self._values.would_replace(message)

    def drop_superseded(self) -> None:
        """See Queue."""
        self._values.drop_superseded()

    def _arrived(self, messages: list[Message]) -> None:
        """These begin to wait, whether sent, let out by the disk, or found by a start."""
        enter = self._values.values.enter
        for message in messages:
            enter(message)

    def _leave(self, messages: list[Message], why: Gone) -> int:
        self._values.values.left(messages)
        return super()._leave(messages, why)
