"""The demo's two senders: a Proton client over AMQP 1.0 and a stomp.py client over STOMP.

Each runs on a thread of its own, at a pace that leaves Spark something to wait for, and counts an
order only when the gateway has confirmed it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import stomp
from proton import Message, symbol
from proton.utils import BlockingConnection

from gateway.demo.orders import ADDRESS, TOTALS, Total, encoded, read_total

#: Orders sent between two pauses.
RUN: Final = 50
CONFIRM_SECONDS: Final = 30.0


class Orders:
    """The orders that one client sends: at what pace, and how many of them are confirmed.

    Attributes:
        numbers: the orders.
        confirmed: how many of them are in the gateway for good.
    """

    def __init__(self, numbers: Sequence[int], *, seconds: float) -> None:
        """Spread these orders over about so many seconds."""
        self.numbers = numbers
        self.confirmed = 0
        self._pause = seconds * RUN / max(len(numbers), 1)
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """Stop at the next pause."""
        self._cancelled.set()

    def pause(self, sent: int) -> bool:
        """Wait now and then; True when the client should end."""
        return sent % RUN == 0 and self._cancelled.wait(self._pause)


#: Connects to a port of this machine, sends every order, returns when all are confirmed.
SendAll = Callable[[int, Orders], None]


class Sender(threading.Thread):
    """Has one client send its orders.

    Attributes:
        title: for people.
        orders: what is sent.
        failure: what went wrong, once the thread has ended.
    """

    def __init__(self, title: str, send_all: SendAll, port: int, orders: Orders) -> None:
        """Prepare to send these orders to a port of this machine, in one client's way."""
        super().__init__(daemon=True, name=title)
        self.title = title
        self.orders = orders
        self.failure: Exception | None = None
        self._send_all = send_all
        self._port = port

    def run(self) -> None:
        """Send all; any failure is kept for whoever joins the thread."""
        try:
            self._send_all(self._port, self.orders)
        except Exception as error:  # noqa: BLE001  (told by the main thread, with its name)
            self.failure = error


def send_over_amqp(port: int, orders: Orders) -> None:
    """Send with Proton's client, over one link, each message confirmed before the next.

    A durable message is confirmed when its `accepted` comes.
    """
    connection = BlockingConnection(f"127.0.0.1:{port}", timeout=CONFIRM_SECONDS)
    try:
        sender = connection.create_sender(ADDRESS)
        for sent, number in enumerate(orders.numbers, 1):
            body = encoded(number).encode()
            sender.send(
                Message(
                    id=f"amqp-{number}",
                    content_type=symbol("application/json"),
                    durable=True,
                    inferred=True,
                    body=body,
                )
            )
            orders.confirmed = sent
            if orders.pause(sent):
                return
    finally:
        connection.close()


def receive_totals(port: int, count: int) -> dict[str, Total]:
    """Receive so many totals with Proton's client, as any consumer of the address would."""
    connection = BlockingConnection(f"127.0.0.1:{port}", timeout=CONFIRM_SECONDS)
    try:
        receiver = connection.create_receiver(TOTALS)
        found = {}
        for _ in range(count):
            name, total = read_total(str(receiver.receive(timeout=CONFIRM_SECONDS).body))
            receiver.accept()
            found[name] = total
        return found
    finally:
        connection.close()


def send_over_stomp(port: int, orders: Orders) -> None:
    """Send with stomp.py's client, all with a receipt each, then wait for the last of them.

    Raises RuntimeError when the gateway sends an ERROR or receipts do not come in time.
    """
    connection = stomp.Connection12([("127.0.0.1", port)])
    listener = _Receipts()
    connection.set_listener("receipts", listener)
    connection.connect(wait=True)
    try:
        for sent, number in enumerate(orders.numbers, 1):
            connection.send(
                ADDRESS,
                encoded(number),
                content_type="application/json",
                receipt=f"order-{number}",
            )
            orders.confirmed = listener.count
            if orders.pause(sent):
                return
        _wait(listener, orders)
    finally:
        connection.disconnect()


def _wait(listener: _Receipts, orders: Orders) -> None:
    """Wait until every order has its receipt."""
    deadline = time.monotonic() + CONFIRM_SECONDS
    while listener.count < len(orders.numbers) and time.monotonic() < deadline:
        if listener.error:
            break
        time.sleep(0.01)
        orders.confirmed = listener.count
    orders.confirmed = listener.count
    if listener.error or orders.confirmed < len(orders.numbers):
        text = listener.error or f"{len(orders.numbers) - orders.confirmed} receipts did not come"
        raise RuntimeError(text)


class _Frame(Protocol):
    """What stomp.py hands to a listener."""

    headers: Mapping[str, str]
    body: str


class _Receipts(stomp.ConnectionListener):  # type: ignore[misc]
    """Counts receipts; keeps the first ERROR."""

    def __init__(self) -> None:
        self.count = 0
        self.error = ""

    def on_receipt(self, frame: _Frame) -> None:
        if str(frame.headers.get("receipt-id", "")).startswith("order-"):
            self.count += 1

    def on_error(self, frame: _Frame) -> None:
        self.error = self.error or str(frame.headers.get("message", frame.body))
