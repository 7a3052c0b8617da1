"""Segment files: made ahead, filled with zeros, used again, taken away for good one by one."""

from __future__ import annotations

import errno
import random
import threading

import pytest

from storage.files import RealFiles, read_file
from storage.record import SEGMENT_HEADER_BYTES, decode_segment_header
from storage.recovery import recover
from storage.segments import Segments, segment_name, segment_number
from storage.spares import spare_number
from tests.simulation.disk import Crash, SimDisk

DIRECTORY = "journal"
SIZE = 4096


def disk_of(seed: int = 0) -> SimDisk:
    return SimDisk(random.Random(seed))


def segments_of(disk: SimDisk, seed: int = 1) -> Segments:
    chance = random.Random(seed)
    return Segments(disk, DIRECTORY, lambda: chance.randbytes(16))


def content(disk: SimDisk, name: str) -> bytes:
    return read_file(disk, f"{DIRECTORY}/{name}")


def test_names_sort_as_numbers_and_come_back() -> None:
    numbers = [0, 1, 9, 10, 123456789]
    names = [segment_name(n) for n in numbers]
    assert names == sorted(names)
    assert [segment_number(name) for name in names] == numbers


@pytest.mark.parametrize(
    "name", ["lock", "1.journal", "spare-1", ".journal", "x" * 16 + ".journal"]
)
def test_other_files_are_no_segments(name: str) -> None:
    assert segment_number(name) is None


@pytest.mark.parametrize(
    ("name", "number"), [("spare-7", 7), ("spare-", None), ("spare-x", None), ("7", None)]
)
def test_spares_are_known_by_name(name: str, number: int | None) -> None:
    assert spare_number(name) == number


def test_a_spare_is_zeros_and_on_the_device_with_its_name() -> None:
    disk = disk_of()
    assert segments_of(disk).make_spare(SIZE)
    disk.lose_power()
    assert disk.listdir(DIRECTORY) == ["spare-1"]
    assert content(disk, "spare-1") == bytes(SIZE)


def test_only_one_spare_is_made_ahead() -> None:
    disk = disk_of()
    segments = segments_of(disk)
    assert [segments.make_spare(SIZE) for _ in range(3)] == [True, False, False]
    assert segments.spares_ready == 1


def test_a_segment_is_the_spare_with_a_header() -> None:
    disk = disk_of()
    segments = segments_of(disk)
    segments.make_spare(SIZE)
    calls = disk.calls
    segments.write(b"", number=5, synced=4, segment=2, size=SIZE)
    log = list(disk.log)[calls - disk.calls :]
    assert [entry.split()[1] for entry in log] == [
        "rename",
        "write",
        "sync",
        "sync",
        "write",
        "sync",
    ], "name, header, file, directory, batch, file: nothing is filled"
    data = content(disk, segment_name(2))
    head = decode_segment_header(data)
    assert head is not None
    assert (head.number, head.first, len(data)) == (2, 5, SIZE)


def test_without_a_spare_the_segment_is_made_whole_before_use() -> None:
    disk = disk_of()
    segments_of(disk).write(b"", number=1, synced=0, segment=1, size=SIZE)
    disk.lose_power()
    data = content(disk, segment_name(1))
    assert len(data) == SIZE
    assert recover(iter([(1, "one", data)])).ticket == 1


def test_batches_lie_behind_each_other_and_come_back() -> None:
    disk = disk_of()
    segments = segments_of(disk)
    sizes = [segments.write(b"", number=n, synced=n - 1, segment=1, size=SIZE) for n in range(1, 6)]
    found = recover(iter([(1, "one", content(disk, segment_name(1)))]))
    assert found.ticket == 5
    assert found.end == ("one", SEGMENT_HEADER_BYTES + sum(sizes))


def test_a_batch_that_is_larger_than_its_room_is_never_written() -> None:
    disk = disk_of()
    segments = segments_of(disk)
    segments.write(b"", number=1, synced=0, segment=1, size=SIZE)
    before = content(disk, segment_name(1))
    with pytest.raises(AssertionError, match="does not fit"):
        segments.write(bytes(SIZE), number=2, synced=1, segment=1, size=SIZE)
    assert content(disk, segment_name(1)) == before


