"""The thread: order is kept, a disk that fails is told and costs nothing while there is room."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

from gateway.audit import thread as audit_thread
from gateway.audit.chain import read_line
from gateway.audit.thread import WAITING_MAX, TrailThread
from gateway.audit.trail import Trail, TrailSettings
from storage.files import RealFiles
from tests.audit.test_trail import Clock, checked


class Gated(RealFiles):
    """Fails to write while `shut`."""

    def __init__(self) -> None:
        self.shut = False
        self.syncs = 0

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        if self.shut:
            raise OSError(28, "No space left on device")
        return super().pwrite(fd, data, offset)

    def fdatasync(self, fd: int) -> None:
        self.syncs += 1
        super().fdatasync(fd)


def body(number: int) -> bytes:
    return json.dumps({"event": "api.changed", "n": number}).encode()


def wait(true: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def started(
    path: Path, fs: RealFiles, sync_seconds: float = 0.05, wall: Callable[[], int] | None = None
) -> tuple[TrailThread, list[str]]:
    told: list[str] = []
    now = wall or (lambda: time.time_ns() // 1_000_000)
    trail = Trail(fs, TrailSettings(path=str(path)), now)
    thread = TrailThread(trail, now, lambda what, text: told.append(what), sync_seconds)
    thread.start()
    return thread, told


def numbers(path: Path) -> list[int]:
    lines = [read_line(raw) for raw in path.read_bytes().splitlines()]
    return [one.facts["n"] for one in lines if one and "n" in one.facts]


def test_order_is_kept_from_many_batches(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    thread, told = started(path, RealFiles())
    for number in range(5000):
        thread.post(body(number))
    thread.close()
    assert numbers(path) == list(range(5000))
    assert told == []
    assert checked(path).findings == []


def test_a_disk_that_takes_nothing_is_told_once_and_loses_nothing(
    tmp_path: Path, monkeypatch: object
) -> None:
    path, fs = tmp_path / "audit.jsonl", Gated()
    thread, told = started(path, fs)
    thread.post(body(0))
    wait(lambda: path.exists() and numbers(path) == [0])
    fs.shut = True
    for number in range(1, 20):
        thread.post(body(number))
    wait(lambda: thread.failing)
    assert told == ["failed"]
    fs.shut = False
    wait(lambda: not thread.failing)
    thread.close()
    assert told == ["failed", "went-on"]
    assert numbers(path) == list(range(20))
    assert checked(path).findings == []


def test_what_finds_no_room_is_counted_and_a_line_says_so(tmp_path: Path) -> None:
    path, fs = tmp_path / "audit.jsonl", Gated()
    fs.shut = True
    thread, told = started(path, fs)
    wait(lambda: told)
    for number in range(WAITING_MAX + 25):
        thread.post(body(number))
    assert thread.lost == 25
    fs.shut = False
    wait(lambda: not thread.failing)
    thread.post(body(-1))
    thread.close()
    report = checked(path)
    assert [found.kind.value for found in report.findings] == ["not-written"]
    assert report.sound
    lost = [json.loads(raw) for raw in path.read_text().splitlines() if "audit.lost" in raw]
    assert [one["count"] for one in lost] == [25]


def test_lines_that_keep_coming_are_synced_all_the_same(tmp_path: Path) -> None:
    """Each comes before the wait for the next would be over."""
    path, fs = tmp_path / "audit.jsonl", Gated()
    thread, _ = started(path, fs, sync_seconds=0.2)
    wait(path.exists)
    time.sleep(0.1)
    before, end, number = fs.syncs, time.monotonic() + 1.5, 0
    while time.monotonic() < end:
        thread.post(body(number))
        number += 1
        time.sleep(0.02)
    assert fs.syncs - before >= 3
    thread.close()
    assert checked(path).findings == []


def test_no_thread_is_left_and_a_second_close_does_nothing(tmp_path: Path) -> None:
    thread, _ = started(tmp_path / "audit.jsonl", RealFiles(), wall=Clock().now)
    thread.close()
    assert not any(one.name == "audit" for one in threading.enumerate())
    thread.close()
    assert audit_thread.CLOSE_SECONDS > 0
