"""The users file of a running gateway: what is written there holds within a second."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.trial.scratch import importing_environment
from tests.gateway.reloading import Live, Start
from tests.gateway.stomp_peer import StompPeer

ANN, BOB = ("ann", "one"), ("bob", "two")


def user(live: Live, *arguments: str, text: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "user", *arguments, "--data", str(live.gateway.data)],
        input=text,
        capture_output=True,
        text=True,
        check=True,
        env=importing_environment(),
        timeout=60,
    )
    return done.stdout


@pytest.fixture
def live(gateway_process: Start, tmp_path: Path) -> Live:
    """A gateway that knows ann and bob; told so while it runs."""
    live = Live(gateway_process, tmp_path)
    for count, (name, password) in enumerate((ANN, BOB), 1):
        user(live, "add", name, "--password-stdin", text=password + "\n")
        live.wait_log("users.reloaded", count)
    return live


def test_users_come_change_and_go_without_a_reload(live: Live) -> None:
    ann, bob = (StompPeer(live.gateway.stomp_port, login) for login in (ANN, BOB))
    assert ann.greeting[0] == bob.greeting[0] == "CONNECTED"
    user(live, "roles", "bob", "view")
    (told,) = live.wait_log("users.reloaded", 3)[2:]
    assert (told["changes"], told["connections_closed"]) == (1, 0)
    assert [one["new"] for one in live.log("config.changed")][-1] == "['view']"
    user(live, "passwd", "bob", "--password-stdin", text="other\n")
    command, headers, text = bob.read()
    assert (command, headers["error-code"]) == ("ERROR", "not-authorized")
    assert b"another password now" in text
    assert live.ask("GET", "/api/v1/queues", login=BOB)[0] == 401
    again = StompPeer(live.gateway.stomp_port, ("bob", "other"))
    user(live, "remove", "bob")
    assert b"this connection's is none of them" in again.read()[2]
    assert StompPeer(live.gateway.stomp_port, ("bob", "other")).greeting[0] == "ERROR"
    ann.send("q", b"1", "r")
    assert ann.read()[0] == "RECEIPT"
    # Nothing is told of what is the same.
    os.utime(live.gateway.data / "users.toml")
    assert live.reload(login=ANN)["items"] == []
    assert len(live.log("users.reloaded")) == 5


def test_nonsense_leaves_the_users_and_is_told_once(live: Live) -> None:
    path = live.gateway.data / "users.toml"
    kept = path.read_text()
    stays = StompPeer(live.gateway.stomp_port, ANN)
    path.write_text("[users.ann]\npassword = 'plain-secret'\n")
    (told,) = live.wait_log("users.refused")
    assert "argon2 hash" in told["error"]
    assert "plain-secret" not in live.gateway.log.read_text()
    _, status = live.ask("GET", "/api/v1/config", login=ANN)
    (problem,) = status["usersRefused"]
    assert (problem["where"], "argon2" in problem["message"]) == (str(path), True)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "gateway", "reload", "--status", "--url", live.gateway.url),
            *("--user", "ann", "--password-stdin"),
        ],
        input="one\n",
        capture_output=True,
        text=True,
        check=True,
        env=importing_environment(),
        timeout=60,
    )
    assert "the users file is refused, and those of before stay:" in done.stdout
    path.write_text("")
    live.wait_log("users.refused", 2)
    path.unlink()
    assert "has no users any more" in live.log("users.refused")[1]["error"]
    assert live.ask("GET", "/api/v1/queues")[0] == 401
    assert live.ask("GET", "/api/v1/queues", login=BOB)[0] == 200
    stays.send("q", b"1", "r")
    assert stays.read()[0] == "RECEIPT"
    path.write_text(kept)

    def settled() -> bool:
        status, config = live.ask("GET", "/api/v1/config", login=ANN)
        return status == 200 and config["usersRefused"] == []

    live.until(settled)
    assert len(live.log("users.refused")) == 2
    assert json.dumps(live.log("users.reloaded")).count("users.toml") == 2
