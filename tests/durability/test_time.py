"""Clocks that jump and processes that are stopped, on the real gateway: nobody is thrown out,
nothing expires, nothing is delivered twice."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.trial.scratch import HOST
from tests.durability.faulty import WALL, FaultyGateway
from tests.logs import wait_log, whole_log

YEAR = 365 * 24 * 3600
#: The shortest time that a peer may be silent here.
BEAT_MS = 1000
SETTINGS = ("message-expiry-scan-period=100",)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[FaultyGateway]:
    with FaultyGateway(tmp_path / "gateway", WALL, settings=SETTINGS) as running:
        yield running


class Peer:
    """A STOMP client that promises heart-beats."""

    def __init__(self, port: int, beats: str = f"{BEAT_MS},{BEAT_MS}") -> None:
        self.socket = socket.create_connection((HOST, port), timeout=20)
        self.came = b""
        head = f"CONNECT\naccept-version:1.2\nhost:h\nheart-beat:{beats}\n\n\0"
        self.socket.sendall(head.encode())
        self.until(b"CONNECTED")

    def until(self, *wanted: bytes) -> bytes:
        while not all(word in self.came for word in wanted):
            data = self.socket.recv(65536)
            assert data, f"the gateway closed after {self.came!r}"
            self.came += data
        came, self.came = self.came, b""
        return came

    def beat(self, seconds: float) -> None:
        """Stay for so long, as a living client does."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.socket.sendall(b"\n")
            time.sleep(0.2)

    def send(self, name: str, extra: str = "") -> None:
        head = f"SEND\ndestination:/queue/clock\nreceipt:{name}\n{extra}\n"
        self.socket.sendall(f"{head}{name}\0".encode())
        self.until(b"receipt-id:" + name.encode())

    def take(self) -> bytes:
        head = "SUBSCRIBE\nid:s\ndestination:/queue/clock\nack:client-individual\nreceipt:sub\n\n\0"
        self.socket.sendall(head.encode())
        return self.until(b"MESSAGE", b"receipt-id:sub")

    def alive(self, name: str) -> None:
        """Fails when the gateway has given us up."""
        head = f"SEND\ndestination:/queue/other\nreceipt:{name}\n\n.\0"
        self.socket.sendall(head.encode())
        self.until(b"receipt-id:" + name.encode())

    def close(self) -> None:
        self.socket.close()


def expires_in(seconds: float) -> str:
    return f"expires:{round((time.time() + seconds) * 1000)}\n"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("step", [10 * YEAR, -YEAR])
def test_a_clock_that_jumps_cuts_no_peer_and_expires_nothing(
    gateway: FaultyGateway, step: int
) -> None:
    quiet = Peer(gateway.stomp_port, "10000,0")  # may be silent for 20 s
    peer = Peer(gateway.stomp_port)
    peer.send("stays", expires_in(300))
    peer.send("late", f"AMQ_SCHEDULED_DELAY:{2500}\n")
    gateway.switch.write_text(str(step))
    peer.beat(3.0)
    peer.alive("after")
    quiet.alive("quiet")
    shown = gateway.request("GET", "/api/v1/clock")[1]
    assert isinstance(shown, dict)
    assert shown["distrusted"] is True
    assert abs(shown["aheadSeconds"] - step) < 5
    assert 500 < shown["trustedInSeconds"] <= 600
    other = Peer(gateway.stomp_port, "0,0")
    came = other.take()
    for body in (b"\n\nstays\0", b"\n\nlate\0"):
        if body not in came:
            came += other.until(body)
    assert whole_log(gateway).count("clock.distrusted") == 1
    for one in (other, peer, quiet):
        one.close()


@pytest.mark.timeout(60)
def test_an_operator_lets_the_clock_be_followed(gateway: FaultyGateway) -> None:
    peer = Peer(gateway.stomp_port, "0,0")
    peer.send("goes", expires_in(300))
    gateway.switch.write_text(str(YEAR))
    status, shown = gateway.request("POST", "/api/v1/clock/trust")
    assert status == 200
    assert isinstance(shown, dict)
    assert shown["distrusted"] is False
    assert shown["brokerTimeMs"] > (time.time() + YEAR - 60) * 1000
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        queue = gateway.request("GET", "/api/v1/queues/clock")[1]
        assert isinstance(queue, dict)
        if not queue["messageCount"]:
            break
        time.sleep(0.05)
    else:
        pytest.fail("nothing expired")
    wait_log(gateway, "clock.followed")
    peer.close()


@pytest.mark.timeout(60)
def test_a_clock_that_is_set_back_holds_up_no_delivery(gateway: FaultyGateway) -> None:
    peer = Peer(gateway.stomp_port, "0,0")
    peer.send("due", "AMQ_SCHEDULED_DELAY:1000\n")
    begun = time.monotonic()
    gateway.switch.write_text("-1800")  # small enough to be followed: at half the speed
    assert b"\n\ndue\0" in peer.take()
    assert time.monotonic() - begun < 8
    assert "clock.distrusted" not in whole_log(gateway)
    peer.close()


@pytest.mark.timeout(60)
def test_a_process_that_was_stopped_cuts_no_peer_and_delivers_nothing_twice(
    gateway: FaultyGateway,
) -> None:
    peer = Peer(gateway.stomp_port)
    peer.send("held")
    came = peer.take()
    os.kill(gateway.pid, signal.SIGSTOP)
    try:
        # Longer than the silence that ends a connection; what we say waits in the socket.
        peer.beat(7.0)
    finally:
        os.kill(gateway.pid, signal.SIGCONT)
    peer.alive("after")
    other = Peer(gateway.stomp_port, "0,0")
    other.socket.sendall(b"SUBSCRIBE\nid:o\ndestination:/queue/clock\nreceipt:sub\n\n\0")
    assert b"MESSAGE" not in other.until(b"receipt-id:sub")
    found = re.search(rb"\nack:([^\n]+)", came)
    assert found
    peer.socket.sendall(b"ACK\nid:%b\nreceipt:ack\n\n\0" % found[1])
    peer.until(b"receipt-id:ack")
    queue = gateway.request("GET", "/api/v1/queues/clock")[1]
    assert isinstance(queue, dict)
    assert queue["messageCount"] == 0
    wait_log(gateway, "gateway.stood_still")
    peer.close()
    other.close()
