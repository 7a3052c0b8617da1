"""A client's end of a WebSocket, written for the simulation: no library reads what comes here.

    shaking ──101──> open ──Close said or heard──> leaving

    what the client says ──cut into messages, these into frames, masked──> the line
    what comes ──judged frame by frame──> what the client hears

All that a peer is free to do is the seed's: where messages and frames begin and end, whether they
are text, what stands between them, when and with which code Close is said, who ends the socket.
"""

from __future__ import annotations

import base64
import codecs
import hashlib
import random
import struct
from collections import deque
from typing import Protocol

from tests.protocols.websocket.client import frame
from tests.protocols.websocket.reference import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT
from tests.simulation.model import ViolationError
from tests.simulation.wire.net import Pipe
from tests.simulation.wire.plan import Web

PATHS = ("/", "/ws", "/stomp", "/amqp", "/$servicebus/websocket", "/ws?a=b")
OFFERS = {
    "stomp": (None, "v12.stomp", "v10.stomp, v11.stomp, v12.stomp"),
    "amqp": (None, "amqp", "AMQPWSB10", "AMQPWSB10, amqp"),
}
#: Codes that a client may say [RFC 6455 7.4]; None is a Close without one.
CODES = (None, 1000, 1001, 1008, 3000, 4999)
#: What the gateway may end a connection with that broke no rule.
_HEARD = (1000, 1001, 1008, 1011, 1013)
#: A message begins to end with so many frames, and what is said at once is in about as many.
_FRAMES = 300
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Hearer(Protocol):
    """Who a WebSocket is for."""

    def refused(self, text: str) -> None:
        """The gateway took no WebSocket."""

    def ended(self, code: int, reason: str) -> None:
        """The gateway said Close, and this side had not."""


