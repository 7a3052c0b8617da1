"""A standalone cluster reads three gateways in one query; an executor is lost in the middle."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import IO, cast

import pytest

pytest.importorskip("pyspark")

import pyarrow.parquet as pq

from gateway.trial.scratch import ScratchGateway
from tests.gateway.stomp_peer import StompPeer
from tests.spark.cluster import Cluster, spark_cluster
from tests.spark.support import ROOT

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.xdist_group("spark-cluster"),
]

EACH = 4000
JOB = Path(__file__).with_name("cluster_job.py")


def bundle(folder: Path) -> Path:
    """The package as the one file that executors are handed."""
    path = folder / "package.zip"
    source = ROOT / "gateway" / "spark"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(source.glob("pyspark_sluicegate/**/*.py")):
            archive.write(file, file.relative_to(source))
    return path


def publish(gateway: ScratchGateway, name: str, start: int, count: int) -> None:
    peer = StompPeer(gateway.stomp_port)
    for number in range(start, start + count):
        peer.send("orders", f"{name} {number}".encode(), "")
    peer.send("orders", f"{name} {start + count}".encode(), "last")
    assert peer.read()[1]["receipt-id"] == "last"
    peer.close()


def run_job(
    cluster: Cluster, gateways: list[ScratchGateway], folder: Path, env: dict[str, str]
) -> subprocess.Popen[str]:
    urls = ",".join(gateway.url for gateway in gateways)
    paths = [str(folder / "table"), str(folder / "checkpoint"), str(bundle(folder))]
    return subprocess.Popen(
        [sys.executable, str(JOB), cluster.url, urls, *paths],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=(folder / "driver.log").open("wb"),
        text=True,
        env=env,
        cwd=folder,
    )


def wait_for(process: subprocess.Popen[str], total: int) -> None:
    """Read what the driver tells until the batches end at `total` offsets in all."""
    for line in cast("IO[str]", process.stdout):
        ends = json.loads(line)["end"]
        ends = json.loads(ends) if isinstance(ends, str) else ends
        if sum(place for _, place in ends["q"].values()) >= total:
            return
    raise AssertionError("the driver ended")


def test_three_gateways_through_a_cluster_that_loses_an_executor(
    tmp_path: Path, spark_environment: dict[str, str]
) -> None:
    # Executors are handed the package as a file; the path of these tests is not theirs.
    env = {k: v for k, v in spark_environment.items() if k != "PYTHONPATH"}
    with ExitStack() as stack:
        gateways = [stack.enter_context(ScratchGateway(tmp_path / f"gateway{n}")) for n in range(3)]
        for gateway in gateways:
            tap = {"name": "orders", "address": "orders"}
            assert gateway.request("POST", "/api/v1/streams", tap)[0] == 201
        cluster = stack.enter_context(spark_cluster(tmp_path, env))
        process = stack.enter_context(run_job(cluster, gateways, tmp_path, env))
        try:
            for n, gateway in enumerate(gateways):
                publish(gateway, f"g{n}", 0, EACH // 2 - 1)
            wait_for(process, 3 * 1000)
            cluster.kill_an_executor()
            for n, gateway in enumerate(gateways):
                publish(gateway, f"g{n}", EACH // 2, EACH // 2 - 1)
            wait_for(process, 3 * EACH)
            cast("IO[str]", process.stdin).write("\n")
            cast("IO[str]", process.stdin).flush()
            assert process.wait(60) == 0
        finally:
            process.kill()
    found = Counter(read_table(tmp_path / "table"))
    assert [body for body, count in found.items() if count > 1] == []
    assert found.keys() == {f"g{n} {number}" for n in range(3) for number in range(EACH)}


def read_table(folder: Path) -> list[str]:
    """Return the bodies in the files that the sink's own log names."""
    names: list[str] = []
    for entry in sorted((folder / "_spark_metadata").iterdir()):
        if entry.name.split(".")[0].isdigit() and not entry.name.startswith("."):
            lines = entry.read_text().splitlines()[1:]
            if entry.name.endswith(".compact"):
                names = []
            names += [json.loads(line)["path"].removeprefix("file://") for line in lines]
    return [body for name in names for body in pq.read_table(name)["body"].to_pylist()]
