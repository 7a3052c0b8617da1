r"""STOMP 1.2 for load: frames encoded once, receipts and stamps patched in, answers counted by NUL.

Sans-IO: bytes in by `feed`, bytes out by `produce`; the loop that owns the sockets is
`drive`. Bodies hold no NUL, so each NUL that comes back ends one frame. The frame that a
sender repeats:

    SEND\ndestination:D\npersistent:true\n[expires,
    headers]content-length:N\n[receipt:NNNNNNNNNN\n]\nBODY\0
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gateway.bench.amqp import RUN, PeerError
from gateway.bench.latency import RunTimes
from gateway.bench.shapes import STAMP_BYTES, Shape, body, stamp
from gateway.bench.websocket import KEYS, TEXT, framed, masked

NUL: Final = b"\x00"
_RECEIPT_DIGITS: Final = 10
#: With acknowledgements by `client`, one answers this many.
SETTLE_EVERY: Final = 100


def connect(user: str, password: str) -> bytes:
    """Return the CONNECT frame: version 1.2, no heart-beats [STOMP 1.2 CONNECT]."""
    login = f"login:{user}\npasscode:{password}\n" if user else ""
    text = f"CONNECT\naccept-version:1.2\nhost:localhost\nheart-beat:0,0\n{login}\n"
    return text.encode() + NUL


def subscribe(destination: str, ack: str) -> bytes:
    """Return the SUBSCRIBE frame; what is under way is not limited, the broker sets the pace."""
    return (
        f"SUBSCRIBE\nid:0\ndestination:{destination}\nack:{ack}\nconsumer-window-size:-1\n"
        "receipt:subscribed\n\n"
    ).encode() + NUL


DISCONNECT: Final = b"DISCONNECT\nreceipt:bye\n\n\x00"


def send(destination: str, shape: Shape, *, receipt: bool, expires: int) -> tuple[bytes, int]:
    """Return a SEND frame, and where the digits of its receipt start (0 without one)."""
    head = f"SEND\ndestination:{destination}\npersistent:{'true' if shape.durable else 'false'}\n"
    if shape.ttl and expires:
        head += f"expires:{expires}\n"
    head += "".join(f"{key}:{_escaped(value)}\n" for key, value in shape.properties)
    head += f"content-length:{shape.size}\n"
    digits = 0
    if receipt:
        head += "receipt:"
        digits = len(head)
        head += "0" * _RECEIPT_DIGITS + "\n"
    return head.encode() + b"\n" + body(shape) + NUL, digits


class Frames:
    """A run of SEND frames in one buffer; receipts and stamps are patched in before each write."""

    def __init__(
        self,
        destination: str,
        shapes: Sequence[Shape],
        *,
        receipts: bool,
        expires: int = 0,
        websocket: bool = False,
    ) -> None:
        """Encode each shape in turn until the buffer holds RUN frames.

        With `websocket` each is a message of text.
        """
        self._buffer = bytearray()
        self._digits: list[int] = []
        self._ends: list[int] = [0]
        self._starts: list[int] = []
        self._receipts = receipts
        self._masked = websocket
        rounds = max(1, RUN // len(shapes))
        for shape in list(shapes) * rounds:
            raw, digits = send(destination, shape, receipt=receipts, expires=expires)
            start = len(self._buffer)
            if websocket:
                raw, inside = framed(raw, TEXT)
                start += inside
            self._starts.append(start)
            self._digits.append(start + digits)
            self._buffer += raw
            self._ends.append(len(self._buffer))
        self._place = 0
        self._view = memoryview(self._buffer)

    def take(self, first: int, most: int, sent: bytes | None) -> tuple[memoryview, int]:
        """Number up to `most` frames from `first` on; returns their bytes and how many they are.

        The bytes are good until the next call. `sent` is the stamp for their bodies, if any.
        """
        place, buffer = self._place, self._buffer
        count = min(most, len(self._digits) - place)
        if self._masked:
            self._patch_masked(first, count, sent)
        else:
            if self._receipts:
                for number, at in enumerate(self._digits[place : place + count], first):
                    buffer[at : at + _RECEIPT_DIGITS] = b"%010d" % number
            if sent is not None:
                for end in self._ends[place + 1 : place + count + 1]:
                    buffer[end - 1 - STAMP_BYTES : end - 1] = sent
        view = self._view[self._ends[place] : self._ends[place + count]]
        self._place = (place + count) % len(self._digits)
        return view, count

    def _patch_masked(self, first: int, count: int, sent: bytes | None) -> None:
        """Do the same where what is patched in has to be masked as its place is."""
        buffer = self._buffer
        for place in range(self._place, self._place + count):
            start = self._starts[place]
            if self._receipts:
                at = self._digits[place]
                text = b"%010d" % (first + place - self._place)
                buffer[at : at + _RECEIPT_DIGITS] = masked(text, KEYS[(at - start) % 4])
            if sent is not None:
                at = self._ends[place + 1] - 1 - STAMP_BYTES
                buffer[at : at + STAMP_BYTES] = masked(sent, KEYS[(at - start) % 4])


class Sender:
    """Sends `count` messages, at most `window` of them without their receipt.

    Without receipts only the last message asks for one: the broker has read all when it comes.
    """

    def __init__(
        self, frames: Frames, last: Frames | None, count: int, *, window: int, stamped: bool
    ) -> None:
        """Make a sender; `last` is given when only the last message asks for a receipt."""
        self._frames, self._last = frames, last
        self._count, self._window, self._stamped = count, window, stamped
        self._sent = self._done = 0
        self._tail = b""
        self.times = RunTimes()
        self.finished = False

    def produce(self, now: int) -> memoryview | bytes:
        """Return the next bytes to write; none while the window or the count is used up."""
        sent = self._sent
        text = stamp(now) if self._stamped else None
        if self._last is None:
            room = min(self._count, self._done + self._window)
        elif sent < self._count - 1:
            room = self._count - 1
        elif sent < self._count:
            view, taken = self._last.take(sent, 1, text)
            self._sent = sent + taken
            return view
        else:
            return b""
        if room <= sent:
            return b""
        view, taken = self._frames.take(sent, min(room - sent, RUN), text)
        self._sent = sent + taken
        self.times.add(self._sent, now)
        return view

    def feed(self, data: bytes, now: int) -> None:
        """Count receipts; raises PeerError on an ERROR frame."""
        if b"ERROR" in self._tail + data:
            raise PeerError(f"refused after {self._sent}: {_text(self._tail + data)}")
        self._tail = data[-8:]
        answered = data.count(NUL)
        if not answered:
            return
        if self._last is not None:
            self.finished = True
            return
        self.times.arrived(self._done, self._done + answered, now)
        self._done += answered
        self.finished = self._done >= self._count

    def stalled(self) -> str:
        """Say where it stands, for the message about a row that does not go on."""
        return f"{self._sent} sent, {self._done} receipts"


class Receiver:
    """Receives `count` messages; with `ack` "client" one ACK answers `settle_every` of them."""

    def __init__(
        self, count: int, *, ack: str, stamped: bool, settle_every: int = SETTLE_EVERY
    ) -> None:
        self._count, self._ack, self._stamped = count, ack, stamped
        self._settle_every = settle_every
        self._got = self._acked = 0
        self._rest = b""
        self._out = b""
        self._subscribed = False
        self.times = RunTimes()
        self.finished = False

    def produce(self, now: int) -> bytes:
        """Return ACK frames to write."""
        out, self._out = self._out, b""
        return out

    def feed(self, data: bytes, now: int) -> None:
        """Count what arrived; raises PeerError on an ERROR frame."""
        data = self._rest + data
        end = data.rfind(NUL) + 1
        self._rest = data[end:]
        if not end:
            return
        start = data.rfind(NUL, 0, end - 1) + 1
        if any(data[at : at + 16].lstrip(b"\r\n").startswith(b"ERROR") for at in (0, start)):
            raise PeerError(f"refused after {self._got}: {_text(data)}")
        count = data.count(NUL, 0, end)
        if not self._subscribed and (at := data.find(b"receipt-id:subscribed")) >= 0:
            self._subscribed = True
            count -= 1
            if data.find(NUL, at) == end - 1:  # the receipt came last: the message is before it
                end, start = start, data.rfind(NUL, 0, max(start - 1, 0)) + 1
        if count <= 0:
            return
        self._got += count
        self.finished = self._got >= self._count
        if self._stamped:
            sent = int(data[end - 1 - STAMP_BYTES : end - 1], 16)
            self.times.samples.append((now - sent, count))
        due = self.finished or self._got - self._acked >= self._settle_every
        if self._ack == "client" and due:
            self._acked = self._got
            self._out += b"ACK\nid:" + _ack_id(data[start:end]) + b"\n\n\x00"

    def stalled(self) -> str:
        """Say where it stands, for the message about a row that does not go on."""
        return f"{self._got} of {self._count} received"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(":", "\\c")


def _ack_id(raw: bytes) -> bytes:
    found = re.search(rb"^ack:(.*)$", raw, re.MULTILINE)
    if found is None:
        raise PeerError(f"a message without an ack header: {_text(raw)}")
    return found.group(1)


def _text(raw: bytes) -> str:
    return raw[:400].decode(errors="replace").strip("\x00\n")
