"""The wheel `pyspark-sluicegate`, alone: an environment with it, pyarrow and pyspark, nothing else.

Spark finds the data source there by its name and reads a gateway that runs elsewhere, as a batch
and as a stream.
"""

from __future__ import annotations

import json
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

import gateway
from gateway.trial.java import spark_environment
from gateway.trial.scratch import ScratchGateway
from tests.gateway.stomp_peer import StompPeer
from tests.packaging.test_wheel import ROOT, clean_environment, run

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.xdist_group("wheel")]

#: All that a Spark program needs beside the wheel: pyspark with py4j, and pyarrow.
NEEDED = ("pyspark", "py4j", "pyarrow")
ABSENT = ("gateway", "protocols", "storage", "twisted", "structlog", "click")
READ = """
import importlib.util, json, sys
from pyspark.sql import SparkSession

assert not [name for name in {absent!r} if importlib.util.find_spec(name)]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
read = spark.read.format("sluicegate").option("url", sys.argv[1]).option("address", "orders")
rows = read.load().orderBy("offset").collect()
streamed = []
stream = spark.readStream.format("sluicegate").option("url", sys.argv[1])
stream = stream.option("address", "orders").option("subscription", "alone")
query = (
    stream.option("startingOffsets", "earliest").option("selector", "JMSPriority = 4").load()
    .writeStream.foreachBatch(lambda batch, _: streamed.extend(batch.collect()))
    .option("checkpointLocation", sys.argv[2]).trigger(availableNow=True).start()
)
query.awaitTermination()
streamed.sort()
assert [(row.offset, row.body) for row in streamed] == [(row.offset, row.body) for row in rows]
print(json.dumps([[row.offset, bytes(row.body).decode()] for row in rows]))
"""


def spark_alone(folder: Path, *, with_pip: bool = False, beside: Sequence[str] = ()) -> Path:
    """Make an environment with pyspark and pyarrow, nothing of ours; returns its interpreter.

    `beside` are packages that it has as well.
    """
    venv.create(folder, with_pip=with_pip)
    python = folder / "bin" / "python"
    others = folder / "dependencies"
    others.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if entry.name.split(".")[0].split("-")[0] in (*NEEDED, *beside):
            (others / entry.name).symlink_to(entry)
    site = run(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder
    ).stdout.strip()
    Path(site, "dependencies.pth").write_text(f"{others}\n")
    return python


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    script = "import sys, hatchling.build as b; print(b.build_wheel(sys.argv[1]))"
    name = run(sys.executable, "-c", script, folder, cwd=ROOT / "gateway" / "spark").stdout
    return folder / name.split()[-1]


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel; returns its interpreter."""
    folder = tmp_path_factory.mktemp("environment")
    python = spark_alone(folder, with_pip=True)
    run(python, "-m", "pip", "install", "--no-deps", "--no-index", wheel, cwd=folder)
    return python


def test_the_wheel_has_one_package_and_needs_pyarrow_only(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        info = next(name for name in names if name.endswith("/METADATA"))
        metadata = archive.read(info).decode()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {
        "pyspark_sluicegate"
    }
    needed = [
        line
        for line in metadata.splitlines()
        if line.startswith("Requires-Dist") and ";" not in line
    ]
    assert needed == ["Requires-Dist: pyarrow>=18"]
    assert f"\nVersion: {gateway.__version__}\n" in metadata
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_archive_of_sources_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    build = "import sys, hatchling.build as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"
    name = run(
        sys.executable, "-c", build, "build_sdist", tmp_path, cwd=ROOT / "gateway" / "spark"
    ).stdout.split()[-1]
    with tarfile.open(tmp_path / name) as archive:
        assert not [member.name for member in archive if member.issym() or member.islnk()]
        archive.extractall(tmp_path / "sources", filter="data")
    (unpacked,) = (tmp_path / "sources").iterdir()
    run(sys.executable, "-c", build, "build_wheel", tmp_path, cwd=unpacked)
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


@pytest.mark.timeout(240)
def test_spark_reads_a_gateway_with_nothing_but_the_wheel(python: Path, tmp_path: Path) -> None:
    with ScratchGateway(tmp_path / "served") as server:
        made = server.request("POST", "/api/v1/streams", {"name": "orders", "address": "orders"})
        assert made[0] == 201
        peer = StompPeer(server.stomp_port)
        for number in range(10):
            peer.send("orders", b"order %d" % number, f"r{number}")
            assert peer.read()[1]["receipt-id"] == f"r{number}"
        script = tmp_path / "read.py"
        script.write_text(READ.format(absent=ABSENT))
        chosen = {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
        env = spark_environment(clean_environment()) | chosen
        done = run(python, script, server.url, tmp_path / "checkpoint", cwd=tmp_path, env=env)
    assert json.loads(done.stdout.splitlines()[-1]) == [[n, f"order {n}"] for n in range(10)]
