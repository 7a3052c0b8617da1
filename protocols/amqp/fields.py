"""Fields of AMQP composite values: how one is declared, checked and encoded [AMQP 1.4, 2.8].

A composite class declares each field once with `wire(...)`: AMQP type, mandatory or default,
multiple, and the bounds that we police. `composite(...)` turns such a class into a frozen slotted
value and registers both of its descriptors. Nothing here knows a particular performative; see
`performatives`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Final, TypeVar, dataclass_transform

from gateway.model.amqp_types import (
    AmqpArray,
    AmqpMap,
    Described,
    Symbol,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
)

DECODE_ERROR: Final = "amqp:decode-error"
INVALID_FIELD: Final = "amqp:invalid-field"
#: A field that is a map or a composite may take this many bytes in its frame: peers need well
#: under 1 KiB.
COMPOUND_BYTES_MAX: Final = 8192

_C = TypeVar("_C")


class FieldError(ValueError):
    """A composite value that decodes but breaks its declaration.

    Attributes:
        composite: the specification's name, such as `open`.
        field: the specification's name, such as `container-id`.
        reason: what is wrong with it.
        condition: the AMQP error condition to answer with.
    """

    def __init__(self, composite: str, field: str, reason: str, condition: str) -> None:
        super().__init__(f"{composite}: field {field} {reason}")
        self.composite = composite
        self.field = field
        self.reason = reason
        self.condition = condition


class Type(Enum):
    """AMQP types of fields, in the standard's words. FIELDS: a map with symbols as keys."""

    BOOLEAN = "boolean"
    UBYTE = "ubyte"
    USHORT = "ushort"
    UINT = "uint"
    ULONG = "ulong"
    STRING = "string"
    SYMBOL = "symbol"
    BINARY = "binary"
    MAP = "map"
    FIELDS = "fields"
    COMPOSITE = "composite"


#: What the decoder gives for a type. Exact classes: a symbol is no string, a uint no ulong.
_PYTHON: Final[dict[Type, type]] = {
    Type.BOOLEAN: bool,
    Type.UBYTE: UByte,
    Type.USHORT: UShort,
    Type.UINT: UInt,
    Type.ULONG: ULong,
    Type.STRING: str,
    Type.SYMBOL: Symbol,
    Type.BINARY: bytes,
    Type.MAP: dict,
    Type.FIELDS: dict,
    Type.COMPOSITE: Described,
}
_WRAP: Final[dict[Type, Callable[[Any], Value]]] = {
    Type.UBYTE: UByte,
    Type.USHORT: UShort,
    Type.UINT: UInt,
    Type.ULONG: ULong,
    Type.SYMBOL: Symbol,
}
_NO_DEFAULT: Final = dataclasses.MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """The declaration of one field.

    Attributes:
        name: the specification's.
        attribute: Python's.
        size_max: bytes of a string, symbol or binary; 0 leaves it to the frame.
        above: numbers must be below this; 0 leaves it to the type.
        choices: the only texts allowed; empty allows all.
        provides: archetypes that a composite must have one of.
        open_ended: an unknown composite is kept as `Described`.
    """

    name: str
    attribute: str
    type: Type
    mandatory: bool
    default: Value
    multiple: bool
    size_max: int
    above: int
    choices: tuple[str, ...]
    provides: str
    open_ended: bool


