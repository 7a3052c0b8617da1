"""Columns of a run whose heads differ: the values in its holes, taken out of all rows at once.

A hole belongs to the columns that its value can change. A column that no hole belongs to is the
same in all rows. One with a single hole of a kind that is known here is made of slices; for any
other `column` says so, and the heads are parsed row by row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ..model.section_scan import APPLICATION_PROPERTIES, HEADER, PROPERTIES
from .columns import INTEGERS, Head, headers_map
from .shapes import numbers
from .spots import STOMP_HEAD, Spot

#: Microseconds of the years that Spark's calendar has.
_MILLISECONDS_MAX: Final = 253_402_300_799_999

_FIELDS: Final[dict[tuple[int, int | str], tuple[str, ...]]] = {
    (HEADER, 2): ("ttl_ms",),
    (HEADER, 4): ("delivery_count", "redelivered"),
    (PROPERTIES, 0): ("message_id",),
    (PROPERTIES, 3): ("subject",),
    (PROPERTIES, 4): ("reply_to",),
    (PROPERTIES, 5): ("correlation_id",),
    (PROPERTIES, 6): ("content_type",),
    (PROPERTIES, 8): ("expires",),
    (PROPERTIES, 9): ("created",),
    (PROPERTIES, 10): ("key",),
    # Headers of a STOMP frame that are columns and nothing else.
    (STOMP_HEAD, "destination"): (),
    (STOMP_HEAD, "priority"): (),
    (STOMP_HEAD, "persistent"): (),
    (STOMP_HEAD, "content-type"): ("content_type",),
    (STOMP_HEAD, "correlation-id"): ("correlation_id",),
    (STOMP_HEAD, "reply-to"): ("reply_to",),
    (STOMP_HEAD, "expires"): ("expires",),
}
#: Headers of a STOMP sender's own that are columns, too.
_OWN: Final = {
    "NATIVE_MESSAGE_ID": "message_id",
    "subject": "subject",
    "type": "subject",
    "JMSXGroupID": "key",
    "timestamp": "created",
}
_TEXTS: Final = frozenset(
    {"message_id", "subject", "content_type", "correlation_id", "reply_to", "key"}
)
_STAMPS: Final = frozenset({"created", "expires"})
#: Constructors of strings and symbols [AMQP 1.6.19 to 1.6.21]; 0 is a STOMP value.
_TEXT_CODES: Final = frozenset({0, 0xA1, 0xA3, 0xB1, 0xB3})
_SYMBOLS: Final = frozenset({0xA3, 0xB3})
_TIMESTAMP: Final = 0x83
_UNSIGNED: Final = {0x52: 1, 0x70: 4}


def columns_of(spot: Spot, spots: Sequence[Spot]) -> set[str]:
    """Return the columns that a value can change; `spots` are all of its head."""
    known = _FIELDS.get((spot.section, spot.name))
    if known is not None:
        return set(known)
    if spot.section in (HEADER, PROPERTIES):
        return set()
    found = {"annotations"}
    if spot.section in (APPLICATION_PROPERTIES, STOMP_HEAD):
        found = {"headers", "properties"}
    if spot.name == "traceparent":
        found.add("traceparent")
    own = _OWN.get(str(spot.name)) if spot.section == STOMP_HEAD else None
    hidden = spot.name == "type" and any(other.name == "subject" for other in spots)
    if own is not None and not hidden:
        found.add(own)
    return found


def readable(holes: Sequence[Spot], rows: pa.Array) -> bool:
    """Whether all AMQP strings and symbols in holes are what they should be: UTF-8, and ASCII."""
    for spot in holes:
        if spot.code in _TEXT_CODES - {0}:
            try:
                value = pc.binary_slice(rows, spot.start, spot.end).cast(pa.string())
            except pa.ArrowInvalid:
                return False
            if spot.code in _SYMBOLS and not pc.all(pc.string_is_ascii(value)).as_py():
                return False
    return True


def column(
    name: str, holes: Sequence[Spot], rows: pa.Array, head: Head, kind: pa.DataType
) -> pa.Array | None:
    """Return a column made of its holes, and of what all rows share; None: rows must be parsed."""
    if pa.types.is_map(kind):
        pairs = headers_map(head.annotations if name == "annotations" else head.headers)
        return _maps(pairs, {str(hole.name): hole for hole in holes}, rows, kind)
    if len(holes) != 1:
        return None
    (spot,) = holes
    if name in _TEXTS and spot.code in _TEXT_CODES:
        return texts(pc.binary_slice(rows, spot.start, spot.end))
    if name in _STAMPS:
        return _stamps(spot, rows, kind)
    if name == "ttl_ms" and spot.code in _UNSIGNED:
        value = pc.binary_slice(rows, spot.start, spot.end)
        return pc.cast(numbers(value, _UNSIGNED[spot.code]), kind)
    return None


def _maps(
    pairs: Sequence[tuple[str, str | None]],
    holes: Mapping[str, Spot],
    rows: pa.Array,
    kind: pa.DataType,
) -> pa.Array | None:
    """Return a map for each row: the names of `pairs`, and their values but for the holes."""
    count, width = len(rows), len(pairs)
    columns = []
    for name, value in pairs:
        if name not in holes:
            columns.append(pa.repeat(pa.scalar(value, pa.string()), count))
            continue
        made = _shown(holes[name], rows)
        if made is None:
            return None
        columns.append(made)
    # From columns of values to the values of row after row.
    cells = pa.array(range(count * width), pa.int64())
    row = pc.divide(cells, width)
    place = pc.subtract(cells, pc.multiply(row, width))
    items = pa.concat_arrays(columns).take(pc.add(pc.multiply(place, count), row))
    keys = pa.array([name for name, _ in pairs], pa.string()).take(place)
    offsets = pa.array(range(0, count * width + 1, width), pa.int32())
    return pa.MapArray.from_arrays(offsets, keys, items).cast(kind)


def _shown(spot: Spot, rows: pa.Array) -> pa.Array | None:
    """Return values as text, as `plain_text.text` writes them; None for kinds that it must."""
    value = pc.binary_slice(rows, spot.start, spot.end)
    if spot.code in _TEXT_CODES:
        return texts(value)
    if spot.code in INTEGERS:
        width, signed = INTEGERS[spot.code]
        return numbers(value, width, signed=signed).cast(pa.string())
    return None


def texts(values: pa.Array) -> pa.Array:
    """Return binary values as UTF-8; bytes that are none are replaced."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        shown = [None if v is None else v.decode("utf-8", "replace") for v in values.to_pylist()]
        return pa.array(shown, pa.string())


def _stamps(spot: Spot, rows: pa.Array, kind: pa.DataType) -> pa.Array | None:
    value = pc.binary_slice(rows, spot.start, spot.end)
    if spot.code == _TIMESTAMP:
        stamps = numbers(value, 8, signed=True)
    elif spot.section == STOMP_HEAD and spot.end - spot.start < 19:
        shown = texts(value)
        if not pc.all(pc.match_substring_regex(shown, "^[0-9]+$")).as_py():
            return None
        stamps = pc.cast(shown, pa.int64())
    else:
        return None
    inside = pc.and_(
        pc.less_equal(stamps, _MILLISECONDS_MAX), pc.greater_equal(stamps, -_MILLISECONDS_MAX)
    )
    bounded = pc.if_else(inside, stamps, pa.scalar(None, pa.int64()))
    return pc.multiply(bounded, 1000).cast(kind)
