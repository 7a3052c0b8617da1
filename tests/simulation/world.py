"""One seed: lives of a journal, each ended by a crash, a kill, a fault or a stop, and checked.

Each seed draws its own sizes, weights and faults, so that some build backlogs, some roll a segment
with each batch and some do little but transactions. The code under test is
`gateway.store.persistence` and all of `storage` but its threads.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager

from gateway.model.address import RoutingType
from gateway.model.definitions import AddressDefinition, QueueDefinition, StreamDefinition
from gateway.model.message import DURABLE, EXPIRES, ONE_DELIVERY, SCHEDULED
from gateway.model.run import GappedRun, Run
from gateway.store.persistence import JournalStore, Restored, open_journal
from storage import journal as journal_module
from storage.compaction import CompactionRule
from storage.segments import Segments, segment_number
from tests.simulation.lives import Lives, replaced, run_to_its_end
from tests.simulation.model import Kept, Model, ViolationError
from tests.simulation.rot import check_gap, check_rot
from tests.simulation.writer import TurnWriter

DIRECTORY = "journal"
#: No two places of it look alike, so that bytes of one message never pass for those of another.
POOL = random.Random("bodies").randbytes(1 << 16)
#: Streams have the numbers below.
FIRST_QUEUE_ID = 6


class World(Lives):
    """See the module text."""

    store: JournalStore
    closes = 0.5

    def __init__(self, seed: int | str) -> None:
        super().__init__(seed, streams=("journal", "disk"), model=Model())
        chance = self.chance
        self.segment_bytes = chance.choice([1024, 2048, 2048, 4096])
        self.body_bytes = chance.choice([20, 60, 200])
        self.batch_records = chance.choice([1, 2, 5, 4096])
        self.lives = chance.randint(2, 6)
        self.weights = self._weights()
        self.lived = 0
        if chance.random() < 0.25:
            # A slow disk and fast consumers: batches queue up, and little of them is left.
            self.weights.update(step=0.7, answer=0.7, add=6.0, remove=8.0)
            self.segment_bytes = 1024
        self.restless = chance.random() < 0.2  # hardly started, gone again
        if self.restless:
            self.lives *= 2
        self.power = chance.choice([0.4, 0.6, 0.9])  # how often a crash takes the power with it
        self.faults = chance.random() < 0.35
        self.rot = chance.random() < 0.2
        self.rule = CompactionRule(
            min_files=chance.choice([0, 2, 2, 3]), percentage=chance.choice([30, 50, 70])
        )
        self.cancels = chance.random() < 0.9
        #: Some messages are taken by nobody, as those of a dead-letter queue: they pin old files.
        self.hoard = chance.choice([0, 0, 0, 3, 11])
        self.serial = 0
        self.copied = 0
        self.cancelled = 0
        self.next_id = FIRST_QUEUE_ID
        self.next_stream = 1  # their registry remembers it
        self.next_seq: dict[int, int] = {}
        self.gone: list[tuple[int, int]] = []  # (queue, seq) of deleted queues

    def _weights(self) -> dict[str, float]:
        weights = dict.fromkeys(sorted(OPERATIONS), 1.0)
        weights.update(add=4.0, remove=4.0, remove_run=2.0, flush=6.0, step=6.0, answer=6.0)
        for name in sorted(weights):
            if self.chance.random() < 0.25:
                weights[name] *= self.chance.choice([0.1, 4.0])
        return weights

    # ---- a start

    def tight(self) -> AbstractContextManager[None]:
        """Let batches close early, so that several wait at a time."""
        return batch_records(self.batch_records)

    def threaten_start(self) -> None:
        self.may_fail_at_start(reads=0.2, faults=4, crash=0.8 if self.restless else 0.3, calls=8)

    def open(self) -> tuple[Restored, Segments]:
        self.journal, found = open_journal(self.disk, DIRECTORY, self.segment_bytes, self.rule)
        segments = Segments(self.disk, DIRECTORY, lambda: self.chance.randbytes(16))
        if self.chance.random() < 0.5:
            segments.make_spare(self.segment_bytes)
        return found, segments

    def join(self, found: Restored, segments: Segments) -> None:
        self.next_id = max(found.next_id, FIRST_QUEUE_ID)
        self.next_seq = {q: high + 1 for q, high in found.highest.items()}
        self.gone = []
        self.store = JournalStore(self.journal)
        self.store.snapshot = lambda: list(self.model.now.defined.values())
        self.listen()
        self.journal.cancels = self.cancels
        self.writer = TurnWriter(self.journal, segments, self.segment_bytes)
        self.journal.start(self.writer)

    # ---- a life

    def begin_life(self) -> tuple[int, dict[str, float]]:
        self.lived += 1
        # The restless have something to lose from their first life.
        short = self.restless and self.lived > 1
        steps = self.chance.choice([0, 1, 3, 10] if short else [20, 40, 60, 120])
        crash = 0.3 if self.restless else 0.7
        self.may_fail(crash=crash, calls=steps * 3 // 4, syncs=0.4, full=0.7)
        return steps, self.weights

    def act(self, name: str) -> None:
        OPERATIONS[name](self)

    def live(self) -> None:
        super().live()
        self.cancelled += self.journal.cancelled
        self.copied += self.journal.compaction.copied

    def close(self) -> None:
        self.log("close")
        if not self.stop_store():
            return
        if self.model.reported != self.journal.ticket - 1:
            raise ViolationError("stopped, and not all is durable")
        if self.chance.random() < 0.5:
            self.disk.lose_power()
        else:
            self.disk.boot()

    def lose(self) -> None:
        super().lose()
        if self.rot:
            check_rot(self.disk, DIRECTORY, self.chance)
            check_gap(self.disk, DIRECTORY, self.chance)

    def finish(self) -> None:
        self.drain()

    def drain(self) -> None:
        """Remove all; nothing but the last segment may stay."""
        for queue_id, held in list(self.model.now.queues.items()):
            for seq in list(held):
                self._remove(queue_id, seq, seq)
        self.settle()
        for name in ("last", "very last"):
            self._define(AddressDefinition(name=name, routing_types=frozenset()))
            self.settle()
        if len(self.journal.index.live) > 1:
            raise ViolationError(f"nothing lives and segments stay: {self.journal.index.live}")

    def settle(self) -> None:
        """Let all that waits go to the disk, then compare figures and files."""
        while True:
            self.journal.flush()
            self.note_handed()
            if not (self.writer.step() or self.writer.answer()):
                break
        if self.failed:
            return
        self.check_index()

    def check_index(self) -> None:
        """At rest, the index counts what lives, and the directory has what the index has."""
        if len(self.disk.fds) > 1:
            raise ViolationError(f"{len(self.disk.fds)} files are open")
        live = self.journal.index.live
        expected = sum(
            len(held)
            for key, held in self.model.now.queues.items()
            if key in self.model.now.defined
        )
        if sum(live.values()) != expected:
            raise ViolationError(f"{live} counted, {expected} messages live")
        names = [segment_number(name) for name in self.disk.listdir(DIRECTORY)]
        files = {number for number in names if number is not None}
        if files != set(live):
            raise ViolationError(f"segments {sorted(files)} on disk, {sorted(live)} counted")
        if self.journal.batches and self.journal.index.reclaimable(self.journal.segment):
            raise ViolationError(f"{live}: what is empty was not given back")
        self._check_compaction()

    def _check_compaction(self) -> None:
        """At rest nothing pins a chain of files, and bytes are counted without a rest."""
        index, compaction = self.journal.index, self.journal.compaction
        if compaction.failure is not None:
            raise ViolationError(f"compaction stopped: {compaction.failure}")
        if compaction.waiting or compaction.reading:
            raise ViolationError("compaction stands still in the middle")
        dead = index.live_bytes * 100 < index.used_bytes * self.rule.percentage
        chain = 0 < self.rule.min_files <= len(index.live)
        if self.journal.batches and chain and dead:
            raise ViolationError(f"{index.used} used, {index.live_bytes} live: not compacted")
        if index.used_bytes != sum(index.used.values()) or set(index.used) != set(index.live):
            raise ViolationError(f"{index.used} is not {index.used_bytes}")
        if (index.live_bytes > 0) != any(index.live.values()):
            raise ViolationError(f"{index.live_bytes} bytes of {index.live} live")

    # ---- what a gateway does

    def body(self) -> bytes:
        self.serial += 1
        size = self.chance.randint(0, self.body_bytes)
        if self.chance.random() < 0.02:
            size = self.segment_bytes
        at = self.chance.randrange(len(POOL) - size)
        return b"%d:" % self.serial + POOL[at : at + size]

    def _pick_queue(self) -> int | None:
        known = [
            key for key in self.model.now.defined if isinstance(key, int) and key >= FIRST_QUEUE_ID
        ]
        return self.chance.choice(known) if known else None

    def op_define(self) -> None:
        if self.chance.random() < 0.2:
            name = f"a{self.chance.randint(0, 3)}"
            address = AddressDefinition(
                name=name,
                routing_types=frozenset({self.chance.choice(list(RoutingType))}),
                auto_created=self.chance.random() < 0.5,
            )
            self._define(address)
            return
        if self.next_stream < FIRST_QUEUE_ID and self.chance.random() < 0.3:
            number = self.next_stream
            self.next_stream += 1
            self._define(
                StreamDefinition(stream_id=number, name=f"s{number}", address="a", epoch=1)
            )
            return
        if len(self.model.now.defined) >= 8:
            return
        queue_id = self.next_id
        self.next_id += 1
        self._define(
            QueueDefinition(
                queue_id=queue_id,
                name=f"q{queue_id}",
                address="a",
                routing=RoutingType.ANYCAST,
                ring_size=self.chance.choice([-1, 5]),
            )
        )

    def _define(self, definition) -> None:
        self.model.did(self.store.ticket, "define", definition)
        self.store.define(definition)

    def op_undefine(self) -> None:
        if not self.model.now.defined:
            return
        key = self.chance.choice(list(self.model.now.defined))
        definition = self.model.now.defined[key]
        if isinstance(key, int):
            self.gone += [(key, seq) for seq in self.model.now.queues.get(key, {})][:3]
            self.next_seq.pop(key, None)
        self.model.did(self.store.ticket, "undefine", definition)
        self.store.undefine(definition)

    def op_late_remove(self) -> None:
        """What was in delivery when its queue was deleted is acknowledged."""
        if self.gone:
            queue_id, seq = self.gone.pop()
            self.store.remove(queue_id, seq, seq, 1)

    def _seqs(self, queue_id: int, count: int) -> int:
        first = self.next_seq.get(queue_id, 1)
        self.next_seq[queue_id] = first + count
        return first

    def op_add(self) -> None:
        queue_id = self._pick_queue()
        if queue_id is None:
            self.op_define()
            return
        self._add([queue_id], self.chance.randint(1, 3))

    def op_add_many(self) -> None:
        known = [key for key in self.model.now.defined if isinstance(key, int)]
        if known:
            self._add(self.chance.sample(known, self.chance.randint(1, len(known))), 2)

    def _add(self, targets: list[int], count: int) -> None:
        bodies = [self.body() for _ in range(count)]
        flags, expires = (DURABLE | EXPIRES, 77) if self.chance.random() < 0.2 else (DURABLE, 0)
        due = 0
        if self.chance.random() < 0.2:
            flags, due = flags | SCHEDULED, self.chance.randint(1, 99)
        places = [(queue_id, self._seqs(queue_id, count)) for queue_id in targets]
        now_ms = self.serial
        size = sum(map(len, bodies))
        ticket = self.store.append(places, Run(bodies, flags, expires, due), size, now_ms)
        for queue_id, first in places:
            for seq, body in enumerate(bodies, first):
                kept = Kept(body, flags, expires, now_ms, due=due)
                self.model.did(ticket, "add", queue_id, seq, kept)

    def op_add_mixed(self) -> None:
        queue_id = self._pick_queue()
        if queue_id is None:
            return
        count = self.chance.randint(1, 5)
        flags = [self.chance.choice([0, DURABLE, DURABLE | EXPIRES]) for _ in range(count)]
        if not any(f & DURABLE for f in flags):
            return
        bodies = [self.body() if f & DURABLE else None for f in flags]
        expires = [self.chance.randint(1, 99) if f & EXPIRES else 0 for f in flags]
        first = self._seqs(queue_id, count)
        size = sum(len(b) for b in bodies if b is not None)
        ticket = self.store.append(
            [(queue_id, first)], GappedRun(bodies, flags, expires), size, self.serial
        )
        for seq, (body, flag, expiry) in enumerate(zip(bodies, flags, expires, strict=True), first):
            if body is not None:
                self.model.did(ticket, "add", queue_id, seq, Kept(body, flag, expiry, self.serial))

    def _remove(self, queue_id: int, first: int, last: int) -> None:
        held = self.model.now.queues[queue_id]
        count = sum(1 for seq in range(first, last + 1) if seq in held)
        told = self.store.remove(queue_id, first, last, count)
        self.model.removed(told, queue_id, first, last)

    def _held(self, *, streams: bool = False) -> tuple[int, list[int]] | None:
        known = [
            (key, sorted(held))
            for key, held in self.model.now.queues.items()
            if held and (key < FIRST_QUEUE_ID) == streams and key in self.model.now.defined
        ]
        return self.chance.choice(known) if known else None

    def _taken(self) -> tuple[int, list[int]] | None:
        """Return a queue and what of it consumers take."""
        held = self._held()
        if held is None or not self.hoard:
            return held
        queue_id, seqs = held
        seqs = [seq for seq in seqs if seq % self.hoard != 1]
        return (queue_id, seqs) if seqs else None

    def op_remove(self) -> None:
        held = self._taken()
        if held is not None:
            queue_id, seqs = held
            # The oldest goes first mostly, as consumers take them.
            seq = seqs[0] if self.chance.random() < 0.6 else self.chance.choice(seqs)
            self._remove(queue_id, seq, seq)

    def op_remove_run(self) -> None:
        """A range of neighbours, over whatever batches and segments they lie in."""
        held = self._taken()
        if held is None:
            return
        queue_id, seqs = held
        at = 0 if self.chance.random() < 0.6 else self.chance.randrange(len(seqs))
        end = at
        while end + 1 < len(seqs) and seqs[end + 1] == seqs[end] + 1 and self.chance.random() < 0.9:
            end += 1
        self._remove(queue_id, seqs[at], seqs[end])

    def op_count(self) -> None:
        held = self._held()
        if held is None:
            return
        queue_id, seqs = held
        seqs = self.chance.sample(seqs, min(len(seqs), 2))
        kept = self.model.now.queues[queue_id]
        entries = [(seq, kept[seq].seen_flags + ONE_DELIVERY) for seq in seqs]
        ticket = self.store.count(queue_id, entries)
        for seq, flags in entries:
            self.model.did(ticket, "count", queue_id, seq, flags)

    def op_postpone(self) -> None:
        held = self._held()
        if held is None:
            return
        queue_id, seqs = held
        seq = self.chance.choice(seqs)
        flags = self.model.now.queues[queue_id][seq].seen_flags | SCHEDULED
        due = self.chance.randint(1, 99)
        self.model.did(self.store.count(queue_id, [(seq, flags)]), "count", queue_id, seq, flags)
        ticket = self.store.postpone(queue_id, [(seq, due)])
        self.model.did(ticket, "postpone", queue_id, seq, due)

    def op_release(self) -> None:
        """The durable front of a stream's tail went to its log."""
        held = self._held(streams=True)
        if held is None:
            return
        stream_id, seqs = held
        durable = self.model.durable.queues.get(stream_id, {})
        last = seqs[0]
        while last + 1 in durable and self.chance.random() < 0.8:
            last += 1
        if last in durable:
            first = seqs[0]
            ticket = self.store.ticket
            self.model.did(ticket, "remove", stream_id, first, last)
            self.store.release_stream(stream_id, first, last)

    def op_transaction(self) -> None:
        self.store.begin_atomic()
        ticket = self.store.ticket
        parts = [self.op_add, self.op_remove, self.op_remove_run, self.op_add_many, self.op_release]
        for _ in range(self.chance.randint(2, 6)):
            self.chance.choice(parts)()
        if self.store.ticket != ticket:
            raise ViolationError("a transaction was cut into two batches")
        self.store.end_atomic()

    def op_flush(self) -> None:
        self.store.flush()

    def op_step(self) -> None:
        self.writer.step()

    def op_answer(self) -> None:
        self.writer.answer()

    def op_spare(self) -> None:
        self.writer.make_spare()

    def op_cover(self) -> None:
        self.journal.cover()
        self.journal.cover()

    def op_settle(self) -> None:
        self.settle()


OPERATIONS: dict[str, Callable[[World], None]] = {
    name.removeprefix("op_"): operation
    for name, operation in sorted(vars(World).items())
    if name.startswith("op_")
}


def batch_records(limit: int) -> AbstractContextManager[None]:
    """Let batches close after `limit` runs."""
    return replaced([(journal_module, "BATCH_RECORDS_MAX", limit)])


def run_seed(seed: int | str) -> World:
    """Run one seed; raises what it found, with the last events as a note."""
    return run_to_its_end(World(seed))
