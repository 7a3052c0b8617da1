"""Rows of an Arrow batch to AMQP messages, a column at a time. Pure; runs on a thread. Hot.

A message is header, properties, application-properties and one body section. Where all rows of a
slice share what stands before the body, that is made once and each message is one splice; a column
that differs costs its rows a piece of their own.
"""

from __future__ import annotations

import json
import math
import struct
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from gateway.model.amqp_types import (
    NODES_MAX,
    AmqpMap,
    Described,
    UByte,
    UInt,
    ULong,
    Value,
    encode,
)
from gateway.model.identity import DUPLICATE_BYTES, has_duplicate_id
from gateway.model.message import DEFAULT_PRIORITY, DURABLE, EXPIRES, GROUPED, IDENTIFIED
from gateway.model.run import MixedRun, Run
from gateway.model.sections import APPLICATION_PROPERTIES, HEADER
from gateway.sink.form import Form

#: Column -> its place among the properties [AMQP 3.2.4], and the constructor of its short form.
_PROPERTIES: Final = {
    "message_id": (0, 0xA1),
    "subject": (3, 0xA1),
    "reply_to": (4, 0xA1),
    "correlation_id": (5, 0xA1),
    "content_type": (6, 0xA3),
    "timestamp": (9, 0x83),
    "key": (10, 0xA1),
}
_NULL: Final = b"\x40"
#: Headers of one row: as many as are read of one map of AMQP [`gateway.model.amqp_decode`].
HEADERS_MAX: Final = (NODES_MAX - 1) // 2
#: Of headers that are remembered, a thousand of them.
_REMEMBERED_BYTES: Final = 4096
#: What a ttl can say [AMQP 3.2.1]; longer ones say this much.
_TTL_MAX: Final = (1 << 32) - 1
_u32 = struct.Struct(">I").pack
_i64 = struct.Struct(">q").pack

#: One for all rows, or one for each.
Column = bytes | list[bytes]
Numbers = int | list[int]


class Part:
    """The messages of one address, in the order of their rows.

    Attributes:
        flags, ttls: see `gateway.model.message`, and ms (0: for ever); one for all or one for each.
    """

    __slots__ = ("address", "bodies", "flags", "ttls")

    def __init__(
        self, address: str, bodies: Sequence[bytes], flags: Numbers, ttls: Numbers
    ) -> None:
        self.address = address
        self.bodies = bodies
        self.flags = flags
        self.ttls = ttls

    def run(self, now_ms: int) -> Run | MixedRun:
        """Return the messages as they are sent now: a ttl counts from here."""
        flags, ttls = self.flags, self.ttls
        if isinstance(flags, int) and isinstance(ttls, int):
            return Run(self.bodies, flags, now_ms + ttls if ttls else 0)
        count = len(self.bodies)
        each = [flags] * count if isinstance(flags, int) else flags
        ends = [ttls] * count if isinstance(ttls, int) else ttls
        return MixedRun(self.bodies, each, [now_ms + ttl if ttl else 0 for ttl in ends])

    def part(self, start: int, stop: int) -> Part:
        """Return some neighbours."""
        flags, ttls = self.flags, self.ttls
        return Part(
            self.address,
            self.bodies[start:stop],
            flags if isinstance(flags, int) else flags[start:stop],
            ttls if isinstance(ttls, int) else ttls[start:stop],
        )


def encode_rows(batch: pa.RecordBatch, form: Form) -> list[Part]:
    """Return the messages of the rows of a batch, by address; those of one stay in their order."""
    if form.address is not None:
        return [_encode(form.address, batch, form)]
    addresses = batch.column("address")
    if is_one_value(addresses):
        return [_encode(addresses[0].as_py(), batch, form)]
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, address in enumerate(addresses.to_pylist()):
        places[address].append(place)
    return [
        _encode(address, batch.take(pa.array(rows, pa.int32())), form)
        for address, rows in places.items()
    ]


