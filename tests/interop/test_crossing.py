"""Messages that cross between Proton and stomp.py, both ways, with all that they say."""

from __future__ import annotations

import hashlib
import queue as queues
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import stomp
from proton import Message, symbol
from proton.reactor import ReceiverOption

from gateway.trial.scratch import HOST, ScratchGateway
from tests.interop.support import SECONDS, connected, over_tls, queue, raw, wait_until

pytestmark = pytest.mark.interop

LARGE = hashlib.sha256(b"large").digest() * 163_840  # 5 MiB
NASTY = 'a:b\\c\nd\r"grün"'


class StompClient(stomp.ConnectionListener):
    """stomp.py with what came in a queue."""

    def __init__(self, gateway: ScratchGateway, **options: Any) -> None:
        self.arrived: queues.Queue[Any] = queues.Queue()
        self.errors: list[Any] = []
        self.receipts: set[str] = set()
        where = [(HOST, gateway.stomp_port)]
        self.connection = stomp.Connection12(where, auto_decode=False, **options)
        over_tls(self.connection, gateway)
        self.connection.set_listener("", self)
        self.connection.connect(wait=True)

    def on_message(self, frame: Any) -> None:
        self.arrived.put(frame)

    def on_error(self, frame: Any) -> None:
        self.errors.append(frame.headers)

    def on_receipt(self, frame: Any) -> None:
        self.receipts.add(frame.headers["receipt-id"])

    def send(self, destination: str, body: Any, **headers: str) -> None:
        """Send, and wait until it is confirmed."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.request("send", destination, body, headers=named)

    def subscribe(self, destination: str, ack: str = "auto") -> None:
        self.request("subscribe", destination, "s", ack=ack)

    def request(self, command: str, *arguments: Any, headers: Any = None, **more: Any) -> None:
        receipt = f"r-{time.monotonic_ns()}"
        headers = {**(headers or {}), "receipt": receipt}
        getattr(self.connection, command)(*arguments, headers=headers, **more)
        wait_until(lambda: receipt in self.receipts or bool(self.errors))
        assert self.errors == []

    def get(self) -> Any:
        return self.arrived.get(timeout=SECONDS)


@contextmanager
def stomped(gateway: ScratchGateway, **options: Any) -> Iterator[StompClient]:
    client = StompClient(gateway, **options)
    try:
        yield client
        assert client.errors == []
    finally:
        client.connection.disconnect()


def test_all_that_an_amqp_message_says_reaches_stomp(shared: ScratchGateway, address: str) -> None:
    with connected(shared) as amqp, stomped(shared) as client:
        amqp.create_sender(address).send(
            Message(
                id="id-1",
                subject="kind",
                correlation_id="c-1",
                reply_to="answers",
                content_type=symbol("application/json"),
                durable=True,
                priority=8,
                ttl=60,
                group_id="g",
                properties={"plain": "x", NASTY: NASTY, "number": 7, "flag": True},
                inferred=True,
                body='{"grün": 1}'.encode(),
            )
        )
        client.subscribe(f"/queue/{address}")
        frame = client.get()
    headers = frame.headers
    assert frame.body == '{"grün": 1}'.encode()
    expected = {
        "NATIVE_MESSAGE_ID": "id-1",
        "type": "kind",
        "correlation-id": "c-1",
        "reply-to": "answers",
        "content-type": "application/json",
        "content-length": str(len(frame.body)),
        "persistent": "true",
        "priority": "8",
        "JMSXGroupID": "g",
        "plain": "x",
        "number": "7",
        "flag": "true",
        "redelivered": "false",
        "subscription": "s",
    }
    assert {name: headers.get(name) for name in expected} == expected
    assert 0 < int(headers["expires"]) / 1000 - time.time() <= 60
    assert NASTY not in headers, "a name with a line end is no header"
    wait_until(lambda: queue(shared, address)["messageCount"] == 0)


@pytest.mark.parametrize(
    ("body", "shown", "kind"),
    [
        ("grün", "grün".encode(), None),
        (b"\x00\xff\n", b"\x00\xff\n", None),
        ([1, "two", None], b'[1,"two",null]', "application/json"),
        ({"a": 1}, b'{"a":1}', "application/json"),
        (None, b"", None),
    ],
    ids=["text", "binary", "list", "map", "null"],
)
def test_any_amqp_body_has_a_stomp_form(
    shared: ScratchGateway, address: str, body: Any, shown: bytes, kind: str | None
) -> None:
    with connected(shared) as amqp, stomped(shared) as client:
        amqp.create_sender(address).send(Message(body=body))
        client.subscribe(f"/queue/{address}")
        frame = client.get()
    got = frame.body if isinstance(frame.body, bytes) else frame.body.encode()
    assert got.replace(b" ", b"") == shown
    assert frame.headers.get("content-type") == kind
    assert frame.headers["persistent"] == "false"


def test_all_that_a_stomp_message_says_reaches_amqp(shared: ScratchGateway, address: str) -> None:
    expires = int(time.time() * 1000) + 60_000
    with stomped(shared) as client, connected(shared) as amqp:
        client.send(
            f"/queue/{address}",
            b"\x00\xff\n",
            content_type="application/x-thing",
            priority="9",
            persistent="true",
            expires=str(expires),
            correlation_id="c-1",
            reply_to="/queue/answers",
            type="kind",
            plain="x",
            nasty=NASTY,
        )
        receiver = amqp.create_receiver(address)
        got = receiver.receive()
        receiver.accept()
        assert got.inferred
        assert bytes(got.body) == b"\x00\xff\n"
    assert (got.content_type, got.durable, got.priority) == ("application/x-thing", True, 9)
    assert (got.correlation_id, got.reply_to, got.subject) == ("c-1", "answers", "kind")
    assert got.address == address
    assert got.expiry_time * 1000 == expires
    assert 0 < got.ttl <= 60
    assert got.properties["plain"] == "x"
    assert got.properties["nasty"] == NASTY
    # The frame's own headers are no properties.
    assert got.properties.keys() == {"plain", "nasty"}


def test_a_stomp_text_is_a_string_in_amqp(shared: ScratchGateway, address: str) -> None:
    with stomped(shared, auto_content_length=False) as client, connected(shared) as amqp:
        client.send(address, "grün", persistent="false")
        receiver = amqp.create_receiver(address)
        got = receiver.receive()
        receiver.accept()
    assert (got.body, got.durable, got.inferred) == ("grün", False, False)


def test_there_and_back_is_the_same(shared: ScratchGateway, address: str) -> None:
    with stomped(shared) as client, connected(shared) as amqp:
        client.send(address, b"body", content_type="text/x", correlation_id="c", mine=NASTY)
        receiver = amqp.create_receiver(address)
        message = receiver.receive()
        receiver.accept()
        message.address = None
        amqp.create_sender(f"{address}.back").send(message)
        client.subscribe(f"{address}.back")
        frame = client.get()
    assert frame.body == b"body"
    assert frame.headers["content-type"] == "text/x"
    assert frame.headers["correlation-id"] == "c"
    assert frame.headers["mine"] == NASTY


def test_five_megabytes_cross_both_ways(shared: ScratchGateway, address: str) -> None:
    with connected(shared, max_frame_size=16_384) as amqp, stomped(shared) as client:
        sender = amqp.create_sender(f"{address}.to.stomp")
        sender.send(Message(body=LARGE, inferred=True, durable=True))
        client.subscribe(f"{address}.to.stomp")
        assert client.get().body == LARGE
        client.send(f"{address}.to.amqp", LARGE)
        receiver = amqp.create_receiver(f"{address}.to.amqp")
        got = receiver.receive()
        assert bytes(got.body) == LARGE
        receiver.accept()


def test_priorities_hold_over_both_protocols(shared: ScratchGateway, address: str) -> None:
    with connected(shared) as amqp, stomped(shared) as client:
        sender = amqp.create_sender(address)
        for number, priority in enumerate((4, 0, 9, 4)):
            sender.send(Message(body=f"amqp-{number}", priority=priority))
            client.send(address, f"stomp-{number}", priority=str(priority))
        receiver = amqp.create_receiver(address, credit=8)
        got = []
        for _ in range(8):
            message = receiver.receive()
            body = message.body
            got.append(body if isinstance(body, str) else bytes(body).decode())
            receiver.accept()
    order = (2, 0, 3, 1)
    assert got == [f"{kind}-{number}" for number in order for kind in ("amqp", "stomp")]


def test_what_stomp_refuses_comes_to_amqp_as_seen(shared: ScratchGateway, address: str) -> None:
    with connected(shared) as amqp:
        amqp.create_sender(address).send(Message(body=b"once more", inferred=True, durable=True))
        with stomped(shared) as client:
            client.subscribe(address, ack="client-individual")
            frame = client.get()
            client.request("unsubscribe", "s")
            assert frame.headers["redelivered"] == "false"
        with stomped(shared) as client:
            client.subscribe(address, ack="client-individual")
            client.connection.nack(client.get().headers["ack"])
            client.request("unsubscribe", "s")
        receiver = amqp.create_receiver(address)
        got = receiver.receive()
        receiver.accept()
        assert (bytes(got.body), got.delivery_count) == (b"once more", 1)


def test_an_amqp_question_is_answered_by_stomp(shared: ScratchGateway, address: str) -> None:
    with connected(shared) as amqp, stomped(shared) as client:
        client.subscribe(address)
        answers = amqp.create_receiver(None, dynamic=True)
        question = Message(
            body="question", reply_to=answers.remote_source.address, correlation_id="c-7"
        )
        amqp.create_sender(address).send(question)
        frame = client.get()
        client.send(
            frame.headers["reply-to"],
            frame.body.upper(),
            correlation_id=frame.headers["correlation-id"],
        )
        got = answers.receive()
        answers.accept()
        assert (bytes(got.body), got.correlation_id) == (b"QUESTION", "c-7")


class Topic(ReceiverOption):
    def apply(self, receiver: Any) -> None:
        receiver.source.capabilities.put_object(symbol("topic"))


def test_subscribers_of_both_protocols_each_get_their_copy(
    shared: ScratchGateway, address: str
) -> None:
    with connected(shared) as amqp, stomped(shared) as one, stomped(shared) as other:
        receiver = amqp.create_receiver(address, credit=10, options=Topic())
        one.subscribe(f"/topic/{address}")
        other.subscribe(f"/topic/{address}")
        amqp.create_sender(address).send(Message(body=b"from amqp", inferred=True))
        one.send(f"/topic/{address}", b"from stomp")
        for client in (one, other):
            assert [client.get().body for _ in range(2)] == [b"from amqp", b"from stomp"]
        for expected in (b"from amqp", b"from stomp"):
            got = receiver.receive()
            assert bytes(got.body) == expected
            receiver.accept()


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_the_time_of_sending_crosses_both_ways(
    shared: ScratchGateway, address: str, version: str
) -> None:
    """A STOMP message says when the gateway took it; an AMQP one what its sender said, or 0."""
    begun = time.time()
    with raw(shared, shared.stomp_port) as peer:
        peer.sendall(f"CONNECT\naccept-version:{version}\nhost:x\n\n\0".encode())
        peer.sendall(f"SEND\ndestination:{address}\nreceipt:r\n\nx\0".encode())
        came = b""
        while b"receipt-id:r" not in came:
            came += peer.recv(65536)
        with connected(shared) as connection:
            message = connection.create_receiver(address).receive(timeout=SECONDS)
            assert begun - 1 < message.creation_time < time.time() + 1
            sender = connection.create_sender(f"{address}.back")
            sender.send(Message(body="dated", creation_time=1_700_000_000.5))
            sender.send(Message(body="undated"))
        peer.sendall(f"SUBSCRIBE\nid:s\ndestination:{address}.back\nack:auto\n\n\0".encode())
        while b"undated\0" not in came:
            came += peer.recv(65536)
    dated, undated = came.split(b"MESSAGE\n")[1:]
    assert b"\ntimestamp:1700000000500\n" in dated
    assert b"\ntimestamp:0\n" in undated
    assert b"\nexpires:0\n" in dated
    assert b"\nexpires:0\n" in undated
