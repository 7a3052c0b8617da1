"""The reactor's clock knows no wall clock, and no time in which the gateway stood still."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs
from twisted.internet.base import ReactorBase

from gateway.store.hanging import FAIL_SECONDS, StoreWatch
from gateway.time.steady import GAP_SECONDS, ActiveSeconds, tell_gaps, use_steady_time


class World:
    def __init__(self) -> None:
        self.passed = 1000.0
        self.active = ActiveSeconds(lambda: self.passed)

    def pass_(self, seconds: float) -> float:
        self.passed += seconds
        return self.active()


def test_ordinary_waits_count() -> None:
    world = World()
    begun = world.active()
    for _ in range(10):
        world.pass_(GAP_SECONDS)
    assert world.active() - begun == pytest.approx(10 * GAP_SECONDS)


def test_a_gap_does_not_count_and_is_told_once_there_are_peers() -> None:
    world = World()
    begun = world.active()
    with capture_logs() as told:
        world.pass_(30)  # recovery
        reactor = Reactor()
        use_steady_time(reactor, lambda: world.passed)
        world.passed += 40
        tell_gaps(reactor)
        world.passed += 300
        before = reactor.seconds()
        world.passed += 1
        assert reactor.seconds() - before == pytest.approx(1)
    assert world.active() - begun == pytest.approx(0)
    assert [(one["event"], one["seconds"]) for one in told] == [("gateway.stood_still", 300.0)]


class Reactor(ReactorBase):
    """A reactor that waits for nothing but time."""

    wall = 1.7e9

    def installWaker(self) -> None:
        return

    def seconds(self) -> float:  # type: ignore[override]
        return self.wall


def test_what_was_planned_stays_as_far_away_and_the_wall_clock_counts_no_more() -> None:
    reactor = Reactor()
    rang: list[str] = []
    reactor.callLater(10, rang.append, "before")
    passed = [50.0]
    steady = use_steady_time(reactor, lambda: passed[0])
    assert use_steady_time(reactor, lambda: passed[0]) is steady
    reactor.callLater(20, rang.append, "after")
    reactor.wall += 3600  # set forward
    reactor.runUntilCurrent()
    assert rang == []
    assert reactor.timeout() == pytest.approx(10)
    reactor.wall -= 7200  # and back
    for expected in (["before"], ["before", "after"]):
        for _ in range(4):
            passed[0] += 2.6
            reactor.runUntilCurrent()
        assert rang == expected


def test_a_stop_of_the_process_is_no_hang_of_the_disk() -> None:
    class Journal:
        stalled = 0.0
        busy_with = 7

    world = World()
    failed: list[str] = []
    watch = StoreWatch(Journal(), world.active, failed.append)
    watch.look()
    world.pass_(3 * FAIL_SECONDS)
    for _ in range(10):
        world.pass_(1)
        watch.look()
    assert failed == []
