"""What floods have in common: connections, and the first words of each protocol."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.trial.scratch import HOST
from protocols.amqp.performatives import (
    Begin,
    Composite,
    Flow,
    Open,
    encode_performative,
)

MANY: Final = 3000
#: Handles that a session has, and connections with so many links that a peer keeps.
LINKS: Final = 256
LINKING: Final = 60
#: Messages that a sender has credit for.
CREDIT: Final = 1000
AGAIN_SECONDS: Final = 0.02
LONG: Final = b"x" * 8000


@dataclass(frozen=True, kw_only=True)
class Where:
    """The ports of a gateway; `tls`: what its AMQP and STOMP listener speaks within, if it does."""

    port: int
    management: int
    tls: ssl.SSLContext | None = None


Flood = Callable[[Where], None]


def connect(where: Where, *, reads: bool = True, port: int = 0) -> socket.socket:
    """Open a connection; `reads`: a thread takes whatever comes."""
    plain = socket.create_connection((HOST, port or where.port), timeout=30)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if where.tls is not None and not port:
        plain = where.tls.wrap_socket(plain, server_hostname="localhost")
    if reads:
        threading.Thread(target=_read_all, args=(plain,), daemon=True).start()
    return plain


def _read_all(sock: socket.socket) -> None:
    with contextlib.suppress(OSError, ValueError):
        while sock.recv(1 << 18):
            pass


def frame(performative: Composite, channel: int = 0, payload: bytes = b"") -> bytes:
    """Return an AMQP frame."""
    body = encode_performative(performative) + payload
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big") + body


BEGIN: Final = Begin(next_outgoing_id=0, incoming_window=1 << 20, outgoing_window=1 << 20)
OPENED: Final = b"AMQP\0\1\0\0" + frame(Open(container_id="flood")) + frame(BEGIN)
CONNECT: Final = b"CONNECT\naccept-version:1.1\nhost:h\n\n\0"


def again(where: Where, first: bytes, data: bytes, *, reads: bool = True) -> None:
    """Say `first` and then `data` for ever."""
    while True:
        with contextlib.suppress(OSError), connect(where, reads=reads) as sock:
            sock.sendall(first)
            while True:
                sock.sendall(data)
        time.sleep(AGAIN_SECONDS)


def bare(where: Where) -> socket.socket:
    """Open a connection in which nothing is said, no handshake either."""
    return socket.create_connection((HOST, where.port), timeout=30)


def pile(one: Callable[[], socket.socket]) -> None:
    """Open connections, as many as one process may have, and keep them."""
    held: list[socket.socket] = []
    while True:
        try:
            held.append(one())
        except OSError:
            time.sleep(AGAIN_SECONDS)
        if len(held) >= MANY:
            for sock in held[: MANY // 2]:
                sock.close()
            del held[: MANY // 2]


def credit(handle: int, count: int) -> Flow:
    """Return a flow that gives a link so much credit."""
    return Flow(
        next_incoming_id=0,
        incoming_window=1 << 30,
        next_outgoing_id=0,
        outgoing_window=1 << 20,
        handle=handle,
        delivery_count=0,
        link_credit=count,
    )


UPGRADE: Final = (
    b"GET /stomp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
)
#: A frame's mask of zeros leaves its payload as it is.
UNMASKED: Final = b"\0\0\0\0"
HELLO: Final = UPGRADE + bytes([0x81, 0x80 | len(CONNECT)]) + UNMASKED + CONNECT
