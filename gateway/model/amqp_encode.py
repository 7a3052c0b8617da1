"""Encode AMQP 1.0 values, each in its shortest encoding; layouts: see `amqp_decode` [AMQP 1.6].

Iterative like the decoder: containers under construction lie on a list. Arrays keep the
constructor that they name, so a decoded array encodes to the same bytes. Raises `EncodeError` for
values that have no encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final
from uuid import UUID

from gateway.model.amqp_values import (
    AmqpArray,
    AmqpDecimal,
    AmqpMap,
    Byte,
    Char,
    Described,
    EncodeError,
    Float32,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
)

#: What the decoder gives nests no deeper than 32; twice that leaves room to wrap it.
DEPTH_MAX: Final = 64

_u16 = struct.Struct(">H").pack
_u32 = struct.Struct(">I").pack
_u64 = struct.Struct(">Q").pack
_i8 = struct.Struct(">b").pack
_i16 = struct.Struct(">h").pack
_i32 = struct.Struct(">i").pack
_i64 = struct.Struct(">q").pack
_f32 = struct.Struct(">f").pack
_f64 = struct.Struct(">d").pack


def _uint(value: int) -> bytes:
    if 0 < value < 256:
        return b"\x52" + bytes((value,))
    return b"\x43" if value == 0 else b"\x70" + _u32(value)


def _ulong(value: int) -> bytes:
    if 0 < value < 256:
        return b"\x53" + bytes((value,))
    return b"\x44" if value == 0 else b"\x80" + _u64(value)


def _int(value: int) -> bytes:
    return b"\x54" + _i8(value) if -128 <= value < 128 else b"\x71" + _i32(value)


def _long(value: int) -> bytes:
    return b"\x55" + _i8(value) if -128 <= value < 128 else b"\x81" + _i64(value)


def _sized(code: int, raw: bytes) -> bytes:
    """Return constructor, size and bytes; `code` is the form with a one-byte size."""
    if len(raw) < 256:
        return bytes((code, len(raw))) + raw
    return bytes((code | 0x10,)) + _u32(len(raw)) + raw


def _char(value: str) -> bytes:
    if len(value) != 1 or 0xD800 <= ord(value) <= 0xDFFF:
        raise EncodeError(f"char {value!r} is not one Unicode scalar value")
    return _u32(ord(value))


def _decimal(value: AmqpDecimal) -> bytes:
    code = {4: 0x74, 8: 0x84, 16: 0x94}.get(len(value.raw))
    if code is None:
        raise EncodeError(f"decimal of {len(value.raw)} bytes: only 4, 8 and 16 exist")
    return bytes((code,)) + value.raw


_SCALARS: Final[dict[type, Callable[[Value], bytes]]] = {
    type(None): lambda value: b"\x40",
    bool: lambda value: b"\x41" if value else b"\x42",
    int: _long,
    float: lambda value: b"\x82" + _f64(value),
    str: lambda value: _sized(0xA1, value.encode("utf-8")),
    bytes: lambda value: _sized(0xA0, value),
    UUID: lambda value: b"\x98" + value.bytes,
    UByte: lambda value: b"\x50" + bytes((value,)),
    UShort: lambda value: b"\x60" + _u16(value),
    UInt: _uint,
    ULong: _ulong,
    Byte: lambda value: b"\x51" + _i8(value),
    Short: lambda value: b"\x61" + _i16(value),
    Int: _int,
    Timestamp: lambda value: b"\x83" + _i64(value),
    Float32: lambda value: b"\x72" + _f32(value),
    Char: lambda value: b"\x73" + _char(value),
    Symbol: lambda value: _sized(0xA3, value.encode("ascii")),
    AmqpDecimal: _decimal,
}


def _only(expected: Value) -> Callable[[Value], bytes]:
    def empty(value: Value) -> bytes:
        if value != expected:
            raise EncodeError(f"{value!r} in an array whose items are all {expected!r}")
        return b""

    return empty


def _sized8(raw: bytes) -> bytes:
    return bytes((len(raw),)) + raw


def _sized32(raw: bytes) -> bytes:
    return _u32(len(raw)) + raw


def _decimal_item(width: int) -> Callable[[Value], bytes]:
    def item(value: AmqpDecimal) -> bytes:
        if len(value.raw) != width:
            raise EncodeError(f"decimal of {len(value.raw)} bytes in an array of {width}-byte ones")
        return value.raw

    return item


#: Array items by constructor: the bytes behind it.
_ITEMS: Final[dict[int, Callable[[Value], bytes]]] = {
    0x40: _only(None),
    0x41: _only(True),
    0x42: _only(False),
    0x43: _only(0),
    0x44: _only(0),
    0x45: _only([]),
    0x50: lambda value: bytes((value,)),
    0x51: _i8,
    0x52: lambda value: bytes((value,)),
    0x53: lambda value: bytes((value,)),
    0x54: _i8,
    0x55: _i8,
    0x56: lambda value: b"\x01" if value else b"\x00",
    0x60: _u16,
    0x61: _i16,
    0x70: _u32,
    0x71: _i32,
    0x72: _f32,
    0x73: _char,
    0x74: _decimal_item(4),
    0x80: _u64,
    0x81: _i64,
    0x82: _f64,
    0x83: _i64,
    0x84: _decimal_item(8),
    0x94: _decimal_item(16),
    0x98: lambda value: value.bytes,
    0xA0: _sized8,
    0xA1: lambda value: _sized8(value.encode("utf-8")),
    0xA3: lambda value: _sized8(value.encode("ascii")),
    0xB0: _sized32,
    0xB1: lambda value: _sized32(value.encode("utf-8")),
    0xB3: lambda value: _sized32(value.encode("ascii")),
}

#: Instead of an item code: the value carries its own constructor, or is bytes to copy.
_OWN: Final = -1
_COPY: Final = -2
_Step = tuple[Value, int]


def _compound(code8: int, count: int, content: bytes, form: int) -> bytes:
    """Return size, count and content, behind a constructor unless it is an array's item."""
    small = len(content) < 255 and count < 256
    if form == code8 or (form == _OWN and small):
        if not small:
            raise EncodeError(
                f"{count} values of {len(content)} bytes do not fit constructor {code8:#04x}"
            )
        head = bytes((len(content) + 1, count))
        return head + content if form == code8 else bytes((code8,)) + head + content
    head = _u32(len(content) + 4) + _u32(count)
    return head + content if form == code8 | 0x10 else bytes((code8 | 0x10,)) + head + content


