"""Scenario rows as real clients see them, by their numbers: stomp.py in each version, Proton.

The same rows over the broker in memory are in tests/conformance; these say that a client of another
project makes the same of it.
"""

from __future__ import annotations

import queue as queues
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
import stomp
from proton import Message

from gateway.trial.scratch import HOST, ScratchGateway
from tests.interop.support import SECONDS, connected, over_tls, queue, wait_until

pytestmark = pytest.mark.interop

CONNECTIONS = {"1.0": stomp.Connection10, "1.1": stomp.Connection11, "1.2": stomp.Connection12}
VERSIONS = sorted(CONNECTIONS)
FIFTY = [str(i) for i in range(50)]


class Client(stomp.ConnectionListener):
    """stomp.py of one version; every frame is asked to be confirmed."""

    def __init__(self, gateway: ScratchGateway, version: str, **login: Any) -> None:
        self.version = version
        self.arrived: queues.Queue[Any] = queues.Queue()
        self.errors: list[Any] = []
        self.receipts: set[str] = set()
        self.ended = False
        self._numbers = count()
        self.connection = CONNECTIONS[version]([(HOST, gateway.stomp_port)])
        over_tls(self.connection, gateway)
        self.connection.set_listener("", self)
        self.connection.connect(wait=True, **login)

    def on_message(self, frame: Any) -> None:
        self.arrived.put(frame)

    def on_error(self, frame: Any) -> None:
        self.errors.append(frame.headers)

    def on_receipt(self, frame: Any) -> None:
        self.receipts.add(frame.headers["receipt-id"])

    def on_disconnected(self) -> None:
        self.ended = True

    def do(self, command: str, headers: dict[str, str], body: str = "") -> str:
        """Send a frame and wait for its receipt or an ERROR; returns the ERROR's code or ""."""
        receipt = f"r-{next(self._numbers)}"
        known = len(self.errors)
        self.connection.transport.transmit(
            stomp.utils.Frame(command, {**headers, "receipt": receipt}, body)
        )
        wait_until(lambda: receipt in self.receipts or len(self.errors) > known)
        if receipt in self.receipts:
            return ""
        assert self.errors[-1]["receipt-id"] == receipt
        return str(self.errors[-1]["error-code"])

    def send(self, destination: str, *bodies: str, **headers: str) -> None:
        """Send, and wait for the receipt of the last one."""
        named = {"destination": destination, **headers}
        for body in bodies[:-1]:
            self.connection.transport.transmit(stomp.utils.Frame("SEND", named, body))
        assert self.do("SEND", named, bodies[-1]) == ""

    def subscribe(self, destination: str, ack: str = "auto", **headers: str) -> None:
        named = {"destination": destination, "ack": ack, "id": "s", **headers}
        assert self.do("SUBSCRIBE", named) == ""

    def get(self, amount: int = 1) -> list[Any]:
        return [self.arrived.get(timeout=SECONDS) for _ in range(amount)]

    def settle(self, frame: Any, command: str = "ACK", **headers: str) -> None:
        named = {"message-id": frame.headers["message-id"], "subscription": "s"}
        if self.version == "1.2":
            named = {"id": frame.headers["ack"]}
        assert self.do(command, {**named, **headers}) == ""


@contextmanager
def client(gateway: ScratchGateway, version: str, **login: Any) -> Iterator[Client]:
    made = Client(gateway, version, **login)
    try:
        yield made
    finally:
        made.connection.disconnect()
        wait_until(lambda: made.ended)


def bodies(frames: list[Any]) -> list[str]:
    return [frame.body for frame in frames]


@pytest.mark.parametrize("version", VERSIONS)
def test_s9_s3_a_client_ack_covers_all_before_it(shared: ScratchGateway, version: str) -> None:
    address = f"s9.{version}"  # short: fifty frames are within the default window
    with client(shared, version) as one:
        one.send(address, *FIFTY)
        one.subscribe(address, "client")
        frames = one.get(50)
        assert bodies(frames) == FIFTY
        one.settle(frames[48])
    wait_until(lambda: queue(shared, address)["deliveringCount"] == 0)
    assert queue(shared, address)["messageCount"] == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_s12_what_was_not_acknowledged_comes_again_marked(
    shared: ScratchGateway, address: str, version: str
) -> None:
    with client(shared, version) as first:
        first.send(address, "m")
        first.subscribe(address, "client")
        assert first.get()[0].headers["redelivered"] == "false"
    with client(shared, version) as second:
        second.subscribe(address)
        assert second.get()[0].headers["redelivered"] == "true"
    wait_until(lambda: queue(shared, address)["consumerCount"] == 0)
    with client(shared, version) as third:
        third.subscribe(address)
        third.send(address, "next")
        assert bodies(third.get()) == ["next"]


