"""Dead letters made of rows: cause, origin, text or bytes, headers that can be sent again."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from gateway.model.amqp_types import Described, ULong, encode
from pyspark_sluicegate.pipelines.counting import Counts, LetterTotals, as_json, as_table, ranges
from pyspark_sluicegate.pipelines.letters import (
    CAUSES,
    COLUMNS,
    READ,
    SCHEMA,
    body_section,
    cause_of_death,
    is_header,
    letter,
    letters,
)

NOW = datetime(2026, 3, 4, tzinfo=UTC)


def amqp(code: int, value: Any) -> bytes:
    return encode(Described(ULong(0x70), [True])) + encode(Described(ULong(code), value))


def row(**given: Any) -> dict[str, Any]:
    usual = {"offset": 1, "timestamp": NOW, "protocol": "amqp", "durable": True, "priority": 4}
    raw = amqp(0x75, b"x")
    return {**dict.fromkeys(READ), **usual, "body": b"x", "amqp": raw, **given}


@pytest.mark.parametrize(
    ("address", "queue", "expired", "cause"),
    [
        (None, None, None, "direct"),
        ("a", None, None, "unrouted"),
        ("a", "q", None, "undelivered"),
        ("a", "q", "17", "expired"),
        (None, None, "17", "expired"),
    ],
)
def test_causes(address: str | None, queue: str | None, expired: str | None, cause: str) -> None:
    assert cause_of_death(address, queue, expired) == cause
    assert cause in CAUSES


def test_the_origin_stands_in_annotations_or_in_headers_and_goes_from_there() -> None:
    found = letter(
        row(
            annotations=[("x-opt-ORIG-ADDRESS", "orders"), ("x-opt-ORIG-QUEUE", "q")],
            headers='{"n": 1, "_AMQ_ORIG_ADDRESS": "a header of the sender"}',
        )
    )
    assert (found["cause"], found["original_address"], found["original_queue"]) == (
        "undelivered", "orders", "q",
    )  # fmt: skip
    assert json.loads(found["headers"])["n"] == 1
    told = {"_AMQ_ORIG_ADDRESS": "work", "_AMQ_ORIG_QUEUE": "work", "_AMQ_ACTUAL_EXPIRY": "5"}
    found = letter(row(protocol="stomp", headers=json.dumps({**told, "region": "eu"})))
    assert (found["cause"], found["original_address"]) == ("expired", "work")
    assert json.loads(found["headers"]) == {"region": "eu"}


@pytest.mark.parametrize(
    ("raw", "body", "text", "content_type"),
    [
        (amqp(0x75, b"x"), b"x", None, None),
        (amqp(0x77, "tea"), b"tea", "tea", None),
        (amqp(0x77, {"a": 1}), b'{"a":1}', '{"a":1}', "application/json"),
        (amqp(0x76, [1]), b"[1]", "[1]", "application/json"),
        (amqp(0x77, None), None, None, None),
        (b"\x00no message", b"x", None, None),
    ],
)
def test_an_amqp_body_is_a_text_where_it_was_no_data(
    raw: bytes, body: bytes | None, text: str | None, content_type: str | None
) -> None:
    found = letter(row(amqp=raw, body=body))
    assert (found["text"], found["content_type"], found["body"]) == (text, content_type, body)


@pytest.mark.parametrize(
    ("content_type", "body", "is_text"),
    [
        (None, b"tea", True),
        ("text/plain", b"tea", True),
        ("application/vnd.x+json", b"{}", True),
        ("application/octet-stream", b"tea", False),
        ("text/plain", b"\xff", False),
    ],
)
def test_a_stomp_body_is_a_text_by_its_type(
    content_type: str | None, body: bytes, is_text: bool
) -> None:
    found = letter(row(protocol="stomp", content_type=content_type, body=body))
    assert (found["text"] is not None) is is_text


def test_body_sections() -> None:
    assert body_section(amqp(0x77, 1)) == 0x77
    assert body_section(encode(Described(ULong(0x70), [True]))) is None


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        (1, True), (True, True), (None, True), ("a", True), (1.5, True),
        (1 << 63, False), (float("nan"), False), (float("inf"), False), ([1], False), ({}, False),
    ],
)  # fmt: skip
def test_headers_that_a_sink_takes(value: object, fits: bool) -> None:
    assert is_header(value) is fits


def test_rows_become_letters_with_the_types_that_are_promised() -> None:
    kinds = {n: pa.map_(pa.string(), pa.string()) for n in ("annotations",)}
    schema = pa.schema([(n, kinds.get(n) or SCHEMA.field(n).type) for n in READ if n != "amqp"])
    rows = pa.RecordBatch.from_pylist(
        [row(annotations=[("x-opt-ORIG-ADDRESS", "a")])],
        schema=schema.append(pa.field("amqp", pa.binary())),
    )
    made = letters(rows)
    assert made.schema == SCHEMA
    assert list(COLUMNS) == made.schema.names
    assert made.to_pylist()[0]["cause"] == "unrouted"


def test_ranges_end_where_those_of_another_run_end() -> None:
    assert list(ranges(0, 25, 10)) == [(0, 10), (10, 20), (20, 25)]
    assert list(ranges(7, 25, 10)) == [(7, 10), (10, 20), (20, 25)]
    assert list(ranges(25, 25, 10)) == []


@pytest.mark.parametrize("show", [as_table, as_json])
def test_counts_of_ranges_are_added_up_and_sorted(show: Callable[[Counts], str]) -> None:
    counts = Counts(("cause", "original_address"))
    for address, messages in (("a", 2), ("b", 5), ("a", 1)):
        found = {"cause": "expired", "original_address": address, "messages": messages}
        counts.add({**found, "bytes": None})
    counts.add({"cause": "direct", "original_address": None, "messages": 1, "bytes": 1200})
    lines = show(counts).splitlines()
    if show is as_json:
        first = {"cause": "expired", "original_address": "b", "messages": 5, "bytes": 0}
        assert json.loads(lines[0]) == first
        assert len(lines) == 3
    else:
        assert [line.split() for line in lines] == [
            ["cause", "original", "address", "messages", "bytes"],
            ["expired", "b", "5", "0"],
            ["expired", "a", "3", "0"],
            ["direct", "-", "1", "1,200"],
            ["all", "9", "1,200"],
        ]


def test_a_name_cannot_steer_a_terminal() -> None:
    counts = Counts(("original_address",))
    counts.add({"original_address": "a\x1b[2Jb\n", "messages": 1, "bytes": 1})
    assert "\x1b" not in as_table(counts)
    assert len(as_table(counts).splitlines()) == 3
    assert as_table(Counts(("cause",))) == "No dead letters.\n"


def test_totals_tell_how_far_the_looking_is() -> None:
    totals = LetterTotals(letters=3, sent=2, places={"g/DLQ": 5}, heads={"g/DLQ": 20})
    assert totals.lags() == {"g/DLQ": 15}
    assert totals.share() == 0.25
    assert totals.counters() == {"batches": 0, "letters": 3, "sent": 2, "homeless": 0}
    assert "3 dead letters  2 sent" in totals.summary(1.0)
