"""All sequences of up to three store operations, with a crash at each call of the last one.

Most crash bugs need no more than three operations and a crash beside a sync. Each crash point is
met with several fates of what was not synced, and with a mere kill; what is found is compared with
the model, then the journal has to go on, stop in order, and be found again.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest

from gateway.model.address import RoutingType
from gateway.model.definitions import QueueDefinition
from gateway.model.message import DURABLE
from gateway.model.run import Run
from gateway.store.persistence import JournalStore, open_journal
from storage.compaction import CompactionRule
from storage.segments import Segments
from tests.simulation.disk import SimDisk
from tests.simulation.model import Kept, Model
from tests.simulation.writer import TurnWriter

DIRECTORY = "journal"
SEGMENT_BYTES = 1024
FATES = 3
RULE = CompactionRule(min_files=2, percentage=60)
FIRST, SECOND = 1, 2
POOL = random.Random("bodies").randbytes(4096)


class Store:
    """A journal with two queues, its disk and what it must hold."""

    def __init__(self, disk: SimDisk, model: Model, attempts: int = 1) -> None:
        self.disk = disk
        self.model = model
        uuids = random.Random(f"{disk.chance.random()}")
        self.journal, found = open_journal(disk, DIRECTORY, SEGMENT_BYTES, RULE)
        model.recovered(found, self.journal.synced, attempts=attempts)
        self.next_seq = {queue: found.highest.get(queue, 0) + 1 for queue in (FIRST, SECOND)}
        self.store = JournalStore(self.journal)
        self.store.snapshot = lambda: list(self.model.now.defined.values())
        self.journal.on_durable = model.report
        self.segments = Segments(disk, DIRECTORY, lambda: uuids.randbytes(16))
        self.writer = TurnWriter(self.journal, self.segments, SEGMENT_BYTES)
        self.journal.start(self.writer)
        self.stopped = False

    def note_handed(self) -> None:
        self.journal.check_invariants()
        busy = self.journal._busy
        if busy is not None:
            self.model.hand(busy)

    def run(self) -> None:
        while True:
            self.store.flush()
            self.note_handed()
            if not (self.writer.step() or self.writer.answer()):
                break

    def define(self, queue: int) -> None:
        definition = QueueDefinition(
            queue_id=queue, name=f"q{queue}", address="a", routing=RoutingType.ANYCAST
        )
        self.model.did(self.store.ticket, "define", definition)
        self.store.define(definition)

    def append(self, queues: list[int], size: int = 40) -> None:
        known = [queue for queue in queues if queue in self.model.now.defined]
        if not known:
            return
        targets = [(queue, self.next_seq[queue]) for queue in known]
        at = 7 * sum(first for _, first in targets)
        body = POOL[at : at + size]
        ticket = self.store.append(targets, Run([body], DURABLE, 0), size, at)
        for queue, seq in targets:
            self.next_seq[queue] = seq + 1
            self.model.did(ticket, "add", queue, seq, Kept(body, DURABLE, 0, at))

    def take(self, queue: int, count: int) -> None:
        seqs = sorted(self.model.now.queues.get(queue, {}))[:count]
        for seq in seqs[-1:]:
            told = self.store.remove(queue, seqs[0], seq, len(seqs))
            self.model.removed(told, queue, seqs[0], seq)

    # ---- operations

    def op_add(self) -> None:
        self.append([FIRST])
        self.run()

    def op_add_both(self) -> None:
        self.append([FIRST, SECOND])
        self.run()

    def op_add_later(self) -> None:
        """Handed to the writer, who has not begun."""
        self.append([FIRST])
        self.store.flush()
        self.note_handed()

    def op_roll(self) -> None:
        self.append([SECOND], 600)
        self.run()

    def op_compact(self) -> None:
        """One old message in front of what is taken: it is carried forward, its file goes."""
        self.append([FIRST, SECOND])
        self.append([SECOND], 600)
        self.run()
        self.append([SECOND], 600)
        self.run()
        self.take(SECOND, 99)
        self.run()

    def op_take(self) -> None:
        self.take(FIRST, 1)
        self.run()

    def op_take_all(self) -> None:
        self.take(FIRST, 99)
        self.take(SECOND, 99)
        self.run()

    def op_overtake(self) -> None:
        self.append([FIRST, SECOND])
        self.append([FIRST])
        self.take(FIRST, 99)
        self.run()

    def op_commit(self) -> None:
        self.store.begin_atomic()
        self.append([SECOND])
        self.take(FIRST, 1)
        self.append([FIRST])
        self.store.end_atomic()
        self.run()

    def op_delete_queue(self) -> None:
        found = self.model.now.defined.get(SECOND)
        if found is None:
            return
        self.model.did(self.store.ticket, "undefine", found)
        self.store.undefine(found)
        self.run()

    def op_spare(self) -> None:
        self.writer.make_spare()

    def op_stop(self) -> None:
        self.run()
        self.model.stop = "maybe"
        self.journal.close(self._on_stopped)
        while not self.stopped:
            self.note_handed()
            assert self.writer.step() or self.writer.answer()
        self.model.stop = "clean"

    def _on_stopped(self) -> None:
        self.stopped = True


OPERATIONS: dict[str, Callable[[Store], None]] = {
    name.removeprefix("op_"): operation
    for name, operation in sorted(vars(Store).items())
    if name.startswith("op_")
}


def begin() -> Store:
    store = Store(SimDisk(random.Random("disk")), Model())
    store.define(FIRST)
    store.define(SECOND)
    store.run()
    return store


def perform(store: Store, name: str) -> Store:
    """Do one operation; after a stop the next process begins."""
    OPERATIONS[name](store)
    if store.stopped:
        store.disk.boot()
        store = Store(store.disk, store.model)
    return store


def meet(store: Store, fate: str, *, power: bool) -> None:
    """Crash here on a copy; what is found must be right, and good to go on with."""
    store.note_handed()
    disk = store.disk.clone(random.Random(fate))
    model = store.model.clone()
    model.stop = "unclean" if model.stop == "none" else model.stop
    if power:
        disk.lose_power()
    else:
        disk.boot()
    after = Store(disk, model)
    after.append([FIRST])
    after.take(FIRST, 1)
    OPERATIONS["stop"](after)
    disk.boot()
    Store(disk, model)


def crash_points(names: tuple[str, ...]) -> int:
    """Meet all crash points of the last operation; returns how many there were."""
    store = begin()
    for name in names[:-1]:
        store = perform(store, name)
    points = 0
    disk = store.disk

    def before(what: str) -> None:
        nonlocal points
        points += 1
        for fate in range(FATES):
            meet(store, f"{names}/{points}/{fate}", power=True)
        meet(store, f"{names}/{points}/kill", power=False)

    disk.before = before
    OPERATIONS[names[-1]](store)
    disk.before = None
    meet(store, f"{names}/end", power=True)
    return points + 1


@pytest.mark.parametrize("first", sorted(OPERATIONS))
def test_every_crash_point(first: str) -> None:
    points = crash_points((first,))
    for more in (1, 2):
        for rest in itertools.product(sorted(OPERATIONS), repeat=more):
            try:
                points += crash_points((first, *rest))
            except BaseException as error:
                error.add_note(f"operations: {', '.join((first, *rest))}")
                raise
    assert points > 100
