"""Equal consumers and equal queues get equal shares, however a burst is cut into pieces."""

from __future__ import annotations

import random

import pytest

from tests.broker.core import ANYCAST, Core
from tests.broker.test_selecting import send

TOLERANCE = 1


def shares(core: Core, takers: list) -> list[int]:
    core.check()
    return [len(taker.got) for taker in takers]


def even(counts: list[int], tolerance: int = TOLERANCE) -> bool:
    return max(counts) - min(counts) <= tolerance


@pytest.mark.parametrize("ways", [2, 3, 7])
@pytest.mark.parametrize("piece", [1, 2, 3, 5, 8, 100])
def test_equal_consumers_share_a_burst_whatever_its_pieces(piece, ways):
    core = Core()
    takers = [core.consume("q", room=100_000) for _ in range(ways)]
    for _ in range(60):
        core.send("q", *[b"x"] * piece, together=True)
    assert even(shares(core, takers))


@pytest.mark.parametrize("seed", range(10))
def test_equal_consumers_share_pieces_of_any_size_and_priority(seed):
    chance = random.Random(seed)
    core = Core()
    takers = [core.consume("q", room=100_000) for _ in range(2)]
    for _ in range(200):
        for _ in range(chance.randint(1, 3)):
            core.send("q", *[b"x"] * chance.randint(1, 4), priority=chance.choice([0, 4, 9]))
    assert even(shares(core, takers))


def test_a_turn_with_three_priorities_is_shared_evenly():
    """One of 9 and two of 4, again and again: nobody always gets the one."""
    core = Core()
    core.administration.create_queue("q", "q", ANYCAST)
    takers = [core.consume("q", room=100_000) for _ in range(2)]
    for _ in range(50):
        core.administration.update_queue("q", paused=True)
        core.send("q", b"x", priority=9)
        core.send("q", b"x", b"x", priority=4)
        core.administration.update_queue("q", paused=False)
        core.turn()
    assert even(shares(core, takers))


@pytest.mark.parametrize("rooms", [(10, 1000), (1000, 10), (100, 200)])
def test_with_different_credit_each_has_what_it_asked_for(rooms):
    core = Core()
    takers = [core.consume("q", room=room) for room in rooms]
    for _ in range(100):
        core.send("q", b"x", b"x", b"x", together=True)
    small, large = sorted(rooms)
    assert sorted(shares(core, takers)) == [min(small, 150), min(large, 300 - min(small, 150))]


@pytest.mark.parametrize("piece", [1, 2, 3, 4, 9])
def test_consumers_with_one_selector_share_what_matches(piece):
    core = Core()
    takers = [core.consume("q", room=100_000, selector="colour = 'red'") for _ in range(2)]
    for at in range(120):
        send(core, "q", *[("red", "blue")[at % 2]] * piece)
    assert even(shares(core, takers))
    assert sum(shares(core, takers)) == 60 * piece


@pytest.mark.parametrize("ways", [2, 3, 5])
@pytest.mark.parametrize("seed", range(10))
def test_consumers_with_one_selector_share_pieces_of_any_size_and_colour(seed, ways):
    """Ones and twos by turns: what divides evenly does not move whose turn is next."""
    chance = random.Random(seed)
    core = Core()
    takers = [core.consume("q", room=100_000, selector="colour = 'red'") for _ in range(ways)]
    for _ in range(300):
        send(core, "q", *chance.choices(["red", "blue"], k=chance.randint(1, 2 * ways)))
    assert even(shares(core, takers))


def test_consumers_with_one_selector_share_a_backlog_of_which_half_matches():
    core = Core()
    core.administration.create_queue("q", "q", ANYCAST)
    send(core, "q", *["red", "blue"] * 100)
    core.administration.update_queue("q", paused=True)
    takers = [core.consume("q", room=100_000, selector="colour = 'red'") for _ in range(2)]
    core.administration.update_queue("q", paused=False)
    core.turn()
    assert shares(core, takers) == [50, 50]


def test_who_comes_and_goes_does_not_make_one_of_the_others_first():
    core = Core()
    takers = [core.consume("q", room=100_000) for _ in range(2)]
    for _ in range(100):
        passing = core.consume("q", room=0)
        core.send("q", b"x")
        passing.leave()
    assert even(shares(core, takers))


# ---- queues of one address


def two_queues(core: Core, **filters: str) -> list:
    for name in ("a", "b", "c"):
        core.administration.create_queue(name, "t", ANYCAST, selector=filters.get(name, ""))
    return [core.consume(f"t::{name}", room=100_000) for name in ("a", "b", "c")]


def test_the_cursor_moves_behind_the_queue_that_was_chosen():
    """The first queue is not for these: the other two have the same share."""
    core = Core()
    takers = two_queues(core, a="colour = 'other'")
    for _ in range(60):
        core.send("t", b"x")
    assert shares(core, takers) == [0, 30, 30]


def test_a_forced_choice_moves_the_cursor_too():
    core = Core()
    takers = two_queues(core, b="colour = 'x'", c="colour = 'x'")
    for colour in ("y", "x", "y", "x", "y", "x"):
        send(core, "t", colour)
    # Each time a is the only one; b is behind it, and c has its turn only behind b.
    assert shares(core, takers) == [3, 3, 0]
    send(core, "t", "x", "x", "x", "x")
    assert shares(core, takers) == [4, 4, 2]


def test_queues_without_consumers_are_passed_over_evenly():
    core = Core()
    takers = two_queues(core)
    takers[0].leave()
    for piece in (1, 2, 3, 1, 1, 4):
        core.send("t", *[b"x"] * piece, together=True)
    assert shares(core, takers[1:]) == [6, 6]


def test_the_choice_goes_on_behind_a_queue_that_was_the_only_one():
    core = Core()
    takers = two_queues(core)
    core.send("t", b"1", b"2")
    for taker in takers[1:]:
        taker.leave()
    core.send("t", b"3")
    others = [core.consume(f"t::{name}", room=10) for name in "bc"]
    core.send("t", b"4", b"5")
    assert [taker.bodies() for taker in (takers[0], *others)] == [
        [b"1", b"3"],
        [b"2", b"4"],  # 2 came back from the one before
        [b"5"],
    ]
