"""AMQP 1.0 for load: frames encoded once, numbers patched in, answers counted in ranges.

Sans-IO: bytes in by `feed`, bytes out by `produce`; the loop that owns the sockets is
`drive`. It is not the gateway's engine, on purpose: what is measured must not also be the
measure. One session, one link, on channel 0; sizes stay below the peer's max-frame-size, so a
transfer is a message.

The frame that a sender repeats, `i` being its number:

    size:4 02 00 00:2  00 53 14 c0 len 05  43  70 i:4  a0 04 i:4  43  41|42   message sections
                       transfer            handle  id  tag        format  settled
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from gateway.bench.latency import RunTimes
from gateway.bench.shapes import STAMP_BYTES, Shape, body, stamp

SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
SASL_MECHANISMS, SASL_INIT, SASL_OUTCOME = 0x40, 0x41, 0x44
MAX_FRAME: Final = 1 << 18
WINDOW: Final = 1 << 20
#: Messages in one write: enough to make a system call cheap, few enough to keep the peer fed.
RUN: Final = 256
#: What arrives is settled in ranges of so many, unless a job says otherwise.
SETTLE_EVERY: Final = 100
NULL: Final = b"\x40"
_ACCEPTED: Final = b"\x00\x53\x24"
_TRANSFER: Final = b"\x00\x53\x14"
_UINT32: Final = struct.Struct(">I")
_NUMBERS: Final = struct.Struct(">I2sI")
_TAG: Final = b"\xa0\x04"


class PeerError(Exception):
    """The peer refused, ended or broke the conversation; the text says where."""


def uint(value: int) -> bytes:
    """Encode an unsigned integer in its shortest form [AMQP 1.6.5]."""
    if value == 0:
        return b"\x43"
    return bytes((0x52, value)) if value < 256 else b"\x70" + _UINT32.pack(value)


def boolean(value: bool) -> bytes:  # noqa: FBT001  (there is nothing else to name)
    """Encode a boolean [AMQP 1.6.2]."""
    return b"\x41" if value else b"\x42"


def symbol(text: str) -> bytes:
    """Encode a symbol of up to 255 bytes [AMQP 1.6.21]."""
    return bytes((0xA3, len(text))) + text.encode("ascii")


def string(text: str) -> bytes:
    """Encode a string [AMQP 1.6.20]."""
    raw = text.encode()
    return (bytes((0xA1, len(raw))) if len(raw) < 256 else b"\xb1" + _UINT32.pack(len(raw))) + raw


def binary(raw: bytes) -> bytes:
    """Encode a binary [AMQP 1.6.19]."""
    return (bytes((0xA0, len(raw))) if len(raw) < 256 else b"\xb0" + _UINT32.pack(len(raw))) + raw


def composite(code: int, *fields: bytes) -> bytes:
    """Encode a described list with the given descriptor code [AMQP 1.4]."""
    inside = b"".join(fields)
    if len(inside) < 255:
        return bytes((0, 0x53, code, 0xC0, len(inside) + 1, len(fields))) + inside
    return (
        bytes((0, 0x53, code, 0xD0))
        + _UINT32.pack(len(inside) + 4)
        + _UINT32.pack(len(fields))
        + inside
    )


def text_map(pairs: Sequence[tuple[str, str]]) -> bytes:
    """Encode a map of strings [AMQP 1.6.23]."""
    inside = b"".join(string(key) + string(value) for key, value in pairs)
    count = 2 * len(pairs)
    return b"\xd1" + _UINT32.pack(len(inside) + 4) + _UINT32.pack(count) + inside


def frame(content: bytes, *, sasl: bool = False) -> bytes:
    """Put a performative (and payload) into a frame on channel 0 [AMQP 2.3]."""
    return struct.pack(">IBBH", len(content) + 8, 2, int(sasl), 0) + content


EMPTY_FRAME: Final = frame(b"")


def message(shape: Shape) -> bytes:
    """Encode the sections of a message: header, properties where it has any, data [AMQP 3.2]."""
    head = [boolean(shape.durable)]
    if shape.ttl:
        head += [NULL, uint(shape.ttl)]
    sections = composite(0x70, *head)
    if shape.properties:
        # message-id, user-id, to, subject, reply-to, correlation-id, content-type
        known = [string("load"), NULL, NULL, string("load"), NULL, NULL, symbol("text/plain")]
        sections += composite(0x73, *known) + b"\x00\x53\x74" + text_map(shape.properties)
    return sections + b"\x00\x53\x75" + binary(body(shape))


class Frames:
    """A run of transfers in one buffer; numbers and stamps are patched in before each write."""

    def __init__(self, shapes: Sequence[Shape], *, settled: bool) -> None:
        """Encode each shape in turn until the buffer holds RUN transfers."""
        self._buffer = bytearray()
        self._numbers: list[int] = []
        self._ends: list[int] = [0]
        rounds = max(1, RUN // len(shapes))
        for shape in list(shapes) * rounds:
            fixed = b"\x43\x70" + bytes(4) + _TAG + bytes(4) + b"\x43" + boolean(settled)
            content = _TRANSFER + bytes((0xC0, len(fixed) + 1, 5)) + fixed + message(shape)
            self._numbers.append(len(self._buffer) + 8 + 8)
            self._buffer += frame(content)
            self._ends.append(len(self._buffer))
        self._place = 0
        self._view = memoryview(self._buffer)

    def take(self, first: int, most: int, sent: bytes | None) -> tuple[memoryview, int]:
        """Number up to `most` transfers from `first` on; returns their bytes and how many they are.

        The bytes are good until the next call. `sent` is the stamp for their bodies, if any.
        """
        place, buffer = self._place, self._buffer
        count = min(most, len(self._numbers) - place)
        pack = _NUMBERS.pack_into
        for number, at in enumerate(self._numbers[place : place + count], first):
            pack(buffer, at, number, _TAG, number)
        if sent is not None:
            for end in self._ends[place + 1 : place + count + 1]:
                buffer[end - STAMP_BYTES : end] = sent
        view = self._view[self._ends[place] : self._ends[place + count]]
        self._place = (place + count) % len(self._numbers)
        return view, count


def decode(raw: bytes, at: int) -> tuple[object, int]:
    """Decode one value; returns it and where the next one starts [AMQP 1.6].

    Compound values of a kind that no answer to a bench needs are skipped and come back as None, a
    described value as the code of its descriptor.
    """
    kind = raw[at]
    at += 1
    if kind == 0x00:
        code, at = decode(raw, at)
        return code, decode(raw, at)[1]
    if kind in _FIXED:
        width, value = _FIXED[kind]
        return (int.from_bytes(raw[at : at + width], "big") if width else value), at + width
    wide = 4 if kind & 0x10 else 1
    size = int.from_bytes(raw[at : at + wide], "big")
    at += wide
    text = raw[at : at + size] if kind >> 4 in (0xA, 0xB) else None
    return text, at + size


#: Codes of fixed width: bytes that follow, and the value where there are none.
_FIXED: Final[dict[int, tuple[int, object]]] = {
    0x40: (0, None),
    0x41: (0, True),
    0x42: (0, False),
    0x43: (0, 0),
    0x44: (0, 0),
    0x45: (0, None),
    **dict.fromkeys((0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56), (1, None)),
    **dict.fromkeys((0x60, 0x61), (2, None)),
    **dict.fromkeys((0x70, 0x71, 0x72, 0x73, 0x74), (4, None)),
    **dict.fromkeys((0x80, 0x81, 0x82, 0x83, 0x84), (8, None)),
    **dict.fromkeys((0x94, 0x98), (16, None)),
}


def fields(raw: bytes) -> list[object]:
    """Decode the fields of a performative, `raw` being a frame's content."""
    kind = raw[3]
    if kind == 0x45:
        return []
    if kind == 0xC0:
        at, count = 6, raw[5]
    elif kind == 0xD0:
        at, count = 12, _UINT32.unpack_from(raw, 8)[0]
    else:
        raise PeerError(f"a performative that is no list: {raw[:16]!r}")
    found = []
    for _ in range(count):
        value, at = decode(raw, at)
        found.append(value)
    return found


