"""The ballast, and a journal that lives on it: on real files below a limit that the test sets."""

from __future__ import annotations

import errno
import os

import pytest

from gateway.disk.watching import ballast_for, make_room, measuring
from storage.ballast import Ballast
from storage.files import RealFiles
from storage.pages import PageBlock, PageReader, PageWriter
from storage.segments import Segments, segment_name

MIB = 1 << 20


class SmallDisk(RealFiles):
    """Real files that together have no more than `room` bytes."""

    def __init__(self, folder, room: int) -> None:
        self.folder = folder
        self.room = room
        self.error = errno.ENOSPC

    @property
    def used(self) -> int:
        return sum(one.stat().st_size for one in self.folder.rglob("*") if one.is_file())

    def allocate(self, fd: int, size: int) -> None:
        if self.used + max(0, size - self.size(fd)) > self.room:
            raise OSError(self.error, os.strerror(self.error))
        super().allocate(fd, size)

    def space(self, path: str) -> tuple[int, int, int]:
        return 1, self.room, self.room - self.used


@pytest.fixture
def small(tmp_path):
    return SmallDisk(tmp_path, 16 * MIB)


def test_it_is_made_given_and_made_again(small, tmp_path):
    ballast = Ballast(small, str(tmp_path), 4 * MIB)
    assert (ballast.size, ballast.missing) == (0, 4 * MIB)
    assert ballast.make()
    assert (small.used, ballast.missing) == (4 * MIB, 0)
    assert ballast.give(3 * MIB)
    assert (small.used, ballast.missing, ballast.given) == (MIB, 3 * MIB, 1)
    assert ballast.give(3 * MIB)
    assert (small.used, ballast.size) == (0, 0)
    assert not ballast.give(1)
    assert ballast.make()
    assert ballast.make()
    assert small.used == 4 * MIB


def test_a_later_process_finds_what_is_left(small, tmp_path):
    first = Ballast(small, str(tmp_path), 4 * MIB)
    first.make()
    first.give(MIB)
    assert Ballast(small, str(tmp_path), 4 * MIB).missing == MIB


@pytest.mark.parametrize("wanted", [0, MIB])
def test_a_smaller_setting_gives_room_back(small, tmp_path, wanted):
    Ballast(small, str(tmp_path), 4 * MIB).make()
    ballast = Ballast(small, str(tmp_path), wanted)
    assert ballast.make()
    assert (small.used, ballast.missing) == (wanted, 0)


def test_without_room_it_keeps_what_it_has(small, tmp_path):
    small.room = 2 * MIB
    ballast = Ballast(small, str(tmp_path), 4 * MIB)
    assert not ballast.make()
    assert (small.used, ballast.missing) == (0, 4 * MIB)
    small.room = 4 * MIB
    assert ballast.make()


def test_a_file_that_may_not_be_so_large_is_never_wanted_again(small, tmp_path):
    small.room, small.error = 2 * MIB, errno.EFBIG
    ballast = Ballast(small, str(tmp_path), 4 * MIB)
    assert not ballast.make()
    assert ballast.missing == 0


def test_another_error_is_told(small, tmp_path):
    small.room, small.error = 2 * MIB, errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        Ballast(small, str(tmp_path), 4 * MIB).make()


def test_it_takes_a_sixteenth_of_the_file_system_at_most(small, tmp_path):
    assert ballast_for(small, str(tmp_path), 64 * MIB).wanted == MIB
    assert ballast_for(small, str(tmp_path), 1000).wanted == 1000


def test_file_systems_are_measured_once(small, tmp_path):
    (space,) = measuring(small, [str(tmp_path), str(tmp_path)])()
    assert (space.path, space.total, space.free) == (str(tmp_path), 16 * MIB, 16 * MIB)
    device, total, free = RealFiles().space(str(tmp_path))
    assert device == tmp_path.stat().st_dev
    assert total >= free > 0


class Journal:
    """A directory with segments of 4 MiB and a ballast of 4 MiB."""

    def __init__(self, small: SmallDisk) -> None:
        self.disk = small
        self.folder = str(small.folder)
        self.ballast = Ballast(small, self.folder, 4 * MIB)
        self.ballast.make()
        self.tight = 0
        self.segments = Segments(small, self.folder, lambda: bytes(16), self.ballast)
        self.ballast.on_asked = self._tight
        self.number = 0

    def _tight(self) -> None:
        self.tight += 1

    def write(self, segment: int, size: int) -> None:
        self.number += 1
        self.segments.write(
            bytes([self.number]) * size,
            number=self.number,
            synced=self.number - 1,
            segment=segment,
            size=4 * MIB,
        )


def test_with_room_a_segment_is_whole_and_the_ballast_stays(small):
    journal = Journal(small)
    journal.write(1, 100)
    assert (journal.tight, journal.ballast.missing) == (0, 0)
    assert (small.folder / segment_name(1)).stat().st_size == 4 * MIB
    journal.segments.close()


