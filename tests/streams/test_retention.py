"""Retention: what may go, and what is a named loss."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.streams.retention import Drop, Limits, decide, find_lag


@dataclass
class Segment:
    first: int
    end: int
    size_bytes: int = 100
    newest_ms: int = 0
    rows: int = 10


def segments(count: int) -> list[Segment]:
    return [Segment(i * 10, i * 10 + 10, newest_ms=i * 10) for i in range(count)]


@pytest.mark.parametrize(
    ("floor", "bytes_max", "age_ms_max", "expected"),
    [
        (None, 0, 0, Drop()),
        (None, -1, -1, Drop()),
        (None, 500, 0, Drop()),
        (None, 499, 0, Drop(count=1)),
        (None, 1, 0, Drop(count=4)),
        (20, 300, 0, Drop(count=2)),
        (20, 200, 0, Drop(count=3, lost_first=20, lost_end=30)),
        (15, 300, 0, Drop(count=2, lost_first=15, lost_end=20)),
        (0, 300, 0, Drop(count=2, lost_first=0, lost_end=20)),
        (None, 0, 75, Drop(count=3)),
        (20, 0, 75, Drop(count=2)),
        (0, 0, 75, Drop()),
        (0, 450, 75, Drop(count=1, lost_first=0, lost_end=10)),
        (10, 450, 75, Drop(count=1)),
    ],
)
def test_table(floor: int | None, bytes_max: int, age_ms_max: int, expected: Drop) -> None:
    limits = Limits(bytes_max=bytes_max, age_ms_max=age_ms_max)
    assert decide(segments(5), floor, limits, now_ms=100) == expected


def test_nothing_and_one_are_never_dropped() -> None:
    limits = Limits(bytes_max=1, age_ms_max=1)
    assert decide([], 0, limits, 100) == Drop()
    assert decide(segments(1), None, limits, 10_000) == Drop()


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=8),
    st.none() | st.integers(0, 90),
    st.integers(0, 300),
    st.integers(0, 90),
)
def test_what_is_lost_is_exactly_what_was_wanted_and_dropped(
    sizes: list[int], floor: int | None, bytes_max: int, age: int
) -> None:
    made = [
        Segment(i * 10, i * 10 + 10, size_bytes=size, newest_ms=i * 10)
        for i, size in enumerate(sizes)
    ]
    drop = decide(made, floor, Limits(bytes_max=bytes_max, age_ms_max=age), now_ms=100)
    assert 0 <= drop.count < len(made)
    gone = set(itertools.chain.from_iterable(range(s.first, s.end) for s in made[: drop.count]))
    wanted = set() if floor is None else {o for o in gone if o >= floor}
    assert set(range(drop.lost_first, drop.lost_end)) == wanted
    kept = sum(s.size_bytes for s in made[drop.count :])
    assert bytes_max == 0 or kept <= bytes_max or drop.count == len(made) - 1
    if wanted:
        # Loss only by the byte limit, and not one segment more than it needs.
        assert kept + made[drop.count - 1].size_bytes > bytes_max > 0


@pytest.mark.parametrize(
    ("archived", "floor", "expected"),
    [
        (None, None, Drop()),
        (None, 50, Drop()),
        (50, 50, Drop(count=3)),
        (20, 20, Drop(count=2)),
        (50, 10, Drop(count=1)),
        (19, 19, Drop(count=1)),
        (0, 0, Drop()),
    ],
)
def test_what_is_archived_goes_down_to_the_local_bytes(
    archived: int | None, floor: int | None, expected: Drop
) -> None:
    limits = Limits(bytes_max=10_000, local_bytes=200)
    assert decide(segments(5), floor, limits, 100, archived=archived) == expected


def test_the_bound_of_bytes_holds_whatever_is_archived() -> None:
    limits = Limits(bytes_max=300, local_bytes=200)
    assert decide(segments(5), 10, limits, 100, archived=10) == Drop(
        count=2, lost_first=10, lost_end=20
    )


@pytest.mark.parametrize(
    ("archived", "bytes_max", "before", "waiting"),
    [
        (None, 1000, False, None),
        (None, 626, False, None),
        (None, 625, False, 500),
        (0, 625, False, 500),
        (20, 625, False, 300),
        (30, 625, False, None),
        (None, 700, True, 500),
        (None, 715, True, None),
        (None, 0, False, None),
    ],
)
def test_an_archive_that_lags_is_found_at_80_percent_and_has_caught_up_below_70(
    archived: int | None, bytes_max: int, before: bool, waiting: int | None
) -> None:
    limits = Limits(bytes_max=bytes_max, local_bytes=200)
    assert find_lag(segments(5), archived, limits, before=before) == waiting
    assert find_lag(segments(5), archived, Limits(bytes_max=bytes_max), before=before) is None
