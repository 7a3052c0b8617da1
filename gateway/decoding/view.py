"""What a reader asked to see: columns, header form, body form; and stored rows turned into it.

The Arrow types are what Spark's `to_arrow_schema(schema, timezone="UTC")` makes of the columns'
Spark types: nullable fields, 32-bit offsets, `timestamp[us, tz=UTC]`, no dictionaries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ..model.message import DURABLE, PRIORITY_MASK, STOMP
from ..model.plain_text import text
from .blocks import Decoded, decode_block
from .columns import BlockReader, Head, Headers, headers_json, headers_map
from .fields import texts
from .variant import encode_pairs

_STAMP: Final = pa.timestamp("us", tz="UTC")
_TEXTS: Final = pa.map_(pa.string(), pa.string())
#: As Spark tells a variant from another struct.
_VARIANT: Final = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"}),
    ]
)

#: The stored columns; the same as `storage.arrow_segment.SCHEMA` (a test holds them together).
STORED: Final = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("flags", pa.int32(), nullable=False),
        pa.field("raw", pa.binary(), nullable=False),
    ]
)

#: Every column and its type; `headers` and `body` depend on the request.
TYPES: Final = {
    "address": pa.string(),
    "offset": pa.int64(),
    "timestamp": _STAMP,
    "message_id": pa.string(),
    "subject": pa.string(),
    "content_type": pa.string(),
    "correlation_id": pa.string(),
    "reply_to": pa.string(),
    "body": pa.binary(),
    "headers": _TEXTS,
    "epoch": pa.int32(),
    "key": pa.string(),
    "priority": pa.int32(),
    "ttl_ms": pa.int64(),
    "created": _STAMP,
    "expires": _STAMP,
    "durable": pa.bool_(),
    "redelivered": pa.bool_(),
    "delivery_count": pa.int32(),
    "size": pa.int32(),
    "protocol": pa.string(),
    "annotations": _TEXTS,
    "amqp": pa.binary(),
    "properties": _VARIANT,
    "traceparent": pa.string(),
}
HEADER_MODES: Final = ("false", "map", "json")
BODY_FORMATS: Final = ("binary", "string", "amqp")
#: Can be told from the row alone, without looking into the message.
_OUTSIDE: Final = frozenset(
    {"address", "offset", "timestamp", "epoch", "priority", "durable", "size", "protocol", "amqp"}
)
_SECONDS_MAX: Final = 253_402_300_799_999


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The columns of an answer; `schema` is what `columns_of` makes of the others."""

    names: tuple[str, ...]
    schema: pa.Schema
    header_mode: str
    body_format: str


def columns_of(names: Sequence[str], header_mode: str, body_format: str) -> pa.Schema:
    """Return the fields of a view; every name is one of `TYPES`."""
    kinds = {name: TYPES[name] for name in names}
    if header_mode != "map":
        kinds["headers"] = pa.string()
    if body_format == "string":
        kinds["body"] = pa.string()
    return pa.schema([pa.field(name, kinds[name]) for name in names])


class Viewer:
    """Turns stored rows of one stream into a view's columns. One for each reading."""

    __slots__ = ("_address", "_epoch", "_inside", "_reader", "view")

    def __init__(self, view: View, address: str, epoch: int) -> None:
        self.view = view
        self._address = address
        self._epoch = epoch
        self._reader = BlockReader()
        self._inside = any(
            name not in _OUTSIDE and not (name == "body" and view.body_format == "amqp")
            for name in view.names
        )

    def convert(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the view of stored rows (columns offset, timestamp, flags, raw)."""
        if not len(rows) or not self.view.names:
            return _without_values(self.view.schema, len(rows))
        decoded = None
        if self._inside:
            decoded = decode_block(self._reader, rows.column(3), rows.column(2))
        columns = [self._column(name, rows, decoded) for name in self.view.names]
        return pa.record_batch(columns, schema=self.view.schema)

    def _column(self, name: str, rows: pa.RecordBatch, decoded: Decoded | None) -> pa.Array:
        outside = _FROM_ROWS.get(name)
        if outside is not None:
            return outside(rows)
        if name == "body" and self.view.body_format == "amqp":
            return rows.column(3)
        if name == "address":
            return pa.repeat(pa.scalar(self._address), len(rows))
        if name == "epoch":
            return pa.repeat(pa.scalar(self._epoch, pa.int32()), len(rows))
        assert decoded is not None, f"{name} is in no row"
        if name == "body":
            return decoded.bodies if self.view.body_format == "binary" else texts(decoded.bodies)
        if name == "headers" and self.view.header_mode == "map":
            return decoded.column(name, _TEXTS, lambda head: headers_map(head.headers))
        if name == "headers":
            return decoded.column(name, pa.string(), lambda head: headers_json(head.headers))
        return decoded.column(name, TYPES[name], _FROM_HEAD[name])


def _without_values(schema: pa.Schema, count: int) -> pa.RecordBatch:
    """Return a batch that has no rows, or no columns."""
    if not len(schema):
        return pa.RecordBatch.from_struct_array(pa.nulls(count, pa.struct([])))
    return pa.RecordBatch.from_pylist([], schema=schema)


def _stamp(stamp_ms: int | None) -> int | None:
    """Return microseconds; None for a moment that Spark's calendar (years 1 to 9999) has not."""
    if stamp_ms is None or not -_SECONDS_MAX <= stamp_ms <= _SECONDS_MAX:
        return None
    return stamp_ms * 1000


_FROM_HEAD: Final[dict[str, Callable[[Head], object]]] = {
    "message_id": attrgetter("message_id"),
    "subject": attrgetter("subject"),
    "content_type": attrgetter("content_type"),
    "correlation_id": attrgetter("correlation_id"),
    "reply_to": attrgetter("reply_to"),
    "key": attrgetter("key"),
    "ttl_ms": attrgetter("ttl_ms"),
    "created": lambda head: _stamp(head.created_ms),
    "expires": lambda head: _stamp(head.expires_ms),
    "delivery_count": lambda head: min(head.delivery_count, 0x7FFFFFFF),
    "redelivered": lambda head: head.delivery_count > 0,
    "annotations": lambda head: headers_map(head.annotations),
    "properties": lambda head: _variant(head.headers),
    "traceparent": lambda head: _named("traceparent", head.headers, head.annotations),
}


def _variant(headers: Headers) -> dict[str, bytes] | None:
    made = encode_pairs(headers)
    return None if made is None else made._asdict()


def _named(wanted: str, *places: Headers) -> str | None:
    """Return the first value of this name as text; None without one, or for null."""
    for name, value in chain.from_iterable(places):
        if name == wanted:
            first = value[0] if isinstance(value, tuple) else value
            return None if first is None else text(first)
    return None


def _flag(rows: pa.RecordBatch, bit: int) -> pa.Array:
    return pc.not_equal(pc.bit_wise_and(rows.column(2), bit), 0)


_FROM_ROWS: Final[dict[str, Callable[[pa.RecordBatch], pa.Array]]] = {
    "offset": lambda rows: rows.column(0),
    "timestamp": lambda rows: rows.column(1),
    "amqp": lambda rows: rows.column(3),
    "size": lambda rows: pc.binary_length(rows.column(3)),
    "priority": lambda rows: pc.bit_wise_and(rows.column(2), PRIORITY_MASK),
    "durable": lambda rows: _flag(rows, DURABLE),
    "protocol": lambda rows: pc.if_else(_flag(rows, STOMP), "stomp", "amqp"),
}
