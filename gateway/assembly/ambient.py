"""The clock, the chance and the waiting of the process, made the one time.

Everything below has these handed down. No other module of the running gateway asks the system for
the time or for chance.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable

import structlog

from gateway.core.core import Chance, Reactor
from gateway.time.clock import TRUST_SECONDS, BrokerClock, ClockChange
from gateway.time.waits import shorten_waits
from protocols.transport.reads import Reads

_log = structlog.get_logger()


def make_clock() -> BrokerClock:
    """Return the broker's clock, whose changes are logged."""
    clock = BrokerClock(wall=time.time_ns, monotonic=_passed_ns)
    clock.on_change = _tell_clock
    return clock


def make_date(clock: BrokerClock) -> Callable[[], int]:
    """Return the date in ms that proofs of identity end by: the later one of two clocks.

    So a wall clock that is set back puts no end off, and one that is set far ahead, which broker
    time would wait with, is believed at once.
    """
    return lambda: max(clock.now_ms(), time.time_ns() // 1_000_000)


def wall_ms() -> int:
    """Return the date in ms, as the system has it: the audit trail follows each of its steps."""
    return time.time_ns() // 1_000_000


def make_key() -> bytes:
    """Return 32 bytes that nobody can guess."""
    return os.urandom(32)


def wait_little(reactor: Reactor, may_spin: Callable[[], bool], reads: Reads) -> None:
    """Have the reactor look for input before it sleeps, as long as `may_spin` says."""
    shorten_waits(
        reactor,
        may_spin=may_spin,
        clock=time.perf_counter,
        direct=reads.direct,
        sleep=time.sleep,
    )


def make_chance(clock: BrokerClock) -> Chance:
    """Return the chance of this process, with the clock beside it."""
    return Chance(
        now_ms=clock.now_ms,
        fraction=random.random,
        name=lambda: str(uuid.uuid4()),
        salt=lambda: os.urandom(16),
    )


def _passed_ns() -> int:
    """Count what really passes, also while the machine is suspended, where the system can say."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _tell_clock(change: ClockChange, seconds: float) -> None:
    match change:
        case ClockChange.DISTRUSTED:
            _log.warning("clock.distrusted", ahead=round(seconds), trusted_in=TRUST_SECONDS)
        case ClockChange.RETURNED:
            _log.info("clock.returned", ahead=round(seconds, 3))
        case ClockChange.FOLLOWED:
            _log.warning("clock.followed", ahead=round(seconds))
