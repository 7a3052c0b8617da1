"""Old from the table, new from the gateway, one kind of offset: a reader does not notice."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from pyspark.sql.types import BinaryType, LongType, MapType, StringType, StructField, StructType

from pyspark_sluicegate.archive.table import open_table
from pyspark_sluicegate.history import ArchivedPartition
from pyspark_sluicegate.options import SluicegateError
from tests.spark.archive.jobs import Job, at, source
from tests.spark.support import Server
from tests.spark.test_source import SCHEMA, Engine, numbered

TEXTS = MapType(StringType(), StringType())
#: Small enough that a few thousand messages are many segments.
SMALL = {"segmentBytes": 20_000, "localBytes": 60_000}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "streams", **SMALL)
    made.make("orders")
    yield made
    made.kill()


def archive(server: Server, tmp_path: Path, count: int = 4000) -> int:
    """Archive so much that the gateway lets go of it; returns its first offset then."""
    for _ in range(count // 500):
        server.fill("orders", 500)
    Job(tmp_path / "table", url=server.url, address="orders", targetFileBytes="2k").run()
    return first_of(server)


def first_of(server: Server) -> int:
    end = time.monotonic() + 20
    while server.stream("orders")["first"] == 0:
        assert time.monotonic() < end, "the gateway keeps what is archived"
        time.sleep(0.05)
    time.sleep(0.3)
    first: int = server.stream("orders")["first"]
    return first


def test_earliest_begins_in_the_table_and_goes_on_at_the_gateway(
    server: Server, tmp_path: Path
) -> None:
    first = archive(server, tmp_path)
    assert 0 < first < 4000
    server.fill("orders", 100)
    checkpoint: dict[str, Any] = {}
    made = source(server.url, tmp_path / "table", address="orders", maxMessagesPerTrigger="700")
    Engine(made, checkpoint).run()
    assert checkpoint["rows"] == numbered(4100)
    assert len(checkpoint["offsets"]) >= 4100 // 700


def test_what_was_at_the_gateway_when_a_reader_stopped_is_in_the_table_when_it_goes_on(
    server: Server, tmp_path: Path
) -> None:
    server.fill("orders", 500)
    checkpoint: dict[str, Any] = {}
    made = source(server.url, tmp_path / "table", address="orders", maxMessagesPerTrigger="900")
    Engine(made, checkpoint).run()
    assert checkpoint["rows"] == numbered(500)
    first = archive(server, tmp_path)
    assert first > 500, "a reader of the archive does not hold the gateway's disk"
    Engine(made, checkpoint).run()
    assert checkpoint["rows"] == numbered(4500)


def test_a_reader_without_the_archive_holds_what_it_has_not_read(
    server: Server, tmp_path: Path
) -> None:
    plain = {"url": server.url, "address": "orders", "subscription": "plain"}
    from pyspark_sluicegate.source import DefaultSource

    made = DefaultSource({**plain, "startingOffsets": "earliest"})
    made.streamReader(SCHEMA).initialOffset()
    for _ in range(8):
        server.fill("orders", 500)
    Job(tmp_path / "table", url=server.url, address="orders").run()
    time.sleep(1)
    assert server.stream("orders")["first"] == 0
    checkpoint: dict[str, Any] = {}
    Engine(made, checkpoint).run()
    assert checkpoint["rows"] == numbered(4000)


def test_a_batch_read_of_a_range_across_both(server: Server, tmp_path: Path) -> None:
    first = archive(server, tmp_path)
    made = source(
        server.url, tmp_path / "table", address="orders", startingOffsets=str(first - 300),
        endingOffsets=str(first + 200), targetPartitionBytes="1k",
    )  # fmt: skip
    reader = made.reader(SCHEMA)
    parts = reader.partitions()
    assert {type(part) is ArchivedPartition for part in parts} == {True, False}
    found = []
    for part in pickle.loads(pickle.dumps(parts)):
        for batch in pickle.loads(pickle.dumps(reader)).read(part):
            found += batch.column("offset").to_pylist()
    assert sorted(found) == list(range(first - 300, first + 200))


def test_a_reader_begins_at_an_offset_of_its_address_that_the_table_has(
    server: Server, tmp_path: Path
) -> None:
    first = archive(server, tmp_path)
    places = f'{{"orders": {first - 100}}}'
    made = source(server.url, tmp_path / "table", address="orders", startingOffsets=places)
    checkpoint: dict[str, Any] = {}
    Engine(made, checkpoint).run()
    assert checkpoint["rows"] == numbered(4000, first - 100)
    reader = made.reader(SCHEMA)
    found = [r for part in reader.partitions() for b in reader.read(part) for r in b.to_pylist()]
    assert sorted(row["offset"] for row in found) == list(range(first - 100, 4000))


def test_a_batch_read_of_all_and_of_columns(server: Server, tmp_path: Path) -> None:
    archive(server, tmp_path)
    schema = StructType(
        [
            StructField("headers", TEXTS),
            StructField("address", StringType()),
            StructField("body", StringType()),
            StructField("offset", LongType()),
        ]
    )
    made = source(server.url, tmp_path / "table", address="orders", bodyFormat="string")
    reader = made.reader(schema)
    rows = [r for part in reader.partitions() for b in reader.read(part) for r in b.to_pylist()]
    rows.sort(key=lambda row: row["offset"])
    assert rows == [
        {"headers": [("n", str(i))], "address": "orders", "body": str(i), "offset": i}
        for i in range(4000)
    ]


def test_what_neither_has_is_lost_and_named(server: Server, tmp_path: Path) -> None:
    first = archive(server, tmp_path)
    table = open_table(at(tmp_path / "table"))
    files = sorted(table.files(), key=lambda one: one.first)
    gone = files[1]
    assert gone.end < first
    delta = table.raw_table()
    delta.delete(f'"offset" >= {gone.first} and "offset" < {gone.end}')
    made = source(server.url, tmp_path / "table", address="orders")
    with pytest.raises(SluicegateError, match="neither at the gateway nor in the archive"):
        Engine(made, {}).run()
    checkpoint: dict[str, Any] = {}
    made = source(
        server.url, tmp_path / "table", address="orders", failOnDataLoss="false", subscription="b"
    )
    Engine(made, checkpoint).run()
    kept = [i for i in range(4000) if not gone.first <= i < gone.end]
    assert [offset for offset, _ in checkpoint["rows"]] == kept


def test_a_file_that_was_cut_is_named(server: Server, tmp_path: Path) -> None:
    archive(server, tmp_path)
    first = min(open_table(at(tmp_path / "table")).files(), key=lambda one: one.first)
    path = tmp_path / "table" / first.path
    path.write_bytes(path.read_bytes()[:-100])
    made = source(server.url, tmp_path / "table", address="orders")
    with pytest.raises(SluicegateError, match=r"is damaged.*Restore that object"):
        Engine(made, {}).run()


def test_the_table_of_another_gateway_is_refused(server: Server, tmp_path: Path) -> None:
    archive(server, tmp_path)
    other = Server(tmp_path / "other", name="other")
    try:
        other.make("orders")
        other.fill("orders", 100)
        job = Job(tmp_path / "theirs", url=other.url, address="orders")
        job.run()
        made = source(server.url, tmp_path / "theirs", address="orders")
        with pytest.raises(SluicegateError, match="a table without a gateway 'gateway'"):
            Engine(made, {}).run()
    finally:
        other.kill()


def test_a_place_without_a_table_is_named(server: Server, tmp_path: Path) -> None:
    archive(server, tmp_path)
    made = source(server.url, tmp_path / "nothing", address="orders")
    with pytest.raises(SluicegateError, match=r"There is no table at file://.*/nothing"):
        Engine(made, {}).run()


def test_binary_bodies_and_a_gateway_that_still_has_all(server: Server, tmp_path: Path) -> None:
    """The table is not even looked at where the gateway has everything."""
    server.fill("orders", 100)
    made = source(server.url, tmp_path / "nothing", address="orders")
    checkpoint: dict[str, Any] = {}
    Engine(made, checkpoint).run()
    assert checkpoint["rows"] == numbered(100)
    assert [f.dataType for f in SCHEMA.fields] == [LongType(), BinaryType()]
