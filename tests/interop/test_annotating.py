"""`modified` with message-annotations, as Proton says it and STOMP reads it [AMQP 3.4.5]."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Delivery, Message, symbol

from gateway.trial.scratch import ScratchGateway
from tests.interop.support import connected, queue, wait_until
from tests.interop.test_proton_blocking import Topic, take_dead
from tests.interop.test_scenarios import VERSIONS, Client

pytestmark = pytest.mark.interop


def give_back(receiver: Any, add: dict[str, Any], *, failed: bool = False) -> None:
    """Settle the oldest delivery as `modified` with annotations."""
    delivery = receiver.fetcher.unsettled.popleft()
    delivery.local.failed = failed
    delivery.local.annotations = {symbol(key): value for key, value in add.items()}
    delivery.update(Delivery.MODIFIED)
    delivery.settle()


def seen(message: Message) -> dict[str, Any]:
    return {str(key): value for key, value in (message.annotations or {}).items()}


def sent(body: str) -> Message:
    given = {symbol("x-a"): "sent", symbol("x-b"): "sent"}
    return Message(body=body, durable=True, annotations=given)


def test_two_returns_are_merged_and_the_later_one_wins(
    shared: ScratchGateway, address: str
) -> None:
    with connected(shared) as connection:
        connection.create_sender(address).send(sent(address))
        receiver = connection.create_receiver(address)
        assert seen(receiver.receive()) == {"x-a": "sent", "x-b": "sent"}
        give_back(receiver, {"x-b": "back", "x-c": "one"})
        assert seen(receiver.receive()) == {"x-a": "sent", "x-b": "back", "x-c": "one"}
        give_back(receiver, {"x-c": "two", "x-d": "new"}, failed=True)
        last = receiver.receive()
        assert seen(last) == {"x-a": "sent", "x-b": "back", "x-c": "two", "x-d": "new"}
        assert (last.delivery_count, last.durable, last.body) == (1, True, address)
        receiver.accept()
        receiver.close()
    wait_until(lambda: queue(shared, address)["messageCount"] == 0)


def test_another_subscriber_sees_what_was_sent(shared: ScratchGateway, address: str) -> None:
    with connected(shared) as connection:
        one = connection.create_receiver(address, name="one", options=Topic())
        other = connection.create_receiver(address, name="other", options=Topic())
        connection.create_sender(address).send(sent(address))
        one.receive()
        give_back(one, {"x-b": "back"})
        assert seen(one.receive())["x-b"] == "back"
        assert seen(other.receive())["x-b"] == "sent"
        give_back(other, {"x-p": "other"})
        assert seen(other.receive()) == {"x-a": "sent", "x-b": "sent", "x-p": "other"}
        one.accept()
        other.accept()


def test_the_dead_letter_has_them(shared: ScratchGateway, address: str) -> None:
    with connected(shared) as connection:
        connection.create_sender(address).send(sent(address))
        receiver = connection.create_receiver(address)
        for attempt in range(5):
            receiver.receive()
            give_back(receiver, {f"x-{attempt}": "failed"}, failed=True)
        letter = seen(take_dead(connection, address))
        receiver.close()
    assert letter["x-b"] == "sent"
    assert [letter[f"x-{attempt}"] for attempt in range(5)] == ["failed"] * 5


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stomp_reader_sees_them_as_headers(
    shared: ScratchGateway, address: str, version: str
) -> None:
    with connected(shared) as connection:
        connection.create_sender(address).send(sent(address))
        receiver = connection.create_receiver(address)
        receiver.receive()
        give_back(receiver, {"x-b": "back"})
        receiver.close()
    client = Client(shared, version)
    client.subscribe(address)
    (frame,) = client.get()
    assert frame.headers["JMS_AMQP_MA_x-b"] == "back"
    assert frame.headers["JMS_AMQP_MA_x-a"] == "sent"
    client.connection.disconnect()
