"""A thousand consumers on one stream: at its head, and in its history, over a few connections."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from proton import Described, Message, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container, Filter

from gateway.trial.scratch import ScratchGateway
from tests.interop.support import amqp_url, connected, trust, wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

CONNECTIONS = 10
LINKS = 100
MESSAGES = 5
NAME = "sluicegate:stream-offset"


class Readers(MessagingHandler):  # type: ignore[misc]
    """`CONNECTIONS` times `LINKS` receivers from one place; ends when each has seen `wanted`."""

    def __init__(self, gateway: ScratchGateway, address: str, start: str, wanted: int) -> None:
        super().__init__(prefetch=10)
        self.gateway = gateway
        self.address = address
        self.start = start
        self.wanted = wanted
        self.open = 0
        self.seen: dict[str, list[int]] = {}
        self.connections: list[Any] = []

    def on_start(self, event: Any) -> None:
        for _ in range(CONNECTIONS):
            container = event.container
            options = {"ssl_domain": trust(self.gateway), "reconnect": False}
            connection = container.connect(amqp_url(self.gateway), heartbeat=None, **options)
            self.connections.append(connection)
            place = Filter({symbol(NAME): Described(symbol(NAME), symbol(self.start))})
            for _ in range(LINKS):
                name = f"replay-{len(self.seen)}"
                self.seen[name] = []
                container.create_receiver(connection, self.address, name=name, options=place)

    def on_link_opened(self, event: Any) -> None:
        self.open += 1

    def on_message(self, event: Any) -> None:
        seen = self.seen[event.receiver.name]
        seen.append(int(event.message.annotations["x-opt-stream-offset"]))
        if len(seen) == self.wanted and all(len(s) == self.wanted for s in self.seen.values()):
            for connection in self.connections:
                connection.close()


def read(gateway: ScratchGateway, address: str, start: str) -> tuple[Readers, threading.Thread]:
    readers = Readers(gateway, address, start, MESSAGES)
    thread = threading.Thread(target=Container(readers).run, daemon=True)
    thread.start()
    return readers, thread


def test_a_thousand_at_the_head_and_a_thousand_from_the_first(
    shared: ScratchGateway, address: str
) -> None:
    made = {"name": address, "address": address}
    assert shared.request("POST", "/api/v1/streams", made)[0] == 201
    readers, thread = read(shared, address, "next")
    wait_until(lambda: readers.open == CONNECTIONS * LINKS, 60)
    with connected(shared) as amqp:
        sender = amqp.create_sender(address)
        for number in range(MESSAGES):
            sender.send(Message(body=number, durable=True))
    thread.join(60)
    expected = list(range(MESSAGES))
    assert not thread.is_alive()
    assert list(readers.seen.values()) == [expected] * (CONNECTIONS * LINKS)
    readers, thread = read(shared, address, "first")
    thread.join(60)
    assert not thread.is_alive()
    assert list(readers.seen.values()) == [expected] * (CONNECTIONS * LINKS)

    def left() -> bool:
        status, facts = shared.request("GET", f"/api/v1/streams/{address}")
        assert status == 200
        assert isinstance(facts, dict)
        return bool(facts["consumers"] == 0)

    wait_until(left)
