"""A blocking connection that may speak TLS, for tests that have to know how it ended.

    with connected(port, context) as peer:      context None: plain TCP
        peer.sendall(b"...")
        peer.rest()                             all that comes, up to a proper end

Over TLS an end is proper when a close_notify said so; anything else is a `CutError`.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from types import TracebackType
from typing import Self

from gateway.trial.scratch import HOST
from protocols.transport.tls import Tls

PATIENCE = 14.0


class CutError(Exception):
    """The connection ended without a close_notify; `came` is what was heard before."""

    def __init__(self, came: bytes) -> None:
        super().__init__(f"cut after {len(came)} bytes")
        self.came = came


class Peer:
    """One connection; see the module text."""

    def __init__(
        self, skt: socket.socket, context: ssl.SSLContext | None, name: str = "localhost"
    ) -> None:
        """Shake hands, where there is a context; raises ssl.SSLError when that fails."""
        self.socket = skt
        self.tls = None if context is None else Tls(context, server=False, name=name)
        if self.tls is None:
            return
        self.tls.shake()
        self.socket.sendall(self.tls.take())
        while not self.tls.ready:
            data = self.socket.recv(65536)
            if not data:
                raise ssl.SSLError("closed in the handshake")
            self.tls.feed(data)
            self.socket.sendall(self.tls.take())
            if self.tls.failure:
                raise ssl.SSLError(self.tls.failure)

    def sendall(self, data: bytes) -> None:
        self.socket.sendall(data if self.tls is None else self.tls.seal(data))

    def recv(self) -> bytes:
        """Return some bytes, none at the end; raises CutError."""
        if self.tls is None:
            return self.socket.recv(65536)
        while not self.tls.ended:
            data = self.socket.recv(65536)
            if not data:
                raise CutError(b"")
            plain = self.tls.feed(data)
            self.socket.sendall(self.tls.take())
            if self.tls.failure:
                raise ssl.SSLError(self.tls.failure)
            if plain:
                return plain
        return b""

    def rest(self) -> bytes:
        """Return all that comes up to the end; raises CutError."""
        came = b""
        try:
            while part := self.recv():
                came += part
        except CutError:
            raise CutError(came) from None
        return came

    def until(self, wanted: bytes) -> bytes:
        """Return what comes up to and with `wanted`, and what came with it."""
        came = b""
        while wanted not in came:
            part = self.recv()
            assert part, f"ended after {came!r}"
            came += part
        return came

    def end(self) -> None:
        """Say that nothing follows: over TLS by a close_notify, and then as TCP does.

        A gateway that has closed already is not told.
        """
        with contextlib.suppress(OSError):
            if self.tls is not None:
                self.socket.sendall(self.tls.close())
            self.socket.shutdown(socket.SHUT_WR)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()


def connected(port: int, context: ssl.SSLContext | None = None, name: str = "localhost") -> Peer:
    """Connect to a port of this machine."""
    skt = socket.create_connection((HOST, port), timeout=PATIENCE)
    try:
        return Peer(skt, context, name)
    except BaseException:
        skt.close()
        raise