def test_without_room_a_segment_grows_on_the_ballast(small):
    journal = Journal(small)
    small.room = 4 * MIB + MIB // 2
    journal.write(1, 100)
    path = small.folder / segment_name(1)
    assert path.stat().st_size == MIB
    assert (journal.tight, journal.ballast.size) == (1, 3 * MIB)
    journal.write(1, MIB // 2)
    assert journal.tight == 1
    journal.write(1, MIB)
    assert (path.stat().st_size, journal.tight) == (2 * MIB, 2)
    journal.write(2, 100)
    assert (journal.ballast.size, journal.tight) == (MIB, 3)
    journal.segments.close()
    assert small.used <= small.room


def test_when_the_ballast_is_used_up_the_store_fails_and_keeps_what_it_has(small):
    journal = Journal(small)
    small.room = 4 * MIB
    for segment in range(1, 5):
        journal.write(segment, 100)
    assert journal.ballast.size == 0
    with pytest.raises(OSError, match="No space"):
        journal.write(5, 100)
    journal.segments.close()
    kept = [small.folder / segment_name(n) for n in range(1, 5)]
    for number, path in enumerate(kept, 1):
        assert bytes([number]) * 100 in path.read_bytes()


def test_another_error_than_a_full_disk_takes_no_ballast(small):
    journal = Journal(small)
    small.room, small.error = 4 * MIB, errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        journal.write(1, 100)
    assert (journal.ballast.missing, journal.tight) == (0, 0)


def test_a_segment_without_ballast_fails_as_before(small):
    small.room = MIB
    segments = Segments(small, str(small.folder), lambda: bytes(16))
    with pytest.raises(OSError, match="No space"):
        segments.write(b"x", number=1, synced=0, segment=1, size=4 * MIB)


class Writing(SmallDisk):
    """Runs out of room in the middle of a write."""

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        room = self.room - self.used + max(0, self.size(fd) - offset)
        if len(data) > room:
            super().pwrite(fd, data[: max(0, room)], offset)
            raise OSError(self.error, os.strerror(self.error))
        return super().pwrite(fd, data, offset)


def block(number: int, size: int) -> PageBlock:
    one = PageBlock(1, 1, number, ((7, 1 + number),), 0)
    one.extend([bytes([65 + number]) * size], 0, 0, size)
    one.ticket = number + 1
    return one


def test_a_page_is_written_on_the_ballast(tmp_path):
    small = Writing(tmp_path, 16 * MIB)
    ballast = Ballast(small, str(tmp_path), 2 * MIB)
    ballast.make()
    asked = []
    ballast.on_asked = lambda: asked.append(ballast.size)
    pages = PageWriter(small, str(tmp_path), lambda: bytes(16), ballast)
    small.room = small.used + 1000
    first, second, third = (block(n, MIB // 2) for n in range(3))
    pages.write([first])
    pages.write([second])
    assert asked == [2 * MIB, 2 * MIB - first.length - 64]
    reader = PageReader(small, str(tmp_path))
    for one, letter in ((first, b"A"), (second, b"B")):
        assert list(reader.read(1, 1, one.offset, one.length).bodies) == [letter * (MIB // 2)]
    small.room = 0
    ballast.give(4 * MIB)
    with pytest.raises(OSError, match="No space"):
        pages.write([third])
    small.error = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        pages.write([block(2, MIB // 2)])
    pages.close()


def test_a_start_on_a_full_disk_needs_ballast_of_before(small):
    wanted = ballast_for(small, str(small.folder), 1 * MIB)
    segments = Segments(small, str(small.folder), lambda: bytes(16), wanted)
    small.room = 3 * MIB
    with pytest.raises(OSError, match="No space"):
        make_room(segments, wanted, 4 * MIB)
    small.room = 16 * MIB
    make_room(segments, wanted, 4 * MIB)
    assert (segments.spares_ready, wanted.missing) == (1, 0)
    for spare in small.folder.glob("spare-*"):
        spare.unlink()
    small.room = MIB
    again = ballast_for(small, str(small.folder), 1 * MIB)
    make_room(Segments(small, str(small.folder), lambda: bytes(16), again), again, 4 * MIB)


def test_without_an_inode_the_ballast_becomes_the_segment(small, monkeypatch):
    journal = Journal(small)
    opened = small.open

    def no_inode(path, **how):
        if how.get("create"):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return opened(path, **how)

    monkeypatch.setattr(small, "open", no_inode)
    journal.write(1, 100)
    journal.write(1, 100)
    assert (small.folder / segment_name(1)).exists()
    assert (journal.ballast.size, journal.ballast.given) == (0, 1)
    with pytest.raises(OSError, match="No space left"):
        journal.write(2, 100)
    journal.segments.close()
