"""Work that is done again and again: when, at another distance, and after a failure."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.python.failure import Failure

from gateway.time.recurring import Recurring


class Desk:
    """Two pieces of work, of which each time is noted, and what is told of failures."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.times: list[tuple[str, float]] = []
        self.failures: list[str] = []
        self.recurring = Recurring(self.clock, self._failed)

    def _failed(self, failure: Failure) -> None:
        self.failures.append(failure.getErrorMessage())

    def work(self, name: str) -> None:
        self.times.append((name, self.clock.seconds()))
        if name == "bad":
            raise ValueError("it cannot be done")

    def pass_time(self, seconds: int) -> list[tuple[str, float]]:
        """Let time pass second by second; return what was done meanwhile."""
        self.times.clear()
        self.clock.pump([1.0] * seconds)
        return list(self.times)


def test_each_is_done_at_its_own_distance_and_not_at_once() -> None:
    desk = Desk()
    desk.recurring.start(lambda: desk.work("a"), 2.0)
    desk.recurring.start(lambda: desk.work("b"), 3.0)
    assert desk.times == []
    assert desk.pass_time(6) == [("a", 2), ("b", 3), ("a", 4), ("b", 6), ("a", 6)]


def test_a_distance_can_be_changed_and_work_ended_and_begun() -> None:
    desk = Desk()
    desk.recurring.start(lambda: desk.work("a"), 2.0, "a-period")
    desk.recurring.start(lambda: desk.work("b"), 0.0, "b-period")
    assert desk.pass_time(2) == [("a", 2)]
    desk.recurring.pace("a-period", 1.0)
    desk.recurring.pace("b-period", 2.0)
    assert desk.pass_time(2) == [("a", 3), ("b", 4), ("a", 4)]
    desk.recurring.pace("a-period", 0.0)
    desk.recurring.pace("a-period", -1.0)
    assert desk.pass_time(2) == [("b", 6)]


def test_work_that_fails_is_told_and_not_done_again() -> None:
    desk = Desk()
    desk.recurring.start(lambda: desk.work("bad"), 1.0)
    desk.recurring.start(lambda: desk.work("a"), 1.0)
    assert desk.pass_time(2) == [("bad", 1), ("a", 1), ("a", 2)]
    assert desk.failures == ["it cannot be done"]
    desk.recurring.stop()
    assert desk.clock.getDelayedCalls() == []


def test_one_may_go_on_when_all_are_stopped() -> None:
    desk = Desk()
    desk.recurring.start(lambda: desk.work("a"), 1.0)
    watch = desk.recurring.start(lambda: desk.work("watch"), 1.0)
    desk.recurring.stop(but=watch)
    assert desk.pass_time(2) == [("watch", 1), ("watch", 2)]
    watch.stop()
    assert desk.failures == []
