"""The realm: who is asked about, what is remembered, and what is told when nobody can be asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs
from twisted.internet.task import Clock

from gateway.directory.realm import DirectoryRealm
from gateway.directory.settings import Found, UnreachableError
from gateway.model.principal import By, Principal
from gateway.security.gate import Why

ANN = Found(user="ann", roles=frozenset({"view"}))


class Threaded(Clock):
    """A simulated clock that threads come back to."""

    def __init__(self) -> None:
        super().__init__()
        self.back: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.came = threading.Semaphore(0)

    def callFromThread(self, function: Callable[..., None], *args: object) -> None:
        self.back.append((function, args))
        self.came.release()

    def turn(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.came.acquire(timeout=30)
            function, args = self.back.pop(0)
            function(*args)


class Asked:
    """A directory that answers as it is told; `gate` holds its answers back."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], Found | Exception] = {("ann", "right"): ANN}
        self.calls: list[tuple[str, str]] = []
        self.gate = threading.Event()
        self.gate.set()

    def ask(self, user: str, secret: str) -> Found | None:
        self.calls.append((user, secret))
        self.gate.wait(30)
        answer = self.answers.get((user, secret))
        if isinstance(answer, Exception):
            raise answer
        return answer


class World:
    def __init__(self, **options: Any) -> None:
        self.clock, self.asked, self.file = Threaded(), Asked(), {"root"}
        self.realm = DirectoryRealm(
            self.clock, self.asked, self.file.__contains__, b"k" * 32, **options
        )
        self.realm.start()

    def check(self, user: str = "ann", secret: str = "right") -> Principal | Why:
        known = self.realm.remembered(user, secret)
        if known is not None:
            return known
        answers: list[Principal | Why] = []
        calls = len(self.asked.calls)
        before = self.realm.waiting
        self.realm.check(user, secret, answers.append)
        assert answers == [], "answered inside the call"
        if self.realm.waiting > before:
            self.clock.turn()
        self.clock.advance(0)
        (answer,) = answers
        assert len(self.asked.calls) <= calls + 1
        return answer


@pytest.fixture
def world() -> Iterator[World]:
    made = World(threads=1, cache_seconds=60, cache_size=2)
    yield made
    made.asked.gate.set()
    made.realm.stop()


def test_a_right_login_is_remembered_for_a_while(world: World) -> None:
    for _ in range(2):
        found = world.check()
        assert isinstance(found, Principal)
        assert (found.user, found.account, found.roles, found.by) == (
            "ann",
            "ann",
            {"view"},
            By.DIRECTORY,
        )
    assert world.asked.calls == [("ann", "right")]
    # Each connection has one of its own.
    assert world.check() is not found
    assert world.check(secret="wrong") is Why.WRONG
    # The directory is away: who is remembered comes in until the time is over.
    world.asked.answers[("ann", "right")] = UnreachableError("down")
    assert isinstance(world.check(), Principal)
    world.clock.advance(60)
    assert world.check() is Why.UNREACHABLE
    assert "right" not in repr(list(world.realm._right))


def test_the_memory_has_a_bound(world: World) -> None:
    for name in ("a", "b", "c"):
        world.asked.answers[(name, "x")] = Found(user=name, roles=frozenset())
        assert isinstance(world.check(name, "x"), Principal)
    assert len(world.realm._right) == 2
    world.check("a", "x")
    assert world.asked.calls.count(("a", "x")) == 2


def test_nothing_is_remembered_where_that_is_written() -> None:
    world = World(cache_seconds=0)
    world.check()
    world.check()
    assert len(world.asked.calls) == 2
    world.realm.stop()


def test_the_users_file_has_the_say(world: World) -> None:
    assert not world.realm.takes("root", "x")
    assert world.realm.takes("ann", "x")
    world.asked.answers[("ROOT", "x")] = Found(user="root", roles=frozenset({"admin"}))
    assert world.check("ROOT", "x") is Why.WRONG
    world.check()
    world.file.add("ann")  # also over what is remembered
    assert world.check() is Why.WRONG


@pytest.mark.parametrize(
    ("user", "secret"),
    [
        ("ann", ""),
        ("", "x"),
        (" ann", "x"),
        ("a  b", "x"),
        ("a\0", "x"),
        ("a:b", "x"),
        ("a", "x" * 2000),
    ],
)
def test_what_cannot_be_is_not_asked(world: World, user: str, secret: str) -> None:
    assert world.check(user, secret) is Why.WRONG
    assert world.asked.calls == []


def test_an_unreachable_directory_is_told_by_name_and_a_fault_lets_nobody_in(world: World) -> None:
    world.asked.answers[("ann", "right")] = UnreachableError("timed out")
    world.asked.answers[("bob", "right")] = ZeroDivisionError("oops")
    with capture_logs() as logged:
        assert world.check() is Why.UNREACHABLE
        assert world.check("bob") is Why.UNREACHABLE
    assert [(e["event"], e["error"]) for e in logged] == [
        ("directory.unreachable", "timed out"),
        ("directory.unreachable", "a fault of ours: oops"),
    ]


def test_a_directory_that_hangs_holds_no_more_than_its_own_places(world: World) -> None:
    world.asked.gate.clear()
    answers: list[Principal | Why] = []
    for number in range(6):
        world.realm.check("ann", f"x{number}", answers.append)
    world.clock.advance(0)
    assert answers == [Why.BUSY, Why.BUSY]
    assert world.realm.waiting == 4
    world.asked.gate.set()
    world.clock.turn(4)
    assert answers[2:] == [Why.WRONG] * 4
    assert world.realm.waiting == 0
