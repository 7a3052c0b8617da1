"""A stage judged before it is kept, so that nothing of its batch is published when a row cannot be.

Pure; runs on a thread. Every refusal names the row, counted from 0 in its partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from gateway.broker.pressure.demand import Demand
from gateway.model.address import check_not_ours, parse_destination
from gateway.model.errors import Code, RefusedError
from gateway.sink.encoding import HEADERS_MAX, encode_rows, entries_of, headers_sections
from gateway.sink.form import Form, read_form
from gateway.sink.framing import ArrowStage

#: Addresses of one stage: each is looked up before its batch is published.
ADDRESSES_MAX: Final = 10_000
#: Rows and bytes that are judged at once: values of a column become objects of Python's.
_ROWS: Final = 8192
_BYTES: Final = 4 << 20
#: The headers of one row as JSON: what is read at once takes some twenty times as much memory.
HEADERS_BYTES_MAX: Final = 4 << 20
#: What a message has beside the values of its columns, at most; headers are counted apart.
_FRAME_BYTES: Final = 128
_TEXTS: Final = ("key", "message_id", "subject", "content_type", "correlation_id", "reply_to")


@dataclass(slots=True)
class Judged:
    """What a stage was found to hold: rows, and what is for each address."""

    rows: int = 0
    addresses: dict[str, Demand] = field(default_factory=dict)


def judge_stage(stage: ArrowStage, message_max: int) -> Judged:
    """Read a stage to its end. Raises RefusedError (bad-value, bad-name, too-large)."""
    form = read_form(stage.schema)
    found = Judged()
    if form.address is not None:
        _check_address(form.address, 0, found)
    for _, batch in stage.batches():
        for part in _parts(batch):
            judge_batch(part, form, found, message_max)
            found.rows += part.num_rows
    return found


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch into what can be judged at once, in order."""
    rest = [batch.slice(first, _ROWS) for first in range(0, batch.num_rows, _ROWS)][::-1]
    while rest:
        part = rest.pop()
        if part.num_rows == 1 or part.nbytes <= _BYTES:
            yield part
        else:
            half = part.num_rows // 2
            rest += [part.slice(half), part.slice(0, half)]


def judge_batch(batch: pa.RecordBatch, form: Form, found: Judged, message_max: int) -> None:
    """Judge the next batch of a stage and count its rows in `found`. Raises RefusedError."""
    if not batch.num_rows:
        return
    _check_not_null(batch, "body", found.rows)
    if form.address is None:
        _check_not_null(batch, "address", found.rows)
        _check_addresses(batch.column("address"), found)
    _count(batch, form, found)
    _check_range(batch, "priority", form, found.rows, (0, 9))
    _check_range(batch, "ttl_ms", form, found.rows, (0, 1 << 62))
    if "content_type" in form.names:
        plain = pc.string_is_ascii(batch.column("content_type"))
        _refuse_first(pc.invert(plain), found.rows, "content_type", "is no ASCII text")
    if "headers" in form.names:
        _check_headers(batch, form, found.rows)
    _check_sizes(batch, form, found.rows, message_max)


def _check_not_null(batch: pa.RecordBatch, name: str, first: int) -> None:
    column = batch.column(name)
    if column.null_count:
        _refuse_first(column.is_null(), first, name, "is null; it needs a value")


def _check_addresses(column: pa.StringArray, found: Judged) -> None:
    for text in column.unique().to_pylist():
        if text not in found.addresses:
            _check_address(text, found.rows + pc.index(column, text).as_py(), found)


def _check_address(text: str, row: int, found: Judged) -> None:
    try:
        check_not_ours(parse_destination(text).address)
    except RefusedError as error:
        raise RefusedError.of(error.refusal.code, f"Row {row}: {error.refusal.text}") from None
    if len(found.addresses) >= ADDRESSES_MAX:
        raise RefusedError.of(
            Code.TOO_MANY,
            f"Row {row}: its address is number {ADDRESSES_MAX + 1} of this partition, and "
            f"{ADDRESSES_MAX} are possible. Use more partitions, or smaller batches.",
        )
    found.addresses[text] = Demand(row)


def _count(batch: pa.RecordBatch, form: Form, found: Judged) -> None:
    """Count what is for each address."""
    sizes = pc.cast(pc.binary_length(batch.column("body")), pa.int64())
    if form.address is not None:
        rows, most = batch.num_rows, pc.max(sizes).as_py()
        demand = found.addresses.setdefault(form.address, Demand(0))
        demand.add(rows, pc.sum(sizes).as_py(), most)
        return
    table = pa.table({"address": batch.column("address"), "size": sizes})
    wanted = [("size", "count"), ("size", "sum"), ("size", "max")]
    for one in table.group_by("address").aggregate(wanted).to_pylist():
        demand = found.addresses[one["address"]]
        demand.add(one["size_count"], one["size_sum"], one["size_max"])


def _check_range(
    batch: pa.RecordBatch, name: str, form: Form, first: int, bounds: tuple[int, int]
) -> None:
    if name not in form.names:
        return
    low, high = bounds
    column = batch.column(name).cast(pa.int64())
    outside = pc.or_(pc.less(column, low), pc.greater(column, high))
    _refuse_first(outside, first, name, f"is not from {low} to {high}", column)


def _refuse_first(
    bad: pa.BooleanArray, first: int, name: str, rule: str, values: pa.Array | None = None
) -> None:
    """Raise RefusedError (bad-value) for the first row that is bad."""
    place = pc.index(bad, True).as_py()
    if place >= 0:
        shown = "" if values is None else f" ({values[place].as_py()})"
        raise RefusedError.of(
            Code.BAD_VALUE, f"Row {first + place}: the column {name!r}{shown} {rule}."
        )


def _check_headers(batch: pa.RecordBatch, form: Form, first: int) -> None:
    column = batch.column("headers")
    if pa.types.is_map(column.type):
        many = pc.greater(entries_of(column), HEADERS_MAX)
        _refuse_first(many, first, "headers", f"has more than {HEADERS_MAX} headers")
    else:
        large = pc.greater(pc.binary_length(column), HEADERS_BYTES_MAX)
        _refuse_first(large, first, "headers", f"is longer than {HEADERS_BYTES_MAX} bytes")
    try:
        headers_sections(batch, form.names)
    except ValueError:
        for place in range(batch.num_rows):
            try:
                headers_sections(batch.slice(place, 1), form.names)
            except ValueError as error:
                raise RefusedError.of(
                    Code.BAD_VALUE, f"Row {first + place}: the column 'headers' {error}."
                ) from None
        raise


def _check_sizes(batch: pa.RecordBatch, form: Form, first: int, message_max: int) -> None:
    """Refuse a message that is too large; all are made only where one may be."""
    names = [name for name in _TEXTS if name in form.names]
    sizes = [pc.max(pc.binary_length(batch.column(name))).as_py() or 0 for name in ["body", *names]]
    most = sum(sizes) + _FRAME_BYTES
    if most <= message_max and ("headers" not in form.names or batch.nbytes + most <= message_max):
        return
    for place in range(batch.num_rows):
        (part,) = encode_rows(batch.slice(place, 1), form)
        size = len(part.bodies[0])
        if size > message_max:
            raise RefusedError.of(
                Code.TOO_LARGE,
                f"Row {first + place}: its message for {part.address!r} has {size} bytes, and "
                f"max-message-size is {message_max} (sink.max-message-size).",
            )
