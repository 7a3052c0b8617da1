"""The alarm: rings when the broker's clock shows a time, however the two clocks run."""

from __future__ import annotations

from twisted.internet.task import Clock

from gateway.time.alarm import Alarm


class Bell:
    """A broker's clock beside the reactor's, and what rang."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.ahead_ms = 0
        self.rung: list[int] = []
        self.plans: list[int] = []
        self.alarm = Alarm(self.clock, self.now_ms, self.ring)

    def now_ms(self) -> int:
        return round(self.clock.seconds() * 1000) + self.ahead_ms

    def ring(self) -> None:
        now = self.now_ms()
        self.rung += [at for at in self.plans if at <= now]
        self.plans = [at for at in self.plans if at > now]
        if self.plans:
            self.alarm.set(min(self.plans))

    def plan(self, at_ms: int) -> None:
        self.plans.append(at_ms)
        self.alarm.set(at_ms)


def test_the_earliest_counts() -> None:
    bell = Bell()
    for at in (500, 200, 900):
        bell.plan(at)
    assert len(bell.clock.getDelayedCalls()) == 1
    bell.clock.pump([0.1] * 3)
    assert bell.rung == [200]
    bell.clock.pump([0.1] * 7)
    assert bell.rung == [200, 500, 900]
    assert not bell.clock.getDelayedCalls()


def test_what_is_past_rings_soon() -> None:
    bell = Bell()
    bell.clock.advance(1)
    bell.plan(10)
    bell.clock.advance(0.001)
    assert bell.rung == [10]


def test_a_clock_that_is_set_forward_is_seen_within_a_minute() -> None:
    bell = Bell()
    bell.plan(10 * 3_600_000)
    bell.ahead_ms = 10 * 3_600_000
    bell.clock.advance(60)
    assert len(bell.rung) == 1


def test_a_clock_that_is_set_back_is_waited_for() -> None:
    bell = Bell()
    bell.plan(1000)
    bell.ahead_ms = -500
    bell.clock.advance(1)
    assert bell.rung == []
    bell.clock.pump([0.25] * 2)
    assert bell.rung == [1000]


def test_stopped_it_rings_no_more() -> None:
    bell = Bell()
    bell.plan(100)
    bell.alarm.stop()
    bell.alarm.stop()
    bell.clock.advance(1)
    assert bell.rung == []
