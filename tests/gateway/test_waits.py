"""Short waits of the reactor: when it looks again, when it sleeps, what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from gateway.time.waits import (
    ASIDE_AFTER_SECONDS,
    ASIDE_SECONDS,
    SHORT_SECONDS,
    SPIN_SECONDS,
    ShortWaits,
    shorten_waits,
)

EVENTS = [(3, 1)]


class Script:
    """An epoll object and a clock: each look takes 10 us, each sleep what the script says."""

    def __init__(self) -> None:
        self.now = 0.0
        self.looks = 0
        self.sleeps: list[float] = []
        self.sleep_seconds = 50e-6
        self.asides: list[float] = []
        self.comes_at: float | None = None
        self.events = EVENTS

    def clock(self) -> float:
        return self.now

    def poll(self, timeout: float = -1, maxevents: int = -1) -> list[tuple[int, int]]:
        del maxevents
        if timeout == 0:
            self.looks += 1
            self.now += 10e-6
            return EVENTS if self.comes_at is not None and self.now >= self.comes_at else []
        self.sleeps.append(timeout)
        self.now += self.sleep_seconds
        return self.events

    def sleep(self, seconds: float) -> None:
        self.asides.append(self.now)
        self.now += seconds

    def register(self, fd: int, eventmask: int) -> None: ...

    def modify(self, fd: int, eventmask: int) -> None: ...

    def unregister(self, fd: int) -> None: ...

    def close(self) -> None: ...

    def fileno(self) -> int:
        return 7


def waits(
    script: Script, *, may_spin: bool = True, direct: dict[int, Callable[[], bool]] | None = None
) -> ShortWaits:
    return ShortWaits(
        script,
        clock=script.clock,
        may_spin=lambda: may_spin,
        direct=direct or {},
        sleep=script.sleep,
    )


def test_the_first_wait_sleeps_and_a_short_one_lets_the_next_look() -> None:
    script = Script()
    poller = waits(script)
    assert poller.poll(1.0, 5) == EVENTS
    assert (script.looks, script.sleeps) == (0, [1.0])
    script.comes_at = script.now + 35e-6
    assert poller.poll(1.0, 5) == EVENTS
    assert (script.looks, script.sleeps) == (4, [1.0])


def test_looking_ends_and_a_long_sleep_ends_all_looking() -> None:
    script = Script()
    poller = waits(script)
    poller.poll(1.0)
    script.sleep_seconds = 2 * SHORT_SECONDS
    poller.poll(1.0)
    looks = script.looks
    assert looks == pytest.approx(SPIN_SECONDS / 10e-6, abs=1)
    for _ in range(10):
        poller.poll(1.0)
    assert script.looks == looks
    assert len(script.sleeps) == 12


def test_no_looking_while_the_journal_writes() -> None:
    script = Script()
    poller = waits(script, may_spin=False)
    for _ in range(5):
        poller.poll(1.0)
    assert script.looks == 0


@pytest.mark.parametrize("timeout", [0.0, 1.0])
def test_a_busy_reactor_steps_aside_for_a_writer_now_and_then(timeout: float) -> None:
    script = Script()
    script.sleep_seconds = script.comes_at = 0.0  # something can always be read
    poller = waits(script, may_spin=False)
    for _ in range(100):
        poller.poll(timeout)
        script.now += ASIDE_AFTER_SECONDS / 5
    gaps = [after - before for before, after in pairwise(script.asides)]
    assert len(gaps) > 10
    assert all(ASIDE_AFTER_SECONDS < gap < 1.5 * ASIDE_AFTER_SECONDS for gap in gaps)


def test_nobody_steps_aside_where_nothing_is_written_or_the_reactor_sleeps_itself() -> None:
    script = Script()
    poller = waits(script)
    for _ in range(100):
        poller.poll(0)
        script.now += ASIDE_AFTER_SECONDS / 5
    slept = Script()
    slept.sleep_seconds = 2 * ASIDE_SECONDS
    poller = waits(slept, may_spin=False)
    for _ in range(100):
        poller.poll(1.0)
        slept.now += ASIDE_AFTER_SECONDS / 5
    assert script.asides == slept.asides == []


def test_a_wait_of_no_time_is_one_look() -> None:
    script = Script()
    poller = waits(script)
    poller.poll(1.0)
    assert poller.poll(0) == []
    assert script.looks == 1


def test_it_goes_before_an_epoll_object_once() -> None:
    class Reactor:
        _poller: Any = None

    reactor = Reactor()
    assert not shorten_waits(reactor, may_spin=bool, clock=float, direct={}, sleep=id)
    reactor._poller = Script()
    assert shorten_waits(reactor, may_spin=bool, clock=float, direct={}, sleep=id)
    first = reactor._poller
    assert first.fileno() == 7
    assert not shorten_waits(reactor, may_spin=bool, clock=float, direct={}, sleep=id)
    assert reactor._poller is first


def test_who_can_read_does_and_the_reactor_gets_the_rest() -> None:
    script = Script()
    read: list[str] = []
    answers = {"whole": True, "ended": False}

    def reader(name: str) -> Callable[[], bool]:
        def reads() -> bool:
            read.append(name)
            return answers[name]

        return reads

    both, hung_up, writable, unknown = (3, 5), (3, 17), (4, 4), (9, 1)
    script.events = [(3, 1), (4, 1), both, hung_up, writable, unknown]
    poller = waits(script, direct={3: reader("whole"), 4: reader("ended")})
    assert poller.poll(1.0) == [(4, 1), both, hung_up, writable, unknown]
    assert read == ["whole", "ended"]
