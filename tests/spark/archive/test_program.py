"""The program `archive` as it is started, on a real Spark and a real gateway, and killed."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from gateway.trial.scratch import ScratchGateway
from tests.spark.archive.jobs import at, table_rows_of
from tests.spark.archive.program import Program, fill, wait_until
from tests.spark.session import run_to_its_end, spark_session

pytestmark = [pytest.mark.spark, pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def spark(spark_environment: dict[str, str]) -> Iterator[Any]:
    with spark_session("archived") as session:
        yield session


def check(table: Path, expected: dict[str, int]) -> None:
    found = table_rows_of(at(table))
    assert {key[1]: offsets for key, offsets in found.items()} == {
        name: list(range(count)) for name, count in expected.items()
    }


def test_killed_between_files_and_commit_and_after_the_commit(
    spark_environment: dict[str, str], gateway: ScratchGateway, tmp_path: Path
) -> None:
    """Round by round the driver dies, its JVM with it: when files are there, when a commit is."""
    for name in ("orders", "news"):
        gateway.request("POST", "/api/v1/streams", {"name": name, "address": name})
    program = Program(gateway, tmp_path, "--trigger", "100 milliseconds")
    commits = tmp_path / "table" / "_delta_log"
    sent = 0

    def versions() -> int:
        return len(list(commits.glob("*.json")))

    def files() -> int:
        return len(list(Path(program.table).glob("gateway=*/**/*.parquet")))

    try:
        for number, step in enumerate(("files", "commit")):
            fill(gateway, "orders", 2000, f"a{number}")
            fill(gateway, "news", 100, f"b{number}")
            sent += 1
            before = files() if step == "files" else max(versions(), 2)
            count = files if step == "files" else versions
            program.start()
            wait_until(lambda b=before, c=count: c() > b, program)  # type: ignore[misc]
            program.kill()
        last = Program(gateway, tmp_path, "--available-now", "--compact", "1")
        last.start()
        assert last.finish() == 0, last.log()[-3000:]
    finally:
        program.kill()
    check(program.table, {"orders": 2000 * sent, "news": 100 * sent})
    told = json.loads([line for line in last.log().splitlines() if line.startswith("{")][-1])
    assert told["lag"] == {"sluicegate/news": 0, "sluicegate/orders": 0}
    assert 'lag_offsets{stream="sluicegate/orders"} 0' in program.metrics.read_text()


def test_a_wrong_option_and_a_table_of_another_kind_are_one_line(
    spark_environment: dict[str, str], gateway: ScratchGateway, tmp_path: Path
) -> None:
    import deltalake
    import pyarrow as pa

    deltalake.write_deltalake(str(tmp_path / "table"), pa.table({"a": [1]}))
    program = Program(gateway, tmp_path, "--available-now")
    program.start()
    assert program.finish() == 1
    lines = [line for line in program.log().splitlines() if line.startswith("archive: ")]
    assert len(lines) == 1
    assert "is no archive of Sluicegate" in lines[0]
    assert gateway.request("GET", "/readyz")[0] == 200


def test_a_signal_ends_it_cleanly(
    spark_environment: dict[str, str], gateway: ScratchGateway, tmp_path: Path
) -> None:
    gateway.request("POST", "/api/v1/streams", {"name": "orders", "address": "orders"})
    fill(gateway, "orders", 500, "a")
    program = Program(gateway, tmp_path, "--trigger", "1 second")
    program.start()
    try:
        wait_until(lambda: list(Path(program.table).glob("gateway=*/**/*.parquet")), program)
        wait_until(program.metrics.exists, program)
        assert program.process is not None
        program.process.send_signal(signal.SIGTERM)
        assert program.finish() == 0, program.log()[-3000:]
    finally:
        program.kill()
    assert "Traceback" not in program.log()
    check(program.table, {"orders": 500})


def test_a_query_reads_over_the_seam(
    spark: Any, gateway_process: Callable[..., ScratchGateway], tmp_path: Path
) -> None:
    """Spark itself, from the first archived offset to the newest at the gateway, and a batch."""
    settings = ("name='east'", f"archive.table='{tmp_path / 'table'}'")
    gateway = gateway_process(settings=settings)
    gateway.request("POST", "/api/v1/streams", {"name": "orders", "address": "orders"})
    fill(gateway, "orders", 3000, "a")
    program = Program(gateway, tmp_path, "--available-now")
    program.start()
    assert program.finish() == 0, program.log()[-3000:]
    gateway.kill()
    shutil.rmtree(gateway.data)  # now the table alone has them
    gateway.start()
    fill(gateway, "orders", 500, "b")
    options = {
        "url": gateway.url, "address": "orders", "subscription": "seam",
        "startingOffsets": "earliest", "archive": str(program.table),
    }  # fmt: skip
    status, facts = gateway.request("GET", "/api/v1/streams/orders")
    assert (status, facts["first"], facts["head"]) == (200, 3000, 3500)  # type: ignore[index]

    def start() -> Any:
        reader = spark.readStream.format("sluicegate").options(**options)
        frame = reader.option("maxMessagesPerTrigger", "1300").load()
        writer = frame.select("offset").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "reader"))
        return writer.option("path", str(tmp_path / "out")).trigger(availableNow=True).start()

    run_to_its_end(start, 120)
    found = sorted(row.offset for row in spark.read.parquet(str(tmp_path / "out")).collect())
    assert found == list(range(3500))
    batch = spark.read.format("sluicegate").options(**options).load()
    assert batch.count() == 3500
    assert batch.selectExpr("count(distinct offset)").first()[0] == 3500
