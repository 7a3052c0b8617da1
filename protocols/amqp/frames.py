"""Frames: heads, templates of what is sent often, shapes that read transfers without decoding.

    size u32 | doff u8 | type u8 | channel u16 | (doff - 2) * 4 bytes ignored | performative |
    payload

A *shape* is learned from a transfer that the general codec has read: all its bytes up to the
message's body are constant for that sender, but for frame size, delivery-id, tag, and sizes inside.
One `unpack_from` and a few compares then tell that the next transfer has the same meaning, and
where its body begins. What does not match goes the general way.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from gateway.model.message import DURABLE
from gateway.model.sections import header_facts
from protocols.amqp.performatives import Composite, Transfer, encode_performative

AMQP_FRAME: Final = 0
SASL_FRAME: Final = 1
HEAD_BYTES: Final = 8
EMPTY_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"
_HEAD = struct.Struct(">IBBH")
_ACCEPTED: Final = b"\x41\x00\x53\x24\x45"


def frame(
    performative: Composite, channel: int = 0, kind: int = AMQP_FRAME, payload: bytes = b""
) -> bytes:
    """Return a whole frame."""
    body = encode_performative(performative)
    return _HEAD.pack(HEAD_BYTES + len(body) + len(payload), 2, kind, channel) + body + payload


def accepted_range(channel: int, first: int, last: int) -> bytes:
    """Return a disposition: deliveries first..last are accepted and settled [AMQP 2.7.6]."""
    return (
        b"\x00\x00\x00\x1e\x02\x00"
        + channel.to_bytes(2, "big")
        + b"\x00\x53\x15\xc0\x11\x05\x41\x70"
        + first.to_bytes(4, "big")
        + b"\x70"
        + last.to_bytes(4, "big")
        + _ACCEPTED
    )


class Shape:
    """How one sender writes transfers on one link; see the module text."""

    __slots__ = (
        "body",
        "channel",
        "constants",
        "count",
        "flags",
        "handle",
        "scan",
        "settled",
        "ttl_ms",
        "unpack",
    )

    def __init__(self, channel: int, handle: int, *, settled: bool) -> None:
        self.channel = channel
        self.handle = handle
        self.settled = settled
        self.unpack: Callable[[bytes, int], tuple[Any, ...]]
        self.constants: tuple[bytes, bytes, bytes, bytes] = (b"", b"", b"", b"")
        self.body = 0  # where the message begins in the frame
        self.count = 0  # bytes of a frame that unpack reads
        self.flags = 0
        self.ttl_ms = 0
        self.scan = False  # the message has sections that must be looked into, one by one

    def same(self, other: Shape) -> bool:
        """Return whether both match the same transfers."""
        return (
            self.constants == other.constants
            and self.body == other.body
            and self.count == other.count
        )


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
    shape.body = payload - offset
    shape.flags = facts.priority | (DURABLE if facts.durable else 0)
    shape.ttl_ms = facts.ttl_ms or 0
    shape.scan = scan
    return shape


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