def number(values: Sequence[object], place: int) -> int | None:
    """Return the number at a place of a performative; None where it is absent or null."""
    value = values[place] if place < len(values) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def login(user: str, password: str) -> bytes:
    """Return the sasl-init frame: PLAIN with a user, else ANONYMOUS [AMQP 5.3.3.2]."""
    if not user:
        return frame(composite(SASL_INIT, symbol("ANONYMOUS")), sasl=True)
    answer = binary(f"\0{user}\0{password}".encode())
    return frame(composite(SASL_INIT, symbol("PLAIN"), answer), sasl=True)


def opening(name: str) -> bytes:
    """Return the protocol header, open and begin; the session numbers its transfers from 0."""
    begin = composite(BEGIN, NULL, uint(0), uint(WINDOW), uint(WINDOW))
    first = composite(OPEN, string(name), string("localhost"), uint(MAX_FRAME))
    return AMQP_HEADER + frame(first) + frame(begin)


def attach(name: str, address: str, *, receiver: bool) -> bytes:
    """Return the attach frame of the one link, to or from `address`."""
    there, here = string(address), string(name)
    source = composite(0x28, there if receiver else here)
    target = composite(0x29, here if receiver else there)
    modes = [b"\x50\x02", b"\x50\x00"]  # either settled or not, receiver settles first
    rest = [] if receiver else [NULL, NULL, uint(0)]
    return frame(
        composite(ATTACH, string(name), uint(0), boolean(receiver), *modes, source, target, *rest)
    )


