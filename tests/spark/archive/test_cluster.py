"""The archive on a standalone cluster, by spark-submit and `--py-files`; executors die."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from gateway.trial.scratch import ScratchGateway, importing_environment
from pyspark_sluicegate.archive.proving import prove
from pyspark_sluicegate.archive.table import open_table
from tests.packaging.test_spark_wheel import spark_alone
from tests.packaging.test_wheel import clean_environment
from tests.spark.archive.jobs import at, table_rows_of
from tests.spark.archive.program import Program, fill, wait_until
from tests.spark.cluster import Cluster, spark_cluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("spark-cluster"),
]

#: What an archive needs where only Spark is: `pyspark-sluicegate[archive]` without itself.
STORES = ("deltalake", "arro3", "deprecated", "wrapt", "obstore", "typing_extensions")
SETTINGS = (
    "spark.driver.bindAddress=127.0.0.1",
    "spark.driver.host=127.0.0.1",
    "spark.ui.enabled=false",
    "spark.executor.memory=512m",
    "spark.executor.cores=1",
    "spark.cores.max=2",
)
#: Executors die while there are messages, until so many tasks were lost with them.
ROUNDS, ENOUGH = 6, 2
LOST_TASK = "ExecutorLostFailure"
PROGRAM = """
import sys

from pyspark_sluicegate.pipelines.archive import main

sys.exit(main())
"""


def submitting(cluster: Cluster, python: Path, folder: Path) -> list[str]:
    """Return the command that runs the archive on a cluster, without its own options."""
    bundle, program = folder / "sluicegate-spark.zip", folder / "archiving.py"
    subprocess.run(
        [sys.executable, "-m", "gateway", "spark", "bundle", str(bundle)],
        env=importing_environment(), check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    program.write_text(PROGRAM)
    submit = python.parents[1] / "dependencies" / "pyspark" / "bin" / "spark-submit"
    settings = [word for one in SETTINGS for word in ("--conf", one)]
    files = ["--py-files", str(bundle), str(program)]
    return [str(submit), "--master", cluster.url, *settings, *files]


def environment(python: Path, spark: Mapping[str, str]) -> dict[str, str]:
    chosen = {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    kept = {name: spark[name] for name in ("JAVA_HOME", "SPARK_LOCAL_IP") if name in spark}
    return {**clean_environment(), **kept, **chosen}


def test_an_archive_whose_executors_die_amid_batches(
    spark_environment: dict[str, str],
    gateway_process: Callable[..., ScratchGateway],
    tmp_path: Path,
) -> None:
    gateway = gateway_process(settings=("name='east'",))
    expected = {f"orders.{name}": 0 for name in ("eu", "us", "asia", "africa")}
    for name in expected:
        gateway.request("POST", "/api/v1/streams", {"name": name, "address": name})
    python = spark_alone(tmp_path / "environment", beside=STORES)
    env = environment(python, spark_environment)
    killed = 0
    with spark_cluster(tmp_path, env) as cluster:
        program = Program(
            gateway, tmp_path, "--trigger", "100 milliseconds", "--max-bytes-per-trigger", "256k",
            "--target-file-bytes", "16k",
            launcher=submitting(cluster, python, tmp_path), environment=env,
        )  # fmt: skip

        def files() -> int:
            return len(list(Path(program.table).glob("gateway=*/**/*.parquet")))

        program.start()
        try:
            for number in range(ROUNDS):
                there = files()
                for name in expected:
                    fill(gateway, name, 1500, f"{name}-{number}")
                    expected[name] += 1500
                # The first file of a task that has more to write.
                wait_until(lambda: files() > there, program)  # noqa: B023
                killed += cluster.kill_executors()
                if program.log().count(LOST_TASK) >= ENOUGH:
                    break
            wait_until(lambda: archived(Path(program.table)) == sum(expected.values()), program)
            assert not program.ended(), program.log()[-3000:]
        finally:
            program.kill()
    assert killed >= 1
    assert LOST_TASK in program.log(), "no executor died amid its task"
    found = table_rows_of(at(Path(program.table)))
    assert {key[1]: offsets for key, offsets in found.items()} == {
        name: list(range(count)) for name, count in expected.items()
    }
    table = open_table(at(Path(program.table)))
    assert prove(table, quick=False, tell=lambda *_: None).problems() == []


def archived(folder: Path) -> int:
    """Return how many rows the table has by its log; 0 while there is none."""
    if not os.path.isdir(folder / "_delta_log"):  # noqa: PTH112 - a table that is being made
        return 0
    return sum(one.rows for one in open_table(at(folder)).files())
