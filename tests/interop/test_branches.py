"""Wildcards, diverts and duplicate ids as Proton and stomp.py see them, over kill -9 as well."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proton import Message, symbol
from proton.reactor import SenderOption

from gateway.trial.scratch import ScratchGateway
from gateway.trial.self_signed import KeyPair
from tests.interop.support import connected, queue, wait_until
from tests.interop.test_crossing import StompClient
from tests.interop.transacting import transacting

pytestmark = pytest.mark.interop

SETTINGS = (
    'diverts.audit.address="orders.eu"',
    'diverts.audit.forwarding-address="audit"',
    "diverts.audit.filter=\"kind = 'big'\"",
    'diverts.taken.address="raw"',
    'diverts.taken.forwarding-address="left,right"',
    "diverts.taken.exclusive=true",
    'addresses."orders.#".routing-type="MULTICAST"',
    'addresses."orders.#".queues=[{name="all"}]',
    "id-cache-size=100",
    "address-settings.kept.retroactive-message-count=3",
)


class _Topic(SenderOption):
    def apply(self, sender) -> None:
        sender.target.capabilities.put_object(symbol("topic"))


@pytest.fixture(scope="module")
def gateway(
    tmp_path_factory: pytest.TempPathFactory, tls: KeyPair | None
) -> Iterator[ScratchGateway]:
    with ScratchGateway(tmp_path_factory.mktemp("branches"), settings=SETTINGS, tls=tls) as running:
        yield running


def big(body: str, **more: object) -> Message:
    return Message(body=body, durable=True, properties={"kind": "big", **more})


def count(gateway: ScratchGateway, name: str) -> int:
    return queue(gateway, name)["messageCount"]


def test_a11_a_wildcard_queue_and_a_divert(gateway) -> None:
    with connected(gateway) as connection:
        sender = connection.create_sender("orders.eu")
        sender.send(big("1"))
        sender.send(Message(body="2", durable=True))
        connection.create_sender("orders.us.new").send(Message(body="3", durable=True))
        assert [count(gateway, n) for n in ("orders.eu", "all", "audit")] == [2, 3, 1]
        copy = connection.create_receiver("audit").receive()
        assert copy.body == "1"
        assert copy.annotations["x-opt-ORIG-ADDRESS"] == "orders.eu"
        assert copy.annotations["x-opt-ORIG-QUEUE"] == "audit"
    gateway.kill()
    gateway.start()
    assert [count(gateway, n) for n in ("orders.eu", "all", "audit")] == [2, 3, 1]
    with connected(gateway) as connection:
        connection.create_sender("orders.eu").send(big("4"))
    assert [count(gateway, n) for n in ("orders.eu", "all", "audit")] == [3, 4, 2]


def test_a11_stomp_subscribers_hear_names_that_come_later(gateway) -> None:
    reader, writer = StompClient(gateway), StompClient(gateway)
    reader.connection.subscribe("/topic/news.*", id="1", headers={"receipt": "s"})
    wait_until(lambda: "s" in reader.receipts)
    for name in ("news.eu", "news.us", "news.eu.sport", "news"):
        writer.connection.send(f"/topic/{name}", name, headers={"receipt": name})
    wait_until(lambda: "news" in writer.receipts)
    assert [reader.get().body for _ in range(2)] == [b"news.eu", b"news.us"]
    assert reader.arrived.empty()
    reader.connection.disconnect()
    writer.connection.disconnect()


def test_an_exclusive_divert_takes_it_all(gateway) -> None:
    with connected(gateway) as connection:
        connection.create_sender("raw").send(Message(body="x", durable=True))
        assert [count(gateway, n) for n in ("left", "right")] == [1, 1]
        assert count(gateway, "raw") == 0
    shown = gateway.request("GET", "/api/v1/diverts/taken")[1]
    assert (shown["divertedMessageCount"], shown["configured"]) == (2, True)


def test_a27_k16_an_id_is_known_over_protocols_and_kill_9(gateway, address) -> None:
    with connected(gateway) as connection:
        sender = connection.create_sender(address)
        for _ in range(5):
            sender.send(big("x", _AMQ_DUPL_ID="123"))
        assert count(gateway, address) == 1
        receiver = connection.create_receiver(address)
        receiver.receive()
        receiver.accept()
    wait_until(lambda: count(gateway, address) == 0)
    with connected(gateway) as connection:
        # What is confirmed behind it says that the acknowledgement is on disk as well.
        connection.create_sender(address + ".other").send(big("y"))
    gateway.kill()
    gateway.start()
    with connected(gateway) as connection:
        connection.create_sender(address).send(big("x", _AMQ_DUPL_ID="123"))
    client = StompClient(gateway)
    for name in ("123", "124"):
        headers = {"_AMQ_DUPL_ID": name, "receipt": name}
        client.connection.send(address, "y", headers=headers)
    wait_until(lambda: "124" in client.receipts)
    assert "123" in client.receipts
    assert count(gateway, address) == 1
    shown = gateway.request("GET", f"/api/v1/addresses/{address}")[1]
    assert shown["duplicateMessageCount"] == 2
    client.connection.disconnect()


def test_a28_an_id_in_amqp_transactions(gateway, address) -> None:
    with transacting(gateway) as one:
        sender = one.connection.create_sender(address)

        def work(*bodies: str, fail: bool = False) -> str:
            name = one.declare()
            one.post(name, sender, *[big(body, _AMQ_DUPL_ID=body) for body in bodies])
            return one.discharge(name, fail=fail)

        assert work("1", fail=True) == ""
        assert work("1") == ""
        assert count(gateway, address) == 1
        assert "duplicate id" in work("2", "1")
        assert work("2") == ""
        assert count(gateway, address) == 2


def test_a23_a_subscriber_begins_with_the_last_ones_over_kill_9(gateway) -> None:
    with connected(gateway) as connection:
        sender = connection.create_sender("kept", options=_Topic())
        for n in range(7):
            sender.send(Message(body=f"{n}", durable=True))
    gateway.kill()
    gateway.start()
    reader = StompClient(gateway)
    reader.subscribe("/topic/kept")
    assert [reader.get().body for _ in range(3)] == [b"4", b"5", b"6"]
    assert reader.arrived.empty()
    reader.connection.disconnect()


def test_m9_m10_over_http(gateway, address) -> None:
    def producers() -> list[int]:
        shown = gateway.request("GET", f"/api/v1/producers?address={address}")[1]["items"]
        return [one["messagesSent"] for one in shown]

    client = StompClient(gateway)
    for sent in (1, 2):
        client.send(address, "x")
        assert producers() == [sent]
    assert gateway.request("POST", f"/api/v1/queues/{address}/disable")[1]["enabled"] is False
    client.send(address, "y")
    assert count(gateway, address) == 2
    gateway.kill()
    gateway.start()
    assert queue(gateway, address)["enabled"] is False
    assert producers() == []
