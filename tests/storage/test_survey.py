"""Survey and salvage: whatever byte is changed, what is whole is kept and what is lost is told."""

from __future__ import annotations

import random

import pytest

from gateway.store.persistence import open_journal
from storage.files import read_file
from storage.salvage import salvage
from storage.segments import segment_name, segment_number
from storage.survey import Survey, survey
from tests.simulation.disk import Crash, SimDisk
from tests.storage.test_compaction import FOLDER, KIB, QUEUE, QUEUE_DEFINITION, Life, begin

QUARANTINE = "quarantine"


def files_of(disk: SimDisk):
    numbers = sorted(n for n in map(segment_number, disk.listdir(FOLDER)) if n is not None)
    for number in numbers:
        path = f"{FOLDER}/{segment_name(number)}"
        yield number, path, read_file(disk, path)


def filled(seed: int) -> tuple[SimDisk, dict[int, bytes]]:
    """Return a disk with a journal of several files, and what lives in it."""
    chance = random.Random(seed)
    life = begin(4 * KIB)
    life.store.define(QUEUE_DEFINITION)
    held: dict[int, bytes] = {}
    for _ in range(60):
        body = chance.randbytes(chance.randint(1, 300))
        held[life.add(body)] = body
        life.settle()
        if chance.random() < 0.5:
            seq = chance.choice(sorted(held))
            life.remove(seq)
            del held[seq]
            life.settle()
    life.disk.boot()
    return life.disk, held


def change(disk: SimDisk, path: str, offset: int) -> None:
    fd = disk.open(path)
    (byte,) = disk.pread(fd, 1, offset)
    disk.pwrite(fd, bytes([byte ^ 0x10]), offset)
    disk.fsync(fd)
    disk.close(fd)


def repair(disk: SimDisk, seen: Survey) -> list[str]:
    chance = random.Random("uuid")
    return salvage(disk, seen, QUARANTINE, lambda: chance.randbytes(16))


def test_a_whole_journal_is_read_as_recovery_reads_it() -> None:
    disk, held = filled(1)
    seen = survey(files_of(disk))
    assert not seen.damage
    assert seen.lost() == {}
    assert {seq: s.body for seq, s in seen.found.queues[QUEUE].items()} == held
    assert sum(count for count, _ in seen.live().values()) == len(held)
    assert repair(disk, seen) == []
    assert disk.listdir(QUARANTINE) == [] if disk.exists(QUARANTINE) else True


def in_a_body(data: bytes, at: int, bodies: dict[int, bytes]) -> bool:
    """Whether the byte belongs to a message that lives, and not to what says what it is."""
    places = [(data.find(body), len(body)) for body in bodies.values() if len(body) > 8]
    return any(0 <= place <= at < place + size for place, size in places)


@pytest.mark.parametrize("seed", range(60))
def test_whatever_is_changed_the_rest_is_kept(seed: int) -> None:
    disk, held = filled(seed)
    chance = random.Random(seed)
    found = list(files_of(disk))
    number, path, before = chance.choice(found)
    used = {facts.number: facts.used for facts in survey(iter(found)).segments}
    at = chance.randrange(used[number])
    change(disk, path, at)
    damaged = read_file(disk, path)

    seen = survey(files_of(disk))
    copies = repair(disk, seen)
    assert before != damaged
    if seen.damage:
        assert {one.path for one in seen.damage} <= {path, *(f[1] for f in found)}
        assert damaged in [read_file(disk, copy) for copy in copies]
    disk.lose_power()
    after = survey(files_of(disk))
    assert not after.damage
    _, restored = open_journal(disk, FOLDER)
    kept = {m.seq: m.body for m in restored.messages.get(QUEUE, [])}
    missing = held.keys() - kept.keys()
    assert all(held[seq] == body for seq, body in kept.items() if seq in held)
    if not seen.damage:
        # It was the last batch: a torn tail, of one message or one removal.
        assert len(missing) + len(kept.keys() - held.keys()) <= 1
    elif in_a_body(before, at, held):
        assert len(missing) <= seen.lost().get(QUEUE, 0) <= len(missing) + 5


@pytest.mark.parametrize("call", range(1, 16))
def test_a_crash_in_the_middle_loses_nothing_more(call: int) -> None:
    disk, held = filled(5)
    found = list(files_of(disk))
    for number, path, data in found[1:3]:
        used = {facts.number: facts.used for facts in survey(iter(found)).segments}
        change(disk, path, used[number] // 2)
        assert data
    seen = survey(files_of(disk))
    expected = {seq: s.body for seq, s in seen.found.queues[QUEUE].items()}
    lost = seen.lost()
    disk.crash_at = disk.calls + call
    try:
        repair(disk, seen)
    except Crash:
        disk.lose_power()
    disk.crash_at = -1
    again = survey(files_of(disk))
    repair(disk, again)
    disk.lose_power()
    _, restored = open_journal(disk, FOLDER)
    assert {m.seq: m.body for m in restored.messages[QUEUE]} == expected
    assert len(held.keys() - expected.keys()) <= sum(lost.values())


def test_a_segment_that_is_missing_is_told_and_bridged() -> None:
    disk, _ = filled(7)
    found = list(files_of(disk))
    assert len(found) >= 3
    disk.unlink(found[1][1])
    disk.fsync_dir(FOLDER)
    seen = survey(files_of(disk))
    (one,) = seen.damage
    assert one.batches is not None
    assert one.path == found[0][1]
    repair(disk, seen)
    assert not survey(files_of(disk)).damage
    again = Life(disk, 4 * KIB)
    again.add(b"goes on")
    again.settle()
    assert all(m.flags for m in again.found.messages[QUEUE])
