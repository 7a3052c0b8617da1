"""What a peer is held to in time: silence, slow frames, subscriptions that settle nothing."""

from __future__ import annotations

import pytest

from gateway.model.peers import Cause, ConsumerState
from protocols.stomp.heartbeat import agree
from protocols.stomp.limits import StompLimits
from protocols.stomp.watch import Overdue, Watch

LIMITS = StompLimits(
    ttl_ms=10_000, frame_seconds=5.0, frame_bytes_per_second=100, stuck_seconds=40.0
)


def consumer(in_flight: int, delivered: int = 5) -> ConsumerState:
    return ConsumerState(
        number=1, session=0, name="0", queue="q", address="a", credit=None,
        in_flight=in_flight, delivered=delivered, browser=False,
    )  # fmt: skip


class Watched:
    """A watch over an open connection, since second 100."""

    def __init__(self, heart_beat: str | None = None, limits: StompLimits = LIMITS) -> None:
        self.watch = Watch(limits)
        self.watch.opened(agree(heart_beat, limits), 100.0)
        self.size = 0
        self.consumers: list[ConsumerState] = []

    def look(self, now: float) -> Overdue | None:
        return self.watch.look(now, self.size, lambda: self.consumers)

    def came(self, now: float, left: int, most: int) -> None:
        self.size = left
        self.watch.came(now, left, most)


def test_silence_ends_it() -> None:
    watched = Watched()
    watched.came(105.0, 0, 10)
    assert watched.look(114.9) is None
    overdue = watched.look(115.0)
    assert overdue is not None
    assert overdue.ending.cause is Cause.TIMED_OUT
    assert "Nothing was received for 10000 ms" in overdue.refusal.text


def test_silence_that_we_caused_counts_from_the_next_look() -> None:
    watched = Watched()
    watched.watch.excuse()
    assert watched.look(130.0) is None
    assert watched.look(139.9) is None
    assert watched.look(140.0) is not None


@pytest.mark.parametrize(("size", "seconds"), [(50, 5.5), (300, 8.0)])
def test_a_frame_under_way_has_its_seconds_and_one_for_each_hundred_bytes(
    size: int, seconds: float
) -> None:
    watched = Watched()
    watched.came(101.0, size, size)
    assert watched.look(101.0 + seconds - 0.1) is None
    overdue = watched.look(101.0 + seconds)
    assert overdue is not None
    assert overdue.ending.cause is Cause.TIMED_OUT
    assert overdue.ending.text == overdue.refusal.text
    assert f"A frame of {size} bytes so far" in overdue.refusal.text


def test_more_of_the_same_frame_does_not_begin_its_time_anew() -> None:
    watched = Watched()
    watched.came(101.0, 10, 10)
    watched.came(104.0, 20, 20)
    assert watched.look(106.5) is not None


def test_the_next_frame_has_a_time_of_its_own() -> None:
    watched = Watched()
    watched.came(101.0, 10, 10)
    watched.came(104.0, 15, 40)
    assert watched.look(108.0) is None
    watched.came(108.5, 0, 20)
    assert watched.look(118.0) is None
    watched.watch.went_on(118.0, 5)
    watched.watch.went_on(119.0, 0)
    watched.came(119.0, 0, 0)
    assert watched.look(125.0) is None


def test_a_frame_that_could_not_be_read_has_all_its_time_again() -> None:
    watched = Watched()
    watched.came(101.0, 10, 10)
    watched.watch.excuse()
    assert watched.look(120.0) is None
    assert watched.look(125.0) is None
    assert watched.look(125.2) is not None


def test_a_subscription_that_settles_nothing_ends_it() -> None:
    watched = Watched(limits=StompLimits(ttl_ms=-1, stuck_seconds=40.0))
    watched.consumers = [consumer(3)]
    for now in (100.0, 110.0, 120.0, 130.0):
        assert watched.look(now) is None
    overdue = watched.look(140.0)
    assert overdue is not None
    assert overdue.ending.cause is Cause.SLOW_CONSUMER
    assert overdue.ending.text == overdue.refusal.text


def test_nobody_is_asked_for_consumers_where_none_can_be_stuck() -> None:
    watch = Watch(StompLimits(stuck_seconds=0.0))
    watch.opened(agree(None, LIMITS), 100.0)

    def consumers() -> list[ConsumerState]:
        raise AssertionError("asked")

    assert watch.look(101.0, 0, consumers) is None


def test_when_to_look_again() -> None:
    assert Watched().watch.deadline(100.0) == 105.0, "the time of a frame"
    slow = StompLimits(ttl_ms=10_000, frame_seconds=60.0, stuck_seconds=0.0)
    assert Watched(limits=slow).watch.deadline(100.0) == 110.0, "the time to live"
    patient = StompLimits(ttl_ms=-1, frame_seconds=60.0, stuck_seconds=0.0)
    assert Watched(limits=patient).watch.deadline(100.0) == 130.0
    assert Watched("0,2000", patient).watch.deadline(100.0) == 102.0, "a beat"


def test_before_the_login_there_is_nothing_to_look_at() -> None:
    watch = Watch(LIMITS)
    watch.came(1.0, 5, 5)
    for call in (
        lambda: watch.look(2.0, 5, list),
        lambda: watch.deadline(2.0),
        lambda: watch.beat_due(2.0),
    ):
        with pytest.raises(AssertionError):
            call()
