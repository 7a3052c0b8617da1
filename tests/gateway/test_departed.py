"""STOMP senders that leave while a full BLOCK address keeps the gateway from reading them."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.trial.scratch import HOST, ScratchGateway, free_ports
from tests.certificates import Authority
from tests.gateway.stomp_peer import StompPeer
from tests.interop.support import queue, wait_until

LIMIT = 5
CLIENTS = 50
PATIENCE = 15.0
#: What each of the clients does: connect, send more than is taken, stay until told to close.
SENDERS = """
import socket, ssl, sys
port, count, name, authority = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]
all = []
for number in range(count):
    one = socket.create_connection(("127.0.0.1", port), timeout=15)
    if authority:
        context = ssl.create_default_context(cafile=authority[0])
        one = context.wrap_socket(one, server_hostname="127.0.0.1")
    one.sendall(b"CONNECT\\naccept-version:1.2\\nhost:x\\n\\n\\0")
    assert one.recv(4096).startswith(b"CONNECTED")
    for sent in range(3):
        one.sendall(b"SEND\\ndestination:%s\\nreceipt:%d\\n\\nbeyond\\0" % (name.encode(), sent))
    all.append(one)
print("sent", flush=True)
sys.stdin.readline()
for one in all:
    one.close()
print("closed", flush=True)
sys.stdin.readline()
"""


class Running:
    """A gateway with a plain and a TLS port."""

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder / "made")
        pair = authority.issue()
        (secure,) = free_ports(1)
        self.gateway = ScratchGateway(
            folder,
            settings=[
                f'address-settings."#".max-size-messages={LIMIT}',
                'address-settings."#".address-full-policy="BLOCK"',
                f"acceptors.secure.endpoint='tcp:{secure}:interface={HOST}'",
                f"acceptors.secure.tls.certificate='{pair.certificate}'",
                f"acceptors.secure.tls.key='{pair.key}'",
                f"acceptors.local.endpoint='unix:{folder / 'socket'}'",
            ],
        )
        self.secure = secure
        self.local = folder / "socket"
        self.context: ssl.SSLContext = authority.client()
        self.authority = authority.root

    def port(self, wire: str) -> int:
        return self.secure if wire == "tls" else self.gateway.stomp_port

    def peer(self, wire: str) -> StompPeer:
        return StompPeer(self.port(wire), context=self.context if wire == "tls" else None)

    def filled(self, wire: str, name: str) -> StompPeer:
        """Return a peer that has filled an address."""
        peer = self.peer(wire)
        for number in range(LIMIT):
            peer.send(name, b"fits", str(number))
            assert peer.read()[0] == "RECEIPT"
        return peer

    def drained(self, peer: StompPeer, name: str, count: int) -> list[bytes]:
        peer.write(f"SUBSCRIBE\ndestination:{name}\nid:s\nack:auto\n\n")
        return [peer.read()[2] for _ in range(count)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    one = Running(tmp_path_factory.mktemp("departed"))
    with one.gateway:
        yield one


def connections(running: Running) -> int:
    status, answer = running.gateway.request("GET", "/api/v1/connections")
    assert status == 200
    facts: Any = answer
    total: int = facts["total"]
    return total


@pytest.mark.parametrize("how", ["killed", "closed"])
@pytest.mark.parametrize("wire", ["tcp", "tls"])
def test_senders_that_leave_while_they_are_not_read_are_gone(
    running: Running, wire: str, how: str
) -> None:
    name = f"left-{wire}-{how}"
    peer = running.filled(wire, name)
    stays = running.peer(wire)
    stays.send(name, b"waits", "late")
    before = connections(running)
    authority = [str(running.authority)] if wire == "tls" else []
    command = [sys.executable, "-c", SENDERS, str(running.port(wire)), str(CLIENTS), name]
    with subprocess.Popen(
        [*command, *authority], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as clients:
        assert clients.stdin is not None
        assert clients.stdout is not None
        assert clients.stdout.readline() == "sent\n"
        assert connections(running) == before + CLIENTS
        if how == "killed":
            clients.kill()
        else:
            clients.stdin.write("\n")
            clients.stdin.flush()
            assert clients.stdout.readline() == "closed\n"
        wait_until(lambda: connections(running) == before, PATIENCE)
        clients.kill()
    assert queue(running.gateway, name)["messageCount"] == LIMIT
    # Who stays is served as before: it waited longer than those that left, and has its room.
    assert running.drained(peer, name, LIMIT + 1) == [b"fits"] * LIMIT + [b"waits"]
    assert stays.read()[1]["receipt-id"] == "late"
    peer.close()
    stays.close()


@pytest.mark.parametrize("wire", ["tcp", "tls"])
def test_what_a_half_closed_sender_sent_is_read_when_room_comes_in_time(
    running: Running, wire: str
) -> None:
    name = f"half-{wire}"
    peer = running.filled(wire, name)
    leaver = running.peer(wire)
    leaver.send(name, b"last words", "last")
    time.sleep(0.3)
    # The end of TCP, behind what waits; TLS says nothing.
    with socket.socket(fileno=os.dup(leaver.fileno())) as below:
        below.shutdown(socket.SHUT_WR)
    time.sleep(1.5)
    assert queue(running.gateway, name)["messageCount"] == LIMIT
    assert running.drained(peer, name, LIMIT + 1) == [b"fits"] * LIMIT + [b"last words"]
    peer.close()
    leaver.close()


def test_a_sender_over_a_unix_socket_that_leaves_is_gone_too(running: Running) -> None:
    peer = running.filled("tcp", "left-unix")
    before = connections(running)
    with socket.socket(socket.AF_UNIX) as leaver:
        leaver.settimeout(PATIENCE)
        leaver.connect(str(running.local))
        leaver.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
        assert leaver.recv(4096).startswith(b"CONNECTED")
        leaver.sendall(b"SEND\ndestination:left-unix\n\nbeyond\0")
        time.sleep(0.3)
        assert connections(running) == before + 1
    wait_until(lambda: connections(running) == before, PATIENCE)
    assert queue(running.gateway, "left-unix")["messageCount"] == LIMIT
    peer.close()


@pytest.mark.parametrize("wire", ["tcp", "tls"])
def test_all_that_came_before_and_behind_the_stop_is_read_in_order(
    running: Running, wire: str
) -> None:
    name = f"order-{wire}"
    peer = running.filled(wire, name)
    sender = running.peer(wire)
    bodies = [bytes([number]) * 40_000 for number in range(40)]
    # More than one read, and over TLS many records, of which reading stops in the middle.

    def write() -> None:
        for body in bodies:
            sender.send(name, body)

    writing = threading.Thread(target=write)
    writing.start()
    time.sleep(0.5)
    assert queue(running.gateway, name)["messageCount"] == LIMIT
    assert running.drained(peer, name, LIMIT + len(bodies)) == [b"fits"] * LIMIT + bodies
    writing.join(PATIENCE)
    assert not writing.is_alive()
    peer.close()
    sender.close()
