"""Decode and skip AMQP 1.0 values in a buffer [AMQP 1.2, 1.6].

Iterative: open containers lie on a list, not on Python's stack. Bounded: by depth (open containers
and descriptions), by nodes (values), and every size and count is paid for in bytes of the
enclosing container before it is believed. Array items of zero width cost no bytes, so their count
has a limit of its own.

Raises `DecodeError` and nothing else, whatever the bytes are. Knows no performative and no message
section.

    code   0x00 described: descriptor, value
           0x4. no byte     0x5. 1 byte           0x6. 2 bytes      0x7. 4 bytes
           0x8. 8 bytes     0x9. 16 bytes         0xa. 1-byte size  0xb. 4-byte size
           0xc. size8 count8 items                0xd. size32 count32 items
           0xe. size8 count8 constructor items    0xf. size32 count32 constructor items
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final
from uuid import UUID

from .amqp_values import (
    AmqpArray,
    AmqpDecimal,
    AmqpMap,
    Byte,
    Char,
    DecodeError,
    Described,
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

DEPTH_MAX: Final = 32
NODES_MAX: Final = 4096
#: A hostile array32 of nulls is 14 bytes that ask for 2**32 items.
ZERO_WIDTH_MAX: Final = 256

_u16 = struct.Struct(">H").unpack_from
_u32 = struct.Struct(">I").unpack_from
_u64 = struct.Struct(">Q").unpack_from
_i8 = struct.Struct(">b").unpack_from
_i16 = struct.Struct(">h").unpack_from
_i32 = struct.Struct(">i").unpack_from
_i64 = struct.Struct(">q").unpack_from
_f32 = struct.Struct(">f").unpack_from
_f64 = struct.Struct(">d").unpack_from

_Read = Callable[[bytes, int], Value]


def _boolean(buf: bytes, at: int) -> bool:
    if buf[at] > 1:
        raise DecodeError(at, f"boolean of value {buf[at]:#04x}, only 0x00 and 0x01 exist")
    return buf[at] == 1


def _char(buf: bytes, at: int) -> Char:
    point: int = _u32(buf, at)[0]
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise DecodeError(at, f"char {point:#x} is no Unicode scalar value")
    return Char(chr(point))


def _raw(width: int) -> _Read:
    return lambda buf, at: AmqpDecimal(buf[at : at + width])


#: code -> (width in bytes, reader)
_FIXED: Final[dict[int, tuple[int, _Read]]] = {
    0x40: (0, lambda buf, at: None),
    0x41: (0, lambda buf, at: True),
    0x42: (0, lambda buf, at: False),
    0x43: (0, lambda buf, at: UInt(0)),
    0x44: (0, lambda buf, at: ULong(0)),
    0x45: (0, lambda buf, at: []),
    0x50: (1, lambda buf, at: UByte(buf[at])),
    0x51: (1, lambda buf, at: Byte(_i8(buf, at)[0])),
    0x52: (1, lambda buf, at: UInt(buf[at])),
    0x53: (1, lambda buf, at: ULong(buf[at])),
    0x54: (1, lambda buf, at: Int(_i8(buf, at)[0])),
    0x55: (1, lambda buf, at: _i8(buf, at)[0]),
    0x56: (1, _boolean),
    0x60: (2, lambda buf, at: UShort(_u16(buf, at)[0])),
    0x61: (2, lambda buf, at: Short(_i16(buf, at)[0])),
    0x70: (4, lambda buf, at: UInt(_u32(buf, at)[0])),
    0x71: (4, lambda buf, at: Int(_i32(buf, at)[0])),
    0x72: (4, lambda buf, at: Float32(_f32(buf, at)[0])),
    0x73: (4, _char),
    0x74: (4, _raw(4)),
    0x80: (8, lambda buf, at: ULong(_u64(buf, at)[0])),
    0x81: (8, lambda buf, at: _i64(buf, at)[0]),
    0x82: (8, lambda buf, at: _f64(buf, at)[0]),
    0x83: (8, lambda buf, at: Timestamp(_i64(buf, at)[0])),
    0x84: (8, _raw(8)),
    0x94: (16, _raw(16)),
    0x98: (16, lambda buf, at: UUID(bytes=buf[at : at + 16])),
}


def _string(raw: bytes) -> str:
    return raw.decode("utf-8")


def _symbol(raw: bytes) -> Symbol:
    return Symbol(raw.decode("ascii"))


#: code -> reader of the bytes behind the size; bit 4 of the code tells a 4-byte size.
_VARIABLE: Final[dict[int, Callable[[bytes], Value]]] = {
    0xA0: bytes,
    0xA1: _string,
    0xA3: _symbol,
    0xB0: bytes,
    0xB1: _string,
    0xB3: _symbol,
}
_LISTS: Final = frozenset({0xC0, 0xD0})
_MAPS: Final = frozenset({0xC1, 0xD1})
_ARRAYS: Final = frozenset({0xE0, 0xF0})
_COMPOUND: Final = _LISTS | _MAPS | _ARRAYS
_DESCRIBED: Final = 0x00
#: Instead of an item's constructor: each value has its own; or the array's is still to be read.
_OWN: Final = -1
_AWAITED: Final = -2


def _item_width(code: int) -> int | None:
    """Return the least number of bytes of one array item of this code; None for an unknown code."""
    if code in _FIXED:
        return _FIXED[code][0]
    if code in _VARIABLE:
        return 4 if code & 0x10 else 1
    if code in _COMPOUND:
        return 8 if code & 0x10 else 2
    return None


class _Open:
    """A container or description whose values are being read."""

    __slots__ = ("code", "count", "descriptors", "end", "item_code", "items")

    def __init__(self, code: int, count: int, end: int) -> None:
        self.code = code
        self.count = count
        self.end = end
        self.items: list[Value] = []
        #: arrays: the constructor of every item, once it is known.
        self.item_code = _AWAITED if code in _ARRAYS else _OWN
        self.descriptors: tuple[Value, ...] = ()

    @property
    def more(self) -> int:
        """How many values only have to be kept: one of those behind them closes the container."""
        return 0 if self.item_code == _AWAITED else self.count - len(self.items) - 1

    def close(self) -> Value:
        if self.code in _LISTS:
            return self.items
        if self.code in _MAPS:
            return _as_map(self.items)
        if self.code == _DESCRIBED:
            return Described(self.items[0], self.items[1])
        return AmqpArray(self.item_code, tuple(self.items), self.descriptors)


def _as_map(flat: list[Value]) -> Value:
    keys, values = flat[0::2], flat[1::2]
    try:
        found = dict(zip(keys, values, strict=True))
    except TypeError:  # an unhashable key
        return AmqpMap(tuple(zip(keys, values, strict=True)))
    if len(found) == len(keys):
        return found
    return AmqpMap(tuple(zip(keys, values, strict=True)))


def decode(
    buf: bytes, offset: int, end: int, *, depth_max: int = DEPTH_MAX, nodes_max: int = NODES_MAX
) -> tuple[Value, int]:
    """Return the value that starts at `offset` and the offset behind it; raises DecodeError.

    Reads nothing at or behind `end`. `depth_max` bounds the containers and descriptions open at
    once, `nodes_max` the values in all.
    """
    return _Walk(buf, min(end, len(buf)), depth_max, nodes_max).run(offset)


class _Walk:
    """One decode: the open containers, innermost last, and what may still be spent."""

    __slots__ = ("buf", "depth_max", "end", "nodes_left", "stack")

    def __init__(self, buf: bytes, end: int, depth_max: int, nodes_max: int) -> None:
        self.buf = buf
        self.end = end
        self.depth_max = depth_max
        self.nodes_left = nodes_max
        self.stack: list[_Open] = []

    def run(self, pos: int) -> tuple[Value, int]:
        buf, stack = self.buf, self.stack
        limit, item_code = self.end, _OWN
        # Values of the innermost container and how many more it takes before one closes it.
        items: list[Value] = []
        more = 0
        value: Value
        while True:
            code = item_code
            if code < 0:
                if pos >= limit:
                    raise DecodeError(pos, "value cut short before its constructor")
                code = buf[pos]
                pos += 1
            self.nodes_left -= 1
            if self.nodes_left < 0:
                raise DecodeError(pos, "too many values in one piece")
            if (fixed := _FIXED.get(code)) is not None:
                width = fixed[0]
                if pos + width > limit:
                    raise DecodeError(pos, f"value {code:#04x} of {width} bytes cut short")
                value = fixed[1](buf, pos)
                pos += width
            elif (read := _VARIABLE.get(code)) is not None:
                start, pos = _sized(buf, pos, limit, code)
                value = _read_text(read, buf, start, pos)
            else:
                pos, opened = self._open(code, pos, limit)
                if opened is None:
                    top = stack[-1]
                    limit, item_code, items, more = top.end, top.item_code, top.items, top.more
                    continue
                value = opened.close()
            if more > 0:
                items.append(value)
                more -= 1
                continue
            done, value, pos = self._deliver(value, pos)
            if done:
                return value, pos
            top = stack[-1]
            limit, item_code, items, more = top.end, top.item_code, top.items, top.more

    def _deliver(self, value: Value, pos: int) -> tuple[bool, Value, int]:
        """Hand a finished value to the innermost open container; close those that are complete."""
        stack = self.stack
        while stack:
            top = stack[-1]
            if top.item_code == _AWAITED:
                top.descriptors += (value,)
                pos = self._array_constructor(top, pos)
                if top.count or top.item_code == _AWAITED:
                    return False, None, pos
            else:
                top.items.append(value)
                if len(top.items) < top.count:
                    return False, None, pos
            if top.code != _DESCRIBED and pos != top.end:
                raise DecodeError(pos, f"{top.end - pos} bytes left over in a container")
            value = top.close()
            stack.pop()
        return True, value, pos

    def _open(self, code: int, pos: int, limit: int) -> tuple[int, _Open | None]:
        """Open a container or description; return it only when it is complete already."""
        if code == _DESCRIBED:
            self._push(_Open(code, 2, limit), pos)
            return pos, None
        if code not in _COMPOUND:
            raise DecodeError(pos - 1, f"unknown constructor {code:#04x}")
        pos, count, end = _compound_head(self.buf, pos, limit, code)
        opened = _Open(code, count, end)
        if code in _ARRAYS:
            self._push(opened, pos)
            pos = self._array_constructor(opened, pos)
            if count or opened.item_code == _AWAITED:
                return pos, None
            self.stack.pop()
        else:
            self._check_count(count, 1, pos, end)
            if code in _MAPS and count % 2:
                raise DecodeError(pos, f"map of {count} values: a key without a value")
            if count:
                self._push(opened, pos)
                return pos, None
        if pos != end:
            raise DecodeError(pos, f"{end - pos} bytes left over in a container")
        return pos, opened

    def _push(self, opened: _Open, pos: int) -> None:
        if len(self.stack) >= self.depth_max:
            raise DecodeError(pos, f"nested deeper than {self.depth_max}")
        self.stack.append(opened)

    def _array_constructor(self, array: _Open, pos: int) -> int:
        """Read the constructor of the items; behind 0x00 the descriptor has to be read first."""
        if pos >= array.end:
            raise DecodeError(pos, "array cut short before its constructor")
        code = self.buf[pos]
        pos += 1
        if code == _DESCRIBED:
            if len(self.stack) + len(array.descriptors) >= self.depth_max:
                raise DecodeError(pos, f"nested deeper than {self.depth_max}")
            # The loop now reads one value with its own constructor: the descriptor.
            return pos
        width = _item_width(code)
        if width is None:
            raise DecodeError(pos - 1, f"unknown constructor {code:#04x}")
        self._check_count(array.count, width, pos, array.end)
        array.item_code = code
        return pos

    def _check_count(self, count: int, width: int, pos: int, end: int) -> None:
        if width == 0 and count > ZERO_WIDTH_MAX:
            raise DecodeError(pos, f"{count} items of no bytes, the limit is {ZERO_WIDTH_MAX}")
        if count * width > end - pos:
            raise DecodeError(pos, f"{count} items cannot lie in {end - pos} bytes")
        if count > self.nodes_left:
            raise DecodeError(pos, "too many values in one piece")


def _sized(buf: bytes, pos: int, limit: int, code: int) -> tuple[int, int]:
    """Read the size at `pos`; return where the bytes start and end."""
    width = 4 if code & 0x10 else 1
    if pos + width > limit:
        raise DecodeError(pos, f"value {code:#04x} cut short in its size")
    size: int = _u32(buf, pos)[0] if width == 4 else buf[pos]
    start = pos + width
    if size > limit - start:
        raise DecodeError(pos, f"value {code:#04x} of {size} bytes, only {limit - start} are there")
    return start, start + size


def _read_text(read: Callable[[bytes], Value], buf: bytes, start: int, end: int) -> Value:
    try:
        return read(buf[start:end])
    except UnicodeDecodeError as error:
        raise DecodeError(start + error.start, f"text is not {error.encoding}") from None


def _compound_head(buf: bytes, pos: int, limit: int, code: int) -> tuple[int, int, int]:
    """Read size and count; return where the content starts, the count, where it ends."""
    start, end = _sized(buf, pos, limit, code)
    width = start - pos
    if end - start < width:
        raise DecodeError(pos, f"container {code:#04x} without room for its count")
    count: int = _u32(buf, start)[0] if width == 4 else buf[start]
    return start + width, count, end


def skip(buf: bytes, offset: int, end: int) -> int:
    """Return the offset behind the value at `offset` by its outer size alone; raises DecodeError.

    What lies inside a container is not looked at.
    """
    end = min(end, len(buf))
    pos, values_left, described = offset, 1, 0
    while values_left:
        values_left -= 1
        if pos >= end:
            raise DecodeError(pos, "value cut short before its constructor")
        code = buf[pos]
        pos += 1
        kind = code >> 4
        if code == _DESCRIBED:
            described += 1
            if described > DEPTH_MAX:
                raise DecodeError(pos, f"nested deeper than {DEPTH_MAX}")
            values_left += 2
        elif kind >= 0xA:
            if code not in _VARIABLE and code not in _COMPOUND:
                raise DecodeError(pos - 1, f"unknown constructor {code:#04x}")
            pos = _sized(buf, pos, end, code)[1]
        elif code in _FIXED:
            width = _FIXED[code][0]
            if width > end - pos:
                raise DecodeError(pos, f"value {code:#04x} cut short")
            pos += width
        else:
            raise DecodeError(pos - 1, f"unknown constructor {code:#04x}")
    return pos