def settled_range(raw: bytes, at: int) -> tuple[int, int]:
    """Return first and last delivery of a disposition's content at `at` [AMQP 2.7.6].

    HOT for peers that answer each message by itself: reads by offset what `fields` reads in
    general.
    """
    at += 6 if raw[at + 3] == 0xC0 else 12
    found = 0
    ends = [0, 0]
    at += 1  # role
    while found < 2:
        kind = raw[at]
        if kind == 0x70:
            ends[found] = _UINT32.unpack_from(raw, at + 1)[0]
            at += 5
        elif kind == 0x52:
            ends[found] = raw[at + 1]
            at += 2
        elif kind == 0x43:
            at += 1
        else:  # last is null or left out: the same as first
            ends[1] = ends[0]
            break
        found += 1
    return ends[0], ends[1]


class Sender:
    """Sends `count` messages with at most `window` of them unsettled."""

    def __init__(
        self, shapes: Sequence[Shape], count: int, *, window: int, settled: bool, stamped: bool
    ) -> None:
        self._frames = Frames(shapes, settled=settled)
        self._last = Frames(shapes[:1], settled=False) if settled else None
        self._count, self._window, self._stamped = count, window, stamped
        self._link_limit = 0
        self._session_limit = WINDOW
        self._sent = self._done = 0
        self._rest = b""
        self.times = RunTimes()
        self.finished = False

    def began(self, incoming_window: int) -> None:
        """The peer's begin: how many transfers its session takes before it says more."""
        self._session_limit = incoming_window

    def produce(self, now: int) -> memoryview | bytes:
        """Return the next bytes to write; none while window, credit or count is used up."""
        sent = self._sent
        room = min(self._link_limit, self._session_limit, self._count)
        if self._last is None:
            room = min(room, self._done + self._window)
        elif sent < self._count - 1:
            room = min(room, self._count - 1)
        elif room > sent:
            # Pre-settled messages leave no trace; the last one is confirmed and stands for all.
            view, taken = self._last.take(sent, 1, None)
            self._sent = sent + taken
            return view
        if room <= sent:
            return b""
        text = stamp(now) if self._stamped else None
        view, taken = self._frames.take(sent, min(room - sent, RUN), text)
        self._sent = sent + taken
        self.times.add(self._sent, now)
        return view

    def feed(self, data: bytes, now: int) -> None:
        """Take what the peer wrote; raises PeerError when it refuses a message or ends the link."""
        data = self._rest + data
        at, end = 0, len(data)
        while end - at >= 8:
            size = _UINT32.unpack_from(data, at)[0]
            if end - at < size:
                break
            content = at + 4 * data[at + 4]
            if at + size - content >= 3:
                code = data[content + 2]
                if code == DISPOSITION:
                    if data.find(_ACCEPTED, content, at + size) < 0:
                        raise PeerError(f"a message was not accepted: {data[at : at + size]!r}")
                    self._settled(*settled_range(data, content), now)
                elif code == FLOW:
                    self._flow(fields(data[content : at + size]))
                elif code in (DETACH, END, CLOSE):
                    raise PeerError(f"ended after {self._sent}: {data[at : at + size]!r}")
            at += size
        self._rest = data[at:]

    def _settled(self, first: int, last: int, now: int) -> None:
        self.times.arrived(first, last + 1, now)
        if self._last is None:
            self._done += last - first + 1
            self.finished = self._done >= self._count
        else:
            self.finished = last == self._count - 1

    def _flow(self, values: Sequence[object]) -> None:
        window = number(values, 1)
        if window is not None:
            self._session_limit = (number(values, 0) or 0) + window
        credit = number(values, 6)
        if number(values, 4) is not None and credit is not None:
            self._link_limit = (number(values, 5) or 0) + credit

    def stalled(self) -> str:
        """Say where it stands, for the message about a row that does not go on."""
        return f"{self._sent} sent, {self._done} settled, credit up to {self._link_limit}"


