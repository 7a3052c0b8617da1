"""What a task does with answers that are not what was asked for: nothing is taken on trust."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from pyspark_sluicegate.offsets import Span
from pyspark_sluicegate.options import SluicegateError, parse_options
from pyspark_sluicegate.rows import make_request, read_spans
from tests.spark.scripted import Script, arrow, part, rows, scripted, trailer

SCHEMA = StructType([StructField("offset", LongType()), StructField("body", BinaryType())])


def read(script: Script, *spans: tuple[int, int], **options: str) -> list[int]:
    given = {"url": script.url, "address": "orders", "retryDeadline": "300ms"} | options
    parsed = parse_options(given)
    wanted = [Span(script.url, f"s{i}", 1, a, b, 1) for i, (a, b) in enumerate(spans or [(0, 4)])]
    request = make_request(SCHEMA, parsed)
    batches = read_spans(wanted, SCHEMA, parsed, request)
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def asked(script: Script) -> list[list[tuple[str, int, int]]]:
    return [
        [(r["stream"], r["start"], r["end"]) for r in body["ranges"]] for _, body, _ in script.asked
    ]


def test_batches_and_trailer() -> None:
    with scripted(arrow(part([0, 1], 0, 2), part([2, 3], 2, 4), trailer(4))) as script:
        assert read(script) == [0, 1, 2, 3]
    assert len(script.asked) == 1
    path, body, _ = script.asked[0]
    assert path == "/api/v1/streams/read"
    assert body["ranges"] == [{"stream": "s0", "epoch": 1, "start": 0, "end": 4}]
    assert (body["form"], "columns" in body) == ("stored", False)


def test_several_spans_in_one_answer() -> None:
    answer = arrow(part([5], 5, 6), part([0, 1], 0, 2, range=1), trailer(3))
    with scripted(answer) as script:
        assert read(script, (5, 6), (0, 2)) == [5, 0, 1]


def test_goes_on_where_the_answer_stopped_at_its_size() -> None:
    first = arrow(part([0, 1], 0, 2), trailer(2, next=[0, 2]))
    with scripted(first, arrow(part([2, 3], 2, 4), trailer(2))) as script:
        assert read(script) == [0, 1, 2, 3]
    assert asked(script) == [[("s0", 0, 4)], [("s0", 2, 4)]]


def test_goes_on_behind_the_last_whole_batch_after_a_cut_anywhere() -> None:
    parts = [part([0, 1], 0, 2), part([2, 3], 2, 4), trailer(4)]
    whole = arrow(*parts)[1]
    seen = set()
    for length in range(0, len(whole) - 8, 40):
        with scripted((200, whole[:length])) as script:
            script.later = lambda body: arrow(
                *(one for one in parts[:2] if one[1]["first"] >= body["ranges"][0]["start"]),
                trailer(4 - body["ranges"][0]["start"]),
            )
            assert read(script, retryDeadline="5s") == [0, 1, 2, 3], length
            if len(script.asked) > 1:
                seen.add(script.asked[1][1]["ranges"][0]["start"])
    assert {0, 2} <= seen


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([part([0, 1, 2], 0, 4), trailer(3)], "sent 3 rows as offsets 0 to 3"),
        ([part([1, 2, 3], 1, 4), trailer(3)], "expected were those from 0 to 3"),
        ([part([0, 1], 0, 2), part([3], 3, 4), trailer(3)], "expected were those from 2 to 3"),
        ([part([0, 1, 1, 3], 0, 4), trailer(4)], "each once"),
        ([part([0, 2, 1, 3], 0, 4), trailer(4)], "each once"),
        ([part([0, 1, 2, 4], 0, 4), trailer(4)], "each once"),
        ([part([0, 1, 2, 3, 4], 0, 5), trailer(5)], "each once"),
        ([part([0, 1], 0, 2), part([0, 1], 0, 2), trailer(4)], "expected were those from 2 to 3"),
        ([part([0, 1, 2, 3], 0, 4), trailer(5)], "sent 5 rows, 4 have arrived"),
        ([part([0, 1], 0, 2), trailer(2)], "left out 2 to 3"),
        ([trailer(0)], "left out 0 to 3"),
        ([part([0, 1], 0, 2), trailer(2, next=[0, 3])], "left out 2 to 2"),
        ([part([0, 1], 0, 2), trailer(2, next=[0, 2], error="rot")], "cannot read on: rot"),
    ],
)
def test_an_answer_that_does_not_fit_is_an_error_not_a_result(parts: list[Any], text: str) -> None:
    with scripted(arrow(*parts)) as script, pytest.raises(SluicegateError) as caught:
        read(script)
    assert text in str(caught.value)


def test_an_answer_without_its_trailer_is_incomplete() -> None:
    whole = arrow(part([0, 1, 2, 3], 0, 4))
    with scripted(whole, arrow(part([4], 4, 5), trailer(1))) as script:
        assert read(script, (0, 5)) == [0, 1, 2, 3, 4]
    assert asked(script) == [[("s0", 0, 5)], [("s0", 4, 5)]]


def test_no_progress_is_not_asked_for_for_ever() -> None:
    stuck = arrow(trailer(0, next=[0, 0]))
    with scripted(stuck) as script, pytest.raises(SluicegateError, match=r"gave up after 0\.3 s"):
        read(script)


def test_holes_are_no_loss() -> None:
    with scripted(arrow(part([0, 3], 0, 4, holes=2), trailer(2))) as script:
        assert read(script) == [0, 3]


def test_another_schema_is_refused() -> None:
    other = pa.schema([pa.field("offset", pa.int64()), pa.field("body", pa.large_binary())])
    facts = {"range": 0, "first": 0, "end": 1, "holes": 0}
    answer = arrow((rows([0], other), facts))
    with scripted(answer) as script, pytest.raises(SluicegateError, match="large_binary"):
        read(script)


LOSS = {"text": "orders: offsets 0 to 1 cannot be read", "reason": "expired_by_retention"}


def test_a_loss_stops_the_query_and_names_the_ways_out() -> None:
    gone = b'{"losses": [{"text": "offsets 0 to 1 are gone"}]}'
    with scripted((410, gone)) as script:  # noqa: SIM117
        with pytest.raises(SluicegateError, match=r"0 to 1 are gone.*failOnDataLoss=false"):
            read(script)


def test_a_loss_is_skipped_when_told_to(caplog: pytest.LogCaptureFixture) -> None:
    with scripted(arrow(part([2, 3], 2, 4), trailer(2, losses=[LOSS]))) as script:
        assert read(script, failOnDataLoss="false") == [2, 3]
    assert "0 to 1 cannot be read" in caplog.text
    assert script.asked[0][1]["skipLosses"] is True
    with scripted(arrow(part([0, 1], 0, 2), trailer(2, losses=[LOSS]))) as script:
        assert read(script, failOnDataLoss="false") == [0, 1]
