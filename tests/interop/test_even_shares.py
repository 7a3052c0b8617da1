"""Two equal receivers that wait share a burst evenly: real clients of both protocols."""

from __future__ import annotations

import socket
import ssl
import time
from typing import Any

import pytest
from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container, LinkOption

from gateway.trial.scratch import ScratchGateway
from tests.interop.support import SECONDS, amqp_url, raw, trust, wait_until

pytestmark = pytest.mark.interop

COUNT = 1001


class Credit(LinkOption):
    """Gives a receiver so much credit once."""

    def __init__(self, count: int) -> None:
        self.count = count

    def apply(self, link: Any) -> None:
        link.flow(self.count)


class Receivers(MessagingHandler):
    """Two receivers, a connection each; when both have credit, a burst from a third one."""

    def __init__(self, gateway: ScratchGateway, address: str, credit: tuple[int, int]) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.url = amqp_url(gateway)
        self.gateway, self.address, self.credit = gateway, address, credit
        self.got = [0, 0]
        self.sent = self.settled = 0
        self.links: list[Any] = []

    def on_start(self, event: Any) -> None:
        self.ends = time.monotonic() + SECONDS
        self.connections = [
            event.container.connect(self.url, reconnect=False, ssl_domain=trust(self.gateway))
            for _ in range(3)
        ]
        for connection, count in zip(self.connections, self.credit, strict=False):
            self.links.append(
                event.container.create_receiver(connection, self.address, options=Credit(count))
            )
        event.container.schedule(0.05, self)

    def on_timer_task(self, event: Any) -> None:
        assert time.monotonic() < self.ends, "waited in vain"
        _, facts = self.gateway.request("GET", f"/api/v1/queues/{self.address}")
        if facts.get("consumerCount") == 2:
            event.container.create_sender(self.connections[2], self.address)
        else:
            event.container.schedule(0.05, self)

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and self.sent < COUNT:
            event.sender.send(Message(id=self.sent, body="x", priority=(4, 4, 9)[self.sent % 3]))
            self.sent += 1

    def on_message(self, event: Any) -> None:
        self.got[self.links.index(event.link)] += 1
        self.accept(event.delivery)
        self.settled += 1
        if self.settled == COUNT:
            for connection in self.connections:
                connection.close()


@pytest.mark.parametrize("credit", [(COUNT, COUNT), (COUNT, 3 * COUNT), (100, COUNT)])
def test_two_proton_receivers(
    shared: ScratchGateway, address: str, credit: tuple[int, int]
) -> None:
    receivers = Receivers(shared, address, credit)
    Container(receivers).run()
    if min(credit) < COUNT:
        assert receivers.got == [100, COUNT - 100]
    else:
        assert abs(receivers.got[0] - receivers.got[1]) <= 1, receivers.got


class Subscriber:
    """A subscriber on a socket of its own that counts MESSAGE frames."""

    def __init__(self, gateway: ScratchGateway, address: str, version: str, more: str) -> None:
        self.peer = raw(gateway, gateway.stomp_port)
        self.read = b""
        self.peer.sendall(f"CONNECT\naccept-version:{version}\nhost:x\n\n\0".encode())
        self.until(b"CONNECTED")
        head = f"SUBSCRIBE\nid:s\ndestination:{address}\nreceipt:s\n{more}\n\0"
        self.peer.sendall(head.encode())
        self.until(b"receipt-id:s")
        self.peer.setblocking(False)

    def until(self, word: bytes) -> None:
        while word not in self.read:
            self.read += self.peer.recv(1 << 16)

    def count(self) -> int:
        try:
            while data := self.peer.recv(1 << 18):
                self.read += data
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        return self.read.count(b"MESSAGE\nsubscription:s")


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize(
    "more",
    [
        "ack:auto\n",
        "ack:client\nconsumer-window-size:-1\n",
        "ack:auto\nselector:colour = 'red'\n",
    ],
)
@pytest.mark.parametrize("piece", [1, 3, 50, COUNT])
def test_two_stomp_subscribers(
    shared: ScratchGateway, address: str, version: str, more: str, piece: int
) -> None:
    both = [Subscriber(shared, address, version, more) for _ in range(2)]
    colours = ("red", "blue") if "selector" in more else ("red",)
    frames = [
        f"SEND\ndestination:{address}\ncolour:{colours[at % len(colours)]}\n\nx\0".encode()
        for at in range(COUNT)
    ]
    wanted = sum(b"colour:red" in frame for frame in frames)
    with raw(shared, shared.stomp_port) as sender:
        sender.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for first in range(0, len(frames), piece):
            sender.sendall(b"".join(frames[first : first + piece]))
        wait_until(lambda: sum(one.count() for one in both) >= wanted)
    counts = [one.count() for one in both]
    assert sum(counts) == wanted
    assert abs(counts[0] - counts[1]) <= 1, counts
    for one in both:
        one.peer.close()
