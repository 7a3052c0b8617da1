"""What strangers may not learn, fill or take: with the real process."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from gateway.security.passwords import hash_password
from gateway.security.users import User, add_user
from gateway.security.verifiers import make_verifier
from gateway.trial.scratch import HOST, ScratchGateway
from tests.gateway.stomp_peer import StompPeer

SCRAM = "SCRAM-SHA-256"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScratchGateway]:
    folder = tmp_path_factory.mktemp("strangers")
    (folder / "data").mkdir()
    ann = User(
        name="ann", password=hash_password("tea"), verifiers={SCRAM: make_verifier(SCRAM, "tea")}
    )
    (folder / "data" / "users.toml").write_text(add_user("", ann))
    with ScratchGateway(folder) as one:
        yield one


def sasl(port: int, mechanism: str, response: bytes) -> bytes:
    """Return what follows the offer when a login begins with `response`."""
    name = mechanism.encode()
    fields = b"\xa3" + bytes([len(name)]) + name + b"\xa0" + bytes([len(response)]) + response
    body = b"\x00\x53\x41\xc0" + bytes([len(fields) + 1, 2]) + fields
    with socket.create_connection((HOST, port), timeout=10) as peer:
        frame = (len(body) + 8).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body
        peer.sendall(b"AMQP\x03\x01\x00\x00" + frame)
        came = b""
        while b"\x00\x53\x42" not in came and b"\x00\x53\x44" not in came:
            data = peer.recv(4096)
            if not data:
                break
            came += data
        return came


def test_scram_says_as_much_of_unknown_names_as_of_users(gateway: ScratchGateway) -> None:
    shapes = set()
    for user in (b"ann", b"eve", b"zoe", b"bob"):
        came = sasl(gateway.port, SCRAM, b"n,,n=" + user + b",r=abcdefgh")
        first = came[came.index(b"r=abcdefgh") :]
        salt = first[first.index(b",s=") + 3 : first.index(b",i=")]
        shapes.add((len(salt), first[first.index(b",i=") :]))
    assert len(shapes) == 1


def test_plain_for_somebody_else_is_refused(gateway: ScratchGateway) -> None:
    ok, auth = b"\x00\x53\x44\xc0\x03\x01\x50\x00", b"\x00\x53\x44\xc0\x03\x01\x50\x01"
    assert ok in sasl(gateway.port, "PLAIN", b"\0ann\0tea")
    assert ok in sasl(gateway.port, "PLAIN", b"ann\0ann\0tea")
    assert auth in sasl(gateway.port, "PLAIN", b"root\0ann\0tea")


def test_failed_logins_do_not_fill_the_log(gateway: ScratchGateway) -> None:
    before = gateway.log.stat().st_size
    for number in range(300):
        peer = StompPeer(gateway.stomp_port, (f"nobody{number % 3}", "x"))
        assert peer.greeting[0] == "ERROR"
        peer.close()
    # A handful of lines for each of ten of them, and none for the others.
    assert gateway.log.stat().st_size - before < 20_000
    lines = gateway.log.read_text().splitlines()
    events = [json.loads(line)["event"] for line in lines if line.startswith("{")]
    assert 1 <= events.count("login.refused") <= 20


@pytest.mark.parametrize("name", ["activemq.management", "activemq.notifications"])
def test_addresses_of_the_gateway_are_not_sent_to(gateway: ScratchGateway, name: str) -> None:
    for where in (name, f"/queue/{name}", f"/topic/{name}", f"{name}::{name}"):
        peer = StompPeer(gateway.stomp_port, ("ann", "tea"))
        peer.send(where, b"forged", "r")
        command, headers, _ = peer.read()
        assert command == "ERROR"
        assert name in headers["message"]
        peer.close()


@pytest.mark.parametrize("mark", ["\u202e", "\u2066", "\u200f", "\u061c"])
def test_names_that_show_as_others_are_refused(gateway: ScratchGateway, mark: str) -> None:
    peer = StompPeer(gateway.stomp_port, ("ann", "tea"))
    peer.send(f"/queue/a{mark}b", b"x", "r")
    command, headers, _ = peer.read()
    assert command == "ERROR"
    assert "direction of text" in headers["message"]
    peer.close()


def http(gateway: ScratchGateway, request: bytes) -> bytes:
    with socket.create_connection((HOST, gateway.management_port), timeout=10) as peer:
        peer.sendall(request)
        came = b""
        while b"\r\n\r\n" not in came and (data := peer.recv(65536)):
            came += data
        return came


LOGIN = b"Authorization: Basic YW5uOnRlYQ==\r\n"


def test_every_status_has_its_phrase(gateway: ScratchGateway) -> None:
    wrong_host = http(gateway, b"GET /livez HTTP/1.1\r\nHost: evil.example\r\n\r\n")
    assert wrong_host.startswith(b"HTTP/1.1 421 Misdirected Request\r\n")
    bad = http(
        gateway, b"GET /api/v1/queues?limit=-5 HTTP/1.1\r\nHost: localhost\r\n" + LOGIN + b"\r\n"
    )
    assert bad.startswith(b"HTTP/1.1 422 Unprocessable Content\r\n")


def test_a_chunk_that_is_larger_than_any_body_is_not_waited_for(gateway: ScratchGateway) -> None:
    head = b"POST /api/v1/queues HTTP/1.1\r\nHost: localhost\r\n" + LOGIN
    head += b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert b" 413 " in http(gateway, head + b"7fffffff\r\n{").partition(b"\r\n")[0]


@pytest.mark.parametrize("kind", [b"", b"GET /liv"])
def test_management_sockets_that_do_nothing_do_not_shut_livez_out(
    gateway: ScratchGateway, kind: bytes
) -> None:
    idle = []
    for _ in range(400):
        one = socket.create_connection((HOST, gateway.management_port), timeout=10)
        one.sendall(kind)
        idle.append(one)
    assert gateway.request("GET", "/livez")[0] == 200
    for one in idle:
        one.close()
