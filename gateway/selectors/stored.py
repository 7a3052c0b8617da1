"""Single fields out of stored messages, without decoding the rest.

AMQP: sections are walked by their outer sizes to the one that is wanted [AMQP 3.2], then its
values by theirs; only what was asked for is decoded. STOMP: a header is one `find`, since stored
lines hold no raw LF (`gateway.model.stomp_form`).

Of a name that comes twice the first counts. A message whose bytes are broken has the values in
front of the break and NULL behind it; nothing here raises, whatever the bytes are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

from gateway.model.amqp_types import AmqpDecimal, DecodeError, Value, decode, skip
from gateway.model.plain_text import text as plain_text
from gateway.model.section_scan import list_head, section_at
from gateway.model.sections import HEADER, PROPERTIES
from gateway.model.stomp_form import escape, unescape
from gateway.selectors.values import OPAQUE, Scalar

_u16 = struct.Struct(">H").unpack_from
_u32 = struct.Struct(">I").unpack_from
_u64 = struct.Struct(">Q").unpack_from
_i8 = struct.Struct(">b").unpack_from
_i16 = struct.Struct(">h").unpack_from
_i32 = struct.Struct(">i").unpack_from
_i64 = struct.Struct(">q").unpack_from
_f32 = struct.Struct(">f").unpack_from
_f64 = struct.Struct(">d").unpack_from

#: What broken bytes raise here: an index or unpack behind the end, DecodeError.
_BROKEN: Final = (IndexError, ValueError, struct.error)

#: constructor -> (bytes of the value, reader); all others are rare, or are no value of a selector.
_FIXED: Final[dict[int, tuple[int, Callable[[bytes, int], Scalar]]]] = {
    0x40: (0, lambda body, at: None),
    0x41: (0, lambda body, at: True),
    0x42: (0, lambda body, at: False),
    0x43: (0, lambda body, at: 0),
    0x44: (0, lambda body, at: 0),
    0x50: (1, lambda body, at: body[at]),
    0x51: (1, lambda body, at: _i8(body, at)[0]),
    0x52: (1, lambda body, at: body[at]),
    0x53: (1, lambda body, at: body[at]),
    0x54: (1, lambda body, at: _i8(body, at)[0]),
    0x55: (1, lambda body, at: _i8(body, at)[0]),
    0x56: (1, lambda body, at: body[at] == 1 if body[at] < 2 else OPAQUE),
    0x60: (2, lambda body, at: _u16(body, at)[0]),
    0x61: (2, lambda body, at: _i16(body, at)[0]),
    0x70: (4, lambda body, at: _u32(body, at)[0]),
    0x71: (4, lambda body, at: _i32(body, at)[0]),
    0x72: (4, lambda body, at: _f32(body, at)[0]),
    0x80: (8, lambda body, at: _u64(body, at)[0]),
    0x81: (8, lambda body, at: _i64(body, at)[0]),
    0x82: (8, lambda body, at: _f64(body, at)[0]),
    0x83: (8, lambda body, at: _i64(body, at)[0]),
}
_LISTS: Final = (HEADER, PROPERTIES)
#: Sizes of values with their constructor; -1: one byte of size follows; -4: four; 0: see `skip`.
_SIZES: Final = tuple(
    1 + _FIXED[code][0]
    if code in _FIXED
    else {0xA0: -1, 0xA1: -1, 0xA3: -1, 0xC0: -1, 0xC1: -1, 0xE0: -1}.get(
        code, -4 if code in (0xB0, 0xB1, 0xB3, 0xD0, 0xD1, 0xF0) else 0
    )
    for code in range(256)
)


#: Constructors of keys that have four bytes of size: string and symbol.
_LONG_KEYS: Final = (0xB1, 0xB3)


def widened(value: Value) -> Scalar:
    """Return a decoded AMQP value as selectors see it; OPAQUE for what is no value of theirs.

    Integers and timestamps (ms) are exact, decimals approximate, symbols and UUIDs texts.
    """
    match value:
        case None | bool():
            return value
        case int():
            return int(value)
        case float():
            return float(value)
        case str() | UUID():
            return str(value)
        case AmqpDecimal():
            return float(plain_text(value))
        case _:
            return OPAQUE


# ---- AMQP


def _section(body: bytes, wanted: int) -> int:
    """Return where the value of a section starts; 0 when the message has none."""
    at, end = 0, len(body)
    while at < end:
        code = body[at + 2]
        kind = body[at + 3]
        if body[at] or body[at + 1] != 0x53 or code < HEADER or kind & 0xEE != 0xC0:
            # A long descriptor, list0, a body, or nothing that belongs here.
            code, start, behind = section_at(body, at)
        else:
            start = at + 3
            behind = start + (5 + _u32(body, at + 4)[0] if kind & 0x10 else 2 + body[at + 4])
            if behind > end or kind & 1 == (code in _LISTS):
                raise DecodeError(at, "a section is cut short, or a list where a map belongs")
        if code >= wanted:
            return start if code == wanted else 0
        at = behind
    return 0


def _map_head(body: bytes, section: int) -> tuple[int, int, int]:
    """Return where the pairs of a section start, how many they are, where they end."""
    at = _section(body, section)
    if not at:
        return 0, 0, 0
    if body[at] == 0xC1:
        return at + 3, body[at + 2] >> 1, at + 2 + body[at + 1]
    start, count, end = list_head(body, at)
    return start, count >> 1, end


def _behind(body: bytes, at: int, end: int) -> int:
    """Return where the value at `at` ends; raises what `_BROKEN` lists."""
    size = _SIZES[body[at]]
    if size > 0:
        at += size
    elif size == -1:
        at += 2 + body[at + 1]
    elif size == -4:
        at += 5 + _u32(body, at + 1)[0]
    else:
        return skip(body, at, end)
    if at > end:
        raise DecodeError(at, "a value does not fit its container")
    return at


def _scalar(body: bytes, at: int, behind: int) -> Scalar:
    """Return the value that lies from `at` to `behind`."""
    code = body[at]
    if code in (0xA1, 0xA3):
        return body[at + 2 : behind].decode("utf-8", "replace")
    fixed = _FIXED.get(code)
    if fixed is not None:
        return fixed[1](body, at + 1)
    if code in (0xB1, 0xB3):
        return body[at + 5 : behind].decode("utf-8", "replace")
    try:
        return widened(decode(body, at, behind)[0])
    except DecodeError:
        return OPAQUE


def map_values(body: bytes, section: int, wanted: Mapping[bytes, str]) -> dict[str, Scalar]:
    """Return values of a section that is a map, by the names that `wanted` gives their keys.

    `wanted` has keys in UTF-8; they may be strings or symbols. Names that are not there are left
    out. Steps over keys and values are written out: calls would double what this costs.
    """
    found: dict[str, Scalar] = {}
    try:
        at, count, end = _map_head(body, section)
        sizes, missing = _SIZES, len(wanted)
        for _ in range(count):
            code = body[at]
            if code in (0xA1, 0xA3):
                behind = at + 2 + body[at + 1]
                name = wanted.get(body[at + 2 : behind])
            else:
                behind = _behind(body, at, end)
                name = wanted.get(body[at + 5 : behind]) if code in _LONG_KEYS else None
            at = behind
            size = sizes[body[at]]
            if size > 0:
                behind = at + size
            elif size == -1:
                behind = at + 2 + body[at + 1]
            else:
                behind = _behind(body, at, end)
            if behind > end:
                break
            if name is not None and name not in found:
                found[name] = _scalar(body, at, behind)
                missing -= 1
                if not missing:
                    break
            at = behind
    except _BROKEN:
        pass
    return found


def map_value(body: bytes, section: int, key: bytes) -> Scalar:
    """Return one value of a section that is a map; None when it is not there.

    The same as `map_values` with one wanted, without the dictionaries.
    """
    try:
        at, count, end = _map_head(body, section)
        sizes = _SIZES
        for _ in range(count):
            code = body[at]
            if code in (0xA1, 0xA3):
                behind = at + 2 + body[at + 1]
                found = body[at + 2 : behind] == key
            else:
                behind = _behind(body, at, end)
                found = code in _LONG_KEYS and body[at + 5 : behind] == key
            at = behind
            size = sizes[body[at]]
            if size > 0:
                behind = at + size
            elif size == -1:
                behind = at + 2 + body[at + 1]
            else:
                behind = _behind(body, at, end)
            if behind > end:
                return None
            if found:
                return _scalar(body, at, behind)
            at = behind
    except _BROKEN:
        pass
    return None


def property_value(body: bytes, index: int) -> Value:
    """Return field `index` of the properties section, decoded [AMQP 3.2.4]; None when absent."""
    try:
        at = _section(body, PROPERTIES)
        if not at:
            return None
        at, count, end = list_head(body, at)
        if index >= count:
            return None
        for _ in range(index):
            at = _behind(body, at, end)
        if body[at] == 0xA1:
            return body[at + 2 : _behind(body, at, end)].decode("utf-8", "replace")
        return decode(body, at, end)[0]
    except _BROKEN:
        return None


# ---- STOMP


def header_mark(name: str) -> bytes:
    """Return what a stored line of this header starts with, behind the LF of the line before."""
    return f"\n{escape(name)}:".encode("utf-8", "replace")


def header(body: bytes, mark: bytes) -> str | None:
    """Return the value of a stored STOMP header; `mark` comes from `header_mark`."""
    split = body.find(b"\n\n")
    if split < 0:
        return None
    at = body.find(mark, 0, split)
    if at >= 0:
        start = at + len(mark)
    elif body.startswith(mark[1:]):
        start = len(mark) - 1
    else:
        return None
    value = body[start : body.find(b"\n", start)].decode("utf-8", "replace")
    if "\\" in value:
        try:
            return unescape(value)
        except ValueError:
            return value
    return value
