"""The ceiling of Spark's Python API: a data source that yields the same batches from memory.

What a source in Python costs Spark whatever it reads: the batches are there, made once in each
worker, with the columns, the sizes and the number of rows of what a gateway sends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: Rows of a batch: a block of the gateway's streams is cut at 1 MiB.
BATCH_ROWS: Final = 3600
COLUMNS: Final = (
    "address string, offset bigint, timestamp timestamp, message_id string, subject string, "
    "content_type string, correlation_id string, reply_to string, body binary"
)


@cache
def _batch(schema: pa.Schema, size: int) -> pa.RecordBatch:
    count = BATCH_ROWS
    columns = {
        "address": pa.repeat(pa.scalar("bench.spark"), count),
        "offset": pa.array(range(count), pa.int64()),
        "timestamp": pa.repeat(pa.scalar(1_700_000_000_000_000, schema.field(2).type), count),
        "body": pa.array([b"%08d" % n + b"x" * (size - 8) for n in range(count)], pa.binary()),
    }
    return pa.record_batch(
        [columns.get(f.name, pa.nulls(count, f.type)) for f in schema], schema=schema
    )


class _Part(InputPartition):
    def __init__(self, rows: int) -> None:
        self.rows = rows


class MemoryReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Yields `rows` rows of `size` bytes, `cap` a batch, in two tasks."""

    def __init__(self, schema: StructType, rows: int, size: int, cap: int) -> None:
        self._schema = schema
        self._rows, self._size, self._cap = rows, size, cap

    def initialOffset(self) -> dict[str, Any]:
        return {"n": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._cap)

    def prepareForTriggerAvailableNow(self) -> None:
        """All there will be is there."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        step = self._rows if isinstance(limit, ReadAllAvailable) else self._cap
        return {"n": min(start["n"] + step, self._rows)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        count = end["n"] - start["n"]
        return [_Part(count // 2), _Part(count - count // 2)] if count else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Part)
        batch = _batch(to_arrow_schema(self._schema, timezone="UTC"), self._size)
        left = partition.rows
        while left > 0:
            yield batch.slice(0, min(left, len(batch)))
            left -= len(batch)


class MemorySource(DataSource):
    """`format("sluicegate_bench_memory")` with the options `rows`, `size` and `cap`."""

    @classmethod
    def name(cls) -> str:
        return "sluicegate_bench_memory"

    def schema(self) -> str:
        return COLUMNS

    def streamReader(self, schema: StructType) -> MemoryReader:
        rows, size, cap = (int(self.options[name]) for name in ("rows", "size", "cap"))
        return MemoryReader(schema, rows, size, cap)
