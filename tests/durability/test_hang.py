"""A disk that hangs for good: nobody is confirmed, and the process ends all the same, with 74."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from gateway.trial.scratch import HOST, ScratchGateway
from tests.durability.faulty import HANG, IMPATIENT, FaultyGateway
from tests.durability.rounds import drain

EX_IOERR = 74
#: What is allowed in faulty.IMPATIENT, and as much again for a busy machine.
SECONDS = 20.0


def send(port: int, body: str) -> socket.socket:
    peer = socket.create_connection((HOST, port), timeout=SECONDS)
    peer.sendall(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0")
    head = f"SEND\ndestination:/queue/kill.q\nreceipt:{body}\n\n{body}\0"
    peer.sendall(head.encode())
    return peer


def read(peer: socket.socket) -> bytes:
    """Return all until the gateway closes."""
    came = b""
    while data := peer.recv(65536):
        came += data
    return came


def ended(process: subprocess.Popen[bytes] | None) -> int:
    assert process is not None
    return process.wait(SECONDS)


@pytest.mark.timeout(90)
@pytest.mark.parametrize("stopped", [False, True])
def test_the_process_ends_behind_a_disk_that_hangs(tmp_path: Path, *, stopped: bool) -> None:
    gateway = FaultyGateway(tmp_path / "gateway", HANG, IMPATIENT)
    gateway.start()
    process = gateway._process
    with send(gateway.stomp_port, "before") as peer:
        came = b""
        while b"receipt-id:before" not in came:
            came += peer.recv(65536)
    gateway.switch.touch()
    begun = time.monotonic()
    with send(gateway.stomp_port, "lost") as peer:
        time.sleep(0.5)
        if stopped:  # an operator who stops it is not kept for ever either
            gateway._process = None
            assert process is not None
            process.send_signal(signal.SIGTERM)
        assert b"receipt-id:lost" not in read(peer)
    assert ended(process) == EX_IOERR
    assert time.monotonic() - begun < SECONDS
    assert "store-failed" in gateway.log_text()
    gateway.switch.unlink()
    with ScratchGateway(tmp_path / "gateway") as again:
        bodies = [body for body, _ in drain(again)]
    assert bodies[0] == "before"
    assert set(bodies) <= {"before", "lost"}
