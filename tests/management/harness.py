"""A site on a string transport under a simulated clock, and the parsing of what it wrote."""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from gateway.management.router import Router
from gateway.management.wire import ApiSite, WireSettings
from gateway.model.principal import By, Principal


class Users:
    """An Authenticator whose answers come when the test says so."""

    def __init__(self, **passwords: str) -> None:
        self.passwords = passwords
        self.waiting = []
        self.peers = []

    def for_peer(self, address: str) -> Users:
        self.peers.append(address)
        return self

    @property
    def open(self) -> bool:
        return not self.passwords

    def check(self, user, password, done) -> None:
        good = self.passwords.get(user) == password
        self.waiting.append(lambda: done(Principal(user, by=By.PASSWORD) if good else None))

    def anybody(self, user) -> Principal:
        return Principal(user)

    def answer(self) -> None:
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done()


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool = True


class Peer:
    """A client's end: `send` bytes, read `replies`."""

    def __init__(self, site: ApiSite, clock: Clock, *, address: str = "127.0.0.1") -> None:
        self.clock = clock
        self.transport = StringTransport(
            hostAddress=IPv4Address("TCP", "127.0.0.1", 8161),
            peerAddress=IPv4Address("TCP", address, 40000),
        )
        self.channel = site.buildProtocol(self.transport.getPeer())
        if self.channel is not None:
            self.channel.makeConnection(self.transport)

    def send(self, data: bytes) -> list[Reply]:
        """Give bytes to the site, let it settle, return what it said since the last time."""
        self.channel.dataReceived(data)
        return self.replies()

    def replies(self) -> list[Reply]:
        for _ in range(50):
            self.clock.advance(0)
        data = self.transport.value()
        self.transport.clear()
        return parse_replies(data)

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Reply:
        (reply,) = self.send(request_bytes(method, path, body, **headers))
        return reply

    @property
    def closed(self) -> bool:
        return self.transport.disconnecting or self.transport.disconnected

    def leave(self) -> None:
        self.channel.connectionLost(Failure(ConnectionDone()))


def request_bytes(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    fields = {"Host": "localhost:8161"}
    if body:
        fields |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{method} {path} HTTP/1.1", *(f"{n}: {v}" for n, v in fields.items() if v), "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def parse_replies(data: bytes) -> list[Reply]:
    replies = []
    while data:
        head, separator, data = data.partition(b"\r\n\r\n")
        assert separator, head
        status_line, *lines = head.decode("latin-1").split("\r\n")
        headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines)}
        reply = Reply(int(status_line.split(" ")[1]), headers, b"")
        if headers.get("transfer-encoding") == "chunked":
            reply.body, data, reply.whole = dechunk(data)
        elif reply.status not in (100, 204):
            length = int(headers["content-length"])
            reply.body, data = data[:length], data[length:]
        replies.append(reply)
    return replies


def dechunk(data: bytes) -> tuple[bytes, bytes, bool]:
    """Return the body, what follows it, and whether its end came."""
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        body, data = body + data[:length], data[length + 2 :]
        if not length:
            return body, data, True
    return body, data, False


def build_site(
    router: Router | None = None,
    users: Users | None = None,
    settings: WireSettings | None = None,
) -> tuple[ApiSite, Clock]:
    clock = Clock()
    asked = users or Users()
    site = ApiSite(clock, router or Router(), asked.for_peer, settings or WireSettings())
    return site, clock
