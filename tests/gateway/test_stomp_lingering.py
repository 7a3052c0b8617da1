"""STOMP clients that come and go quickly, and the last frame that each is told."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.trial.scratch import HOST, ScratchGateway
from tests.interop.support import wait_until

CONNECT = b"CONNECT\naccept-version:1.2\nhost:h\n\n\0"
SEND = b"SEND\ndestination:q\n\nx\0"
#: As many as come and go in one test.
_MANY = 200


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScratchGateway]:
    folder: Path = tmp_path_factory.mktemp("lingering")
    with ScratchGateway(folder) as running:
        yield running


def told(gateway: ScratchGateway, said: bytes) -> bytes:
    """Say all of it at once, and return all that came until the gateway closed."""
    with socket.create_connection((HOST, gateway.stomp_port), timeout=20) as peer:
        peer.sendall(said)
        came = b""
        while data := peer.recv(65536):
            came += data
    return came


def test_the_last_frame_arrives_though_more_was_sent(gateway: ScratchGateway) -> None:
    """Bytes that nobody reads any more must not take the last words along."""
    behind = SEND * 2000
    for _ in range(20):
        came = told(gateway, CONNECT + SEND + b"DISCONNECT\nreceipt:bye\n\n\0" + behind)
        assert came.endswith(b"RECEIPT\nreceipt-id:bye\n\n\0\n")
        came = told(gateway, CONNECT + b"UNSUBSCRIBE\nid:none\nreceipt:1\n\n\0" + behind)
        assert b"ERROR\n" in came
        assert b"receipt-id:1\n" in came
        assert came.endswith(b"\0\n")


def test_clients_that_come_and_go_quickly_leave_nothing_behind(gateway: ScratchGateway) -> None:
    assert gateway.request("GET", "/api/v1/queues/fast")[0] == 404
    for number in range(_MANY):
        peer = socket.create_connection((HOST, gateway.stomp_port), timeout=20)
        peer.sendall(CONNECT + b"SUBSCRIBE\nid:s\ndestination:/temp-queue/a\n\n\0")
        if number % 2:  # reset
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
    for number in range(_MANY):
        came = told(
            gateway,
            CONNECT + b"SEND\ndestination:fast\n\nx\0DISCONNECT\nreceipt:%d\n\n\0" % number,
        )
        assert b"receipt-id:%d\n" % number in came

    def gone() -> bool:
        status, found = gateway.request("GET", "/api/v1/connections")
        assert status == 200
        assert isinstance(found, dict)
        return found["total"] == 0

    wait_until(gone)
    status, queue = gateway.request("GET", "/api/v1/queues/fast")
    assert status == 200
    assert isinstance(queue, dict)
    assert queue["messageCount"] == _MANY
    status, queues = gateway.request("GET", "/api/v1/queues")
    assert isinstance(queues, dict)
    assert {one["name"] for one in queues["items"]} <= {"q", "fast"}
