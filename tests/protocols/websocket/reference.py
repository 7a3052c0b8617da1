"""What a stream of a client's frames comes to, by a reading of RFC 6455 5 of our own.

It sees all bytes at once and looks for nothing but the first rule that is broken: what the gateway,
which sees them in pieces, is compared with. The library that the gateway uses has no part in it.
"""

from __future__ import annotations

import codecs
import struct
from typing import NamedTuple

from tests.protocols.websocket.client import masked

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
PROTOCOL, UNSUPPORTED, NO_TEXT, TOO_BIG = 1002, 1003, 1007, 1009
#: Stands for the code of a Close that has none.
NO_CODE = 0
#: Codes that a Close may have; 1014 is a proxy's.
_TAKEN = frozenset([*range(1000, 1004), *range(1007, 1014), *range(3000, 5000)])


class Come(NamedTuple):
    """What a stream comes to.

    Attributes:
        payload: of all messages, up to the end or to what is wrong.
        codes: what the gateway may say Close with; none where it says nothing yet.
        closed: the client has said Close.
        pings: payloads of its Pings, in order.
        first: whether the first message is text.
        cut: how many last bytes of the payload are a part of a character, which may wait.
        early: the first bytes that are wrong are not all there: the code may be said, or wait.
        unsure: a message was too large by no more than such a part: whether that is too large, and
            all that comes behind it, is not told.
    """

    payload: bytes
    codes: frozenset[int]
    closed: bool
    pings: list[bytes]
    first: bool | None
    cut: int
    unsure: bool
    early: bool


class Reading:
    """One stream; `limits` are bytes and frames of a message."""

    def __init__(self, data: bytes, *, bytes_max: int, frames_max: int, binary_only: bool) -> None:
        self._data = data
        self._bytes_max = bytes_max
        self._frames_max = frames_max
        self._binary_only = binary_only
        self._at = 0
        self._within = 0
        self._bytes = self._frames = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.payload = bytearray()
        self.pings: list[bytes] = []
        self.first: bool | None = None
        self.closed = self.unsure = self.early = False
        self.cut = 0

    def come(self) -> Come:
        codes: set[int] = set()
        while not codes and not self.closed:
            found = self._head()
            if found is None:
                break
            if isinstance(found, int):
                codes = {found}
                self.early = len(self._data) < self._at + self._head_bytes()
                break
            opcode, fin, size, mask = found
            codes = self._control(opcode, size, mask) if opcode & 8 else set()
            if not opcode & 8:
                codes = self._part(opcode, size, mask, fin=fin)
            if self._at > len(self._data):
                break
        return Come(
            payload=bytes(self.payload),
            codes=frozenset(codes),
            closed=self.closed,
            pings=self.pings,
            first=self.first,
            cut=self.cut,
            unsure=self.unsure,
            early=self.early,
        )

    def _head(self) -> tuple[int, bool, int, bytes] | int | None:
        """Return opcode, FIN, size and mask of the next frame; a code; None where it ends."""
        data, at = self._data, self._at
        if len(data) < at + 2:
            return None
        opcode, size = data[at] & 15, data[at + 1] & 0x7F
        fin, control = bool(data[at] & 0x80), bool(opcode & 8)
        if opcode not in (0, 1, 2, 8, 9, 10) or (control and (not fin or size > 125)):
            return PROTOCOL
        at += 2
        for mark, form, least in ((126, "!H", 126), (127, "!Q", 1 << 16)):
            if size == mark and data[self._at + 1] & 0x7F == mark:
                if len(data) < at + struct.calcsize(form):
                    return None
                (size,) = struct.unpack_from(form, data, at)
                at += struct.calcsize(form)
                if size < least or size >> 63:
                    return PROTOCOL
        if data[self._at] & 0x70 or not data[self._at + 1] & 0x80:
            return PROTOCOL
        if len(data) < at + 4:
            return None
        self._at = at + 4
        return opcode, fin, size, data[at : at + 4]

    def _head_bytes(self) -> int:
        """Return how many bytes the head of a frame has by what its second byte says."""
        said = self._data[self._at + 1]
        return 2 + {126: 2, 127: 8}.get(said & 0x7F, 0) + (4 if said & 0x80 else 0)

    def _take(self, size: int, mask: bytes) -> bytes:
        """Return what has come of a payload; `_at` is behind all of it."""
        part = self._data[self._at : self._at + size]
        self._at += size
        return masked(part, mask)

    def _control(self, opcode: int, size: int, mask: bytes) -> set[int]:
        said = self._take(size, mask)
        if self._at > len(self._data):
            return set()
        if opcode == PING:
            self.pings.append(said)
        if opcode != CLOSE:
            return set()
        if not said:
            self.closed = True
            return {NO_CODE}
        code = struct.unpack("!H", said[:2])[0] if size > 1 else 0
        if code not in _TAKEN:
            return {PROTOCOL}
        try:
            said[2:].decode()
        except UnicodeDecodeError:
            return {NO_TEXT}
        self.closed = True
        return {code}

    def _part(self, opcode: int, size: int, mask: bytes, *, fin: bool) -> set[int]:
        said = self._take(size, mask)
        whole = self._at <= len(self._data)
        if not whole and not said:
            return set()  # nothing of it has come: it is judged with its first byte
        if (opcode == CONTINUATION) is not bool(self._within):
            return {PROTOCOL}
        self._within = opcode or self._within
        text = self._within == TEXT
        codes = set()
        if text:
            try:
                self._decoder.decode(said, whole and fin)
            except UnicodeDecodeError:
                codes.add(NO_TEXT)
        if text and self._binary_only:
            codes.add(UNSUPPORTED)
        left = 0 if codes else len(self._decoder.getstate()[0])
        self._bytes += len(said)
        if self._bytes > self._bytes_max:
            codes.add(TOO_BIG)
            self.unsure = self._bytes - left <= self._bytes_max
        if self.first is None:
            self.first = text
        if whole and fin:
            self._within = self._bytes = self._frames = 0
        elif whole:
            self._frames += 1
            if self._frames >= self._frames_max:
                codes.add(TOO_BIG)
        if not codes:
            self.payload += said
            self.cut = left
        return codes


