"""The scrub of sealed files: every flipped bit is found where it is, and nothing else is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from storage.arrow_log import ArrowLog
from storage.arrow_segment import SCHEMA
from storage.files import RealFiles
from storage.pages import PAGE_HEADER_BYTES, page_name
from storage.record import SEGMENT_HEADER_BYTES
from storage.scrub import (
    SLICE,
    Place,
    check_journal_file,
    check_log_file,
    check_page,
)
from tests.simulation.rot import segment_files, spans
from tests.storage.test_compaction import FOLDER, KIB, QUEUE_DEFINITION, Life, begin
from tests.storage.test_pages import DIRECTORY, Pages


def scrub(life: Life) -> list[Place]:
    """Check all journal files at once."""
    found: list[Place] = []
    for number in sorted(life.journal.index.live):
        check = check_journal_file(life.disk, FOLDER, number, life.journal, found)
        assert all(count >= 0 for count in check)
    return found


def filled(files: int = 3, size: int = 10 * KIB) -> Life:
    life = begin(size)
    life.store.define(QUEUE_DEFINITION)
    chance = random.Random(1)
    while life.journal.segment < files:
        life.add(chance.randbytes(chance.randrange(700)))
        life.settle()
    return life


def test_sound_files_raise_no_alarm() -> None:
    assert scrub(filled()) == []


def test_every_flipped_byte_of_a_journal_is_found_where_it_is() -> None:
    life = filled(3, 4 * KIB)
    files = segment_files(life.disk, FOLDER)
    places = spans(files)
    assert len({index for index, _, _ in places}) == 3
    chance = random.Random(2)
    for index, start, end in places:
        path = files[index][1]
        for offset in range(start, end):
            bit = chance.randrange(8)
            life.disk.flip(path, offset, bit)
            (place,) = scrub(life)
            assert (place.path, place.offset) == (path, start)
            assert place.end in (0, end)
            life.disk.flip(path, offset, bit)
    assert scrub(life) == []


def test_all_bits_of_headers() -> None:
    life = filled(2, 4 * KIB)
    files = segment_files(life.disk, FOLDER)
    batch = spans(files)[1]
    path = files[0][1]
    heads = [*range(SEGMENT_HEADER_BYTES), *range(batch[1], batch[1] + 40)]
    for offset in heads:
        for bit in range(8):
            life.disk.flip(path, offset, bit)
            assert [place.path for place in scrub(life)] == [path]
            life.disk.flip(path, offset, bit)


def test_what_lies_behind_the_last_batch_is_not_judged() -> None:
    life = filled(3, 4 * KIB)
    files = segment_files(life.disk, FOLDER)
    ends: dict[int, int] = {}
    for index, _, end in spans(files):
        ends[index] = max(end, ends.get(index, 0))
    for index, end in ends.items():
        for offset in range(end, len(files[index][2])):
            life.disk.flip(files[index][1], offset, 3)
    assert scrub(life) == []


def test_several_places_of_a_file_are_told_each() -> None:
    life = filled(2, 20 * KIB)
    files = segment_files(life.disk, FOLDER)
    path = files[0][1]
    batches = [place for place in spans(files) if place[0] == 0 and place[1]]
    doomed = [batches[1], batches[2], batches[5], batches[-1]]
    for _, _, end in doomed:
        life.disk.flip(path, end - 1, 1)
    # A header that is gone with its payload: what follows is found by search.
    for offset in range(batches[7][1], batches[7][1] + 40):
        life.disk.flip(path, offset, offset % 8)
    found = scrub(life)
    offsets = sorted(start for _, start, _ in [*doomed, batches[7]])
    assert [place.offset for place in found] == offsets
    assert [place.end for place in found[:3]] == [batches[1][2], batches[2][2], batches[5][2]]


def test_what_is_not_synced_yet_is_not_judged() -> None:
    life = filled(2)
    life.add(bytes(300))
    life.store.flush()
    assert life.writer.step(), "written, and not reported"
    path = segment_files(life.disk, FOLDER)[-1][1]
    _, _, end = spans(segment_files(life.disk, FOLDER))[-1]
    assert scrub(life) == []
    life.disk.flip(path, end - 1, 0)
    assert scrub(life) == [], "nobody was promised anything on it"


def test_lives_that_ended_in_the_middle_raise_no_alarm() -> None:
    """Torn tails, files that were never begun, numbers that go on in the next life."""
    chance = random.Random(4)
    life = begin(4 * KIB)
    life.store.define(QUEUE_DEFINITION)
    for _ in range(30):
        for _ in range(chance.randrange(1, 12)):
            life.add(chance.randbytes(chance.randrange(900)))
            life.settle() if chance.random() < 0.7 else life.store.flush()
        if chance.random() < 0.5:
            life.writer.make_spare()
        life.writer.step()
        life.disk.lose_power()
        life = Life(life.disk, 4 * KIB, life.journal.compaction.rule)
        life.settle()
        assert scrub(life) == []
    assert life.journal.segment > 20


def test_beside_a_journal_at_work_nothing_is_mistaken() -> None:
    """Files grow, roll, are emptied, renamed and written again while they are read."""
    chance = random.Random(5)
    life = begin(4 * KIB)
    life.store.define(QUEUE_DEFINITION)
    kept: list[int] = []
    checks = 0
    for _ in range(60):
        live = sorted(life.journal.index.live)
        at = chance.randrange(len(live)) if live else 0
        found: list[Place] = []
        running: Iterator[int] = iter(())
        if live:
            running = check_journal_file(life.disk, FOLDER, live[at], life.journal, found)
        while True:
            kept.append(life.add(chance.randbytes(chance.randrange(900))))
            if len(kept) > 6:
                life.remove(kept.pop(chance.randrange(3)))
            life.settle()
            try:
                next(running)
            except (StopIteration, FileNotFoundError):
                break
        checks += 1
        if found:
            assert live[at] not in life.journal.index.live, "a file that is still the journal's"
    assert checks == 60
    assert life.journal.compaction.emptied


def test_a_header_that_was_never_written_ends_no_file_before_it() -> None:
    """A start that was cut leaves a file of zeros: the one before it reaches to what is synced."""
    life = filled(2)
    files = segment_files(life.disk, FOLDER)
    path = f"{FOLDER}/{life.journal.segment + 1:016d}.journal"
    life.disk.close(life.disk.open(path, create=True))
    life.disk.fsync_dir(FOLDER)
    life.disk.lose_power()
    again = Life(life.disk, 10 * KIB, life.journal.compaction.rule)
    assert scrub(again) == []
    _, _, end = spans(files)[-1]
    life.disk.flip(files[-1][1], end - 1, 0)
    (place,) = scrub(again)
    assert place.path == files[-1][1]
    again.add(b"into a new file")
    again.settle()
    (place,) = scrub(again)
    assert place.path == files[-1][1]


def test_a_disk_that_cannot_read_is_told_with_where() -> None:
    life = filled(2)
    life.disk.read_faults = 1
    (place,) = scrub(life)
    assert (place.offset, place.end) == (0, 0)
    assert "cannot be read" in place.what
    assert not life.disk.fds.keys() - {life.writer.work._segments._fd}


def test_large_files_are_read_in_slices() -> None:
    life = begin(4 << 20)
    life.store.define(QUEUE_DEFINITION)
    life.add(random.Random(6).randbytes(3 * SLICE + 17))
    life.add(b"small")
    life.settle()
    (number,) = life.journal.index.live
    found: list[Place] = []
    check = check_journal_file(life.disk, FOLDER, number, life.journal, found)
    counts = list(check)
    assert max(counts) == SLICE
    assert len(counts) >= 4
    assert found == []


# ---- pages


def test_every_flipped_byte_of_a_page_is_found() -> None:
    pages = Pages()
    one, two = pages.write(pages.block(1, 0, b"a" * 90, b"bc"), pages.block(1, 1, b"d" * 200))
    (three,) = pages.write(pages.block(1, 2, b"not yet committed"))
    path = f"{DIRECTORY}/{page_name(1, 1)}"
    starts = {0: PAGE_HEADER_BYTES, one.offset: one.length, two.offset: two.length}

    def check() -> list[Place]:
        found: list[Place] = []
        list(check_page(pages.disk, DIRECTORY, (1, 1), 2, found))
        return found

    assert check() == []
    for start, length in starts.items():
        for offset in range(start, start + length):
            pages.disk.flip(path, offset, offset % 8)
            found = check()
            assert found[0].offset == start, offset
            assert found[0].path == path
            pages.disk.flip(path, offset, offset % 8)
    pages.disk.flip(path, three.offset + 50, 1)
    assert check() == [], "that block does not exist by the journal"


def test_a_page_that_went_is_no_damage() -> None:
    pages = Pages()
    with pytest.raises(FileNotFoundError):
        list(check_page(pages.disk, DIRECTORY, (1, 1), 1, []))


# ---- Arrow files


def rows(first: int, end: int) -> pa.RecordBatch:
    count = end - first
    return pa.record_batch(
        [
            pa.array(range(first, end), pa.int64()),
            pa.array([0] * count, pa.timestamp("us", tz="UTC")),
            pa.array([0] * count, pa.int32()),
            pa.array([bytes([n % 251]) * 30 for n in range(count)], pa.binary()),
        ],
        schema=SCHEMA,
    )


def test_every_flipped_byte_of_an_arrow_file_and_its_index_is_found(tmp_path) -> None:
    log = ArrowLog(RealFiles(), str(tmp_path), segment_bytes=1500)
    for first in range(0, 12, 3):
        log.append([(first, first + 3, 5, rows(first, first + 3))])
    files = log.files()
    assert [file.size > 0 for file in files] == [True] * (len(files) - 1) + [False]

    def check() -> list[Place]:
        found: list[Place] = []
        for file in log.files():
            list(check_log_file(RealFiles(), file, found))
        return found

    assert check() == []
    grows = files[-1].path
    for file in files:
        for path in (file.path, file.index_path):
            with Path(path).open("r+b") as handle:
                data = handle.read()
                for offset in range(len(data)):
                    handle.seek(offset)
                    handle.write(bytes([data[offset] ^ 1 << offset % 8]))
                    handle.flush()
                    found = check()
                    assert [place.path for place in found] == [path], (path, offset)
                    assert found[0].offset <= offset
                    handle.seek(offset)
                    handle.write(data[offset : offset + 1])
                    handle.flush()
    assert grows.endswith(".arrows")
    log.close()
    assert all(file.size for file in log.files())
    assert check() == []
