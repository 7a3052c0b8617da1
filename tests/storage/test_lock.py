"""One process a data directory."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from storage.errors import LockedError
from storage.lock import DirectoryLock

ROOT = Path(__file__).resolve().parents[2]
HOLD = """
import os, sys
from storage.lock import DirectoryLock
lock = DirectoryLock(sys.argv[1], f"process {os.getpid()} (sluicegate test)")
print("held", flush=True)
sys.stdin.read()
"""


def test_the_refusal_names_the_owner_and_what_to_do(tmp_path: Path) -> None:
    lock = DirectoryLock(str(tmp_path), f"process {os.getpid()} (sluicegate 1)")
    with pytest.raises(LockedError) as caught:
        DirectoryLock(str(tmp_path), "another")
    assert caught.value.owner == f"process {os.getpid()} (sluicegate 1)"
    for part in (str(tmp_path), f"process {os.getpid()}", "Stop that process"):
        assert part in str(caught.value)
    lock.release()


def test_it_can_be_had_again_after_a_release(tmp_path: Path) -> None:
    first = DirectoryLock(str(tmp_path), "a longer name than the next one's")
    first.release()
    first.release()
    second = DirectoryLock(str(tmp_path), "second")
    with pytest.raises(LockedError) as caught:
        DirectoryLock(str(tmp_path), "third")
    assert caught.value.owner == "second"
    second.release()


def test_a_refused_try_leaves_no_descriptor(tmp_path: Path) -> None:
    lock = DirectoryLock(str(tmp_path), "owner")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with pytest.raises(LockedError):
            DirectoryLock(str(tmp_path), "another")
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    lock.release()


def test_a_full_disk_leaves_the_lock_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(fd: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, "no room")

    before = len(list(Path("/proc/self/fd").iterdir()))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", no_room)
        with pytest.raises(OSError, match="no room"):
            DirectoryLock(str(tmp_path), "owner")
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    DirectoryLock(str(tmp_path), "owner").release()


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(LockedError, match=f"process {holder.pid} "):
        DirectoryLock(str(tmp_path), "another")
    holder.kill()
    holder.wait()
    holder.stdout.close()
    holder.stdin.close()
    DirectoryLock(str(tmp_path), "another").release()


def test_a_link_in_the_lock_s_place_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("precious")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "lock").symlink_to(elsewhere)
    with pytest.raises(OSError, match="lock"):
        DirectoryLock(str(tmp_path / "data"), "owner")
    assert elsewhere.read_text() == "precious"


def test_the_lock_file_is_for_its_owner_only(tmp_path: Path) -> None:
    lock = DirectoryLock(str(tmp_path), "owner")
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
    lock.release()
