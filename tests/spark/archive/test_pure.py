"""Decisions of the archive that know no store: names, facts, what of a batch is needed, ranges."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_sluicegate.archive.compacting import groups
from pyspark_sluicegate.archive.layout import (
    FileFacts,
    app_id,
    make_path,
    read_facts,
    table_schema,
)
from pyspark_sluicegate.archive.ledger import (
    GapError,
    OtherWriterError,
    check_alone,
    decide,
    ends_of,
)
from pyspark_sluicegate.archive.proving import judge
from pyspark_sluicegate.archive.ranges import Coverage, pack
from pyspark_sluicegate.options import COLUMNS, SluicegateError

KEY = ("g", "orders", 1)


def facts(first: int, end: int, **given: Any) -> FileFacts:
    made: dict[str, Any] = {
        "path": f"gateway=g/address=orders/date=2026-03-04/part-1-{first}-{end}-0.parquet",
        "size": (end - first) * 10, "gateway": "g", "address": "orders", "date": "2026-03-04",
        "stream": "orders", "epoch": 1, "first": first, "end": end, "rows": end - first,
    }  # fmt: skip
    return FileFacts(**{**made, **given})


def test_the_table_has_every_column_of_the_source_with_its_type() -> None:
    schema = table_schema(raw=True)
    assert set(COLUMNS) - {"properties"} == set(schema.names) - {"gateway", "stream", "date"}
    assert "amqp" not in table_schema(raw=False).names


@pytest.mark.parametrize("address", ["orders", "a/b c", "..", "über.%41", "x=y&z", "."])
def test_facts_come_back_from_what_the_log_keeps(address: str) -> None:
    path = make_path("g/1", address, "2026-03-04", (7, 10, 25), nonce="ab12")
    assert path.count("/") == 3
    assert "/../" not in path
    assert "/./" not in path
    one = facts(
        10, 25, path=path, gateway="g/1", address=address, epoch=7, rows=12, low=10, high=22,
        earliest=1_772_625_600_000_123, latest=1_772_625_700_000_456,
    )  # fmt: skip
    stats = json.loads(one.stats())
    assert stats["numRecords"] == 12
    assert stats["minValues"]["timestamp"] == "2026-03-04T12:00:00.000Z"
    assert stats["maxValues"]["timestamp"] == "2026-03-04T12:01:40.001Z", "a bound is no less"
    from urllib.parse import quote

    action = {
        "path": quote(path, safe="/="), "size_bytes": one.size, "num_records": 12,
        "partition.gateway": "g/1", "partition.address": address,
        "partition.date": date(2026, 3, 4),
        **{f"min.{name}": value for name, value in stats["minValues"].items()},
        **{f"max.{name}": value for name, value in stats["maxValues"].items()},
        "min.timestamp": datetime(2026, 3, 4, 12, tzinfo=UTC), "max.timestamp": None,
    }  # fmt: skip
    found = read_facts(action)
    assert (found.key, found.address, found.path) == (one.key, address, path)
    assert (found.first, found.end, found.rows, found.date) == (10, 25, 12, "2026-03-04")


def test_a_file_of_another_program_is_judged_by_its_statistics_or_refused() -> None:
    action: dict[str, Any] = {
        "path": "gateway=g/x.parquet", "size_bytes": 9, "num_records": 5, "partition.gateway": "g",
        "partition.address": "orders", "partition.date": date(2026, 3, 4), "min.stream": "orders",
        "max.stream": "orders", "min.epoch": 1, "max.epoch": 1, "min.offset": 5, "max.offset": 9,
    }  # fmt: skip
    found = read_facts(action)
    assert (found.first, found.end) == (5, 10)
    with pytest.raises(SluicegateError, match="Another program has written it"):
        read_facts({**action, "max.epoch": 2})
    with pytest.raises(SluicegateError, match="Another program has written it"):
        read_facts({**action, "min.offset": None, "max.offset": None})


def test_applications_of_streams_differ() -> None:
    assert app_id(("a/b", "c", 1)) != app_id(("a", "b/c", 1))


def test_what_of_a_batch_is_needed() -> None:
    files = [facts(0, 10), facts(10, 20), facts(20, 30)]
    assert decide(files, {}).keep == files
    made = decide(files, {KEY: 15})
    assert made.drop == [files[0]]
    assert made.trim == [(files[1], 15)]
    assert made.keep == [files[2]]
    assert made.ends == {KEY: 30}
    made = decide(files, {KEY: 30})
    assert (made.drop, made.ends) == (files, {})
    with pytest.raises(GapError, match=r"ends at offset 5 .* goes on at 10"):
        decide(files[1:], {KEY: 5})
    with pytest.raises(GapError):
        decide([files[0], files[2]], {KEY: 0})


@given(st.integers(0, 60), st.lists(st.integers(1, 12), min_size=1, max_size=6), st.integers(0, 60))
def test_whatever_comes_a_table_gains_its_offsets_once(
    start: int, sizes: list[int], end: int
) -> None:
    cuts = [start]
    for size in sizes:
        cuts.append(cuts[-1] + size)
    files = [facts(a, b) for a, b in pairwise(cuts)]
    try:
        made = decide(files, {KEY: end})
    except GapError:
        assert start > end
        return
    assert start <= end
    gained = sorted(
        [*range(end, end), *(o for f in made.keep for o in range(f.first, f.end))]
        + [o for f, at in made.trim for o in range(at, f.end)]
    )
    assert gained == list(range(end, max(end, cuts[-1])))
    assert made.ends.get(KEY, end) == max(end, cuts[-1])


def test_another_writer_is_found_by_its_ends() -> None:
    check_alone({KEY: 5}, {KEY: 5})
    check_alone({}, {KEY: 5})
    for found in (4, 6, None):
        with pytest.raises(OtherWriterError, match="Another archive writes 'orders'"):
            check_alone({KEY: 5}, {KEY: found})
    assert ends_of([facts(0, 5), facts(5, 9)]) == {KEY: 9}


def test_ranges_of_files() -> None:
    cover = Coverage([facts(20, 30), facts(0, 10), facts(10, 20), facts(40, 50)])
    assert cover.first() == 0
    assert [(p.start, p.end) for p in cover.pieces(5, 45)] == [
        (5, 10), (10, 20), (20, 30), (40, 45)
    ]  # fmt: skip
    assert cover.gaps(5, 60) == [(30, 40), (50, 60)]
    assert cover.gaps(10, 30) == []
    assert [cover.covered_from(at) for at in (0, 29, 30, 39, 49, 50)] == [0, 29, 40, 40, 49, None]
    assert Coverage([]).first() is None
    assert Coverage([facts(0, 9, lost=True, rows=0)]).gaps(0, 9) == [(0, 9)], "lost is not there"


@pytest.mark.parametrize(
    ("start", "limit", "rows", "size", "end"),
    [
        (0, 30, None, None, 30),
        (0, 30, 12, None, 12),
        (0, 30, None, 150, 15),
        (0, 30, None, 1, 1),
        (5, 30, 100, 1000, 30),
        (0, 100, None, None, 30),
        (35, 60, None, None, 50),
    ],
)
def test_how_far_a_batch_goes(
    start: int, limit: int, rows: int | None, size: int | None, end: int
) -> None:
    cover = Coverage([facts(0, 10), facts(10, 30), facts(40, 50)])
    assert cover.find_end(start, limit, rows_max=rows, bytes_max=size) == end


@given(
    st.lists(st.integers(1, 500), min_size=1, max_size=12), st.integers(1, 4000), st.integers(1, 9)
)
def test_packing_leaves_nothing_out(sizes: list[int], target: int, most: int) -> None:
    cuts = [0]
    for size in sizes:
        cuts.append(cuts[-1] + size)
    cover = Coverage([facts(a, b) for a, b in pairwise(cuts)])
    bins = pack(cover.pieces(0, cuts[-1]), target, most)
    assert len(bins) <= most
    flat = [offset for one in bins for p in one for offset in range(p.start, p.end)]
    assert flat == list(range(cuts[-1]))


def test_neighbours_of_a_day_are_joined_up_to_the_size() -> None:
    files = [facts(0, 10), facts(10, 20), facts(20, 30), facts(30, 40, date="2026-03-05")]
    assert groups(files, 1000) == [files[:3]]
    assert groups(files, 200) == [files[:2]]
    assert groups([files[0], files[2]], 1000) == [], "a gap is between them"
    lost = facts(10, 20, lost=True, rows=0)
    assert groups([files[0], lost, files[2]], 1000) == []


def test_a_table_is_judged_by_its_ranges() -> None:
    whole = judge([facts(5, 10), facts(10, 20, rows=8), facts(20, 30, rows=0, lost=True)], 30)
    assert (whole.first, whole.end, whole.rows, whole.holes, whole.lost) == (5, 30, 13, 2, 10)
    assert whole.problems == []
    assert judge([facts(0, 5), facts(6, 9)], 9).problems == ["offsets 5 to 5 are missing"]
    (twice,) = judge([facts(0, 5), facts(3, 9)], 9).problems
    assert twice.startswith("offsets 3 to 4 are there twice")
    (ended,) = judge([facts(0, 5)], 9).problems
    assert ended == "the commits say that it ends at 9, its files at 5"
