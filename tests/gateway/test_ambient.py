"""The clock and the chance of the process."""

from __future__ import annotations

import time

import pytest
from structlog.testing import capture_logs

from gateway.assembly.ambient import make_chance, make_clock, make_key
from gateway.time.clock import ClockChange


def test_the_clock_is_that_of_the_machine() -> None:
    assert abs(make_clock().now_ms() - time.time() * 1000) < 60_000


@pytest.mark.parametrize(
    ("change", "event", "level"),
    [
        (ClockChange.DISTRUSTED, "clock.distrusted", "warning"),
        (ClockChange.RETURNED, "clock.returned", "info"),
        (ClockChange.FOLLOWED, "clock.followed", "warning"),
    ],
)
def test_a_change_of_the_clock_is_logged(change: ClockChange, event: str, level: str) -> None:
    with capture_logs() as lines:
        make_clock().on_change(change, 90.0)
    assert [(line["event"], line["log_level"], line["ahead"]) for line in lines] == [
        (event, level, 90)
    ]


def test_nothing_of_chance_comes_twice() -> None:
    chance = make_chance(make_clock())
    assert len({chance.name() for _ in range(100)}) == 100
    assert len({chance.salt() for _ in range(100)}) == 100
    assert len({make_key() for _ in range(100)}) == 100
    assert all(0 <= chance.fraction() < 1 for _ in range(100))
    assert (len(chance.salt()), len(make_key())) == (16, 32)
