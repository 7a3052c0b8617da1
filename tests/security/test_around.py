"""The gate among threads and files: the users file as it is found, checks on real threads."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.security.around import ReactorSurroundings, load_users
from gateway.security.gate import Why
from gateway.security.passwords import NOBODY
from gateway.security.users import User, UsersError, add_user


def written(tmp_path: Path, text: str | bytes, mode: int = 0o600) -> str:
    path = tmp_path / "users.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return str(path)


GOOD = add_user("", User(name="ann", password=NOBODY))


def test_users_are_read(tmp_path: Path) -> None:
    with capture_logs() as logged:
        assert list(load_users(written(tmp_path, GOOD), required=True)) == ["ann"]
    assert logged == []


def test_no_file_is_no_users_unless_it_was_asked_for(tmp_path: Path) -> None:
    path = str(tmp_path / "none.toml")
    assert load_users(path, required=False) == {}
    with pytest.raises(UsersError, match="does not exist; `sluicegate user add NAME` makes it"):
        load_users(path, required=True)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (b"\xff", "cannot be read"),
        ("[users.ann]\npassword = '$argon2id$nonsense'\n", "users.ann: password is no argon2 hash"),
        ("users = 1", "needs tables"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, text: str | bytes, word: str) -> None:
    with pytest.raises(UsersError, match=word):
        load_users(written(tmp_path, text), required=False)


def test_a_directory_is_no_users_file(tmp_path: Path) -> None:
    with pytest.raises(UsersError, match="cannot be read"):
        load_users(str(tmp_path), required=False)


def test_a_file_that_others_can_read_is_told(tmp_path: Path) -> None:
    with capture_logs() as logged:
        load_users(written(tmp_path, GOOD, 0o640), required=True)
    assert [(e["event"], e["mode"]) for e in logged] == [("users.readable_by_others", "0o640")]


class FakeReactor:
    """Collects what is to run on the reactor."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.come = threading.Event()

    def seconds(self) -> float:
        return 7.0

    def callLater(self, delay: float, *call: Any) -> None:
        self.calls.append((delay, *call))

    def callFromThread(self, *call: Any) -> None:
        self.calls.append((threading.current_thread(), *call))
        self.come.set()


def test_checks_run_on_threads_and_answers_on_the_reactor() -> None:
    reactor = FakeReactor()
    around = ReactorSurroundings(reactor)
    around.start()
    ran_on: list[threading.Thread] = []

    def work() -> bool:
        ran_on.append(threading.current_thread())
        return True

    def done(right: bool) -> None:
        raise AssertionError("called on the wrong thread")

    around.verify(work, done)
    assert reactor.come.wait(10)
    around.stop()
    assert ran_on[0] is not threading.main_thread()
    assert reactor.calls == [(ran_on[0], done, True)]
    assert around.now() == 7.0


def test_a_check_that_breaks_lets_nobody_in() -> None:
    reactor = FakeReactor()
    around = ReactorSurroundings(reactor)
    around.start()
    around.verify(lambda: bool(1 // 0), print)
    assert reactor.come.wait(10)
    around.stop()
    assert reactor.calls[0][1:] == (print, False)


def test_refusals_are_logged_and_answers_come_later() -> None:
    reactor = FakeReactor()
    around = ReactorSurroundings(reactor)
    with capture_logs() as logged:
        around.refused("ann", "10.0.0.1", Why.THROTTLED)
    assert logged == [
        {
            "event": "login.refused",
            "log_level": "warning",
            "user": "ann",
            "peer": "10.0.0.1",
            "reason": "throttled",
        }
    ]
    around.later(print)
    assert reactor.calls[1:] == [(0, print)]
