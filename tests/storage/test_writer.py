"""The writer's threads on a real directory: order, failures, stopping, and spares beside it."""

from __future__ import annotations

import errno
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.files import RealFiles, read_file
from storage.journal import Journal
from storage.record import AddRun
from storage.recovery import Recovered, recover
from storage.segments import Segments, segment_name, segment_number
from storage.writer import ThreadWriter

SIZE = 1 << 16
WAIT = 10


class TroubledFiles(RealFiles):
    """Real files; `fail` names a call that raises, `hold` one that waits until it may go on.

    `hold` may name the thread, too: "journal-spares pwrite".
    """

    def __init__(self) -> None:
        self.fail: dict[str, Exception] = {}
        self.hold: dict[str, threading.Event] = {}
        self.reached = threading.Event()
        self.calls: list[tuple[str, str]] = []

    def _meet(self, what: str) -> None:
        thread = threading.current_thread().name
        self.calls.append((thread, what))
        if held := self.hold.get(what) or self.hold.get(f"{thread} {what}"):
            self.reached.set()
            assert held.wait(WAIT)
        if what in self.fail:
            raise self.fail[what]

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        self._meet("pwrite")
        return super().pwrite(fd, data, offset)

    def fsync(self, fd: int) -> None:
        self._meet("fsync")
        super().fsync(fd)

    def fdatasync(self, fd: int) -> None:
        self._meet("fdatasync")
        super().fdatasync(fd)

    def allocate(self, fd: int, size: int) -> None:
        self._meet("allocate")
        super().allocate(fd, size)

    def rename(self, source: str, target: str) -> None:
        self._meet("rename")
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._meet("unlink")
        super().unlink(path)

    def close(self, fd: int) -> None:
        super().close(fd)
        self._meet("close")


class Bench:
    """A journal with its threads; `turn` runs what they posted, here."""

    def __init__(self, folder: Path, *, spare: bool = True) -> None:
        self.files = TroubledFiles()
        self.folder = str(folder)
        self.posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.durable: list[int] = []
        self.failures: list[BaseException] = []
        self.journal = Journal(next_ticket=1, next_segment=1, segment_bytes=SIZE)
        self.journal.on_durable = self.durable.append
        self.journal.on_failed = self.failures.append
        self.uuids = iter(range(100))
        self.segments = Segments(
            self.files, self.folder, lambda: next(self.uuids).to_bytes(16, "big")
        )
        if spare:
            self.segments.make_spare(SIZE)
        self.writer = ThreadWriter(self.journal, self.segments, self.posted.put, SIZE)
        self.journal.start(self.writer)

    def add(self, seq: int, size: int = 10) -> int:
        ticket = self.journal.append(AddRun([(7, seq)], [bytes([seq % 256]) * size], 4, 0, 1), size)
        self.journal.flush()
        return ticket

    def store(self, seq: int, size: int = 10) -> None:
        ticket = self.add(seq, size)
        self.until(lambda: self.journal.synced >= ticket)

    def turn(self) -> None:
        self.posted.get(timeout=WAIT)()

    def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.turn()

    def spare_is_made(self) -> None:
        """Wait until the other thread has done what it does ahead: a fault is then the writer's."""
        deadline = time.monotonic() + WAIT
        while self.writer._work.wants_spare:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def stop(self) -> None:
        done: list[bool] = []
        self.journal.close(lambda: done.append(True))
        self.until(lambda: bool(done))
        for thread in (self.writer._thread, self.writer._maker):
            thread.join(WAIT)
            assert not thread.is_alive()

    def names(self) -> list[str]:
        return self.files.listdir(self.folder)

    def found(self) -> Recovered:
        numbers = [n for n in map(segment_number, self.names()) if n is not None]
        files = RealFiles()
        return recover(
            (n, str(n), read_file(files, f"{self.folder}/{segment_name(n)}")) for n in numbers
        )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_tickets_come_in_order_and_all_is_there(bench: Bench) -> None:
    tickets = [bench.add(seq) for seq in range(1, 101)]
    bench.until(lambda: bench.journal.synced == tickets[-1])
    assert bench.durable == sorted(set(tickets)) == list(range(1, tickets[-1] + 1))
    bench.stop()
    found = bench.found()
    assert list(found.queues[7]) == list(range(1, 101))
    assert found.clean
    assert bench.failures == []


