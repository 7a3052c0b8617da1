"""Batches that are reported when the kernel has them: what is synced, and what a cut leaves."""

from __future__ import annotations

import random

import pytest

from storage.batch import Batch
from storage.errors import DamageError
from storage.journal import BATCH_BYTES_MAX, Journal
from storage.record import AddRun
from storage.recovery import recover
from storage.segments import Segments
from storage.writer import DiskWork
from tests.simulation.disk import SimDisk
from tests.simulation.writer import TurnWriter
from tests.storage.test_journal import Paper, add, journal_of, turn

LAX = 7
DIRECTORY = "journal"
SIZE = 4096


def lax_journal() -> tuple[Journal, Paper, list[int]]:
    journal, paper, durable = journal_of()
    journal.lax.add(LAX)
    add(journal, 1, queue=8)
    turn(journal, paper)
    return journal, paper, durable


def test_only_what_lax_queues_alone_have_in_it_need_not_be_synced() -> None:
    journal, paper, durable = lax_journal()
    assert paper.written[-1].firm
    add(journal, 1)
    turn(journal, paper)
    assert not paper.written[-1].firm
    add(journal, 2)
    journal.remove(LAX, 1, 1, 1)
    journal.count(LAX, [(2, 4)])
    turn(journal, paper)
    assert not paper.written[-1].firm
    for firm in (
        lambda: add(journal, 2, queue=8),
        lambda: journal.remove(8, 1, 1, 1),
        lambda: journal.note(b"{}"),
        lambda: journal.append(AddRun([(LAX, 9), (3, 1)], [b"x"], 0x14, 0, 1), 1),
    ):
        firm()
        turn(journal, paper)
        assert paper.written[-1].firm
    assert durable == [1, 2, 3, 4, 5, 6, 7]


def test_what_was_only_written_says_so_until_a_sync() -> None:
    journal, paper, _ = lax_journal()
    before = journal.syncs
    for seq in range(1, 4):
        add(journal, seq)
        turn(journal, paper)
    assert journal.synced == 1
    assert [batch.synced for batch in paper.written] == [0, 1, 1, 1]
    journal.sync()
    assert paper.written[-1].firm
    turn(journal, paper)
    assert (journal.synced, journal.syncs) == (5, before + 1)
    journal.sync()
    assert len(paper.written) == 5, "nothing is to be synced, and nothing is written"


def test_a_sync_goes_with_what_comes_next() -> None:
    journal, paper, _ = lax_journal()
    add(journal, 1)
    turn(journal, paper)
    add(journal, 2)
    journal.flush()
    journal.sync()
    add(journal, 3)
    journal.written(paper.written[-1], 1)
    assert [batch.firm for batch in paper.written] == [True, False, False, True]
    journal.written(paper.written[-1], 1)
    assert journal.synced == 4


def test_no_segment_goes_on_the_word_of_what_is_only_written() -> None:
    journal, paper, _ = journal_of(segment_bytes=1024)
    journal.lax.add(LAX)
    add(journal, 1, bytes(600))
    turn(journal, paper)
    add(journal, 2, bytes(600))
    turn(journal, paper)
    journal.remove(LAX, 1, 1, 1)
    turn(journal, paper)
    assert paper.deleted == []
    journal.sync()
    turn(journal, paper)
    assert paper.deleted == [[1]]


class Life:
    def __init__(self, disk: SimDisk) -> None:
        found = recover(
            (n, f"{DIRECTORY}/{name}", disk_bytes(disk, name))
            for n, name in enumerate(sorted(disk.listdir(DIRECTORY)), 1)
            if name.endswith(".journal")
        )
        self.found = found
        self.durable: list[int] = []
        self.journal = Journal(
            next_ticket=found.ticket + 1, next_segment=found.segment + 1, segment_bytes=SIZE
        )
        self.journal.lax.add(LAX)
        self.journal.on_durable = self.durable.append
        segments = Segments(disk, DIRECTORY, lambda: disk.chance.randbytes(16))
        self.writer = TurnWriter(self.journal, segments, SIZE)
        self.journal.start(self.writer)


def disk_bytes(disk: SimDisk, name: str) -> bytes:
    fd = disk.open(f"{DIRECTORY}/{name}", write=False)
    try:
        return disk.pread(fd, disk.size(fd), 0)
    finally:
        disk.close(fd)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("power", [False, True])
