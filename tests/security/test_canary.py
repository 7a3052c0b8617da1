"""No secret is where it does not belong: canaries go in at every door, and all is searched.

A gateway runs with debug logs, an audit trail and its log echo. Right and wrong passwords, tokens,
credentials of a store and a private key go in over every door, well formed and broken. Then the
log, the trail, the whole data directory, every answer to a client, and every answer of the API are
searched for them, as they are and as base64.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.cli.main import COMMANDS
from gateway.management.http import SAFE_METHODS
from gateway.security.around import load_users
from gateway.trial.scratch import HOST, ScratchGateway
from gateway.trial.self_signed import self_signed
from tests.audit.test_live import add_user, sluicegate
from tests.logs import wait_records
from tests.reference.http_api import routes
from tests.secure import connected

RIGHT = "canary-right-4f1d9a"
WRONG = "canary-wrong-77c0e2"
TOKEN = "eyJhbGciOiJub25lIn0.canary-token-b81f.c2ln"
STORE = "canary-store-9d3e55"
CANARIES = (RIGHT, WRONG, TOKEN, "canary-token-b81f", STORE)


def forms(secret: str) -> Iterator[bytes]:
    """Yield a secret as clients send it: plain, and in base64 at each of the three offsets."""
    yield secret.encode()
    for before in range(3):
        coded = base64.b64encode(b"x" * before + secret.encode())
        yield coded[4 if before else 0 : len(coded) - 4]


def leaks(where: str, data: bytes) -> list[str]:
    return [f"{secret} in {where}" for secret in CANARIES for one in forms(secret) if one in data]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScratchGateway]:
    folder = tmp_path_factory.mktemp("canary")
    pair = self_signed(folder)
    certificate, key = pair.certificate, pair.key
    os.environ.update(AWS_SECRET_ACCESS_KEY=STORE, SLUICEGATE_TEST_CANARY=STORE)
    made = ScratchGateway(
        folder,
        settings=[
            'logging.level="debug"',
            'logging.format="json"',
            "audit.to-log=true",
            'acceptors.secure.endpoint="tcp:0:interface=127.0.0.1"',
            f'acceptors.secure.tls.certificate="{certificate}"',
            f'acceptors.secure.tls.key="{key}"',
        ],
    )
    add_user(made, "ann", RIGHT)
    made.start()
    made.key = key  # type: ignore[attr-defined]
    yield made
    if made.running():
        made.kill()
    for name in ("AWS_SECRET_ACCESS_KEY", "SLUICEGATE_TEST_CANARY"):
        del os.environ[name]


def exchanged(gateway: ScratchGateway, *parts: bytes) -> bytes:
    """Send parts, and return all that comes until the other side ends or has no more to say."""
    came = b""
    with connected(gateway.port) as peer:
        peer.socket.settimeout(2)
        with contextlib.suppress(OSError):
            for part in parts:
                peer.sendall(part)
                came += peer.recv()
            while more := peer.recv():
                came += more
    return came


def frame(body: bytes, kind: int) -> bytes:
    return (8 + len(body)).to_bytes(4, "big") + bytes([2, kind, 0, 0]) + body


def plain_login(user: str, password: str) -> bytes:
    """A sasl-init with PLAIN."""
    response = b"\0" + user.encode() + b"\0" + password.encode()
    fields = b"\xa3\x05PLAIN" + b"\xa0" + bytes([len(response)]) + response
    return frame(b"\0\x53\x41\xc0" + bytes([len(fields) + 1, 2]) + fields, 1)


def amqp(gateway: ScratchGateway, password: str) -> bytes:
    return exchanged(gateway, b"AMQP\x03\1\0\0", plain_login("ann", password))


def stomp(gateway: ScratchGateway, *lines: str, command: str = "CONNECT") -> bytes:
    head = "\n".join([command, "accept-version:1.2", "host:x", *lines])
    return exchanged(gateway, f"{head}\n\n\0".encode())


def asked(
    gateway: ScratchGateway, method: str, path: str, authorization: str, body: str | None = None
) -> bytes:
    connection = http.client.HTTPConnection(HOST, gateway.management_port, timeout=20)
    headers = {"Authorization": authorization} if authorization else {}
    if body is not None:
        headers["Content-Type"] = "application/json"
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return str(answer.headers).encode() + answer.read()
    finally:
        connection.close()


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"ann:{password}".encode()).decode()


def upgrade(gateway: ScratchGateway, authorization: str, *inside: bytes) -> bytes:
    head = (
        f"GET /stomp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {'A' * 22}==\r\n"
        f"Sec-WebSocket-Protocol: v12.stomp\r\nAuthorization: {authorization}\r\n\r\n"
    )
    assert all(len(part) < 126 for part in inside)
    framed = [b"\x81" + bytes([0x80 | len(p)]) + b"\0" * 4 + p for p in inside]
    return exchanged(gateway, head.encode(), *framed)


def every_door(gateway: ScratchGateway) -> dict[str, bytes]:
    """Go in everywhere, rightly and wrongly; returns what came back."""
    said = {
        "amqp right": amqp(gateway, RIGHT),
        "amqp wrong": amqp(gateway, WRONG),
        "amqp broken": exchanged(gateway, b"AMQP\x03\1\0\0", frame(WRONG.encode(), 1)),
        "amqp cut": exchanged(gateway, b"AMQP\x03\1\0\0", plain_login("ann", WRONG)[:-4]),
        "stomp right": stomp(gateway, "login:ann", f"passcode:{RIGHT}"),
        "stomp wrong": stomp(gateway, "login:ann", f"passcode:{WRONG}"),
        "stomp broken": stomp(gateway, "login:ann", f"passcode:{WRONG}", "no-colon"),
        "stomp escape": stomp(gateway, "login:ann", f"passcode:{WRONG}\\t", command="STOMP"),
        "stomp command": stomp(gateway, f"passcode:{WRONG}", command="CONNECTX"),
        "stomp twice": stomp(gateway, "login:ann", f"passcode:{WRONG}", f"passcode:{TOKEN}"),
        "stomp token": stomp(gateway, "login:", f"passcode:{TOKEN}"),
        "web wrong": upgrade(
            gateway, f"Bearer {TOKEN}",
            f"CONNECT\naccept-version:1.2\nhost:x\nlogin:ann\npasscode:{WRONG}\n\n\0".encode(),
        ),
        "web right": upgrade(
            gateway, basic(RIGHT),
            f"CONNECT\naccept-version:1.2\nhost:x\nlogin:ann\npasscode:{RIGHT}\n\n\0".encode(),
        ),
        "http wrong": asked(gateway, "GET", "/api/v1/queues", basic(WRONG)),
        "http token": asked(gateway, "GET", "/api/v1/queues", f"Bearer {TOKEN}"),
        "http cookie": asked(gateway, "DELETE", "/api/v1/queues/x", f"Digest {WRONG}"),
        "http body": asked(
            gateway, "POST", "/api/v1/queues", basic(RIGHT),
            json.dumps({"name": "q", "address": "a", "password": WRONG}),
        ),
        "http reload": asked(gateway, "POST", "/api/v1/config:reload", basic(RIGHT), "{}"),
        "smuggled": exchanged(gateway, f"POST / HTTP/1.1\r\nX-Token: {TOKEN}\r\n\r\n".encode()),
    }  # fmt: skip
    for user, password in (("ann", RIGHT), ("ann", WRONG), ("nobody", WRONG)):
        done = sluicegate(
            "send", "canaries", "hello", "--url", f"amqp://{HOST}:{gateway.port}",
            "--user", user, "--password-stdin", stdin=password + "\n",
        )  # fmt: skip
        said[f"send as {user} {password}"] = (done.stdout + done.stderr).encode()
    return said


def test_no_canary_is_where_it_does_not_belong(gateway: ScratchGateway) -> None:
    said = every_door(gateway)
    assert b"CONNECTED" in said["stomp right"]
    assert b"ERROR" in said["stomp wrong"]
    assert b"CONNECTED" in said["web right"]
    assert b"CONNECTED" not in said["web wrong"]
    assert b"401" in said["http wrong"] or b"not-authorized" in said["http wrong"]
    wait_records(gateway, "login.refused", user="ann")
    for method, template, *_ in routes().found:
        if method in SAFE_METHODS:
            path = template
            for name, value in (("{name}", "canaries"), ("{id}", "1"), ("{sequence}", "1")):
                path = path.replace(name, value)
            said[f"GET {path}"] = asked(gateway, "GET", path, basic(RIGHT))
    assert b"sluicegate_" in said["GET /metrics"]
    for arguments in (
        ("audit", "print", "--json"), ("audit", "verify"), ("doctor", "--offline"),
    ):  # fmt: skip
        done = sluicegate(*arguments, "--data", str(gateway.data))
        said[" ".join(arguments)] = (done.stdout + done.stderr).encode()
    assert {"audit", "doctor"} <= COMMANDS.keys()

    os.kill(gateway.pid, signal.SIGABRT)  # a crash, in its directory
    with contextlib.suppress(subprocess.TimeoutExpired):
        gateway._process.wait(20)  # type: ignore[union-attr]
    cores = [path for path in (Path.cwd(), gateway.data) for path in path.glob("core*")]
    assert [path for path in cores if path.is_file()] == []

    found = [leak for where, data in said.items() for leak in leaks(where, data)]
    files = [path for path in gateway.data.parent.rglob("*") if path.is_file()]
    assert {"gateway.log", "users.toml", "audit.jsonl"} <= {path.name for path in files}
    for path in files:
        found += leaks(str(path), path.read_bytes())
    assert found == []
    # The key of a listener is in its own file, and nowhere else.
    key: Path = gateway.key  # type: ignore[attr-defined]
    line = key.read_bytes().splitlines()[2]
    assert [path for path in files if line in path.read_bytes()] == [key]
    assert not any(line in data for data in said.values())


def test_what_is_searched_for_would_be_found() -> None:
    for before in range(3):
        coded = base64.b64encode(b"y" * before + RIGHT.encode() + b"zz")
        assert leaks("here", b"..." + coded + b"..."), before
    assert leaks("here", f"passcode:{WRONG}".encode())
    assert leaks("here", b"nothing") == []


def test_no_repr_of_a_user_shows_a_hash(gateway: ScratchGateway) -> None:
    path = gateway.data / "users.toml"
    users = load_users(str(path), required=True)
    stored = users["ann"].password.reveal()
    assert stored in path.read_text("utf-8")
    assert stored not in repr(users)
    assert stored not in str(users["ann"])
    assert stored.encode() not in gateway.log.read_bytes()
