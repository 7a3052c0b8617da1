"""Rot in a journal file while the messages are in memory: the file is emptied, nothing is lost."""

from __future__ import annotations

import random

import pytest

from gateway.model.message import DURABLE, MAYBE_SEEN, ONE_DELIVERY
from storage.compaction import CompactionRule
from storage.record import BATCH_HEADER_BYTES, AddRun, decode_records
from tests.simulation.rot import segment_files, spans
from tests.storage.test_compaction import FOLDER, KIB, QUEUE, QUEUE_DEFINITION, Life, begin, restart
from tests.storage.test_scrub import scrub

NEVER = CompactionRule(min_files=0)


class Memory:
    """What a core has in memory: all that was sent and not removed, but for what consumers hold."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.messages: dict[int, tuple[bytes, int]] = {}
        self.away: set[int] = set()
        self.asked = 0
        life.journal.compaction.recall = self.recall

    def add(self, body: bytes) -> int:
        seq = self.life.add(body)
        self.messages[seq] = body, DURABLE
        return seq

    def remove(self, seq: int) -> None:
        self.life.remove(seq)
        del self.messages[seq]

    def recall(self, wanted: dict[int, list[tuple[int, int]]]) -> list[AddRun]:
        self.asked += 1
        assert list(wanted) in ([QUEUE], [])
        return [
            AddRun([(QUEUE, seq)], [body], flags, 0, 1000 + seq)
            for seq, (body, flags) in self.messages.items()
            if seq not in self.away
            and any(low <= seq <= high for low, high in wanted.get(QUEUE, []))
        ]


def prepared(rule: CompactionRule = NEVER, *, files: int = 4, seed: int = 1) -> tuple[Life, Memory]:
    life = begin(6 * KIB, rule)
    memory = Memory(life)
    life.store.define(QUEUE_DEFINITION)
    chance = random.Random(seed)
    while life.journal.segment < files:
        seq = memory.add(chance.randbytes(chance.randrange(400)))
        life.settle()
        if chance.random() < 0.3:
            memory.remove(chance.choice(sorted(memory.messages)))
            life.settle()
        del seq
    return life, memory


def living(life: Life, memory: Memory, file: int) -> list[tuple[int, int]]:
    """Return (start, end) of the batches of a file that add a message which lives."""
    files = segment_files(life.disk, FOLDER)
    found = []
    for index, start, end in spans(files):
        if index == file and start:
            payload = files[index][2][start + BATCH_HEADER_BYTES : end]
            adds = [r for r in decode_records(payload) if isinstance(r, AddRun)]
            if any(r.targets[0][1] in memory.messages for r in adds):
                found.append((start, end))
    return found


def rot(life: Life, memory: Memory, file: int, batch: int = 0, at: int = -1) -> None:
    """Flip a bit in a batch of a file; `at` 0 is in its header, -1 the last byte."""
    start, end = living(life, memory, file)[batch]
    flip(life, file, (start if at >= 0 else end) + at)


def flip(life: Life, file: int, offset: int) -> None:
    path = segment_files(life.disk, FOLDER)[file][1]
    life.disk.flip(path, offset, 2)
    fd = life.disk.open(path)
    life.disk.drop_cache(fd)  # whoever reads it now reads what the device has
    life.disk.close(fd)


def heal(life: Life) -> None:
    """Do what the gateway does when a scrub has found damage."""
    places: dict[str, dict[int, int]] = {}
    for place in scrub(life):
        places.setdefault(place.path, {})[place.offset] = place.end
    paths = {path: number for number, path, _ in segment_files(life.disk, FOLDER)}
    for path, known in places.items():
        life.journal.empty(paths[path], known)
    life.settle()


def bodies(life: Life) -> dict[int, bytes]:
    return {m.seq: m.body for m in restart(life).messages.get(QUEUE, [])}


def kept(memory: Memory) -> dict[int, bytes]:
    return {seq: body for seq, (body, _) in memory.messages.items()}


@pytest.mark.parametrize("at", [0, 9, BATCH_HEADER_BYTES - 1, BATCH_HEADER_BYTES + 3, -1])
@pytest.mark.parametrize("file", [0, 1, 2, 3])
def test_a_damaged_file_goes_and_nothing_is_lost(file: int, at: int) -> None:
    life, memory = prepared()
    doomed = life.files()[file]
    rot(life, memory, file, 0, at)
    heal(life)
    assert min(life.files()) > doomed
    assert life.journal.compaction.damaged == []
    assert life.journal.compaction.recalled
    assert scrub(life) == []
    assert bodies(life) == kept(memory)


def test_a_header_that_rotted_loses_nothing_either() -> None:
    life, memory = prepared()
    path = segment_files(life.disk, FOLDER)[1][1]
    life.disk.flip(path, 20, 1)
    assert [place.offset for place in scrub(life)] == [0]
    heal(life)
    assert scrub(life) == []
    assert bodies(life) == kept(memory)


def test_without_memory_a_start_refuses_it() -> None:
    """What the tests above prove: the damage is such that without the repair all stands still."""
    life, memory = prepared()
    rot(life, memory, 1)
    life.settle()
    with pytest.raises(Exception, match="is damaged at offset"):
        restart(life)


def test_much_damage_in_many_files() -> None:
    life, memory = prepared(files=6)
    chance = random.Random(9)
    living_at = {file: living(life, memory, file) for file in range(6)}
    for file, batches in living_at.items():
        for start, end in chance.sample(batches, min(len(batches), 3)):
            flip(life, file, chance.randrange(start, end))
    assert len(scrub(life)) > 8
    heal(life)
    assert scrub(life) == []
    assert bodies(life) == kept(memory)


def test_what_a_consumer_holds_is_waited_for() -> None:
    life, memory = prepared()
    rot(life, memory, 0, 1)
    memory.away = set(memory.messages)
    doomed = life.files()[0]
    heal(life)
    assert life.files()[0] == doomed, "nobody has what is damaged"
    assert life.journal.compaction.damaged == [doomed]
    assert life.journal.compaction.lacking == 1, "all others were read"
    assert life.journal.compaction.failure is None
    asked = memory.asked
    life.settle()
    assert memory.asked == asked, "asked when told to, not all the time"
    one, *_ = sorted(memory.away)
    memory.remove(one)
    memory.away.clear()
    life.journal.go_on()
    life.settle()
    assert life.journal.compaction.damaged == []
    assert scrub(life) == []
    assert bodies(life) == kept(memory)


def test_what_is_consumed_meanwhile_does_not_come_back() -> None:
    life, memory = prepared()
    rot(life, memory, 0)
    memory.away = set(memory.messages)
    heal(life)
    for seq in sorted(memory.messages)[::2]:
        memory.remove(seq)
    memory.away.clear()
    life.journal.go_on()
    while life.writer.step():  # each step of the journal with removals under way
        if memory.messages:
            memory.remove(min(memory.messages))
        life.store.flush()
        while life.writer.answer():
            pass
    life.settle()
    assert life.journal.compaction.damaged == []
    assert bodies(life) == kept(memory)


def test_flags_that_changed_are_those_of_the_copy() -> None:
    life, memory = prepared()
    seq = min(memory.messages)
    life.store.count(QUEUE, [(seq, DURABLE + ONE_DELIVERY)])
    life.settle()
    rot(life, memory, 0)
    heal(life)
    assert scrub(life) == []
    (found,) = [m for m in restart(life).messages[QUEUE] if m.seq == seq]
    assert found.flags == DURABLE + ONE_DELIVERY | MAYBE_SEEN


def test_a_compaction_that_met_the_damage_first_goes_on() -> None:
    life, memory = prepared(CompactionRule(min_files=3, percentage=90), files=2)
    told: list[Exception] = []
    life.journal.compaction.on_failed = told.append
    rot(life, memory, 0)
    for seq in sorted(memory.messages)[1:]:
        memory.remove(seq)
    life.churn(4)
    assert len(told) == 1
    assert life.journal.compaction.failure is not None
    heal(life)
    assert life.journal.compaction.failure is None
    life.churn(1)
    assert len(life.files()) <= 3
    assert bodies(life) == kept(memory)


def test_a_power_cut_at_any_moment_of_a_repair_loses_nothing() -> None:
    """Until the damaged file is gone a start refuses; from then on it finds all."""
    chance = random.Random(12)
    refused = found = 0
    for crash in range(1, 40):
        life, memory = prepared(files=3)
        doomed = life.files()[1]
        rot(life, memory, 1)
        steps = 0
        for place in scrub(life):
            life.journal.empty(doomed, {place.offset: place.end})
        while steps < crash:
            if not (life.writer.step() or life.writer.answer()):
                break
            steps += 1
        life.disk.chance = chance
        life.disk.lose_power()
        names = life.disk.listdir(FOLDER)
        if f"{doomed:016d}.journal" in names:
            with pytest.raises(Exception, match="is damaged at offset"):
                restart(life)
            refused += 1
        else:
            assert bodies(life) == kept(memory)
            found += 1
    assert refused
    assert found


def test_after_a_start_that_wrote_nothing_yet_it_is_repaired_too() -> None:
    """What came before this life goes only when something of this life is on disk."""
    life, memory = prepared()
    life.journal.close(lambda: None)
    life.writer.run()
    life.disk.boot()
    again = Life(life.disk, 6 * KIB, NEVER)
    memory.life = again
    again.journal.compaction.recall = memory.recall
    for file in (2, 0):
        rot(again, memory, file)
    assert again.journal.batches == 0
    heal(again)
    assert scrub(again) == []
    assert again.journal.compaction.damaged == []
    assert bodies(again) == kept(memory)