def wire(
    kind: Type,
    *,
    default: Value = _NO_DEFAULT,
    multiple: bool = False,
    size_max: int = 0,
    above: int = 0,
    choices: tuple[str, ...] = (),
    provides: str = "",
    open_ended: bool = False,
) -> Value:
    """Declare a field; one without a default is mandatory. See `Field`."""
    bounds = {
        "type": kind,
        "multiple": multiple,
        "size_max": size_max,
        "above": above,
        "choices": choices,
        "provides": provides,
        "open_ended": open_ended,
    }
    return dataclasses.field(default=default, metadata=bounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a composite class looks on the wire."""

    name: str
    symbol: str
    code: int
    provides: str
    fields: tuple[Field, ...]


class Composite:
    """Base of all composite values."""

    __slots__ = ()
    layout: ClassVar[Layout]


_BY_CODE: Final[dict[int, type[Composite]]] = {}
_BY_SYMBOL: Final[dict[str, type[Composite]]] = {}


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(wire,))
def composite(symbol: str, code: int, provides: str = "") -> Callable[[type[_C]], type[_C]]:
    """Return a class decorator: a frozen slotted value with the descriptors `symbol` and `code`."""

    def make(cls: type[_C]) -> type[_C]:
        made = dataclass(frozen=True, slots=True, kw_only=True)(cls)
        if not issubclass(made, Composite):
            raise TypeError(f"{cls.__name__} is no Composite")
        declared = tuple(map(_declared, dataclasses.fields(made)))  # type: ignore[arg-type]
        made.layout = Layout(
            name=symbol.split(":")[1],
            symbol=symbol,
            code=code,
            provides=provides,
            fields=declared,
        )
        _BY_CODE[code] = made
        _BY_SYMBOL[symbol] = made
        return made

    return make


def _declared(field: dataclasses.Field[Any]) -> Field:
    mandatory = field.default is _NO_DEFAULT
    return Field(
        name=field.name.replace("_", "-"),
        attribute=field.name,
        mandatory=mandatory,
        default=None if mandatory else field.default,
        **field.metadata,
    )


def composite_class(descriptor: Value) -> type[Composite] | None:
    """Return the class that a decoded descriptor stands for; None for an unknown one."""
    if type(descriptor) is ULong:
        return _BY_CODE.get(descriptor)
    if type(descriptor) is Symbol:
        return _BY_SYMBOL.get(descriptor)
    return None


def from_list(cls: type[Composite], values: Value) -> Composite:
    """Return a `cls` made of decoded field values; raises FieldError."""
    layout = cls.layout
    if type(values) is not list:
        raise FieldError(layout.name, "list", "is missing: the value is no list", DECODE_ERROR)
    declared = layout.fields
    if any(value is not None for value in values[len(declared) :]):
        raise FieldError(layout.name, "list", f"has more than {len(declared)} values", DECODE_ERROR)
    given: dict[str, Value] = {}
    for field, value in zip(declared, values, strict=False):
        if value is not None:
            given[field.attribute] = _checked(layout, field, value)
    for field in declared:
        if field.mandatory and field.attribute not in given:
            raise FieldError(layout.name, field.name, "is mandatory and missing", INVALID_FIELD)
    return cls(**given)


def from_described(value: Described) -> Composite | None:
    """Return the composite that a decoded value is, or None; raises FieldError."""
    cls = composite_class(value.descriptor)
    return None if cls is None else from_list(cls, value.value)


def _checked(layout: Layout, field: Field, value: Value) -> Value:
    if field.multiple:
        return _multiple(layout, field, value)
    if not _has_type(field, value):
        raise _wrong_type(layout, field)
    match field.type:
        case Type.COMPOSITE:
            return _composite(layout, field, value)
        case Type.FIELDS:
            if not all(type(key) is Symbol for key in value):
                raise FieldError(
                    layout.name, field.name, "has a key that is no symbol", DECODE_ERROR
                )
        case Type.STRING | Type.SYMBOL | Type.BINARY:
            _check_text(layout, field, value)
        case Type.UBYTE | Type.UINT:
            if field.above and value >= field.above:
                raise FieldError(
                    layout.name, field.name, f"is {value}, not below {field.above}", INVALID_FIELD
                )
    return value


def _has_type(field: Field, value: Value) -> bool:
    kind = type(value)
    return kind is _PYTHON[field.type] or (field.type is Type.MAP and kind is AmqpMap)


def _wrong_type(layout: Layout, field: Field) -> FieldError:
    return FieldError(layout.name, field.name, f"is no {field.type.value}", DECODE_ERROR)


def _check_text(layout: Layout, field: Field, value: str | bytes) -> None:
    if field.size_max:
        size = len(value) if isinstance(value, bytes) else len(value.encode("utf-8"))
        if size > field.size_max:
            reason = f"has {size} bytes, the limit is {field.size_max}"
            raise FieldError(layout.name, field.name, reason, INVALID_FIELD)
    if field.choices and value not in field.choices:
        reason = f"is none of {', '.join(field.choices)}"
        raise FieldError(layout.name, field.name, reason, INVALID_FIELD)


def _multiple(layout: Layout, field: Field, value: Value) -> tuple[Value, ...]:
    """Return the items of a field that is one value or an array of them [AMQP 1.4]."""
    items = (value,)
    if type(value) is AmqpArray and not value.descriptors:
        items = value.items
    if not all(type(item) is _PYTHON[field.type] for item in items):
        raise _wrong_type(layout, field)
    return items


def _composite(layout: Layout, field: Field, value: Described) -> Value:
    cls = composite_class(value.descriptor)
    if cls is None and field.open_ended:
        return value
    if cls is None or field.provides not in cls.layout.provides.split():
        raise FieldError(layout.name, field.name, f"is no {field.provides}", INVALID_FIELD)
    return from_list(cls, value.value)


def to_described(value: Composite) -> Described:
    """Return the described list to encode: defaults and trailing nulls are left out."""
    layout = value.layout
    values = [_bare(field, getattr(value, field.attribute)) for field in layout.fields]
    while values and values[-1] is None:
        values.pop()
    return Described(ULong(layout.code), values)


def _bare(field: Field, value: Value) -> Value:
    if not field.mandatory and value == field.default:
        return None
    if field.multiple:
        return _array(field, value)
    if isinstance(value, Composite):
        return to_described(value)
    if field.type is Type.FIELDS and isinstance(value, Mapping):
        return {
            Symbol(key): to_described(item) if isinstance(item, Composite) else item
            for key, item in value.items()
        }
    wrap = _WRAP.get(field.type)
    return value if wrap is None or value is None else wrap(value)


def _array(field: Field, values: tuple[Value, ...]) -> AmqpArray:
    # Every multiple field is of symbols. An array even of one: not all clients read the single
    # form.
    wide = any(len(value) > 255 for value in values)
    return AmqpArray(0xB3 if wide else 0xA3, tuple(Symbol(value) for value in values))
