"""Random workloads on a disk that fails: nothing reported is lost, whatever happens.

`SEED=k` in the environment replays one seed and prints its last events.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.world import run_seed

SEEDS = 3000
#: Seeds share a test, so that starting one costs nothing beside them; few enough for two workers.
SEEDS_A_TEST = 250


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_what_is_reported_survives(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        run_seed(seed)


if "SEED" in os.environ:

    def test_the_seed_that_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
        world = run_seed(int(os.environ["SEED"]))
        with capsys.disabled():
            print("\n".join(world.disk.log))


def test_a_seed_gives_the_same_run_each_time() -> None:
    for seed in range(5):
        one, other = run_seed(seed), run_seed(seed)
        assert list(one.disk.log) == list(other.disk.log)
        assert one.disk.calls == other.disk.calls


def test_the_seeds_reach_what_they_are_for() -> None:
    """A workload that never rolls, cancels, recycles or refuses would prove nothing of it."""
    text = []
    cancelled = copied = 0
    for seed in range(150):
        world = run_seed(seed)
        text += world.disk.log
        cancelled += world.cancelled
        copied += world.copied
    seen = "\n".join(text)
    for event in (
        "-- crash in this call",
        "power lost",
        "killed",
        "close",
        "simulated: no room",
        "simulated: cannot sync",
        "start refused",
        "rename journal/spare-",
        "unlink journal/0",
    ):
        assert event in seen, f"no seed comes to: {event}"
    assert cancelled > 0
    assert copied > 100
