"""The other end of a WebSocket, by wsproto's side for clients, and frames made by hand."""

from __future__ import annotations

import struct

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage

from tests.protocols.websocket.inner import Built

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
#: What that key is answered with [RFC 6455 1.3].
TOKEN = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


def request(
    path: str = "/ws", *, method: str = "GET", version: str = "1.1", **headers: str | None
) -> bytes:
    """Return a handshake; headers are added, replaced, or taken away by None."""
    said: dict[str, str | None] = {
        "Host": "gate.example:5672",
        "Upgrade": "websocket",
        "Connection": "keep-alive, Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": KEY,
    }
    said |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{name}: {value}" for name, value in said.items() if value is not None]
    return "\r\n".join([f"{method} {path} HTTP/{version}", *lines, "", ""]).encode("latin-1")


def frame(
    opcode: int,
    payload: bytes = b"",
    *,
    fin: bool = True,
    reserved: int = 0,
    mask: bytes | None = b"\x01\x02\x03\x04",
    length: int | None = None,
) -> bytes:
    """Return a frame of a client; `length` is what it says that it has, `mask` None is none."""
    size = len(payload) if length is None else length
    bit = 0 if mask is None else 0x80
    first = (0x80 if fin else 0) | reserved << 4 | opcode
    if size < 126:
        head = struct.pack("!BB", first, bit | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", first, bit | 126, size)
    else:
        head = struct.pack("!BBQ", first, bit | 127, size)
    if mask is None:
        return head + payload
    return head + mask + masked(payload, mask)


def masked(payload: bytes, mask: bytes) -> bytes:
    """Return a payload under a mask, or from under it."""
    size = len(payload)
    over = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return (int.from_bytes(payload, "big") ^ over).to_bytes(size, "big")


def close(code: int | None = 1000, reason: str = "") -> bytes:
    return frame(CLOSE, b"" if code is None else struct.pack("!H", code) + reason.encode())


class Client:
    """A peer of a session, with a clock; `heard` is all that came."""

    def __init__(
        self,
        built: Built | None = None,
        *,
        protocol: str | None = "v12.stomp",
        offer: str | None = None,
        hurried: bool = False,
    ) -> None:
        """Shake hands; `offer` are extensions. `hurried`: each turn is over after one frame."""
        self.built = built or Built()
        self.session = self.built.session
        self.now = 100.0
        self.heard: list[Event] = []
        self.wsproto = Connection(ConnectionType.CLIENT)
        self.session.spent = lambda: hurried
        self.session.tick(self.now)
        offered = {"Sec_WebSocket_Protocol": protocol, "Sec_WebSocket_Extensions": offer}
        self.answer = self.raw(request(**offered))

    def raw(self, data: bytes) -> bytes:
        """Send bytes, end the turn, and return what comes back."""
        self.session.receive_data(data, self.now)
        return self.turn()

    def turn(self) -> bytes:
        """End the turn as the shell does."""
        out = self.session.data_to_send()
        while self.session.behind:
            self.session.go_on(self.now)
            out += self.session.data_to_send()
        if self.session.retick:
            self.session.retick = False
            self.session.tick(self.now)
        return out

    def say(self, data: bytes) -> list[Event]:
        """Send bytes, and return what comes back."""
        return self.read(self.raw(data))

    def read(self, data: bytes) -> list[Event]:
        """Return what bytes are, with messages whole."""
        if data and self.wsproto.state is not ConnectionState.CLOSED:
            self.wsproto.receive_data(data)
        came = list(self.wsproto.events())
        self.heard += came
        return came

    def ends(self) -> list[tuple[int, str]]:
        """Return code and reason of each Close that came."""
        closes = [one for one in self.heard if isinstance(one, CloseConnection)]
        return [(int(one.code), one.reason or "") for one in closes]

    def tick(self, seconds: float) -> list[Event]:
        """Let time pass."""
        self.now += seconds
        self.session.tick(self.now)
        return self.read(self.turn())


__all__ = [
    "BytesMessage",
    "Client",
    "CloseConnection",
    "Ping",
    "Pong",
    "TextMessage",
    "close",
    "frame",
    "request",
]
