"""The options of the source: defaults, bounds, and what a wrong one is told."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from pyspark_sluicegate.options import (
    COLUMNS,
    OPTIONS,
    SluicegateError,
    check_kind,
    choose_place,
    make_ddl,
    parse_options,
)

GIVEN = {"url": "http://127.0.0.1:8161", "address": "orders"}


def parse(**given: str) -> dict[str, Any]:
    return parse_options(GIVEN | given)


def test_defaults() -> None:
    options = parse()
    assert options["url"] == ["http://127.0.0.1:8161"]
    assert options["maxMessagesPerTrigger"] is None
    assert options["maxBytesPerTrigger"] == 512 << 20
    assert options["targetPartitionBytes"] == 64 << 20
    assert (options["minPartitions"], options["maxPartitions"]) == (1, 64)
    assert options["readTimeout"] == 30.0
    assert options["pollInterval"] == pytest.approx(0.1)
    assert options["columns"] == list(COLUMNS)[:9]
    assert pickle.loads(pickle.dumps(options)) == options
    assert set(options) == set(OPTIONS)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("64k", 65536), ("64 KiB", 65536), ("2M", 2 << 20), ("3gb", 3 << 30), ("7b", 7)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse(targetPartitionBytes=text)["targetPartitionBytes"] == size


@pytest.mark.parametrize(
    ("text", "seconds"), [("250", 0.25), ("250ms", 0.25), ("30s", 30), ("2m", 120), ("1 h", 3600)]
)
def test_times(text: str, seconds: float) -> None:
    assert parse(retryDeadline=text)["retryDeadline"] == pytest.approx(seconds)


def test_names_come_in_any_case_as_spark_hands_them_over() -> None:
    assert parse(MAXMESSAGESPERTRIGGER="5")["maxMessagesPerTrigger"] == 5


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"maxMessagePerTriger": "5"}, "did you mean 'maxMessagesPerTrigger'"),
        ({"maxOffsetsPerTrigger": "5"}, "did you mean 'maxMessagesPerTrigger'"),
        ({"queues": "orders"}, "did you mean 'address'"),
        ({"path": "orders"}, "did you mean 'address'"),
        ({"zzz": "1"}, "known are: url, address"),
        ({"url": ""}, "'url' is required"),
        ({"address": ""}, "'address' and 'addressPattern' are both missing"),
        ({"addressPattern": "orders.#"}, "'address' and 'addressPattern' exclude each other"),
        ({"archiveRegion": "x"}, "'archiveRegion' needs the option 'archive'"),
        ({"archive": "/a", "includeHeaders": "json"}, "a table keeps headers as a map"),
        ({"archive": "/a", "bodyFormat": "amqp"}, "encoded messages"),
        ({"url": "127.0.0.1:8161"}, "http[s]://host:port"),
        ({"url": "http://a:1/api"}, "http[s]://host:port"),
        ({"url": "http://a:1,http://a:1/"}, "list each gateway once"),
        ({"maxBytesPerTrigger": "0"}, "like 1000, 64k"),
        ({"maxBytesPerTrigger": "-1"}, "like 1000, 64k"),
        ({"maxMessagesPerTrigger": "many"}, "'maxMessagesPerTrigger' is 'many'"),
        ({"readTimeout": "soon"}, "'readTimeout' is 'soon'"),
        ({"includeHeaders": "yes"}, "possible: false, map, json, variant"),
        ({"commitMode": "always"}, "possible: idle, engine, off"),
        ({"columns": "offset,queue"}, "has 'queue'"),
        ({"columns": "offset,offset"}, "has 'offset'"),
        ({"minPartitions": "9", "maxPartitions": "3"}, "minPartitions (9) is above"),
        ({"startingOffsets": "soon"}, "possible: earliest, latest, subscription, an offset, or"),
        ({"startingOffsets": "-1"}, "'startingOffsets' is '-1'"),
        ({"startingOffsets": "{5}"}, "'startingOffsets' is no JSON object"),
        ({"startingOffsets": '{"orders": true}'}, "'startingOffsets.orders' is True"),
        ({"startingOffsets": '{"orders": -3}'}, "'startingOffsets.orders' is -3"),
        ({"startingOffsets": '{"bills": 3}'}, "'bills'; possible: orders, orders@127.0.0.1:8161"),
        ({"endingOffsets": "earliest"}, "'endingOffsets' is 'earliest'; possible: latest, an"),
        ({"endingOffsets": '{"orders": -2}'}, "'endingOffsets.orders' is -2"),
        ({"startingTimestamp": "soon"}, "like 2026-11-25T08:00:00Z, or ms since 1970"),
        ({"startingTimestamp": "-5"}, "'startingTimestamp' is '-5'"),
        ({"endingTimestamp": "9" * 30}, "'endingTimestamp' is"),
        ({"startingOffsets": "5", "startingTimestamp": "5"}, "'startingTimestamp' contradict"),
        ({"endingOffsets": "latest", "endingTimestamp": "5"}, "'endingTimestamp' contradict"),
        ({"username": "u"}, "go together"),
        ({"username": "u", "password": "p", "token": "t"}, "Give one of"),
    ],
)
def test_what_is_refused_names_option_rule_and_value(given: dict[str, str], text: str) -> None:
    with pytest.raises(SluicegateError) as caught:
        parse(**given)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("text", "moment_ms"),
    [
        ("0", 0),
        ("1764057600123", 1_764_057_600_123),
        ("2025-11-25T08:00:00.123Z", 1_764_057_600_123),
        ("2025-11-25T09:00:00.1239+01:00", 1_764_057_600_123),
        ("2025-11-25 08:00", 1_764_057_600_000),
        ("2025-11-25", 1_764_028_800_000),
    ],
)
def test_times_to_begin_at(text: str, moment_ms: int) -> None:
    assert parse(startingTimestamp=text)["startingTimestamp"] == moment_ms
    assert parse(endingTimestamp=text)["endingTimestamp"] == moment_ms


def test_places_by_address_and_gateway() -> None:
    url = "http://a:1,http://b:2"
    text = '{"orders": -2, "orders@b:2": 1042}'
    place = parse(url=url, startingOffsets=text)["startingOffsets"]
    assert choose_place(place, "orders", "http://a:1", "latest") == "earliest"
    assert choose_place(place, "orders", "http://b:2", "latest") == "1042"
    only = parse(url=url, startingOffsets='{"orders@b:2": "latest"}')["startingOffsets"]
    assert choose_place(only, "orders", "http://a:1", "earliest") == "earliest"
    assert choose_place("5", "orders", "http://a:1", "latest") == "5"
    assert choose_place("", "orders", "http://a:1", "latest") == "latest"


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({"endingoffsets": "5"}, "stream", "'endingOffsets' is not for a stream: a stream has no"),
        ({"endingTimestamp": "5"}, "stream", "a stream has no end"),
        ({"pushdown": "true"}, "stream", "'selector' leaves rows out"),
        ({"maxMessagesPerTrigger": "5"}, "batch", "not for a batch: a batch read has no triggers"),
        ({"maxBytesPerTrigger": "5m"}, "batch", "'endingOffsets' bounds it"),
    ],
)
def test_what_a_kind_of_query_cannot_do_with_is_refused(
    given: dict[str, str], kind: str, text: str
) -> None:
    with pytest.raises(SluicegateError) as caught:
        check_kind(given, kind)
    assert text in str(caught.value)
    check_kind(given, "batch" if kind == "stream" else "stream")
    check_kind({"pushdown": "false"}, "stream")


def test_no_secret_is_in_a_refusal() -> None:
    with pytest.raises(SluicegateError) as caught:
        parse(password="hunter2")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "ddl"),
    [
        ({"columns": "offset, body"}, "offset bigint, body binary"),
        ({"columns": "body", "bodyFormat": "string"}, "body string"),
        ({"columns": "body", "bodyFormat": "amqp"}, "body binary"),
        ({"columns": "body", "includeHeaders": "json"}, "body binary, headers string"),
        ({"columns": "body", "includeHeaders": "variant"}, "body binary, properties variant"),
        ({"columns": "properties,traceparent"}, "properties variant, traceparent string"),
        ({"columns": "headers"}, "headers map<string,string>"),
        ({"columns": "headers", "includeHeaders": "map"}, "headers map<string,string>"),
    ],
)
def test_the_schema_follows_the_options(given: dict[str, str], ddl: str) -> None:
    assert make_ddl(parse(**given)) == ddl