class WebSocket:
    """See the module text.

    Attributes:
        open: frames may be said.
        said: Close was said by this side; `heard`: by the other.
        waits: this side has said Close, and leaves the socket's end to the gateway.
        first: whether the first message was text.
        answered: how many Pings have their Pong.
    """

    def __init__(self, chance: random.Random, plan: Web, protocol: str, hearer: Hearer) -> None:
        self._chance = chance
        self._plan = plan
        self._protocol = protocol
        self._hearer = hearer
        self.said = self.heard = self.waits = False
        self.first: bool | None = None
        self.answered = 0
        self._code: int | None = None
        self._finished = False  # the socket's end was said
        self._texts = protocol == "stomp" and chance.random() < plan.text
        self._within = 0  # opcode of the message that is not finished, 0 between two
        self._message_bytes = self._message_frames = 0
        self._pings: deque[bytes] = deque()
        self._count = 0
        self._kept = bytearray()
        self._key = base64.b64encode(chance.randbytes(16))
        self._offered = chance.choice(OFFERS[protocol])
        self._shaken = False
        self._came = 0  # opcode of the gateway's message that is not finished
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.open = chance.random() < plan.eager
        self._owed = bytearray(self._request())

    # ---- what is said

    def _request(self) -> bytes:
        lines = [
            f"GET {self._chance.choice(PATHS)} HTTP/1.1",
            "Host: sim",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {self._key.decode()}",
        ]
        if self._offered is not None:
            lines.append(f"Sec-WebSocket-Protocol: {self._offered}")
        return "\r\n".join([*lines, "", ""]).encode()

    @property
    def owes(self) -> bool:
        """Whether there is something to say, whatever its client says."""
        return bool(self._owed)

    def say(self, up: Pipe) -> bytes:
        """Return what sets out now of what the client has said."""
        if self.open and not self._finished:
            data = up.take(len(up.data))
            if data and not (self.said or self.heard):
                self._owed += self._messages(data)
            if up.ended and not self.said and self._chance.random() < self._plan.closes:
                self.close()
        out = b"" if self._finished else bytes(self._owed)
        self._owed.clear()
        self._finished |= up.ended and not self.waits
        return out

    def close(self, *, answer: int | None = None) -> None:
        """Say Close, also between the frames of a message."""
        self._code = self._chance.choice(CODES) if answer is None else answer
        reason = self._chance.choice(["", "so long", "é" * 61]) if answer is None else ""
        payload = b"" if self._code is None else struct.pack("!H", self._code) + reason.encode()
        self._owed += self._frame(CLOSE, payload)
        self.said = True
        self.waits = self._chance.random() < 0.7

    def _messages(self, data: bytes) -> bytes:
        """Return data as messages; the last one may have its end another time."""
        chance, plan = self._chance, self._plan
        out = bytearray()
        at = 0
        while at < len(data):
            room = plan.limit - self._message_bytes
            part = data[at : at + min(room, chance.choice(plan.messages))]
            if self._within == TEXT and not _is_text(part):
                part = b""  # it ends here, and this comes in another one
            at += len(part)
            out += self._frames(part, ends=not part or chance.random() >= plan.unfinished)
        return bytes(out)

    def _frames(self, data: bytes, *, ends: bool) -> bytes:
        """Return a message or a part of one, as frames, with others between them."""
        chance = self._chance
        out = bytearray()
        if not self._within:
            text = self._texts and _is_text(data) and chance.random() < 0.9
            if self.first is None:
                self.first = text
        self._message_bytes += len(data)
        ends |= self._message_bytes >= self._plan.limit or self._message_frames >= _FRAMES
        at = 0
        while True:
            size = chance.choice(self._plan.frames)
            if size:
                size = max(size, len(data) // _FRAMES)
            self._message_frames += 1
            part = data[at : at + size]
            at += size
            opcode = CONTINUATION
            if not self._within:
                opcode = self._within = TEXT if text else BINARY
            last = at >= len(data)
            out += self._frame(opcode, part, fin=last and ends)
            if chance.random() < self._plan.controls:
                out += self._control()
            if last:
                break
        if ends:
            self._within = self._message_bytes = self._message_frames = 0
        return bytes(out)

    def _control(self) -> bytes:
        """Return a Ping, or a Pong that nobody asked for."""
        if self._chance.random() < 0.5:
            return self._frame(PONG, self._chance.randbytes(self._chance.choice([0, 5, 125])))
        self._count += 1
        payload = b"%d" % self._count + b"." * self._chance.choice([0, 0, 100])
        self._pings.append(payload)
        return self._frame(PING, payload)

    def _frame(self, opcode: int, payload: bytes, *, fin: bool = True) -> bytes:
        return frame(opcode, payload, fin=fin, mask=self._chance.randbytes(4))

    # ---- what comes

    def feed(self, data: bytes) -> bytes:
        """Return what of it is for the client. Raises ViolationError."""
        self._kept += data
        if not self._shaken and not self._shake():
            return b""
        out = bytearray()
        while (found := self._next()) is not None:
            first, payload = found
            opcode, fin = first & 15, bool(first & 0x80)
            if self.heard:
                raise ViolationError("a frame came behind Close")
            if opcode in (CONTINUATION, TEXT, BINARY):
                self._hear_part(opcode, payload, fin=fin)
                out += payload
                continue
            if not fin or len(payload) > 125:
                raise ViolationError(f"a control frame of {len(payload)} bytes, in parts {not fin}")
            self._hear_control(opcode, payload)
        return bytes(out)

    def _shake(self) -> bool:
        end = self._kept.find(b"\r\n\r\n")
        if end < 0:
            return False
        lines = bytes(self._kept[:end]).decode("ascii").split("\r\n")
        headers = {name.lower(): value for name, _, value in (li.partition(": ") for li in lines)}
        if not lines[0].startswith("HTTP/1.1 101 "):
            body = self._kept[end + 4 :]
            if len(body) == int(headers["content-length"]) and not self.heard:
                self.said = self.heard = self.open = True
                self._hearer.refused(f"{lines[0]}: {body.decode()}")
            return False
        del self._kept[: end + 4]
        token = base64.b64encode(hashlib.sha1(self._key + _GUID).digest()).decode()
        if headers.get("sec-websocket-accept") != token:
            raise ViolationError(f"the key is answered with {headers}")
        chosen = headers.get("sec-websocket-protocol")
        if (chosen is None) is not (self._offered is None) or chosen not in (
            None,
            *(self._offered or "").split(", "),
        ):
            raise ViolationError(f"offered {self._offered}, chosen {chosen}")
        self._shaken = self.open = True
        return True

    def _next(self) -> tuple[int, bytes] | None:
        """Return first byte and payload of the next frame, once it is whole."""
        kept = self._kept
        if len(kept) < 2:
            return None
        if kept[0] & 0x70 or kept[1] & 0x80:
            raise ViolationError(f"a frame begins with {bytes(kept[:2]).hex()}")
        size, start = kept[1], 2
        for mark, form, least in ((126, "!H", 126), (127, "!Q", 1 << 16)):
            if kept[1] == mark:
                start = 2 + struct.calcsize(form)
                if len(kept) < start:
                    return None
                (size,) = struct.unpack_from(form, kept, 2)
                if size < least:
                    raise ViolationError(f"{size} is written in {start - 2} bytes")
        if len(kept) < start + size:
            return None
        found = kept[0], bytes(kept[start : start + size])
        del kept[: start + size]
        return found

    def _hear_part(self, opcode: int, payload: bytes, *, fin: bool) -> None:
        if (opcode == CONTINUATION) is not bool(self._came):
            raise ViolationError(f"opcode {opcode} came within {self._came}")
        self._came = opcode or self._came
        if self.first is None:
            raise ViolationError("a message came before anything was said")
        if self._came == TEXT:
            if not self.first:
                raise ViolationError("text came, and nobody has begun with text")
            try:
                self._decoder.decode(payload, fin)
            except UnicodeDecodeError as error:
                raise ViolationError(f"text that is none: {payload!r}") from error
        elif self.first and fin and opcode == BINARY and _is_text(payload):
            raise ViolationError(f"text came as bytes: {payload!r}")
        if self._protocol == "stomp" and not (fin and opcode and _is_one(payload)):
            raise ViolationError(f"a message is no frame of STOMP, or several: {payload!r}")
        if fin:
            self._came = 0

    def _hear_control(self, opcode: int, payload: bytes) -> None:
        if opcode == PING:
            if not self.said:
                self._owed += self._frame(PONG, payload)
        elif opcode == PONG:
            while self._pings and self._pings[0] != payload:
                self._pings.popleft()  # a later one is answered
            if not self._pings:
                raise ViolationError(f"a Pong for nothing: {payload!r}")
            self._pings.popleft()
            self.answered += 1
        elif opcode == CLOSE:
            self._hear_close(payload)
        else:
            raise ViolationError(f"opcode {opcode} came")

    def _hear_close(self, payload: bytes) -> None:
        code = struct.unpack("!H", payload[:2])[0] if payload else None
        reason = payload[2:].decode()
        self.heard = True
        self.waits = False
        if not reason:
            if not self.said or code != self._code:
                raise ViolationError(f"Close {code} answers {self._code}, said {self.said}")
            return
        if code not in _HEARD:
            raise ViolationError(f"Close {code}: {reason}")
        self._hearer.ended(code, reason)
        if not self.said and self._chance.random() < self._plan.answers:
            self.close(answer=code)

    def check_rest(self) -> None:
        """All has come that is on its way: the last Ping is answered."""
        if self._shaken and not (self.said or self.heard) and self._pings:
            raise ViolationError(f"Pings without a Pong: {list(self._pings)}")


def _is_one(message: bytes) -> bool:
    """Whether it is one frame of STOMP, or a heart-beat."""
    head, _, rest = message.partition(b"\n\n")
    lengths = [line[15:] for line in head.split(b"\n") if line.startswith(b"content-length:")]
    if lengths:
        return len(rest) == int(lengths[0]) + 2 and rest.endswith(b"\0\n")
    return message == b"\n" or rest == b"\0\n"


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
