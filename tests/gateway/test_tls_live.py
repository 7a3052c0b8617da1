"""Names that clients look for, and certificates that are replaced, on a gateway under load."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.trial.scratch import HOST, ScratchGateway, free_ports
from protocols.transport.tls import Tls
from tests.certificates import Authority, serial_in, serial_of
from tests.interop.support import wait_until
from tests.logs import log_text, records, wait_records
from tests.secure import PATIENCE, Peer, connected

CONNECT = b"CONNECT\naccept-version:1.2\nhost:h\n\n\0"
#: Names of one length, for one that is put into a ClientHello in place of another.
PLACE = "a" * 24 + ".example"
JUNK = [
    b"\0" * 32,
    b"\xff" * 32,
    b"." * 32,
    b"*." + b"a" * 22 + b".example",
    b"a.example\0" + b"b" * 22,
    b"-" * 32,
    b"\n\r\x1b[2J" + b"x" * 26,
    "\u00e9\u202e".encode() * 6 + b"ab",
    b"xn--" + b"9" * 28,
    b"A" * 24 + b".EXAMPLE",
    b"192.168.100.100".ljust(32, b"."),
    b"%s%n${a}../../../../etc/passwd##",
]


@dataclass
class Running:
    """A gateway with a directory of certificates, and one of a table."""

    gateway: ScratchGateway
    authority: Authority
    directory: Path
    port: int
    management: Path

    def serial(self, name: str | None, port: int | None = None) -> int:
        """Return the serial number of the certificate that a client gets for a name."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection((HOST, port or self.port), timeout=PATIENCE) as plain,
            context.wrap_socket(plain, server_hostname=name) as secure,
        ):
            return serial_of(secure.getpeercert(binary_form=True))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("names")
    authority, served = Authority(folder / "made"), folder / "served"
    authority.issue(folder=served, stem="1-default")
    authority.issue("a.example", folder=served, stem="2-a")
    authority.issue("*.wild.example", "wild.example", folder=served, stem="3-wild")
    (port,) = free_ports(1)
    settings = [
        f"acceptors.named.endpoint='tcp:{port}:interface={HOST}'",
        f"acceptors.named.tls.directory='{served}'",
    ]
    pair = authority.issue(stem="management")
    gateway = ScratchGateway(folder, settings=settings, tls=pair, tls_management=True)
    with gateway:
        yield Running(gateway, authority, served, port, pair.certificate)


def test_each_name_has_its_certificate_and_any_other_the_default(running: Running) -> None:
    files = {name: serial_in(running.directory / f"{name}.pem") for name in ("1-default", "2-a")}
    wild = serial_in(running.directory / "3-wild.pem")
    for name, serial in {
        "a.example": files["2-a"],
        "A.Example": files["2-a"],
        "x.wild.example": wild,
        "wild.example": wild,
        "x.y.wild.example": files["1-default"],
        "b.example": files["1-default"],
        None: files["1-default"],
        "127.0.0.1": files["1-default"],
        "a" * 63 + ".example": files["1-default"],
    }.items():
        assert running.serial(name) == serial, name


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_a_name_that_is_junk_harms_nobody(junk: bytes, running: Running) -> None:
    assert len(junk) == len(PLACE)
    client = Tls(running.authority.client(), server=False, name=PLACE)
    client.shake()
    hello = client.take()
    assert PLACE.encode() in hello
    with connected(running.port, running.authority.client()) as honest:
        honest.sendall(CONNECT)
        honest.until(b"CONNECTED")
        with socket.create_connection((HOST, running.port), timeout=PATIENCE) as plain:
            plain.sendall(hello.replace(PLACE.encode(), junk))
            assert plain.recv(65536)[0] in (21, 22)  # an alert, or what a server says first
        honest.sendall(b"SEND\ndestination:named\nreceipt:1\n\nx\0")
        honest.until(b"receipt-id:1")
    assert "Traceback" not in log_text(running.gateway)
    assert "Exception ignored" not in running.gateway.log.read_text("utf-8", errors="replace")


class Sender(threading.Thread):
    """Sends, and waits for each receipt, until it is told to stop."""

    def __init__(self, peer: Peer, number: int) -> None:
        super().__init__(daemon=True)
        self.peer, self.number = peer, number
        self.stopping = threading.Event()
        self.sent = 0
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self.sent += 1
                text = f"SEND\ndestination:reload.{self.number}\nreceipt:{self.sent}\n\nx\0"
                self.peer.sendall(text.encode())
                self.peer.until(f"receipt-id:{self.sent}\n".encode())
        except BaseException as error:
            self.failed = error


def test_a_reload_serves_new_certificates_at_once_and_cuts_nobody(running: Running) -> None:
    authority, served = running.authority, running.directory
    senders = []
    for number in range(8):
        peer = connected(running.port, authority.client())
        peer.sendall(CONNECT)
        peer.until(b"CONNECTED")
        senders.append(Sender(peer, number))
    for sender in senders:
        sender.start()
    for _ in range(5):
        fresh = authority.issue("a.example", stem="fresh")
        shutil.copy(fresh.key, served / "2-a.key")
        shutil.copy(fresh.certificate, served / "2-a.pem")
        assert running.gateway.request("POST", "/api/v1/config:reload", {})[0] == 200
        assert running.serial("a.example") == serial_in(fresh.certificate)
    before = [sender.sent for sender in senders]
    wait_until(lambda: all(s.sent > n for s, n in zip(senders, before, strict=True)))
    for sender in senders:
        sender.stopping.set()
    for sender in senders:
        sender.join(20)
        assert sender.failed is None
        sender.peer.socket.close()
    assert len(wait_records(running.gateway, "certificate.renewed")) >= 5


def test_a_signal_renews_those_of_the_management_listener_too(running: Running) -> None:
    old = serial_in(running.management)
    port = running.gateway.management_port
    assert running.serial("localhost", port) == old
    running.authority.issue(stem="management")
    before = len(records(running.gateway, "config.reloaded"))
    os.kill(running.gateway.pid, signal.SIGHUP)
    wait_records(running.gateway, "config.reloaded", before + 1)
    assert running.serial("localhost", port) == serial_in(running.management) != old


def test_a_reload_tells_again_what_is_wrong_and_keeps_the_old(running: Running) -> None:
    served = running.directory
    old = running.serial("a.example")
    text = (served / "2-a.pem").read_bytes()
    (served / "2-a.pem").write_bytes(text[:200])
    try:
        before = len(records(running.gateway, "certificate.refused"))
        for _ in range(2):
            assert running.gateway.request("POST", "/api/v1/config:reload", {})[0] == 200
        wait_records(running.gateway, "certificate.refused", before + 2)
        assert running.serial("a.example") == old
    finally:
        (served / "2-a.pem").write_bytes(text)