class Receiver:
    """Receives `count` messages, accepts them in ranges, tops the credit up at half."""

    def __init__(
        self, count: int, *, credit: int, stamped: bool, settle_every: int = SETTLE_EVERY
    ) -> None:
        self._count, self._credit, self._stamped = count, credit, stamped
        self._settle_every = min(settle_every, max(1, credit // 2))
        self._incoming = self._delivery_count = 0
        self._first: int | None = None
        self._got = self._accepted = self._granted = 0
        self._rest = b""
        self._out = b""
        self.times = RunTimes()
        self.finished = False

    def began(self, next_outgoing_id: int) -> None:
        """The peer's begin: where its transfers are numbered from."""
        self._incoming = next_outgoing_id

    def attached(self, initial_delivery_count: int) -> None:
        """The peer's attach: where its link counts deliveries from."""
        self._delivery_count = initial_delivery_count

    def start(self, now: int) -> None:
        """Give the first credit."""
        self._grant(now)

    def _grant(self, now: int) -> None:
        self._granted = self._got
        most = min(self._credit, self._count - self._got)
        if most <= 0:
            return
        self._out += frame(
            composite(
                FLOW,
                uint((self._incoming + self._got) & 0xFFFFFFFF),
                uint(WINDOW),
                uint(0),
                uint(WINDOW),
                uint(0),
                uint((self._delivery_count + self._got) & 0xFFFFFFFF),
                uint(most),
            )
        )
        self.times.add(self._got + most, now)

    def produce(self, now: int) -> bytes:
        """Return dispositions and flows to write."""
        out, self._out = self._out, b""
        return out

    def feed(self, data: bytes, now: int) -> None:
        """Count what arrived; raises PeerError when the peer ends the link."""
        data = self._rest + data
        at, end = 0, len(data)
        before = self._got
        last = 0
        while end - at >= 8:
            size = _UINT32.unpack_from(data, at)[0]
            if end - at < size:
                break
            content = at + 4 * data[at + 4]
            if data[content : content + 3] == _TRANSFER:
                if self._first is None:
                    self._first = number(fields(data[content : at + size]), 1) or 0
                run = same_frames(data, at, size)
                self._got += run
                at += run * size
                last = at
                continue
            if at + size - content >= 3 and data[content + 2] in (DETACH, END, CLOSE):
                raise PeerError(f"ended after {self._got}: {data[at : at + size]!r}")
            at += size
        self._rest = data[at:]
        if self._got > before:
            self._arrived(before, data[last - STAMP_BYTES : last], now)

    def _arrived(self, before: int, sent: bytes, now: int) -> None:
        if self._stamped:
            self.times.samples.append((now - int(sent, 16), self._got - before))
        else:
            self.times.arrived(before, self._got, now)
        self.finished = self._got >= self._count
        open_now = self._got - self._accepted
        if self.finished or open_now >= self._settle_every:
            base = self._first or 0
            self._out += frame(
                composite(
                    DISPOSITION,
                    boolean(value=True),
                    uint((base + self._accepted) & 0xFFFFFFFF),
                    uint((base + self._got - 1) & 0xFFFFFFFF),
                    boolean(value=True),
                    _ACCEPTED + b"\x45",
                )
            )
            self._accepted = self._got
        if self._got - self._granted >= max(1, self._credit // 2):
            self._grant(now)

    def stalled(self) -> str:
        """Say where it stands, for the message about a row that does not go on."""
        return f"{self._got} of {self._count} received"


#: Columns of a frame that are equal in frames of one length and kind: size, offset, type, transfer.
_COLUMNS: Final = (3, 2, 1, 0, 4, 5, 8, 9, 10)
#: Looked at in one go: a stray frame spoils no more than this many.
_LOOK_AHEAD: Final = 64


def same_frames(data: bytes, at: int, size: int) -> int:
    """Return how many whole transfer frames of `size` bytes lie one after the other from `at` on.

    HOT: looks at columns through strided slices, so that a run costs nine slices and no loop. When
    the columns differ anywhere, the answer is 1 and the caller goes frame by frame.
    """
    run = min((len(data) - at) // size, _LOOK_AHEAD)
    if run < 2:
        return 1
    end = at + run * size
    for column in _COLUMNS:
        values = data[at + column : end : size]
        if values.count(values[:1]) != run:
            return 1
    return run