def test_a_large_batch_gets_a_large_segment_and_leaves_the_spare() -> None:
    disk = disk_of()
    segments = segments_of(disk)
    segments.make_spare(SIZE)
    segments.write(bytes(3 * SIZE), number=1, synced=0, segment=1, size=4 * SIZE)
    assert len(content(disk, segment_name(1))) == 4 * SIZE
    assert segments.spares_ready == 1
    segments.write(b"", number=2, synced=1, segment=2, size=SIZE)
    assert disk.listdir(DIRECTORY) == [segment_name(1), segment_name(2)]


def test_emptied_segments_are_used_again_two_at_most() -> None:
    disk = disk_of()
    segments = segments_of(disk)
    for number in range(1, 6):
        segments.write(b"", number=number, synced=number - 1, segment=number, size=SIZE)
    segments.delete([1, 2, 3], SIZE)
    assert segments.spares_ready == 2
    disk.lose_power()
    left = [segment_name(4), segment_name(5), "spare-1", "spare-2"]
    assert disk.listdir(DIRECTORY) == left


def test_a_large_segment_is_not_kept() -> None:
    disk = disk_of()
    segments = segments_of(disk)
    segments.write(b"", number=1, synced=0, segment=1, size=4 * SIZE)
    segments.delete([1], SIZE)
    assert disk.listdir(DIRECTORY) == []


def test_records_of_an_old_life_never_reappear() -> None:
    """The file of segment 1 becomes segment 3: what lies behind its new batch is not read."""
    disk = disk_of()
    segments = segments_of(disk)
    for number in range(1, 9):
        segments.write(b"", number=number, synced=number - 1, segment=1, size=SIZE)
    segments.write(b"", number=9, synced=8, segment=2, size=SIZE)
    segments.delete([1], SIZE)
    segments.write(b"", number=10, synced=9, segment=3, size=SIZE)
    old = content(disk, segment_name(3))
    assert old.count(b"\x1d\xc4\xa7\xb5") == 8, "the old batches are there"
    files = [(n, str(n), content(disk, segment_name(n))) for n in (2, 3)]
    assert recover(iter(files)).ticket == 10


def test_each_deletion_is_for_good_before_the_next() -> None:
    for crash in range(1, 20):
        disk = disk_of(crash)
        segments = segments_of(disk)
        for number in range(1, 6):
            segments.write(b"", number=number, synced=number - 1, segment=number, size=SIZE)
        disk.crash_at = disk.calls + crash
        try:
            segments.delete([1, 2, 3, 4], SIZE)
        except Crash:
            disk.lose_power()
        names = [segment_number(name) for name in disk.listdir(DIRECTORY)]
        left = [n for n in names if n is not None]
        assert left == list(range(left[0], 6)), "oldest first, without a gap"


def test_half_made_spares_go() -> None:
    disk = disk_of()
    fd = disk.open(f"{DIRECTORY}/spare-4", create=True)
    disk.pwrite(fd, bytes(100), 0)
    disk.close(fd)
    segments = segments_of(disk)
    assert segments.make_spare(SIZE)
    assert disk.listdir(DIRECTORY) == ["spare-5"]


def test_half_made_spares_go_where_none_is_made_ahead_too() -> None:
    disk = disk_of()
    fd = disk.open(f"{DIRECTORY}/spare-4", create=True)
    disk.pwrite(fd, bytes(100), 0)
    disk.close(fd)
    segments = segments_of(disk)
    segments.write(b"", number=1, synced=0, segment=1, size=SIZE)
    assert disk.listdir(DIRECTORY) == [segment_name(1)]
    assert segments.spares_ready == 0
    assert len(disk.fds) == 1


