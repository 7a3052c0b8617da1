"""The disk monitor at work: measures, judges by `gateway.disk`, tells the broker and the log.

    scan     every disk-scan-period, and once before any listener opens
    ran_out  the journal met the end of the disk and lives on its ballast: full at once
    ballast  made whole again, on a thread, as soon as the disk could spare it

It knows no protocol and no reactor: clock, measuring and threads are passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog
from twisted.internet.defer import Deferred

from gateway.broker.disk_gate import DiskGate
from gateway.disk import Change, DiskLimit, DiskMonitor, Space
from storage.ballast import NO_ROOM, Ballast
from storage.files import RealFiles
from storage.segments import Segments

#: The ballast takes at most this part of its file system.
BALLAST_PART: Final = 16

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

    def ran_out(self) -> None:
        """A write has found the disk full."""
        _log.warning("disk.ballast_given", left=0 if self.ballast is None else self.ballast.size)
        self._apply(self.monitor.ran_out(self._seconds()))

    def _look(self) -> None:
        spaces = self._measure()
        missing = 0 if self.ballast is None else self.ballast.missing
        changes = self.monitor.look(spaces, self._seconds(), reserve_missing=missing)
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


def ballast_for(files: RealFiles, directory: str, wanted: int) -> Ballast:
    """Return the ballast of a journal directory, as it was left; not made. Raises OSError."""
    _, total, _ = files.space(directory)
    return Ballast(files, directory, min(wanted, total // BALLAST_PART))


def make_room(segments: Segments, ballast: Ballast, segment_bytes: int) -> None:
    """Have a journal file ready, and the ballast. Raises OSError when there is room for neither.

    With ballast of a run before the gateway starts all the same: what it holds can be consumed.
    """
    try:
        segments.make_spare(segment_bytes)
    except OSError as error:
        if error.errno not in NO_ROOM or not ballast.size:
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
    return DiskWatch(
        limit,
        gate,
        measure=measuring(RealFiles(), directories),
        seconds=seconds,
        ballast=ballast,
        threads=threads,
    )


def _nowhere(key: str) -> str:
    return ""


def _nothing(error: OSError) -> None:
    """Stand for whoever does not want to know."""