def _encode(address: str, batch: pa.RecordBatch, form: Form) -> Part:
    names, count = form.names, batch.num_rows
    priorities = numbers(batch, "priority", names, DEFAULT_PRIORITY)
    durables = numbers(batch, "durable", names, 1)
    ttls = numbers(batch, "ttl_ms", names, 0)
    header: Column
    flags: Numbers
    if isinstance(priorities, int) and isinstance(durables, int) and isinstance(ttls, int):
        header = header_section(durables, priorities, ttls)
        flags = _flags(durables, priorities, ttls)
    else:
        each = list(zip(*(_spread(n, count) for n in (durables, priorities, ttls)), strict=True))
        header = [header_section(*row) for row in each]
        flags = [_flags(*row) for row in each]
    head = _joined([header, _properties(batch, names), headers_sections(batch, names)], count)
    bodies = _spliced(head, batch.column("body"), is_text=form.is_text)
    if "key" in names and batch.column("key").null_count < count:
        grouped = batch.column("key").is_valid().to_pylist()
        flags = [
            one | (GROUPED if has else 0)
            for one, has in zip(_spread(flags, count), grouped, strict=True)
        ]
    if "headers" in names and DUPLICATE_BYTES in (
        head if isinstance(head, bytes) else b"".join(head)
    ):
        flags = [
            one | (IDENTIFIED if has_duplicate_id(body) else 0)
            for one, body in zip(_spread(flags, count), bodies, strict=True)
        ]
    return Part(address, bodies, _merged(flags), ttls)


def _flags(durable: int, priority: int, ttl: int) -> int:
    return priority | (DURABLE if durable else 0) | (EXPIRES if ttl else 0)


def _merged(flags: Numbers) -> Numbers:
    """Return flags as one number where all are the same."""
    if isinstance(flags, int) or len(set(flags)) > 1:
        return flags
    return flags[0]


def _spread(found: Numbers, count: int) -> list[int]:
    return [found] * count if isinstance(found, int) else found


# ---- columns


def is_one_value(column: pa.Array) -> bool:
    """Whether all rows have the same, or all have none; of text, bytes, numbers and times."""
    if not len(column):
        return True
    if column.null_count:
        return bool(column.null_count == len(column))
    return bool(pc.all(pc.equal(column, column[0])).as_py())


def numbers(batch: pa.RecordBatch, name: str, names: frozenset[str], default: int) -> Numbers:
    """Return a column of numbers or booleans; null is the default."""
    if name not in names:
        return default
    column = batch.column(name)
    if is_one_value(column):
        value = column[0].as_py() if len(column) else None
        return default if value is None else int(value)
    return [default if value is None else int(value) for value in column.to_pylist()]


def raw_items(column: pa.Array) -> list[bytes]:
    """Return the bytes of each item of a binary or string column; of null, none."""
    if not len(column):
        return []
    _, offsets, data = column.buffers()
    at = column.offset
    ends = memoryview(offsets).cast("i")[at : at + len(column) + 1].tolist()
    first, last = ends[0], ends[-1]
    if data is None or first == last:
        return [b""] * len(column)
    raw = data.slice(first, last - first).to_pybytes()
    return [raw[start - first : end - first] for start, end in pairwise(ends)]


# ---- sections


@lru_cache(maxsize=1024)
def header_section(durable: int, priority: int, ttl: int) -> bytes:
    """Return a header [AMQP 3.2.1]; what has its default value there is left out."""
    fields: list[Value] = [
        True if durable else None,
        UByte(priority) if priority != DEFAULT_PRIORITY else None,
        UInt(min(ttl, _TTL_MAX)) if ttl else None,
    ]
    while fields and fields[-1] is None:
        fields.pop()
    return encode(Described(ULong(HEADER), fields)) if fields else b""


def sized(code: int, raw: bytes) -> bytes:
    """Return a value of variable width; `code` is the constructor with a size of one byte."""
    if len(raw) < 256:
        return bytes((code, len(raw))) + raw
    return bytes((code | 0x10,)) + _u32(len(raw)) + raw


def _properties(batch: pa.RecordBatch, names: frozenset[str]) -> Column:
    there = [
        name
        for name in _PROPERTIES
        if name in names and batch.column(name).null_count < batch.num_rows
    ]
    if not there:
        return b""
    columns: list[Column] = [_NULL] * (_PROPERTIES[there[-1]][0] + 1)
    for name in there:
        place, code = _PROPERTIES[name]
        columns[place] = _property(batch.column(name), code)
    count = len(columns)
    content = _joined(columns, batch.num_rows)
    if isinstance(content, bytes):
        return _list_section(content, count)
    return [_list_section(one, count) for one in content]


def _property(column: pa.Array, code: int) -> Column:
    if is_one_value(column):
        return _property_values(column.slice(0, 1), code)[0]
    return _property_values(column, code)


