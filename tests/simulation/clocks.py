"""The clocks of a simulated machine: they step, and stand still, as the seed has it.

Three of them, as in decision 42: the monotonic one, the wall clock, and broker time, which the real
`BrokerClock` makes of both. `Reference` says by itself what broker time has to be, from the rule
that is written down and not from the code; what clients were promised is judged by that one.

    wall ahead by up to an hour     followed at once
    wall behind by up to an hour    half the speed until it is made up for
    a larger step                   as if it had not been, for ten minutes; then taken over
"""

from __future__ import annotations

import random

from twisted.internet.task import Clock

from gateway.time.clock import BrokerClock
from gateway.time.steady import ActiveSeconds
from tests.simulation.model import ViolationError

MS = 1_000_000
START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
TRUST_MS = 600_000
#: Steps of the wall clock, in ms: corrections, and accidents.
STEPS = (
    *(40, 2_000, 59 * 60_000),
    *(-40, -300, -5_000, -30_000),
    *(61 * 60_000, 30 * 24 * HOUR_MS, -2 * HOUR_MS, -24 * HOUR_MS),
)
#: A process that was stopped, in ms.
GAPS = (200, 4_000, 6_000, 300_000)


class Reference:
    """What broker time has to be; all in ns of the monotonic clock."""

    def __init__(self, wall: int, mono: int) -> None:
        self._at = mono
        self._time = wall
        self._ahead = 0  # of the wall clock, over broker time
        self._since: int | None = None
        self._judged = 0

    def step(self, by: int, mono: int) -> None:
        """The wall clock was set."""
        self.at(mono)
        self._ahead += by
        if abs(self._ahead) <= HOUR_MS * MS:
            self._since = None
            if self._ahead > 0:
                self._time += self._ahead
                self._ahead = 0
            return
        if self._since is None or abs(self._ahead - self._judged) > HOUR_MS * MS:
            self._since = mono
        self._judged = self._ahead

    def trust(self, mono: int) -> None:
        """An operator says that the wall clock is right."""
        if self._since is not None:
            self._since = mono - TRUST_MS * MS
        self.at(mono)

    def at(self, mono: int) -> int:
        """Return broker time."""
        if self._since is not None and mono >= self._since + TRUST_MS * MS:
            self._pass(max(self._at, self._since + TRUST_MS * MS))
            self._time += self._ahead
            self._ahead, self._since = 0, None
        self._pass(mono)
        return self._time

    def _pass(self, mono: int) -> None:
        passed = mono - self._at
        self._at = mono
        slow = 0
        if self._since is None and self._ahead < 0:
            slow = min(-self._ahead, passed // 2)
            self._ahead += slow
        self._time += passed - slow


class Clocks:
    """See the module text. `reactor` counts active seconds, and has the timers.

    Attributes:
        turn_ms: broker time that a turn may go on with which began before it went back.
    """

    def __init__(self) -> None:
        self.reactor = Clock()
        self.turn_ms = 0
        self._wall_off = START_MS * MS
        self.highest = 0  # what broker time has been at most, over all processes
        self.boot()

    def boot(self) -> None:
        """Begin a process: its timers are new, and it believes the wall clock."""
        now = self.reactor.rightNow
        if now:
            self.check()
        self.reactor = Clock()
        self.reactor.rightNow = now
        self.reactor.seconds = ActiveSeconds(self._seconds)  # type: ignore[method-assign]
        self.broker = BrokerClock(wall=self._wall, monotonic=self._mono)
        self._reference = Reference(self._wall(), self._mono())

    def _seconds(self) -> float:
        return self.reactor.rightNow

    def _mono(self) -> int:
        return round(self.reactor.rightNow * 1000) * MS

    def _wall(self) -> int:
        return self._mono() + self._wall_off

    @property
    def now(self) -> int:
        """Return what broker time has to be, in ms."""
        now = self._reference.at(self._mono()) // MS
        self.highest = max(self.highest, now)
        return now

    def check(self) -> None:
        """Compare broker time with what it has to be."""
        is_, should = self.broker.now_ms(), self.now
        # Half of a time is rounded in either direction, once for each reading.
        if abs(is_ - should) > 1:
            raise ViolationError(f"broker time is {is_}, and should be {should}")

    def step(self, by_ms: int) -> None:
        """Set the wall clock; the gateway has looked right before, and looks right after."""
        self.check()
        self._wall_off += by_ms * MS
        self._reference.step(by_ms * MS, self._mono())
        self.broker.now_ms()
        self.check()

    def repair(self) -> None:
        """An operator sets the wall clock so that no time lies ahead, and has it believed."""
        behind = self.highest - self.now
        if behind > 0:
            self.step(behind + 1)
        self.broker.trust()
        self._reference.trust(self._mono())
        self.check()

    def gap(self, ms: int) -> None:
        """The process is stopped for a while: nothing fires, until it goes on."""
        before = self.now
        self.reactor.rightNow = round(self.reactor.rightNow + ms / 1000, 6)
        self.highest = max(self.highest, self.now)
        self.turn_ms = before if self.now < before else 0

    def next_in(self) -> float | None:
        """Return in how many seconds the next timer fires."""
        calls = self.reactor.getDelayedCalls()
        if not calls:
            return None
        return max(0.0, min(call.getTime() for call in calls) - self.reactor.seconds())

    def advance(self, seconds: float) -> None:
        """Let time go by, and fire what is due at the end of it."""
        self.turn_ms = 0
        self.reactor.advance(seconds)


def disturb(chance: random.Random, clocks: Clocks) -> str:
    """Step the wall clock, or stop the process; returns what happened."""
    if chance.random() < 0.6:
        by = chance.choice(STEPS)
        clocks.step(by)
        return f"the wall clock steps by {by} ms"
    gap = chance.choice(GAPS)
    clocks.gap(gap)
    return f"stopped for {gap} ms"
