"""Frames to payload and back, over wsproto [RFC 6455 5]; no handshake.

    reading ──a Close came──> closed
       └──what breaks the rules, or is too much──> failed

    bytes ──plain frames (`plain`)──> payload
       └──any other frame──> wsproto ──> payload, Ping, Close, or why it is wrong

Payload is passed on as it comes: no frame and no message is ever held, so a limit is judged on
what has come of it. What is held is the head of a frame, and a control frame until it is whole.
Bytes behind the end are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from wsproto.frame_protocol import CloseReason, Frame, FrameProtocol, Opcode, ParseFailed

from protocols.websocket.closing import Closing
from protocols.websocket.deflate import AT_ONCE_BYTES, DEFLATED_MAX, DEFLATED_MIN, Deflate
from protocols.websocket.limits import FRAMES_MAX
from protocols.websocket.masking import turned, unmask
from protocols.websocket.plain import (
    BINARY,
    KEY_BYTES,
    TEXT,
    Extent,
    extent,
    head_of,
    is_utf8,
    read_plain,
)


class _RefusedError(Exception):
    """A message is not what may come here: `closing` says so."""

    def __init__(self, code: CloseReason, text: str) -> None:
        super().__init__(text)
        self.closing = Closing(code.value, text)


def _too_much(what: str) -> _RefusedError:
    return _RefusedError(CloseReason.MESSAGE_TOO_BIG, f"A message is {what}.")


_BAD_TEXT: Final = "Text that is not UTF-8 came."
#: What the peer of a protocol is told that is bytes, no text.
BINARY_ONLY: Final = "AMQP is sent in binary messages, not in text."


class Frames:
    """Those of one connection, both ways.

    Attributes:
        text: whether the first message was text; None before.
        any_text: whether one of them was.
        ping: the payload of the last Ping that was not answered; the older ones need no answer
            [RFC 6455 5.5.3].
        controls: Ping and Pong frames since whoever counts them has set it to 0.
        behind: the turn was over before all was read.
        binary_only: text may not come.
        closed: the peer's Close.
        failed: why nothing is read any more.
    """

    __slots__ = (
        "_deflate",
        "_frames",
        "_key",
        "_left",
        "_message_bytes",
        "_message_bytes_max",
        "_owed",
        "_within",
        "_wsproto",
        "any_text",
        "behind",
        "binary_only",
        "closed",
        "controls",
        "failed",
        "ping",
        "text",
    )

    def __init__(self, message_bytes_max: int, deflate: Deflate | None = None) -> None:
        self._wsproto = FrameProtocol(client=False, extensions=[deflate] if deflate else [])
        self._deflate = deflate
        self._message_bytes_max = message_bytes_max
        self._message_bytes = self._frames = self.controls = 0
        self._left = b""  # what was not read in the last turn, or the beginning of a head
        self._owed = 0  # bytes of a frame that has begun and is not over
        self._key: bytes | None = None  # of that frame, where it is not wsproto's
        self._within = False  # a message has begun and is not over, in parts or in a frame
        self.text: bool | None = None
        self.ping: bytes | None = None
        self.any_text = self.behind = self.binary_only = False
        self.closed: Closing | None = None
        self.failed: Closing | None = None

    def read(self, data: bytes, spent: Callable[[], bool]) -> bytes:
        """Return the payload of what came, up to the end of the turn, or of all."""
        self.behind = False
        if self.closed is not None or self.failed is not None:
            return b""
        if self._deflate is not None:
            self._deflate.made = 0
        if self._left:
            data, self._left = self._left + data, b""
        payload: list[bytes] = []
        try:
            self._read(data, spent, payload)
        except ParseFailed as error:
            bad_text = error.code is CloseReason.INVALID_FRAME_PAYLOAD_DATA
            self.failed = Closing(error.code.value, _BAD_TEXT if bad_text else f"{error}.")
            if self._deflate is not None and self._deflate.failed is not None:
                self.failed = self._deflate.failed
        except UnicodeDecodeError:
            self.failed = Closing(CloseReason.INVALID_FRAME_PAYLOAD_DATA.value, _BAD_TEXT)
        except _RefusedError as error:
            self.failed = error.closing
        return payload[0] if len(payload) == 1 else b"".join(payload)

    def _read(self, data: bytes, spent: Callable[[], bool], payload: list[bytes]) -> None:
        """Read frame by frame; raises ParseFailed, UnicodeDecodeError, _RefusedError."""
        at, end = 0, len(data)
        while at < end:
            if self._owed:
                part = data[at : at + self._owed]
                at += len(part)
                self._owed -= len(part)
                self._take(part, payload)
                if self.closed is not None:
                    return
            elif self._within or (after := self._read_plain(data, at, payload)) == at:
                found = extent(data, at)
                if found is None:
                    break
                at = self._begin(data, at, found)
                continue
            else:
                at = after
            if at < end and (spent() or self._inflated_enough()):
                self.behind = True
                break
        self._left = data[at:]

    def _read_plain(self, data: bytes, at: int, payload: list[bytes]) -> int:
        """Read the plain frames at `at`; returns where they end."""
        after, text = read_plain(
            data, at, self._message_bytes_max, payload, text=not self.binary_only
        )
        if after != at:
            self.any_text |= text
            if self.text is None:
                self.text = data[at] == TEXT
        return after

    def _begin(self, data: bytes, at: int, found: Extent) -> int:
        """Begin a frame that is not plain, or not whole; returns where what is owed of it begins.

        A large binary message is ours in parts: wsproto would take the mask away in Python.
        """
        whole = data[at] == BINARY and found.is_sound and not self._within
        if whole and found.payload <= self._message_bytes_max:
            if self.text is None:
                self.text = False
            self._owed = found.payload
            at += found.head
            self._key = data[at - KEY_BYTES : at]
            return at
        self._owed = found.head + found.payload
        self._key = None
        return at

    def _take(self, part: bytes, payload: list[bytes]) -> None:
        """Take a part of the frame that has begun; raises ParseFailed, _RefusedError."""
        if self._key is not None:
            payload.append(unmask(part, self._key))
            self._key = turned(self._key, len(part))
            return
        self._wsproto.receive_bytes(part)
        for frame in self._wsproto.received_frames():
            if frame.opcode is Opcode.TEXT or frame.opcode is Opcode.BINARY:
                payload.append(self._count(frame))
            elif frame.opcode is Opcode.CLOSE:
                self._hear_close(frame)
            else:
                self.controls += 1
                if frame.opcode is Opcode.PING:
                    assert isinstance(frame.payload, bytes), "wsproto decodes text alone"
                    self.ping = frame.payload

    def _inflated_enough(self) -> bool:
        return self._deflate is not None and self._deflate.made >= AT_ONCE_BYTES

    def only_close(self) -> None:
        """Spare what is for payload alone: the peer's Close is all that counts from now on."""
        if self._deflate is not None:
            self._deflate.idle = True

    def _count(self, frame: Frame) -> bytes:
        """Return the payload of a part of a message. Raises _RefusedError."""
        said = frame.payload
        data = said.encode() if isinstance(said, str) else said
        assert isinstance(data, bytes), "a Close alone has a pair"
        text = frame.opcode is Opcode.TEXT
        if text and self.binary_only:
            raise _RefusedError(CloseReason.UNSUPPORTED_DATA, BINARY_ONLY)
        self.any_text |= text
        if self.text is None:
            self.text = text
        self._within = not frame.message_finished
        self._message_bytes += len(data)
        if self._message_bytes > self._message_bytes_max:
            raise _too_much(f"larger than {self._message_bytes_max} bytes")
        if frame.message_finished:
            self._message_bytes = self._frames = 0
        elif frame.frame_finished:
            self._frames += 1
            if self._frames >= FRAMES_MAX:
                raise _too_much(f"in more than {FRAMES_MAX} frames")
        return data

    def _hear_close(self, frame: Frame) -> None:
        assert isinstance(frame.payload, tuple), "wsproto splits what a Close has"
        code, reason = frame.payload
        told = None if code == CloseReason.NO_STATUS_RCVD else int(code)
        self.closed = Closing(told, reason)

    def message(self, data: bytes) -> bytes:
        """Return a message: text where the peer began with text, and all of it is UTF-8."""
        text = self.text is True and is_utf8(data)
        if self._deflate is None or not DEFLATED_MIN <= len(data) <= DEFLATED_MAX:
            return head_of(len(data), text) + data
        return bytes(self._wsproto.send_data(data.decode() if text else data))

    def messages(self, data: bytes, pieces: Sequence[bytes]) -> Sequence[bytes]:
        """Return a message for each piece of `data`. HOT."""
        if len(pieces) == 1 or self._deflate is not None:
            return [self.message(one) for one in pieces]
        text = self.text is True
        out = [b""] * (2 * len(pieces))
        if text and not data.isascii():
            out[0::2] = [head_of(len(one), is_utf8(one)) for one in pieces]
        else:
            # What goes out at once has few sizes most often.
            sizes = list(map(len, pieces))
            heads = {size: head_of(size, text) for size in set(sizes)}
            out[0::2] = map(heads.__getitem__, sizes)
        out[1::2] = pieces
        return out

    def pong(self) -> bytes:
        """Return the answer to the last Ping; nothing where none waits for one."""
        ping, self.ping = self.ping, None
        return b"" if ping is None else bytes(self._wsproto.pong(ping))

    def ask(self) -> bytes:
        """Return a Ping."""
        return bytes(self._wsproto.ping())

    def close(self, closing: Closing) -> bytes:
        """Return a Close; a reason that is too long for it is cut."""
        reason = closing.reason if closing.code is not None else None
        return bytes(self._wsproto.close(closing.code, reason))