def test_a_kill_loses_nothing_and_a_cut_only_what_came_after_the_last_sync(
    power: bool, seed: int
) -> None:
    chance = random.Random(seed)
    disk = SimDisk(random.Random(seed))
    disk.mkdir(DIRECTORY)
    life = Life(disk)
    synced = seq = 0
    for _ in range(chance.randint(1, 30)):
        for _ in range(chance.randint(1, 3)):
            seq += 1
            add(life.journal, seq, bytes(chance.choice([10, 400])))
        life.journal.flush()
        life.journal.check_invariants()
        life.writer.run()
        life.journal.check_invariants()
        if chance.random() < 0.3:
            life.journal.sync()
            life.writer.run()
        synced = max(synced, life.journal.synced)
    reported = life.durable[-1]
    if power:
        disk.lose_power()
    else:
        disk.boot()
    after = Life(disk).found
    assert after.ticket >= (synced if power else reported)
    held = sorted(after.queues.get(LAX, {}))
    assert held == list(range(1, len(held) + 1)), "a hole in what was sent"
    assert power or len(held) == seq


def test_a_segment_is_synced_before_the_next_one_begins() -> None:
    disk = SimDisk(random.Random(1))
    disk.mkdir(DIRECTORY)
    segments = Segments(disk, DIRECTORY, lambda: bytes(16))
    segments.write(b"one", number=1, synced=0, segment=1, size=SIZE, firm=False)
    before = len(disk.log)
    segments.write(b"two", number=2, synced=0, segment=2, size=SIZE, firm=False)
    told = [line for line in list(disk.log)[before:] if "sync" in line or "create" in line]
    assert "sync" in told[0], told
    assert "1.journal" in told[0]


def test_a_failed_sync_fails_what_was_only_written_too() -> None:
    disk = SimDisk(random.Random(1))
    disk.mkdir(DIRECTORY)
    life = Life(disk)
    failures: list[BaseException] = []
    life.journal.on_failed = failures.append
    add(life.journal, 1)
    life.journal.flush()
    life.writer.run()
    disk.sync_faults = 1
    add(life.journal, 2)
    life.journal.flush()
    life.writer.run()
    assert failures == [], "nothing was synced"
    life.journal.sync()
    life.writer.run()
    assert len(failures) == 1
    assert life.journal.synced == 0


def test_rot_below_the_last_sync_is_told_from_what_was_only_written() -> None:
    disk = SimDisk(random.Random(3))
    disk.mkdir(DIRECTORY)
    life = Life(disk)
    for seq in (1, 2, 3):
        add(life.journal, seq, bytes(600))
        life.journal.flush()
        life.writer.run()
    life.journal.sync()
    life.writer.run()
    add(life.journal, 4, bytes(600))
    life.journal.flush()
    life.writer.run()
    (name,) = [n for n in disk.listdir(DIRECTORY) if n.endswith(".journal")]
    data = bytearray(disk_bytes(disk, name))
    data[900] ^= 1
    assert any(data[800:1000])
    with pytest.raises(DamageError):
        recover([(1, name, bytes(data))])


def test_a_batch_that_lingers_stays_open_until_it_is_full_or_told_otherwise() -> None:
    journal, paper, _ = journal_of()
    lingers = True
    journal.lingers = lambda _: lingers
    add(journal, 1)
    journal.flush()
    assert paper.written == []
    journal.remove(7, 1, 1, 1)
    add(journal, 2)
    lingers = False
    journal.flush()
    assert journal.cancelled == 1
    assert len(paper.written[0].adds) == 1
    lingers = True
    add(journal, 3, bytes(BATCH_BYTES_MAX + 1))
    add(journal, 4)
    journal.written(paper.written[-1], 1)
    assert len(paper.written) == 2, "what is full is written whatever lingers"


def test_tasks_are_counted_until_they_are_stored() -> None:
    journal, paper, _ = journal_of()
    journal.task_limit = 10
    add(journal, 1, *[b"x"] * 9)
    assert (journal.tasks, journal.congested) == (9, False)
    add(journal, 10)
    assert journal.congested
    assert not journal.relieved
    journal.flush()
    assert journal.congested
    journal.written(paper.written[-1], 1)
    assert (journal.tasks, journal.congested, journal.relieved) == (0, False, True)


def test_disk_work_hands_the_mode_on() -> None:
    told: list[bool] = []

    class Told:
        def write(self, payload: bytes, **facts: object) -> int:
            told.append(bool(facts["firm"]))
            return 0

    journal, _, _ = lax_journal()
    work = DiskWork(journal, Told(), lambda answer: None, SIZE)  # type: ignore[arg-type]
    for firm in (True, False):
        batch = Batch(1)
        batch.firm = firm
        work.write(batch, SIZE)
    assert told == [True, False]
