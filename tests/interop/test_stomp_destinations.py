"""stomp.py in each version against a gateway process: destinations of other brokers, and times."""

from __future__ import annotations

import queue as queues
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import stomp
from proton import Message

from gateway.trial.scratch import HOST, ScratchGateway
from tests.interop.support import SECONDS, connected, over_tls, wait_until

pytestmark = pytest.mark.interop

CONNECTIONS = {
    "1.0": stomp.Connection10,
    "1.1": stomp.Connection11,
    "1.2": stomp.Connection12,
}
VERSIONS = list(CONNECTIONS)


class Client(stomp.ConnectionListener):
    """stomp.py of one version, with what came in queues."""

    def __init__(self, gateway: ScratchGateway, version: str) -> None:
        self.arrived: queues.Queue[Any] = queues.Queue()
        self.errors: queues.Queue[Any] = queues.Queue()
        self.receipts: set[str] = set()
        self.version = version
        self.connection = CONNECTIONS[version]([(HOST, gateway.stomp_port)])
        over_tls(self.connection, gateway)
        self.connection.set_listener("", self)
        self.connection.connect(wait=True)

    def on_message(self, frame: Any) -> None:
        self.arrived.put(frame)

    def on_error(self, frame: Any) -> None:
        self.errors.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self.receipts.add(frame.headers["receipt-id"])

    def say(self, command: str, body: str = "", **headers: str) -> str:
        """Send a frame that asks for a receipt; returns its id."""
        receipt = f"r-{time.monotonic_ns()}"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.send_frame(command, {**named, "receipt": receipt}, body)
        return receipt

    def do(self, command: str, body: str = "", **headers: str) -> None:
        """Say it, and wait until it is confirmed."""
        receipt = self.say(command, body, **headers)
        wait_until(lambda: receipt in self.receipts or not self.errors.empty())
        assert self.errors.empty(), self.errors.get().headers

    def refused(self, command: str, **headers: str) -> Any:
        """Say what must be refused, and return the ERROR."""
        receipt = self.say(command, "x", **headers)
        error = self.errors.get(timeout=SECONDS)
        assert error.headers["receipt-id"] == receipt
        return error

    def get(self) -> Any:
        return self.arrived.get(timeout=SECONDS)


@contextmanager
def client(gateway: ScratchGateway, version: str) -> Iterator[Client]:
    made = Client(gateway, version)
    try:
        yield made
    finally:
        if made.connection.is_connected():
            made.connection.disconnect()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("asked", VERSIONS)
def test_a_question_and_its_answer(
    shared: ScratchGateway, address: str, version: str, asked: str
) -> None:
    """The requester subscribes to nothing, as with RabbitMQ."""
    with client(shared, asked) as service, client(shared, version) as requester:
        service.do("SUBSCRIBE", id="s", destination=f"/queue/{address}")
        requester.do(
            "SEND",
            "what?",
            destination=f"/queue/{address}",
            reply_to="/temp-queue/answers",
            correlation_id="7",
        )
        question = service.get()
        service.do(
            "SEND",
            "that",
            destination=question.headers["reply-to"],
            correlation_id=question.headers["correlation-id"],
        )
        answer = requester.get()
        assert answer.body == "that"
        assert answer.headers["subscription"] == "/temp-queue/answers"
        assert answer.headers["correlation-id"] == "7"
        requester.connection.disconnect()
        # Too late: the service goes on all the same, also in 1.2.
        service.do("SEND", "late", destination=question.headers["reply-to"])
        service.do("SEND", "next", destination=f"/queue/{address}")
        assert service.get().body == "next"
    real = question.headers["reply-to"].removeprefix("/reply-queue/")
    assert shared.request("GET", f"/api/v1/queues/{real}")[0] == 404


