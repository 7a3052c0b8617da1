"""The scrub's own rules: how fast, how often, what is told and how often, what is repaired."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from gateway.store.scrubber import FIRST_SECONDS, Scrubber
from storage.scrub import Place

MIB = 1 << 20
DAY = 86_400.0


class Threads:
    """Runs at once, or when told to."""

    def __init__(self) -> None:
        self.held: list | None = None
        self.stopped = False

    def run(self, function, *args):
        assert not self.stopped
        if self.held is not None:
            answer: Deferred = Deferred()
            self.held.append((function, args, answer))
            return answer
        try:
            return succeed(function(*args))
        except Exception as error:
            return fail(error)

    def stop(self) -> None:
        self.stopped = True


class File:
    """An item that is read in quarter MiBs."""

    kind = "journal"
    advice = "look"

    def __init__(self, name: str, size: int = MIB, *places: int, kind: str = "journal") -> None:
        self.path = name
        self.size = size
        self.places = list(places)
        self.kind = kind
        self.here = True
        self.checks = self.kept = self.closed = 0
        self.repaired: list[int] = []
        self.error: Exception | None = None
        self.concerns = {"q": 3}

    def check(self, found: list[Place]) -> Iterator[int]:
        self.checks += 1
        return self._check(found)

    def _check(self, found: list[Place]) -> Iterator[int]:
        try:
            for _ in range(self.size // (MIB // 4)):
                if self.error is not None:
                    raise self.error
                yield MIB // 4
            found += [
                Place(path=self.path, offset=at, end=at + 9, what="rot") for at in self.places
            ]
        finally:
            self.closed += 1

    def is_here(self) -> bool:
        return self.here

    def affected(self, places):
        return self.concerns

    def keep(self) -> str:
        self.kept += 1
        return f"quarantine/{self.path}"

    def repair(self, places) -> None:
        self.repaired += [place.offset for place in places]


class World:
    def __init__(self, *files: File, rate: int = MIB, period: float = DAY) -> None:
        self.clock = Clock()
        self.files = list(files)
        self.threads = Threads()
        self.scrubber = Scrubber(
            lambda: list(self.files),
            self.threads,
            self.clock,
            lambda: 1000 + int(self.clock.seconds() * 1000),
            rate=rate,
            period=period,
        )

    def wait(self, seconds: float) -> list[dict]:
        """Let time go by, a look a second; returns what was logged."""
        with capture_logs() as told:
            for _ in range(round(seconds * 4)):
                self.clock.advance(0.25)
                if self.clock.seconds() == int(self.clock.seconds()):
                    self.scrubber.look()
        return told

    def events(self, seconds: float) -> list[str]:
        return [one["event"] for one in self.wait(seconds)]


def test_it_reads_no_faster_than_its_rate():
    world = World(File("a", 8 * MIB), File("b", 8 * MIB), rate=4 * MIB)
    world.scrubber.start()
    for second in range(1, 5):
        world.wait(1)
        assert world.scrubber.bytes_read <= (4 * second + 2.25) * MIB
    world.wait(0.5)
    assert not world.scrubber.running
    assert world.scrubber.bytes_read == 16 * MIB
    assert world.scrubber.tour.files_read == 2


def test_at_full_speed_nobody_waits():
    world = World(File("a", 400 * MIB), rate=1)
    world.scrubber.start(full_speed=True)
    for _ in range(2000):
        world.clock.advance(0)
    assert world.scrubber.bytes_read == 400 * MIB


def test_one_that_is_under_way_is_made_faster():
    world = World(File("a", 400 * MIB), rate=MIB)
    tour = world.scrubber.start()
    world.wait(2)
    assert world.scrubber.start(full_speed=True) is tour
    assert world.scrubber.start() is tour, "and stays so"
    for _ in range(2000):
        world.clock.advance(0)
    assert not world.scrubber.running
    assert world.files[0].checks == 1


def test_it_begins_an_hour_after_the_start_and_then_every_period():
    world = World(File("a"), period=3 * 3600.0)
    assert world.scrubber.next_seconds == FIRST_SECONDS
    world.wait(3599)
    assert world.scrubber.tours == 0
    world.wait(10)
    assert world.scrubber.tours == 1
    world.wait(3 * 3600 - 30)
    assert world.scrubber.tours == 1
    world.wait(60)
    assert world.scrubber.tours == 2


@pytest.mark.parametrize("period", [0, -0.001])
def test_without_a_period_it_begins_only_when_told(period):
    world = World(File("a"), period=period)
    world.wait(5000)
    assert world.scrubber.tours == 0
    assert world.scrubber.next_seconds is None
    world.scrubber.start()
    world.wait(2)
    assert world.scrubber.tours == 1


def test_damage_is_copied_told_once_and_repaired():
    bad = File("b", MIB, 40, 90)
    world = World(File("a"), bad, File("c"))
    world.scrubber.start()
    told = [one for one in world.wait(5) if one["event"] == "scrub.damaged"]
    assert [(one["file"], one["offset"], one["copy"]) for one in told] == [
        ("b", 40, "quarantine/b"), ("b", 90, "quarantine/b"),
    ]  # fmt: skip
    assert told[0]["affected"] == {"q": 3}
    assert bad.repaired == [40, 90]
    assert world.scrubber.tour.files_read == 3, "what follows is read as well"
    assert "2 places in 1 file " in world.scrubber.alarm
    world.scrubber.start()
    assert "scrub.damaged" not in world.events(5), "nobody is told twice"
    assert bad.kept == 1
    assert bad.repaired == [40, 90, 40, 90], "but tried again"
    bad.places.append(300)
    world.scrubber.start()
    assert world.events(5).count("scrub.damaged") == 1
    assert bad.kept == 2


def test_what_is_gone_is_told_and_raises_no_alarm_any_more():
    bad = File("b", MIB, 40)
    world = World(bad)
    asked: list[float] = []
    world.scrubber.on_waiting = lambda: asked.append(world.clock.seconds())
    world.scrubber.start()
    world.wait(4)
    assert asked, "a repair that waits goes on"
    bad.here = False
    assert world.events(1) == ["scrub.damage_gone"]
    assert world.scrubber.alarm is None
    assert [one.place.offset for one in world.scrubber.past] == [40]
    assert world.scrubber.repaired == 1
    count = len(asked)
    world.wait(5)
    assert len(asked) == count


def test_what_can_be_read_again_is_no_damage_any_more():
    bad = File("b", MIB, 40)
    world = World(bad)
    world.scrubber.start()
    world.wait(3)
    bad.places.clear()
    world.scrubber.start()
    assert "scrub.damage_gone" in world.events(3)
    assert world.scrubber.alarm is None


def test_a_file_that_went_while_it_was_read_is_no_damage():
    bad = File("b", MIB, 40)
    world = World(bad, File("c"))
    world.scrubber.start()
    world.wait(0.5)
    bad.here = False
    events = world.events(4)
    assert "scrub.damaged" not in events
    assert world.scrubber.tour.damaged == 0
    assert world.scrubber.tour.files_read == 2


def test_a_file_that_goes_while_it_is_copied_is_no_damage():
    bad = File("b", MIB // 4, 40)
    world = World(bad)
    world.scrubber.start(full_speed=True)
    bad.keep = lambda: setattr(bad, "here", False)
    assert "scrub.damaged" not in world.events(2)
    assert bad.repaired == []


def test_a_page_that_nobody_waits_for_raises_no_alarm():
    bad = File("p", MIB, 40, kind="page")
    bad.concerns = {}
    world = World(bad)
    world.scrubber.start()
    assert "scrub.damaged" not in world.events(3)
    assert world.scrubber.tour.damaged == 1


def test_a_copy_that_cannot_be_made_keeps_nothing_from_being_repaired():
    bad = File("b", MIB, 40)
    world = World(bad)

    def refuse() -> str:
        raise OSError(28, "no room")

    bad.keep = refuse
    world.scrubber.start()
    (told,) = [one for one in world.wait(3) if one["event"] == "scrub.damaged"]
    assert "no room" in told["copy"]
    assert bad.repaired == [40]


@pytest.mark.parametrize("error", [FileNotFoundError("a"), ValueError("a fault of ours")])
def test_one_file_keeps_no_other_from_being_read(error):
    first, second = File("a"), File("b", MIB, 7)
    first.error = error
    world = World(first, second)
    world.scrubber.start()
    events = world.events(4)
    assert ("scrub.failed" in events) is isinstance(error, ValueError)
    assert "scrub.damaged" in events
    assert not world.scrubber.running


def test_whoever_met_damage_has_the_journal_read_at_once():
    page, other = File("p", 20 * MIB, kind="page"), File("o", 50 * MIB, kind="page")
    journal = File("j")
    world = World(journal, page, other)
    world.scrubber.start()
    world.wait(10)
    assert world.scrubber.tour.files_read == 1
    journal.places.append(5)
    world.scrubber.suspect()
    world.wait(20)
    assert world.scrubber.running
    assert (journal.checks, page.checks, other.checks) == (2, 1, 1)
    assert journal.repaired == [5], "before the other page is through"
    world.wait(60)
    assert world.scrubber.tour.files_read == world.scrubber.tour.files == 4
    world.scrubber.suspect()
    assert world.scrubber.running


def test_a_stop_reads_no_further():
    world = World(File("a", 50 * MIB, 5))
    world.scrubber.start()
    world.wait(1)
    world.threads.held = []
    world.wait(1)
    ((function, args, answer),) = world.threads.held
    value = function(*args)
    world.scrubber.stop()
    answer.callback(value)
    assert world.files[0].closed == 1
    assert world.events(100) == []
    world.scrubber.suspect()
    assert world.clock.getDelayedCalls() == []


def test_another_period_counts_from_the_last_one_and_another_rate_at_once():
    world = World(File("a", 8 * MIB), rate=MIB, period=3 * 3600.0)
    scrubber = world.scrubber
    scrubber.pace(rate=MIB, period=1800.0)
    assert scrubber.next_seconds == 1800
    scrubber.pace(rate=MIB, period=0)
    assert scrubber.next_seconds is None
    world.wait(4000)
    scrubber.pace(rate=4 * MIB, period=3600.0)
    assert scrubber.next_seconds == 0
    world.wait(5)
    assert scrubber.tours == 1, "at four times the rate"
    scrubber.pace(rate=MIB, period=600.0)
    assert 590 < scrubber.next_seconds <= 600
    world.wait(620)
    assert scrubber.tours == 2
