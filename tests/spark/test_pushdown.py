"""Conditions as bounds: never a row less than what matches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from pyspark_sluicegate.pushdown import Bounds, narrow
from tests.lanes import examples

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OFFSET, TIMESTAMP, ADDRESS = ("offset",), ("timestamp",), ("address",)


def moment(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


@pytest.mark.parametrize(
    ("filters", "bounds"),
    [
        ([], Bounds()),
        ([EqualTo(OFFSET, 5)], Bounds(first=5, end=6)),
        ([GreaterThan(OFFSET, 5), LessThan(OFFSET, 9)], Bounds(first=6, end=9)),
        ([GreaterThanOrEqual(OFFSET, 5), LessThanOrEqual(OFFSET, 9)], Bounds(first=5, end=10)),
        ([In(OFFSET, [7, 3]), GreaterThan(OFFSET, 3)], Bounds(first=4, end=8)),
        ([LessThan(OFFSET, 9), LessThan(OFFSET, 20)], Bounds(end=9)),
        ([EqualTo(ADDRESS, "a")], Bounds(addresses=frozenset({"a"}))),
        ([In(ADDRESS, ("a", "b")), EqualNullSafe(ADDRESS, "b")],
         Bounds(addresses=frozenset({"b"}))),
        ([EqualTo(ADDRESS, "a"), EqualTo(ADDRESS, "b")], Bounds(addresses=frozenset())),
        ([EqualTo(ADDRESS, "a"), EqualTo(ADDRESS, "b"), EqualTo(ADDRESS, "c")],
         Bounds(addresses=frozenset())),
        ([GreaterThanOrEqual(TIMESTAMP, moment(5000))], Bounds(since_ms=5)),
        ([GreaterThanOrEqual(TIMESTAMP, moment(5001))], Bounds(since_ms=6)),
        ([GreaterThan(TIMESTAMP, moment(5000))], Bounds(since_ms=6)),
        ([GreaterThan(TIMESTAMP, moment(5999))], Bounds(since_ms=6)),
        ([LessThan(TIMESTAMP, moment(5000))], Bounds(until_ms=5)),
        ([LessThan(TIMESTAMP, moment(5001))], Bounds(until_ms=6)),
        ([LessThanOrEqual(TIMESTAMP, moment(5999))], Bounds(until_ms=6)),
        ([EqualTo(TIMESTAMP, moment(5000))], Bounds(since_ms=5, until_ms=6)),
        ([Not(EqualTo(OFFSET, 5))], Bounds()),
        ([StringStartsWith(ADDRESS, "a")], Bounds()),
        ([EqualTo(("body",), b"x"), EqualTo(("offset", "x"), 5)], Bounds()),
        ([EqualTo(OFFSET, None), In(OFFSET, ())], Bounds()),
        ([GreaterThan(TIMESTAMP, datetime(2020, 1, 1))], Bounds()),  # noqa: DTZ001 - has no zone
    ],
)  # fmt: skip
def test_conditions_become_bounds(filters: list[Filter], bounds: Bounds) -> None:
    assert narrow(filters) == bounds


HOLDS: dict[type[Filter], Any] = {
    EqualTo: lambda a, b: a == b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
}


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(list(HOLDS)), st.booleans(), st.integers(0, 20)), max_size=5
    ),
    st.integers(0, 10),
    st.integers(0, 20),
)
def test_a_row_that_matches_is_always_within(
    conditions: list[tuple[Any, bool, int]], row_ms: int, offset: int
) -> None:
    filters, matches = [], True
    for kind, timed, number in conditions:
        value = moment(number * 500) if timed else number
        filters.append(kind(TIMESTAMP if timed else OFFSET, value))
        matches = matches and HOLDS[kind](moment(row_ms * 1000) if timed else offset, value)
    bounds = narrow(filters)
    within = bounds.first <= offset and (bounds.end is None or offset < bounds.end)
    within = within and (bounds.since_ms is None or bounds.since_ms <= row_ms)
    within = within and (bounds.until_ms is None or row_ms < bounds.until_ms)
    assert within or not matches