@pytest.mark.parametrize("version", VERSIONS)
def test_an_amqp_service_answers(shared: ScratchGateway, address: str, version: str) -> None:
    with connected(shared) as amqp, client(shared, version) as requester:
        receiver = amqp.create_receiver(address)
        requester.do("SEND", "?", destination=address, reply_to="/temp-queue/a", correlation_id="7")
        question = receiver.receive()
        receiver.accept()
        amqp.create_sender(question.reply_to).send(
            Message(body="that", correlation_id=question.correlation_id)
        )
        answer = requester.get()
        assert (answer.headers["subscription"], answer.body) == ("/temp-queue/a", "that")
        assert answer.headers["correlation-id"] == "7"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_exchange_and_a_queue_that_is_there(
    shared: ScratchGateway, address: str, version: str
) -> None:
    with client(shared, version) as sender, client(shared, version) as receiver:
        receiver.do("SUBSCRIBE", id="t", destination=f"/exchange/amq.topic/{address}.*.eu")
        receiver.do("SUBSCRIBE", id="q", destination=f"/queue/{address}")
        for destination, body in (
            (f"/exchange/amq.topic/{address}.new.eu", "exchange"),
            (f"/topic/{address}.old.eu", "topic"),
            (f"/exchange/amq.topic/{address}.new.us", "nobody"),
            (f"/amq/queue/{address}", "queue"),
            (f"queue://{address}", "url"),
        ):
            sender.do("SEND", body, destination=destination)
        came = [receiver.get() for _ in range(4)]
        assert [(f.headers["subscription"], f.body) for f in came] == [
            ("t", "exchange"),
            ("t", "topic"),
            ("q", "queue"),
            ("q", "url"),
        ]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("destination", "instead"),
    [
        ("/exchange/amq.direct/k", "/topic/k"),
        ("jms.queue.orders", "/queue/orders"),
        ("/queue/a,/queue/b", "Send to each"),
        ("/topic/a.>", "/topic/a.#"),
    ],
)
@pytest.mark.parametrize("where", ["send", "subscribe", "reply"])
def test_what_is_not_offered_says_what_to_write(
    shared: ScratchGateway, address: str, version: str, destination: str, instead: str, where: str
) -> None:
    with client(shared, version) as one:
        match where:
            case "send":
                error = one.refused("SEND", destination=destination)
            case "subscribe":
                error = one.refused("SUBSCRIBE", id="s", destination=destination)
            case _:
                error = one.refused("SEND", destination=address, reply_to=destination)
        assert error.headers["error-code"] == "not-implemented"
        assert error.headers["content-type"] == "text/plain"
        assert instead in error.body
        if version == "1.2":
            wait_until(lambda: not one.connection.is_connected())
        else:
            one.do("SEND", "x", destination=address)


def test_times_of_a_message_before_and_after_a_restart(tmp_path: Any) -> None:
    """`timestamp` and `expires` are the same from memory, and from the journal after kill -9."""
    expires = str(int(time.time() * 1000) + 3_600_000)
    with ScratchGateway(tmp_path) as gateway:
        before = int(time.time() * 1000)
        for version in VERSIONS:
            with client(gateway, version) as sender:
                sender.do("SEND", "plain", destination="q", persistent="true")
                sender.do("SEND", "ends", destination="q", persistent="true", expires=expires)
        with connected(gateway) as amqp:
            amqp.create_sender("q").send(Message(body="amqp", durable=True))
        after = int(time.time() * 1000)
        seen: list[list[tuple[str, str]]] = []
        for restarts in (False, True):
            if restarts:
                gateway.kill()
                gateway.start()
            for version in VERSIONS:
                with client(gateway, version) as reader:
                    reader.do("SUBSCRIBE", id="s", destination="q", ack="client-individual")
                    came = [reader.get() for _ in range(7)]
                    assert [f.body for f in came] == ["plain", "ends"] * 3 + ["amqp"]
                    seen.append([(f.headers["timestamp"], f.headers["expires"]) for f in came])
        assert all(one == seen[0] for one in seen)
        *stomps, undated = seen[0]
        assert all(before <= int(stamp) <= after for stamp, _ in stomps)
        assert [end for _, end in stomps] == ["0", expires] * 3
        assert undated == ("0", "0")
