"""Events that strangers can cause at will: a few are told whole, the rest summed."""

from __future__ import annotations

from twisted.internet.task import Clock

from gateway.logs.summing import Summed


def test_a_few_are_told_and_the_rest_are_summed_until_it_is_quiet() -> None:
    clock = Clock()
    told: list[tuple[int, float]] = []
    summed = Summed(clock, lambda *what: told.append(what), whole=3, seconds=60.0)
    assert [summed.whole() for _ in range(5)] == [True] * 3 + [False] * 2
    assert summed.summing
    clock.advance(60)
    assert told == [(2, 60.0)]
    assert [summed.whole() for _ in range(4)] == [False] * 4
    clock.advance(60)
    assert told[1:] == [(4, 60.0)]
    clock.advance(60)
    assert not summed.summing
    assert summed.whole()
    assert len(told) == 2


def test_few_events_are_never_summed() -> None:
    clock = Clock()
    told: list[tuple[int, float]] = []
    summed = Summed(clock, lambda *what: told.append(what), whole=3, seconds=60.0)
    for _ in range(5):
        assert [summed.whole() for _ in range(3)] == [True] * 3
        clock.advance(60)
    assert told == []
    assert clock.getDelayedCalls() == []
