"""A browser's tab at a real gateway: STOMP over a WebSocket, in the clear or over TLS."""

from __future__ import annotations

import select
import ssl
import time

from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage

from tests.gateway.websocket_peer import ClosedError, WebSocketClient

#: How long a test waits for what must come.
SECONDS = 20.0

StompFrame = tuple[str, dict[str, str], str]


class Tab(WebSocketClient):
    """One connection, logged in.

    Attributes:
        beats: heart-beats that came.
        pongs: payloads of the Pings that were answered.
        end: code and reason of the gateway's Close; None before.
    """

    def __init__(
        self,
        port: int,
        version: str = "1.2",
        *,
        context: ssl.SSLContext | None = None,
        connect: str = "",
    ) -> None:
        """Shake hands and log in."""
        subprotocol = f"v{version.replace('.', '')}.stomp"
        super().__init__(port, "/stomp", subprotocols=(subprotocol,), context=context)
        assert self.subprotocol == subprotocol
        self.version = version
        self.beats = 0
        self.pongs: list[bytes] = []
        self.end: tuple[int, str] | None = None
        self._frames: list[StompFrame] = []
        self._text = ""
        accept = "" if version == "1.0" else f"accept-version:{version}\n"
        self.say(f"CONNECT\n{accept}host:h\n{connect}\n\0")
        self.greeting = self.frame()

    def send(self, where: str, body: str, receipt: str = "") -> None:
        head = f"receipt:{receipt}\n" if receipt else ""
        self.say(f"SEND\ndestination:{where}\n{head}\n{body}\0")

    def subscribe(self, where: str, ack: str, more: str = "") -> None:
        """Subscribe as `s`, and wait until that is confirmed."""
        self.say(f"SUBSCRIBE\nid:s\ndestination:{where}\nack:{ack}\nreceipt:s\n{more}\n\0")
        assert self.frame()[1] == {"receipt-id": "s"}

    def ack(self, message: StompFrame) -> None:
        """Acknowledge by the rules of the version."""
        headers = message[1]
        key = f"id:{headers['ack']}" if self.version == "1.2" else ""
        if self.version != "1.2":
            key = f"message-id:{headers['message-id']}"
        where = "subscription:s\n" if self.version == "1.1" else ""
        self.say(f"ACK\n{key}\n{where}\n\0")

    def ping(self, payload: bytes) -> None:
        self.peer.sendall(self.wsproto.send(Ping(payload=payload)))

    def frame(self) -> StompFrame:
        """Return the next frame of STOMP. Raises ClosedError at the gateway's Close."""
        end = time.monotonic() + SECONDS
        while not self._frames:
            assert time.monotonic() < end, "waited in vain"
            self._take(self.next_event())
        return self._frames.pop(0)

    def hear(self, seconds: float) -> list[StompFrame]:
        """Return the frames that come within so many seconds. Raises ClosedError."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._events or select.select([self.peer.socket], [], [], left)[0]:
                self._take(self.next_event())
        found, self._frames = self._frames, []
        return found

    def closed(self) -> tuple[int, str]:
        """Return code and reason of the gateway's Close, which must come before any other frame."""
        while self.end is None:
            try:
                left = self.frame()
            except ClosedError:
                continue
            raise AssertionError(left)
        return self.end

    def _take(self, event: Event) -> None:
        if isinstance(event, TextMessage | BytesMessage):
            assert isinstance(event, TextMessage)
            self._split(event.data)
        elif isinstance(event, Ping):
            self.peer.sendall(self.wsproto.send(event.response()))
        elif isinstance(event, Pong):
            self.pongs.append(bytes(event.payload))
        elif isinstance(event, CloseConnection):
            self.peer.sendall(self.wsproto.send(event.response()))
            self.end = (int(event.code), event.reason or "")
            raise ClosedError(*self.end)

    def _split(self, text: str) -> None:
        """Take what is whole of the frames; line ends between them are heart-beats."""
        self._text += text
        while True:
            frame = self._text.lstrip("\n")
            self.beats += len(self._text) - len(frame)
            self._text = frame
            if "\0" not in frame:
                return
            whole, _, rest = frame.partition("\0")
            # The line end behind a frame is a part of it.
            self._text = rest.removeprefix("\n")
            head, _, body = whole.partition("\n\n")
            command, *lines = head.split("\n")
            headers = dict(line.partition(":")[::2] for line in reversed(lines))
            self._frames.append((command, headers, body))
