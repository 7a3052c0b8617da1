"""Rows of one stream to Parquet files of a table, each of one day and of about one size.

A task runs this on an executor. What it has written is nothing until the driver commits it: a file
of a task that failed, or of a batch that was not needed, is an orphan, and the next cleaning
removes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyspark_sluicegate.archive.layout import FileFacts, make_path
from pyspark_sluicegate.archive.store import Location, telling

#: Rows are pruned by row groups: smaller ones are read with less beside them, larger ones pack
#: better. A group ends at either bound.
GROUP_ROWS: Final = 131_072
GROUP_BYTES: Final = 16 << 20
#: Columns whose values recur; a dictionary of the others is built and thrown away.
_RECURRING: Final = [
    "stream", "epoch", "subject", "content_type", "reply_to", "key", "priority", "ttl_ms",
    "durable", "redelivered", "delivery_count", "protocol", "headers.key_value.key",
    "headers.key_value.value", "annotations.key_value.key", "annotations.key_value.value",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The range of one stream that is written, and how.

    Attributes:
        start: rows of [start, end) of life `epoch` come, each once, in order.
        schema: of the files (`layout.file_schema`).
        file_bytes: a file that has reached this size is closed.
        compression: of Parquet: `zstd`, `snappy` or `none`.
    """

    gateway: str
    address: str
    stream: str
    epoch: int
    start: int
    end: int
    schema: pa.Schema
    file_bytes: int
    compression: str


class _File:
    """A file while it is written."""

    def __init__(self, place: Location, target: Target, first: int, day: str | None) -> None:
        self.first = first
        self.day = day
        self.rows = 0
        self.low: int | None = None
        self.high: int | None = None
        self.earliest: int | None = None
        self.latest: int | None = None
        self._place = place
        self._target = target
        self._group: list[pa.RecordBatch] = []
        self._group_rows = self._group_bytes = 0
        # On disk: a worker has little memory, and the name tells the end, which is known last.
        self._spool = NamedTemporaryFile(prefix="sluicegate-", suffix=".parquet")  # noqa: SIM115
        self._sink = pa.OSFile(self._spool.name, "wb")
        self._writer = pq.ParquetWriter(
            self._sink,
            target.schema,
            compression=target.compression,
            use_dictionary=[n for n in _RECURRING if n.partition(".")[0] in target.schema.names],
            write_statistics=["epoch", "offset", "timestamp"],
        )

    @property
    def size(self) -> int:
        return int(self._sink.tell()) + self._group_bytes

    def add(self, rows: pa.RecordBatch) -> None:
        self._group.append(rows)
        self._group_rows += len(rows)
        self._group_bytes += rows.nbytes
        self.rows += len(rows)
        if self.low is None:
            self.low = rows.column("offset")[0].as_py()
        self.high = rows.column("offset")[-1].as_py()
        bounds = pc.min_max(rows.column("timestamp").cast(pa.int64()))
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        if low is not None:
            self.earliest = low if self.earliest is None else min(self.earliest, low)
            self.latest = high if self.latest is None else max(self.latest, high)
        if self._group_rows >= GROUP_ROWS or self._group_bytes >= GROUP_BYTES:
            self._end_group()

    def _end_group(self) -> None:
        if self._group:
            table = pa.Table.from_batches(self._group, self._target.schema)
            self._writer.write_table(table, row_group_size=max(len(table), 1))
        self._group, self._group_rows, self._group_bytes = [], 0, 0

    def close(self, end: int, nonce: str, *, lost: bool = False) -> FileFacts:
        """Write the file to the store; returns its facts, with the range up to `end`."""
        store = self._place.open()
        from obstore import put  # noqa: PLC0415 - an extra

        self._end_group()
        self._writer.close()
        size = int(self._sink.tell())
        self._sink.close()
        target = self._target
        span = (target.epoch, self.first, end)
        path = make_path(target.gateway, target.address, self.day, span, nonce=nonce, lost=lost)
        with self._spool, telling(self._place, path):
            put(store, path, Path(self._spool.name))
        return FileFacts(
            path=path,
            size=size,
            gateway=target.gateway,
            address=target.address,
            date=self.day,
            stream=target.stream,
            epoch=target.epoch,
            first=self.first,
            end=end,
            rows=self.rows,
            lost=lost,
            low=self.low,
            high=self.high,
            earliest=self.earliest,
            latest=self.latest,
        )


def write_range(
    batches: Iterable[pa.RecordBatch], target: Target, place: Location, nonce: Callable[[], str]
) -> Iterator[FileFacts]:
    """Write the rows of a range; yields each file's facts when the store has it.

    The files' ranges cover [start, end) without a gap: offsets without a row go with the file
    before them. `nonce` makes the name of each file the only one of its kind. Raises StoreError.
    """
    current: _File | None = None
    for batch in batches:
        for day, rows in _by_day(_stored(batch, target)):
            start = target.start
            if current is not None and (current.day != day or current.size >= target.file_bytes):
                start = int(rows.column("offset")[0].as_py())
                yield current.close(start, nonce())
                current = None
            current = current or _File(place, target, start, day)
            current.add(rows)
    if current is None:
        current = _File(place, target, target.start, None)
    yield current.close(target.end, nonce())


def write_loss(target: Target, place: Location, nonce: str) -> FileFacts:
    """Write the file that says that [start, end) was gone; returns its facts."""
    return _File(place, target, target.start, None).close(target.end, nonce, lost=True)


def _stored(batch: pa.RecordBatch, target: Target) -> pa.RecordBatch:
    """Return the batch in the files' columns."""
    columns: dict[str, Any] = {"stream": pa.repeat(pa.scalar(target.stream), len(batch))}
    for name in target.schema.names:
        if name != "stream":
            kind = target.schema.field(name).type
            known = name in batch.schema.names
            columns[name] = batch.column(name) if known else pa.nulls(len(batch), kind)
    return pa.record_batch([columns[n] for n in target.schema.names], schema=target.schema)


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the batch in runs of one UTC day; days are rarely more than one."""
    if not len(batch):
        return
    days = batch.column("timestamp").cast(pa.date32())
    place = 0
    while place < len(batch):
        rest = days.slice(place)
        other = pc.index(pc.not_equal(rest, rest[0]), value=True).as_py()
        count = len(rest) if other < 0 else other
        yield rest[0].as_py().isoformat(), batch.slice(place, count)
        place += count
