"""Views: which columns a reader gets, and their Arrow types."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from gateway.decoding.variant import encode_pairs
from gateway.decoding.view import TYPES, Viewer
from gateway.model.errors import Code, RefusedError
from gateway.model.message import DURABLE, STOMP
from gateway.streams.rows import rows_of
from gateway.streams.stream import Accepted
from gateway.streams.view import make_view
from tests.streams.harness import Symbol, amqp_message, section, stomp_message

STAMP = 1_700_000_000_123
UTC = dt.UTC


def show(
    raws: list[bytes], flags: int | list[int], names: list[str], mode: str = "map",
    body: str = "binary",
) -> list[dict[str, Any]]:  # fmt: skip
    rows = rows_of([Accepted(7, raws, flags, STAMP, sum(map(len, raws)))])
    view = make_view(names, mode, body)
    batch = Viewer(view, "orders", 3).convert(rows)
    assert batch.schema == view.schema
    batch.validate(full=True)
    return batch.to_pylist()


def test_all_columns_of_both_protocols() -> None:
    amqp = amqp_message(
        b"payload",
        properties=["id", None, None, "subj", "re", "corr", "text/plain", None, None, None, "grp"],
        app={"a": 1},
    )
    stomp = stomp_message(b"text", reply_to="/queue/a", b="2")
    names = [name for name in TYPES if name not in ("size", "amqp")]
    first, second = show([amqp, stomp], [DURABLE | 4, STOMP | 9], names)
    when = dt.datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)
    assert first == {
        "address": "orders", "offset": 7, "timestamp": when, "message_id": "id", "subject": "subj",
        "content_type": "text/plain", "correlation_id": "corr", "reply_to": "re",
        "body": b"payload", "headers": [("a", "1")], "epoch": 3, "key": "grp", "priority": 4,
        "ttl_ms": None, "created": None, "expires": None, "durable": True, "redelivered": False,
        "delivery_count": 0, "protocol": "amqp", "annotations": [],
        "properties": encode_pairs([("a", 1)])._asdict(), "traceparent": None,
    }  # fmt: skip
    assert second["offset"] == 8
    assert second["headers"] == [("b", "2")]
    assert (second["reply_to"], second["body"], second["priority"]) == ("/queue/a", b"text", 9)
    assert (second["protocol"], second["durable"]) == ("stomp", False)


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_the_trace_of_a_message_wherever_its_sender_put_it() -> None:
    annotations = section(0x72, {Symbol("traceparent"): TRACE})
    annotated = section(0x70, [True]) + annotations + section(0x75, b"x")
    raws = [
        amqp_message(b"x", app={"traceparent": TRACE, "n": 1}), annotated,
        stomp_message(b"x", traceparent=TRACE), amqp_message(b"x"), stomp_message(b"x"),
    ]  # fmt: skip
    rows = show(raws, [4, 4, STOMP | 4, 4, STOMP | 4], ["traceparent"])
    assert [row["traceparent"] for row in rows] == [TRACE, TRACE, TRACE, None, None]
    first = amqp_message(b"x", app={"traceparent": None})
    assert show([first], 4, ["traceparent"]) == [{"traceparent": None}]


def test_properties_keep_their_types_by_row() -> None:
    raws = [amqp_message(b"x", app={"n": n % 2, "ok": True}) for n in range(4)]
    rows = show(raws, 4, ["properties", "offset"])
    values = [encode_pairs([("n", n % 2), ("ok", True)])._asdict() for n in range(4)]
    assert [row["properties"] for row in rows] == values
    (same,) = show([raws[0]], 4, ["properties"])
    assert same == {"properties": values[0]}
    huge = amqp_message(b"x", app={"n": "x" * (1 << 24)})
    assert [row["properties"] for row in show([huge, raws[0]], 4, ["properties"])] == [
        None, values[0],
    ]  # fmt: skip


def test_raw_and_size() -> None:
    raw = amqp_message(b"x")
    (row,) = show([raw], 4, ["amqp", "size", "body"], body="amqp")
    assert row == {"amqp": raw, "size": len(raw), "body": raw}


def test_json_headers_and_text_bodies() -> None:
    raws = [stomp_message("grün".encode(), a="1"), stomp_message(b"\xff!", a="1")]
    rows = show(raws, STOMP, ["headers", "body"], "json", "string")
    assert rows == [
        {"headers": '{"a":"1"}', "body": "grün"},
        {"headers": '{"a":"1"}', "body": "�!"},
    ]


def test_a_body_that_is_missing_is_null_in_every_form() -> None:
    for form in ("binary", "string"):
        assert show([amqp_message(None)], 4, ["body"], body=form) == [{"body": None}]


def test_times_outside_the_calendar_are_null() -> None:
    far = amqp_message(properties=[None] * 9 + [(1 << 62)])
    assert show([far], 4, ["created"]) == [{"created": None}]


def test_rows_of_a_slice() -> None:
    raws = [stomp_message(b"%d" % i, n=str(i % 3)) for i in range(20)]
    rows = rows_of([Accepted(0, raws, STOMP, STAMP, 0)]).slice(5, 10)
    view = make_view(["offset", "body", "headers"], "map", "binary")
    found = Viewer(view, "orders", 1).convert(rows).to_pylist()
    assert [row["offset"] for row in found] == list(range(5, 15))
    assert [row["body"] for row in found] == [b"%d" % i for i in range(5, 15)]
    assert [row["headers"] for row in found] == [[("n", str(i % 3))] for i in range(5, 15)]


def test_empty_messages_and_no_rows() -> None:
    assert show([b"", b""], 4, ["body", "content_type"]) == [
        {"body": None, "content_type": None}
    ] * 2  # fmt: skip
    view = make_view(["offset", "headers"], "map", "binary")
    assert Viewer(view, "a", 1).convert(rows_of([])).schema == view.schema


def test_no_columns_still_count_rows() -> None:
    rows = rows_of([Accepted(0, [b"", b""], 4, STAMP, 0)])
    assert len(Viewer(make_view([], "false", "binary"), "a", 1).convert(rows)) == 2


def test_types_are_what_spark_makes_of_them() -> None:
    types = pytest.importorskip("pyspark.sql.pandas.types")

    from pyspark_sluicegate.options import COLUMNS

    assert list(COLUMNS) == list(TYPES)
    for mode, body, index in (("map", "binary", 0), ("json", "string", -1)):
        kinds = {n: t[index] if n in ("headers", "body") else t[0] for n, t in COLUMNS.items()}
        needed = pa.schema([
            pa.field(n, types.to_arrow_type(_ddl_type(k), timezone="UTC")) for n, k in kinds.items()
        ])  # fmt: skip
        assert make_view(list(TYPES), mode, body).schema.equals(needed)


def _ddl_type(text: str) -> Any:
    from pyspark.sql import types

    simple = {
        "string": types.StringType(), "bigint": types.LongType(), "int": types.IntegerType(),
        "timestamp": types.TimestampType(), "binary": types.BinaryType(),
        "boolean": types.BooleanType(), "variant": types.VariantType(),
        "map<string,string>": types.MapType(types.StringType(), types.StringType()),
    }  # fmt: skip
    return simple[text]


@pytest.mark.parametrize(
    ("names", "mode", "body", "text"),
    [
        (["queue"], "map", "binary", "'columns' names 'queue'"),
        (["offset", "offset"], "map", "binary", "each once"),
        (["offset"], "xml", "binary", "'headers' names 'xml'"),
        (["offset"], "map", "text", "'body' names 'text'"),
    ],
)
def test_impossible_views_are_refused(names: list[str], mode: str, body: str, text: str) -> None:
    with pytest.raises(RefusedError, match=text) as caught:
        make_view(names, mode, body)
    assert caught.value.refusal.code is Code.BAD_VALUE
