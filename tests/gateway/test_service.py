"""The whole gateway as a process: ready, messages through it, restarts, and every exit status."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import stomp
from proton import Message
from proton.utils import BlockingConnection

from gateway.security.passwords import hash_password
from gateway.security.users import User, add_user
from gateway.trial.scratch import ScratchGateway, importing_environment
from tests.logs import wait_log

LOOPBACK = "tcp:0:interface=127.0.0.1"
FREE_PORTS = [
    f"acceptors.all.endpoint={LOOPBACK}",
    f"acceptors.stomp.endpoint={LOOPBACK}",
    f"management.endpoint={LOOPBACK}",
]
Start = Callable[..., ScratchGateway]


def command(*arguments: str, sets: Sequence[str] = FREE_PORTS) -> list[str]:
    given = [part for text in sets for part in ("--set", text)]
    return [sys.executable, "-m", "gateway", "run", *arguments, *given]


def run_to_end(*arguments: str, sets: Sequence[str] = FREE_PORTS, **more: Any) -> Any:
    return subprocess.run(
        command(*arguments, sets=sets),
        capture_output=True,
        text=True,
        env=importing_environment(),
        timeout=60,
        check=False,
        **more,
    )


def with_small_files(limit: int, arguments: list[str]) -> list[str]:
    """Return a command that runs `arguments` where no file may be larger than `limit` bytes."""
    script = (
        "import os, resource, sys\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        "os.execv(sys.argv[1], sys.argv[1:])\n"
    )
    return [sys.executable, "-c", script, *arguments]


def only_errors(done: Any) -> list[str]:
    """Return the lines of standard error that are no log records."""
    return [line for line in done.stderr.splitlines() if not line.startswith("{")]


def stomp_connection(port: int, user: str | None = None, password: str | None = None) -> Any:
    connection = stomp.Connection12([("127.0.0.1", port)], reconnect_attempts_max=1)
    connection.connect(user, password, wait=True)
    return connection


# ---- running


def test_amqp_and_stomp_meet_in_one_queue_and_survive_a_restart(gateway_process: Start) -> None:
    gateway = gateway_process()
    connection = BlockingConnection(f"amqp://127.0.0.1:{gateway.port}", timeout=10)
    connection.create_sender("orders").send(Message(body="from amqp", durable=True))
    connection.close()
    sender = stomp_connection(gateway.stomp_port)
    stored = stomp.listener.WaitingListener("r")
    sender.set_listener("stored", stored)
    sender.send("/queue/orders", "from stomp", receipt="r")
    stored.wait_on_receipt()
    sender.disconnect()
    assert gateway.stop() == 0

    gateway.start()
    status, view = gateway.request("GET", "/api/v1/queues/orders")
    assert (status, view["messageCount"]) == (200, 2)
    connection = BlockingConnection(f"amqp://127.0.0.1:{gateway.port}", timeout=10)
    receiver = connection.create_receiver("orders")
    bodies = []
    for _ in range(2):
        message = receiver.receive(timeout=10)
        # The view is into the message; it must be read while that is there.
        body = message.body
        bodies.append(bytes(body) if isinstance(body, memoryview) else body)
        receiver.accept()
    connection.close()
    assert bodies == ["from amqp", b"from stomp"]


def test_what_was_confirmed_survives_kill_9(gateway_process: Start) -> None:
    gateway = gateway_process()
    connection = BlockingConnection(f"amqp://127.0.0.1:{gateway.port}", timeout=10)
    sender = connection.create_sender("orders")
    for n in range(50):
        sender.send(Message(body=f"m{n}", durable=True))
    gateway.kill()
    gateway.start()
    assert gateway.request("GET", "/api/v1/queues/orders")[1]["messageCount"] == 50


def test_declared_addresses_queues_and_streams_are_there(
    gateway_process: Start, tmp_path: Path
) -> None:
    gateway = gateway_process(
        settings=(
            'addresses.orders.queues=[{name="orders",ring-size=5},{name="copy",max-consumers=1}]',
            'addresses.news.routing-type="MULTICAST"',
            'streams.tap.address="orders"',
            'address-settings."orders".max-delivery-attempts=3',
        )
    )
    queue = gateway.request("GET", "/api/v1/queues/orders")[1]
    assert (queue["ringSize"], queue["durable"], queue["autoCreated"]) == (5, True, False)
    assert gateway.request("GET", "/api/v1/queues/copy")[1]["maxConsumers"] == 1
    assert gateway.request("GET", "/api/v1/addresses/news")[1]["routingTypes"] == ["MULTICAST"]
    assert gateway.request("GET", "/api/v1/streams/tap")[1]["address"] == "orders"
    items = gateway.request("GET", "/api/v1/addresses/orders/settings")[1]["items"]
    (attempts,) = [i for i in items if i["key"] == "max-delivery-attempts"]
    assert (attempts["value"], attempts["match"]) == (3, "orders")
    assert attempts["origin"].startswith("--set ")
    # The configuration is applied again to what it finds.
    assert gateway.stop() == 0
    gateway.start()
    assert gateway.request("GET", "/api/v1/queues/orders")[1]["ringSize"] == 5


def test_a_stream_comes_back_with_what_it_recorded(gateway_process: Start) -> None:
    gateway = gateway_process(settings=('streams.tap.address="orders"',))
    connection = BlockingConnection(f"amqp://127.0.0.1:{gateway.port}", timeout=10)
    sender = connection.create_sender("orders")
    for n in range(30):
        sender.send(Message(body=f"m{n}", durable=True))
    before = gateway.request("GET", "/api/v1/streams/tap")[1]
    gateway.kill()
    gateway.start()
    after = gateway.request("GET", "/api/v1/streams/tap")[1]
    assert {k: v for k, v in before.items() if "ffset" in k or k == "epoch"} == {
        k: v for k, v in after.items() if "ffset" in k or k == "epoch"
    }
    assert 30 in after.values()


def test_a_declaration_against_what_is_stored_is_refused(gateway_process: Start) -> None:
    gateway = gateway_process(settings=('addresses.a.queues=[{name="q"}]',))
    assert gateway.stop() == 0
    sets = [*FREE_PORTS, 'addresses.b.queues=[{name="q"}]']
    done = run_to_end("--data", str(gateway.data), sets=sets)
    assert done.returncode == 64
    (line, *_) = [one for one in only_errors(done) if "queue q" in one]
    assert "is stored as ANYCAST of address a" in line


def test_users_are_asked_of_every_protocol(gateway_process: Start, tmp_path: Path) -> None:
    data = tmp_path / "gateway-0" / "data"
    data.mkdir(parents=True)
    text = add_user("", User(name="ann", password=hash_password("right")))
    (data / "users.toml").write_text(text)
    gateway = gateway_process()
    stomp_connection(gateway.port, "ann", "right").disconnect()
    for user, password in (("ann", "wrong"), ("bob", "right"), (None, None)):
        with pytest.raises(stomp.exception.ConnectFailedException):
            stomp_connection(gateway.port, user, password)
    url = f"127.0.0.1:{gateway.port}"
    BlockingConnection(f"amqp://ann:right@{url}", timeout=10).close()
    for login in ("ann:wrong@", ""):
        with pytest.raises(Exception, match=r"(?i)unauthorized|auth|mechanism"):
            BlockingConnection(f"amqp://{login}{url}", timeout=10)
    assert gateway.request("GET", "/api/v1/queues")[0] == 401
    assert gateway.request("GET", "/readyz")[0] == 200
    assert gateway.stop() == 0
    log = gateway.log.read_text()
    assert '"event": "login.refused"' in log
    assert "right" not in log


def test_clients_are_told_good_bye_and_the_stop_is_quick(gateway_process: Start) -> None:
    gateway = gateway_process()
    connection = BlockingConnection(f"amqp://127.0.0.1:{gateway.port}", timeout=10)
    receiver = connection.create_receiver("orders")
    peer = socket.create_connection(("127.0.0.1", gateway.stomp_port), timeout=10)
    peer.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
    assert peer.recv(1000).startswith(b"CONNECTED")
    begun = time.monotonic()
    assert gateway.stop() == 0
    assert time.monotonic() - begun < 5
    last = b""
    while part := peer.recv(1000):
        last += part
    assert last.startswith(b"ERROR")
    assert b"shutting-down" in last
    with pytest.raises(Exception, match=r"connection:forced|shutting|stopping|closed"):
        receiver.receive(timeout=5)


def test_the_banner_names_what_is_open(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command("--data", str(tmp_path / "d")),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=importing_environment(),
    )
    assert process.stdout is not None
    begun = time.monotonic()
    lines = [process.stdout.readline() for _ in range(7)]
    took = time.monotonic() - begun
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    process.stdout.close()
    assert re.match(r"sluicegate \S+  data \S+/d \(new\)   limits: memory \d+ MiB", lines[0])
    assert re.match(
        r"  AMQP 1.0, STOMP, WebSocket +127.0.0.1:[1-9]\d* +this machine only, any login", lines[1]
    )
    assert re.match(r"  STOMP +127.0.0.1:[1-9]\d* +this machine only", lines[2])
    assert re.match(r"  management +http://127.0.0.1:[1-9]\d*$", lines[3])
    assert lines[4] == "  next, in another terminal (Ctrl-C here stops cleanly):\n"
    assert lines[5].startswith('    sluicegate send hello "hi" --url amqp://127.0.0.1:')
    assert lines[6].startswith("    sluicegate receive hello --url amqp://127.0.0.1:")
    assert max(map(len, lines[4:])) <= 80
    assert took < 10, "ready within two seconds on an idle machine"


def test_the_log_is_json_where_no_terminal_is_and_says_what_happened(
    gateway_process: Start,
) -> None:
    gateway = gateway_process()
    assert gateway.stop() == 0
    lines = [line for line in gateway.log.read_text().splitlines() if line.startswith("{")]
    events = [json.loads(line)["event"] for line in lines]
    assert events == [
        "gateway.started",
        "store.recovered",
        "disk.watched",
        "permissions.asked_for",
        "descriptors.shared",
        "listener.opened",
        "listener.opened",
        "listener.opened",
        "gateway.ready",
        "gateway.stopping",
        "gateway.stopped",
    ]


# ---- not running


def test_a_second_gateway_on_the_same_data_names_the_first_one(gateway: ScratchGateway) -> None:
    done = run_to_end("--data", str(gateway.data))
    assert done.returncode == 75
    (first, second) = only_errors(done)
    assert first.startswith("error: already-running: ")
    for part in (str(gateway.data), str(gateway.pid), "Stop that process"):
        assert part in first
    assert second == "  try: another directory by --data, with other ports"


@pytest.mark.parametrize("command", [["data", "compact"], ["run", "--salvage", "--data"]])
def test_who_wants_this_directory_is_not_sent_to_another(
    gateway: ScratchGateway, command: list[str]
) -> None:
    done = cli(*command, str(gateway.data))
    assert done.returncode == 75
    (only,) = only_errors(done)
    assert only.startswith("error: already-running: ")
    assert "Stop that process" in only


def test_a_port_in_use_is_named(gateway: ScratchGateway, tmp_path: Path) -> None:
    sets = [*FREE_PORTS, f"acceptors.all.endpoint=tcp:{gateway.port}:interface=127.0.0.1"]
    done = run_to_end("--data", str(tmp_path / "other"), sets=sets)
    assert done.returncode == 69
    text = "\n".join(only_errors(done))
    assert (
        f"acceptors.all: 127.0.0.1:{gateway.port} cannot be opened: Address already in use" in text
    )


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (["acceptors.all.endpoint=tcp:0"], ["no user is configured", "sluicegate user add NAME"]),
        (["management.endpoint=tcp:0"], ["management.endpoint", "allow-insecure = true"]),
        (["authentication=[{type='file',path='none.toml'}]"], ["none.toml: does not exist"]),
        (["acceptors.all.endpoint=ssl:0:privateKey=/none"], ["acceptors.all"]),
    ],
)
def test_what_must_not_start_is_64(tmp_path: Path, sets: list[str], words: list[str]) -> None:
    more = [*FREE_PORTS, *sets]
    if "ssl" in sets[0]:
        more.append("allow-insecure=true")
    done = run_to_end("--data", str(tmp_path / "d"), sets=more, cwd=tmp_path)
    assert done.returncode == 64
    text = "\n".join(only_errors(done))
    assert text.startswith("error: bad-configuration: ")
    assert [word for word in words if word not in text] == []


def test_passwords_do_not_cross_a_network_as_text(tmp_path: Path) -> None:
    data = tmp_path / "d"
    data.mkdir()
    (data / "users.toml").write_text(
        add_user("", User(name="ann", password=hash_password("right")))
    )
    done = run_to_end("--data", str(data), sets=[*FREE_PORTS, "acceptors.all.endpoint=tcp:0"])
    assert done.returncode == 64
    assert "without TLS" in done.stderr


def test_allow_insecure_is_the_other_way_out(gateway_process: Start) -> None:
    gateway = gateway_process(settings=("allow-insecure=true", "acceptors.open.endpoint=tcp:0"))
    assert gateway.request("GET", "/readyz")[0] == 200


def test_a_data_directory_that_cannot_be_made_is_74() -> None:
    done = run_to_end("--data", "/proc/none/here")
    assert done.returncode == 74
    (line,) = only_errors(done)
    assert line.startswith("error: bad-data-directory: /proc/none")


def test_a_disk_without_room_is_74(tmp_path: Path) -> None:
    done = subprocess.run(
        with_small_files(1 << 20, command("--data", str(tmp_path / "d"))),
        capture_output=True,
        text=True,
        env=importing_environment(),
        timeout=60,
        check=False,
    )
    assert done.returncode == 74
    (line,) = only_errors(done)
    assert line.startswith("error: bad-data-directory: ")
    assert "File too large" in line


def test_a_damaged_journal_is_74_and_nothing_is_changed(gateway_process: Start) -> None:
    gateway = gateway_process()
    connection = BlockingConnection(f"amqp://127.0.0.1:{gateway.port}", timeout=10)
    sender = connection.create_sender("orders")
    for n in range(10):
        sender.send(Message(body=f"m{n}" * 100, durable=True))
    gateway.kill()
    (first, *_) = sorted((gateway.data / "journal").glob("0*.journal"))
    content = bytearray(first.read_bytes())
    place = content.index(b"m1m1m1")
    content[place] ^= 0xFF
    first.write_bytes(content)
    done = run_to_end("--data", str(gateway.data))
    assert done.returncode == 74
    (line,) = only_errors(done)
    assert "is damaged at offset" in line
    assert first.read_bytes() == bytes(content)


def test_a_disk_that_refuses_while_running_ends_it_with_74(tmp_path: Path) -> None:
    data = str(tmp_path / "d")
    process = subprocess.Popen(
        with_small_files(
            3 << 20, command("--data", data, sets=[*FREE_PORTS, "journal-file-size=2MiB"])
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=importing_environment(),
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(2)]
    found = re.search(r"127.0.0.1:(\d+)", lines[1])
    assert found is not None
    connection = BlockingConnection(f"amqp://127.0.0.1:{found[1]}", timeout=10)
    sender = connection.create_sender("orders")
    sender.send(Message(body="small", durable=True))
    with pytest.raises(Exception, match=r"(?i)store|closed|disconnected|internal|forced"):
        # A batch that needs a file of its own, larger than files may be.
        sender.send(Message(body=b"x" * (4 << 20), durable=True))
    _, err = process.communicate(timeout=30)
    assert process.returncode == 74, err
    assert '"event": "store.failed"' in err
    (line,) = [one for one in err.splitlines() if one.startswith("error: ")]
    assert line.startswith("error: store-failed: ")
    assert "File too large" in line

    # What was confirmed before is there when the disk has room again.
    again = subprocess.Popen(
        command("--data", data),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=importing_environment(),
    )
    assert again.stdout is not None
    lines = [again.stdout.readline() for _ in range(4)]
    found = re.search(r"http://127.0.0.1:(\d+)", lines[3])
    assert found is not None
    messages = cli_json("browse", "orders", "--json", "--url", f"http://127.0.0.1:{found[1]}")
    assert messages[0]["body"] == "small"
    assert len(messages) <= 2
    again.send_signal(signal.SIGTERM)
    assert again.wait(20) == 0
    again.stdout.close()


# ---- commands against it


def cli(*arguments: str, text: str = "", **environment: str) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "gateway", *arguments],
        input=text,
        capture_output=True,
        text=True,
        env={**importing_environment(), **environment},
        timeout=60,
        check=False,
    )


def cli_json(*arguments: str) -> list[dict[str, Any]]:
    done = cli(*arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_messages_are_sent_browsed_and_received(gateway: ScratchGateway) -> None:
    amqp = ("--url", f"amqp://127.0.0.1:{gateway.port}")
    http = ("--url", gateway.url)
    done = cli("send", "hello", "m{{n}}", "--count", "1500", "-H", "a=b", "--priority", "4", *amqp)
    assert (done.returncode, done.stdout) == (0, "1500 messages sent to hello\n")
    (sent,) = cli_json("send", "hello", "-", "--non-durable", "--json", *amqp)
    assert sent == {"address": "hello", "confirmed": 1}

    seen = cli_json("browse", "hello", "--json", "--offset", "2", "--limit", "300", *http)
    assert [m["body"] for m in seen] == [f"m{n}" for n in range(3, 303)]
    assert seen[0]["headers"] == {"a": "b"}
    shown = cli("browse", "hello", "--offset", "1499", *http)
    assert shown.stdout == "#1500: m1500\n#1501, not durable: \n"
    assert shown.stderr == "2 of 1501 messages waiting in hello\n"

    first = cli("receive", "hello", "--limit", "2", *amqp)
    assert (first.stdout, first.stderr) == ("m1\nm2\n", "2 messages received from hello\n")
    rest = cli_json("receive", "hello", "--json", "--timeout", "1", *amqp)
    assert [m["body"] for m in rest] == [*(f"m{n}" for n in range(3, 1501)), ""]
    assert rest[0]["properties"] == {"a": "b"}
    assert rest[0]["durable"] is True
    assert gateway.request("GET", "/api/v1/queues/hello")[1]["messageCount"] == 0


def test_a_rate_is_kept(gateway: ScratchGateway) -> None:
    begun = time.monotonic()
    done = cli(
        "send", "hello", "x", "--count", "5", "--rate", "10",
        "--url", f"amqp://127.0.0.1:{gateway.port}",
    )  # fmt: skip
    assert done.stdout == "5 messages sent to hello\n"
    assert time.monotonic() - begun >= 0.4


def test_refusals_carry_the_gateways_code(gateway: ScratchGateway) -> None:
    amqp = ("--url", f"amqp://127.0.0.1:{gateway.port}")
    for arguments, code in (
        (("send", "$x", "x", *amqp), "bad-name"),
        (("receive", "$x", *amqp), "bad-name"),
        (("browse", "none", "--url", gateway.url), "not-found"),
    ):
        done = cli(*arguments)
        assert done.returncode == 1
        assert done.stderr.startswith(f"error: {code}: ")


def test_a_full_address_is_told_to_the_sender(gateway_process: Start) -> None:
    gateway = gateway_process(
        settings=(
            'address-settings."small".max-size-messages=2',
            'address-settings."small".address-full-policy="FAIL"',
        )
    )
    done = cli("send", "small", "x", "--count", "5", "--url", f"amqp://127.0.0.1:{gateway.port}")
    assert done.returncode == 1
    assert done.stderr.startswith("error: address-full: ")
    assert "max-size-messages is 2" in done.stderr


def test_explain_asks_the_running_gateway(gateway_process: Start) -> None:
    gateway = gateway_process(settings=('address-settings."a.#".default-ring-size=7',))
    done = cli("explain", "a.b", "--url", gateway.url, "--json")
    items = {i["key"]: i for i in json.loads(done.stdout)["items"]}
    assert (items["default-ring-size"]["value"], items["default-ring-size"]["match"]) == (7, "a.#")
    assert items["default-ring-size"]["origin"].startswith("--set ")


def test_commands_log_in(gateway_process: Start, tmp_path: Path) -> None:
    data = str(tmp_path / "gateway-0" / "data")
    assert (
        cli("user", "add", "ann", "--password-stdin", "--data", data, text="pw\n").returncode == 0
    )
    gateway = gateway_process()
    amqp = ("--url", f"amqp://127.0.0.1:{gateway.port}")
    assert cli("send", "a", "x", "--user", "ann", *amqp, SLUICEGATE_PASSWORD="pw").returncode == 0
    browse = ("browse", "a", "--user", "ann", "--password-stdin", "--url", gateway.url)
    assert cli(*browse, text="pw\n").stdout == "#1: x\n"
    for done in (
        cli("send", "a", "x", *amqp),
        cli("send", "a", "x", "--user", "ann", *amqp, SLUICEGATE_PASSWORD="no"),
        cli(*browse, text="no\n"),
        cli("browse", "a", "--url", gateway.url),
    ):
        assert done.returncode == 1
        assert done.stderr.startswith("error: not-authorized: ")
        assert "try: --user NAME" in done.stderr


def test_a_readable_users_file_is_told(gateway_process: Start, tmp_path: Path) -> None:
    data = tmp_path / "gateway-0" / "data"
    data.mkdir(parents=True)
    users = data / "users.toml"
    users.write_text(add_user("", User(name="ann", password=hash_password("x"))))
    users.chmod(0o644)
    gateway = gateway_process()
    wait_log(gateway, '"event": "users.readable_by_others"')


# ---- twist


def test_twist_runs_the_same_service(tmp_path: Path) -> None:
    file = tmp_path / "f.toml"
    file.write_text(
        f'data-directory = "d"\n[acceptors.all]\nendpoint = "{LOOPBACK}"\n'
        f'[management]\nendpoint = "{LOOPBACK}"\n'
    )
    script = (
        "import sys\n"
        "from twisted.application.twist._twist import Twist\n"
        "from twisted.application.twist import _options\n"
        "from gateway.twist_plugin import sluicegate\n"
        "_options.getPlugins = lambda *a: [sluicegate]\n"
        "Twist.main(['twist', *sys.argv[1:]])\n"
    )
    run = [sys.executable, "-c", script, "sluicegate"]
    process = subprocess.Popen(
        [*run, "--config", str(file)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=importing_environment(),
    )
    assert process.stderr is not None
    while "gateway.ready" not in (line := process.stderr.readline()):
        assert line, "it ended before it was ready"
    second = subprocess.run(
        [*run, "--config", str(file)],
        capture_output=True,
        text=True,
        env=importing_environment(),
        timeout=60,
        check=False,
    )
    assert second.returncode == 75
    assert "already-running" in second.stderr
    process.send_signal(signal.SIGTERM)
    assert "gateway.stopped" in process.stderr.read()
    assert process.wait(20) in (0, -signal.SIGTERM)
    process.stderr.close()

    wrong = subprocess.run(
        [*run, "--set", "nam=1"],
        capture_output=True,
        text=True,
        env={**importing_environment(), "HOME": os.fspath(tmp_path)},
        timeout=60,
        check=False,
    )
    assert wrong.returncode == 64
    assert "did you mean name?" in wrong.stdout + wrong.stderr
