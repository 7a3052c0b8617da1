"""Python values of the AMQP 1.0 type system, one class for each type [AMQP 1.6].

Plain Python types stand for the types that messages use most; every other type has a small
subclass of its own, so that a decoded value encodes to the same AMQP type again:

    null      None                  boolean   bool          long      int           double  float
    string    str                   binary    bytes         uuid      UUID          list    list
    map       dict, or AmqpMap when a dict would merge or refuse keys
    ubyte     UByte                 ushort    UShort        uint      UInt          ulong   ULong
    byte      Byte                  short     Short         int       Int           float   Float32
    char      Char                  symbol    Symbol        timestamp Timestamp (ms since 1970)
    decimal32, decimal64, decimal128: AmqpDecimal (raw bytes)
    array     AmqpArray             a described value: Described

It knows no bytes on the wire: see `amqp_decode` and `amqp_encode`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

#: Any value of the table above. A union of them would be recursive and cost every reader a cast.
Value: TypeAlias = Any


class DecodeError(ValueError):
    """Bytes that are no AMQP value, or one above a limit.

    Attributes:
        offset: where in the buffer the trouble was seen.
        reason: what is wrong, for people.
    """

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"{reason} (at byte {offset})")
        self.offset = offset
        self.reason = reason


class EncodeError(ValueError):
    """A Python value that has no AMQP encoding: a local mistake, never the peer's."""


class UByte(int):
    """ubyte [AMQP 1.6.3]."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"

    #: Texts for people and headers show the number alone.
    __str__ = int.__repr__


class UShort(UByte):
    """ushort [AMQP 1.6.4]."""

    __slots__ = ()


class UInt(UByte):
    """uint [AMQP 1.6.5]."""

    __slots__ = ()


class ULong(UByte):
    """ulong [AMQP 1.6.6]."""

    __slots__ = ()


class Byte(UByte):
    """byte, signed [AMQP 1.6.7]."""

    __slots__ = ()


class Short(UByte):
    """short [AMQP 1.6.8]."""

    __slots__ = ()


class Int(UByte):
    """int, 32 bits [AMQP 1.6.9]."""

    __slots__ = ()


class Timestamp(UByte):
    """timestamp: signed milliseconds since 1970-01-01 UTC [AMQP 1.6.17]."""

    __slots__ = ()


class Float32(float):
    """float, 32 bits [AMQP 1.6.11]. A NaN's payload is not kept."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Float32({float(self)!r})"

    __str__ = float.__repr__


class Char(str):
    """char: one Unicode code point [AMQP 1.6.16]."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Char({str(self)!r})"


class Symbol(str):
    """symbol: ASCII text; equal to the str of the same text [AMQP 1.6.21]."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Symbol({str(self)!r})"


@dataclass(frozen=True, slots=True)
class AmqpDecimal:
    """decimal32, decimal64 or decimal128, by the length of `raw` (4, 8, 16) [AMQP 1.6.13]."""

    raw: bytes


@dataclass(frozen=True, slots=True)
class Described:
    """A value with a descriptor [AMQP 1.3]."""

    descriptor: Value
    value: Value


@dataclass(frozen=True, slots=True)
class AmqpArray:
    """An array: all items share the constructor `code` [AMQP 1.6.24].

    `descriptors` stand before it, outermost first; the items are then the bare values. Items of a
    zero-width code are listed like others.
    """

    code: int
    items: tuple[Value, ...]
    descriptors: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class AmqpMap:
    """A map that a dict cannot hold: keys that repeat, compare equal or have no hash."""

    pairs: tuple[tuple[Value, Value], ...]
