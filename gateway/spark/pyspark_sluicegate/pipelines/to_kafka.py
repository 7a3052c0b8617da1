"""Carries streams to Kafka by Spark's own sink: each message at least once.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 .../to_kafka.py
        --url http://gateway:8161 --address orders --bootstrap-servers kafka:9092
        --topic orders --checkpoint /data/checkpoints/to-kafka

Spark's sink has no transactions: a batch that is repeated after a crash is written again. Each
record has `sluicegate-address`, `sluicegate-epoch` and `sluicegate-offset` among its headers; the
three together are the same in both copies, so that a consumer can tell. The jar is made for one
version of Spark: it is looked for, and refused when it does not fit (`kafka_jar.py`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_sluicegate.options import SluicegateError, parse_options
from pyspark_sluicegate.pipelines.arguments import (
    Parser,
    add_gateway_arguments,
    add_watching_arguments,
    gateway_options,
)
from pyspark_sluicegate.pipelines.expressions import columns_for, compile_sql
from pyspark_sluicegate.pipelines.kafka_jar import PROVIDER, check_jar
from pyspark_sluicegate.pipelines.running import (
    Interrupts,
    QueryTotals,
    add_query_arguments,
    checked,
    make_progress,
    query_options,
    run,
    start,
    watch,
)
from pyspark_sluicegate.registering import register

NAME: Final = "to-kafka"
#: Record header -> the column that it is made of.
PLACE: Final = {
    "sluicegate-address": "address",
    "sluicegate-epoch": "epoch",
    "sluicegate-offset": "offset",
}
#: These describe a message; a record has them where the message has.
FACTS: Final = {
    "content-type": "content_type",
    "message-id": "message_id",
    "correlation-id": "correlation_id",
    "reply-to": "reply_to",
    "subject": "subject",
}
#: What the pipeline decides itself.
_OURS: Final = ("kafka.bootstrap.servers", "topic", "checkpointlocation")


def make_parser() -> argparse.ArgumentParser:
    """Return the program's command line."""
    parser = Parser(prog=NAME, description=__doc__.partition("\n")[0])
    add_gateway_arguments(parser)
    add_query_arguments(parser, NAME)
    parser.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT,...")
    topic = parser.add_mutually_exclusive_group(required=True)
    topic.add_argument("--topic", default="", help="the topic of all records")
    topic.add_argument(
        "--topic-expr", default="", metavar="EXPR", help="of each record, as replace(address, ...)"
    )
    parser.add_argument(
        "--key", default="key", metavar="EXPR",
        help="a column, body.FIELD, headers.NAME or SQL; without it the group-id",
    )  # fmt: skip
    parser.add_argument(
        "--value", default="body", metavar="EXPR", help="without it the body as it is"
    )
    parser.add_argument(
        "--headers", choices=("all", "place"), default="all",
        help="what a record has as headers: those of the message too, or only its place",
    )  # fmt: skip
    parser.add_argument(
        "--kafka-option", action="append", default=[], metavar="NAME=VALUE",
        help="of Kafka's producer, as kafka.acks=all",
    )  # fmt: skip
    add_watching_arguments(parser)
    return parser


def kafka_options(given: argparse.Namespace) -> dict[str, str]:
    """Return the options of Spark's sink. Raises SluicegateError."""
    found = {"kafka.bootstrap.servers": given.bootstrap_servers}
    if given.topic:
        found["topic"] = given.topic
    for text in given.kafka_option:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("kafka.") or name.lower() in _OURS:
            raise SluicegateError(
                f"--kafka-option is {name!r}; write kafka.NAME=VALUE, as kafka.acks=all. Servers "
                "and topic have options of their own."
            )
        found[name] = value
    return found


def source_options(given: argparse.Namespace) -> dict[str, str]:
    """Return the options of the query's source."""
    texts = [given.key, given.value, given.topic_expr]
    facts = [*FACTS.values(), "headers"] if given.headers == "all" else []
    columns = columns_for(texts, [*PLACE.values(), *facts])
    headers = {"includeHeaders": "json"} if "headers" in columns else {}
    return {
        **gateway_options(given),
        **query_options(given),
        **headers,
        "columns": ",".join(columns),
        "bodyFormat": "binary",
    }


def header_sql(given: argparse.Namespace) -> str:
    """Return SQL for the headers of a record: an array of key and bytes."""
    made = [_entry(name, column) for name, column in PLACE.items()]
    if given.headers == "place":
        return f"array({', '.join(made)})"
    made += [_entry(name, column) for name, column in FACTS.items()]
    named = f"filter(array({', '.join(made)}), h -> h.value is not null)"
    theirs = "map_entries(from_json(headers, 'map<string,string>'))"
    cast = f"transform({theirs}, h -> struct(h.key as key, cast(h.value as binary) as value))"
    return f"concat({named}, coalesce({cast}, array()))"


def _entry(name: str, column: str) -> str:
    return f"struct('{name}' as key, cast(cast({column} as string) as binary) as value)"


#: Paths of an expression go into the text of a body, which is read as bytes.
_JSON: Final = {"body": "cast(body as string)"}


def to_records(frame: DataFrame, given: argparse.Namespace) -> DataFrame:
    """Return the columns that Spark's sink takes; `frame` has those of `source_options`."""
    columns = [
        f.expr(f"cast(({compile_sql(given.key, _JSON)}) as binary)").alias("key"),
        f.expr(f"cast(({compile_sql(given.value, _JSON)}) as binary)").alias("value"),
        f.expr(header_sql(given)).alias("headers"),
    ]
    if given.topic_expr:
        columns.append(f.expr(compile_sql(given.topic_expr, _JSON)).cast("string").alias("topic"))
    return frame.select(*columns)


def jar_of(spark: SparkSession) -> str | None:
    """Return the file that has Spark's Kafka sink in this JVM; None: there is none."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - the one way to a class of the JVM
    if not jvm.org.apache.spark.util.Utils.classIsLoadable(PROVIDER):
        return None
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    found = jvm.java.lang.Class.forName(PROVIDER, False, loader)
    return str(found.getProtectionDomain().getCodeSource().getLocation().getPath())


class KafkaJob:
    """The query from the source to Kafka."""

    def __init__(self, spark: SparkSession, given: argparse.Namespace) -> None:
        """Check the options and the jar; no server is asked. Raises SluicegateError."""
        self._spark = spark
        self._given = given
        self._source = source_options(given)
        self._kafka = kafka_options(given)
        parse_options(self._source)
        check_jar(spark.version, jar_of(spark))
        self.totals = QueryTotals(stateful=False)

    def start(self) -> Any:  # noqa: ANN401 - a StreamingQuery, real or Connect's
        """Start the query."""
        register(self._spark)
        frame = self._spark.readStream.format("sluicegate").options(**self._source).load()
        with checked("One of --key, --value and --topic-expr"):
            records = to_records(frame, self._given)
        writer = records.writeStream.format("kafka").options(**self._kafka)
        return start(writer.outputMode("append"), self._given)

    def run(self, interrupts: Interrupts) -> None:
        """Start the query, and tell of it until it ends or is interrupted."""
        watch(self.start(), self.totals, make_progress(NAME, self._given), interrupts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit status: 0, or 1 with the reason on the error output."""
    given = make_parser().parse_args(arguments)
    return run(NAME, lambda spark, told: KafkaJob(spark, given).run(told))


if __name__ == "__main__":
    sys.exit(main())
