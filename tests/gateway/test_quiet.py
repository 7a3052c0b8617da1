"""A confirmation on a gateway where nothing else happens: it waits for the disk alone."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from proton import Message, Timeout
from proton.utils import BlockingConnection

from gateway.trial.scratch import HOST, ScratchGateway
from tests.interop.support import queue
from tests.interop.transacting import take, transacting

ROUNDS = 4
#: A sync takes milliseconds, also on a busy machine; the gateway's own timers take 1 s or 2.
SECONDS = 3.0


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScratchGateway]:
    with ScratchGateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running


def until(peer: socket.socket, *wanted: bytes) -> bytes:
    came = b""
    while not all(word in came for word in wanted):
        came += peer.recv(65536)
    return came


def test_a_receipt_for_an_ack(gateway: ScratchGateway) -> None:
    took = 0.0
    with socket.create_connection((HOST, gateway.stomp_port), timeout=20) as peer:
        peer.sendall(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0")
        until(peer, b"CONNECTED")
        peer.sendall(b"SUBSCRIBE\nid:s\nack:client\ndestination:quiet\nreceipt:sub\n\n\0")
        until(peer, b"receipt-id:sub")
        for number in range(ROUNDS):
            peer.sendall(b"SEND\ndestination:quiet\nreceipt:s%d\n\nx\0" % number)
            came = until(peer, b"MESSAGE", b"receipt-id:s%d" % number)
            found = re.search(rb"\nack:([^\n]+)", came)
            assert found
            time.sleep(0.05)
            begun = time.monotonic()
            peer.sendall(b"ACK\nid:%b\nreceipt:a%d\n\n\0" % (found[1], number))
            until(peer, b"receipt-id:a%d" % number)
            took += time.monotonic() - begun
    assert took < SECONDS


def test_a_commit_of_nothing_but_an_acknowledgement(gateway: ScratchGateway) -> None:
    took = 0.0
    with transacting(gateway) as one:
        sender = one.connection.create_sender("quiet.amqp")
        receiver = one.receiver("quiet.amqp", ROUNDS)
        for number in range(ROUNDS):
            sender.send(Message(body=number, durable=True))
            _, deliveries = take(receiver, 1)
            name = one.declare()
            one.retire(name, deliveries, settled=True)
            time.sleep(0.05)
            begun = time.monotonic()
            assert one.discharge(name) == ""
            took += time.monotonic() - begun
    assert took < SECONDS


def test_what_was_settled_without_a_wish_for_an_answer_is_soon_on_disk(tmp_path: Path) -> None:
    gateway = ScratchGateway(tmp_path)
    with gateway:
        connection = BlockingConnection(f"{HOST}:{gateway.port}", timeout=20)
        sender = connection.create_sender("settled")
        receiver = connection.create_receiver("settled", credit=1)
        sender.send(Message(body="once", durable=True))
        receiver.receive()
        time.sleep(0.2)
        receiver.accept()
        with pytest.raises(Timeout):  # long enough for the accept, too short for most timers
            connection.wait(lambda: False, timeout=0.8)
        gateway.kill()
        gateway.start()
        assert queue(gateway, "settled")["messageCount"] == 0
