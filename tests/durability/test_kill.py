"""SIGKILL at random moments: nothing confirmed is lost, nothing is invented, what comes again is
marked.

Each round starts the real gateway on the data directory of the round before, sends over AMQP and
STOMP with
confirmation, kills it in the middle, starts it again and drains the queue. The senders remember
what was confirmed.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection

from gateway.cli.scratch import HOST, ScratchGateway

ROUNDS = 20
#: Rounds share a process of the test, so that a slow machine shows which round it was.
ROUNDS_A_TEST = 5
ADDRESS = "kill.q"


class AmqpSender(threading.Thread):
    """Sends numbered durable messages over AMQP until the connection breaks; `confirmed` were
    accepted."""

    def __init__(self, port: int, prefix: str) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.prefix = prefix
        self.sent: set[str] = set()
        self.confirmed: set[str] = set()

    def run(self) -> None:
        try:
            connection = BlockingConnection(f"{HOST}:{self.port}", timeout=5)
            sender = connection.create_sender(ADDRESS)
            for number in range(1_000_000):
                body = f"{self.prefix}-amqp-{number}"
                self.sent.add(body)
                sender.send(Message(body=body, durable=True))
                self.confirmed.add(body)
        except Exception:  # however the kill shows in proton, sending is over
            return


class StompSender(threading.Thread):
    """Sends windows of numbered messages over STOMP with a receipt each; `confirmed` have
    theirs."""

    def __init__(self, port: int, prefix: str) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.prefix = prefix
        self.sent: set[str] = set()
        self.confirmed: set[str] = set()

    def run(self) -> None:
        try:
            with socket.create_connection((HOST, self.port), timeout=5) as peer:
                peer.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\x00")
                rest = b""
                number = 0
                while b"\x00" not in rest:
                    rest += self._read(peer)
                rest = rest.partition(b"\x00")[2]
                while True:
                    frames = []
                    for _ in range(50):
                        body = f"{self.prefix}-stomp-{number}"
                        number += 1
                        self.sent.add(body)
                        head = f"SEND\ndestination:/queue/{ADDRESS}\nreceipt:{body}\n\n{body}"
                        frames.append(head.encode() + b"\x00")
                    peer.sendall(b"".join(frames))
                    wanted = 50
                    while wanted:
                        rest += self._read(peer)
                        done, _, rest = rest.rpartition(b"\x00")
                        for frame in done.split(b"\x00"):
                            _, found, name = frame.partition(b"receipt-id:")
                            if found:
                                self.confirmed.add(name.split(b"\n")[0].decode())
                                wanted -= 1
        except OSError:
            return

    @staticmethod
    def _read(peer: socket.socket) -> bytes:
        data = peer.recv(65536)
        if not data:
            raise ConnectionResetError
        return data


def drain(gateway: ScratchGateway) -> list[tuple[str, bool]]:
    """Take everything from the queue; returns bodies with whether they were marked as maybe
    seen."""
    connection = BlockingConnection(f"{HOST}:{gateway.port}", timeout=10)
    taken: list[tuple[str, bool]] = []
    try:
        receiver = connection.create_receiver(ADDRESS, credit=500)
        status, queue = gateway.request("GET", f"/api/v1/queues/{ADDRESS}")
        assert status == 200
        assert isinstance(queue, dict)
        for _ in range(int(queue["messageCount"])):
            message = receiver.receive(timeout=10)
            body = message.body
            text = body if isinstance(body, str) else bytes(body).decode()
            taken.append((text, not message.first_acquirer or message.delivery_count > 0))
            receiver.accept()
    finally:
        connection.close()
    return taken


@pytest.mark.timeout(180)
@pytest.mark.parametrize("batch", range(ROUNDS // ROUNDS_A_TEST))
def test_nothing_confirmed_is_lost(
    batch: int, tmp_path: Path, gateway_process: Callable[..., ScratchGateway]
) -> None:
    chance = random.Random(batch)
    folder = tmp_path / "gateway"
    for number in range(ROUNDS_A_TEST):
        prefix = f"{batch}-{number}"
        gateway = gateway_process(folder=folder)
        amqp = AmqpSender(gateway.port, prefix)
        stomp = StompSender(gateway.stomp_port, prefix)
        amqp.start()
        stomp.start()
        time.sleep(chance.uniform(0.05, 0.8))
        gateway.kill()
        amqp.join(20)
        stomp.join(20)
        assert not amqp.is_alive()
        assert not stomp.is_alive()
        again = gateway_process(folder=folder)
        taken = drain(again)
        bodies = [body for body, _ in taken]
        confirmed = amqp.confirmed | stomp.confirmed
        sent = amqp.sent | stomp.sent
        assert confirmed <= set(bodies), f"lost: {sorted(confirmed - set(bodies))[:5]}"
        assert set(bodies) <= sent, f"invented: {sorted(set(bodies) - sent)[:5]}"
        assert len(bodies) == len(set(bodies)), "a message came twice"
        assert all(marked for _, marked in taken), "after a kill each may have been seen before"
        assert again.stop() == 0
