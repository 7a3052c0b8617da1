"""A WebSocket for load: frames around what a driver says, over a blocking socket or TLS.

What is known beforehand is framed beforehand (`framed`): one message for each STOMP frame, as a
browser sends them. All else is one message for each write. The mask is the same for every frame,
and not nothing, so that the broker has its work and the client next to none [RFC 6455 5.3].
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from struct import Struct
from typing import Final

from websockets.speedups import apply_mask as masked

from gateway.bench.amqp import PeerError
from gateway.bench.tls import TlsSocket

TEXT: Final = 0x81
BINARY: Final = 0x82
_CLOSE, _PING, _PONG = 0x88, 0x89, 0x8A
KEY: Final = b"\x1d\x4b\xa7\xe2"
#: The key for what stands at a place of a payload, by the rest of that place by four.
KEYS: Final = tuple(KEY[at:] + KEY[:at] for at in range(4))
_SHORT: Final = Struct(">BBH")
_LONG: Final = Struct(">BBQ")
_uint16 = Struct(">H").unpack_from
_uint64 = Struct(">Q").unpack_from
READ_BYTES: Final = 1 << 18
#: Artemis takes frames of up to 64 KiB.
MESSAGE_BYTES: Final = 60_000
_BUFFER: Final = memoryview(bytearray(READ_BYTES))
_AT_ONCE: Final = socket.MSG_DONTWAIT
#: By protocol: what the handshake offers, the path, and the kind of messages that are sent.
SUBPROTOCOLS: Final = {"stomp": ("v12.stomp", "/stomp", TEXT), "amqp": ("amqp", "/amqp", BINARY)}


def framed(payload: bytes, kind: int) -> tuple[bytes, int]:
    """Return a message of one frame, and where its payload begins."""
    size = len(payload)
    if size < 126:
        head = bytes((kind, 0x80 | size))
    elif size < 1 << 16:
        head = _SHORT.pack(kind, 0x80 | 126, size)
    else:
        head = _LONG.pack(kind, 0x80 | 127, size)
    return head + KEY + masked(payload, KEY), len(head) + len(KEY)


__all__ = ["BINARY", "KEY", "KEYS", "SUBPROTOCOLS", "TEXT", "WebSocket", "framed", "masked"]


class WebSocket:
    """A WebSocket over a connected socket, or over TLS on it; speaks as `TlsSocket` does.

    Attributes:
        raw: what is sent is framed already.
    """

    __slots__ = ("_below", "_kind", "_left", "_owed", "_rest", "_tls", "raw")

    def __init__(
        self, connected: socket.socket, tls: TlsSocket | None, host: str, protocol: str
    ) -> None:
        """Shake hands; raises PeerError when the peer does not."""
        self._below, self._tls = connected, tls
        subprotocol, path, self._kind = SUBPROTOCOLS[protocol]
        self._left: memoryview | bytes = b""
        self._rest = b""
        self._owed = 0
        self.raw = False
        self._write_all(
            (
                f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\n"
                "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                f"Sec-WebSocket-Protocol: {subprotocol}\r\n\r\n"
            ).encode()
        )
        answer = b""
        while b"\r\n\r\n" not in answer:
            data = self._receive()
            if data == b"":
                raise PeerError(f"the WebSocket handshake was not answered: {answer[:300]!r}")
            answer += data or b""
        head, _, self._rest = answer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101"):
            raise PeerError(f"the WebSocket handshake was refused: {answer[:300]!r}")

    def _receive(self) -> memoryview | bytes | None:
        """Read once; a view is good until the next read."""
        if self._tls is not None:
            return self._tls.recv()
        return _BUFFER[: self._below.recv_into(_BUFFER)]

    def recv(self) -> bytes | None:
        """Read once; returns payload: None where there was none, empty at the end."""
        data = self._receive()
        if not data:
            return None if data is None else b""
        return self._payload(data) or None

    def _payload(self, data: memoryview | bytes) -> bytes:
        if self._rest:
            data, self._rest = self._rest + data, b""
        found: list[memoryview | bytes] = []
        at, end = 0, len(data)
        while at < end:
            if self._owed:
                part = data[at : at + self._owed]
                found.append(part)
                self._owed -= len(part)
                at += len(part)
                continue
            if end - at < 2:
                break
            start, size = at + 2, data[at + 1]
            if size >= 126:
                start += 2 if size == 126 else 8
                if end < start:
                    break
                size = (_uint16 if size == 126 else _uint64)(data, at + 2)[0]
            if data[at] & 0x08:
                if end < start + size:
                    break
                self._control(data[at], bytes(data[start : start + size]), found)
                at = start + size
                continue
            self._owed = size
            at = start
        self._rest = bytes(data[at:])
        return b"".join(found)

    def _control(self, kind: int, payload: bytes, before: Sequence[memoryview | bytes]) -> None:
        if kind == _CLOSE:
            said = b"".join(before)[-300:]
            raise PeerError(f"the peer closed the WebSocket: {payload!r} after {said!r}")
        if kind == _PING:
            self._left = bytes(self._left) + framed(payload, _PONG)[0]
            self.flush()

    def send(self, data: bytes | memoryview) -> int:
        """Take up to a message of `data`; nothing while earlier bytes wait for the socket."""
        if self._left and not self.flush():
            return 0
        if not self.raw:
            data = data[:MESSAGE_BYTES]
        self._left = data if self.raw else framed(bytes(data), self._kind)[0]
        if not self.flush():
            self._left = bytes(self._left)  # a driver's bytes are good until its next
        return len(data)

    def flush(self) -> bool:
        """Write what waits, without waiting; returns whether nothing is left."""
        left = memoryview(self._left)
        if self._tls is not None:
            while left and self._tls.flush():
                left = left[self._tls.send(left) :]
            self._left = left
            return self._tls.flush() and not left
        while left:
            try:
                left = left[self._below.send(left, _AT_ONCE) :]
            except BlockingIOError:
                break
        self._left = left
        return not left

    def sendall(self, data: bytes) -> None:
        """Write all of `data`, waiting for the socket."""
        self._write_all(framed(data, self._kind)[0])

    def _write_all(self, data: bytes) -> None:
        data = bytes(self._left) + data
        self._left = b""
        if self._tls is not None:
            self._tls.sendall(data)
        else:
            self._below.sendall(data)

    def end(self) -> None:
        """Say that nothing follows [RFC 6455 7.1.2]."""
        self._write_all(framed(b"\x03\xe8", _CLOSE)[0])
        if self._tls is not None:
            self._tls.end()
