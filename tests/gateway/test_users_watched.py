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


JUDGED = """
[security-settings."#"]
send = ["shop"]
create-address = ["shop"]
create-durable-queue = ["shop"]
[api-roles]
view = ["monitoring"]
"""


def test_roles_hold_at_once_and_the_last_administrator_stays(
    gateway_process: Start, tmp_path: Path
) -> None:
    live = Live(gateway_process, tmp_path, "")
    for name, roles in (("ann", ("admin",)), ("bob", ("monitoring",)), ("eve", ())):
        given = [part for role in roles for part in ("--role", role)]
        user(live, "add", name, "--password-stdin", *given, text="pw\n")
        live.until(lambda name=name: f"users.{name}" in str(live.log("config.changed")))
    ann, bob, eve = (("ann", "pw"), ("bob", "pw"), ("eve", "pw"))
    assert live.ask("DELETE", "/api/v1/queues/none", login=eve)[0] == 404
    live.reload(JUDGED, login=eve)
    calls = (
        ("GET", "/api/v1/queues"),
        ("DELETE", "/api/v1/queues/none"),
        ("POST", "/api/v1/config:reload"),
    )
    for login, answers in ((ann, [200, 404, 200]), (bob, [200, 403, 403]), (eve, [403] * 3)):
        assert [live.ask(*call, login=login)[0] for call in calls] == answers
    assert live.ask("GET", "/livez")[0] == 200
    assert live.ask("GET", "/metrics")[0] == 401
    status, told = live.ask("DELETE", "/api/v1/queues/none", login=bob)
    assert (status, told["code"]) == (403, "not-authorized")
    assert "manage" in told["message"]

    # A role that comes lets in what is open already; the last administrator cannot go.
    stomp = StompPeer(live.gateway.stomp_port, eve)
    count = len(live.log("users.reloaded"))
    user(live, "roles", "eve", "shop", "manage")
    live.wait_log("users.reloaded", count + 1)
    stomp.send("q", b"1", "r")
    assert stomp.read()[0] == "RECEIPT"
    assert live.ask("DELETE", "/api/v1/queues/none", login=eve)[0] == 404
    path = live.gateway.data / "users.toml"
    path.write_text(path.read_text().replace('"admin"', '"adm"'))
    (refused,) = live.wait_log("users.refused")
    assert "nobody is left who may administer this gateway" in refused["error"]
    assert live.ask("POST", "/api/v1/config:reload", login=ann)[0] == 422
    path.write_text(path.read_text().replace('"adm"', '"admin"'))
    live.until(lambda: not live.ask("GET", "/api/v1/config", login=ann)[1]["usersRefused"])
    # Nor may the configuration take the role away from all.
    live.write(JUDGED + 'admin = ["nobody"]\n')
    status, told = live.ask("POST", "/api/v1/config:reload", login=ann)
    assert (status, "api-roles.admin" in told["message"]) == (422, True)
