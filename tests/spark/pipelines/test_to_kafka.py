"""Records as Kafka gets them, the jar that fits or is refused, and the refusal of this Spark."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyspark

from pyspark_sluicegate.options import SluicegateError, parse_options
from pyspark_sluicegate.pipelines import to_kafka
from pyspark_sluicegate.pipelines.kafka_jar import PUBLISHED, check_jar

USUAL = [
    "--url", "http://127.0.0.1:1", "--address", "orders", "--bootstrap-servers", "k:9092",
    "--checkpoint", "/c",
]  # fmt: skip
COLUMNS = (
    "address string, offset bigint, epoch int, message_id string, subject string, "
    "content_type string, correlation_id string, reply_to string, key string, "
    "timestamp timestamp, headers string, body binary"
)
NOW = datetime(2026, 3, 4, tzinfo=UTC)


def parsed(*given: str) -> argparse.Namespace:
    topic = [] if any(one.startswith("--topic") for one in given) else ["--topic", "orders"]
    return to_kafka.make_parser().parse_args([*USUAL, *topic, *given])


@pytest.mark.parametrize("version", [f"{minor}.0" for minor in PUBLISHED])
def test_without_the_jar_the_fitting_one_is_named(version: str) -> None:
    with pytest.raises(SluicegateError, match=rf"--packages .*_2\.13:{version}$"):
        check_jar(version, None)


def test_a_spark_that_has_no_jar_yet_is_told_which_has() -> None:
    with pytest.raises(SluicegateError, match=r"published for Spark 4\.3 .*pyspark 4\.2"):
        check_jar("4.3.0", None)


def test_a_jar_of_another_version_is_refused() -> None:
    with pytest.raises(SluicegateError, match=r"is for Spark 4\.2 .*this is Spark 4\.3\.0"):
        check_jar("4.3.0", "/ivy/org.apache.spark_spark-sql-kafka-0-10_2.13-4.2.0.jar")
    with pytest.raises(SluicegateError, match=r"with Scala 2\.12"):
        check_jar("4.2.0", "/jars/spark-sql-kafka-0-10_2.12-4.2.0.jar")


@pytest.mark.parametrize(
    "jar", ["spark-sql-kafka-0-10_2.13-4.3.1.jar", "kafka-of-our-own.jar", "a/b_2.13-4.3.0.RC1.jar"]
)
def test_a_jar_that_fits_or_was_made_by_hand_is_taken(jar: str) -> None:
    check_jar("4.3.0", f"/jars/{jar}")


def test_options_are_those_of_the_sink_and_of_the_source() -> None:
    given = parsed("--kafka-option", "kafka.acks=all", "--kafka-option", "kafka.sasl.x=a=b")
    assert to_kafka.kafka_options(given) == {
        "kafka.bootstrap.servers": "k:9092", "topic": "orders", "kafka.acks": "all",
        "kafka.sasl.x": "a=b",
    }  # fmt: skip
    columns = parse_options(to_kafka.source_options(given))["columns"]
    assert {"address", "offset", "epoch", "key", "body", "headers", "subject"} <= set(columns)
    bare = parsed("--headers", "place", "--key", "body.id", "--topic-expr", "address")
    assert "headers" not in parse_options(to_kafka.source_options(bare))["columns"]
    assert "topic" not in to_kafka.kafka_options(bare)


@pytest.mark.parametrize("text", ["acks=all", "kafka.acks", "kafka.bootstrap.servers=x"])
def test_an_option_that_is_not_of_kafkas_producer(text: str) -> None:
    with pytest.raises(SluicegateError, match="--kafka-option is"):
        to_kafka.kafka_options(parsed("--kafka-option", text))


@pytest.fixture
def rows(spark: Any) -> Any:
    """A row with everything and one with as little as there can be."""
    full = (
        "orders", 7, 1, "id", "s", "application/json", None, None, "group", NOW,
        '{"n": 1, "t": "x"}', b'{"id": 5}',
    )  # fmt: skip
    bare = ("work", 8, 1, None, None, None, None, None, None, NOW, None, b"\xff\x00")
    return spark.createDataFrame([full, bare], COLUMNS)


def records(rows: Any, *given: str) -> list[dict[str, Any]]:
    found = to_kafka.to_records(rows, parsed(*given)).collect()
    return [
        {**row.asDict(), "headers": {h.key: bytes(h.value).decode() for h in row.headers}}
        for row in found
    ]


@pytest.mark.spark
def test_a_record_has_key_value_and_headers(rows: Any) -> None:
    full, bare = records(rows)
    assert (bytes(full["key"]), bytes(full["value"])) == (b"group", b'{"id": 5}')
    assert full["headers"] == {
        "sluicegate-address": "orders", "sluicegate-epoch": "1", "sluicegate-offset": "7",
        "content-type": "application/json", "message-id": "id", "subject": "s",
        "n": "1", "t": "x",
    }  # fmt: skip
    assert bare["key"] is None
    assert bytes(bare["value"]) == b"\xff\x00", "bytes stay as they are"
    place = {"sluicegate-address", "sluicegate-epoch", "sluicegate-offset"}
    assert set(bare["headers"]) == place
    assert {frozenset(one["headers"]) for one in records(rows, "--headers", "place")} == {
        frozenset(place)
    }


@pytest.mark.spark
def test_a_record_by_expressions(rows: Any) -> None:
    given = "--key", "body.id", "--value", "upper(address)", "--topic-expr", "concat('t.', address)"
    full, bare = records(rows, *given)
    assert (bytes(full["key"]), bytes(full["value"]), full["topic"]) == (
        b"5",
        b"ORDERS",
        "t.orders",
    )
    assert bare["key"] is None


@pytest.mark.spark
def test_this_spark_has_no_jar_and_the_program_says_what_to_do(
    spark: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    assert to_kafka.jar_of(spark) is None
    assert to_kafka.main([*USUAL, "--topic", "orders"]) == 1
    told = capfd.readouterr().err
    assert f"to-kafka: Spark {pyspark.__version__} has no Kafka sink here." in told
    assert "org.apache.spark:spark-sql-kafka-0-10_2.13:4." in told
