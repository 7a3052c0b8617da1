"""Policies as clients of other projects meet them: slow consumers, full addresses and drains."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from proton import ConnectionException, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container
from proton.utils import SendException

from gateway.trial.scratch import HOST, ScratchGateway
from gateway.trial.self_signed import KeyPair
from tests.interop.support import SECONDS, amqp_url, connected, queue, trust, wait_until
from tests.interop.test_scenarios import Client
from tests.logs import wait_records

pytestmark = pytest.mark.interop

CONFIG = """
[address-settings."slow.#"]
slow-consumer-threshold = 10
slow-consumer-check-period = 1
slow-consumer-policy = "NOTIFY"

[address-settings."slow.kill.#"]
slow-consumer-policy = "KILL"

[address-settings."full.#"]
max-size-messages = 3
address-full-policy = "FAIL"

[acceptors.all]
endpoint = "tcp:0:interface=127.0.0.1"
amqp-credits = 10
amqp-low-credits = 3
amqp-link-quiesce-timeout = 1000

[acceptors.stomp]
endpoint = "tcp:0:interface=127.0.0.1"
protocols = ["STOMP"]
"""


@pytest.fixture(scope="module")
def gateway(
    tmp_path_factory: pytest.TempPathFactory, tls: KeyPair | None
) -> Iterator[ScratchGateway]:
    folder: Path = tmp_path_factory.mktemp("policies")
    config = folder / "f.toml"
    config.write_text(CONFIG)
    with ScratchGateway(folder, config=config, tls=tls) as running:
        yield running


def fill(gateway: ScratchGateway, address: str, count: int) -> None:
    with connected(gateway) as connection:
        sender = connection.create_sender(address)
        for number in range(count):
            sender.send(Message(body=number))


def take_without_a_word(gateway: ScratchGateway, address: str, count: int) -> None:
    with connected(gateway, timeout=8) as connection:
        receiver = connection.create_receiver(address, credit=count)
        for _ in range(count):
            receiver.receive()


def metric(gateway: ScratchGateway, name: str) -> float:
    with urlopen(f"{gateway.url}/metrics", timeout=SECONDS) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(f"sluicegate_{name} "))


def test_a29_proton_is_told_why_its_connection_is_closed(gateway: ScratchGateway) -> None:
    fill(gateway, "slow.kill.amqp", 25)
    with pytest.raises(ConnectionException) as caught:
        take_without_a_word(gateway, "slow.kill.amqp", 26)
    assert "amqp:connection:forced" in str(caught.value)
    assert "slow-consumer-threshold" in str(caught.value)
    wait_until(lambda: queue(gateway, "slow.kill.amqp")["consumerCount"] == 0)
    facts = queue(gateway, "slow.kill.amqp")
    assert (facts["messageCount"], facts["deliveringCount"]) == (25, 0)


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a29_stomp_py_gets_an_error_and_is_cut_off(gateway: ScratchGateway, version: str) -> None:
    name = f"slow.kill.stomp{version[-1]}"
    fill(gateway, name, 25)
    client = Client(gateway, version)
    client.subscribe(name, ack="client")
    wait_until(lambda: client.ended)
    (error,) = client.errors
    assert error["error-code"] == "slow-consumer"
    wait_until(lambda: queue(gateway, name)["consumerCount"] == 0)
    assert queue(gateway, name)["messageCount"] == 25


def test_a29_notices_come_to_who_listens_and_the_log(gateway: ScratchGateway) -> None:
    fill(gateway, "slow.tell", 25)
    listener = Client(gateway, "1.2")
    listener.subscribe("/topic/activemq.notifications")
    before = metric(gateway, "slow_consumers_found_total")
    client = Client(gateway, "1.2")
    client.subscribe("slow.tell", ack="client")
    told: dict[str, Any] = {}
    while told.get("address") != "slow.tell":
        (frame,) = listener.get()
        told = json.loads(frame.body)
    assert (told["notifType"], told["consumerCount"]) == ("CONSUMER_SLOW", 1)
    assert (told["remoteAddress"], told["protocolName"]) == (HOST, "STOMP")
    assert not client.ended
    assert metric(gateway, "slow_consumers_found_total") > before
    wait_records(gateway, "consumer.found_slow", address="slow.tell")
    client.connection.disconnect()
    listener.connection.disconnect()


def test_a30_with_little_to_do_nobody_is_cut_off(gateway: ScratchGateway) -> None:
    fill(gateway, "slow.kill.little", 5)
    client = Client(gateway, "1.2")
    client.subscribe("slow.kill.little", ack="client")
    client.get(5)
    time.sleep(2.5)
    assert (client.ended, client.errors) == (False, [])
    client.connection.disconnect()


class Flooder(MessagingHandler):
    """Sends to a full address; answers a drain, or does not."""

    def __init__(self, gateway: ScratchGateway, address: str, *, drains: bool) -> None:
        super().__init__(auto_settle=True)
        self.gateway, self.address, self.drains = gateway, address, drains
        self.sent = 0
        self.refused = 0
        self.asked = False
        self.condition = ""
        self.drained = 0

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(
            amqp_url(self.gateway), ssl_domain=trust(self.gateway), reconnect=False
        )
        event.container.create_sender(connection, self.address)
        event.container.schedule(2.5, self)

    def on_sendable(self, event: Any) -> None:
        while self.sent < 5 and event.sender.credit:
            event.sender.send(Message(body=self.sent))
            self.sent += 1

    def on_link_flow(self, event: Any) -> None:
        link = event.link
        if link.is_sender and link.drain_mode:
            self.asked = True
            if self.drains:
                self.drained += link.drained()
        else:
            self.on_sendable(event)

    def on_rejected(self, event: Any) -> None:
        self.refused += 1

    def on_link_error(self, event: Any) -> None:
        self.condition = event.link.remote_condition.name
        event.connection.close()

    def on_timer_task(self, event: Any) -> None:
        event.container.stop()


@pytest.mark.parametrize("drains", [True, False])
def test_p19_a_proton_sender_that_was_refused(gateway: ScratchGateway, drains: bool) -> None:
    address = f"full.{drains}"
    handler = Flooder(gateway, address, drains=drains)
    Container(handler).run()
    assert (handler.sent, handler.asked, handler.refused) == (5, True, 2)
    assert (handler.drained > 0) == drains
    assert handler.condition == ("" if drains else "amqp:link:detach-forced")
    assert queue(gateway, address)["messageCount"] == 3


def test_p19_a_blocking_sender_goes_on_when_there_is_room_in_time(gateway: ScratchGateway) -> None:
    with connected(gateway) as connection:
        sender = connection.create_sender("full.room")
        for number in range(3):
            sender.send(Message(body=number))
        with pytest.raises(SendException):
            sender.send(Message(body="too many"))
        status, _ = gateway.request("POST", "/api/v1/queues/full.room/removeAllMessages", {})
        assert status == 200
        time.sleep(1.5)
        for number in range(3):
            sender.send(Message(body=number))
