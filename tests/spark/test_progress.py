"""The lag of a query, from what Spark reports of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyspark_sluicegate.offsets import make_offset
from pyspark_sluicegate.progress import lag, total


def progress(end: Any, latest: Any, **others: Any) -> dict[str, Any]:
    return {"sources": [{"endOffset": end, "latestOffset": latest} | others]}


def test_lag_is_what_was_there_and_is_not_read() -> None:
    end = make_offset("etl", {"a": [1, 40], "b": [1, 7]})
    latest = make_offset("etl", {"a": [1, 100], "b": [1, 7], "c": [1, 5]})
    seen = progress(json.dumps(end), json.dumps(latest))
    assert lag(seen) == {"a": 60, "b": 0, "c": 5}
    assert total(seen) == 65
    assert lag(progress(end, latest)) == lag(seen), "as a progress parsed from JSON has them"


def test_a_new_life_of_a_stream_is_all_to_be_read() -> None:
    end, latest = make_offset("etl", {"a": [1, 40]}), make_offset("etl", {"a": [2, 3]})
    assert lag(progress(end, latest)) == {"a": 3}
    late = make_offset("etl", {"a": [1, 30]})
    assert lag(progress(end, late)) == {"a": 0}, "a head that was asked for before the batch"


def test_streams_of_two_sources_add_up() -> None:
    end, latest = make_offset("x", {"a": [1, 4]}), make_offset("x", {"a": [1, 6]})
    one = {"endOffset": end, "latestOffset": latest}
    assert lag({"sources": [one, one]}) == {"a": 4}


@pytest.mark.parametrize(
    "seen",
    [
        None,
        {},
        {"sources": []},
        progress(None, None),
        progress("null", "null"),
        progress("not json", "not json"),
        progress('{"orders":{"0":5}}', '{"orders":{"0":9}}'),
        progress(7, 9),
    ],
)
def test_what_is_not_ours_has_no_lag(seen: Any) -> None:
    assert lag(seen) == {}
    assert total(seen) == 0
