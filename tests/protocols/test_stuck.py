"""Consumers that hold what they were given and settle nothing."""

from __future__ import annotations

from dataclasses import replace

from gateway.model.errors import Code
from gateway.model.peers import ConsumerState
from gateway.model.ports import Progress
from protocols.stuck import STEP_SECONDS, Stuck


def consumer(number: int = 1, *, delivered: int, in_flight: int) -> ConsumerState:
    return ConsumerState(
        number=number,
        session=0,
        name=f"c{number}",
        queue="q",
        address="q",
        credit=1,
        in_flight=in_flight,
        delivered=delivered,
        browser=False,
    )


def found(stuck: Stuck, now: float, *consumers: ConsumerState) -> list[int]:
    return [one.number for one in stuck.look(consumers, now)]


def test_who_settles_nothing_for_long_enough_is_found() -> None:
    stuck = Stuck(100)
    assert stuck.step == 25
    held = consumer(delivered=3, in_flight=3)
    assert [found(stuck, now, held) for now in (500, 550, 599, 600)] == [[], [], [], [1]]
    refusal = stuck.refusal(held)
    assert refusal.code is Code.SLOW_CONSUMER
    assert "holds 3 deliveries" in refusal.text
    assert "100 s, the consumer-stuck-timeout" in refusal.text
    assert "consumer-window-size) or credit allows gets no more" in refusal.text


def test_more_deliveries_are_no_progress_and_settling_is() -> None:
    stuck = Stuck(100)
    assert found(stuck, 0, consumer(delivered=1, in_flight=1)) == []
    assert found(stuck, 50, consumer(delivered=4, in_flight=4)) == []
    assert found(stuck, 90, consumer(delivered=4, in_flight=3)) == []
    assert found(stuck, 140, consumer(delivered=4, in_flight=3)) == []
    assert found(stuck, 190, consumer(delivered=4, in_flight=3)) == [1]


def test_who_holds_nothing_begins_anew() -> None:
    stuck = Stuck(100)
    held, free = consumer(delivered=1, in_flight=1), consumer(delivered=1, in_flight=0)
    assert found(stuck, 0, held) == []
    assert found(stuck, 50, free) == []
    assert found(stuck, 100, held) == []
    assert found(stuck, 150, held, consumer(2, delivered=9, in_flight=9)) == []
    assert found(stuck, 200, held, consumer(2, delivered=9, in_flight=9)) == [1]


def test_time_in_which_nobody_looked_counts_as_one_step() -> None:
    stuck = Stuck(10 * STEP_SECONDS)
    held = consumer(delivered=1, in_flight=1)
    assert found(stuck, 0, held) == []
    # The process stood still for a day.
    assert found(stuck, 86_400, held) == []
    now = 86_400.0
    for _ in range(8):
        now += STEP_SECONDS
        assert found(stuck, now, held) == []
    assert found(stuck, now + STEP_SECONDS, held) == [1]


def test_nobody_is_looked_after_without_a_time() -> None:
    assert Stuck(0).step is None


def test_what_a_replay_holds_stays_in_its_stream() -> None:
    held = consumer(delivered=3, in_flight=3)
    assert "they go back to the queue" in Stuck(100).refusal(held).text
    replay = replace(held, progress=Progress(stream="q", offset=3, lag=0))
    assert "they stay in the stream" in Stuck(100).refusal(replay).text
