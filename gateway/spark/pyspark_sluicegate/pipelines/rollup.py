"""Counts and sums messages by window of time and sends the results on, exactly once.

    python -m pyspark_sluicegate.pipelines.rollup --url http://gateway:8161 --address orders
        --key body.region --sum body.amount --window '1 minute' --watermark '30 seconds'
        --to orders.totals --checkpoint /data/checkpoints/rollup

A result is a JSON message: `start` and `end` of the window, the keys, `count`, the sums, and
`missing`: rows of which a sum had no number. It is sent once the watermark has passed the end of
its window, so it is final. What comes later than that is left out and counted (`late`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
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
from pyspark_sluicegate.pipelines.expressions import (
    Named,
    check_duration,
    check_names,
    columns_for,
    compile_sql,
    matches,
    parse_named,
)
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
from pyspark_sluicegate.sink_options import parse_sink_options

NAME: Final = "rollup"
TIMES: Final = ("timestamp", "created")
#: Fields that each result has.
FIELDS: Final = ("start", "end", "count", "missing")
_FIELD: Final = "decimal(20,6)"
_SUMMED: Final = "decimal(38,6)"


def make_parser() -> argparse.ArgumentParser:
    """Return the program's command line."""
    parser = Parser(prog=NAME, description=__doc__.partition("\n")[0])
    add_gateway_arguments(parser)
    add_query_arguments(parser, NAME)
    parser.add_argument(
        "--key", action="append", default=[], metavar="EXPR",
        help="group by this: a column, body.FIELD, headers.NAME, or NAME=EXPRESSION in SQL",
    )  # fmt: skip
    parser.add_argument(
        "--sum", action="append", default=[], metavar="EXPR",
        help="add this up beside the count, to six decimal places",
    )  # fmt: skip
    parser.add_argument(
        "--time", choices=TIMES, default="timestamp",
        help="when the gateway took a message, or when its sender says that it was created",
    )  # fmt: skip
    parser.add_argument("--window", default="1 minute", metavar="DURATION")
    parser.add_argument("--slide", default="", metavar="DURATION", help="windows that overlap")
    parser.add_argument(
        "--watermark", default="30 seconds", metavar="DURATION",
        help="how much later than the newest message another may come",
    )  # fmt: skip
    parser.add_argument("--to", required=True, metavar="ADDRESS", help="where results are sent")
    parser.add_argument("--to-url", default="", metavar="URL", help="another gateway for them")
    parser.add_argument("--routing", choices=("anycast", "multicast"), default="")
    add_watching_arguments(parser)
    return parser


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A rollup, checked.

    Attributes:
        slide: None: windows follow each other.
    """

    time: str
    window: str
    slide: str | None
    watermark: str
    keys: tuple[Named, ...]
    sums: tuple[Named, ...]

    def columns(self) -> list[str]:
        """Return the columns that are read for it."""
        texts = [one.text for one in (*self.keys, *self.sums)]
        return columns_for(texts, (self.time, "body") if not texts else (self.time,))


def make_plan(given: argparse.Namespace) -> Plan:
    """Return what the options say. Raises SluicegateError."""
    keys = tuple(parse_named("--key", text) for text in given.key)
    sums = tuple(parse_named("--sum", text) for text in given.sum)
    check_names([one.name for one in (*keys, *sums)], FIELDS)
    return Plan(
        time=given.time,
        window=check_duration("--window", given.window),
        slide=check_duration("--slide", given.slide) if given.slide else None,
        watermark=check_duration("--watermark", given.watermark),
        keys=keys,
        sums=sums,
    )


def source_options(given: argparse.Namespace, plan: Plan) -> dict[str, str]:
    """Return the options of the query's source."""
    columns = plan.columns()
    headers = {"includeHeaders": "json"} if "headers" in columns else {}
    return {
        **gateway_options(given),
        **query_options(given),
        **headers,
        "columns": ",".join(columns),
        "bodyFormat": "string",
    }


