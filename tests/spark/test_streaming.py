"""Spark itself over a real server process: exactly once, restarts, several tasks, types."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.session import STARTS, STARVED, run_to_its_end, spark_session
from tests.spark.support import Server

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180), pytest.mark.xdist_group("spark")]
pyspark = pytest.importorskip("pyspark")


@pytest.fixture(scope="module")
def spark(spark_environment: dict[str, str]) -> Iterator[Any]:
    with spark_session("sluicegate-tests", spark_sql_session_timeZone="Asia/Tokyo") as session:
        yield session


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("streams"))
    yield made
    made.kill()


class Sink:
    """What foreachBatch got: (offset, body) by batch; `fail_at` fails one batch once."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.batches: dict[int, list[tuple[int, bytes]]] = {}
        self.partitions: list[int] = []
        self.fail_at = fail_at

    def __call__(self, frame: Any, batch: int) -> None:
        self.partitions.append(frame.rdd.getNumPartitions())
        rows = [(row.offset, bytes(row.body)) for row in frame.select("offset", "body").collect()]
        if batch == self.fail_at:
            self.fail_at = None
            raise RuntimeError("the sink fails")
        self.batches[batch] = rows

    @property
    def rows(self) -> list[tuple[int, bytes]]:
        return sorted(row for rows in self.batches.values() for row in rows)


def numbered(count: int, start: int = 0) -> list[tuple[int, bytes]]:
    return [(i, b"%d" % i) for i in range(start, start + count)]


def load(spark: Any, server: Server, address: str, **options: str) -> Any:
    reader = spark.readStream.format("sluicegate").option("url", server.url)
    reader = reader.option("address", address).option("subscription", f"sub-{address}")
    return reader.option("startingOffsets", "earliest").options(**options).load()


def run(frame: Any, sink: Sink, checkpoint: Path) -> Any:
    writer = frame.writeStream.foreachBatch(sink).trigger(availableNow=True)
    return run_to_its_end(writer.option("checkpointLocation", str(checkpoint)).start, 90)


def test_available_now_in_capped_batches_of_several_tasks_and_goes_on_after_a_restart(
    spark: Any, server: Server, tmp_path: Path
) -> None:
    server.make("orders")
    server.fill("orders", 2500)
    server.fill("orders", 500, "amqp")
    options = {"maxMessagesPerTrigger": "1200", "minPartitions": "3"}
    sink = Sink()
    run(load(spark, server, "orders", **options), sink, tmp_path)
    assert [len(rows) for rows in sink.batches.values()] == [1200, 1200, 600]
    assert sink.partitions == [3, 3, 3]
    assert sink.rows == numbered(3000)
    # The last batch is never committed by Spark; its next look releases it.
    assert server.floor("orders", "sub-orders") == 3000

    server.fill("orders", 700)
    again = Sink()
    run(load(spark, server, "orders", **options), again, tmp_path)
    assert again.rows == numbered(700, 3000)
    assert server.floor("orders", "sub-orders") == 3700


def test_a_failed_batch_comes_again_with_the_same_rows(
    spark: Any, server: Server, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    server.make("again")
    server.fill("again", 1000)
    sink = Sink(fail_at=1)
    frame = load(spark, server, "again", maxMessagesPerTrigger="400")
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        run(frame, sink, tmp_path)
    assert server.floor("again", "sub-again") <= 400
    server.fill("again", 50)
    run(load(spark, server, "again", maxMessagesPerTrigger="900"), sink, tmp_path)
    assert len(sink.batches[1]) == 400, "the batch keeps the range that was written ahead"
    assert sink.rows == numbered(1050)


def test_aggregation_types_and_headers(spark: Any, server: Server, tmp_path: Path) -> None:
    from pyspark.sql import functions as f

    server.make("types")
    server.fill("types", 300, "amqp")
    server.fill("types", 300)
    options = {"includeHeaders": "map", "bodyFormat": "string"}
    frame = load(spark, server, "types", **options)
    names = "address offset timestamp message_id subject content_type correlation_id reply_to"
    assert frame.columns == [*names.split(), "body", "headers"]
    assert dict(frame.dtypes)["headers"] == "map<string,string>"
    assert dict(frame.dtypes)["timestamp"] == "timestamp"
    totals = frame.groupBy("address").agg(
        f.count("*").alias("n"),
        f.sum(f.col("body").cast("long")).alias("total"),
        f.sum(f.col("headers")["n"].cast("long")).alias("in_headers"),
        f.max("timestamp").alias("newest"),
    )
    writer = totals.writeStream.format("memory").queryName("totals").outputMode("complete")
    writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    run_to_its_end(writer.start, 90)
    (row,) = spark.sql(
        "select *, newest between now() - interval 1 hour and now() ok from totals"
    ).collect()
    expected = sum(range(600))
    assert (row.address, row.n, row.total, row.in_headers) == ("types", 600, expected, expected)
    assert row.ok, "a timestamp is a moment, whatever the session's time zone"


def test_a_killed_gateway_costs_waiting_only(spark: Any, server: Server, tmp_path: Path) -> None:
    server.make("killed")
    server.fill("killed", 2000)
    sink = Sink()
    frame = load(spark, server, "killed", maxMessagesPerTrigger="500", retryDeadline="60s")
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path))
    query = begin(writer.trigger(processingTime="200 milliseconds").start, sink)
    try:
        assert sink.rows
        server.kill()
        restart = threading.Timer(1.5, server.start)
        restart.start()
        restart.join()
        server.fill("killed", 1000)
        wait_until(lambda: len(sink.rows) >= 3000)
        assert query.exception() is None
        wait_until(lambda: server.floor("killed", "sub-killed") == 3000)
    finally:
        query.stop()
    assert sink.rows == numbered(3000)


def test_batch_read_is_a_snapshot_and_takes_a_projection(spark: Any, server: Server) -> None:
    server.make("batch")
    server.fill("batch", 1000)
    reader = spark.read.format("sluicegate").option("url", server.url).option("address", "batch")
    frame = reader.load()
    assert frame.count() == 1000
    server.fill("batch", 10)
    assert frame.count() == 1000, "planned once"
    assert reader.load().count() == 1010
    some = reader.option("startingOffsets", "990").schema("body string, offset bigint").load()
    assert [(r.body, r.offset) for r in some.collect()] == [(str(i), i) for i in range(990, 1010)]
    empty = reader.option("startingOffsets", "1010").load()
    assert empty.count() == 0


def test_refusals_reach_the_user(spark: Any, server: Server) -> None:
    with pytest.raises(Exception, match="did you mean 'maxMessagesPerTrigger'"):
        load(spark, server, "orders", maxOffsetsPerTrigger="5")


def begin(start: Callable[[], Any], sink: Sink) -> Any:
    """Return a query that has brought its first batch."""
    for _ in range(STARTS):
        query = start()
        wait_until(lambda query=query: sink.rows or query.exception() is not None)
        if query.exception() is None:
            return query
        assert STARVED in str(query.exception())
    raise AssertionError(STARVED)


def wait_until(condition: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)
