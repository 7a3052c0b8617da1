"""The zip for `--py-files`, and the programs of `sluicegate spark snippet`, as they are printed.

They run in an environment that has pyspark and pyarrow and nothing of ours, by spark-submit, in
local mode and with an executor that is a process of its own.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.trial.java import spark_environment
from gateway.trial.scratch import ScratchGateway, importing_environment
from tests.gateway.stomp_peer import StompPeer
from tests.packaging.test_spark_wheel import spark_alone
from tests.packaging.test_wheel import clean_environment, run

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.xdist_group("wheel")]

QUIET = (
    "spark.ui.enabled=false",
    "spark.driver.bindAddress=127.0.0.1",
    "spark.driver.host=127.0.0.1",
    "spark.executor.memory=600m",
)


def command(*arguments: object) -> str:
    """Return what `sluicegate spark` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "spark", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env=importing_environment(),
        check=True,
    )
    return done.stdout


@dataclass
class Cluster:
    """What a Spark program is submitted with."""

    python: Path
    bundle: Path
    folder: Path

    def submit(self, program: str, *, master: str = "local[2]") -> str:
        """Run a program to its end; returns what it printed."""
        return run(*self._command(program, master), cwd=self.folder, env=self._environment).stdout

    @contextmanager
    def running(self, program: str) -> Iterator[None]:
        """Run a program until the block ends."""
        process = subprocess.Popen(
            self._command(program, "local[2]"),
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield
            assert process.poll() is None, "the program ended by itself"
        finally:
            # spark-submit, its Java and the Python workers: a group of their own.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _command(self, program: str, master: str) -> list[str]:
        query = self.folder / "query.py"
        query.write_text(program)
        submit = self.python.parents[1] / "dependencies" / "pyspark" / "bin" / "spark-submit"
        settings = [word for one in QUIET for word in ("--conf", one)]
        files = ["--py-files", str(self.bundle), str(query)]
        return [str(submit), "--master", master, *settings, *files]

    @property
    def _environment(self) -> dict[str, str]:
        chosen = {"PYSPARK_PYTHON": str(self.python), "PYSPARK_DRIVER_PYTHON": str(self.python)}
        return spark_environment(clean_environment()) | chosen


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    folder = tmp_path_factory.mktemp("submitted")
    bundle = folder / "sluicegate-spark.zip"
    command("bundle", bundle)
    return Cluster(spark_alone(tmp_path_factory.mktemp("environment")), bundle, folder)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScratchGateway]:
    with ScratchGateway(tmp_path_factory.mktemp("bundled") / "served") as server:
        made = server.request("POST", "/api/v1/streams", {"name": "orders", "address": "orders"})
        assert made[0] == 201
        yield server


def send(server: ScratchGateway, numbers: range) -> None:
    peer = StompPeer(server.stomp_port)
    for number in numbers:
        peer.send("orders", b"order %d" % number, f"r{number}")
        assert peer.read()[1]["receipt-id"] == f"r{number}"


def bodies(out: str) -> list[int]:
    """Return the numbers of the orders that Spark's console shows."""
    return [int(number) for number in re.findall(r"order (\d+)\s*\|", out)]


@pytest.mark.timeout(300)
def test_a_printed_stream_reads_each_message_once_however_often_it_is_started(
    cluster: Cluster, served: ScratchGateway
) -> None:
    program = command("snippet", "--url", served.url, "--available")
    send(served, range(5))
    assert bodies(cluster.submit(program)) == [0, 1, 2, 3, 4]
    send(served, range(5, 7))
    # Its executor is a process of its own, which gets the zip from the driver.
    assert bodies(cluster.submit(program, master="local-cluster[1,1,700]")) == [5, 6]
    assert (cluster.folder / "checkpoints" / "orders-spark" / "offsets" / "1").exists()


@pytest.mark.timeout(180)
def test_a_printed_batch_reads_what_is_there(cluster: Cluster, served: ScratchGateway) -> None:
    send(served, range(7, 9))
    out = cluster.submit(command("snippet", "--url", served.url, "--kind", "batch"))
    assert bodies(out)[-2:] == [7, 8]


@pytest.mark.timeout(240)
def test_a_printed_sink_sends(cluster: Cluster, served: ScratchGateway) -> None:
    made = served.request("POST", "/api/v1/streams", {"name": "numbers", "address": "numbers"})
    assert made[0] == 201
    program = command("snippet", "--url", served.url, "--kind", "sink", "--address", "numbers")
    end = time.monotonic() + 180
    with cluster.running(program):
        while head(served) < 3:
            assert time.monotonic() < end, "nothing came"
            time.sleep(0.5)
    read = command("snippet", "--url", served.url, "--kind", "batch", "--address", "numbers")
    numbers = [int(one) for one in re.findall(r"\|\s*(\d+)\s*\|\n", cluster.submit(read))]
    assert sorted(numbers) == list(range(len(numbers))), "each number once"
    assert len(numbers) >= 3


def head(server: ScratchGateway) -> int:
    status, shown = server.request("GET", "/api/v1/streams/numbers")
    assert status == 200
    assert isinstance(shown, dict)
    return int(shown["head"])


@pytest.mark.timeout(300)
def test_a_pipeline_runs_from_the_zip(cluster: Cluster, served: ScratchGateway) -> None:
    """Its streaming query is planned in a process that Spark does not show the zip to."""
    made = served.request("POST", "/api/v1/streams", {"name": "sums", "address": "sums"})
    assert made[0] == 201
    arguments = [
        "--url", served.url, "--address", "orders", "--to", "sums", "--available-now",
        "--window", "1 second", "--watermark", "1 second",
        "--checkpoint", str(cluster.folder / "rollup"),
    ]  # fmt: skip
    program = f"""
import sys

from pyspark_sluicegate.pipelines.rollup import main

sys.exit(main({arguments!r}))
"""
    send(served, range(100, 103))
    time.sleep(3)  # what comes now closes the window before
    send(served, range(103, 104))
    cluster.submit(program)
    _, shown = served.request("GET", "/api/v1/streams/sums")
    assert isinstance(shown, dict)
    assert shown["head"] >= 1
