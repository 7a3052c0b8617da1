"""Broker time follows the wall clock, but neither its accidents nor backwards."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.time.clock import STEP_MAX_SECONDS, TRUST_SECONDS, BrokerClock, ClockChange

SECOND = 1_000_000_000
HOUR = 3600
YEAR = 365 * 24 * HOUR


class World:
    """Both clocks, and what the broker's said about them."""

    def __init__(self) -> None:
        self.passed = 5 * SECOND
        self.ahead = 1_700_000_000 * SECOND
        self.told: list[tuple[ClockChange, int]] = []
        self.clock = BrokerClock(
            wall=lambda: self.passed + self.ahead, monotonic=lambda: self.passed
        )
        self.clock.on_change = lambda change, seconds: self.told.append((change, round(seconds)))
        self.begun = self.now()

    def now(self) -> float:
        return self.clock.now_ms() / 1000

    def run(self, seconds: float, step: float = 0.25) -> float:
        """Let time pass, read often; returns how far broker time came."""
        before = self.now()
        for _ in range(round(seconds / step)):
            self.passed += round(step * SECOND)
            self.now()
        return self.now() - before

    def set_wall(self, seconds: float) -> None:
        self.ahead += round(seconds * SECOND)

    @property
    def behind(self) -> float:
        """How far broker time is behind the wall clock."""
        return (self.passed + self.ahead) / SECOND - self.now()


@pytest.fixture
def world() -> World:
    return World()


def test_it_is_the_wall_clock_while_that_runs(world: World) -> None:
    assert world.run(100) == pytest.approx(100)
    assert world.behind == pytest.approx(0, abs=0.002)


def test_a_step_forward_is_followed(world: World) -> None:
    world.set_wall(STEP_MAX_SECONDS)
    assert world.now() - world.begun == pytest.approx(STEP_MAX_SECONDS)
    assert world.told == []


def test_a_step_back_is_slewed(world: World) -> None:
    world.set_wall(-STEP_MAX_SECONDS)
    assert world.run(100) == pytest.approx(50, abs=0.01)
    world.run(2 * STEP_MAX_SECONDS, step=5)
    assert world.behind == pytest.approx(0, abs=0.002)
    assert world.run(10) == pytest.approx(10)
    assert world.told == []


@pytest.mark.parametrize("step", [HOUR + 1, 10 * YEAR, -HOUR - 1, -10 * YEAR])
def test_a_large_step_is_not_followed_at_once(world: World, step: int) -> None:
    world.set_wall(step)
    assert world.run(TRUST_SECONDS - 1) == pytest.approx(TRUST_SECONDS - 1)
    assert world.told == [(ClockChange.DISTRUSTED, step)]
    assert world.clock.step_seconds == step
    assert 0 < world.clock.trusted_in < 2
    world.run(2)
    assert world.told == [(ClockChange.DISTRUSTED, step), (ClockChange.FOLLOWED, step)]
    assert world.behind == pytest.approx(0, abs=0.002)
    assert (world.clock.step_seconds, world.clock.trusted_in) == (0, 0)


@pytest.mark.parametrize("step", [10 * YEAR, -10 * YEAR])
def test_an_accident_that_is_put_right_leaves_nothing(world: World, step: int) -> None:
    world.set_wall(step)
    world.run(300)
    world.set_wall(-step)
    assert world.run(300) == pytest.approx(300)
    assert world.told == [(ClockChange.DISTRUSTED, step), (ClockChange.RETURNED, 0)]


def test_a_second_step_is_distrusted_anew(world: World) -> None:
    world.set_wall(2 * HOUR)
    world.run(TRUST_SECONDS - 10)
    world.set_wall(YEAR)
    world.run(20)
    assert [change for change, _ in world.told] == [ClockChange.DISTRUSTED] * 2
    assert world.clock.trusted_in > TRUST_SECONDS - 30


@pytest.mark.parametrize("step", [10 * YEAR, -10 * YEAR])
def test_an_operator_may_say_that_it_is_right(world: World, step: int) -> None:
    assert not world.clock.trust()
    world.set_wall(step)
    assert world.clock.trust()
    assert world.now() - world.begun == pytest.approx(step)
    assert world.told[-1] == (ClockChange.FOLLOWED, step)


def test_what_passes_while_the_process_is_stopped_counts(world: World) -> None:
    world.passed += 2 * HOUR * SECOND
    assert world.now() - world.begun == pytest.approx(2 * HOUR)
    assert world.told == []


STEPS = st.tuples(
    st.integers(0, 900 * SECOND),  # passes
    st.integers(-2 * HOUR * SECOND, 2 * HOUR * SECOND) | st.integers(-SECOND, SECOND),
)


@given(st.lists(STEPS, max_size=60))
def test_it_goes_back_only_by_a_large_step_that_is_taken_over(
    steps: list[tuple[int, int]],
) -> None:
    world = World()
    for passes, jump in steps:
        before, told = world.now(), len(world.told)
        world.passed += passes
        world.ahead += jump
        after = world.now()
        followed = [ahead for change, ahead in world.told[told:] if change is ClockChange.FOLLOWED]
        if not any(ahead < 0 for ahead in followed):
            assert after >= before
        if world.clock.step_seconds:
            assert after - before <= passes / SECOND + STEP_MAX_SECONDS
