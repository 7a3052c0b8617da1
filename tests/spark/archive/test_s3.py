"""The archive on S3, and each way in which a store can fail it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("moto")

from gateway.trial.scratch import free_ports
from pyspark_sluicegate.archive.store import Location, StoreError
from pyspark_sluicegate.archive.table import open_table
from pyspark_sluicegate.client import StatusError
from pyspark_sluicegate.options import SluicegateError
from tests.spark.archive.jobs import Job, source, table_rows
from tests.spark.archive.stores import BUCKET, ENVIRONMENT, S3, without_conditions
from tests.spark.support import Server
from tests.spark.test_source import Engine, numbered

pytestmark = pytest.mark.timeout(180)
KEY = ("gateway", "orders", 1)


@pytest.fixture(scope="module")
def environment() -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(ENVIRONMENT)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def s3(environment: None, tmp_path: Path) -> Iterator[S3]:
    made = S3(tmp_path / "s3.log")
    yield made
    made.kill()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "streams", segmentBytes=20_000, localBytes=30_000)
    made.make("orders")
    for _ in range(4):
        made.fill("orders", 500)
    yield made
    made.kill()


def place(s3: S3) -> Location:
    return Location(f"s3://{BUCKET}/messages", s3.endpoint, "us-east-1")


def job(server: Server, where: Location) -> Job:
    return Job(where, url=server.url, address="orders", targetFileBytes="4k")


def serves(server: Server) -> bool:
    server.fill("orders", 1)
    return server.stream("orders")["head"] > 0


def test_written_and_read_on_s3(server: Server, s3: S3) -> None:
    where = place(s3)
    job(server, where).run()
    assert table_rows(where) == {KEY: list(range(2000))}
    end = time.monotonic() + 20
    while server.stream("orders")["first"] == 0:
        assert time.monotonic() < end
        time.sleep(0.1)
    checkpoint: dict[str, Any] = {}
    Engine(source(server.url, where, address="orders"), checkpoint).run()
    assert checkpoint["rows"] == numbered(2000)


def test_an_address_of_any_letters_on_s3(server: Server, s3: S3) -> None:
    name = "a/b c%ü=x"
    server.make(name)
    server.fill(name, 50)
    where = place(s3)
    Job(where, url=server.url, address=name).run()
    assert table_rows(where) == {("gateway", name, 1): list(range(50))}


def test_verify_and_adopt_on_s3_by_the_commands(server: Server, s3: S3, tmp_path: Path) -> None:
    job(server, place(s3)).run()
    there = ("--endpoint", s3.endpoint, "--region", "us-east-1")
    command = [sys.executable, "-m", "gateway", "archive"]
    table = f"s3://{BUCKET}/messages"
    done = subprocess.run(
        [*command, "verify", table, *there], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "gateway/orders life 1: offsets 0 to 1999, 2000 rows" in done.stdout
    assert done.stdout.endswith("whole\n")
    config = (f"archive.endpoint='{s3.endpoint}'", "archive.region='us-east-1'", "name='gateway'")
    sets = [part for one in (*config, f"archive.table='{table}'") for part in ("--set", one)]
    done = subprocess.run(
        [*command, "adopt", "--data", str(tmp_path / "new"), *sets],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "orders: taps orders, life 1, goes on at offset 2000\n"


def test_a_store_that_goes_away_between_files_and_commit(server: Server, s3: S3) -> None:
    one = job(server, place(s3))
    assert one.plan()
    found = one.write()
    s3.kill()
    with pytest.raises(StoreError, match="s3://lake/messages cannot be used"):
        one.commit(found)
    assert serves(server)
    s3.start()  # as another, empty disk: nothing of the batch was committed
    one.start()
    one.run()
    assert table_rows(place(s3)) == {KEY: list(range(2001))}


def test_a_store_that_nobody_can_reach(environment: None, server: Server) -> None:
    (port,) = free_ports(1)
    where = Location(f"s3://{BUCKET}/x", f"http://127.0.0.1:{port}", "us-east-1")
    with pytest.raises(StoreError, match="cannot be used"):
        open_table(where, create=True)
    assert serves(server)


def test_wrong_credentials(server: Server, s3: S3) -> None:
    s3.refuse_everybody()
    one = job(server, place(s3))
    assert one.plan()
    with pytest.raises(StoreError, match="refused the credentials") as refused:
        one.committer.open()
    assert ENVIRONMENT["AWS_SECRET_ACCESS_KEY"] not in str(refused.value).replace("testing/", "")
    with pytest.raises(SluicegateError, match="refused the credentials"):
        one.write()
    assert serves(server)


def test_a_bucket_without_conditional_writes(server: Server, s3: S3) -> None:
    with without_conditions(s3) as endpoint:
        one = job(server, Location(f"s3://{BUCKET}/messages", endpoint, "us-east-1"))
        with pytest.raises(StoreError, match="has no conditional writes"):
            one.committer.open()
    assert b"_delta_log" not in s3.request("GET", f"/{BUCKET}?list-type=2")
    assert b"probe" not in s3.request("GET", f"/{BUCKET}?list-type=2")


def test_two_archives_on_s3(server: Server, s3: S3) -> None:
    first, second = job(server, place(s3)), job(server, place(s3))
    assert first.plan()
    assert second.plan()
    for one in (first, second):
        one.commit(one.write())
        one.note()
    server.fill("orders", 5)
    with pytest.raises(StatusError, match="attached again"):
        first.run()
    second.run()
    assert table_rows(place(s3)) == {KEY: list(range(2005))}
