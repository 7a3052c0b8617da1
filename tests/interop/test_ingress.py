"""What an address asks for with real clients: the time that messages came, queues that go."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from proton import Message, symbol

from gateway.trial.scratch import ScratchGateway
from gateway.trial.self_signed import KeyPair
from tests.interop.support import connected, queue, wait_until
from tests.interop.test_crossing import StompClient
from tests.interop.transacting import Transacting

pytestmark = pytest.mark.interop

KEY = "x-opt-ingress-time"
SETTINGS = (
    'address-settings."timed.#".enable-ingress-timestamp=true',
    "address-queue-scan-period=100",
    'addresses.gone.queues=[{name="gone",auto-delete=true,auto-delete-message-count=1}]',
    'addresses.kept.queues=[{name="kept"}]',
)


@pytest.fixture(scope="module")
def gateway(
    tmp_path_factory: pytest.TempPathFactory, tls: KeyPair | None
) -> Iterator[ScratchGateway]:
    with ScratchGateway(tmp_path_factory.mktemp("ingress"), settings=SETTINGS, tls=tls) as running:
        yield running


def between(begun: float, told: object) -> bool:
    assert isinstance(told, int | str)
    return int(begun * 1000) - 1000 <= int(told) <= int(time.time() * 1000) + 1000


def test_each_client_learns_when_a_message_came_from_the_other(gateway) -> None:
    begun = time.time()
    client = StompClient(gateway)
    with connected(gateway) as connection:
        connection.create_sender("timed.stomp").send(
            Message(body="x", durable=True, annotations={symbol("x-mine"): "y"})
        )
        client.subscribe("timed.stomp")
        headers = client.arrived.get(timeout=10).headers
        assert between(begun, headers["ingress-timestamp"])
        assert headers["JMS_AMQP_MA_x-mine"] == "y"
        client.send("timed.amqp", "x", ingress_timestamp="5")
        client.send("plain", "x")
        message = connection.create_receiver("timed.amqp", credit=1).receive()
        assert between(begun, message.annotations[symbol(KEY)])
        message = connection.create_receiver("plain", credit=1).receive()
        assert symbol(KEY) not in message.annotations
    client.connection.disconnect()


def test_in_transactions_of_both(gateway) -> None:
    begun = time.time()
    client = StompClient(gateway)
    client.request("begin", "t")
    client.send("timed.both", "1", transaction="t")
    client.request("commit", "t")
    with connected(gateway) as connection:
        work = Transacting(connection)
        name = work.declare()
        work.post(name, connection.create_sender("timed.both"), "2")
        assert work.discharge(name) == ""
        receiver = connection.create_receiver("timed.both", credit=2)
        for _ in range(2):
            assert between(begun, receiver.receive().annotations[symbol(KEY)])
    client.connection.disconnect()


def test_a_queue_of_the_file_goes_when_it_asks_for_it(gateway) -> None:
    shown = queue(gateway, "gone")
    assert (shown["autoDelete"], shown["autoDeleteMessageCount"]) == (True, 1)
    assert queue(gateway, "kept")["autoDelete"] is False
    with connected(gateway) as connection:
        for name in ("gone", "kept"):
            connection.create_sender(name).send(Message(body="x", durable=True))
            connection.create_receiver(name, credit=1).receive()
    wait_until(lambda: gateway.request("GET", "/api/v1/queues/gone")[0] == 404)
    assert queue(gateway, "kept")["messageCount"] == 1