class _Building:
    """A container whose parts are being encoded."""

    __slots__ = ("chunks", "code8", "count", "form", "steps")

    def __init__(self, value: Value, form: int) -> None:
        self.form = form
        self.chunks: list[bytes] = []
        self.code8, self.count, self.steps = _plan(value)
        if form not in (_OWN, self.code8, self.code8 | 0x10):
            raise EncodeError(f"{type(value).__name__} in an array of constructor {form:#04x}")

    def finish(self) -> bytes:
        content = b"".join(self.chunks)
        if self.code8 == 0:
            return content
        if self.code8 == 0xC0 and self.form == _OWN and not self.count:
            return b"\x45"
        return _compound(self.code8, self.count, content, self.form)


def _plan(value: Value) -> tuple[int, int, Iterator[_Step]]:
    """Return the one-byte form's constructor (0: described), the count, the parts in order."""
    kind = type(value)
    if kind is list or kind is tuple:
        return 0xC0, len(value), iter([(item, _OWN) for item in value])
    if kind is dict:
        return 0xC1, 2 * len(value), iter([(x, _OWN) for pair in value.items() for x in pair])
    if kind is AmqpMap:
        return 0xC1, 2 * len(value.pairs), iter([(x, _OWN) for pair in value.pairs for x in pair])
    if kind is Described:
        return 0, 0, iter([(b"\x00", _COPY), (value.descriptor, _OWN), (value.value, _OWN)])
    if kind is AmqpArray:
        steps: list[_Step] = []
        for descriptor in value.descriptors:
            steps += [(b"\x00", _COPY), (descriptor, _OWN)]
        steps.append((bytes((value.code,)), _COPY))
        steps += [(item, value.code) for item in value.items]
        return 0xE0, len(value.items), iter(steps)
    raise EncodeError(f"{kind.__name__} has no AMQP encoding")


def encode(value: Value) -> bytes:
    """Return the shortest encoding of `value`; raises EncodeError."""
    try:
        scalar = _SCALARS.get(type(value))
        return scalar(value) if scalar is not None else _encode_compound(value)
    except EncodeError:
        raise
    except (struct.error, ValueError, TypeError, AttributeError, OverflowError) as error:
        # Out of the type's range, not ASCII, or an array item of another type: all local mistakes.
        raise EncodeError(f"{type(value).__name__} cannot be encoded: {error}") from error


def _encode_compound(value: Value) -> bytes:
    stack = [_Building(value, _OWN)]
    while True:
        top = stack[-1]
        chunk: bytes | None = None
        for part, form in top.steps:
            if form == _COPY:
                top.chunks.append(part)
                continue
            write = _SCALARS.get(type(part)) if form == _OWN else _ITEMS.get(form)
            if write is None:
                if len(stack) >= DEPTH_MAX:
                    raise EncodeError(f"nested deeper than {DEPTH_MAX}")
                stack.append(_Building(part, form))
                break
            top.chunks.append(write(part))
        else:
            chunk = stack.pop().finish()
        if chunk is not None:
            if not stack:
                return chunk
            stack[-1].chunks.append(chunk)
