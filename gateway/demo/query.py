"""The demo's Spark query: `readStream.format("sluicegate")`, one aggregation, the totals so far.

At the end the totals go back to the gateway by `write.format("sluicegate")`.

Runs Spark in local mode inside this process; what Java writes to standard error goes to a file.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from gateway.demo.orders import ADDRESS, SCHEMA, TOTALS, Total
from gateway.trial.java import spark_environment
from gateway.trial.scratch import importing_environment

SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
}


class TotalsQuery:
    """A running query and the totals that its last micro-batch came to.

    Attributes:
        totals: by product.
        batches: micro-batches so far.
    """

    def __init__(self, spark: SparkSession, url: str, checkpoint: Path) -> None:
        """Start the query over the address' whole stream."""
        self.totals: dict[str, Total] = {}
        self.batches = 0
        self._spark = spark
        self._url = url
        orders = (
            spark.readStream.format("sluicegate")
            .option("url", url)
            .option("address", ADDRESS)
            .option("subscription", "demo")
            .option("startingOffsets", "earliest")
            .load()
        )
        self._query: StreamingQuery = (
            orders.select(f.from_json(f.col("body").cast("string"), SCHEMA).alias("order"))
            .groupBy("order.product")
            .agg(
                f.count("*").alias("orders"),
                f.sum("order.pieces").alias("pieces"),
                f.sum("order.cents").alias("cents"),
            )
            .writeStream.outputMode("complete")
            .option("checkpointLocation", str(checkpoint))
            .foreachBatch(self._keep)
            .start()
        )

    def _keep(self, batch: DataFrame, _number: int) -> None:
        self.totals = {
            str(row["product"]): Total(
                orders=row["orders"], pieces=row["pieces"] or 0, cents=row["cents"] or 0
            )
            for row in batch.collect()
        }
        self.batches += 1

    def orders(self) -> int:
        """Return how many orders are in the totals."""
        return sum(total.orders for total in self.totals.values())

    def failure(self) -> str | None:
        """Return why the query has ended, None while it runs."""
        if error := self._query.exception():
            return str(error)
        return None if self._query.isActive else "it ended without an error"

    def finish(self) -> None:
        """Take in all that is there by now, then stop."""
        self._query.processAllAvailable()
        self._query.stop()

    def send_back(self) -> None:
        """Write the totals to an address, a message for each product."""
        rows = [
            Row(product=name, orders=one.orders, pieces=one.pieces, cents=one.cents)
            for name, one in self.totals.items()
        ]
        frame = self._spark.createDataFrame(rows).coalesce(1)
        (
            frame.select(f.to_json(f.struct("*")).alias("body"), f.col("product").alias("subject"))
            .write.format("sluicegate")
            .mode("append")
            .option("url", self._url)
            .option("address", TOTALS)
            # By these the gateway knows the batch, should Spark write it again.
            .option("producerId", "demo")
            .option("batchId", "0")
            .save()
        )


@contextmanager
def spark_session(log: Path) -> Iterator[SparkSession]:
    """Run Spark in local mode; raises NoJavaError where there is no Java for it."""
    os.environ.update(spark_environment(importing_environment()))
    make_discoverable()
    builder = SparkSession.builder.master("local[2]").appName("sluicegate-demo")
    with standard_error_to(log):
        for key, value in SETTINGS.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def make_discoverable() -> None:
    """Let Spark find the data source in a checkout that is not installed.

    Spark looks for top-level modules called `pyspark_...` on the path of its Python processes; an
    installed Sluicegate has one there.
    """
    if importlib.util.find_spec("pyspark_sluicegate") is not None:
        return
    folder = str(Path(__file__).resolve().parents[1] / "spark")
    sys.path.append(folder)
    os.environ["PYTHONPATH"] = os.pathsep.join([os.environ.get("PYTHONPATH", ""), folder])


@contextmanager
def standard_error_to(log: Path) -> Iterator[None]:
    """Send standard error, also of processes started meanwhile, to a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
