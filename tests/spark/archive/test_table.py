"""The table on a folder: what others read of it, what it refuses, compaction, cleaning, schema."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("deltalake")

import deltalake

from pyspark_sluicegate.archive.compacting import compact
from pyspark_sluicegate.archive.layout import file_schema, table_schema
from pyspark_sluicegate.archive.proving import prove
from pyspark_sluicegate.archive.ranges import Coverage
from pyspark_sluicegate.archive.reading import read_pieces
from pyspark_sluicegate.archive.store import Location, StoreError, parse_location
from pyspark_sluicegate.archive.table import NoTableError, TakenError, open_table
from pyspark_sluicegate.archive.writing import write_loss
from pyspark_sluicegate.options import SluicegateError
from tests.spark.archive.jobs import NOON, add, at, nonce, table_of, target, write

BACK = pa.schema([("offset", pa.int64()), ("body", pa.binary())])


def offsets(table: Any, start: int, end: int) -> list[int]:
    pieces = Coverage(table.files()).pieces(start, end)
    found = read_pieces(pieces, BACK, table.place)
    return [offset for batch in found for offset in batch.column("offset").to_pylist()]


def quiet(done: int, whole: int) -> None:
    assert 0 < done <= whole


def test_duckdb_and_polars_read_it(tmp_path: Path) -> None:
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    table = table_of(tmp_path / "t", (0, 50), (50, 80))
    add(table, write(table.place, 0, 5, address="a/b %c", stream="a/b %c"))
    add(table, [write_loss(target(80, 90), table.place, nonce())])
    frame = polars.read_delta(str(tmp_path / "t"))
    assert len(frame) == 85
    assert frame.filter(polars.col("address") == "a/b %c")["offset"].to_list() == [0, 1, 2, 3, 4]
    found = deltalake.DeltaTable(str(tmp_path / "t")).to_pyarrow_dataset()
    rows = (
        duckdb.from_arrow(found)
        .query(
            "found",
            'select count(*), min("offset"), max("offset"), count(distinct "offset"), '
            "any_value(headers['n'] is not null) from found where address = 'orders'",
        )
        .fetchall()
    )
    assert rows == [(80, 0, 79, 80, True)]
    add(table, write(table.place, 90, 100, holes=(90, 98, 99)))
    log = deltalake.DeltaTable(str(tmp_path / "t")).get_add_actions(flatten=True)
    bounds = {(r["min.offset"], r["max.offset"]) for r in pa.table(log).to_pylist()}
    assert (91, 97) in bounds, "a bound of a file is one of its rows"


def test_days_and_sizes_make_files(tmp_path: Path) -> None:
    place = at(tmp_path / "t")
    midnight = NOON.replace(hour=23, minute=59, second=0)
    files = write(place, 0, 150, start=midnight, holes=(59, 60, 149))
    assert [(f.date, f.first, f.end, f.rows) for f in files] == [
        ("2026-03-04", 0, 61, 59), ("2026-03-05", 61, 150, 88)
    ]  # fmt: skip
    assert files[0].latest == int((midnight + timedelta(seconds=58)).timestamp() * 1_000_000)
    empty = write(place, 7, 9, holes=(7, 8))
    assert [(f.date, f.first, f.end, f.rows) for f in empty] == [(None, 7, 9, 0)]


def test_ranges_come_back_with_holes(tmp_path: Path) -> None:
    table = open_table(at(tmp_path / "t"), create=True)
    add(table, write(table.place, 0, 100, holes=(3, 50)))
    assert offsets(table, 0, 100) == [i for i in range(100) if i not in (3, 50)]
    assert offsets(table, 40, 60) == [i for i in range(40, 60) if i != 50]


def test_row_groups_are_left_out_that_a_range_does_not_touch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark_sluicegate.archive import writing

    monkeypatch.setattr(writing, "GROUP_ROWS", 10)
    table = open_table(at(tmp_path / "t"), create=True)
    batches = [write(table.place, 0, 10)]
    from tests.spark.archive.jobs import rows

    made = writing.write_range(
        [rows(a, a + 10) for a in range(10, 60, 10)], target(10, 60), table.place, nonce
    )
    add(table, [*batches[0], *made])
    asked: list[list[int]] = []
    real = pq.ParquetFile.iter_batches

    def spy(self: Any, *args: Any, **given: Any) -> Any:
        asked.append(given["row_groups"])
        return real(self, *args, **given)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", spy)
    assert offsets(table, 25, 35) == list(range(25, 35))
    assert asked == [[1, 2]]


def test_small_files_are_joined_in_order_and_rows_stay(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", *((i * 10, i * 10 + 10) for i in range(12)))
    before = table.version
    assert compact(table, 1 << 20, nonce, lambda: 5) == 11
    (one,) = table.files()
    assert (one.first, one.end, one.rows) == (0, 120, 120)
    assert offsets(table, 0, 120) == list(range(120))
    assert table.ends([one.key]) == {one.key: 120}
    assert prove(table, quick=False, tell=quiet).problems() == []
    log = (tmp_path / "t" / "_delta_log" / f"{before + 1:020d}.json").read_text().splitlines()
    actions = [json.loads(line) for line in log]
    changed = [a[k]["dataChange"] for a in actions for k in ("add", "remove") if k in a]
    assert changed == [False] * 13
    assert compact(table, 1 << 20, nonce, lambda: 5) == 0
    # What was replaced is there for readers of an older version, until it is cleaned away.
    assert len(list((tmp_path / "t").glob("gateway=g/**/*.parquet"))) == 13
    orphan = tmp_path / "t" / "gateway=g" / "address=orders" / "orphan.parquet"
    orphan.write_bytes(b"of a task that failed")
    time.sleep(0.1)
    table.vacuum(0)
    assert [p.name for p in (tmp_path / "t").glob("gateway=g/**/*.parquet")] == [
        one.path.rpartition("/")[2]
    ]
    assert offsets(table, 0, 120) == list(range(120))


def test_of_two_compactions_one_is_refused_and_rows_stay(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", (0, 10), (10, 20))
    other = open_table(at(tmp_path / "t"))
    assert compact(table, 1 << 20, nonce, lambda: 5) == 1
    files = other.files()
    assert len(files) == 2, "it looks at the version before"
    from pyspark_sluicegate.archive.rewriting import rewrite

    made = rewrite(files, other.place, nonce(), compression="zstd")
    with pytest.raises(TakenError):
        other.replace(files, made, 6)
    other.refresh()
    assert offsets(other, 0, 20) == list(range(20))
    assert prove(other, quick=False, tell=quiet).problems() == []


def test_a_table_that_is_not_whole_is_told(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", (0, 10), (10, 20), (20, 30))
    first, second, third = sorted(table.files(), key=lambda f: f.first)
    folder = tmp_path / "t"
    (folder / first.path).write_bytes((folder / second.path).read_bytes())
    (folder / second.path).write_bytes(b"PAR1")
    (folder / third.path).unlink()
    problems = prove(table, quick=False, tell=quiet).problems()
    assert len(problems) == 3
    assert "does not hold offsets 0 to 9" in problems[0]
    assert "is damaged" in problems[1]
    assert "cannot be used" in problems[2] or "has no" in problems[2]
    assert prove(table, quick=True, tell=quiet).problems() == []


def test_a_newer_column_is_added_and_an_older_writer_refuses_it(tmp_path: Path) -> None:
    place = at(tmp_path / "t")
    old = table_schema(raw=False).remove(table_schema(raw=False).names.index("annotations"))
    deltalake.DeltaTable.create(
        str(tmp_path / "t"), old, partition_by=["gateway", "address", "date"]
    )
    assert "annotations" not in open_table(place).columns
    table = open_table(place, create=True)
    assert "annotations" in table.columns
    add(table, write(place, 0, 5))
    assert offsets(table, 0, 5) == [0, 1, 2, 3, 4]
    from deltalake import Schema

    table.raw_table().alter.add_columns(
        Schema.from_arrow(pa.schema([("weather", pa.string())])).fields
    )
    with pytest.raises(SluicegateError, match="does not know \\(weather\\)"):
        open_table(place, create=True)
    assert offsets(open_table(place), 0, 5) == [0, 1, 2, 3, 4], "reading goes on"


def test_an_archive_may_keep_encoded_messages_later(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", (0, 5))
    later = open_table(table.place, create=True, raw=True)
    assert "amqp" in later.columns
    add(later, write(table.place, 5, 9, schema=file_schema(raw=True)))
    assert open_table(table.place, create=True).columns == later.columns
    assert compact(later, 1 << 20, nonce, lambda: 5) == 1
    assert offsets(later, 0, 9) == list(range(9))


def test_a_foreign_table_and_a_column_of_another_type(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path / "x"), pa.table({"a": [1]}))
    with pytest.raises(SluicegateError, match="is no archive of Sluicegate"):
        open_table(at(tmp_path / "x"), create=True)
    schema = table_schema(raw=False)
    index = schema.names.index("priority")
    wrong = schema.set(index, pa.field("priority", pa.string()))
    deltalake.DeltaTable.create(
        str(tmp_path / "y"), wrong, partition_by=["gateway", "address", "date"]
    )
    with pytest.raises(SluicegateError, match=r"'priority' .* is string, an archive's is int32"):
        open_table(at(tmp_path / "y"), create=True)
    with pytest.raises(NoTableError):
        open_table(at(tmp_path / "z"))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"archive": "lake"}, "must be s3://bucket/path"),
        ({"archive": "ftp://x/y"}, "must be s3://bucket/path"),
        ({"archive": "s3://"}, "must be s3://bucket/path"),
        ({"archive": "s3://key:secret@bucket/x"}, "Give credentials by the environment"),
        ({"archive": "s3://b/x", "archiveEndpoint": "host:9"}, "must be http\\[s\\]://host"),
    ],
)
def test_places_that_are_none(given: dict[str, str], told: str) -> None:
    with pytest.raises(SluicegateError, match=told) as refused:
        parse_location("archive", given)
    assert "secret@" not in str(refused.value)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StoreError):
        open_table(at(tmp_path / "file" / "t"), create=True)
    assert Location("s3://b/x").folder is None