def test_nothing_is_answered_while_the_disk_holds(bench: Bench) -> None:
    bench.files.hold["fdatasync"] = threading.Event()
    assert [bench.add(seq) for seq in range(1, 5)] == [1, 2, 2, 2]
    assert bench.files.reached.wait(WAIT)
    assert bench.posted.empty()
    bench.files.hold.pop("fdatasync").set()
    bench.until(lambda: bench.durable == [1, 2])
    bench.stop()


@pytest.mark.parametrize("error", [OSError(errno.EIO, "disk"), RuntimeError("a fault of ours")])
def test_a_failure_is_told_once_and_nothing_is_written_after(bench: Bench, error) -> None:
    bench.add(1)
    bench.until(lambda: bench.durable == [1])
    bench.spare_is_made()
    bench.files.fail["fdatasync"] = error
    bench.add(2)
    bench.until(lambda: bool(bench.failures))
    del bench.files.fail["fdatasync"]
    size = len(bench.files.calls)
    bench.add(3)
    bench.writer.write(bench.journal._open)
    bench.writer.delete([1])
    bench.stop()
    assert bench.failures == [error]
    assert bench.durable == [1]
    after = {what for name, what in bench.files.calls[size:] if name == "journal-writer"}
    assert after <= {"close"}
    assert segment_name(1) in bench.names()
    assert not bench.found().clean


@pytest.mark.parametrize("reached", ["allocate", "pwrite"])
def test_a_spare_on_its_way_is_given_up_after_a_failure(bench: Bench, reached: str) -> None:
    held = bench.files.hold[f"journal-spares {reached}"] = threading.Event()
    bench.add(1)
    bench.until(lambda: bench.durable == [1])
    assert bench.files.reached.wait(WAIT), "the first batch took the spare: the next one is made"
    bench.files.fail["fdatasync"] = OSError(errno.EIO, "disk")
    bench.add(2)
    bench.until(lambda: bool(bench.failures))
    del bench.files.fail["fdatasync"]
    size = len(bench.files.calls)
    held.set()
    deadline = time.monotonic() + WAIT
    while ("journal-spares", "close") not in bench.files.calls[size:]:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    bench.stop()
    assert {what for _, what in bench.files.calls[size:]} <= {"close", "unlink"}
    assert spare_names(bench) == []
    assert len(bench.failures) == 1


def test_no_spare_is_begun_after_a_failure(bench: Bench) -> None:
    bench.spare_is_made()
    bench.files.fail["fdatasync"] = OSError(errno.EIO, "disk")
    bench.add(1)
    bench.until(lambda: bool(bench.failures))
    del bench.files.fail["fdatasync"]
    before = list(bench.files.calls)
    bench.writer._work.make_spare(lambda: True)  # as asked for just before
    assert bench.files.calls == before
    bench.stop()


@pytest.mark.parametrize("error", [OSError(errno.EIO, "disk"), RuntimeError("a fault of ours")])
def test_a_failing_deletion_is_a_failure(bench: Bench, error: Exception) -> None:
    bench.add(1, SIZE - 1000)
    bench.add(2, SIZE - 1000)
    bench.until(lambda: bench.durable == [1, 2])
    bench.spare_is_made()
    bench.files.fail["rename"] = bench.files.fail["unlink"] = error
    bench.journal.remove(7, 1, 1, 1)
    bench.journal.flush()
    bench.until(lambda: bool(bench.failures))
    assert bench.failures == [error]
    bench.stop()


def test_a_file_that_cannot_be_closed_does_not_hang_the_stop(bench: Bench) -> None:
    bench.add(1)
    bench.until(lambda: bench.durable == [1])
    wait_for_spare(bench)
    bench.files.fail["close"] = OSError(errno.EIO, "close")
    bench.stop()
    assert bench.found().clean


