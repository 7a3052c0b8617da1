"""stomp.py over WebSocket, in text and in binary frames; it offers no subprotocol."""

from __future__ import annotations

import queue as queues
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
import stomp
from stomp.exception import ConnectFailedException

from gateway.trial.scratch import HOST, ScratchGateway
from tests.interop.support import SECONDS, connected, queue, wait_until

pytestmark = pytest.mark.interop

THREE = ["first", "zweitens: grün", "third " * 40_000]


class Client(stomp.ConnectionListener):
    """stomp.py with what came."""

    def __init__(self, gateway: ScratchGateway, **options: Any) -> None:
        self.arrived: queues.Queue[Any] = queues.Queue()
        self.errors: list[Any] = []
        self.receipts: set[str] = set()
        self.beats = self.lost = 0
        self._numbers = count()
        where = [(HOST, gateway.port)]
        self.connection = stomp.WSStompConnection(where, **options)
        if gateway.certificate is not None:
            self.connection.set_ssl(for_hosts=where, ca_certs=str(gateway.certificate))
        self.connection.set_listener("", self)

    def on_message(self, frame: Any) -> None:
        self.arrived.put(frame)

    def on_error(self, frame: Any) -> None:
        self.errors.append(frame.headers)

    def on_receipt(self, frame: Any) -> None:
        self.receipts.add(frame.headers["receipt-id"])

    def on_heartbeat(self) -> None:
        self.beats += 1

    def on_heartbeat_timeout(self) -> None:
        self.lost += 1

    def confirm(self, command: str, *arguments: Any, **more: Any) -> None:
        """Do something, and wait for its receipt."""
        receipt = f"r-{next(self._numbers)}"
        getattr(self.connection, command)(*arguments, receipt=receipt, **more)
        wait_until(lambda: receipt in self.receipts or bool(self.errors))
        assert self.errors == []

    def get(self) -> Any:
        return self.arrived.get(timeout=SECONDS)


@contextmanager
def client(gateway: ScratchGateway, **options: Any) -> Iterator[Client]:
    made = Client(gateway, **options)
    made.connection.connect(wait=True)
    try:
        yield made
    finally:
        made.connection.disconnect()


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
@pytest.mark.parametrize("path", [None, "/stomp"])
def test_what_is_sent_is_confirmed_and_comes_back(
    shared: ScratchGateway, address: str, path: str | None, *, binary: bool
) -> None:
    with client(shared, ws_path=path, binary_mode=binary) as one:
        for body in THREE:
            one.confirm("send", address, body, persistent="true")
        one.connection.subscribe(address, "s", ack="client-individual")
        for body in THREE:
            frame = one.get()
            assert frame.body == body
            one.confirm("ack", frame.headers["ack"])
        assert queue(shared, address)["messageCount"] == 0


def test_proton_over_tcp_and_stomp_py_over_websocket(shared: ScratchGateway, address: str) -> None:
    with connected(shared) as amqp, client(shared) as one:
        one.confirm("send", address, "from WebSocket")
        receiver = amqp.create_receiver(address)
        assert bytes(receiver.receive(timeout=SECONDS).body) == b"from WebSocket"
        receiver.accept()


def test_heart_beats_go_both_ways(shared: ScratchGateway, address: str) -> None:
    with client(shared, heartbeats=(500, 500)) as one:
        time.sleep(2.5)
        assert one.beats >= 2
        one.confirm("send", address, "still here")
        assert one.lost == 0


def test_a_wrong_password_is_told(guarded: ScratchGateway) -> None:
    one = Client(guarded)
    with pytest.raises(ConnectFailedException):
        one.connection.connect("ann", "wrong", wait=True)
    assert one.errors[0]["message"]
    one = Client(guarded)
    one.connection.connect("ann", "se:cret", wait=True)
    one.confirm("send", "here", "x")
    one.connection.disconnect()
