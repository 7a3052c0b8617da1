"""One section of an AMQP message: its code, where its value starts, and where it ends [AMQP 3.2].

    0x70 header                   list     0x75 data                      binary, one or more
    0x71 delivery-annotations     map      0x76 amqp-sequence             list, one or more
    0x72 message-annotations      map      0x77 amqp-value                any, one
    0x73 properties               list     0x78 footer                    map
    0x74 application-properties   map

Each section is a described value; descriptors may be smallulong, ulong or symbolic. What is here
reads descriptors and outer sizes only, and items of a list one by one; what lies inside is decoded
when somebody asks. A broken message is a `DecodeError`: the caller decides what that means. Knows
no flags of ours and no queue.
"""

from __future__ import annotations

import struct
from typing import Final

from .amqp_decode import decode, skip
from .amqp_values import DecodeError, Symbol, ULong, Value

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

_u32 = struct.Struct(">I").unpack_from

_LIST: Final = frozenset({0x45, 0xC0, 0xD0})
_MAP: Final = frozenset({0xC1, 0xD1})
_BINARY: Final = frozenset({0xA0, 0xB0})
#: Constructors that a section's value may have; absent means any.
_SHAPES: Final[dict[int, frozenset[int]]] = {
    HEADER: _LIST,
    DELIVERY_ANNOTATIONS: _MAP,
    MESSAGE_ANNOTATIONS: _MAP,
    PROPERTIES: _LIST,
    APPLICATION_PROPERTIES: _MAP,
    DATA: _BINARY,
    SEQUENCE: _LIST,
    FOOTER: _MAP,
}
_SYMBOLS: Final[dict[str, int]] = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}


def section_at(body: bytes, pos: int) -> tuple[int, int, int]:
    """Return the code of the section at `pos`, where its value starts, and where it ends.

    Raises DecodeError when it is no section, or its value has the wrong constructor.
    """
    end = len(body)
    if body[pos : pos + 2] == b"\x00\x53" and pos + 3 < end:
        code, at = body[pos + 2], pos + 3
    else:
        code, at = section_code(body, pos)
    if at >= end or not HEADER <= code <= FOOTER:
        raise DecodeError(pos, "no message section")
    constructor = body[at]
    if code != VALUE:
        if constructor not in _SHAPES[code]:
            raise DecodeError(at, f"section {code:#04x} with constructor {constructor:#04x}")
        # The two usual sizes, spelled out: this runs four times for a usual message.
        if constructor & 0x10:
            behind = at + 5 + _u32(body, at + 1)[0] if at + 5 <= end else end + 1
        elif constructor == 0x45:
            behind = at + 1
        else:
            behind = at + 2 + body[at + 1] if at + 2 <= end else end + 1
        if behind > end:
            raise DecodeError(at, f"section {code:#04x} cut short")
        return code, at, behind
    return code, at, skip(body, at, end)


def section_code(body: bytes, pos: int) -> tuple[int, int]:
    """Return the code of the section at `pos`, however it is written, and where its value starts.

    Raises DecodeError.
    """
    if body[pos : pos + 1] != b"\x00":
        raise DecodeError(pos, "no message section")
    descriptor, at = decode(body, pos + 1, len(body), depth_max=0)
    if type(descriptor) is ULong:
        return int(descriptor), at
    if type(descriptor) is Symbol and descriptor in _SYMBOLS:
        return _SYMBOLS[descriptor], at
    raise DecodeError(pos, "no message section")


def whole_value(body: bytes, start: int, end: int) -> Value:
    """Return the value that fills [start, end); raises DecodeError."""
    value, behind = decode(body, start, end)
    if behind != end:
        raise DecodeError(behind, f"{end - behind} bytes left over in a section")
    return value


def list_head(body: bytes, at: int) -> tuple[int, int, int]:
    """Return where the items of the list at `at` start, how many they are, and where they end.

    The list's outer size is known to be right (`section_at`); raises DecodeError for a false count.
    """
    constructor = body[at]
    if constructor == 0x45:
        return at + 1, 0, at + 1
    if constructor in (0xC0, 0xC1):
        start, end = at + 3, at + 2 + body[at + 1]
        count = body[at + 2] if start <= end else -1
    else:
        start, end = at + 9, at + 5 + int(_u32(body, at + 1)[0])
        count = _u32(body, at + 5)[0] if start <= end else -1
    if not 0 <= count <= end - start:
        raise DecodeError(at, "count does not fit the size of its container")
    return start, count, end


def list_item(body: bytes, at: int, index: int) -> Value:
    """Return item `index` of the list at `at`, None behind its end; raises DecodeError."""
    pos, count, end = list_head(body, at)
    if count <= index:
        return None
    for _ in range(index):
        pos = skip(body, pos, end)
    return decode(body, pos, end)[0]
