"""What the store was told, by ticket: the model of the journal, with what lies on pages.

`Recorder` is the store that a gateway gets; it notes each call before it passes it on. A start must
find exactly the notes up to the last batch that it found, on pages as well as in the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway.model.definitions import (
    AddressDefinition,
    Definition,
    PageGone,
    PagesDefinition,
    QueueDefinition,
    StreamDefinition,
)
from gateway.model.message import (
    ACQUIRED,
    COUNT_SHIFT,
    DURABLE,
    EXPIRES,
    PAGED,
    SCHEDULED,
    SHARED,
    Message,
)
from gateway.queues.queue import Queue
from gateway.store.persistence import JournalStore, Restored
from tests.simulation.model import Kept, Model, State, ViolationError

#: ACQUIRED is on disk where memory gave a rotten record back, and nobody is promised that.
_NEVER_STORED = SHARED | PAGED | ACQUIRED
_COUNTS = 0xFFFF << COUNT_SHIFT


@dataclass(slots=True)
class CoreState(State):
    """Definitions and messages; those on pages apart."""

    paged: dict[int, dict[int, Kept]] = field(default_factory=dict)

    def add_paged(self, queue_id: int, seq: int, kept: Kept) -> None:
        self.paged.setdefault(queue_id, {})[seq] = kept

    def remove_paged(self, queue_id: int, first: int, last: int) -> None:
        held = self.paged.get(queue_id, {})
        for seq in [s for s in held if first <= s <= last]:
            del held[seq]

    def count(self, queue_id: int, seq: int, flags: int) -> None:
        self._either(queue_id, seq, flags=flags)

    def postpone(self, queue_id: int, seq: int, due: int) -> None:
        self._either(queue_id, seq, due=due)

    def _either(self, queue_id: int, seq: int, **change: int) -> None:
        for part in (self.queues, self.paged):
            held = part.get(queue_id, {})
            if seq in held:
                held[seq] = held[seq].clone()
                for name, value in change.items():
                    setattr(held[seq], name, value)

    def undefine(self, definition: Definition) -> None:
        State.undefine(self, definition)
        if isinstance(definition, QueueDefinition):
            self.paged.pop(definition.queue_id, None)

    def copy(self) -> CoreState:
        return CoreState(
            dict(self.defined),
            {q: dict(held) for q, held in self.queues.items()},
            {q: dict(held) for q, held in self.paged.items()},
        )

    def content(self) -> list[object]:
        paged = {queue_id: sorted(held) for queue_id, held in self.paged.items() if held}
        return [*State.content(self), paged]

    def message_count(self) -> int:
        known = [key for key in self.defined if isinstance(key, int)]
        return sum(len(part.get(key, ())) for key in known for part in (self.queues, self.paged))

    def of(self, queue_id: int) -> dict[int, Kept]:
        """Return all that is recorded of a queue, by seq."""
        return {**self.queues.get(queue_id, {}), **self.paged.get(queue_id, {})}


class CoreModel(Model):
    """See the module text."""

    def __init__(self) -> None:
        super().__init__()
        self.durable: CoreState = CoreState()
        self.now: CoreState = CoreState()

    def recovered(self, found: Restored, number: int, *, attempts: int = 1) -> int:
        ticket = super().recovered(found, number, attempts=attempts)
        for queue_id in [q for q in self.durable.paged if q not in self.durable.defined]:
            del self.durable.paged[queue_id]
            self.now.paged.pop(queue_id, None)
        if not found.clean:
            for held in self.durable.paged.values():
                for kept in held.values():
                    kept.suspect = True
        return ticket

    def compare(self, queue: Queue, messages: Sequence[Message]) -> None:
        """Compare what a queue holds after a start with what is recorded of it."""
        expected = self.now.of(queue.queue_id)
        seqs = [m.seq for m in messages]
        if sorted(seqs) != sorted(expected):
            lost, extra = sorted(expected.keys() - set(seqs)), sorted(set(seqs) - expected.keys())
            raise ViolationError(f"{queue.name}: lost {lost}, came back {extra}, holds {seqs}")
        if queue.message_count != len(expected):
            raise ViolationError(f"{queue.name}: counts {queue.message_count}, has {len(expected)}")
        paged = self.now.paged.get(queue.queue_id, {})
        if queue.paged_count != len(paged):
            raise ViolationError(f"{queue.name}: {queue.paged_count} paged, not {len(paged)}")
        for message in messages:
            kept = expected[message.seq]
            # Of what is not durable no delivery count is recorded.
            counted = -1 if kept.flags & DURABLE else ~_COUNTS
            got = (
                message.body,
                message.flags & ~_NEVER_STORED & counted,
                message.expires if message.flags & EXPIRES else 0,
                message.due if message.flags & SCHEDULED else 0,
            )
            body, flags, expires, _, due = kept.seen()
            if got != (body, flags & ~_NEVER_STORED & counted, expires, due):
                raise ViolationError(
                    f"{queue.name} seq {message.seq}: {got} instead of {kept.seen()}"
                )


class Recorder(JournalStore):
    """The journal's store; see the module text. `atomic`: the ticket of the part that is open."""

    def __init__(self, journal: object, reader: object, model: CoreModel) -> None:
        super().__init__(journal, reader)  # type: ignore[arg-type]
        self.model = model
        self._began = 0
        self._parts = 0

    def _did(self, ticket: int, what: str, *args: object) -> None:
        if self._parts and ticket != self._began:
            raise ViolationError(f"an atomic part is in the batches {self._began} and {ticket}")
        self.model.did(ticket, what, *args)

    def begin_atomic(self) -> None:
        super().begin_atomic()
        if not self._parts:
            self._began = self.ticket
        self._parts += 1

    def end_atomic(self) -> None:
        self._parts -= 1
        super().end_atomic()

    def append(self, targets, run, size, now_ms) -> int:
        ticket = super().append(targets, run, size, now_ms)
        count = len(run.bodies)
        alike = isinstance(run.flags, int)
        flags = [run.flags] * count if alike else run.flags
        expires = [run.expires] * count if alike else run.expires
        if alike and not run.flags & DURABLE:
            raise ViolationError("what is not durable went to the journal")
        for queue_id, first in targets:
            for at, body in enumerate(run.bodies):
                if body is not None:
                    kept = Kept(body, flags[at] & ~_NEVER_STORED, expires[at], now_ms, due=run.due)
                    self._did(ticket, "add", queue_id, first + at, kept)
        return ticket

    def page(self, place, targets, run, now_ms):
        block = super().page(place, targets, run, now_ms)
        for queue_id, first in targets:
            for seq, body in enumerate(run.bodies, first):
                kept = Kept(body, run.flags & ~_NEVER_STORED, run.expires, now_ms, due=run.due)
                self._did(block.ticket, "add_paged", queue_id, seq, kept)
        return block

    def remove(self, queue_id: int, first: int, last: int, count: int) -> int:
        held = self.model.now.queues.get(queue_id, {})
        known = sum(1 for seq in range(first, last + 1) if seq in held)
        if known != count:
            raise ViolationError(f"{count} removed of {known} from {first} to {last}")
        told = super().remove(queue_id, first, last, count)
        if self._parts and told != self._began:
            raise ViolationError(f"an atomic part is in the batches {self._began} and {told}")
        self.model.removed(told, queue_id, first, last)
        return told

    def replace(self, queue_id: int, first: int, last: int, count: int) -> int:
        ticket = super().replace(queue_id, first, last, count)
        self._did(ticket, "remove", queue_id, first, last)
        return ticket

    def remove_paged(self, queue_id: int, first: int, last: int) -> int:
        ticket = super().remove_paged(queue_id, first, last)
        self._did(ticket, "remove_paged", queue_id, first, last)
        return ticket

    def count(self, queue_id, entries) -> int:
        ticket = super().count(queue_id, entries)
        for seq, flags in entries:
            self._did(ticket, "count", queue_id, seq, flags)
        return ticket

    def postpone(self, queue_id, entries) -> int:
        ticket = super().postpone(queue_id, entries)
        for seq, due in entries:
            self._did(ticket, "postpone", queue_id, seq, due)
        return ticket

    def define(self, definition: Definition) -> int:
        ticket = super().define(definition)
        if not isinstance(definition, PagesDefinition | PageGone):
            self._did(ticket, "define", definition)
        return ticket

    def undefine(self, definition: Definition) -> int:
        ticket = super().undefine(definition)
        match definition:
            case QueueDefinition() | AddressDefinition() | StreamDefinition():
                self._did(ticket, "undefine", definition)
            case _:
                pass
        return ticket
