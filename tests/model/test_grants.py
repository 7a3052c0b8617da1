"""What is held is judged again when roles or settings change, a slice in each turn."""

from __future__ import annotations

from collections.abc import Callable

from gateway.model import grants as module
from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.grants import Grant, Grants
from gateway.model.principal import Permission, Principal

SEND = Permission.SEND


class Roles:
    """Lets those do everything who have the role `in`."""

    def __init__(self) -> None:
        self.asked = 0
        self.wanted = "in"

    def check(
        self, principal: Principal, permission: Permission, address: str, queue: str | None
    ) -> None:
        self.asked += 1
        if self.wanted not in principal.roles:
            raise RefusedError.of(Code.NOT_AUTHORIZED, f"not {address}")


class World:
    def __init__(self) -> None:
        self.turns: list[Callable[[], None]] = []
        self.grants = Grants(self.turns.append)
        self.judge = Roles()
        self.told: list[Refusal] = []

    def principal(self) -> Principal:
        return Principal("ann", roles=frozenset({"in"}), judge=self.judge)

    def hold(self, principal: Principal, address: str = "a") -> Grant:
        grant = self.grants.hold(principal, SEND, address, None, self.told.append)
        assert grant is not None
        return grant

    def turn(self) -> None:
        turns, self.turns[:] = list(self.turns), []
        for action in turns:
            action()


def test_a_renewed_principal_is_judged_again_and_no_other_is() -> None:
    world = World()
    ann, bob = world.principal(), world.principal()
    kept, gone = world.hold(bob), world.hold(ann)
    ann.renew(frozenset(), None)
    assert world.told == []  # not inside of the call that changed it
    world.turn()
    assert [refusal.text for refusal in world.told] == ["not a"]
    assert (kept.held, gone.held, world.judge.asked) == (True, False, 1)
    assert (world.grants.count, world.grants.ended) == (1, 1)


def test_other_settings_concern_all() -> None:
    world = World()
    grants = [world.hold(world.principal()) for _ in range(3)]
    world.judge.wanted = "out"
    world.grants.judge_all()
    assert world.grants.judging
    world.turn()
    assert not world.grants.judging
    assert (len(world.told), [one.held for one in grants]) == (3, [False] * 3)


def test_what_was_given_back_meanwhile_is_not_judged() -> None:
    world = World()
    ann = world.principal()
    grant = world.hold(ann)
    ann.renew(frozenset(), None)
    grant.give_back()
    grant.give_back()
    world.turn()
    assert (world.told, world.judge.asked, ann.changed) == ([], 0, [])


def test_ten_thousand_take_many_turns() -> None:
    world = World()
    ann = world.principal()
    for number in range(10_000):
        world.hold(ann, f"a.{number}")
    ann.renew(frozenset({"in", "more"}), None)
    turns = 0
    while world.turns:
        before = world.judge.asked
        world.turn()
        assert world.judge.asked - before <= module.SLICE
        turns += 1
    assert (turns, world.told) == (10_000 // module.SLICE, [])
    ann.renew(frozenset(), None)
    while world.turns:
        before = len(world.told)
        world.turn()
        assert len(world.told) - before <= module.SLICE // module.ENDING
    assert (len(world.told), world.grants.count) == (10_000, 0)


def test_a_holder_that_fails_keeps_no_other_from_its_end() -> None:
    world = World()
    ann = world.principal()

    def fail(refusal: Refusal) -> None:
        raise ValueError

    world.grants.hold(ann, SEND, "bad", None, fail)
    world.hold(ann)
    ann.renew(frozenset(), None)
    for _ in range(2):
        try:
            world.turn()
        except ValueError:
            continue
    assert len(world.told) == 1


def test_the_gateway_itself_holds_nothing() -> None:
    assert World().grants.hold(None, SEND, "a", None, lambda _: None) is None
