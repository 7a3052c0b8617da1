"""A web page at a real broker in memory: STOMP in the messages of a WebSocket, without a socket.

It stands beside the clients of `tests.conformance.clients`, which have no WebSocket, and drives its
session as the shell does: it is read from unless the session pauses that.
"""

from __future__ import annotations

import itertools
from typing import Any

from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Pong, TextMessage

from protocols.convert import amqp_to_stomp
from protocols.stomp.limits import StompLimits
from protocols.stomp.session import StompSession
from protocols.transport.speaking import PeerFacts, Speaker
from protocols.websocket.limits import WebSocketLimits
from protocols.websocket.session import WebSocketSession
from tests.broker.core import Core
from tests.protocols.scripted_broker import ScriptedAuthenticator
from tests.protocols.stomp.peer import frames
from tests.protocols.websocket.client import PING, TEXT, frame, request

Frames = list[tuple[str, dict[str, str], bytes]]


class Page:
    """One tab.

    Attributes:
        beats: heart-beats that came.
        pongs: payloads of the Pings that were answered.
        ends: code and reason of each Close.
    """

    _names = itertools.count(1)

    def __init__(
        self,
        core: Core,
        version: str = "1.2",
        *,
        connect: str = "",
        authenticator: ScriptedAuthenticator | None = None,
        **limits: Any,
    ) -> None:
        """Shake hands and log in, where nobody has to."""
        self.core = core
        self.version = version
        self.now = 100.0
        self.beats = 0
        self.pongs: list[bytes] = []
        self.ends: list[tuple[int, str]] = []
        self.unread: list[bytes] = []
        name = f"page-{next(self._names)}"
        users = authenticator or ScriptedAuthenticator()

        def build(peer: PeerFacts) -> StompSession:
            return StompSession(
                core.gateway, users, StompLimits(**limits), peer.name, amqp_to_stomp
            )

        facts = PeerFacts(address="127.0.0.1", loopback=True, tls=False, name=name)
        speaker = Speaker(guess="STOMP", build=build)
        self.session = WebSocketSession({"STOMP": speaker}, WebSocketLimits(), facts)
        self.wsproto = Connection(ConnectionType.CLIENT)
        self._give(request(Sec_WebSocket_Protocol=f"v{version.replace('.', '')}.stomp"))
        assert self.session.data_to_send().startswith(b"HTTP/1.1 101 ")
        accept = "" if version == "1.0" else f"accept-version:{version}\n"
        self.greeting = self.say(f"CONNECT\n{accept}host:h\n{connect}\n\0")

    # ---- what it sends

    def say(self, text: str) -> Frames:
        """Send a message, and return the frames of STOMP that came."""
        self._give(frame(TEXT, text.encode()))
        return self.more()

    def send(self, body: str, receipt: str = "", *, to: str = "q", more: str = "") -> Frames:
        head = f"receipt:{receipt}\n" if receipt else ""
        return self.say(f"SEND\ndestination:{to}\n{head}{more}\n{body}\0")

    def ping(self, payload: bytes = b"") -> Frames:
        self._give(frame(PING, payload))
        return self.more()

    def _give(self, data: bytes) -> None:
        """Send bytes, which are read unless the session pauses that."""
        if self.session.paused_reading:
            self.unread.append(data)
        else:
            self.session.receive_data(data, self.now)

    # ---- what it hears

    def more(self) -> Frames:
        """Return the frames that came meanwhile; what was not read is, once it is wanted."""
        out = b""
        while True:
            data = self.session.data_to_send()
            self.core.sync()
            data += self.session.data_to_send()
            while self.unread and not self.session.paused_reading:
                self.session.receive_data(self.unread.pop(0), self.now)
                data += self.session.data_to_send()
            if not data:
                return frames(out)
            out += self._hear(data)

    def _hear(self, data: bytes) -> bytes:
        """Return what is of STOMP in it, without heart-beats."""
        self.wsproto.receive_data(data)
        said = b""
        for event in self.wsproto.events():
            said += self._of(event)
        return said

    def _of(self, event: Event) -> bytes:
        if isinstance(event, TextMessage | BytesMessage):
            data = event.data if isinstance(event.data, bytes) else event.data.encode()
            if data == b"\n":
                self.beats += 1
                return b""
            return bytes(data)
        if isinstance(event, Pong):
            self.pongs.append(bytes(event.payload))
        if isinstance(event, CloseConnection):
            self.ends.append((int(event.code), event.reason or ""))
        return b""

    def wait(self, seconds: float) -> Frames:
        """Let time pass, in steps of half a second, as the shell's timers have it."""
        came: Frames = []
        for _ in range(int(seconds * 2)):
            self.now += 0.5
            self.session.tick(self.now)
            came += self.more()
        return came
