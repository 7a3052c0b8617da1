"""Ack compaction: old files go, what lives in them does not change, and a step stays small."""

from __future__ import annotations

import random

import pytest

from gateway.model.address import RoutingType
from gateway.model.definitions import QueueDefinition
from gateway.model.message import DURABLE, EXPIRES, MAYBE_SEEN, ONE_DELIVERY, SCHEDULED
from gateway.model.run import Run
from gateway.store.notes import encode_definition
from gateway.store.persistence import JournalStore, Restored, open_journal
from storage.compaction import COPY_BYTES, Changes, CompactionRule
from storage.ranges import without_ranges
from storage.record import AddRun
from storage.segments import Segments, segment_number
from tests.simulation.disk import SimDisk
from tests.simulation.writer import TurnWriter

QUEUE = 1 << 32
FOLDER = "journal"
KIB = 1024
PAIR = CompactionRule(min_files=2)


class Life:
    """One life of a journal on a simulated disk, without threads."""

    def __init__(self, disk: SimDisk, size: int, rule: CompactionRule = PAIR) -> None:
        self.disk = disk
        self.journal, self.found = open_journal(disk, FOLDER, size, rule)
        self.store = JournalStore(self.journal)
        self.store.snapshot = lambda: [QUEUE_DEFINITION]
        chance = random.Random(self.journal.ticket)
        segments = Segments(disk, FOLDER, lambda: chance.randbytes(16))
        self.writer = TurnWriter(self.journal, segments, size)
        self.journal.start(self.writer)
        self.seq = self.found.highest.get(QUEUE, 0)
        self.largest = 0

    def add(self, body: bytes, *, flags: int = DURABLE, expires: int = 0, due: int = 0) -> int:
        self.seq += 1
        run = Run([body], flags, expires, due)
        self.store.append([(QUEUE, self.seq)], run, len(body), 1000 + self.seq)
        return self.seq

    def remove(self, seq: int) -> None:
        self.store.remove(QUEUE, seq, seq, 1)

    def settle(self) -> None:
        """Let all go to the disk, noting the most that one batch carries forward."""
        self.store.flush()
        while True:
            self.journal.check_invariants()
            busy = self.journal._busy
            if busy is not None:
                self.largest = max(self.largest, sum(len(r.bodies[0] or b"") for r in busy.copies))
            if not (self.writer.step() or self.writer.answer()):
                break

    def files(self) -> list[int]:
        numbers = [segment_number(name) for name in self.disk.listdir(FOLDER)]
        return sorted(number for number in numbers if number is not None)

    def churn(self, files: int, body: int = 1000) -> None:
        """Send and take messages until so many more files were begun."""
        last = self.journal.segment + files
        while self.journal.segment < last:
            seq = self.add(bytes(body))
            self.settle()
            self.remove(seq)
            self.settle()


QUEUE_DEFINITION = QueueDefinition(
    queue_id=QUEUE, name="q", address="q", routing=RoutingType.ANYCAST
)


def begin(size: int = 10 * KIB, rule: CompactionRule = PAIR) -> Life:
    return Life(SimDisk(random.Random("disk")), size, rule)


def restart(life: Life) -> Restored:
    life.disk.lose_power()
    return open_journal(life.disk, FOLDER)[1]


def test_k13_one_old_message_pins_no_chain() -> None:
    life = begin()
    life.store.define(QUEUE_DEFINITION)
    life.add(b"old")
    life.churn(8)
    assert life.files() == [life.journal.segment]
    assert life.journal.compaction.copied >= 1
    assert life.journal.compaction.emptied >= 1
    assert [m.body for m in restart(life).messages[QUEUE]] == [b"old"]


def test_without_compaction_it_pins_them_all() -> None:
    life = begin(rule=CompactionRule(min_files=0))
    life.store.define(QUEUE_DEFINITION)
    life.add(b"old")
    life.churn(8)
    assert len(life.files()) == 8


