"""The scrub: all that is stored is read now and then, so that rot is found while it can be helped.

    waiting ──its time, or an operator──> reading ──all files read──> waiting
    a file ──damaged──> copied to the quarantine ──> told once ──> repaired, where it can be
    told ──the file is gone, or whole again──> told that it is

Files are read one after the other on a thread of its own, a slice at a time: between two slices the
reactor has its turn, and waits as long as the rate demands. What a file is, whom its damage
concerns, and how it is repaired, `Item` says; this module knows no journal and no page.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import structlog
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from storage.scrub import SLICE, Check, Place

#: A start has read the journal, and has other things to do: the first scrub by itself comes later.
FIRST_SECONDS: Final = 3600.0
#: So much of the time that was lost by waiting for others is made up for.
_CATCH_UP_SECONDS: Final = 0.5
#: What was found and is gone again that is still shown.
_PAST_MAX: Final = 100
Result = TypeVar("Result")

_log = structlog.get_logger()


class RunBlocking(Protocol):
    """Runs what blocks on a thread."""

    def run(self, function: Callable[..., Result], *args: object) -> Deferred[Result]: ...

    def stop(self) -> None: ...


class Item(Protocol):
    """One file that is to be read.

    Attributes:
        kind: `journal`, `page` or `stream`.
        path: its file.
        size: about how many bytes.
        advice: what an operator should do when it is damaged.
    """

    kind: str
    path: str
    size: int
    advice: str

    def check(self, found: list[Place]) -> Check:
        """Begin to read it; what the answer does is done on the thread."""

    def is_here(self) -> bool:
        """Whether the gateway still needs it."""

    def affected(self, places: Sequence[Place]) -> Mapping[str, int]:
        """Return whom that concerns, and at most how many messages each."""

    def keep(self) -> str:
        """Copy it to the quarantine; returns the copy's path. Blocks. Raises OSError."""

    def repair(self, places: Sequence[Place]) -> None:
        """Have it repaired, as far as that can be."""


@dataclass(slots=True, kw_only=True)
class Damage:
    """A place that is not what was written; `copy`: of its file. `gone_ms` 0: it is still there."""

    item: Item
    place: Place
    affected: Mapping[str, int]
    copy: str
    found_ms: int
    gone_ms: int = 0


@dataclass(slots=True, kw_only=True)
class Tour:
    """One time through all files; `ended_ms` 0: under way."""

    started_ms: int
    files: int
    size: int
    full_speed: bool
    files_read: int = 0
    bytes_read: int = 0
    damaged: int = 0
    ended_ms: int = 0


