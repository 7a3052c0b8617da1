"""Shapes: transfers read without decoding.

A *shape* is learned from a transfer that the general codec has read: all its bytes up to the
message's body are constant for that sender, but for frame size, delivery-id, tag, and sizes inside.
One `unpack_from` and a few compares then tell that the next transfer has the same meaning, and
where its body begins. What does not match goes the general way.

Several shapes of one link (durable and not, with and without ttl or properties) are a *family*.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from gateway.model.amqp_types import DecodeError
from gateway.model.message import DURABLE
from gateway.model.sections import header_facts
from protocols.amqp.performatives import Transfer

#: Shapes that a connection remembers.
SHAPES_MAX: Final = 16


class Shape:
    """How one sender writes transfers on one link; see the module text."""

    __slots__ = (
        "body",
        "channel",
        "constants",
        "count",
        "flags",
        "handle",
        "parts",
        "properties",
        "rest",
        "scan",
        "settled",
        "size_at",
        "ttl_ms",
        "unpack",
    )

    def __init__(self, channel: int, handle: int, *, settled: bool) -> None:
        self.channel = channel
        self.handle = handle
        self.settled = settled
        self.unpack: Callable[[bytes, int], tuple[Any, ...]]
        self.constants: tuple[bytes, bytes, bytes, bytes] = (b"", b"", b"", b"")
        self.rest = 0  # where what follows the tag begins in the frame
        self.body = 0  # where the message begins in the frame
        self.count = 0  # bytes of a frame that unpack reads
        #: what the hot loop has at hand: unpack, count, body and the constants
        self.parts: tuple[Any, ...] = ()
        self.flags = 0
        self.ttl_ms = 0
        self.properties = False  # there may be application-properties
        self.size_at = 0  # in a message: their size, where they come next and it is one byte
        self.scan = False  # the message has sections that must be looked into, one by one

    def resembles(self, data: bytes, at: int, end: int) -> bool:
        """Return whether the frame at `at` has the constants of this shape."""
        if end - at < self.count:
            return False
        fields = self.unpack(data, at)
        constants = self.constants
        return bool(
            fields[1] == constants[0]
            and fields[3] == constants[1]
            and fields[4] == constants[2]
            and (not constants[3] or fields[5] == constants[3])
        )

    def fits(self, data: bytes, at: int, end: int, *, next_id: int) -> bool:
        """Return whether the frame at `at` is the transfer `next_id` of this shape."""
        if not self.resembles(data, at, end):
            return False
        fields = self.unpack(data, at)
        return bool(fields[2] == next_id and self.count <= fields[0] <= end - at)

    def same(self, other: Shape) -> bool:
        """Return whether both match the same transfers."""
        return (
            self.constants == other.constants
            and self.body == other.body
            and self.count == other.count
        )


class Family:
    """Shapes of one link, told apart by the bytes behind the tag.

    `known` has the shape by what is at `start:stop` of a frame, where one alone has these bytes and
    the newest way to write numbers is used; `find` knows all.
    """

    __slots__ = ("_shapes", "known", "start", "stop")

    def __init__(self, shapes: Sequence[Shape]) -> None:
        """Take the shapes, the newest first."""
        self._shapes = shapes
        alike = [shape for shape in shapes if shape.rest == shapes[0].rest]
        self.start = shapes[0].rest
        length = min(len(shape.constants[2]) for shape in alike)
        self.stop = self.start + length
        keys = [shape.constants[2][:length] for shape in alike]
        self.known: dict[bytes, Shape] = {
            key: shape for key, shape in zip(keys, alike, strict=True) if keys.count(key) == 1
        }

    def find(self, data: bytes, at: int, end: int) -> Shape | None:
        """Return the shape that has all constants of the frame at `at`."""
        for shape in self._shapes:
            if shape.resembles(data, at, end):
                return shape
        return None


class Shapes:
    """The shapes that a connection knows; the one that came last is the first."""

    __slots__ = ("_families", "known")

    def __init__(self) -> None:
        self.known: list[Shape] = []
        self._families: dict[tuple[int, int, bool], Family] = {}

    def add(self, shape: Shape) -> None:
        """Remember a shape; one that is known comes here as well, if its transfer broke a rule."""
        self.known = [known for known in self.known if not shape.same(known)]
        self.known.insert(0, shape)
        del self.known[SHAPES_MAX:]
        self._families.clear()

    def learn(self, data: bytes, at: int, transfer: Transfer, payload: int, end: int) -> None:
        """Remember the shape of a transfer that the general codec has read, if it can repeat."""
        try:
            shape = learn(data, at, transfer, payload, end)
        except DecodeError:
            return
        if shape is not None:
            self.add(shape)

    def promote(self, index: int) -> None:
        """Put a shape first."""
        self.known.insert(0, self.known.pop(index))

    def family(self, shape: Shape) -> Family:
        """Return the shapes that may follow in one run with `shape`, itself among them."""
        key = (shape.channel, shape.handle, shape.settled)
        family = self._families.get(key)
        if family is None:
            alike = [s for s in self.known if (s.channel, s.handle, s.settled) == key]
            family = self._families[key] = Family(alike)
        return family

    def clear(self) -> None:
        """Links changed: what was learned of them holds no more."""
        self.known.clear()
        self._families.clear()


def learn(buf: bytes, offset: int, transfer: Transfer, payload: int, end: int) -> Shape | None:
    """Return the shape of a transfer frame, or None when it is not of a repeatable kind.

    Args:
        buf: the received bytes.
        offset: of the frame.
        transfer: the performative as the general codec read it.
        payload: offset of the message.
        end: of the frame.
    """
    at = offset + 8
    if buf[offset + 4] != 2 or buf[at : at + 3] != b"\x00\x53\x14" or transfer.delivery_tag is None:
        return None
    if transfer.more or transfer.aborted or transfer.resume or transfer.state is not None:
        return None
    if transfer.message_format:
        return None
    constructor = buf[at + 3]
    at += 6 if constructor == 0xC0 else 12 if constructor == 0xD0 else 0
    at += {0x43: 1, 0x52: 2, 0x70: 5}.get(buf[at], 100)  # handle
    wide = buf[at] == 0x70 if at < payload else False
    if at >= payload or buf[at] not in (0x52, 0x70):
        return None
    number = at + 1
    tag = number + (4 if wide else 1)
    if buf[tag] != 0xA0:
        return None
    rest = tag + 2 + buf[tag + 1]
    if rest > payload:
        return None
    facts = header_facts(buf[payload:end])
    after = payload + facts.end
    tail, scan, count_at = _after_header(buf, after, end)
    shape = Shape(
        int.from_bytes(buf[offset + 6 : offset + 8], "big"),
        transfer.handle,
        settled=bool(transfer.settled),
    )
    layout = f">I{number - offset - 4}s{'I' if wide else 'B'}2s{rest - tag - 2}x{tail - rest}s"
    if count_at:
        layout += f"{count_at - tail}x1s"
    packed = struct.Struct(layout)
    shape.unpack = packed.unpack_from
    shape.count = packed.size
    shape.constants = (
        buf[offset + 4 : number],
        buf[tag : tag + 2],
        buf[rest:tail],
        buf[count_at : count_at + 1] if count_at else b"",
    )
    shape.rest = rest - offset
    shape.body = payload - offset
    shape.parts = (shape.unpack, shape.count, shape.body, *shape.constants)
    shape.flags = facts.priority | (DURABLE if facts.durable else 0)
    shape.ttl_ms = facts.ttl_ms or 0
    shape.scan = scan
    _note_properties(shape, buf[after : after + 4], after - payload, known=tail == after + 3)
    return shape


def _note_properties(shape: Shape, following: bytes, at: int, *, known: bool) -> None:
    """Note whether application-properties may be there: `following` is at `at` of a message."""
    # A body's section right behind the header: nothing else can come.
    shape.properties = not (known and following[2] in (0x75, 0x76, 0x77))
    if known and following[2:] == b"\x74\xc1":
        shape.size_at = at + 4


def _after_header(buf: bytes, at: int, end: int) -> tuple[int, bool, int]:
    """Say what follows the header: (end of the constants, must be scanned, offset of a count).

    Bodies need no look. Properties with at most eight fields have no expiry; their count is checked
    for each message, their size may vary. Annotations have to be looked into.
    """
    if end - at >= 3 and buf[at] == 0 and buf[at + 1] == 0x53:
        code = buf[at + 2]
        if code in (0x74, 0x75, 0x76, 0x77):
            return at + 3, False, 0
        if code == 0x73 and end - at >= 6 and buf[at + 3] == 0xC0 and buf[at + 5] <= 8:
            return at + 4, False, at + 5
        if code == 0x73 and end - at >= 4 and buf[at + 3] == 0x45:
            return at + 4, False, 0
    return at, True, 0
