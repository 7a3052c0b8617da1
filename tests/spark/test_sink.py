"""Spark itself writes to a real gateway: exactly once through failures of every part."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.trial.scratch import ScratchGateway
from tests.sink.writing import options, rows_of, tapped
from tests.spark.session import STARVED, spark_session
from tests.spark.support import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240), pytest.mark.xdist_group("spark")]
pyspark = pytest.importorskip("pyspark")

COUNT = 1200
MESSAGES = [b"%d" % number for number in range(COUNT)]


@pytest.fixture(scope="module")
def spark(spark_environment: dict[str, str]) -> Iterator[Any]:
    with spark_session("sink", spark_master="local[2,2]") as session:
        yield session


@pytest.fixture
def filled(gateway_process: Callable[..., ScratchGateway], tmp_path: Path) -> ScratchGateway:
    """A gateway with taps on `in`, which has the messages, and on `out`."""
    gateway = gateway_process(folder=tmp_path / "gateway")
    fill(gateway)
    return gateway


def fill(gateway: ScratchGateway) -> None:
    from pyspark_sluicegate.staging import Batch

    for name in ("in", "out"):
        gateway.request("POST", "/api/v1/streams", {"name": name, "address": name})
    first = Batch(options(gateway.url, address="in"), "filling", 0)
    first.commit([first.stage(rows_of(MESSAGES), 0, "a")])
    assert tapped(gateway, "in") == MESSAGES


def carry(spark: Any, gateway: ScratchGateway, folder: Path, **given: str) -> None:
    """Run the query until all of `in` is in `out`."""
    from pyspark.errors import StreamingQueryException

    from tests.spark.sink_faults import start

    for _ in range(5):
        query = start(spark, gateway.url, folder, **given)
        try:
            assert query.awaitTermination(120)
        except StreamingQueryException as error:
            if STARVED not in str(error):
                raise
        else:
            return
        finally:
            query.stop()
    raise AssertionError(STARVED)


def check_out(gateway: ScratchGateway) -> None:
    """Each message is in `out` once; where several tasks wrote a batch, batch by batch."""
    found = tapped(gateway, "out")
    assert len(found) == COUNT
    for first in range(0, COUNT, 400):
        assert sorted(found[first : first + 400]) == sorted(MESSAGES[first : first + 400])


def test_a_stream_arrives_and_a_batch_that_spark_repeats_is_dropped(
    spark: Any, filled: ScratchGateway, tmp_path: Path
) -> None:
    carry(spark, filled, tmp_path)
    check_out(filled)
    # As if the driver had died before it wrote down the last two commits.
    for number in (1, 2):
        (tmp_path / "checkpoint" / "commits" / str(number)).unlink()
        (tmp_path / "checkpoint" / "commits" / f".{number}.crc").unlink(missing_ok=True)
    carry(spark, filled, tmp_path)
    check_out(filled)
    (known,) = [
        one
        for one in filled.request("GET", "/api/v1/sink/producers")[1]["items"]
        if one["name"] != "filling"
    ]
    assert known["committed"] == 2
    assert known["name"] in (tmp_path / "checkpoint" / "metadata").read_text()


def test_a_task_that_fails_behind_its_stage_counts_once(
    spark: Any, filled: ScratchGateway, tmp_path: Path
) -> None:
    (tmp_path / "fail-write").touch()
    carry(spark, filled, tmp_path)
    assert (tmp_path / "failed-0").exists()
    check_out(filled)


def test_a_gateway_killed_while_it_publishes_to_a_full_address(
    spark: Any, gateway_process: Callable[..., ScratchGateway], tmp_path: Path
) -> None:
    """It blocks in the middle of each batch, is killed there, and goes on as room comes."""
    from tests.spark.sink_faults import start

    limits = (
        "address-settings.out.max-size-messages=100",
        'address-settings.out.address-full-policy="BLOCK"',
    )
    gateway = gateway_process(folder=tmp_path / "gateway", settings=limits)
    fill(gateway)
    query = start(spark, gateway.url, tmp_path, retryDeadline="20s")
    kills = 0
    try:
        until = time.monotonic() + 120
        while query.isActive and time.monotonic() < until:
            items = gateway.request("GET", "/api/v1/sink/producers")[1]["items"]
            stuck = [one for one in items if one["waits"]]
            if stuck:
                assert stuck[0]["waits"]["code"] == "address-full"
                assert 0 <= stuck[0]["messages"] < stuck[0]["total"] == 400
                if kills < 3:
                    gateway.kill()
                    gateway.start()
                    kills += 1
                gateway.request("POST", "/api/v1/queues/out/removeAllMessages", {})
            time.sleep(0.05)
        assert query.awaitTermination(1), query.lastProgress
    finally:
        query.stop()
    assert kills == 3
    check_out(gateway)


@pytest.mark.parametrize("where", ["stop-before", "stop-after"])
def test_a_driver_killed_at_its_commit(
    where: str, filled: ScratchGateway, tmp_path: Path, spark_environment: dict[str, str]
) -> None:
    (tmp_path / where).touch()
    driver = start_driver(filled, tmp_path, spark_environment)
    try:
        wait_for(tmp_path / "standing")
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    (tmp_path / where).unlink()
    assert len(tapped(filled, "out")) == (0 if where == "stop-before" else 400)
    driver = start_driver(filled, tmp_path, spark_environment)
    try:
        assert driver.wait(150) == 0
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    check_out(filled)


def start_driver(
    gateway: ScratchGateway, folder: Path, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.spark.sink_faults", gateway.url, str(folder)]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def wait_for(file: Path, query: Any = None) -> None:
    until = time.monotonic() + 90
    while not file.exists():
        assert query is None or query.isActive, query.exception()
        assert time.monotonic() < until, f"{file.name} does not come"
        time.sleep(0.1)


# ---- batches, and what is refused


def frame_of(spark: Any, count: int = 10) -> Any:
    from pyspark.sql import functions as f

    return spark.range(count).select(f.col("id").cast("string").alias("body"))


def writer(frame: Any, gateway: ScratchGateway, **given: str) -> Any:
    made = frame.write.format("sluicegate").mode("append").option("url", gateway.url)
    return made.options(**{"address": "out", "retryDeadline": "10s", **given})


def test_a_batch_write_counts_once_by_its_number(spark: Any, filled: ScratchGateway) -> None:
    frame = frame_of(spark)
    for _ in range(2):
        writer(frame, filled, producerId="job", batchId="7").save()
    assert len(tapped(filled, "out")) == 10
    writer(frame, filled, producerId="job", batchId="8").save()
    assert len(tapped(filled, "out")) == 20
    for _ in range(2):
        writer(frame, filled).save()
    assert len(tapped(filled, "out")) == 40, "without a number each write is another one"


def test_columns_become_parts_of_messages(spark: Any, filled: ScratchGateway) -> None:
    from pyspark.sql import functions as f

    frame = spark.range(3).select(
        f.lit("out").alias("address"),
        f.concat(f.lit("m"), f.col("id").cast("string")).alias("message_id"),
        f.lit("s").alias("subject"),
        f.lit("text/plain").alias("content_type"),
        f.lit("c").alias("correlation_id"),
        f.lit("back").alias("reply_to"),
        f.concat(f.lit("k"), f.col("id").cast("string")).alias("key"),
        f.create_map(f.lit("n"), f.col("id").cast("string")).alias("headers"),
        (f.col("id") + 3).cast("int").alias("priority"),
        f.lit(60_000).cast("bigint").alias("ttl_ms"),
        f.timestamp_millis(f.lit(1_700_000_000_123)).alias("timestamp"),
        (f.col("id") != 1).alias("durable"),
        f.encode(f.col("id").cast("string"), "UTF-8").alias("body"),
    )
    writer(frame.coalesce(1), filled, address="").save()
    reader = spark.read.format("sluicegate").option("url", filled.url).option("address", "out")
    names = "address,message_id,subject,content_type,correlation_id,reply_to,body,headers,key"
    more = "priority,ttl_ms,created,durable,protocol"
    made = reader.option("columns", f"{names},{more}").option("includeHeaders", "map").load()
    rows = sorted(made.collect(), key=lambda row: row.message_id)
    assert [bytes(row.body) for row in rows] == [b"0", b"1", b"2"]
    assert [row.priority for row in rows] == [3, 4, 5]
    assert [row.durable for row in rows] == [True, False, True]
    assert [row.headers for row in rows] == [{"n": "0"}, {"n": "1"}, {"n": "2"}]
    assert [row.key for row in rows] == ["k0", "k1", "k2"]
    first = rows[0]
    assert (first.subject, first.content_type, first.correlation_id) == ("s", "text/plain", "c")
    assert (first.reply_to, first.ttl_ms, first.protocol) == ("back", 60_000, "amqp")
    assert int(first.created.timestamp() * 1000) == 1_700_000_000_123


REFUSED = {
    "an unknown column": ({"also": "1"}, {}, "The column 'also' .* cannot be written"),
    "a wrong type": ({"priority": "'high'"}, {}, "The column 'priority' is string; it must be int"),
    "an address twice": ({"address": "'x'"}, {}, "drop one of them"),
    "no address": ({}, {"address": ""}, "neither the option 'address' nor a column"),
    "an option of the source": ({}, {"subscription": "s"}, "'subscription' is for reading"),
    "a misspelt option": ({}, {"adress": "q"}, "did you mean 'address'"),
    "a number without a name": ({}, {"batchId": "1"}, "needs 'producerId'"),
    "a routing": ({}, {"routing": "fanout"}, "possible: anycast, multicast"),
    "a name of the gateway's": ({}, {"address": "$sys"}, r"Row 0: .*starts with '\$'"),
    "a value": ({"priority": "11"}, {}, "Row 0: the column 'priority' .11. is not from 0 to 9"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_written_is_said_in_one_error(
    case: str, spark: Any, filled: ScratchGateway
) -> None:
    columns, given, rule = REFUSED[case]
    frame = frame_of(spark).coalesce(1)
    for name, text in columns.items():
        frame = frame.selectExpr("*", f"{text} as {name}")
    with pytest.raises(Exception, match=rule):
        writer(frame, filled, **given).save()
    assert tapped(filled, "out") == []


def test_overwriting_is_refused(spark: Any, filled: ScratchGateway) -> None:
    with pytest.raises(Exception, match="Messages cannot be overwritten"):
        writer(frame_of(spark), filled).mode("overwrite").save()