def test_many_old_messages_take_no_more_than_twice_their_size() -> None:
    life = begin(rule=CompactionRule(min_files=3))
    life.store.define(QUEUE_DEFINITION)
    old = 0
    for _ in range(40):
        life.churn(1, 700)
        for _ in range(3):
            old += 400
            life.add(bytes(400))
    life.settle()
    live = life.journal.index.live_bytes
    assert live >= old
    assert life.journal.index.used_bytes <= 2 * live or len(life.files()) < 3
    assert len(restart(life).messages[QUEUE]) == 120


def test_a_copy_is_the_same_message() -> None:
    life = begin()
    life.store.define(QUEUE_DEFINITION)
    timed = DURABLE | EXPIRES | SCHEDULED
    first = life.add(b"one", flags=timed, expires=9_999, due=5_000)
    second = life.add(b"two")
    life.settle()
    life.store.count(QUEUE, [(second, DURABLE + ONE_DELIVERY)])
    life.store.postpone(QUEUE, [(first, 7_000)])
    life.churn(3)
    assert life.journal.compaction.copied >= 2
    found = restart(life)
    one, two = found.messages[QUEUE]
    assert (one.seq, one.body, one.flags) == (first, b"one", timed | MAYBE_SEEN)
    assert (one.expires, one.due) == (9_999, 7_000)
    assert (two.seq, two.flags) == (second, DURABLE + ONE_DELIVERY | MAYBE_SEEN)
    assert found.accepted[QUEUE] == [1000 + first, 1000 + second]


def test_a_copy_of_what_may_have_been_seen_says_so_after_a_clean_stop() -> None:
    life = begin()
    life.store.define(QUEUE_DEFINITION)
    life.add(b"old")
    life.settle()
    life.disk.boot()
    again = Life(life.disk, 10 * KIB)
    again.churn(3)
    stopped: list[bool] = []
    again.journal.close(lambda: stopped.append(True))
    again.writer.run()
    assert stopped
    again.disk.boot()
    found = open_journal(again.disk, FOLDER)[1]
    assert found.clean
    (old,) = [m for m in found.messages[QUEUE] if m.body == b"old"]
    assert old.flags & MAYBE_SEEN


def test_a_copy_of_a_copy_of_what_was_returned_still_says_so() -> None:
    life = begin()
    life.store.define(QUEUE_DEFINITION)
    old = life.add(b"old")
    life.settle()
    life.store.count(QUEUE, [(old, DURABLE + ONE_DELIVERY)])
    life.settle()
    life.disk.boot()
    again = Life(life.disk, 10 * KIB)
    again.churn(6)
    assert again.journal.compaction.copied > 1
    again.journal.close(lambda: None)
    again.writer.run()
    again.disk.boot()
    found = open_journal(again.disk, FOLDER)[1]
    (kept,) = [m for m in found.messages[QUEUE] if m.seq == old]
    assert kept.flags == DURABLE + ONE_DELIVERY | MAYBE_SEEN


def test_one_batch_carries_little() -> None:
    life = begin(64 * KIB)
    life.store.define(QUEUE_DEFINITION)
    kept = [life.add(bytes([n]) * 1000) for n in range(40)]
    life.settle()
    life.churn(3)
    assert 0 < life.largest <= 16 * KIB, "a quarter of a file, in several batches"
    assert [m.seq for m in restart(life).messages[QUEUE]] == kept


def test_what_is_larger_than_a_piece_is_carried_whole() -> None:
    life = begin(8 << 20)
    life.store.define(QUEUE_DEFINITION)
    body = random.Random(1).randbytes(3 << 20)
    life.add(body)
    life.add(b"small")
    life.settle()
    life.churn(2, 600_000)
    assert life.largest >= len(body) > COPY_BYTES
    assert [m.body for m in restart(life).messages[QUEUE]] == [body, b"small"]