class Scrubber:
    """See the module text. `look` is called about once a second.

    Attributes:
        rate: bytes a second; `period`: seconds between two tours, 0 for none by itself.
        damage: what is damaged now, by (path, offset).
        past: what was, and is gone or repaired, newest last.
        tour: the one under way, or the last one; None before the first.
        bytes_read, tours, repaired: since the start.
        on_waiting: called by `look` while something is damaged: a repair may go on.
    """

    def __init__(
        self,
        plan: Callable[[], Iterable[Item]],
        threads: RunBlocking,
        timer: IReactorTime,
        now_ms: Callable[[], int],
        *,
        rate: int,
        period: float,
    ) -> None:
        self.rate = rate
        self.period = period
        self.damage: dict[tuple[str, int], Damage] = {}
        self.past: deque[Damage] = deque(maxlen=_PAST_MAX)
        self.tour: Tour | None = None
        self.bytes_read = self.tours = self.repaired = 0
        self.on_waiting: Callable[[], object] = _nothing
        self._plan = plan
        self._threads = threads
        self._timer = timer
        self._now_ms = now_ms
        self._left: deque[Item] = deque()
        self._due = 0.0
        self._since = timer.seconds()  # the end of the last tour, or the start
        self._next_tour = 0.0
        self._plan_next()
        self._waiting: IDelayedCall | None = None
        self._stopped = False

    @property
    def running(self) -> bool:
        """Whether a tour is under way."""
        return self.tour is not None and not self.tour.ended_ms

    @property
    def next_seconds(self) -> float | None:
        """In how many seconds the next tour begins by itself; None while one runs, or never."""
        if self.running or self.period <= 0:
            return None
        return max(0.0, self._next_tour - self._timer.seconds())

    @property
    def alarm(self) -> str | None:
        """Return what there is to tell of damage, or None."""
        if not self.damage:
            return None
        files = len({path for path, _ in self.damage})
        places = len(self.damage)
        return (
            f"{places} place{'s' * (places > 1)} in {files} file{'s' * (files > 1)} of the store"
            f" {'are' if places > 1 else 'is'} not what was written; GET /api/v1/scrub and"
            " `sluicegate scrub` name them and what to do."
        )

    def pace(self, *, rate: int, period: float) -> None:
        """Read at another rate from the next slice on, and begin tours at another distance."""
        self.rate = rate
        self.period = period
        self._plan_next()

    def _plan_next(self) -> None:
        wait = self.period if self.tours else min(self.period, FIRST_SECONDS)
        self._next_tour = self._since + wait

    # ---- when

    def look(self) -> None:
        """Begin a tour when it is time, and see which damage is gone."""
        if self._stopped:
            return
        if self.damage:
            self.on_waiting()
            for key in [key for key, one in self.damage.items() if not one.item.is_here()]:
                self._gone(key)
        if self.period > 0 and not self.running and self._timer.seconds() >= self._next_tour:
            self.start()

    def start(self, *, full_speed: bool = False) -> Tour:
        """Begin a tour, unless one is under way; that one is made faster. Returns it."""
        tour = self.tour
        if tour is not None and not tour.ended_ms:
            if full_speed and not tour.full_speed:
                tour.full_speed = True
                self._hurry()
            return tour
        self._left = deque(self._plan())  # none of them has been begun
        size = sum(item.size for item in self._left)
        self.tour = tour = Tour(
            started_ms=self._now_ms(), files=len(self._left), size=size, full_speed=full_speed
        )
        _log.info("scrub.started", files=tour.files, bytes=size, full_speed=full_speed)
        self._due = self._timer.seconds()
        self._waiting = self._timer.callLater(0, self._next_file)
        return tour

    def suspect(self) -> None:
        """Somebody has met damage in the journal: read it next, once more if need be."""
        if self._stopped:
            return
        tour = self.start()
        known = {item.path for item in self._left}
        again = [i for i in self._plan() if i.kind == "journal" and i.path not in known]
        self._left.extendleft(reversed(again))
        tour.files += len(again)
        tour.size += sum(item.size for item in again)

    def stop(self) -> None:
        """Read no further. Blocks until the slice that is being read is read."""
        self._stopped = True
        if self._waiting is not None and self._waiting.active():
            self._waiting.cancel()
        self._threads.stop()

    def _hurry(self) -> None:
        if self._waiting is not None and self._waiting.active():
            self._waiting.reset(0)

    # ---- a tour

    def _next_file(self) -> None:
        tour = self.tour
        if self._stopped or tour is None:
            return
        if not self._left:
            self._end(tour)
            return
        item = self._left.popleft()
        if not item.is_here():
            self._next_file()
            return
        found: list[Place] = []
        self._step(item, item.check(found), found)

    def _step(self, item: Item, check: Check, found: list[Place]) -> None:
        """Have one slice read."""
        if self._stopped:
            return
        done = self._threads.run(_read, check)
        done.addCallback(self._read, item, check, found)
        done.addErrback(self._failed, item)

    def _read(
        self, answer: tuple[int, bool], item: Item, check: Check, found: list[Place]
    ) -> Deferred[None] | None:
        count, ended = answer
        tour = self.tour
        if self._stopped:
            check.close()
            return None
        assert tour is not None, "reading, and no tour"
        tour.bytes_read += count
        self.bytes_read += count
        if not ended:
            self._later(count, lambda: self._step(item, check, found))
            return None
        tour.files_read += 1
        if found and item.is_here():
            return self._damaged(item, found).addCallback(
                lambda _: self._later(count, self._next_file)
            )
        for key in [key for key in self.damage if key[0] == item.path]:
            self._gone(key)  # it could not be read before, and can now
        self._later(count, self._next_file)
        return None

    def _failed(self, failure: Failure, item: Item) -> None:
        """A check met a fault; the tour goes on behind it."""
        if not self._stopped:
            _log.error("scrub.failed", file=item.path, error=failure.getErrorMessage())
            self._later(0, self._next_file)

    def _later(self, count: int, what: Callable[[], None]) -> None:
        """Go on when so many bytes may have been read."""
        if self._stopped:
            return
        now = self._timer.seconds()
        assert self.tour is not None, "reading, and no tour"
        self._due = max(now - _CATCH_UP_SECONDS, self._due + count / self.rate)
        wait = 0.0 if self.tour.full_speed else max(0.0, self._due - now)
        self._waiting = self._timer.callLater(wait, what)

    def _end(self, tour: Tour) -> None:
        tour.ended_ms = max(1, self._now_ms())
        self.tours += 1
        self._since = self._timer.seconds()
        self._plan_next()
        _log.info(
            "scrub.ended",
            files=tour.files_read,
            bytes=tour.bytes_read,
            seconds=round((tour.ended_ms - tour.started_ms) / 1000),
            damaged=tour.damaged,
        )

    # ---- what was found

    def _damaged(self, item: Item, found: list[Place]) -> Deferred[None]:
        """Keep a copy of the file, tell of each place once, and have it repaired."""
        known = [one for one in self.damage.values() if one.item.path == item.path]
        if known and {one.place.offset for one in known} >= {place.offset for place in found}:
            return succeed(known[0].copy).addCallback(self._tell, item, found)
        return self._threads.run(_keep, item).addCallback(self._tell, item, found)

    def _tell(self, copy: str, item: Item, found: list[Place]) -> None:
        if not item.is_here():
            return  # while it was copied
        tour = self.tour
        assert tour is not None, "told of without a tour"
        affected = item.affected(found)
        tour.damaged += len(found)
        if not affected and item.kind == "page":
            return  # nobody waits for what was there
        for place in found:
            key = place.path, place.offset
            if key in self.damage:
                continue
            self.damage[key] = Damage(
                item=item, place=place, affected=affected, copy=copy, found_ms=self._now_ms()
            )
            _log.error(
                "scrub.damaged",
                file=place.path,
                offset=place.offset,
                what=place.what,
                affected=dict(affected),
                copy=copy,
                advice=item.advice,
            )
        item.repair(found)

    def _gone(self, key: tuple[str, int]) -> None:
        one = self.damage.pop(key)
        one.gone_ms = max(1, self._now_ms())
        self.past.append(one)
        self.repaired += 1
        _log.info("scrub.damage_gone", file=one.place.path, offset=one.place.offset)


def _read(check: Check) -> tuple[int, bool]:
    """Read a slice, on the thread; returns the bytes, and whether that was the last."""
    total = 0
    try:
        while total < SLICE:
            total += next(check)
    except (StopIteration, FileNotFoundError):
        return total, True
    return total, False


def _keep(item: Item) -> str:
    """Copy a file to the quarantine, on the thread; returns what to say of the copy."""
    try:
        return item.keep()
    except OSError as error:
        return f"none: {error}"


def _nothing() -> None:
    """Stand for a repair that is not there."""
