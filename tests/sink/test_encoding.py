"""Rows to messages: what a receiver reads of each, and that shared heads change nothing."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.model.amqp_types import Symbol, Timestamp
from gateway.model.errors import RefusedError
from gateway.model.message import DURABLE, EXPIRES, GROUPED, IDENTIFIED
from gateway.model.run import MixedRun, Run
from gateway.model.sections import BodyKind, expiry_and_group, header_facts, scan
from gateway.sink import encoding
from gateway.sink.checking import Judged, judge_batch
from gateway.sink.encoding import encode_rows
from gateway.sink.form import Form, read_form
from gateway.sink.reading import fitting
from protocols.amqp.looking import look_into

TYPES: dict[str, pa.DataType] = {
    "body": pa.binary(),
    "address": pa.string(),
    "key": pa.string(),
    "message_id": pa.string(),
    "subject": pa.string(),
    "content_type": pa.string(),
    "correlation_id": pa.string(),
    "reply_to": pa.string(),
    "headers": pa.map_(pa.string(), pa.string()),
    "priority": pa.int32(),
    "ttl_ms": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "durable": pa.bool_(),
}


def batch_of(rows: list[dict[str, Any]], text: bool = False, **types: pa.DataType) -> Any:
    names = [name for name in TYPES if any(name in row for row in rows)]
    kinds = {**TYPES, **({"body": pa.string()} if text else {}), **types}
    fields = [pa.field(name, kinds[name]) for name in names]
    schema = pa.schema(fields)
    if "address" not in names:
        schema = schema.with_metadata({"sluicegate.address": "q"})
    arrays = [pa.array([row.get(f.name) for row in rows], f.type) for f in fields]
    return pa.record_batch(arrays, schema=schema)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
ASCII = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40)
MAYBE = st.one_of(st.none(), TEXT)
ROW = st.fixed_dictionaries(
    {"body": st.binary(max_size=600)},
    optional={
        "address": st.sampled_from(["q", "r"]),
        "key": MAYBE,
        "message_id": MAYBE,
        "subject": MAYBE,
        "content_type": st.one_of(st.none(), ASCII),
        "correlation_id": MAYBE,
        "reply_to": MAYBE,
        "headers": st.one_of(
            st.none(), st.lists(st.tuples(ASCII, MAYBE), max_size=3, unique_by=lambda p: p[0])
        ),
        "priority": st.one_of(st.none(), st.integers(0, 9)),
        "ttl_ms": st.one_of(st.none(), st.integers(0, 1 << 40)),
        "timestamp": st.one_of(
            st.none(),
            st.datetimes(
                dt.datetime(1970, 1, 1),  # noqa: DTZ001 - its zone is added
                dt.datetime(2200, 1, 1),  # noqa: DTZ001
                timezones=st.just(dt.UTC),
            ),
        ),
        "durable": st.one_of(st.none(), st.booleans()),
    },
)


def has_address(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """An address is a column of all rows, or of none."""
    if any("address" in row for row in rows):
        return [{"address": "q", **row} for row in rows]
    return rows


@given(st.lists(ROW, min_size=1, max_size=8).map(has_address), st.booleans())
def test_each_message_says_what_its_row_does(rows: list[dict[str, Any]], alike: bool) -> None:
    if alike:
        rows = [{**rows[0], "body": row["body"]} for row in rows]
    batch = batch_of(rows)
    # A slice of a batch has its offsets within it.
    parts = encode_rows(batch_of([*rows, *rows]).slice(len(rows)), read_form(batch.schema))
    by_address = {part.address: part for part in parts}
    taken = dict.fromkeys(by_address, 0)
    for row in rows:
        part = by_address[row.get("address", "q")]
        place = taken[part.address]
        taken[part.address] += 1
        flags = part.flags if isinstance(part.flags, int) else part.flags[place]
        ttl = part.ttls if isinstance(part.ttls, int) else part.ttls[place]
        check_message(part.bodies[place], row)
        check_flags(part.bodies[place], flags, ttl)
    assert taken == {address: len(part.bodies) for address, part in by_address.items()}


def check_message(message: bytes, row: dict[str, Any]) -> None:
    found = scan(message)
    assert found.body_kind is BodyKind.DATA
    assert found.data() == row["body"]
    facts = header_facts(message)
    durable, priority = row.get("durable"), row.get("priority")
    assert facts.durable is (durable is not False)
    assert facts.priority == (4 if priority is None else priority)
    assert facts.ttl_ms == (min(row.get("ttl_ms") or 0, (1 << 32) - 1) or None)
    for name in ("message_id", "subject", "correlation_id", "reply_to"):
        assert getattr(found, name) == row.get(name), name
    kind = row.get("content_type")
    assert found.content_type == (None if kind is None else Symbol(kind))
    assert found.group_id == row.get("key")
    when = row.get("timestamp")
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    ms = None if when is None else (when - epoch) // dt.timedelta(milliseconds=1)
    assert found.creation_time == (None if ms is None else Timestamp(ms))
    assert dict(found.application_properties) == dict(row.get("headers") or [])


def check_flags(message: bytes, flags: int, ttl: int) -> None:
    """They are those that the same message has when a client sends it."""
    _, seen, _, _ = look_into(message, 1_000)
    assert flags == seen
    assert bool(flags & EXPIRES) is bool(ttl)
    assert bool(flags & GROUPED) is expiry_and_group(message, header_facts(message).end)[1]


def test_text_is_a_value_and_bytes_are_data() -> None:
    batch = batch_of([{"body": "é" * 200}, {"body": ""}], text=True)
    (part,) = encode_rows(batch, read_form(batch.schema))
    found = [scan(body) for body in part.bodies]
    assert [one.body_kind for one in found] == [BodyKind.VALUE] * 2
    assert [one.value() for one in found] == ["é" * 200, ""]
    run = part.run(5)
    assert isinstance(run, Run)
    assert run.flags & DURABLE


def test_headers_of_json_keep_their_types() -> None:
    text = '{"a": 1, "b": true, "c": "x", "d": 1.5, "e": null, "_AMQ_DUPL_ID": "i"}'
    batch = batch_of([{"body": b"1", "headers": text}, {"body": b"2"}], headers=pa.string())
    (part,) = encode_rows(batch, read_form(batch.schema))
    found = scan(part.bodies[0]).application_properties
    assert found == {"a": 1, "b": True, "c": "x", "d": 1.5, "e": None, "_AMQ_DUPL_ID": "i"}
    assert isinstance(part.flags, list)
    assert [bool(one & IDENTIFIED) for one in part.flags] == [True, False]


def test_a_ttl_counts_from_the_sending() -> None:
    batch = batch_of([{"body": b"1", "ttl_ms": 50}, {"body": b"2"}])
    (part,) = encode_rows(batch, read_form(batch.schema))
    run = part.run(1_000)
    assert isinstance(run, MixedRun)
    assert run.expires == [1_050, 0]


BAD_ROWS: dict[str, tuple[dict[str, Any], dict[str, pa.DataType], str]] = {
    "no body": ({"body": None}, {}, "Row 7: the column 'body' is null"),
    "no address": ({"address": None}, {}, "Row 7: the column 'address' is null"),
    "a bad address": ({"address": "$x"}, {}, r"Row 7: .*starts with '\$'"),
    "ours": ({"address": "activemq.notifications"}, {}, "Row 7: Only the gateway sends to"),
    "priority": ({"priority": 10}, {}, r"Row 7: the column 'priority' \(10\) is not from 0 to 9"),
    "ttl": ({"ttl_ms": -1}, {}, "Row 7: the column 'ttl_ms'"),
    "content type": ({"content_type": "é"}, {}, "Row 7: the column 'content_type' is no ASCII"),
    "no JSON": ({"headers": "{"}, {"headers": pa.string()}, "Row 7: the column 'headers' "),
    "an array": ({"headers": "[1]"}, {"headers": pa.string()}, "'headers' is no JSON object"),
    "nested": ({"headers": '{"a":{}}'}, {"headers": pa.string()}, "a header is one value"),
    "not a number": ({"headers": '{"a":NaN}'}, {"headers": pa.string()}, "has NaN"),
    "too large": ({"body": b"x" * 2_000}, {}, "Row 7: its message for .* max-message-size is 1500"),
    "headers too": ({"subject": "x" * 2_000}, {}, "Row 7: its message for .* has 20.. bytes"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_a_row_that_cannot_be_sent_is_named(case: str) -> None:
    bad, types, rule = BAD_ROWS[case]
    good: dict[str, Any] = {"body": b"x"}
    if "address" in bad:
        good["address"] = "q"
    batch = batch_of([good, good, {**good, **bad}, good], **types)
    found = Judged(rows=5)
    with pytest.raises(RefusedError, match=rule):
        judge_batch(batch, read_form(batch.schema), found, 1_500)


BAD_SCHEMAS = {
    "unknown": (pa.schema([("body", pa.binary()), ("x", pa.int32())]), "has the column 'x'"),
    "a type": (pa.schema([("body", pa.int32())]), "'body' is int32; it must be binary or string"),
    "no body": (pa.schema([("address", pa.string())]), "it needs 'body'"),
    "no address": (pa.schema([("body", pa.binary())]), "either a column 'address' or"),
    "twice": (pa.schema([("body", pa.binary()), ("body", pa.binary())]), "each once"),
    "routing": (
        pa.schema(
            [("body", pa.binary())],
            metadata={"sluicegate.address": "q", "sluicegate.routing": "fanout"},
        ),
        "possible: ANYCAST, MULTICAST",
    ),
}


@pytest.mark.parametrize("case", BAD_SCHEMAS)
def test_a_schema_of_another_kind_is_refused(case: str) -> None:
    schema, rule = BAD_SCHEMAS[case]
    with pytest.raises(RefusedError, match=rule):
        read_form(schema)


def test_large_headers_are_not_remembered() -> None:
    encoding._json_section.cache_clear()
    encoding._map_section.cache_clear()
    for text in ("x" * 10_000, "y"):
        named = [{"body": b"", "headers": f'{{"a":"{text}{n}"}}'} for n in range(5)]
        sent = encode_rows(*_formed(batch_of(named, headers=pa.string())))
        assert len(sent[0].bodies) == 5
        maps = [{"body": b"", "headers": [("a", f"{text}{n}")]} for n in range(5)]
        assert len(encode_rows(*_formed(batch_of(maps)))[0].bodies) == 5
    assert encoding._json_section.cache_info().currsize == 5
    assert encoding._map_section.cache_info().currsize == 5


def _formed(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Form]:
    return batch, read_form(batch.schema)


def test_a_slice_is_small_where_heads_are_large() -> None:
    batch = batch_of([{"body": b"x", "subject": "s" * 50_000}] * 200)
    rows = fitting(batch, 0)
    assert 1 <= rows < 40
    assert fitting(batch_of([{"body": b"x", "subject": "s"}] * 200), 0) == 200
