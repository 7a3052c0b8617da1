"""The sink with faults that a test asks for by files in a folder, and a driver that can be killed.

python -m tests.spark.sink_faults URL FOLDER     a streaming query from `in` to `out`

fail-write      the first attempt of a task fails once its stage is whole
stop-before     a driver stands before it commits a batch, and says so by the file `standing`
stop-after      behind it, before Spark writes that down
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from pyspark_sluicegate import DefaultSource
from pyspark_sluicegate.sink import StreamWriter
from pyspark_sluicegate.sink_options import parse_sink_options


class FaultyWriter(StreamWriter):
    """A writer that does what the files in `folder` say."""

    folder: Path

    def write(self, iterator: Iterator[Any]) -> Any:
        written = super().write(iterator)
        context = TaskContext.get()
        assert context is not None
        if (self.folder / "fail-write").exists() and context.attemptNumber() == 0:
            (self.folder / f"failed-{context.partitionId()}").touch()
            raise RuntimeError("the executor fails")
        return written

    def commit(self, messages: list[Any], batchId: int) -> None:
        self._stand("stop-before")
        super().commit(messages, batchId)
        self._stand("stop-after")

    def _stand(self, where: str) -> None:
        if (self.folder / where).exists():
            (self.folder / "standing").touch()
            while True:
                time.sleep(1)


class FaultySource(DefaultSource):
    """The data source `sluicegate-faulty`; its option `faults` is the folder."""

    @classmethod
    def name(cls) -> str:
        return "sluicegate-faulty"

    def streamWriter(self, schema: Any, overwrite: bool) -> FaultyWriter:
        given = dict(self.options)
        folder = Path(given.pop("faults"))
        writer = FaultyWriter(schema, parse_sink_options(given), overwrite=overwrite)
        writer.folder = folder
        return writer


def start(spark: Any, url: str, folder: Path, **options: str) -> Any:
    """Start a query that carries `in` to `out`, 400 rows at a time, and ends with what is there."""
    spark.dataSource.register(FaultySource)
    source = spark.readStream.format("sluicegate").option("url", url).option("address", "in")
    source = source.option("subscription", "carry").option("startingOffsets", "earliest")
    frame = source.option("maxMessagesPerTrigger", "400").option("minPartitions", "2").load()
    sink = frame.select("body").writeStream.format("sluicegate-faulty").option("url", url)
    sink = sink.option("address", "out").option("faults", str(folder)).options(**options)
    sink = sink.option("checkpointLocation", str(folder / "checkpoint"))
    return sink.trigger(availableNow=True).start()


def main(url: str, folder: Path) -> None:
    """Run the query to its end, as a driver of its own."""
    from tests.spark.session import spark_session

    with spark_session("driver") as spark:
        query = start(spark, url, folder)
        query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
