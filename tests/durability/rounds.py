"""Load with confirmations, kills, and what is found afterwards: the crash rounds' parts.

Senders remember what was confirmed; a receiver remembers what it got and accepted. After a kill the
next gateway on the same directory is drained: what was confirmed and is neither there nor was
received is lost, what comes again without a mark is a duplicate that nobody can tell.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from proton import Message
from proton.utils import BlockingConnection

from gateway.trial.scratch import HOST, GatewayFailedError, ScratchGateway

ADDRESS = "kill.q"


class AmqpSender(threading.Thread):
    """Sends numbered durable messages over AMQP until the connection breaks.

    `confirmed`: what was accepted, and when.
    """

    def __init__(self, port: int, prefix: str) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.prefix = prefix
        self.sent: set[str] = set()
        self.confirmed: dict[str, float] = {}

    def run(self) -> None:
        try:
            connection = BlockingConnection(f"{HOST}:{self.port}", timeout=5)
            sender = connection.create_sender(ADDRESS)
            for number in range(1_000_000):
                body = f"{self.prefix}-amqp-{number}"
                self.sent.add(body)
                sender.send(Message(body=body, durable=True))
                self.confirmed[body] = time.monotonic()
        except Exception:  # however the kill shows in proton, sending is over
            return


class StompSender(threading.Thread):
    """Sends windows of numbered messages over STOMP with a receipt each.

    `confirmed`: what has its receipt, and since when.
    """

    def __init__(self, port: int, prefix: str, padding: int = 0) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.prefix = prefix
        self.padding = "." * padding
        self.sent: set[str] = set()
        self.confirmed: dict[str, float] = {}

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
                        head = f"SEND\ndestination:/queue/{ADDRESS}\nreceipt:{body}\n\n"
                        frames.append(f"{head}{body}{self.padding}\x00".encode())
                    peer.sendall(b"".join(frames))
                    wanted = 50
                    while wanted:
                        rest += self._read(peer)
                        done, _, rest = rest.rpartition(b"\x00")
                        for frame in done.split(b"\x00"):
                            _, found, name = frame.partition(b"receipt-id:")
                            if found:
                                body = name.split(b"\n")[0].decode()
                                self.confirmed[body] = time.monotonic()
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
            taken.append((text, message.delivery_count > 0))
            receiver.accept()
    finally:
        connection.close()
    return taken


class AmqpReceiver(threading.Thread):
    """Takes what comes and accepts it until the connection breaks; `received` are bodies."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.received: list[str] = []

    def run(self) -> None:
        try:
            connection = BlockingConnection(f"{HOST}:{self.port}", timeout=5)
            receiver = connection.create_receiver(ADDRESS, credit=100)
            while True:
                body = receiver.receive(timeout=5).body
                self.received.append(body if isinstance(body, str) else bytes(body).decode())
                receiver.accept()
        except Exception:  # however the kill shows in proton, receiving is over
            return


@dataclass(slots=True)
class Tally:
    """What the rounds came to."""

    rounds: int = 0
    confirmed: int = 0
    received: int = 0
    drained: int = 0
    cancelled: int = 0
    again: int = 0
    lost: list[str] = field(default_factory=list)
    #: Seconds from the confirmation of the first one lost in a round to that round's end.
    lost_span: float = 0.0
    unmarked: list[str] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (self.lost or self.unmarked or self.invented or self.refusals)

    def __str__(self) -> str:
        return (
            f"{self.rounds} rounds, {self.confirmed} confirmed, {self.received} received before "
            f"the kill, {self.drained} found after it, {self.again} of them taken once before "
            f"and marked, {len(self.lost)} lost, "
            f"{len(self.unmarked)} again without a mark, {len(self.invented)} never sent, "
            f"{len(self.refusals)} refusals to start"
        )


def run_rounds(
    folder: Path,
    rounds: int,
    chance: random.Random,
    settings: tuple[str, ...] = (),
    *,
    end: Callable[[ScratchGateway], None] = ScratchGateway.kill,
) -> Tally:
    """Kill so many gateways under load, by `end`; each is drained by the one after it."""
    tally = Tally()
    before: set[str] = set()
    gateway = ScratchGateway(folder, settings=settings)
    gateway.start()
    try:
        for number in range(rounds):
            threads = _load(gateway, f"{number}", chance)
            tally.cancelled += _cancelled(gateway)
            ended = time.monotonic()
            end(gateway)
            for thread in threads:
                thread.join(20)
            gateway = ScratchGateway(folder, settings=settings)
            try:
                gateway.start()
            except GatewayFailedError as error:
                tally.refusals.append(str(error))
                return tally
            taken = drain(gateway)
            _judge(tally, threads, taken, before, ended)
            before = {body for body, _ in taken}
    finally:
        if gateway.running():
            gateway.stop()
    return tally


def _cancelled(gateway: ScratchGateway) -> int:
    """Return how many messages were consumed before they were written."""
    status, store = gateway.request("GET", "/api/v1/store")
    assert status == 200
    assert isinstance(store, dict)
    return int(store["journal"]["cancelledMessages"])


Threads = tuple[AmqpSender, StompSender, AmqpReceiver]


def _load(gateway: ScratchGateway, prefix: str, chance: random.Random) -> Threads:
    """Send and receive for a while; in half of the rounds nobody receives."""
    threads = (
        AmqpSender(gateway.port, prefix),
        StompSender(gateway.stomp_port, prefix),
        AmqpReceiver(gateway.port),
    )
    receives = chance.random() < 0.5
    for thread in threads if receives else threads[:2]:
        thread.start()
    if not receives:
        threads[2].run = lambda: None  # type: ignore[method-assign]
        threads[2].start()
    time.sleep(chance.uniform(0.02, 0.25))
    return threads


def _judge(
    tally: Tally,
    threads: Threads,
    taken: list[tuple[str, bool]],
    before: set[str],
    ended: float,
) -> None:
    """Count one round. What the drain before took may come again: nobody waited for its accepts."""
    amqp, stomp, receiver = threads
    confirmed = amqp.confirmed | stomp.confirmed
    received = set(receiver.received)
    bodies = [body for body, _ in taken]
    tally.rounds += 1
    tally.confirmed += len(confirmed)
    tally.received += len(received)
    tally.drained += len(bodies)
    tally.again += len(before.intersection(bodies))
    lost = sorted(confirmed.keys() - received - set(bodies))
    tally.lost += lost
    tally.lost_span = max([tally.lost_span, *(ended - confirmed[body] for body in lost)])
    tally.invented += sorted(set(bodies) - amqp.sent - stomp.sent - before)
    tally.unmarked += [body for body, marked in taken if not marked]
    if len(bodies) != len(set(bodies)):
        tally.unmarked.append("a message came twice in one drain")