def test_copies_in_the_last_batch_are_covered() -> None:
    """Rot in the last batch of all looks like a torn tail: so a batch follows."""
    life = begin()
    life.store.define(QUEUE_DEFINITION)
    life.add(b"old")
    life.churn(1)
    before = life.journal.synced
    while life.journal._covering.missing(life.journal.synced):
        life.journal.cover()
        life.journal.cover()
        life.settle()
    life.journal._open.copy(AddRun([(QUEUE, 1)], [b"old"], DURABLE, 0, 1001))
    life.settle()
    copied = life.journal.synced
    assert copied > before
    life.journal.cover()
    life.journal.cover()
    life.settle()
    assert life.journal.synced == copied + 1


def test_a_segment_that_cannot_be_read_stays_with_all_behind_it() -> None:
    life = begin()
    told: list[Exception] = []
    life.journal.compaction.on_failed = told.append
    life.store.define(QUEUE_DEFINITION)
    life.add(b"old")
    life.settle()
    oldest = life.files()[0]
    path = f"{FOLDER}/{oldest:016d}.journal"
    fd = life.disk.open(path)
    at = 64 + 40 + 8 + len(encode_definition(QUEUE_DEFINITION)) + 30
    byte = life.disk.pread(fd, 1, at)
    life.disk.pwrite(fd, bytes([byte[0] ^ 1]), at)
    life.disk.close(fd)
    life.churn(5)
    assert len(told) == 1
    assert life.journal.compaction.failure is told[0]
    assert life.files()[0] == oldest
    assert life.journal.failure is None
    assert len(life.files()) >= 5


@pytest.mark.parametrize(
    ("files", "used", "live", "wanted"),
    [(2, 100, 0, False), (3, 100, 49, True), (3, 100, 50, False), (9, 0, 0, False)],
)
def test_when_it_pays(files: int, used: int, live: int, *, wanted: bool) -> None:
    rule = CompactionRule(min_files=3, percentage=50)
    assert rule.wants(files, used, live) is wanted
    assert not CompactionRule(min_files=0).wants(files, used, live)


def test_changes_are_forgotten_with_their_message() -> None:
    changes = Changes()
    changes.count(1, [(5, 9), (6, 9), (70, 9)])
    changes.postpone(1, [(6, 44)])
    changes.count(2, [(5, 8)])
    assert changes.touched(1, 1, 10) == [5, 6]
    assert changes.touched(1, 6, 6) == [6]
    assert changes.apply(1, 6, 1, 2) == (9, 44)
    assert changes.apply(1, 7, 1, 2) == (1, 2)
    changes.removed(1, 6, 6)
    changes.removed(1, 50, 1_000_000)
    assert len(changes) == 2
    changes.removed(1, 5, 5)
    changes.forget_queue(2)
    assert len(changes) == 0


def test_ranges_without_ranges() -> None:
    chance = random.Random(3)
    for _ in range(300):
        low, high = sorted(chance.sample(range(40), 2))
        gone = sorted(chance.sample(range(40), 8))
        pairs = [(gone[i], gone[i + 1]) for i in range(0, 8, 2)]
        left = without_ranges([(low, high)], pairs)
        dead = {seq for a, b in pairs for seq in range(a, b + 1)}
        assert [seq for a, b in left for seq in range(a, b + 1)] == [
            seq for seq in range(low, high + 1) if seq not in dead
        ]


def test_without_cancelling_all_is_written() -> None:
    life = begin()
    life.journal.cancels = False
    life.store.define(QUEUE_DEFINITION)
    life.remove(life.add(b"taken at once"))
    kept = life.add(b"kept")
    life.settle()
    assert (life.journal.stored, life.journal.cancelled, life.journal.bytes_cancelled) == (2, 0, 0)
    assert [m.seq for m in restart(life).messages[QUEUE]] == [kept]


def test_bytes_that_are_never_written_are_counted() -> None:
    life = begin()
    life.store.define(QUEUE_DEFINITION)
    life.remove(life.add(bytes(500)))
    life.settle()
    assert life.journal.cancelled == 1
    assert 500 < life.journal.bytes_cancelled < 700
    assert life.journal.bytes_written < 500
