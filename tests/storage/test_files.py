"""The port to the file system: the real one, and replacing a file whole or not at all."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from storage.files import RealFiles, durable_replace, read_file
from tests.simulation.disk import Crash, SimDisk

OLD, NEW = b"old" * 300, b"new" * 700


def put(disk: SimDisk, data: bytes) -> None:
    durable_replace(disk, "d/file", data)


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("had", [False, True])
def test_a_crash_leaves_the_old_or_the_new_whole(power: bool, had: bool) -> None:
    seen = set()
    for seed in range(200):
        disk = SimDisk(random.Random(seed))
        if had:
            put(disk, OLD)
        disk.crash_at = disk.calls + 1 + seed % 5
        with pytest.raises(Crash):
            put(disk, NEW)
        if power:
            disk.lose_power()
        else:
            disk.boot()
        found = read_file(disk, "d/file") if disk.exists("d/file") else b""
        assert found in {OLD if had else b"", NEW}
        seen.add(found)
        put(disk, NEW)
        disk.lose_power()
        assert read_file(disk, "d/file") == NEW, "what a crash left does not stand in the way"
        assert disk.listdir("d") == ["file"]
    assert len(seen) == 2


def test_what_was_replaced_survives() -> None:
    for seed in range(50):
        disk = SimDisk(random.Random(seed))
        put(disk, OLD)
        put(disk, NEW)
        disk.lose_power()
        assert read_file(disk, "d/file") == NEW


def test_a_failing_sync_keeps_the_old() -> None:
    disk = SimDisk(random.Random(1))
    put(disk, OLD)
    disk.sync_faults = 1
    with pytest.raises(OSError, match="cannot sync"):
        put(disk, NEW)
    assert read_file(disk, "d/file") == OLD
    assert disk.fds == {}


def test_real_files_write_read_and_grow(tmp_path: Path) -> None:
    files = RealFiles()
    path = str(tmp_path / "file")
    fd = files.open(path, create=True)
    files.allocate(fd, 10_000)
    assert files.size(fd) == 10_000
    assert files.pwrite(fd, b"abc", 9_000) == 3
    files.fdatasync(fd)
    files.fsync(fd)
    files.drop_cache(fd)
    assert files.pread(fd, 5, 8_999) == b"\0abc\0"
    assert files.pread(fd, 100, 9_999) == b"\0"
    assert files.pread(fd, 100, 20_000) == b""
    files.truncate(fd, 3)
    assert files.size(fd) == 3
    files.close(fd)
    assert Path(path).stat().st_mode & 0o777 == 0o600


def test_real_files_create_once(tmp_path: Path) -> None:
    files = RealFiles()
    path = str(tmp_path / "file")
    files.close(files.open(path, create=True))
    with pytest.raises(FileExistsError):
        files.open(path, create=True)
    files.unlink(path)
    assert not files.exists(path)
    with pytest.raises(FileNotFoundError):
        files.open(path)


def test_real_files_open_for_reading_cannot_write(tmp_path: Path) -> None:
    files = RealFiles()
    (tmp_path / "file").write_bytes(b"abc")
    fd = files.open(str(tmp_path / "file"), write=False)
    with pytest.raises(OSError, match="Bad file descriptor"):
        files.pwrite(fd, b"x", 0)
    files.close(fd)


def test_real_files_follow_no_links(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"precious")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"):
        RealFiles().open(str(tmp_path / "link"))


def test_real_directories(tmp_path: Path) -> None:
    files = RealFiles()
    path = str(tmp_path / "a" / "b")
    files.mkdir(path)
    files.mkdir(path)
    assert Path(path).stat().st_mode & 0o777 == 0o700
    for name in ("z", "b", "a"):
        files.close(files.open(f"{path}/{name}", create=True))
    assert files.listdir(path) == ["a", "b", "z"]
    files.rename(f"{path}/a", f"{path}/c")
    files.fsync_dir(path)
    assert files.listdir(path) == ["b", "c", "z"]
    assert files.free_bytes(path) > 0


def test_a_real_replace(tmp_path: Path) -> None:
    files = RealFiles()
    path = str(tmp_path / "file")
    for data in (OLD, NEW, b""):
        durable_replace(files, path, data)
        assert read_file(files, path) == data
    assert files.listdir(str(tmp_path)) == ["file"]


def short_pwrite(counts: list[int]):
    """Return a `pwrite` of the system that takes as many bytes as the list says."""
    real = os.pwrite

    def pwrite(fd: int, data: bytes | memoryview, offset: int) -> int:
        count = counts.pop(0) if counts else len(data)
        return real(fd, bytes(data[:count]), offset) if count else 0

    return pwrite


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = RealFiles()
    fd = files.open(str(tmp_path / "file"), create=True)
    monkeypatch.setattr(os, "pwrite", short_pwrite([2, 1]))
    assert files.pwrite(fd, b"abcdef", 4) == 6
    assert files.pread(fd, 10, 4) == b"abcdef"
    files.close(fd)


def test_a_write_that_takes_nothing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = RealFiles()
    fd = files.open(str(tmp_path / "file"), create=True)
    monkeypatch.setattr(os, "pwrite", short_pwrite([2, 0]))
    with pytest.raises(OSError, match="short write") as caught:
        files.pwrite(fd, b"abcdef", 0)
    assert caught.value.errno == errno.ENOSPC
    files.close(fd)
