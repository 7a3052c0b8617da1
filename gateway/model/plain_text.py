"""AMQP values as text for those who have no AMQP types: STOMP headers and bodies, streams, JSON.

    null ""          boolean true/false    numbers in decimal digits    uuid 8-4-4-4-12 hex
    timestamp ISO 8601 in UTC to the ms    binary base64    string, symbol, char as they are
    decimals by value [AMQP 1.6.13, IEEE 754 binary integer decimal]
    list, array JSON array    map JSON object    described value: its value

In JSON, numbers stay numbers and the rest of the above are strings. Nothing here raises on a value
that was decoded: its depth is bounded by the decoder.

Ids of messages keep their type in text, and come back from it:

    uuid ID:AMQP_UUID:<uuid>      ulong ID:AMQP_ULONG:<digits>      binary ID:<base64>
    string as it is, behind ID:AMQP_STRING: when it would be read as one of the others
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

from .amqp_values import (
    AmqpArray,
    AmqpDecimal,
    AmqpMap,
    Described,
    Timestamp,
    ULong,
    Value,
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: bytes -> (bits of the exponent, its bias, decimal digits)
_DECIMALS: Final = {4: (8, 101, 7), 8: (10, 398, 16), 16: (14, 6176, 34)}
_UUID: Final = "ID:AMQP_UUID:"
_ULONG: Final = "ID:AMQP_ULONG:"
_BINARY: Final = "ID:AMQP_BINARY:"
_STRING: Final = "ID:AMQP_STRING:"
_BARE: Final = "ID:AMQP_NO_PREFIX:"
_quoted = json.JSONEncoder(ensure_ascii=False).encode


def text(value: Value) -> str:
    """Return the text of a value; a list or map as JSON."""
    if isinstance(value, str):
        return str(value)
    if value is None:
        return ""
    if isinstance(value, Described):
        return text(value.value)
    scalar = _scalar(value)
    return json_text(value) if scalar is None else scalar[0]


def json_text(value: Value) -> str:
    """Return a value as JSON."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return _quoted(str(value))
    if isinstance(value, Described):
        return json_text(value.value)
    if isinstance(value, (dict, AmqpMap)):
        pairs = value.pairs if isinstance(value, AmqpMap) else value.items()
        # Keys of different types may have one text; JSON readers would keep the last one anyway.
        members = {text(key): json_text(item) for key, item in pairs}
        return "{" + ",".join([f"{_quoted(k)}:{v}" for k, v in members.items()]) + "}"
    if isinstance(value, (list, tuple, AmqpArray)):
        items = value.items if isinstance(value, AmqpArray) else value
        return "[" + ",".join([json_text(item) for item in items]) + "]"
    scalar = _scalar(value)
    assert scalar is not None, "every AMQP type is above or a scalar"
    return scalar[0] if scalar[1] else _quoted(scalar[0])


def _scalar(value: Value) -> tuple[str, bool] | None:
    """Return the text of a scalar and whether it is a JSON literal as it stands; None otherwise."""
    match value:
        case bool():
            return ("true" if value else "false"), True
        case Timestamp():
            return iso_time(value), False
        case int():
            return int.__repr__(value), True
        case float():
            return _float(value)
        case UUID():
            return str(value), False
        case bytes():
            return b64encode(value).decode("ascii"), False
        case AmqpDecimal():
            return _decimal(value.raw)
        case _:
            return None


def _float(value: float) -> tuple[str, bool]:
    if value != value:  # noqa: PLR0124 - NaN is what differs from itself
        return "NaN", False
    if value - value != 0:
        return ("Infinity" if value > 0 else "-Infinity"), False
    return float.__repr__(value), True


def _decimal(raw: bytes) -> tuple[str, bool]:
    """Return the text of a number in binary integer decimal encoding, any width."""
    exponent_bits, bias, digits = _DECIMALS[len(raw)]
    bits = int.from_bytes(raw, "big")
    width = len(raw) * 8
    sign = bits >> (width - 1)
    lead = bits >> (width - 6) & 0x1F
    if lead >= 0x1E:
        infinity = "-Infinity" if sign else "Infinity"
        return (infinity if lead == 0x1E else "NaN"), False
    low = width - 1 - exponent_bits
    if lead >= 0x18:
        # The coefficient starts with the bits 100, which are not written.
        low -= 2
        coefficient = (4 << low) | (bits & ((1 << low) - 1))
    else:
        coefficient = bits & ((1 << low) - 1)
    exponent = (bits >> low & ((1 << exponent_bits) - 1)) - bias
    if coefficient >= 10**digits:
        coefficient = 0  # not canonical, and zero by definition
    value = Decimal((sign, tuple(map(int, str(coefficient))), exponent))
    return str(value), True


def iso_time(stamp_ms: int) -> str:
    """Return a time in ISO 8601; one outside the years 1 to 9999 as its milliseconds."""
    try:
        moment = _EPOCH + timedelta(milliseconds=int(stamp_ms))
    except OverflowError:
        return str(int(stamp_ms))
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def id_text(value: ULong | UUID | bytes | str) -> str:
    """Return a message-id or correlation-id as text that `parse_id` turns back."""
    if isinstance(value, str):
        as_it_is = type(parse_id(value)) is str and not value.startswith((_STRING, _BARE))
        return str(value) if as_it_is else _STRING + value
    if isinstance(value, UUID):
        return _UUID + str(value)
    if isinstance(value, bytes):
        return "ID:" + b64encode(value).decode("ascii") if value else _BINARY
    return _ULONG + int.__repr__(value)


def parse_id(written: str) -> ULong | UUID | bytes | str:
    """Return the id that a text stands for: a string unless it has one of the typed forms."""
    if not written.startswith("ID:"):
        return written
    for mark in (_STRING, _BARE):
        if written.startswith(mark):
            return written.removeprefix(mark)
    if written.startswith(_UUID):
        return _parse_uuid(written)
    if written.startswith(_ULONG):
        digits = written.removeprefix(_ULONG)
        if digits.isascii() and digits.isdigit() and len(digits) <= 20 and int(digits) < 1 << 64:
            return ULong(digits)
        return written
    if written.startswith(_BINARY):
        try:
            return bytes.fromhex(written.removeprefix(_BINARY))
        except ValueError:
            return written
    return _parse_base64(written)


def _parse_uuid(written: str) -> UUID | str:
    try:
        found = UUID(written.removeprefix(_UUID))
    except ValueError:
        return written
    return found if _UUID + str(found) == written else written


def _parse_base64(written: str) -> bytes | str:
    try:
        raw = b64decode(written[3:], validate=True)
    except (Base64Error, ValueError):
        return written
    # Only what base64 itself would write, so that nothing else changes on the way.
    return raw if raw and b64encode(raw).decode("ascii") == written[3:] else written
