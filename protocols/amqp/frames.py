"""Frames: heads, and templates of what is sent often.

size u32 | doff u8 | type u8 | channel u16 | (doff - 2) * 4 bytes ignored | performative |
payload
"""

from __future__ import annotations

import struct
from typing import Final

from gateway.model.amqp_types import DecodeError
from protocols.amqp.conditions import DECODE_ERROR, FRAMING_ERROR, ConnectionFaultError
from protocols.amqp.performatives import (
    Composite,
    FieldError,
    decode_performative,
    encode_performative,
)

AMQP_FRAME: Final = 0
SASL_FRAME: Final = 1
HEAD_BYTES: Final = 8
EMPTY_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"
_HEAD = struct.Struct(">IBBH")
_ACCEPTED: Final = b"\x41\x00\x53\x24\x45"
#: Descriptor, list8 of five fields, role receiver; a uint follows.
_DISPOSITION: Final = b"\x00\x53\x15\xc0\x11\x05\x41\x70"
_UINT: Final = 0x70
#: The descriptors of SASL's frames begin here.
_SASL_CODES: Final = 0x40
_ACCEPTED_RANGE: Final = struct.Struct(">IBBH8sIBI5s")


def frame(
    performative: Composite, channel: int = 0, kind: int = AMQP_FRAME, payload: bytes = b""
) -> bytes:
    """Return a whole frame."""
    body = encode_performative(performative)
    return _HEAD.pack(HEAD_BYTES + len(body) + len(payload), 2, kind, channel) + body + payload


def frame_size(data: bytes, at: int, limit: int) -> int:
    """Return the size of the frame at `at` [AMQP 2.3.1]; raises ConnectionFaultError."""
    size = int.from_bytes(data[at : at + 4], "big")
    doff = data[at + 4]
    if size < HEAD_BYTES or doff < 2 or doff * 4 > size:
        raise ConnectionFaultError(
            FRAMING_ERROR,
            f"A frame of {size} bytes with a data offset of {doff} words cannot be.",
        )
    if size > limit:
        raise ConnectionFaultError(
            FRAMING_ERROR, f"A frame of {size} bytes came; the max-frame-size here is {limit}."
        )
    return size


def decode_frame(data: bytes, at: int, end: int) -> tuple[Composite, int]:
    """Return a frame's performative, and where its payload begins; raises ConnectionFaultError."""
    if data[at + 5] != AMQP_FRAME:
        raise ConnectionFaultError(
            FRAMING_ERROR,
            f"A frame of type {data[at + 5]} came; only type 0 is spoken after login.",
        )
    channel = int.from_bytes(data[at + 6 : at + 8], "big")
    try:
        performative, payload = decode_performative(data, at + 4 * data[at + 4], end)
    except DecodeError as error:
        raise ConnectionFaultError(
            DECODE_ERROR, f"A frame on channel {channel} cannot be decoded: {error}."
        ) from error
    except FieldError as error:
        raise ConnectionFaultError(
            error.condition, f"A frame on channel {channel}: {error}."
        ) from error
    if performative.layout.code >= _SASL_CODES:
        raise ConnectionFaultError(
            FRAMING_ERROR,
            f"A {performative.layout.name} came in an AMQP frame; SASL has frames of type 1, "
            "and is over.",
        )
    return performative, payload


def accepted_range(channel: int, first: int, last: int) -> bytes:
    """Return a disposition: deliveries first..last are accepted and settled [AMQP 2.7.6]."""
    return _ACCEPTED_RANGE.pack(
        _ACCEPTED_RANGE.size, 2, AMQP_FRAME, channel, _DISPOSITION, first, _UINT, last, _ACCEPTED
    )
