"""A blocking WebSocket client of a few lines, over TCP or TLS; wsproto does the protocol."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.extensions import Extension

from gateway.trial.scratch import HOST
from tests.secure import Peer, connected


class ClosedError(Exception):
    """The gateway said Close, or refused the handshake with a status."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(f"{code} {reason}")
        self.code = code


class WebSocketClient:
    """One connection; `read` returns the payload of whatever comes next."""

    def __init__(
        self,
        port: int,
        path: str = "/ws",
        *,
        subprotocols: Sequence[str] = (),
        context: ssl.SSLContext | None = None,
        origin: str | None = None,
        extensions: Sequence[Extension] = (),
    ) -> None:
        """Shake hands. Raises ClosedError where that is refused."""
        self.peer: Peer = connected(port, context)
        self.wsproto = WSConnection(ConnectionType.CLIENT)
        self._events: list[Event] = []
        self.kinds: list[type[Event]] = []
        self.whole = True  # what was read last ends its message
        extra = [] if origin is None else [(b"Origin", origin.encode())]
        request = Request(
            host=f"{HOST}:{port}",
            target=path,
            subprotocols=list(subprotocols),
            extensions=list(extensions),
            extra_headers=extra,
        )
        self.peer.sendall(self.wsproto.send(request))
        answer = self.next_event()
        if isinstance(answer, RejectConnection):
            self.peer.socket.close()
            raise ClosedError(answer.status_code)
        assert isinstance(answer, AcceptConnection)
        self.subprotocol = answer.subprotocol
        self.extensions = answer.extensions

    def say(self, data: str | bytes, *, finished: bool = True) -> None:
        """Send a message, or a part of one."""
        message: TextMessage | BytesMessage
        if isinstance(data, str):
            message = TextMessage(data=data, message_finished=finished)
        else:
            message = BytesMessage(data=data, message_finished=finished)
        self.peer.sendall(self.wsproto.send(message))

    def read(self) -> bytes:
        """Return the payload of the next part of a message. Raises ClosedError at a Close."""
        while True:
            event = self.next_event()
            if isinstance(event, TextMessage | BytesMessage):
                self.kinds.append(type(event))
                self.whole = event.message_finished
                said = event.data
                return said.encode() if isinstance(said, str) else bytes(said)
            if isinstance(event, Ping):
                self.peer.sendall(self.wsproto.send(event.response()))
            if isinstance(event, CloseConnection):
                self.peer.sendall(self.wsproto.send(event.response()))
                raise ClosedError(int(event.code), event.reason or "")

    def message(self) -> bytes:
        """Return the next message, whole. Raises ClosedError at a Close."""
        came = self.read()
        while not self.whole:
            came += self.read()
        return came

    def until(self, wanted: bytes) -> bytes:
        """Return what comes up to and with `wanted`."""
        came = b""
        while wanted not in came:
            came += self.read()
        return came

    def close(self, code: int = 1000) -> int:
        """Say Close, and return the code that is answered."""
        self.peer.sendall(self.wsproto.send(CloseConnection(code=code)))
        while True:
            event = self.next_event()
            if isinstance(event, CloseConnection):
                return int(event.code)

    def next_event(self) -> Event:
        """Return what comes next, of whatever kind."""
        while not self._events:
            data = self.peer.recv()
            assert data, "the connection has ended without a Close"
            self.wsproto.receive_data(data)
            self._events += list(self.wsproto.events())
        return self._events.pop(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.peer.socket.close()
