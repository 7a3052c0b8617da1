"""Sockets that do nothing take neither the journal's descriptors nor management's."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.process.descriptors import MANAGEMENT_MIN, share_out
from gateway.security.passwords import hash_password
from gateway.security.users import User, add_user
from gateway.trial.scratch import HOST, ScratchGateway
from tests.certificates import Authority
from tests.gateway.stomp_peer import StompPeer

FEW = 256
#: More than there are descriptors; a gateway of the test before took all of them.
SOCKETS = 400
SETTINGS = ["journal-file-size=1MiB", "ballast-size=2MiB"]
HELLO = {
    "silent": b"",
    "amqp": b"AMQP\x03\x01\x00\x00",
    "stomp": b"CONNECT\naccept-version:1.2\n",
    "tls": b"\x16\x03\x01\x02\x00",
    "http": b"GET /livez HTTP/1.1\r\n",
}


class FewDescriptors(ScratchGateway):
    """A gateway process that may have few files open."""

    most = FEW

    def command(self) -> list[str]:
        script = f'ulimit -n {self.most}; exec "$@"'
        return ["sh", "-c", script, "sh", *super().command()]


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[ScratchGateway]:
    with FewDescriptors(tmp_path / "gateway", settings=SETTINGS) as one:
        yield one


@contextlib.contextmanager
def idle_sockets(port: int, hello: bytes, count: int = SOCKETS) -> Iterator[list[socket.socket]]:
    """Many sockets that say `hello` and nothing more."""
    found = []
    try:
        for _ in range(count):
            one = socket.create_connection((HOST, port), timeout=10)
            found.append(one)
            with contextlib.suppress(OSError):  # it had to make room already
                one.sendall(hello)
        yield found
    finally:
        for one in found:
            one.close()


def fill_segments(port: int, login: tuple[str, str] | None = None) -> None:
    """Send more than a journal file holds, each message confirmed."""
    peer = StompPeer(port, login)
    for number in range(6):
        peer.send("/queue/q", b"x" * 400_000, f"r{number}")
        assert peer.read()[1]["receipt-id"] == f"r{number}"
    peer.close()


def descriptors_of(gateway: ScratchGateway) -> int:
    return len(list(Path(f"/proc/{gateway.pid}/fd").iterdir()))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", HELLO)
def test_idle_sockets_leave_the_journal_its_descriptors(gateway: ScratchGateway, kind: str) -> None:
    port = gateway.management_port if kind == "http" else gateway.port
    with idle_sockets(port, HELLO[kind]), idle_sockets(gateway.stomp_port, b""):
        fill_segments(gateway.stomp_port)
        fill_segments(gateway.port)
        for _ in range(MANAGEMENT_MIN):
            begun = time.monotonic()
            assert gateway.request("GET", "/livez")[0] == 200
            assert time.monotonic() - begun < 5
        assert descriptors_of(gateway) < FEW
    assert gateway.running()


@pytest.mark.timeout(120)
def test_stalled_handshakes_leave_the_journal_its_descriptors(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "gateway"
    pair = Authority(tmp_path / "made").issue()
    with (
        FewDescriptors(folder, settings=SETTINGS, tls=pair, tls_management=True) as gateway,
        idle_sockets(gateway.port, HELLO["tls"]),
        idle_sockets(gateway.management_port, HELLO["tls"]),
    ):
        for _ in range(MANAGEMENT_MIN):
            assert gateway.request("GET", "/livez")[0] == 200
        assert descriptors_of(gateway) < FEW
        status, _ = gateway.request("PUT", "/nowhere")
        assert status == 404


@pytest.mark.timeout(120)
def test_who_has_logged_in_keeps_the_connection_whoever_comes(tmp_path: Path) -> None:
    folder = tmp_path / "gateway"
    (folder / "data").mkdir(parents=True)
    users = folder / "data" / "users.toml"
    users.write_text(add_user("", User(name="ann", password=hash_password("tea"))))
    with FewDescriptors(folder, settings=SETTINGS) as gateway:
        known = StompPeer(gateway.stomp_port, ("ann", "tea"))
        with idle_sockets(gateway.stomp_port, b""), idle_sockets(gateway.port, b""):
            fill_segments(gateway.stomp_port, ("ann", "tea"))
            known.send("/queue/q", b"still here", "r")
            assert known.read()[1]["receipt-id"] == "r"
        known.close()
        log = gateway.log.read_text()
    assert log.count('"event": "connection.dismissed"') <= 20
    assert "unauthenticated-connections-allowed is 100" in log or "descriptors" in log


@pytest.mark.timeout(120)
def test_clients_that_are_known_leave_the_journal_its_descriptors_too(
    gateway: ScratchGateway,
) -> None:
    known, refused = [], 0
    for _ in range(SOCKETS):
        try:
            known.append(StompPeer(gateway.stomp_port))
        except (EOFError, OSError):
            refused += 1
    assert refused
    assert known
    known[0].send("/queue/q", b"x" * 400_000, "r")
    assert known[0].read()[1]["receipt-id"] == "r"
    for number in range(6):
        known[-1].send("/queue/q", b"x" * 400_000, f"r{number}")
        assert known[-1].read()[1]["receipt-id"] == f"r{number}"
    assert gateway.request("GET", "/livez")[0] == 200
    assert "RLIMIT_NOFILE is 256" in gateway.log.read_text()
    for one in known:
        one.close()


def test_too_few_descriptors_for_anybody_are_told_at_the_start(tmp_path: Path) -> None:
    gateway = FewDescriptors(tmp_path / "gateway", settings=SETTINGS)
    gateway.most = 100
    with pytest.raises(Exception, match=r"status 69[\s\S]*RLIMIT_NOFILE[\s\S]*ulimit -n"):
        gateway.start()


def test_shares_are_what_is_left_and_management_has_four() -> None:
    share = share_out(256, in_use=30, listeners=3)
    assert share.management >= MANAGEMENT_MIN
    assert share.clients > 0
    assert share.clients + share.management + 30 + 32 < 256
    with pytest.raises(OSError, match="RLIMIT_NOFILE"):
        share_out(64, in_use=30, listeners=3)
