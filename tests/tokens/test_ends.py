"""The heap of ends: at once for deliveries, in slices for the rest; renewed, forgotten, many."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from gateway.model.principal import By, Principal
from gateway.time.ends import SLICE_SECONDS, Ends


class World:
    """A date that is set, a clock that goes by each look at it, and turns."""

    def __init__(self, step: float = 0.0) -> None:
        self.now = 1_000
        self.turns: list[Callable[[], None]] = []
        ticks = count()
        self.ends = Ends(lambda: self.now, lambda: next(ticks) * step, self.turns.append)
        self.told: list[str | None] = []

    def principal(self, name: str, until_ms: int | None) -> Principal:
        made = Principal(name, by=By.TOKEN, until_ms=until_ms)
        self.ends.watch(made, lambda: self.told.append(made.user))
        return made

    def look(self, now: int) -> None:
        self.now = now
        self.ends.look()


def test_each_ends_at_its_date_and_is_told_once() -> None:
    world = World()
    ann, bob = world.principal("ann", 2_000), world.principal("bob", 3_000)
    world.look(1_999)
    assert (world.told, ann.ended) == ([], False)
    world.look(2_000)
    assert (world.told, ann.ended, bob.ended) == (["ann"], True, False)
    world.look(9_000)
    world.look(9_001)
    assert world.told == ["ann", "bob"]
    assert len(world.ends) == 0
    assert ann.changed == bob.changed == []


def test_one_that_is_renewed_ends_later_and_one_that_is_shortened_sooner() -> None:
    world = World()
    ann, bob = world.principal("ann", 2_000), world.principal("bob", 9_000)
    ann.renew(frozenset(), 4_000)
    bob.renew(frozenset(), 2_500)
    world.look(2_000)
    assert world.told == []
    world.look(2_500)
    assert world.told == ["bob"]
    world.look(4_000)
    assert world.told == ["bob", "ann"]


def test_one_that_is_forgotten_or_has_no_end_is_not_told() -> None:
    world = World()
    gone, free = world.principal("gone", 2_000), world.principal("free", None)
    world.ends.forget(gone)
    world.ends.forget(gone)
    world.look(1 << 60)
    assert world.told == []
    assert not gone.ended
    free.renew(frozenset(), 1 << 61)
    world.look(1 << 61)
    assert world.told == ["free"]


def test_many_end_in_one_turn_and_are_told_in_slices() -> None:
    world = World(step=SLICE_SECONDS / 10)
    all_of_them = [world.principal(f"p{n}", 2_000) for n in range(1000)]
    world.look(2_000)
    assert all(one.ended for one in all_of_them), "their deliveries stop at once"
    assert len(world.told) <= 11
    turns = 0
    while world.turns:
        before = len(world.told)
        world.turns.pop(0)()
        assert len(world.told) - before <= 11
        turns += 1
    assert (len(world.told), turns >= 90) == (1000, True)


def test_what_ends_while_others_are_told_is_told_behind_them() -> None:
    world = World(step=SLICE_SECONDS / 2)
    for number in range(10):
        world.principal(f"p{number}", 2_000)
    late = world.principal("late", 3_000)
    left = world.principal("left", 2_000)
    world.look(2_000)
    world.look(3_000)
    assert late.ended
    world.ends.forget(left)  # its connection went by itself meanwhile
    while world.turns:
        world.turns.pop(0)()
    assert world.told == [*(f"p{n}" for n in range(10)), "late"]


def test_the_heap_does_not_grow_with_what_came_and_went() -> None:
    world = World()
    for number in range(5000):
        world.ends.forget(world.principal(f"p{number}", 10**9 + number))
    kept = world.principal("kept", 10**9)
    for number in range(5000):
        kept.renew(frozenset(), 10**9 + number)
        world.ends.forget(world.principal("x", 10**9))
    assert len(world.ends._heap) < 300
    world.look(10**10)
    assert world.told == ["kept"]