def read(
    data: bytes, *, bytes_max: int = 1 << 20, frames_max: int = 1024, binary_only: bool = False
) -> Come:
    """Return what a stream of frames comes to."""
    reading = Reading(data, bytes_max=bytes_max, frames_max=frames_max, binary_only=binary_only)
    return reading.come()


class SaidError(AssertionError):
    """What the gateway said is not well formed."""


class Said(NamedTuple):
    """What the gateway said behind its handshake, frame by frame: opcode and payload."""

    frames: list[tuple[int, bytes]]

    @property
    def payload(self) -> bytes:
        return b"".join(payload for opcode, payload in self.frames if opcode < CLOSE)

    @property
    def pongs(self) -> list[bytes]:
        return [payload for opcode, payload in self.frames if opcode == PONG]

    @property
    def codes(self) -> list[int]:
        """Return the code of each Close."""
        return [
            struct.unpack("!H", payload[:2])[0] if payload else NO_CODE
            for opcode, payload in self.frames
            if opcode == CLOSE
        ]


def check_said(data: bytes) -> Said:
    """Judge frames of the gateway: whole, well formed, nothing behind Close. Raises SaidError."""
    frames: list[tuple[int, bytes]] = []
    at = within = 0
    while at < len(data):
        if frames and frames[-1][0] == CLOSE:
            raise SaidError("something is said behind Close")
        first, size = data[at], data[at + 1]
        opcode, fin = first & 15, bool(first & 0x80)
        if first & 0x70 or size & 0x80 or opcode not in (0, 1, 2, 8, 9, 10):
            raise SaidError(f"a frame begins with {data[at : at + 2].hex()}")
        at += 2
        for mark, form, least in ((126, "!H", 126), (127, "!Q", 1 << 16)):
            if size == mark:
                (size,) = struct.unpack_from(form, data, at)
                at += struct.calcsize(form)
                if size < least:
                    raise SaidError(f"{size} in {struct.calcsize(form)} bytes")
                break
        payload = data[at : at + size]
        at += size
        if len(payload) != size or (opcode >= CLOSE and (size > 125 or not fin)):
            raise SaidError(f"opcode {opcode} of {size} bytes, {len(payload)} there")
        if opcode < CLOSE:
            if (opcode == CONTINUATION) is not bool(within):
                raise SaidError(f"opcode {opcode} within {within}")
            within = 0 if fin else opcode or within
            if opcode == TEXT and fin:
                payload.decode()
        elif opcode == CLOSE and size:
            code = struct.unpack("!H", payload[:2])[0] if size > 1 else 0
            if code not in _TAKEN:
                raise SaidError(f"Close {code}")
            payload[2:].decode()
        frames.append((opcode, payload))
    if within:
        raise SaidError("a message has no end")
    return Said(frames)
