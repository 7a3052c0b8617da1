"""When is the disk too full to take more? Pure: figures and a clock come in, a judgement goes out.

    floor    free bytes at or below which a file system is full: `min-disk-free`, or what
             `max-disk-usage` leaves free; while neither is written 1 GiB or a twentieth of it,
             whichever is smaller
    full     free <= floor on any one of the file systems that are looked at
    again    free > floor + margin on all of them, the margin being a tenth of the limit, at most
             one page: exactly at the floor senders would flap
    flips    are at least a second apart; the first look decides at once

The forecast is free bytes above the floor, divided by a smoothed rate at which they vanish.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from gateway.model.errors import Code, Refusal

#: The default floor: never more than this,
DEFAULT_FREE_BYTES: Final = 1 << 30
#: and never more than this part of the file system.
DEFAULT_FREE_PART: Final = 20
#: Most bytes between full and not full again: Artemis' page-size-bytes.
MARGIN_MAX: Final = 10 << 20
#: Between two changes of mind, in seconds.
FLIP_SECONDS: Final = 1.0
#: A rate of so many seconds ago counts a third of today's.
RATE_SECONDS: Final = 60.0
#: A forecast below this is worth a warning, in seconds; it is over when twice as much is left.
SOON_SECONDS: Final = 3600.0
#: Files that can still be made, below which the disk is full: the journal's, and pages.
FILES_FREE_MIN: Final = 16
#: Slower than this nothing fills within a lifetime; it is noise of other files.
RATE_MIN: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """A file system as it is now, in bytes: `free` is what this process may still use.

    Attributes:
        path: a directory on it, for people.
        total: 0 or less where the system does not say; such a one is never full by percentage.
        free: bytes.
    """

    path: str
    total: int
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskLimit:
    """What was written; None was not. -1 is no limit.

    Attributes:
        max_usage: percent of a file system that may be used; full when it is reached.
        min_free: bytes that stay free; wins over `max_usage` when both are written.
        origins: key -> where it was written.
        scan_seconds: between two looks at the disk: before the next one nothing changes.
    """

    max_usage: float | None = None
    min_free: int | None = None
    origins: Mapping[str, str] = field(default_factory=dict)
    scan_seconds: float = 5.0

    def told(self, total: int) -> str:
        """Return the limit that counts, and where it was set."""
        words = self.in_words(total)
        origin = self.origins.get(words.partition(" ")[0])
        return f"{words} ({origin})" if origin else words

    def in_words(self, total: int) -> str:
        """Return the limit that counts, by its key."""
        if self._by_free:
            return f"min-disk-free is {self.min_free} bytes"
        if self.max_usage is not None and self.max_usage >= 0:
            return f"max-disk-usage is {self.max_usage:g} %"
        return f"min-disk-free is {self.floor(total)} bytes by default"

    @property
    def _by_free(self) -> bool:
        return self.min_free is not None and self.min_free >= 0

    def floor(self, total: int) -> int:
        """Return the free bytes at which a file system of `total` is full; -1: it never is."""
        if self.min_free is not None and self.min_free >= 0:
            return self.min_free
        if self.max_usage is not None and self.max_usage >= 0:
            return int((100 - self.max_usage) * total // 100) if total > 0 else -1
        if self.max_usage is not None or self.min_free is not None:
            return -1
        return min(DEFAULT_FREE_BYTES, max(total, 0) // DEFAULT_FREE_PART)

    def margin(self, total: int) -> int:
        """Return how far above the floor senders are let go again, in bytes."""
        floor = self.floor(total)
        limit = floor if self._by_free or self.max_usage is None else total - floor
        # Where the floor is near the whole disk, that much may never be free.
        return max(0, min(limit // 10, MARGIN_MAX, (total - floor) // 10))


class Change(Enum):
    """What a look has found out."""

    FULL = "full"
    ROOM = "room"
    FILLING = "filling"  # the forecast has come within SOON_SECONDS


class _Rate:
    """How fast one file system fills, in bytes a second; negative while it empties."""

    __slots__ = ("_at", "_free", "per_second")

    def __init__(self, free: int, now: float) -> None:
        self._free = free
        self._at = now
        self.per_second = 0.0

    def add(self, free: int, now: float) -> None:
        """Take one look more."""
        span = now - self._at
        if span <= 0:
            return
        weight = 1 - math.exp(-span / RATE_SECONDS)
        self.per_second += weight * ((self._free - free) / span - self.per_second)
        self._free = free
        self._at = now


class DiskMonitor:
    """The judgement over time.

    Attributes:
        refusal: why senders are refused now, with the figures of the last look; None: they are not.
        scans: looks so far.
        raised: how often the disk became full.
        seconds_left: until the first file system reaches its floor at its rate; None: none does.
        worst: the file system that is full, or else is nearest to its floor; None before a look.
        promised: bytes of the last look that were still to be written.
    """

    __slots__ = (
        "_changed_at",
        "_rates",
        "_soon",
        "limit",
        "promised",
        "raised",
        "refusal",
        "scans",
        "seconds_left",
        "worst",
    )

    def __init__(self, limit: DiskLimit) -> None:
        self.limit = limit
        self.refusal: Refusal | None = None
        self.scans = self.raised = 0
        self.seconds_left: float | None = None
        self.worst: Space | None = None
        self.promised = 0
        self._changed_at: float | None = None
        self._rates: dict[str, _Rate] = {}
        self._soon = False

    def use(self, limit: DiskLimit) -> None:
        """Judge by another limit; the next look may decide at once, as the first one may."""
        self.limit = limit
        self._changed_at = None

    @property
    def full(self) -> bool:
        return self.refusal is not None

    @property
    def floor(self) -> int:
        """Free bytes at which `worst` is full; -1: never."""
        return -1 if self.worst is None else self.limit.floor(self.worst.total)

    def look(
        self,
        spaces: Sequence[Space],
        now: float,
        *,
        reserve_missing: int = 0,
        promised: int = 0,
        files: int = -1,
    ) -> list[Change]:
        """Judge the file systems at `now` (seconds); returns what has changed.

        While bytes of the reserve are missing a full disk stays full, whatever the figures say.
        `promised` bytes are free still, and will be written: what waits, and the next file. So many
        `files` can still be made; -1: as many as there is room for.
        """
        self.scans += 1
        self.promised = promised
        self.worst = min(spaces, key=self._headroom)
        changes = self._foresee(spaces, now)
        wait = self._changed_at is not None and now - self._changed_at < FLIP_SECONDS
        limited = self.limit.floor(self.worst.total) >= 0
        if limited and self._headroom(self.worst) <= promised:
            if self.full or not wait:
                changes += self._raise(self._text(self.worst), now)
        elif 0 <= files < (2 * FILES_FREE_MIN if self.full else FILES_FREE_MIN):
            if self.full or not wait:
                text = f"The disk has room for {files} more files (inodes) at {self.worst.path}"
                changes += self._raise(f"{text}; {FILES_FREE_MIN} are kept for the store.", now)
        elif self.full and not wait and all(map(self._clear, spaces)):
            if reserve_missing:
                self._raise(
                    f"The disk has {self.worst.free} bytes free at {self.worst.path}, but no room "
                    f"for {reserve_missing} bytes of ballast-size.",
                    now,
                )
                return changes
            self.refusal = None
            self._changed_at = now
            changes.append(Change.ROOM)
        return changes

    def could_spare(self, spaces: Sequence[Space], count: int) -> bool:
        """Return whether the disk would have room again with `count` bytes less."""
        return all(
            space.free - count
            > max(0, self.limit.floor(space.total)) + self.limit.margin(space.total)
            for space in spaces
        )

    def ran_out(self, now: float) -> list[Change]:
        """A write has met the end of the disk before any look did: full at once."""
        where = "" if self.worst is None else f" below {self.worst.path}"
        return self._raise(
            f"The disk has no room left{where}: the journal lives on its reserve.", now
        )

    def _raise(self, text: str, now: float) -> list[Change]:
        before = self.refusal
        self.refusal = Refusal(
            code=Code.DISK_FULL,
            transient=True,
            wait=self._wait(),
            text=f"{text} Nothing can be sent until there is room; consuming goes on.",
        )
        if before is not None:
            return []
        self.raised += 1
        self._changed_at = now
        return [Change.FULL]

    def _wait(self) -> float:
        """Return after how many seconds there may be room, by how fast the disk empties.

        Nothing changes before the next look; a rate is good for no more than its own time.
        """
        worst, scan = self.worst, self.limit.scan_seconds
        rate = None if worst is None else self._rates.get(worst.path)
        if worst is None or rate is None or rate.per_second > -RATE_MIN:
            return scan
        again = max(0, self.limit.floor(worst.total)) + self.limit.margin(worst.total)
        missing = again + self.promised - worst.free
        return max(scan, min(missing / -rate.per_second, RATE_SECONDS))

    def _headroom(self, space: Space) -> int:
        floor = self.limit.floor(space.total)
        return space.free - floor if floor >= 0 else max(space.free, 1)

    def _clear(self, space: Space) -> bool:
        floor = self.limit.floor(space.total)
        free = space.free - self.promised
        return floor < 0 or free > floor + self.limit.margin(space.total)

    def _text(self, space: Space) -> str:
        used = 100 * (1 - space.free / space.total) if space.total > 0 else 0.0
        promised = f", {self.promised} of them promised" if self.promised else ""
        return (
            f"The disk is full: {space.free} of {space.total} bytes are free at {space.path} "
            f"({used:.1f} % used{promised}), and {self.limit.told(space.total)}."
        )

    def room(self, spaces: Sequence[Space]) -> int:
        """Return how many bytes may be written before one of them is full."""
        return min(self._headroom(space) for space in spaces)

    def _foresee(self, spaces: Sequence[Space], now: float) -> list[Change]:
        """Work out `seconds_left`; tells once when it becomes short."""
        left = []
        for space in spaces:
            rate = self._rates.get(space.path)
            if rate is None:
                self._rates[space.path] = _Rate(space.free, now)
                continue
            rate.add(space.free, now)
            floor = max(self.limit.floor(space.total), 0)
            if rate.per_second >= RATE_MIN:
                left.append(max(0.0, (space.free - floor) / rate.per_second))
        self.seconds_left = min(left, default=None)
        seconds = math.inf if self.seconds_left is None else self.seconds_left
        if self._soon:
            self._soon = seconds < 2 * SOON_SECONDS
        elif seconds < SOON_SECONDS and not self.full:
            self._soon = True
            return [Change.FILLING]
        return []
