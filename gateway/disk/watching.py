"""The disk monitor at work: measures, has `gateway.disk.judging` judge, tells broker and log.

    scan     every disk-scan-period, once before any listener opens, behind each part of the room
             that is left has been written, and when there is none for the next file
    ran_out  the journal met the end of the disk and lives on its ballast: full at once
    ballast  made whole again, on a thread, as soon as the disk could spare it

It knows no protocol and no reactor: clock, measuring and threads are passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog
from twisted.internet.defer import Deferred

from gateway.broker.pressure.disk_gate import DiskGate
from gateway.disk.judging import Change, DiskLimit, DiskMonitor, Space
from storage.ballast import NO_ROOM, Ballast
from storage.files import RealFiles
from storage.segments import Segments

#: The ballast takes at most this part of its file system, or one journal file if that is more.
BALLAST_PART: Final = 16
#: A file system has room for so many: one is written, one is ready, one is the ballast, and what
#: lives in an old one is copied to another.
FILES_MIN: Final = 4
#: After this part of the room that was left has been written, it is looked again,
LOOK_PART: Final = 4
#: and not more often than for so many bytes, nor less.
LOOK_BYTES_MIN: Final = 64 << 10
LOOK_BYTES_MAX: Final = 8 << 20
#: What a start needs where there is neither room for a file nor ballast: removals are small.
DRAIN_BYTES: Final = 256 << 10

_log = structlog.get_logger()


class RunBlocking(Protocol):
    """Runs what blocks on a thread."""

    def run(self, function: Callable[[], bool]) -> Deferred[bool]: ...


class DiskWatch:
    """See the module text.

    Attributes:
        monitor: the judgement and its figures.
        ballast: None where nothing is kept back.
        gate: the broker's side.
        origin_of: says where a key of the configuration was written.
        failed: called with the error when the disk cannot be measured or written.
        free_files: how many more files the disk takes; -1: no such limit.
        promised: how many bytes will be written without anybody being asked once more.
    """

    def __init__(
        self,
        limit: DiskLimit,
        gate: DiskGate,
        *,
        measure: Callable[[], Sequence[Space]],
        seconds: Callable[[], float],
        ballast: Ballast | None,
        threads: RunBlocking,
    ) -> None:
        self.monitor = DiskMonitor(limit)
        self.gate = gate
        self.ballast = ballast
        self.origin_of: Callable[[str], str] = _nowhere
        self.failed: Callable[[OSError], None] = _nothing
        self.promised: Callable[[], int] = _no_bytes
        self.free_files: Callable[[], int] = _no_limit
        self._written = self._look_at = 0
        self._measure = measure
        self._seconds = seconds
        self._threads = threads
        self._making = False

    def start(self) -> None:
        """Look for the first time and say what is watched; raises OSError."""
        self._look()
        worst, limit = self.monitor.worst, self.monitor.limit
        assert worst is not None, "looked at nothing"
        _log.info(
            "disk.watched",
            path=worst.path,
            free=worst.free,
            total=worst.total,
            limit=limit.in_words(worst.total),
            ballast=0 if self.ballast is None else self.ballast.size,
        )

    def scan(self) -> None:
        """Look again."""
        try:
            self._look()
        except OSError as error:
            self.failed(error)

    def wrote(self, total: int) -> None:
        """So many bytes were taken so far: look again, where that is a part of what was left."""
        self._written = total
        if total >= self._look_at:
            self.scan()

    def may_take(self, count: int) -> bool:
        """Whether the limit holds with `count` bytes more on the disk; on any thread, may block."""
        spaces = self._measure()
        limit = self.monitor.limit
        floors = [(space.free, limit.floor(space.total)) for space in spaces]
        return all(floor < 0 or free - count >= floor for free, floor in floors)

    def ran_out(self) -> None:
        """A write has found the disk full."""
        _log.warning("disk.ballast_given", left=0 if self.ballast is None else self.ballast.size)
        self._apply(self.monitor.ran_out(self._seconds()))

    def _look(self) -> None:
        spaces = self._measure()
        missing = 0 if self.ballast is None else self.ballast.missing
        changes = self.monitor.look(
            spaces,
            self._seconds(),
            reserve_missing=missing,
            promised=self.promised(),
            files=self.free_files(),
        )
        part = (self.monitor.room(spaces) - self.monitor.promised) // LOOK_PART
        self._look_at = self._written + max(LOOK_BYTES_MIN, min(part, LOOK_BYTES_MAX))
        self._apply(changes)
        if missing and not self._making and self.monitor.could_spare(spaces, missing):
            self._make_ballast()

    def _apply(self, changes: Sequence[Change]) -> None:
        monitor = self.monitor
        held = self.gate.held
        self.gate.set(monitor.refusal)
        for change in changes:
            facts = self._facts()
            match change:
                case Change.FULL:
                    _log.warning("disk.filled", held=self.gate.held, **facts)
                case Change.ROOM:
                    _log.info("disk.freed", let_go=held, **facts)
                case Change.FILLING:
                    seconds = round(monitor.seconds_left or 0)
                    _log.warning("disk.filling_foreseen", seconds_left=seconds, **facts)

    def _facts(self) -> dict[str, object]:
        worst = self.monitor.worst
        if worst is None:
            return {}
        limit = self.monitor.limit.in_words(worst.total)
        origin = self.origin_of(limit.partition(" ")[0])
        told = {"path": worst.path, "free": worst.free, "total": worst.total, "limit": limit}
        return told | ({"origin": origin} if origin else {})

    def _make_ballast(self) -> None:
        assert self.ballast is not None, "there is no ballast to make"
        self._making = True
        self._threads.run(self.ballast.make).addCallbacks(self._made, self._not_made)

    def _made(self, whole: bool) -> None:  # noqa: FBT001 - a Deferred's result
        self._making = False
        if whole and self.ballast is not None:
            _log.info("disk.ballast_made", bytes=self.ballast.size)
            self.scan()

    def _not_made(self, failure: object) -> None:
        self._making = False
        error = getattr(failure, "value", None)
        self.failed(error if isinstance(error, OSError) else OSError(str(error)))


def measuring(files: RealFiles, paths: Sequence[str]) -> Callable[[], Sequence[Space]]:
    """Return a function that measures the file systems below `paths`, each one once."""

    def measure() -> Sequence[Space]:
        found: dict[int, Space] = {}
        for path in paths:
            device, total, free = files.space(path)
            found.setdefault(device, Space(path=path, total=total, free=free))
        return list(found.values())

    return measure


def ballast_for(files: RealFiles, directory: str, wanted: int, segment_bytes: int = 0) -> Ballast:
    """Return the ballast of a journal directory, as it was left; not made. Raises OSError."""
    _, total, _ = files.space(directory)
    most = max(total // BALLAST_PART, segment_bytes) if total > 0 else 0
    return Ballast(files, directory, min(wanted, most))


def size_problem(total: int, segment_bytes: int, directory: str) -> str | None:
    """Say why a journal on a file system of `total` bytes could not be drained once it is full."""
    if total <= 0 or total >= FILES_MIN * segment_bytes:
        return None
    return (
        f"the file system of {directory} has {total} bytes, and a journal needs {FILES_MIN} files "
        f"of journal-file-size, which is {segment_bytes} bytes, to be drained when the disk is "
        f"full; {total // FILES_MIN} is the most it can be there"
    )


def make_room(
    segments: Segments, ballast: Ballast, segment_bytes: int, free: Callable[[], int] | None = None
) -> None:
    """Have a journal file ready, and the ballast. Raises OSError when there is room for neither.

    With ballast of a run before, or a little room of its own, the gateway starts all the same: what
    it holds can be consumed.
    """
    try:
        segments.make_spare(segment_bytes)
    except OSError as error:
        little = 0 if free is None else free()
        if error.errno not in NO_ROOM or ballast.size + little < DRAIN_BYTES:
            raise
    else:
        ballast.make()


def watch_disk(
    limit: DiskLimit,
    gate: DiskGate,
    *,
    directories: Sequence[str],
    seconds: Callable[[], float],
    ballast: Ballast,
    threads: RunBlocking,
) -> DiskWatch:
    """Return a watch over the file systems of `directories`, not started."""
    files = RealFiles()
    watch = DiskWatch(
        limit,
        gate,
        measure=measuring(files, directories),
        seconds=seconds,
        ballast=ballast,
        threads=threads,
    )
    watch.free_files = lambda: _fewest(files, directories)
    return watch


def _fewest(files: RealFiles, directories: Sequence[str]) -> int:
    """Return how many files can still be made where the fewest can; -1: there is no limit."""
    found = [count for path in directories if (count := files.free_files(path)) >= 0]
    return min(found, default=-1)


def _nowhere(key: str) -> str:
    return ""


def _no_bytes() -> int:
    return 0


def _no_limit() -> int:
    return -1


def _nothing(error: OSError) -> None:
    """Stand for whoever does not want to know."""