def test_a_stop_waits_for_what_was_asked_before(bench: Bench) -> None:
    bench.files.hold["fdatasync"] = threading.Event()
    bench.add(1)
    bench.add(2)
    done: list[bool] = []
    bench.journal.close(lambda: done.append(True))
    assert bench.files.reached.wait(WAIT)
    assert not done
    bench.files.hold.pop("fdatasync").set()
    bench.until(lambda: bool(done))
    assert bench.durable == [1, 2, 3]


# ---- spares


def spare_names(bench: Bench) -> list[str]:
    return [name for name in bench.names() if name.startswith("spare-")]


def wait_for_spare(bench: Bench) -> None:
    for _ in range(1000):
        if bench.segments.spares_ready:
            return
        threading.Event().wait(0.01)
    raise AssertionError("no spare was made")


def test_the_next_segment_is_made_on_the_other_thread(bench: Bench) -> None:
    bench.add(1)
    bench.until(lambda: bench.durable == [1])
    wait_for_spare(bench)
    makers = {thread for thread, what in bench.files.calls[2:] if what == "allocate"}
    assert makers == {"journal-spares"}
    assert len(spare_names(bench)) == 1
    bench.stop()


def test_batches_go_on_while_a_spare_is_made(bench: Bench) -> None:
    bench.files.hold["allocate"] = threading.Event()
    bench.add(1)
    assert bench.files.reached.wait(WAIT)
    for seq in range(2, 20):
        bench.store(seq)
    assert not bench.segments.spares_ready
    bench.files.hold.pop("allocate").set()
    wait_for_spare(bench)
    bench.stop()


def test_a_segment_that_is_needed_before_its_spare_is_ready_waits_for_it(bench: Bench) -> None:
    bench.files.hold["allocate"] = threading.Event()
    bench.add(1, SIZE - 1000)
    assert bench.files.reached.wait(WAIT)
    bench.until(lambda: bench.durable == [1])
    bench.add(2, SIZE - 1000)
    assert len(spare_names(bench)) == 1
    bench.files.hold.pop("allocate").set()
    bench.until(lambda: bench.durable == [1, 2])
    assert [name for name in bench.names() if segment_number(name)] == [
        segment_name(1),
        segment_name(2),
    ]
    bench.stop()


def test_no_room_for_a_spare_is_no_failure_and_is_tried_again(bench: Bench) -> None:
    bench.files.fail["allocate"] = OSError(errno.ENOSPC, "full")
    for seq in range(1, 6):
        bench.store(seq)
    assert bench.failures == []
    del bench.files.fail["allocate"]
    bench.add(6)
    wait_for_spare(bench)
    bench.stop()
    assert bench.found().clean


def test_a_disk_that_cannot_make_a_spare_has_failed(bench: Bench) -> None:
    bench.files.fail["allocate"] = OSError(errno.EIO, "disk")
    bench.add(1)
    bench.until(lambda: bool(bench.failures))
    bench.stop()


def test_a_stop_does_not_wait_for_a_spare(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.files.hold["allocate"] = threading.Event()
    bench.add(1)
    assert bench.files.reached.wait(WAIT)
    bench.until(lambda: bench.durable == [1])
    done: list[bool] = []
    bench.journal.close(lambda: done.append(True))
    bench.until(lambda: bench.durable == [1, 2])
    while not bench.writer._stopping:
        threading.Event().wait(0.01)
    bench.files.hold.pop("allocate").set()
    bench.until(lambda: bool(done))
    assert spare_names(bench) == [], "it was given up, and nothing of it is left"


def test_emptied_segments_are_used_again(bench: Bench) -> None:
    for seq in range(1, 12):
        bench.store(seq, SIZE - 1000)
        bench.journal.remove(7, seq, seq, 1)
        bench.journal.flush()
    bench.stop()
    assert len([name for name in bench.names() if segment_number(name)]) <= 3
    assert len(spare_names(bench)) <= 2
    assert bench.found().clean
