"""Rows of files read back as a source's rows, checked against what the table's log says of them.

An executor runs this. It reads the columns that are asked for, of the row groups that the range
touches. Each file is judged: its rows must be as many as the log says, each offset once, rising,
and without a hole where the gateway declared none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyspark_sluicegate.archive.layout import STORED
from pyspark_sluicegate.archive.ranges import Piece
from pyspark_sluicegate.archive.rewriting import damaged, open_parquet
from pyspark_sluicegate.archive.store import Location, telling

#: Rows of a batch: Spark takes about 10,000 at a time.
_BATCH_ROWS = 16_384


def read_pieces(
    pieces: Sequence[Piece], schema: pa.Schema, place: Location
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of parts of files in `schema`, a source's. Raises StoreError."""
    for piece in pieces:
        with open_parquet(place, piece.file) as source, telling(place, piece.file.path):
            try:
                yield from _read(source, piece, schema, place)
            except (pa.ArrowInvalid, EOFError) as error:
                raise damaged(place, piece.file, str(error)) from error


def _read(
    source: pq.ParquetFile, piece: Piece, schema: pa.Schema, place: Location
) -> Iterator[pa.RecordBatch]:
    facts = piece.file
    if source.metadata.num_rows != facts.rows:
        raise damaged(
            place, facts, f"it has {source.metadata.num_rows} rows, the table says {facts.rows}"
        )
    whole = facts.rows == facts.end - facts.first
    columns = [n for n in schema.names if n in STORED and n in source.schema_arrow.names]
    groups = _groups(source, piece)
    expected, rows = piece.start, 0
    for batch in source.iter_batches(
        _BATCH_ROWS, row_groups=groups, columns=list(dict.fromkeys(["offset", *columns]))
    ):
        part = _within(batch, piece)
        if not len(part):
            continue
        offsets = part.column("offset")
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        rising = pc.all(pc.less(offsets.slice(0, len(part) - 1), offsets.slice(1))).as_py()
        if first < expected or rising is False or (whole and last != expected + len(part) - 1):
            raise damaged(place, facts, f"behind offset {expected - 1} come {first} to {last}")
        expected, rows = last + 1, rows + len(part)
        yield _shown(part, facts.address, schema)
    if whole and rows != piece.end - piece.start:
        raise damaged(place, facts, f"{rows} rows were there of {piece.start} to {piece.end - 1}")


def _groups(source: pq.ParquetFile, piece: Piece) -> list[int]:
    """Return the row groups that may have offsets of the piece."""
    index = source.schema_arrow.names.index("offset")
    found = []
    for number in range(source.num_row_groups):
        stats = _offset_stats(source, number, index)
        if stats is None or (stats[0] < piece.end and stats[1] >= piece.start):
            found.append(number)
    return found


def _offset_stats(source: pq.ParquetFile, group: int, index: int) -> tuple[int, int] | None:
    column = source.metadata.row_group(group).column(index)
    if column.path_in_schema != "offset" or not column.is_stats_set:
        return None
    stats = column.statistics
    return (stats.min, stats.max) if stats.has_min_max else None


def _within(batch: pa.RecordBatch, piece: Piece) -> pa.RecordBatch:
    offsets = batch.column("offset")
    if not len(batch):
        return batch
    if offsets[0].as_py() >= piece.start and offsets[-1].as_py() < piece.end:
        return batch
    low = pc.greater_equal(offsets, piece.start)
    return batch.filter(pc.and_(low, pc.less(offsets, piece.end)))


def _shown(batch: pa.RecordBatch, address: str, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch in a source's columns; what an older file lacks is null."""
    columns = []
    for field in schema:
        if field.name == "address":
            columns.append(pa.repeat(pa.scalar(address, field.type), len(batch)))
        elif field.name not in batch.schema.names:
            columns.append(pa.nulls(len(batch), field.type))
        else:
            columns.append(_as(batch.column(field.name), field.type))
    return pa.record_batch(columns, schema=schema)


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    if pa.types.is_binary(column.type) and pa.types.is_string(kind):
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:  # not UTF-8: replaced, as the gateway does
            texts = [
                None if v is None else v.decode("utf-8", "replace") for v in column.to_pylist()
            ]
            return pa.array(texts, kind)
    return column.cast(kind)
