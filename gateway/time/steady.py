"""The reactor's clock: time during which the gateway could act.

Twisted's reactor goes by the wall clock. When that is set forward every time-out ends at once, when
it is set back every timer stands still. And a process that was stopped, or a virtual machine that
was frozen, finds on waking that all its peers were silent, before it has read what they said.

    active seconds = monotonic seconds - what passed of gaps longer than GAP_SECONDS
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog
from twisted.internet.interfaces import IReactorTime

#: The reactor reads its clock in each of its turns, and somebody's timer makes one turn a second.
GAP_SECONDS: Final = 5.0

_log = structlog.get_logger()


class ActiveSeconds:
    """Counts seconds, but not those of a gap; called on one thread only.

    Attributes:
        on_gap: told the seconds of each gap; nobody is until there are peers, since recovery may
            take long.
    """

    __slots__ = ("_clock", "_last", "_lost", "on_gap")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last = clock()
        self._lost = 0.0
        self.on_gap: Callable[[float], None] = _nothing

    def __call__(self) -> float:
        now = self._clock()
        gap = now - self._last
        self._last = now
        if gap > GAP_SECONDS:
            self._lost += gap
            self.on_gap(gap)
        return now - self._lost


def use_steady_time(reactor: IReactorTime, clock: Callable[[], float]) -> ActiveSeconds:
    """Have a reactor count active seconds of `clock`; what it has planned stays as far away."""
    before = reactor.seconds
    if isinstance(before, ActiveSeconds):
        return before
    steady = ActiveSeconds(clock)
    planned = [(call, call.getTime() - before()) for call in reactor.getDelayedCalls()]
    reactor.seconds = steady  # type: ignore[method-assign]
    for call, rest in planned:
        call.seconds = steady  # type: ignore[attr-defined]
        call.time = steady() + rest  # type: ignore[attr-defined]
    return steady


def tell_gaps(reactor: IReactorTime) -> None:
    """Have gaps logged from now on."""
    steady = reactor.seconds
    if isinstance(steady, ActiveSeconds):
        steady()
        steady.on_gap = _tell


def _nothing(gap: float) -> None:
    """Stand for whoever does not want to know."""


def _tell(gap: float) -> None:
    _log.warning("gateway.stood_still", seconds=round(gap, 1))
