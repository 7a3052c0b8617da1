"""The options of the source: defaults, bounds, and what a wrong one is told."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from pyspark_sluicegate.options import COLUMNS, OPTIONS, SluicegateError, make_ddl, parse_options

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
        ({"includeHeaders": "yes"}, "possible: false, map, json"),
        ({"commitMode": "always"}, "possible: idle, engine, off"),
        ({"columns": "offset,queue"}, "has 'queue'"),
        ({"columns": "offset,offset"}, "has 'offset'"),
        ({"minPartitions": "9", "maxPartitions": "3"}, "minPartitions (9) is above"),
        ({"username": "u"}, "go together"),
        ({"username": "u", "password": "p", "token": "t"}, "Give one of"),
    ],
)
def test_what_is_refused_names_option_rule_and_value(given: dict[str, str], text: str) -> None:
    with pytest.raises(SluicegateError) as caught:
        parse(**given)
    assert text in str(caught.value)


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
        ({"columns": "headers"}, "headers map<string,string>"),
        ({"columns": "headers", "includeHeaders": "map"}, "headers map<string,string>"),
    ],
)
def test_the_schema_follows_the_options(given: dict[str, str], ddl: str) -> None:
    assert make_ddl(parse(**given)) == ddl
