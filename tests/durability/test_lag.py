"""A disk that lags, through real clients: dispatch waits for it and changes back by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import stomp
from proton import Message
from proton.utils import BlockingConnection, BlockingReceiver

from gateway.trial.scratch import HOST
from tests.durability.faulty import HANG, FaultyGateway
from tests.logs import wait_log

SECONDS = 20.0
#: What must not come is given so long to come all the same.
QUIET = 0.4


class Reader(stomp.ConnectionListener):
    """Keeps the bodies of what it gets."""

    def __init__(self) -> None:
        self.got: list[str] = []

    def on_message(self, frame: stomp.utils.Frame) -> None:
        self.got.append(str(frame.body))


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[FaultyGateway]:
    settings = ("store-lag-limit=300", 'address-settings."strict".strict-dispatch=true')
    with FaultyGateway(tmp_path / "gateway", HANG, settings=settings) as running:
        yield running
        running.switch.unlink(missing_ok=True)


def until(true: Callable[[], object], what: str) -> None:
    end = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def store(gateway: FaultyGateway) -> dict[str, object]:
    return gateway.request("GET", "/api/v1/store")[1]["lag"]


def connect(gateway: FaultyGateway, reader: Reader | None = None) -> stomp.Connection12:
    client = stomp.Connection12([(HOST, gateway.stomp_port)])
    if reader is not None:
        client.set_listener("", reader)
    client.connect(wait=True)
    return client


def send(client: stomp.Connection12, *bodies: str, to: str = "/queue/q") -> None:
    for body in bodies:
        client.send(to, body, headers={"persistent": "true"})


def test_dispatch_waits_while_the_disk_lags_and_changes_back(gateway: FaultyGateway) -> None:
    reader = Reader()
    taker, sender = connect(gateway, reader), connect(gateway)
    taker.subscribe("/queue/q", "s", ack="client-individual")
    send(sender, "1")
    until(lambda: reader.got == ["1"], "what was sent before never came")

    gateway.switch.touch()
    send(sender, "2")
    until(lambda: reader.got == ["1", "2"], "dispatch waits although the disk does not lag yet")
    until(lambda: store(gateway)["dispatchWaits"], "the disk stands, and nobody says so")
    send(sender, "3", "4")
    until(lambda: queue(gateway)["storingCount"] == 2, "what was sent is not held")
    time.sleep(QUIET)
    assert reader.got == ["1", "2"], "handed out before it was on disk"
    assert "Dispatch waits for the disk" in str(queue(gateway)["reason"])
    assert gateway.request("GET", "/readyz")[1]["code"] == "store-lags"
    wait_log(gateway, "store.lags")

    gateway.switch.unlink()
    until(lambda: reader.got == ["1", "2", "3", "4"], f"held for ever: {reader.got}")
    until(lambda: not store(gateway)["dispatchWaits"], "never changes back")
    wait_log(gateway, "store.keeps_up")
    assert gateway.request("GET", "/readyz")[1] == {"status": "ready"}

    gateway.switch.touch()
    send(sender, "5")
    until(lambda: reader.got[-1] == "5", "dispatch waits although it changed back")
    assert store(gateway)["times"] in (1, 2)
    gateway.switch.unlink()
    taker.disconnect()
    sender.disconnect()


def test_an_amqp_receiver_gets_what_is_on_disk_and_all_of_it_after_a_kill(
    gateway: FaultyGateway,
) -> None:
    connection = BlockingConnection(f"amqp://{HOST}:{gateway.port}", timeout=SECONDS)
    connection.create_sender("q").send(Message(body=b"1", durable=True))
    receiver = connection.create_receiver("q", credit=10)
    assert body(receiver) == b"1"
    receiver.accept()
    sender = connect(gateway)
    gateway.switch.touch()
    send(sender, "2")
    assert body(receiver) == b"2"
    until(lambda: store(gateway)["dispatchWaits"], "the disk stands, and nobody says so")
    send(sender, "3")
    until(lambda: queue(gateway)["storingCount"] == 1, "what was sent is not held")
    gateway.kill()
    gateway.switch.unlink()
    gateway.start()
    again = BlockingConnection(f"amqp://{HOST}:{gateway.port}", timeout=SECONDS)
    left = queue(gateway)["messageCount"]
    reading = again.create_receiver("q", credit=10)
    assert {body(reading) for _ in range(left)} <= {b"1", b"2"}, "the disk never had the third"


def body(receiver: BlockingReceiver) -> bytes:
    message = receiver.receive()  # which its body is a view of
    return bytes(message.body)


def queue(gateway: FaultyGateway) -> dict[str, object]:
    return gateway.request("GET", "/api/v1/queues/q")[1]
