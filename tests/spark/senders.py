"""Clients that do not give up: Proton over AMQP, stomp.py and a bare socket over STOMP.

Each sends the numbers 0 to count - 1 at a pace, many unconfirmed at once, and counts one only when
it was confirmed. A broken connection is made again and what was not confirmed goes out once more,
marked as another attempt: a body is `name-number#attempt`, so no two messages are ever alike.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from typing import Any

import stomp
from proton import Delivery, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

from gateway.trial.scratch import HOST

#: Unconfirmed at once.
WINDOW = 400
PAUSE = 0.02
#: Without an answer for so long a connection is given up.
SILENCE = 5.0


class Sender(threading.Thread):
    """What the three have in common: who is next, at what pace, and what became of it.

    Attributes:
        attempts: bodies by number, as sent, first attempt first.
        confirmed: number -> the body whose confirmation came.
        connections: how many were made.
        failure: what no client should see; the thread has ended then.
    """

    def __init__(self, name: str, port: int, address: str, count: int, rate: float) -> None:
        """Prepare; nothing is sent before `allow`. `rate` is messages a second, 0 for no pace."""
        super().__init__(daemon=True, name=name)
        self.port = port
        self.address = address
        self.count = count
        self.attempts: dict[int, list[str]] = {}
        self.confirmed: dict[int, str] = {}
        self.connections = 0
        self.failure: Exception | None = None
        self._allowed = 0
        self._rate = rate
        self._credit = 0.0
        self._todo = deque(range(count))
        self._flying: dict[str, int] = {}
        self._over = threading.Event()

    @property
    def resent(self) -> set[int]:
        return {number for number, bodies in self.attempts.items() if len(bodies) > 1}

    def cancel(self) -> None:
        self._over.set()

    def run(self) -> None:
        self._seen = time.monotonic()
        try:
            while not self.done():
                self.connections += 1
                self.converse()
                # Again, in the order in which they went out.
                self._todo.extendleft(sorted(self._flying.values(), reverse=True))
                self._flying.clear()
                time.sleep(PAUSE)
        except Exception as error:  # told by the test, with the thread's name
            self.failure = error

    def allow(self, share: float) -> None:
        """Let it send up to this share of all; a slow test is waited for, not run past."""
        self._allowed = int(self.count * share)

    def hurry(self) -> None:
        """Send as fast as it goes from now on."""
        self._rate = 0.0

    def done(self) -> bool:
        return len(self.confirmed) == self.count or self._over.is_set()

    def waiting(self) -> bool:
        """Whether something is unconfirmed or could be sent."""
        return bool(self._flying or (self._todo and self._todo[0] < self._allowed))

    def take(self) -> str | None:
        """Return the next body if it is time for one and few enough are unconfirmed."""
        if not self._todo or len(self._flying) >= WINDOW or self._todo[0] >= self._allowed:
            return None
        if self._rate:
            now = time.monotonic()
            self._credit = min(self._credit + (now - self._seen) * self._rate, WINDOW)
            self._seen = now
            if self._credit < 1:
                return None
            self._credit -= 1
        number = self._todo.popleft()
        bodies = self.attempts.setdefault(number, [])
        body = f"{self.name}-{number}#{len(bodies)}"
        bodies.append(body)
        self._flying[body] = number
        return body

    def confirm(self, body: str) -> None:
        self.confirmed[self._flying.pop(body)] = body

    def converse(self) -> None:
        """Connect and send until all is confirmed, or the connection breaks."""
        raise NotImplementedError


class AmqpSender(Sender):
    """Proton's reactor: durable messages, as many in flight as credit and window allow."""

    def converse(self) -> None:
        Container(_Link(self)).run()


