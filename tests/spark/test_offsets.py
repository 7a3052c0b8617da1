"""Offsets as Spark keeps them: written, read back, compared, refused."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pyspark_sluicegate.offsets import Span, cut_and_pack, make_offset, read_offset
from pyspark_sluicegate.options import SluicegateError

PLACES = st.dictionaries(
    st.text(max_size=8), st.lists(st.integers(0, 1 << 63), min_size=2, max_size=2), max_size=6
)


@given(PLACES, st.text(max_size=5), st.randoms())
def test_equal_states_have_one_text(places: dict[str, list[int]], name: str, chance: Any) -> None:
    shuffled = list(places.items())
    chance.shuffle(shuffled)
    one = json.dumps(make_offset(name, places))
    assert json.dumps(make_offset(name, dict(shuffled))) == one
    assert json.dumps(json.loads(one), sort_keys=True) == one
    assert read_offset(json.loads(one), name) == places


@pytest.mark.parametrize(
    ("offset", "text"),
    [
        ({"q": {}, "s": "etl", "v": 2}, "form 2; this version .* knows form 1"),
        ({"q": {}, "s": "other", "v": 1}, "subscription 'other', the query names 'etl'"),
        ({}, "not written by this source: it has the offset {}"),
        ({"orders": {"0": 5}}, r"not written by this source: .*Each query needs a checkpoint"),
        (
            {"q": {}, "s": "etl", "v": 1, "f": "n = 1"},
            "with the selector 'n = 1', the query names none",
        ),
    ],
)
def test_another_checkpoint_is_refused(offset: dict[str, Any], text: str) -> None:
    with pytest.raises(SluicegateError, match=text):
        read_offset(offset, "etl")


def span(start: int, end: int, size: int, stream: str = "a", url: str = "http://h:1") -> Span:
    return Span(url, stream, 1, start, end, size)


def limits(target: int = 100, least: int = 1, most: int = 64) -> dict[str, int]:
    return {"targetPartitionBytes": target, "minPartitions": least, "maxPartitions": most}


def shapes(spans: list[Span], **given: int) -> list[list[tuple[str, int, int]]]:
    made = cut_and_pack(spans, limits(**given))
    return sorted([[(s.stream, s.start, s.end) for s in one.spans] for one in made])


def test_a_long_span_is_cut_and_short_ones_are_packed() -> None:
    assert shapes([span(0, 30, 300)]) == [[("a", 0, 10)], [("a", 10, 20)], [("a", 20, 30)]]
    quiet = [span(0, 2, 1, stream=f"q{i:03}") for i in range(100)]
    assert len(shapes(quiet)) == 1
    assert shapes([span(0, 30, 300)], most=1) == [[("a", 0, 30)]]
    assert len(shapes([span(0, 30, 10)], least=4)) == 4
    assert len(shapes([span(0, 2, 10)], least=4)) == 2
    assert shapes([]) == []


def test_gateways_are_not_mixed_in_a_task() -> None:
    made = cut_and_pack([span(0, 9, 9), span(0, 9, 9, url="http://h:2")], limits())
    assert sorted(one.spans[0].url for one in made) == ["http://h:1", "http://h:2"]


@given(
    st.lists(st.tuples(st.integers(1, 500), st.integers(0, 10_000)), max_size=8),
    st.integers(1, 2000),
    st.integers(1, 5),
    st.integers(5, 12),
)
def test_partitions_cover_the_spans_once_within_the_bounds(
    parts: list[tuple[int, int]], target: int, least: int, most: int
) -> None:
    spans = [span(7, 7 + rows, size, stream=f"s{i}") for i, (rows, size) in enumerate(parts)]
    made = cut_and_pack(spans, limits(target, least, most))
    assert len(made) <= most
    pickle.loads(pickle.dumps(made))
    found = sorted((s.stream, o) for one in made for s in one.spans for o in range(s.start, s.end))
    assert found == sorted((s.stream, o) for s in spans for o in range(s.start, s.end))
    assert all(one.spans for one in made)
    for one in made:
        places = [(s.stream, s.start) for s in one.spans]
        assert places == sorted(places)
