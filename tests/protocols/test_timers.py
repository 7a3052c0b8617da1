"""Deadlines of many connections on one timer."""

from __future__ import annotations

import gc
import weakref

from twisted.internet.task import Clock

from protocols.transport.timers import Timers


class One:
    """It notes when it is called."""

    def __init__(self) -> None:
        self.heard: list[float] = []

    def tick(self, deadline: float) -> None:
        self.heard.append(deadline)


def test_each_hears_of_its_deadlines_in_their_order():
    clock = Clock()
    timers = Timers(clock)
    one, other = One(), One()
    first, second = timers.join(one), timers.join(other)
    for deadline, number in ((3.0, first), (1.0, second), (2.0, first), (3.0, second)):
        timers.add(deadline, number)
    clock.pump([0.5] * 5)
    assert (one.heard, other.heard) == ([2.0], [1.0])
    clock.pump([0.5])
    assert (one.heard, other.heard) == ([2.0, 3.0], [1.0, 3.0])
    assert clock.getDelayedCalls() == []


def test_one_that_has_left_hears_nothing_and_is_not_held():
    clock = Clock()
    timers = Timers(clock)
    one = One()
    heard, gone = one.heard, weakref.ref(one)
    number = timers.join(one)
    timers.add(60.0, number)
    timers.leave(number)
    timers.add(61.0, number)
    del one
    gc.collect()
    assert gone() is None
    clock.advance(100)
    assert heard == []


def test_connections_that_come_and_go_leave_few_entries_behind():
    timers = Timers(Clock())
    stays = timers.join(One())
    timers.add(1000.0, stays)
    for _ in range(20_000):
        number = timers.join(One())
        for deadline in (10.0, 30.0, 60.0):
            timers.add(deadline, number)
        timers.leave(number)
    assert len(timers._heap) <= 1003
    assert (1000.0, stays) in timers._heap
