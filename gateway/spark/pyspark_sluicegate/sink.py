"""What Spark sees of the sink: a writer of streams and one of batches.

Spark makes a writer anew for each batch, runs copies of it in tasks, and yet another one to commit:

    write     a task's rows to a stage at the gateway, by (producer, batch, partition, attempt)
    commit    the gateway publishes the stages of the tasks that Spark counts, exactly once
    abort     the gateway forgets the stages

What a writer learns in one place is not known in another, but for the messages that `write`
returns. A batch of a stream is known by the query's id, which its checkpoint keeps, and its number.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pyspark_sluicegate.options import Options, SluicegateError
from pyspark_sluicegate.sink_options import check_columns
from pyspark_sluicegate.staging import Batch, Staged

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

#: Under these a task finds the query that it works for, and its batch.
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"

_log = logging.getLogger("pyspark_sluicegate")


@dataclass
class Written(WriterCommitMessage):
    """What a task has staged, and for whom."""

    producer: str
    batch: int
    staged: Staged


class _Writer:
    """What both writers do."""

    def __init__(self, schema: StructType, options: Options, *, overwrite: bool) -> None:
        if overwrite:
            raise SluicegateError(
                "Messages cannot be overwritten; write in mode 'append' (outputMode 'append', or "
                "'update' for a stream)."
            )
        check_columns({f.name: f.dataType.simpleString() for f in schema.fields}, options)
        self._options = options

    def _stage(self, rows: Iterator[pa.RecordBatch], producer: str, batch: int) -> Written:
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        to = Batch(self._options, producer, batch)
        # Spark's own numbers of attempts begin anew with each driver.
        attempt = uuid.uuid4().hex  # noqa: TID251 - it runs in Spark's process
        try:
            staged = to.stage(rows, partition, attempt)
        except BaseException:
            _forget(to, Staged(partition, attempt, 0))
            raise
        return Written(producer, batch, staged)

    def _commit(self, messages: Sequence[WriterCommitMessage | None], *, passing: bool) -> None:
        written = [one for one in messages if isinstance(one, Written)]
        if written:
            first = written[0]
            batch = Batch(self._options, first.producer, first.batch)
            batch.commit([one.staged for one in written], passing=passing)

    def _abort(self, messages: Iterable[WriterCommitMessage | None]) -> None:
        for one in messages:
            if isinstance(one, Written):
                _forget(Batch(self._options, one.producer, one.batch), one.staged)


def _forget(batch: Batch, stage: Staged) -> None:
    """Delete a stage; one that cannot be asked for expires by itself."""
    try:
        batch.abort(stage)
    except SluicegateError as error:
        _log.warning("a stage is left for the gateway to delete: %s", error)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes one batch of a streaming query."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY) if context is not None else None
        batch = context.getLocalProperty(_BATCH) if context is not None else None
        if not query or batch is None:
            raise SluicegateError("This task knows neither its query nor its batch.")
        return self._stage(iterator, self._options["producerId"] or query, int(batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._commit(messages, passing=False)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._abort(messages)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes one DataFrame; exactly once by (producerId, batchId), else at least once."""

    def __init__(self, schema: StructType, options: Options, *, overwrite: bool) -> None:
        super().__init__(schema, options, overwrite=overwrite)
        self._once = options["batchId"] is None
        self._producer = options["producerId"]
        if self._once:
            # A name that nobody else has, made on the driver: tasks get it with the writer.
            self._producer = f"{self._producer or 'batch'}-{uuid.uuid4().hex}"  # noqa: TID251

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._stage(iterator, self._producer, self._options["batchId"] or 0)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages, passing=self._once)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(messages)
