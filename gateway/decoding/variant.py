"""Properties of messages as Spark's variants: typed values that a query takes out by name.

The encoding is that of the Parquet project's Variant (version 1), which Spark reads: `metadata` is
a dictionary of the names, `value` refers to them. AMQP values keep their types:

    null                       null              string, symbol, char, uuid    string
    boolean                    boolean           binary                        binary
    any integer                int8 to int64 by size, decimal(20, 0) above     float, double
    timestamp                  timestamp (microseconds, UTC); null outside the years 1 to 9999
    decimal                    decimal of up to 38 digits; as text when it has no such form
    list, array                array             map                           object
    described value            its value

Header values of STOMP are strings. A name that a STOMP sender repeated is an array, one that comes
twice in an AMQP map counts once: the first. Nothing here raises on values that were decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final, NamedTuple
from uuid import UUID

from ..model.amqp_values import (
    AmqpArray,
    AmqpDecimal,
    AmqpMap,
    Described,
    Float32,
    Timestamp,
    Value,
)
from ..model.plain_text import text

#: Spark before 4.1 refuses larger ones when it reads them.
SIZE_MAX: Final = (1 << 24) - 1

# Types of primitives, shifted behind the two bits of the basic type 0.
_NULL, _TRUE, _FALSE = b"\x00", b"\x04", b"\x08"
_INTEGERS: Final = ((1, b"\x0c"), (2, b"\x10"), (4, b"\x14"), (8, b"\x18"))
_DECIMALS: Final = ((4, 9, 8 << 2), (8, 18, 9 << 2), (16, 38, 10 << 2))
_DOUBLE, _TIMESTAMP, _FLOAT, _BINARY, _STRING = b"\x1c", b"\x30", b"\x38", b"\x3c", b"\x40"
_SHORT_STRING: Final = 1
_SHORT_STRING_MAX: Final = 63
_OBJECT: Final = 2
_ARRAY: Final = 3
_SCALE_MAX: Final = 38
_MOMENTS_MS: Final = (-62_135_596_800_000, 253_402_300_799_999)
_U32: Final = struct.Struct("<I")
_I64: Final = struct.Struct("<q")
_F32: Final = struct.Struct("<f")
_F64: Final = struct.Struct("<d")


class Variant(NamedTuple):
    """One value, as the two binaries of Spark's struct."""

    value: bytes
    metadata: bytes


def encode_pairs(pairs: Iterable[tuple[str, Value]]) -> Variant | None:
    """Return pairs as an object; None when it is too large for a variant."""
    names: dict[str, int] = {}
    value = _object(pairs, names)
    metadata = _metadata(names)
    if len(value) > SIZE_MAX or len(metadata) > SIZE_MAX:
        return None
    return Variant(value, metadata)


def _metadata(names: Mapping[str, int]) -> bytes:
    encoded = [name.encode("utf-8", "replace") for name in names]
    total = sum(map(len, encoded))
    width = _width(max(total, len(encoded)))
    head = bytes([1 | (width - 1) << 6])
    return head + _little([len(encoded)], width) + _offsets(encoded, width) + b"".join(encoded)


def _encode(value: Value, names: dict[str, int]) -> bytes:
    match value:
        case None:
            return _NULL
        case bool():
            return _TRUE if value else _FALSE
        case Timestamp():
            return _moment(int(value))
        case int():
            return _integer(int(value))
        case Float32():
            return _FLOAT + _F32.pack(value)
        case float():
            return _DOUBLE + _F64.pack(value)
        case str() | UUID():
            return _text(str(value))
        case bytes():
            return _BINARY + _U32.pack(len(value)) + value
        case AmqpDecimal():
            return _decimal(text(value))
        case Described():
            return _encode(value.value, names)
        case AmqpArray():
            return _array(value.items, names)
        case list() | tuple():
            return _array(value, names)
        case AmqpMap():
            return _object([(text(key), item) for key, item in value.pairs], names)
        case dict():
            return _object([(text(key), item) for key, item in value.items()], names)
        case _:
            return _text(text(value))


def _text(value: str) -> bytes:
    encoded = value.encode("utf-8", "replace")
    if len(encoded) <= _SHORT_STRING_MAX:
        return bytes([len(encoded) << 2 | _SHORT_STRING]) + encoded
    return _STRING + _U32.pack(len(encoded)) + encoded


def _integer(value: int) -> bytes:
    for width, head in _INTEGERS:
        if -(1 << 8 * width - 1) <= value < 1 << 8 * width - 1:
            return head + value.to_bytes(width, "little", signed=True)
    return _unscaled(value, 0)


def _moment(stamp_ms: int) -> bytes:
    low, high = _MOMENTS_MS
    return _TIMESTAMP + _I64.pack(stamp_ms * 1000) if low <= stamp_ms <= high else _NULL


def _decimal(written: str) -> bytes:
    """Return a decimal from its text; the text itself for what Spark's decimals cannot hold."""
    number = Decimal(written)
    if not number.is_finite():
        return _text(written)
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    # Judged before it is written out: an exponent may be in the thousands.
    if exponent < -_SCALE_MAX or len(digits) + max(exponent, 0) > _SCALE_MAX:
        return _text(written)
    value = int("".join(map(str, digits))) * 10 ** max(exponent, 0)
    return _unscaled(-value if sign else value, max(-exponent, 0))


def _unscaled(value: int, scale: int) -> bytes:
    for width, digits, head in _DECIMALS:
        if abs(value) < 10**digits and scale <= digits:
            return bytes([head, scale]) + value.to_bytes(width, "little", signed=True)
    return _text(str(value))


def _array(items: Sequence[Value], names: dict[str, int]) -> bytes:
    encoded = [_encode(item, names) for item in items]
    width = _width(sum(map(len, encoded)))
    large = len(encoded) > 0xFF
    head = bytes([(large << 2 | width - 1) << 2 | _ARRAY])
    count = _little([len(encoded)], 4 if large else 1)
    return head + count + _offsets(encoded, width) + b"".join(encoded)


def _object(pairs: Iterable[tuple[str, Value]], names: dict[str, int]) -> bytes:
    members: dict[str, Value] = {}
    for name, value in pairs:
        members.setdefault(name, value)
    # Readers look names up by halves, in the order of Java's strings.
    ordered = sorted(members, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    ids = [names.setdefault(name, len(names)) for name in ordered]
    encoded = [_encode(members[name], names) for name in ordered]
    width, id_width = _width(sum(map(len, encoded))), _width(max(ids, default=0))
    large = len(encoded) > 0xFF
    head = bytes([(large << 4 | id_width - 1 << 2 | width - 1) << 2 | _OBJECT])
    count = _little([len(encoded)], 4 if large else 1)
    front = head + count + _little(ids, id_width)
    return front + _offsets(encoded, width) + b"".join(encoded)


def _offsets(parts: Sequence[bytes], width: int) -> bytes:
    """Return where each part begins, and where the last one ends."""
    places = [0]
    for part in parts:
        places.append(places[-1] + len(part))
    return _little(places, width)


def _little(numbers: Iterable[int], width: int) -> bytes:
    return b"".join([number.to_bytes(width, "little") for number in numbers])


def _width(largest: int) -> int:
    """Return the bytes that a number needs."""
    return max(1, (largest.bit_length() + 7) // 8)
