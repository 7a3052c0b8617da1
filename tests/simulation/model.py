"""What the journal must hold, kept the simple way: effects by ticket, applied when durable.

A recovery names the last batch that it found, R. What it found must be exactly the effects of all
tickets up to R's: no more, no less. R may not lie below what was reported durable, nor above what
was handed to the writer. From this follow: nothing reported is lost, nothing removed comes back,
nothing never sent appears, and a batch is there whole or not at all.

What was never handed over may be reported when it leaves nothing behind: tickets are those of the
process, and batches have numbers of their own on disk.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gateway.model.definitions import (
    AddressDefinition,
    Definition,
    QueueDefinition,
    StreamDefinition,
)
from gateway.model.message import ACQUIRED, EXPIRES, MAYBE_SEEN, SCHEDULED
from gateway.store.persistence import Restored
from storage.batch import Batch


class ViolationError(AssertionError):
    """The journal broke a promise."""


@dataclass(slots=True)
class Kept:
    """One message of one queue."""

    body: bytes
    flags: int
    expires: int
    accepted_ms: int
    suspect: bool = False
    due: int = 0

    def clone(self) -> Kept:
        return replace(self)

    @property
    def seen_flags(self) -> int:
        """The flags that a gateway has in memory."""
        return self.flags | (MAYBE_SEEN if self.suspect else 0)

    def seen(self) -> tuple[bytes, int, int, int, int]:
        """Return what a recovery must give back; it may know ACQUIRED or not."""
        flags = self.seen_flags & ~ACQUIRED
        expires = self.expires if flags & EXPIRES else 0
        return self.body, flags, expires, self.accepted_ms, self.due if flags & SCHEDULED else 0


@dataclass(slots=True)
class State:
    """Definitions and messages."""

    defined: dict[int | str, Definition] = field(default_factory=dict)
    queues: dict[int, dict[int, Kept]] = field(default_factory=dict)

    def add(self, queue_id: int, seq: int, kept: Kept) -> None:
        self.queues.setdefault(queue_id, {})[seq] = kept

    def remove(self, queue_id: int, first: int, last: int) -> None:
        held = self.queues.get(queue_id, {})
        for seq in [s for s in held if first <= s <= last]:
            del held[seq]

    def count(self, queue_id: int, seq: int, flags: int) -> None:
        held = self.queues.get(queue_id, {})
        if seq in held:
            held[seq] = replace(held[seq], flags=flags)

    def postpone(self, queue_id: int, seq: int, due: int) -> None:
        held = self.queues.get(queue_id, {})
        if seq in held:
            held[seq] = replace(held[seq], due=due)

    def define(self, definition: Definition) -> None:
        self.defined[key_of(definition)] = definition

    def undefine(self, definition: Definition) -> None:
        key = key_of(definition)
        self.defined.pop(key, None)
        if isinstance(key, int):
            self.queues.pop(key, None)

    def copy(self) -> State:
        """Return the same state; messages are shared, since none changes but `suspect`."""
        return State(dict(self.defined), {q: dict(held) for q, held in self.queues.items()})

    def content(self) -> list[object]:
        """Return what there is, to be compared with what there is later."""
        held = {queue_id: sorted(held) for queue_id, held in self.queues.items() if held}
        return [dict(self.defined), held]

    def message_count(self) -> int:
        return sum(map(len, self.queues.values()))


def key_of(definition: Definition) -> int | str:
    match definition:
        case QueueDefinition():
            return definition.queue_id
        case StreamDefinition():
            return definition.stream_id
        case AddressDefinition():
            return definition.name


class Model:
    """See the module text. `now` is what the gateway has in memory, `durable` what is promised."""

    def __init__(self) -> None:
        self.durable = State()
        self.now = State()
        self.effects: list[tuple[int, str, tuple[object, ...]]] = []
        self.reported = 0
        self.handed = 0  # the last batch that the writer was given
        self.places = {0: 0}  # number on disk to ticket, of those that it was given
        self.promised = 0  # the last number on disk that was reported
        self.free: set[tuple[int, int]] = set()  # gone for good, though nothing says so on disk
        self.rewritten: set[tuple[int, int]] = set()  # queue, seq: from memory, at another time
        self.stop = "none"  # how the last life ended: none, clean, maybe, unclean

    def clone(self) -> Model:
        """Return the same model for another fate."""
        other = Model()
        other.durable = State(
            dict(self.durable.defined),
            {q: {s: k.clone() for s, k in h.items()} for q, h in self.durable.queues.items()},
        )
        other.effects = [
            (ticket, what, tuple(a.clone() if isinstance(a, Kept) else a for a in args))
            for ticket, what, args in self.effects
        ]
        other.reported, other.handed, other.stop = self.reported, self.handed, self.stop
        other.places, other.promised = dict(self.places), self.promised
        other.free = set(self.free)
        return other

    def did(self, ticket: int, what: str, *args: object) -> None:
        """Note an effect: at once in memory, on disk with its ticket."""
        getattr(self.now, what)(*args)
        if ticket < self.reported:
            raise ViolationError(f"ticket {ticket} was given after {self.reported} was reported")
        self.effects.append((ticket, what, args))

    def removed(self, told: int, queue_id: int, first: int, last: int) -> None:
        """Note a removal by a ticket; 0: whoever asked was told that they are gone for good."""
        if told:
            self.did(told, "remove", queue_id, first, last)
            return
        here = self.now.queues.get(queue_id, {})
        gone = {seq for seq in range(first, last + 1) if seq in here}
        self.free.update((queue_id, seq) for seq in gone)
        self.now.remove(queue_id, first, last)
        kept = []
        for effect in self.effects:
            ticket, what, args = effect
            if what != "add" or args[0] != queue_id or args[1] not in gone:
                kept.append(effect)
            elif ticket <= self.handed:
                raise ViolationError(f"{args[:2]} is being written, and told to be gone for good")
            else:
                gone.remove(args[1])
        if gone:
            raise ViolationError(f"queue {queue_id}: {gone} told to be gone for good, on disk")
        self.effects = kept

    def hand(self, batch: Batch) -> bool:
        """Note that the writer was given a batch; returns whether that is new."""
        if self.handed == batch.number:
            return False
        self.handed = self.places[batch.written_as] = batch.number
        return True

    def report(self, ticket: int) -> None:
        """The journal said that all up to `ticket` is durable."""
        if ticket <= self.reported:
            raise ViolationError(f"ticket {ticket} reported after {self.reported}")
        self.promised = max(n for n, known in self.places.items() if known <= ticket)
        self._advance(min(ticket, max(self.handed, self.reported)))
        if ticket > self.reported:
            before = self.durable.content()
            self._advance(ticket)
            if self.durable.content() != before:
                raise ViolationError(f"ticket {ticket} reported, {self.handed} was handed over")

    def _advance(self, ticket: int) -> None:
        done = 0
        for number, what, args in self.effects:
            if number > ticket:
                break
            getattr(self.durable, what)(*args)
            done += 1
        del self.effects[:done]
        self.reported = ticket

    def recovered(self, found: Restored, number: int, *, attempts: int = 1) -> int:
        """Compare what a start found up to a number on disk; returns its ticket.

        `attempts`: starts tried since the stop, this one too.
        """
        if number < self.promised:
            raise ViolationError(f"lost: {self.promised} was durable, {number} was found")
        if number not in self.places:
            raise ViolationError(f"made up: batch {number} was never handed over")
        ticket = max(self.places[number], self.reported)  # what was reported beyond it is nothing
        self._advance(ticket)
        self._check_clean(found, attempts)
        if not found.clean:
            for held in self.durable.queues.values():
                for kept in held.values():
                    kept.suspect = True
        self._check_defined(found)
        self._check_messages(found)
        self._check_free(found)
        self.effects.clear()
        self.now = self.durable.copy()
        self.handed = self.reported = self.promised = number  # tickets go on from there
        self.places = {number: number}
        self.stop = "unclean"
        return ticket

    def _check_clean(self, found: Restored, attempts: int) -> None:
        if self.stop == "clean" and attempts == 1 and not found.clean:
            raise ViolationError("the stop was in order and is not known to be")
        if self.stop == "unclean" and found.clean and self.durable.message_count():
            raise ViolationError("the stop was not in order and nobody is told")

    def _check_free(self, found: Restored) -> None:
        for queue_id, messages in found.messages.items():
            back = [m.seq for m in messages if (queue_id, m.seq) in self.free]
            if back and queue_id in self.durable.defined:
                raise ViolationError(f"queue {queue_id}: told to be gone for good, is back: {back}")
        self.free.clear()  # their numbers may be used again

    def _check_defined(self, found: Restored) -> None:
        got: dict[int | str, Definition] = {}
        for definition in [*found.queues, *found.addresses, *found.streams]:
            if key_of(definition) in got:
                raise ViolationError(f"defined twice: {definition}")
            got[key_of(definition)] = definition
        if got != self.durable.defined:
            lost = {str(k) for k, v in self.durable.defined.items() if got.get(k) != v}
            extra = {str(k) for k in got.keys() - self.durable.defined.keys()}
            raise ViolationError(f"definitions lost or old {lost}, made up {extra}")
        if any(isinstance(k, int) and k >= found.next_id for k in got):
            raise ViolationError(f"next id {found.next_id} is taken")

    def _check_messages(self, found: Restored) -> None:
        for key in self.durable.defined:
            if not isinstance(key, int):
                continue
            expected = self.durable.queues.get(key, {})
            messages = found.messages.get(key, [])
            seqs = [m.seq for m in messages]
            if seqs != sorted(expected):
                lost = sorted(expected.keys() - set(seqs))
                extra = sorted(set(seqs) - expected.keys())
                raise ViolationError(f"queue {key}: lost {lost}, came back {extra}, found {seqs}")
            if seqs and found.highest[key] < seqs[-1]:
                raise ViolationError(f"queue {key}: highest is {found.highest[key]}")
            for message, came in zip(messages, found.accepted.get(key, []), strict=True):
                expires = message.expires if message.flags & EXPIRES else 0
                due = message.due if message.flags & SCHEDULED else 0
                rewritten = (key, message.seq) in self.rewritten
                accepted = expected[message.seq].accepted_ms if rewritten else came
                got = (message.body, message.flags & ~ACQUIRED, expires, accepted, due)
                if got != expected[message.seq].seen():
                    raise ViolationError(
                        f"queue {key} seq {message.seq}: {got} instead of "
                        f"{expected[message.seq].seen()}"
                    )