def test_spares_of_an_earlier_process_are_used() -> None:
    disk = disk_of()
    segments_of(disk).make_spare(SIZE)
    segments = segments_of(disk, 2)
    assert not segments.make_spare(SIZE)
    segments.write(b"", number=1, synced=0, segment=1, size=SIZE)
    assert disk.listdir(DIRECTORY) == [segment_name(1)]


def test_a_spare_that_somebody_tidied_up_is_not_missed() -> None:
    disk = disk_of()
    segments = segments_of(disk)
    segments.make_spare(SIZE)
    disk.unlink(f"{DIRECTORY}/spare-1")
    segments.write(b"", number=1, synced=0, segment=1, size=SIZE)
    assert disk.listdir(DIRECTORY) == [segment_name(1)]


def make(segments: Segments, what: str) -> None:
    if what == "spare":
        segments.make_spare(SIZE)
    else:
        segments.write(b"", number=1, synced=0, segment=1, size=SIZE)


@pytest.mark.parametrize("what", ["segment", "spare"])
def test_no_room_leaves_nothing_behind(what: str) -> None:
    disk = disk_of()
    disk.capacity = SIZE - 1
    segments = segments_of(disk)
    with pytest.raises(OSError, match="no room") as caught:
        make(segments, what)
    assert caught.value.errno == errno.ENOSPC
    assert disk.listdir(DIRECTORY) == []
    assert disk.fds == {}
    disk.capacity = None
    assert segments.make_spare(SIZE)


def test_a_failing_sync_of_a_spare_leaves_nothing_behind() -> None:
    disk = disk_of()
    disk.sync_faults = 2
    with pytest.raises(OSError, match="cannot sync"):
        segments_of(disk).make_spare(SIZE)
    assert disk.listdir(DIRECTORY) == []
    assert disk.fds == {}


def test_making_stops_between_slices_when_asked() -> None:
    disk = disk_of()
    answers = iter([True, False])
    segments = segments_of(disk)
    assert not segments.make_spare(3 << 20, lambda: next(answers))
    assert disk.listdir(DIRECTORY) == []
    assert disk.fds == {}
    assert segments.spares_ready == 0


def test_a_spare_is_made_in_slices_with_a_sync_each() -> None:
    disk = disk_of()
    segments_of(disk).make_spare((2 << 20) + 5)
    what = [entry.split(maxsplit=1)[1] for entry in disk.log]
    path = f"{DIRECTORY}/spare-1"
    assert what == [
        f"create {path}",
        f"allocate {path} {(2 << 20) + 5}",
        f"write {path} 0+{1 << 20}",
        f"sync {path}",
        f"write {path} {1 << 20}+{1 << 20}",
        f"sync {path}",
        f"write {path} {2 << 20}+5",
        f"sync {path}",
        f"sync {path}",
        f"sync directory {DIRECTORY}",
    ]


def test_one_that_is_needed_while_it_is_made_is_waited_for(tmp_path) -> None:
    """No second file is made beside it: on a nearly full disk there may be room for one only."""
    folder = str(tmp_path)
    segments = Segments(RealFiles(), folder, lambda: bytes(16))
    halfway, go_on = threading.Event(), threading.Event()

    def ask() -> bool:
        halfway.set()
        assert go_on.wait(10)
        return True

    maker = threading.Thread(target=lambda: segments.make_spare(SIZE, ask))
    maker.start()
    assert halfway.wait(10)
    writer = threading.Thread(
        target=lambda: segments.write(b"", number=1, synced=0, segment=1, size=SIZE)
    )
    writer.start()
    writer.join(0.1)
    assert writer.is_alive(), "it waits"
    assert RealFiles().listdir(folder) == ["spare-1"]
    go_on.set()
    writer.join(10)
    maker.join(10)
    assert RealFiles().listdir(folder) == [segment_name(1)]
    segments.close()


def test_closing_twice_is_fine() -> None:
    disk = disk_of()
    segments = segments_of(disk)
    segments.write(b"", number=1, synced=0, segment=1, size=SIZE)
    segments.close()
    segments.close()
    assert disk.fds == {}
