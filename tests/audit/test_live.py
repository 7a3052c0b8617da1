"""A gateway keeps its trail: logins, refusals, changes, reloads, a flood, a kill, a full disk."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.trial.scratch import HOST, ScratchGateway, importing_environment
from tests.logs import records, wait_records
from tests.secure import connected

SECONDS = 20.0
WRONG = "a-wrong-password-of-ours"
RIGHT = "the-right-password-of-ann"


def sluicegate(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        env=importing_environment(),
        check=False,
    )


def add_user(gateway: ScratchGateway, name: str, password: str) -> None:
    done = sluicegate(
        "user", "add", name, "--password-stdin", "--scram", "--data", str(gateway.data),
        stdin=password + "\n",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def verified(gateway: ScratchGateway, *options: str) -> dict[str, Any]:
    done = sluicegate("audit", "verify", "--json", "--data", str(gateway.data), *options)
    assert done.returncode in (0, 1), done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["sound"] == (done.returncode == 0)
    return report


def lines(gateway: ScratchGateway, event: str = "", **facts: object) -> list[dict[str, Any]]:
    found = []
    for path in sorted((gateway.data / "audit").glob("audit.jsonl*"), key=lambda p: len(p.name)):
        if not path.name.endswith(".head"):
            found += [json.loads(line) for line in path.read_text().splitlines()]
    return [
        one for one in found if event in ("", one["event"]) and facts.items() <= one.items()
    ]  # fmt: skip


def wait_lines(gateway: ScratchGateway, event: str, count: int = 1, **facts: object) -> list[Any]:
    end = time.monotonic() + SECONDS
    while len(found := lines(gateway, event, **facts)) < count:
        assert time.monotonic() < end, f"no {event} {facts} in {lines(gateway)[-30:]}"
        time.sleep(0.05)
    return found


def stomp_login(gateway: ScratchGateway, user: str, password: str) -> bytes:
    with connected(gateway.port) as peer:
        head = f"CONNECT\naccept-version:1.2\nhost:x\nlogin:{user}\npasscode:{password}\n\n\0"
        peer.sendall(head.encode())
        first = peer.recv()
        if first.startswith(b"CONNECTED"):
            peer.sendall(b"SEND\ndestination:orders\nreceipt:r\n\nthe-body\0")
            peer.until(b"RECEIPT")
            peer.sendall(b"DISCONNECT\nreceipt:bye\n\n\0")
            peer.rest()
        return first


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[ScratchGateway]:
    made = ScratchGateway(tmp_path)
    add_user(made, "ann", RIGHT)
    made.start()
    yield made
    if made.running():
        made.stop()


def api(
    gateway: ScratchGateway, method: str, path: str, body: object = None, password: str = RIGHT
) -> int:
    import base64
    import http.client

    connection = http.client.HTTPConnection(HOST, gateway.management_port, timeout=10)
    login = base64.b64encode(f"ann:{password}".encode()).decode()
    headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_who_came_in_and_who_changed_what_is_on_record(gateway: ScratchGateway) -> None:
    assert stomp_login(gateway, "ann", WRONG).startswith(b"ERROR")
    assert stomp_login(gateway, "ann", RIGHT).startswith(b"CONNECTED")
    assert api(gateway, "GET", "/api/v1/queues", password=WRONG) == 401
    assert api(gateway, "POST", "/api/v1/queues", {"name": "q", "address": "a"}) == 201
    assert api(gateway, "POST", "/api/v1/queues/orders/removeAllMessages", {}) == 200
    assert api(gateway, "DELETE", "/api/v1/queues/none") == 404
    add_user(gateway, "bob", RIGHT)
    assert api(gateway, "POST", "/api/v1/config:reload", {}) == 200
    assert gateway.stop() == 0

    (refused, http_refused) = lines(gateway, "login.refused")
    assert refused["user"] == "ann"
    assert refused["remote"] == HOST
    assert (refused["listener"], refused["protocol"]) == ("acceptors.all", "STOMP")
    assert (refused["reason"], refused["by"]) == ("wrong-password", "password")
    assert (http_refused["listener"], http_refused["protocol"]) == ("management", "HTTP")
    accepted, http_accepted = lines(gateway, "login.accepted")
    assert (accepted["user"], accepted["protocol"]) == ("ann", "STOMP 1.2")
    assert accepted["listener"] == "acceptors.all"
    assert accepted["by"] == "password"
    assert accepted["remote"].startswith(f"{HOST}:")
    assert http_accepted["listener"] == "management"
    (left,) = lines(gateway, "connection.closed")
    assert (left["user"], left["messages_in"], left["messages_out"]) == ("ann", 1, 0)
    assert left["bytes_in"] > 0
    assert left["connection"] == accepted["connection"]
    (purged,) = lines(gateway, "api.changed", of_name="orders")
    assert (purged["user"], purged["remote"], purged["messages"]) == ("ann", HOST, 1)
    assert purged["route"].endswith("/removeAllMessages")
    (made,) = lines(gateway, "api.changed", route="/api/v1/queues")
    assert made["body"] == {"name": "q", "address": "a"}
    (none,) = lines(gateway, "api.change_refused")
    assert (none["of_name"], none["code"]) == ("none", "not-found")
    changed = lines(gateway, "user.changed")[0]
    assert (changed["key"], changed["new"]) == ("users.bob", "present")
    assert lines(gateway, "config.reloaded")[0]["why"] == "API"
    assert [one["event"] for one in lines(gateway)][:2] == ["audit.opened", "gateway.started"]
    assert lines(gateway)[-1]["event"] == "gateway.stopped"
    assert verified(gateway)["findings"] == []
    whole = "".join(path.read_text() for path in (gateway.data / "audit").iterdir())
    assert WRONG not in whole
    assert RIGHT not in whole
    assert "the-body" not in whole


def test_a_kill_tears_nothing_that_was_synced_and_the_chain_goes_on(
    gateway: ScratchGateway,
) -> None:
    for _ in range(3):
        for _ in range(20):
            stomp_login(gateway, "ann", RIGHT)
        gateway.kill()
        newest = gateway.data / "audit" / "audit.jsonl"
        with newest.open("ab") as file:  # as a kill in the midst of a write leaves it
            file.write(b'{"seq":99,"prev":"')
        gateway.start()
    assert gateway.stop() == 0
    report = verified(gateway)
    assert {one["code"] for one in report["findings"]} == {"torn"}
    assert len(report["findings"]) == 3
    assert len(lines_that_are_whole(newest, "audit.resumed")) == 3
    seqs = lines_that_are_whole(newest)
    assert seqs == list(range(1, len(seqs) + 1))


def lines_that_are_whole(path: Path, event: str = "") -> list[int]:
    found = []
    for line in path.read_bytes().splitlines():
        try:
            one = json.loads(line)
        except ValueError:
            continue
        if event in ("", one["event"]):
            found.append(one["seq"])
    return found


def test_what_was_tampered_with_while_it_was_down_is_told_by_the_start(
    gateway: ScratchGateway,
) -> None:
    stomp_login(gateway, "ann", WRONG)
    assert gateway.stop() == 0
    newest = gateway.data / "audit" / "audit.jsonl"
    newest.write_text(newest.read_text().replace("wrong-password", "right-password"))
    assert [one["code"] for one in verified(gateway)["findings"]] == ["changed"]
    gateway.start()
    assert "changed" in wait_records(gateway, "audit.tampered")[0]["fault"]
    assert gateway.stop() == 0
    codes = {one["code"] for one in verified(gateway)["findings"]}
    assert {"changed", "fault-told"} <= codes


def test_a_flood_of_wrong_logins_is_summed_up(tmp_path: Path) -> None:
    gateway = ScratchGateway(tmp_path)
    add_user(gateway, "ann", RIGHT)
    with gateway:
        with connected(gateway.port) as peer:
            peer.sendall(b"x")
        for number in range(160):
            stomp_login(gateway, f"u{number % 3}", WRONG)
        assert gateway.stop() == 0
    assert len(lines(gateway, "login.refused")) == 100
    (more,) = lines(gateway, "audit.summed")
    assert (more["of"], more["count"], sum(more["users"].values())) == ("login.refused", 60, 60)
    assert more["remotes"] == {HOST: 60}


@pytest.mark.parametrize("stops", [False, True])
def test_a_place_that_cannot_be_written_is_an_alarm_or_the_end(
    tmp_path: Path, *, stops: bool
) -> None:
    """The folder of the trail is a file: as a disk that takes nothing, for root as well."""
    how = "stop" if stops else "warn"
    gateway = ScratchGateway(tmp_path, settings=[f'audit.on-failure="{how}"'])
    add_user(gateway, "ann", RIGHT)
    (gateway.data / "audit").write_text("in the way")
    if stops:
        gateway_ends(gateway)
        return
    with gateway:
        wait_records(gateway, "audit.failed", stops=False)
        _, ready = gateway.request("GET", "/readyz")
        assert isinstance(ready, dict)
        assert "audit" in ready["auditFails"]
        assert stomp_login(gateway, "ann", WRONG).startswith(b"ERROR")
        (gateway.data / "audit").unlink()
        wait_records(gateway, "audit.goes_on")
        assert wait_lines(gateway, "login.refused")
        _, ready = gateway.request("GET", "/readyz")
        assert "auditFails" not in str(ready)
    assert verified(gateway)["findings"] == []


def gateway_ends(gateway: ScratchGateway) -> None:
    done = subprocess.run(
        gateway.command(),
        capture_output=True,
        text=True,
        timeout=60,
        env=importing_environment(),
        check=False,
    )
    assert done.returncode == 74
    assert "audit.on-failure is stop" in done.stderr


def test_nothing_is_kept_without_users_or_where_it_is_switched_off(tmp_path: Path) -> None:
    gateway = ScratchGateway(tmp_path / "open")
    with gateway:
        assert gateway.request("DELETE", "/api/v1/queues/none")[0] == 404
    assert not (gateway.data / "audit").exists()
    off = ScratchGateway(tmp_path / "off", settings=["audit.enabled=false"])
    add_user(off, "ann", RIGHT)
    with off:
        stomp_login(off, "ann", RIGHT)
    assert not (off.data / "audit").exists()
    on = ScratchGateway(tmp_path / "on", settings=["audit.enabled=true", "audit.to-log=true"])
    with on:
        assert on.request("DELETE", "/api/v1/queues/none")[0] == 404
        wait_records(on, "audit.noted", of="api.change_refused")
    assert lines(on, "api.change_refused")


def test_the_first_user_switches_it_on(tmp_path: Path) -> None:
    """The users file is watched: nobody has to reload."""
    gateway = ScratchGateway(tmp_path)
    with gateway:
        add_user(gateway, "ann", RIGHT)
        assert wait_lines(gateway, "user.changed", key="users.ann", new="present")
        assert stomp_login(gateway, "ann", WRONG).startswith(b"ERROR")
        assert wait_lines(gateway, "login.refused", user="ann")


def test_what_a_role_may_not_do_is_on_record_with_address_and_permission(tmp_path: Path) -> None:
    gateway = ScratchGateway(tmp_path, settings=['security-settings."#".consume=["worker"]'])
    done = sluicegate(
        "user", "add", "ann", "--password-stdin", "--role", "admin", "--data", str(gateway.data),
        stdin=RIGHT + "\n",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with gateway, connected(gateway.port) as peer:
        head = f"CONNECT\naccept-version:1.2\nhost:x\nlogin:ann\npasscode:{RIGHT}\n\n\0"
        peer.sendall(head.encode())
        assert peer.recv().startswith(b"CONNECTED")
        peer.sendall(b"SEND\ndestination:secrets\n\nx\0")
        assert b"not-authorized" in peer.rest()
        refused = wait_lines(gateway, "permission.refused")
    assert {(one["user"], one["address"]) for one in refused} == {("ann", "secrets")}
    assert "send" in {one["permission"] for one in refused}


def test_personal_data_is_left_out_where_that_is_said(tmp_path: Path) -> None:
    gateway = ScratchGateway(tmp_path, settings=["audit.personal-data=false"])
    add_user(gateway, "ann-the-person", RIGHT)
    with gateway:
        stomp_login(gateway, "ann-the-person", RIGHT)
        stomp_login(gateway, "ann-the-person", WRONG)
    kept = lines(gateway)
    assert {"login.accepted", "login.refused", "connection.closed"} <= {o["event"] for o in kept}
    assert not any("ann-the-person" in json.dumps(one) or HOST in json.dumps(one) for one in kept)


def test_lines_are_sealed_with_a_key(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"x" * 16)
    key.chmod(0o640)
    gateway = ScratchGateway(tmp_path, settings=[f'audit.key-file="{key}"'])
    add_user(gateway, "ann", RIGHT)
    for text in ("can be read by others", "has 32 bytes or more"):
        done = subprocess.run(
            gateway.command(), capture_output=True, text=True, timeout=60, check=False,
            env=importing_environment(),
        )  # fmt: skip
        assert done.returncode == 64
        assert "audit.key-file" in done.stderr
        assert str(key) in done.stderr
        if text in done.stderr:
            key.chmod(0o600)
    key.write_bytes(b"x" * 32)
    with gateway:
        stomp_login(gateway, "ann", RIGHT)
    assert verified(gateway, "--set", f'audit.key-file="{key}"')["findings"] == []
    assert verified(gateway, "--key", str(key))["findings"] == []
    assert {one["code"] for one in verified(gateway)["findings"]} >= {"no-key"}


def test_it_is_printed_by_user_event_address_and_time(gateway: ScratchGateway) -> None:
    stomp_login(gateway, "ann", RIGHT)
    stomp_login(gateway, "zed", WRONG)
    api(gateway, "DELETE", "/api/v1/queues/orders")
    assert gateway.stop() == 0

    def printed(*options: str) -> list[str]:
        done = sluicegate("audit", "print", "--data", str(gateway.data), *options)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert len(printed()) == len(lines(gateway))
    (zed,) = printed("--user", "zed")
    assert "login.refused" in zed
    assert "reason=wrong-password" in zed
    assert len(printed("--event", "login.")) == 3
    (about,) = printed("--address", "orders")
    assert "api.change" in about
    assert printed("--since", "1h") == printed()
    assert printed("--until", "1h") == []
    assert printed("--remote", HOST, "--event", "login.refused") == [zed]
    (as_json,) = printed("--user", "zed", "--json")
    assert json.loads(as_json)["user"] == "zed"
    shutil.rmtree(gateway.data / "audit")
    done = sluicegate("audit", "verify", "--data", str(gateway.data))
    assert done.returncode == 74
    assert "no-audit" in done.stderr


def test_no_line_of_the_log_was_lost_to_it(gateway: ScratchGateway) -> None:
    stomp_login(gateway, "ann", RIGHT)
    assert gateway.stop() == 0
    assert len(records(gateway, "login.accepted")) == 1
