"""Keys over time: fetched once for many, kept when their issuer is away, rolled once a minute."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.security.gate import Why
from gateway.tokens.keys import SigningKey, read_keys
from gateway.tokens.rolling import OLD_SECONDS, REFETCH_SECONDS, RETRY_SECONDS, RollingKeys
from tests.tokens.minting import jwk, jwks, rsa

Done = Callable[[Sequence[SigningKey] | str], None]


class World:
    """A clock that is set, fetches that the test answers, and what was found."""

    def __init__(self) -> None:
        self.now = 100.0
        self.fetches: list[Done] = []
        self.failed: list[tuple[str, int]] = []
        self.found: list[str] = []
        self.keys = RollingKeys(
            self.fetches.append, lambda: self.now, lambda why, kept: self.failed.append((why, kept))
        )

    def ask(self, kid: str | None = "one") -> None:
        def found(key: SigningKey | Why) -> None:
            self.found.append(key.value if isinstance(key, Why) else str(key.kid))

        self.keys.ask(kid, "RS256", found)

    def answer(self, *names: str) -> None:
        self.fetches.pop(0)(read_keys(jwks(*(jwk(rsa(name)) for name in names))))


def test_many_who_wait_cost_one_fetch() -> None:
    world = World()
    for _ in range(5):
        world.ask()
    assert (len(world.fetches), world.found) == (1, [])
    world.answer("one")
    assert world.found == ["one"] * 5
    world.ask()
    assert (len(world.fetches), world.found[5:]) == (0, ["one"])


def test_without_keys_nobody_comes_in_and_it_is_asked_again_in_a_while() -> None:
    world = World()
    world.ask()
    world.fetches.pop()("it is away")
    assert (world.found, world.failed) == (["unreachable"], [("it is away", 0)])
    world.ask()
    assert (world.found, world.fetches) == (["unreachable"] * 2, [])
    world.now += RETRY_SECONDS
    world.ask()
    world.answer("one")
    assert world.found[2:] == ["one"]


def test_an_unknown_name_costs_one_fetch_a_minute_whoever_asks() -> None:
    world = World()
    world.ask()
    world.answer("one")
    world.ask("two")
    world.answer("one", "two")
    assert world.found == ["one", "two"]
    for number in range(50):
        world.ask(f"made-up-{number}")
    assert (world.fetches, set(world.found[2:])) == ([], {"untrusted"})
    world.now += REFETCH_SECONDS
    world.ask("made-up")
    world.ask("one")
    assert (len(world.fetches), world.found[-1]) == (1, "one")
    world.answer("one", "two")
    assert world.found[-1] == "untrusted"


def test_keys_go_on_while_their_issuer_is_away() -> None:
    world = World()
    world.ask()
    world.answer("one")
    world.now += OLD_SECONDS
    world.ask()
    assert (world.found, len(world.fetches)) == (["one", "one"], 1)
    world.fetches.pop()("it is away")
    assert world.failed == [("it is away", 1)]
    world.ask()
    assert (world.found[2:], world.fetches) == (["one"], [])
    world.now += REFETCH_SECONDS
    world.ask("two")
    world.fetches.pop()("it is away")
    assert world.found[-1] == "unreachable", "it is not known whether there is such a key"


def test_a_key_that_was_taken_back_goes_when_the_keys_are_old() -> None:
    world = World()
    world.ask()
    world.answer("one")
    world.now += OLD_SECONDS
    world.ask()
    world.answer("two")
    world.ask()
    world.answer("two")
    assert world.found == ["one", "one", "untrusted"]