def sink_options(given: argparse.Namespace) -> dict[str, str]:
    """Return the options of the query's sink. Raises SluicegateError."""
    if not given.to_url and len(given.url) > 1:
        raise SluicegateError(
            f"There are {len(given.url)} gateways in --url; name the one that takes the results "
            "with --to-url."
        )
    url = given.to_url or given.url[0]
    if url in given.url and matches(given.address, given.to):
        raise SluicegateError(
            f"--to {given.to!r} is read by --address {given.address!r} at the same gateway: the "
            "results would be counted, too. Send them to another address."
        )
    found = {**gateway_options(given), "url": url, "address": given.to, "routing": given.routing}
    return {name: value for name, value in found.items() if value}


def roll_up(frame: DataFrame, plan: Plan) -> DataFrame:
    """Return the results as the sink takes them; `frame` has the plan's columns."""
    rows = frame.select(
        f.col(plan.time).alias("time"),
        *(f.expr(compile_sql(one.text)).alias(f"key{i}") for i, one in enumerate(plan.keys)),
        *(f.expr(_number(one.text)).alias(f"sum{i}") for i, one in enumerate(plan.sums)),
    )
    rows = rows.observe("read", f.count_if(f.col("time").isNull()).alias("untimed"))
    rows = rows.where("time is not null").withWatermark("time", plan.watermark)
    window = f.window("time", plan.window, plan.slide)
    grouped = rows.groupBy(window.alias("window"), *(f"key{i}" for i in range(len(plan.keys))))
    missing = f.lit(False)
    for i in range(len(plan.sums)):
        missing = missing | f.col(f"sum{i}").isNull()
    found = grouped.agg(
        f.count("*").alias("count"),
        f.count_if(missing).alias("missing"),
        *(f.try_sum(f"sum{i}").alias(f"sum{i}") for i in range(len(plan.sums))),
    )
    result = f.struct(
        f.col("window.start").alias("start"),
        f.col("window.end").alias("end"),
        *(f.col(f"key{i}").alias(one.name) for i, one in enumerate(plan.keys)),
        "count",
        *(f.col(f"sum{i}").alias(one.name) for i, one in enumerate(plan.sums)),
        "missing",
    )
    body = f.to_json(result, {"ignoreNullFields": "false"})
    found = found.select(body.alias("body"), f.lit("application/json").alias("content_type"))
    return found.observe("sent", f.count("*").alias("results"))


def _number(text: str) -> str:
    """Return SQL for a number of fixed point: sums of fractions stay exact."""
    sql = compile_sql(text, field=lambda found: f"try_cast({found} as {_FIELD})")
    return f"try_cast(({sql}) as {_SUMMED})"


class RollupJob:
    """The query from the source to the sink."""

    def __init__(self, spark: SparkSession, given: argparse.Namespace) -> None:
        """Check the options; nothing is asked of a gateway. Raises SluicegateError."""
        self._spark = spark
        self._given = given
        self._plan = make_plan(given)
        self._source = source_options(given, self._plan)
        self._sink = sink_options(given)
        parse_options(self._source)
        parse_sink_options(self._sink)
        self.totals = QueryTotals()

    def start(self) -> Any:  # noqa: ANN401 - a StreamingQuery, real or Connect's
        """Start the query."""
        register(self._spark)
        frame = self._spark.readStream.format("sluicegate").options(**self._source).load()
        with checked(f"One of --key {self._given.key} and --sum {self._given.sum}"):
            results = roll_up(frame, self._plan)
        writer = results.writeStream.format("sluicegate").options(**self._sink)
        return start(writer.outputMode("append"), self._given)

    def run(self, interrupts: Interrupts) -> None:
        """Start the query, and tell of it until it ends or is interrupted."""
        watch(self.start(), self.totals, make_progress(NAME, self._given), interrupts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit status: 0, or 1 with the reason on the error output."""
    given = make_parser().parse_args(arguments)
    return run(NAME, lambda spark, told: RollupJob(spark, given).run(told))


if __name__ == "__main__":
    sys.exit(main())
