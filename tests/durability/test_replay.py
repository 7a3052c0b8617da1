"""SIGKILL while a stream is replayed: going on behind the last offset gives each message once.

Senders send with confirmation to a tapped address; replays over AMQP and STOMP read it from its
first offset on. The gateway is killed in the middle, again and again, and each replay goes on at
the offset behind the last one that it has.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import stomp
from proton import Described, symbol, ulong
from proton.reactor import Filter
from proton.utils import BlockingConnection

from gateway.trial.scratch import HOST, ScratchGateway
from tests.durability.rounds import ADDRESS, AmqpSender, StompSender

ROUNDS = 4
FILTER = "rabbitmq:stream-offset-spec"


class AmqpReplay(threading.Thread):
    """Reads until the connection breaks; `seen` is offset and body of each message."""

    def __init__(self, port: int, start: int) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.start_offset = start
        self.seen: list[tuple[int, str]] = []

    def run(self) -> None:
        place = {symbol(FILTER): Described(symbol(FILTER), ulong(self.start_offset))}
        try:
            connection = BlockingConnection(f"{HOST}:{self.port}", timeout=5)
            receiver = connection.create_receiver(ADDRESS, options=Filter(place), credit=200)
            while True:
                message = receiver.receive(timeout=5)
                body = message.body
                text = body if isinstance(body, str) else bytes(body).decode()
                self.seen.append((int(message.annotations["x-opt-stream-offset"]), text))
                receiver.accept()
        except Exception:  # however the kill shows in proton, reading is over
            return


class StompReplay(stomp.ConnectionListener):
    """The same over STOMP, with its own acknowledgements."""

    def __init__(self, port: int, start: int) -> None:
        self.seen: list[tuple[int, str]] = []
        self.connection = stomp.Connection12([(HOST, port)], reconnect_attempts_max=1)
        self.connection.set_listener("", self)
        self.connection.connect(wait=True)
        headers = {"x-stream-offset": f"offset={start}", "prefetch-count": "100"}
        self.connection.subscribe(f"/queue/{ADDRESS}", "s", ack="client", headers=headers)

    def on_message(self, frame: Any) -> None:
        self.seen.append((int(frame.headers["x-stream-offset"]), frame.body))
        try:
            self.connection.ack(frame.headers["ack"])
        except stomp.exception.StompException:
            return  # it was killed meanwhile


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seal", ["tail", "sealed"])
def test_each_once_over_kills(
    seal: str, tmp_path: Path, gateway_process: Callable[..., ScratchGateway]
) -> None:
    chance = random.Random(seal)
    folder = tmp_path / "gateway"
    sent: set[str] = set()
    confirmed: set[str] = set()
    amqp_seen: list[tuple[int, str]] = []
    stomp_seen: list[tuple[int, str]] = []
    for number in range(ROUNDS):
        gateway = gateway_process(folder=folder)
        if number == 0:
            made = {"name": ADDRESS, "address": ADDRESS}
            assert gateway.request("POST", "/api/v1/streams", made)[0] == 201
        amqp = AmqpReplay(gateway.port, len(amqp_seen))
        amqp.start()
        reader = StompReplay(gateway.stomp_port, len(stomp_seen))
        senders = (
            AmqpSender(gateway.port, f"{number}"),
            # In blocks of 4,096 messages it is sealed while it is read.
            StompSender(gateway.stomp_port, f"{number}", 0 if seal == "tail" else 2000),
        )
        for sender in senders:
            sender.start()
        time.sleep(chance.uniform(0.1, 1.0))
        gateway.kill()
        amqp.join(20)
        for sender in senders:
            sender.join(20)
            sent |= sender.sent
            confirmed |= sender.confirmed.keys()
        amqp_seen += amqp.seen
        time.sleep(0.2)
        stomp_seen += reader.seen
        assert [offset for offset, _ in amqp_seen] == list(range(len(amqp_seen)))
        assert [offset for offset, _ in stomp_seen] == list(range(len(stomp_seen)))
    gateway = gateway_process(folder=folder)
    status, facts = gateway.request("GET", f"/api/v1/streams/{ADDRESS}")
    assert status == 200
    assert isinstance(facts, dict)
    amqp = AmqpReplay(gateway.port, len(amqp_seen))
    amqp.start()
    reader = StompReplay(gateway.stomp_port, len(stomp_seen))
    end = time.monotonic() + 60
    while len(amqp_seen) + len(amqp.seen) < facts["head"] or (
        len(stomp_seen) + len(reader.seen) < facts["head"]
    ):
        assert time.monotonic() < end, (len(amqp.seen), len(reader.seen), facts)
        time.sleep(0.05)
    reader.connection.disconnect()
    amqp_seen += amqp.seen
    stomp_seen += reader.seen
    bodies = [body.rstrip(".") for _, body in amqp_seen]
    assert [(offset, body.rstrip(".")) for offset, body in stomp_seen] == list(enumerate(bodies))
    assert len(bodies) == len(set(bodies)), "a message came twice"
    assert confirmed <= set(bodies) <= sent
    assert len(confirmed) > 10 * ROUNDS