class _Link(MessagingHandler):
    def __init__(self, owner: Sender) -> None:
        super().__init__()
        self.owner = owner
        self.bodies: dict[Delivery, str] = {}

    def on_start(self, event: Any) -> None:
        self.heard = time.monotonic()
        where = f"{HOST}:{self.owner.port}"
        self.connection = event.container.connect(where, reconnect=False)
        self.link = event.container.create_sender(self.connection, self.owner.address)
        self.timer = event.container.schedule(PAUSE, self)

    def on_sendable(self, event: Any) -> None:
        while self.link.credit and (body := self.owner.take()) is not None:
            message = Message(body=body.encode(), inferred=True, durable=True)
            self.bodies[self.link.send(message)] = body

    def on_timer_task(self, event: Any) -> None:
        self.timer = event.container.schedule(PAUSE, self)
        if not self.owner.waiting():
            self.heard = time.monotonic()
        if self.owner.done():
            self.stop()
        elif time.monotonic() > self.heard + SILENCE:
            # Proton tells nobody of a connection that broke while it was sending.
            event.container.stop()
        else:
            self.on_sendable(event)

    def on_accepted(self, event: Any) -> None:
        self.heard = time.monotonic()
        self.owner.confirm(self.bodies.pop(event.delivery))

    def on_rejected(self, event: Any) -> None:
        self.owner.failure = RuntimeError(f"rejected: {event.delivery.remote.condition}")

    def on_released(self, event: Any) -> None:
        self.owner.failure = RuntimeError("released")

    def on_transport_error(self, event: Any) -> None:
        self.stop()

    def on_disconnected(self, event: Any) -> None:
        self.stop()

    def stop(self) -> None:
        self.timer.cancel()
        self.connection.close()


class StompPySender(Sender):
    """stomp.py: persistent messages with a receipt each; its own thread counts the receipts."""

    def converse(self) -> None:
        connection = stomp.Connection12([(HOST, self.port)], reconnect_attempts_max=1)
        arrived: deque[str] = deque()
        connection.set_listener("receipts", _Receipts(self, arrived))
        try:
            connection.connect(wait=True)
            while connection.is_connected() and not self.done():
                while (body := self.take()) is not None:
                    connection.send(self.address, body, receipt=body, persistent="true")
                while arrived:
                    self.confirm(arrived.popleft())
                time.sleep(PAUSE)
            if connection.is_connected():
                connection.disconnect()
        except (stomp.exception.StompException, OSError):
            pass
        except AttributeError:
            # stomp.py's reader takes the broken socket away between the sender's look at it
            # and its use of it. On a connection that lives this would be a fault of ours.
            if connection.is_connected():
                raise
        while arrived:
            self.confirm(arrived.popleft())


class _Receipts(stomp.ConnectionListener):
    def __init__(self, owner: Sender, arrived: deque[str]) -> None:
        self.owner = owner
        self.arrived = arrived

    def on_error(self, frame: Any) -> None:
        self.owner.failure = RuntimeError(f"ERROR: {frame.headers} {frame.body}")

    def on_receipt(self, frame: Any) -> None:
        if "#" in frame.headers["receipt-id"]:  # not that of DISCONNECT
            self.arrived.append(frame.headers["receipt-id"])


class StompSocketSender(Sender):
    """Frames written by hand: a whole window in one write, its receipts in any pieces."""

    def converse(self) -> None:
        try:
            with socket.create_connection((HOST, self.port), timeout=10) as peer:
                peer.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\x00")
                self._rest = b""
                assert self._frames(peer)[0].startswith(b"CONNECTED\n")
                while not self.done():
                    bodies = list(iter(self.take, None))
                    peer.sendall(b"".join(map(self._send, bodies)))
                    while self._flying:
                        for frame in self._frames(peer):
                            assert b"RECEIPT" in frame, frame
                            receipt = frame.partition(b"receipt-id:")[2].partition(b"\n")[0]
                            self.confirm(receipt.decode().replace("\\c", ":"))
                    time.sleep(PAUSE)
        except OSError:
            pass

    def _send(self, body: str) -> bytes:
        head = f"SEND\ndestination:{self.address}\npersistent:true\nreceipt:{body}\n"
        return f"{head}content-length:{len(body)}\n\n{body}\x00".encode()

    def _frames(self, peer: socket.socket) -> list[bytes]:
        """Return the frames that have arrived, at least one."""
        while b"\x00" not in self._rest:
            data = peer.recv(65536)
            if not data:
                raise ConnectionResetError
            self._rest += data
        whole, _, self._rest = self._rest.rpartition(b"\x00")
        return whole.split(b"\x00")
