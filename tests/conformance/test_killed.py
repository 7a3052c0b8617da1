"""Rows R19 and K18 by a real process that is killed, and one that is stopped."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from proton import Message
from proton.utils import BlockingConnection

from gateway.trial.scratch import HOST, ScratchGateway

Start = Callable[..., ScratchGateway]


def connection(gateway: ScratchGateway) -> BlockingConnection:
    return BlockingConnection(f"amqp://{HOST}:{gateway.port}", timeout=10)


def send(gateway: ScratchGateway, *bodies: str) -> None:
    one = connection(gateway)
    sender = one.create_sender("q")
    for body in bodies:
        sender.send(Message(body=body, durable=True))
    one.close()


def queue(gateway: ScratchGateway) -> dict[str, int]:
    shown = gateway.request("GET", "/api/v1/queues/q")[1]
    assert isinstance(shown, dict)
    return shown


def test_r19_after_kill_9_a_ring_has_its_newest_and_counts_from_0(gateway_process: Start) -> None:
    gateway = gateway_process()
    assert gateway.request("POST", "/api/v1/queues", {"name": "q", "ringSize": 2})[0] == 201
    send(gateway, "A", "B", "C")
    assert (queue(gateway)["messageCount"], queue(gateway)["messagesReplaced"]) == (2, 1)
    gateway.kill()
    gateway.start()
    assert (queue(gateway)["messageCount"], queue(gateway)["messagesReplaced"]) == (2, 0)
    send(gateway, "D")
    one = connection(gateway)
    receiver = one.create_receiver("q", credit=5)
    assert [receiver.receive().body for _ in range(2)] == ["C", "D"]
    one.close()


@pytest.mark.parametrize("killed", [True, False])
def test_k18_what_was_seen_is_marked_after_kill_9_only(
    gateway_process: Start, killed: bool
) -> None:
    gateway = gateway_process()
    send(gateway, "m")
    one = connection(gateway)
    before = one.create_receiver("q", credit=1).receive()
    assert before.delivery_count == 0
    if killed:
        gateway.kill()
    else:
        one.close()
        end = time.monotonic() + 10
        while queue(gateway)["deliveringCount"]:
            assert time.monotonic() < end
            time.sleep(0.02)
        assert gateway.stop() == 0
    gateway.start()
    other = connection(gateway)
    again = other.create_receiver("q", credit=1).receive()
    assert again.body == "m"
    assert (again.delivery_count > 0) is killed
    other.close()