@pytest.mark.parametrize("version", VERSIONS)
def test_s13_s20_a_transaction_of_a_send_and_an_ack_is_undone(
    shared: ScratchGateway, address: str, version: str
) -> None:
    with client(shared, version) as one:
        one.send(address, "m")
        one.subscribe(address, "client-individual")
        (frame,) = one.get()
        assert one.do("BEGIN", {"transaction": "t"}) == ""
        one.send(f"{address}.other", "never", transaction="t")
        one.settle(frame, transaction="t")
        assert one.do("ABORT", {"transaction": "t"}) == ""
        (again,) = one.get()
        assert (again.body, again.headers["redelivered"]) == ("m", "true")
        assert one.do("BEGIN", {"transaction": "t"}) == ""
        one.send(f"{address}.other", "at last", transaction="t")
        one.settle(again, transaction="t")
        assert one.do("COMMIT", {"transaction": "t"}) == ""
    assert queue(shared, address)["messageCount"] == 0
    assert queue(shared, f"{address}.other")["messagesAdded"] == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_s18_s19_a_durable_subscription_lives_until_it_is_named(
    shared: ScratchGateway, address: str, version: str
) -> None:
    login = {"headers": {"client-id": f"c{version}"}}
    durable = {"durable-subscription-name": "n"}
    topic, name = f"/topic/{address}", f"c{version}.n"
    with client(shared, version, **login) as one:
        one.subscribe(topic, **durable)
    wait_until(lambda: queue(shared, name)["consumerCount"] == 0)
    with client(shared, version) as other:
        other.send(topic, "meanwhile")
    with client(shared, version, **login) as again:
        again.subscribe(topic, **durable)
        assert bodies(again.get()) == ["meanwhile"]
        assert again.do("UNSUBSCRIBE", {"id": "s", **durable}) == ""
    status, _ = shared.request("GET", f"/api/v1/queues/{name}")
    assert status == 404


@pytest.mark.parametrize("version", VERSIONS)
def test_s14_s21_a_refusal_ends_1_2_only(
    shared: ScratchGateway, address: str, version: str
) -> None:
    with client(shared, version) as one:
        assert one.do("BEGIN", {"transaction": "t"}) == ""
        assert one.do("BEGIN", {"transaction": "t"}) == "already-exists"
        if version == "1.2":
            wait_until(lambda: one.ended)
        else:
            one.send(address, "goes on")
    with client(shared, version) as one:
        one.send(address, "stays")
        one.subscribe(address, "client")
        one.get()
        named = {"message-id": "c0-1-0099", "subscription": "s", "id": "c0-1-0099"}
        assert one.do("ACK", named) == "not-found"
    with client(shared, version) as one:
        one.subscribe(address)
        assert one.get()[-1].headers["redelivered"] == "true"


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_s26_s22_each_subscriber_has_a_copy_and_the_queue_none(
    shared: ScratchGateway, address: str, version: str
) -> None:
    topic = f"/topic/{address}"
    with client(shared, version) as one, client(shared, version) as two:
        one.subscribe(topic, id="sub1")
        two.subscribe(topic, id="sub2")
        one.subscribe(f"/queue/{address}", id="queue")
        two.send(topic, "m")
        two.send(f"/queue/{address}", "q")
        headers = {f.headers["subscription"]: f for f in one.get(2) + two.get()}
        assert {name: f.body for name, f in headers.items()} == {
            "sub1": "m",
            "sub2": "m",
            "queue": "q",
        }
        assert headers["sub1"].headers["destination"] == topic
        ids = {f.headers["message-id"] for f in headers.values()}
        assert len(ids) == 3


@pytest.mark.parametrize("version", VERSIONS)
def test_s32_a_thousand_come_in_order(shared: ScratchGateway, address: str, version: str) -> None:
    numbers = [str(i) for i in range(1000)]
    with client(shared, version) as one:
        for number in numbers:
            one.connection.send(address, number)
        one.send(address, "last")
        one.subscribe(address)
        assert bodies(one.get(1001)) == [*numbers, "last"]


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_u7_refused_too_often_it_is_a_dead_letter(
    shared: ScratchGateway, address: str, version: str
) -> None:
    with client(shared, version) as one:
        one.send(address, address)
        one.subscribe(address, "client-individual")
        for _ in range(5):  # max-delivery-attempts of this gateway
            one.settle(one.get()[0], "NACK")
    wait_until(lambda: queue(shared, address)["messageCount"] == 0)
    with client(shared, version) as reader:
        reader.subscribe("DLQ", "client-individual")
        (frame,) = [
            f for f in reader.get(queue(shared, "DLQ")["messageCount"]) if f.body == address
        ]
        assert frame.headers["_AMQ_ORIG_QUEUE"] == address
        reader.settle(frame)


def test_q43_receivers_with_one_credit_take_turns(shared: ScratchGateway, address: str) -> None:
    with connected(shared) as one, connected(shared) as two:
        sender = one.create_sender(address)
        for number in range(4):
            sender.send(Message(body=number))
        readers = [c.create_receiver(address, credit=0) for c in (one, two)]
        got = []
        for _ in range(2):
            for reader in readers:
                got.append(reader.receive(timeout=SECONDS).body)
                reader.accept()
        assert got == [0, 1, 2, 3]
