"""The demo's two senders: a Proton client over AMQP 1.0 and a stomp.py client over STOMP.

Each runs on a thread of its own, at a pace that leaves Spark something to wait for, and counts an
order only when the gateway has confirmed it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import stomp
from proton import Message, symbol
from proton.utils import BlockingConnection

from gateway.demo.orders import ADDRESS, encoded

#: Orders sent between two pauses.
RUN: Final = 50
CONFIRM_SECONDS: Final = 30.0


class Sender(threading.Thread):
    """Sends orders and counts what was confirmed.

    Attributes:
        title: for people.
        numbers: the orders that it sends.
        confirmed: how many of them are in the gateway for good.
        failure: what went wrong, once the thread has ended.
    """

    title = ""

    def __init__(self, port: int, numbers: Sequence[int], *, seconds: float) -> None:
        """Prepare to send these orders over about so many seconds."""
        super().__init__(daemon=True, name=self.title)
        self.numbers = numbers
        self.confirmed = 0
        self.failure: Exception | None = None
        self._port = port
        self._pause = seconds * RUN / max(len(numbers), 1)
        self._cancelled = threading.Event()

    def run(self) -> None:
        """Send all; any failure is kept for whoever joins the thread."""
        try:
            self.send_all()
        except Exception as error:  # noqa: BLE001  (told by the main thread, with its name)
            self.failure = error

    def send_all(self) -> None:
        """Connect, send every order, return when all are confirmed."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Stop at the next pause."""
        self._cancelled.set()

    def pause(self, sent: int) -> bool:
        """Wait now and then; True when the thread should end."""
        return sent % RUN == 0 and self._cancelled.wait(self._pause)


class AmqpSender(Sender):
    """Proton's client: a durable message is confirmed when its `accepted` comes."""

    title = "AMQP 1.0 (Proton)"

    def send_all(self) -> None:
        """Send over one link, each message confirmed before the next."""
        connection = BlockingConnection(f"127.0.0.1:{self._port}", timeout=CONFIRM_SECONDS)
        try:
            sender = connection.create_sender(ADDRESS)
            for sent, number in enumerate(self.numbers, 1):
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
                self.confirmed = sent
                if self.pause(sent):
                    return
        finally:
            connection.close()


class StompSender(Sender):
    """stomp.py's client: a message is confirmed when its RECEIPT comes."""

    title = "STOMP 1.2 (stomp.py)"

    def send_all(self) -> None:
        """Send all with a receipt each, then wait for the last of them."""
        connection = stomp.Connection12([("127.0.0.1", self._port)])
        listener = _Receipts()
        connection.set_listener("receipts", listener)
        connection.connect(wait=True)
        try:
            for sent, number in enumerate(self.numbers, 1):
                connection.send(
                    ADDRESS,
                    encoded(number),
                    content_type="application/json",
                    receipt=f"order-{number}",
                )
                self.confirmed = listener.count
                if self.pause(sent):
                    return
            self._wait(listener)
        finally:
            connection.disconnect()

    def _wait(self, listener: _Receipts) -> None:
        deadline = time.monotonic() + CONFIRM_SECONDS
        while listener.count < len(self.numbers) and time.monotonic() < deadline:
            if listener.error:
                break
            time.sleep(0.01)
            self.confirmed = listener.count
        self.confirmed = listener.count
        if listener.error or self.confirmed < len(self.numbers):
            text = listener.error or f"{len(self.numbers) - self.confirmed} receipts did not come"
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