def _property_values(column: pa.Array, code: int) -> list[bytes]:
    if code == 0x83:
        times = column.cast(pa.int64()).to_pylist()
        return [_NULL if us is None else b"\x83" + _i64(us // 1000) for us in times]
    items = [sized(code, raw) for raw in raw_items(column)]
    if column.null_count:
        there = column.is_valid().to_pylist()
        return [item if has else _NULL for item, has in zip(items, there, strict=True)]
    return items


def _list_section(content: bytes, count: int) -> bytes:
    if len(content) < 255:
        return b"\x00\x53\x73\xc0" + bytes((len(content) + 1, count)) + content
    return b"\x00\x53\x73\xd0" + _u32(len(content) + 4) + _u32(count) + content


def headers_sections(batch: pa.RecordBatch, names: frozenset[str]) -> Column:
    """Return application-properties. Raises ValueError for a text that is no object of scalars."""
    if "headers" not in names:
        return b""
    column = batch.column("headers")
    if column.null_count == len(column):
        return b""
    if pa.types.is_string(column.type):
        if is_one_value(column):
            return json_section(column[0].as_py())
        make_json = _json_section if _is_short(column) else json_section
        return [make_json(text) for text in column.to_pylist()]
    make = _map_section if _is_short(column) else map_section
    return [make(None if pairs is None else tuple(pairs)) for pairs in column.to_pylist()]


def entries_of(headers: pa.MapArray) -> pa.Array:
    """Return how many entries each map has."""
    ends = headers.offsets
    return pc.subtract(ends.slice(1), ends.slice(0, len(ends) - 1))


def _is_short(headers: pa.Array) -> bool:
    """Whether the headers of each row are small enough to be remembered: they repeat often."""
    if pa.types.is_string(headers.type):
        return bool(pc.max(pc.binary_length(headers)).as_py() <= _REMEMBERED_BYTES)
    first, last = headers.offsets[0].as_py(), headers.offsets[-1].as_py()
    texts = [part.slice(first, last - first) for part in (headers.keys, headers.items)]
    most = max(pc.max(pc.binary_length(text)).as_py() or 0 for text in texts)
    return bool(most * 2 * pc.max(entries_of(headers)).as_py() <= _REMEMBERED_BYTES)


def json_section(text: str | None) -> bytes:
    """Return application-properties of a JSON object. Raises ValueError for anything else."""
    if text is None:
        return b""
    try:
        found = json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("is no JSON object")  # noqa: TRY004 - a value of a row
    if len(found) > HEADERS_MAX:
        raise ValueError(f"has more than {HEADERS_MAX} headers")
    for name, value in found.items():
        if isinstance(value, dict | list):
            text = f"has an object or array as {name[:60]!a}; a header is one value"
            raise ValueError(text)  # noqa: TRY004
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"has a number as {name[:60]!a} that is too large")
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise ValueError(f"has a number as {name[:60]!a} that does not fit 64 bits")
    return map_section(tuple(found.items()))


def map_section(pairs: tuple[tuple[str, Any], ...] | None) -> bytes:
    """Return application-properties of a map's entries."""
    if not pairs:
        return b""
    return encode(Described(ULong(APPLICATION_PROPERTIES), AmqpMap(pairs)))


_json_section = lru_cache(maxsize=1024)(json_section)
_map_section = lru_cache(maxsize=1024)(map_section)


def _no_number(text: str) -> float:
    raise ValueError(f"has {text}, which is no number of JSON")


# ---- messages


def _joined(columns: Sequence[Column], count: int) -> Column:
    """Return pieces behind one another, row by row."""
    if all(isinstance(column, bytes) for column in columns):
        return b"".join(columns)  # type: ignore[arg-type]
    spread = [[one] * count if isinstance(one, bytes) else one for one in columns if one]
    return [b"".join(pieces) for pieces in zip(*spread, strict=True)]


class _Fronts(dict[int, bytes]):
    """What stands before the bytes of a body, by their number."""

    def __init__(self, head: bytes, *, is_text: bool) -> None:
        super().__init__()
        self._head = head + (b"\x00\x53\x77" if is_text else b"\x00\x53\x75")
        self._code = 0xA1 if is_text else 0xA0

    def __missing__(self, size: int) -> bytes:
        short = size < 256
        length = bytes((self._code, size)) if short else bytes((self._code | 0x10,)) + _u32(size)
        front = self[size] = self._head + length
        return front


def _spliced(head: Column, column: pa.Array, *, is_text: bool) -> list[bytes]:
    items = raw_items(column)
    if isinstance(head, bytes):
        fronts = _Fronts(head, is_text=is_text)
        return [fronts[len(item)] + item for item in items]
    fronts = _Fronts(b"", is_text=is_text)
    return [one + fronts[len(item)] + item for one, item in zip(head, items, strict=True)]
