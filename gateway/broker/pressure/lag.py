"""A disk that lags: meanwhile nothing durable is handed out before it is on disk.

    concurrent ──what waits for the disk has waited for `limit`──> stored first
    stored first ──for `calm` nothing has waited for half of that──> concurrent

So consumers are not further ahead of the disk than that, and a disk that does not keep up shows in
what they get, and not first in what a crash takes back. Only what comes from then on waits, and
keeps its place when dispatch changes back; what was handed out stays so, and what consumers settle
before it is written is still not written. Queues that always wait for the disk notice nothing.

Age is told by tickets: the end of a turn notes a new one with the time, so that a record's age
begins with the end of its turn. A gateway that could not act itself for a while waits a little
before it blames the disk, whose answer may be there already. It knows no clock and no log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from gateway.broker.ports.store import Store
from gateway.broker.pressure.holds import Holds

#: Calm is so many times the limit, and this many seconds at least: one change a second at most.
CALM_TIMES: Final = 2
CALM_SECONDS: Final = 1.0


class Lag:
    """See the module text; it does nothing before `watch`. Times are in seconds.

    Attributes:
        limit: age from which on dispatch waits; below 0: never.
        waits: whether it waits now, `since` when.
        times: how often it came to that.
        longest: the longest that anything waited since then.
        on_change: told after each change.
    """

    __slots__ = (
        "_armed",
        "_bad",
        "_calm",
        "_due",
        "_forgave",
        "_holds",
        "_later",
        "_marks",
        "_now",
        "_store",
        "limit",
        "longest",
        "on_change",
        "since",
        "times",
        "waits",
    )

    def __init__(self, store: Store, holds: Holds) -> None:
        self._store = store
        self._holds = holds
        self._marks: deque[tuple[int, float]] = deque()  # tickets not on disk: when they came
        self._armed = self._forgave = False
        self._due = 0.0  # when it should be asked to look again
        self._bad = 0.0  # when something had waited too long for calm
        self._calm = CALM_SECONDS
        self._now: Callable[[], float] = _no_time
        self._later: Callable[[float, Callable[[], None]], object] = _not_later
        self.limit = -1.0
        self.waits = False
        self.since = self.longest = 0.0
        self.times = 0
        self.on_change: Callable[[Lag], None] = _tell_nobody

    def watch(
        self,
        limit: float,
        *,
        now: Callable[[], float],
        later: Callable[[float, Callable[[], None]], object],
        calm: float | None = None,
    ) -> None:
        """Begin, or go on with another limit.

        `now` is a clock that never goes back, `later` calls back after some seconds.
        """
        if limit < 0 and self.waits:
            self._change(self._now())
        self.limit = limit
        self._calm = max(CALM_TIMES * limit, CALM_SECONDS) if calm is None else calm
        self._now, self._later = now, later
        self.since = now()

    def reason(self, waiting: int) -> str:
        """Say for people why consumers wait; `waiting`: messages that wait for the disk."""
        return (
            f"Dispatch waits for the disk: the oldest write has waited for {self.age:.1f} s, "
            f"{waiting} messages wait, and store-lag-limit is {self.limit * 1000:.0f} ms. It "
            "changes back by itself once the disk keeps up."
        )

    @property
    def age(self) -> float:
        """How long the oldest of what waits for the disk has waited; 0: nothing does."""
        return self._now() - self._marks[0][1] if self._marks else 0.0

    def look(self) -> None:
        """End a turn: note what came; while dispatch waits, see whether it still must.

        That it must is for `_ring` to find: whoever waits longest has somebody called back.
        """
        if self.limit < 0:
            return
        marks = self._marks
        ticket = self._store.unsynced
        if not ticket:
            marks.clear()  # what was not written was consumed
        elif not marks or marks[-1][0] < ticket:
            now = self._now()
            marks.append((ticket, now))
            if not self._armed:
                self._arm(now, self.limit)
        if self.waits:
            self._judge(self._now())

    def durable_up_to(self, ticket: int) -> None:
        """All up to this ticket is on disk; a change is for the end of the turn."""
        marks = self._marks
        if self.waits and marks and marks[0][0] <= ticket:
            now = self._now()
            self._note(now, now - marks[0][1])
        while marks and marks[0][0] <= ticket:
            marks.popleft()

    def _note(self, now: float, age: float) -> None:
        self.longest = max(self.longest, age)
        if age >= self.limit / 2:
            self._bad = now

    def _judge(self, now: float) -> None:
        if self._armed and self._is_late(now):
            return
        age = now - self._marks[0][1] if self._marks else 0.0
        self._note(now, age)
        if not self.waits and age >= self.limit:
            self.times += 1
            self._change(now)
        elif self.waits and now - self._bad >= self._calm:
            self._change(now)
        if not self._armed and (self.waits or self._marks):
            self._arm(now, self._calm - (now - self._bad) if self.waits else self.limit - age)

    def _is_late(self, now: float) -> bool:
        return now - self._due > self.limit / 4

    def _arm(self, now: float, seconds: float) -> None:
        self._armed = True
        self._due = now + max(seconds, 0.001)
        self._later(max(seconds, 0.001), self._ring)

    def _ring(self) -> None:
        self._armed = False
        if self.limit < 0:
            self._marks.clear()  # it was switched off meanwhile
            return
        now = self._now()
        if self._is_late(now) and not self._forgave:
            self._forgave = True
            self._arm(now, self.limit / 4)
            return
        self._forgave = False
        if not self._store.unsynced:
            self._marks.clear()
        self._judge(now)

    def _change(self, now: float) -> None:
        self.waits = not self.waits
        self._holds.store_first(self.waits)
        self.on_change(self)
        self.since = now
        if not self.waits:
            self.longest = 0.0


def _no_time() -> float:
    """Stand for a clock that is not there yet."""
    return 0.0


def _not_later(seconds: float, call: Callable[[], None]) -> None:
    """Stand for a clock that is not there yet."""


def _tell_nobody(lag: Lag) -> None:
    """Stand for a listener that is not there yet."""
