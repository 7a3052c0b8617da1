"""A disk that hangs is told of once, ends the gateway in the end, and is forgiven in between."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from gateway.store.hanging import FAIL_SECONDS, WARN_SECONDS, StoreWatch


class Journal:
    stalled = 0.0
    busy_with = 0


class World:
    def __init__(self) -> None:
        self.now = 100.0
        self.journal = Journal()
        self.failed = []
        self.watch = StoreWatch(self.journal, lambda: self.now, self.failed.append)

    def wait(self, seconds: float) -> list[str]:
        """Look once a second; returns the events of the log."""
        with capture_logs() as told:
            for _ in range(round(seconds)):
                self.now += 1
                self.watch.look()
        return [one["event"] for one in told]


@pytest.fixture
def world() -> World:
    return World()


def test_a_disk_that_works_is_not_told_of(world):
    told = []
    for number in range(1, 300):
        world.journal.busy_with = number
        told += world.wait(1)
    assert (told, world.failed, world.journal.stalled) == ([], [], 0.0)


def test_a_hang_is_told_once_and_its_end(world):
    world.journal.busy_with = 7
    assert world.wait(WARN_SECONDS + 40) == ["store.slow"]
    assert world.journal.stalled > WARN_SECONDS
    world.journal.busy_with = 8
    assert world.wait(2) == ["store.goes_on"]
    assert world.journal.stalled == 1.0
    assert world.failed == []


def test_a_hang_that_lasts_is_a_failed_store(world):
    world.journal.busy_with = 7
    world.wait(FAIL_SECONDS)
    assert world.failed == []
    world.wait(2)
    assert "120 seconds" in world.failed[0]


def test_an_idle_writer_hangs_on_nothing(world):
    assert world.wait(500) == []
    assert world.failed == []
