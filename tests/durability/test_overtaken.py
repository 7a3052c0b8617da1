"""K1 through real clients: all is confirmed while the disk stands, and a kill changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import stomp
from proton import Message
from proton.utils import BlockingConnection

from gateway.trial.scratch import HOST
from tests.durability.faulty import HANG, FaultyGateway

SECONDS = 20.0


class Client(stomp.ConnectionListener):
    """A stomp.py client that keeps what it is told, and acknowledges all with a receipt."""

    def __init__(self, gateway: FaultyGateway) -> None:
        self.receipts: list[str] = []
        self.acks: list[str] = []
        self.connection = stomp.Connection12([(HOST, gateway.stomp_port)])
        self.connection.set_listener("", self)
        self.connection.connect(wait=True)

    def on_receipt(self, frame: stomp.utils.Frame) -> None:
        self.receipts.append(frame.headers["receipt-id"])

    def on_message(self, frame: stomp.utils.Frame) -> None:
        self.acks.append(frame.headers["ack"])
        self.connection.ack(frame.headers["ack"], receipt=f"ack-{len(self.acks)}")

    def send(self, text: str, receipt: str | None = None, to: str = "/queue/q") -> None:
        headers = {"persistent": "true"} | ({} if receipt is None else {"receipt": receipt})
        self.connection.send(to, text, headers=headers)


def until(true: Callable[[], object], what: str) -> None:
    end = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def test_k1_send_and_acknowledgement_are_confirmed_while_the_disk_stands(tmp_path: Path) -> None:
    gateway = FaultyGateway(tmp_path / "gateway", HANG)
    gateway.start()
    reader, sender = Client(gateway), Client(gateway)
    reader.connection.subscribe("/queue/q", "s", ack="client-individual")
    sender.send("first", "send-0")
    until(lambda: reader.receipts == ["ack-1"] and sender.receipts, "not even the disk confirms")

    gateway.switch.touch()
    sender.send("what the disk has to do", to="/queue/elsewhere")
    time.sleep(0.2)
    for number in range(1, 21):
        sender.send("m", f"send-{number}")
        until(lambda n=number: f"send-{n}" in sender.receipts, f"send {number} waits for the disk")
    until(lambda: len(reader.receipts) == 21, f"an ACK waits: {reader.receipts}")
    assert reader.receipts == [f"ack-{number}" for number in range(1, 22)]
    assert gateway.switch.exists()
    gateway.kill()
    gateway.switch.unlink()
    gateway.start()
    assert gateway.request("GET", "/api/v1/queues/q")[1]["messageCount"] == 0
    assert gateway.stop() == 0


def test_k1_an_amqp_sender_is_confirmed_by_a_stomp_reader(tmp_path: Path) -> None:
    gateway = FaultyGateway(tmp_path / "gateway", HANG)
    gateway.start()
    reader, other = Client(gateway), Client(gateway)
    reader.connection.subscribe("/queue/q", "s", ack="client-individual")
    connection = BlockingConnection(f"amqp://{HOST}:{gateway.port}", timeout=SECONDS)
    sender = connection.create_sender("q")
    gateway.switch.touch()
    other.send("what the disk has to do", to="/queue/elsewhere")
    time.sleep(0.2)
    sender.send(Message(body="m", durable=True))  # raises when it is not confirmed
    until(lambda: reader.receipts == ["ack-1"], "the ACK waits for the disk")
    gateway.kill()
    gateway.switch.unlink()
    gateway.start()
    assert gateway.request("GET", "/api/v1/queues/q")[1]["messageCount"] == 0
    assert gateway.stop() == 0
