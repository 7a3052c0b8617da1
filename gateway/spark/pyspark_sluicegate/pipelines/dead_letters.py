"""Tells what died at a dead-letter address and why, and sends it back on demand.

    python -m pyspark_sluicegate.pipelines.dead_letters --url http://gateway:8161 --address DLQ
    ... --redrive --where "cause = 'undelivered' and body.region = 'eu'" [--dry-run]

Dead letters are counted by cause, origin, type and day. The address has a tap (a stream): what is
read there stays, and so do the messages of its queues.
`--redrive` sends dead letters to the addresses where they died, through the sink. A selection is
known by its address, `--where`, `--to` and `--id`; the gateway remembers how far each one was sent,
in one with the messages, so the same command sends each dead letter once however often it is run
or killed (`redriving.py`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_sluicegate.client import Gateway, StatusError
from pyspark_sluicegate.options import Options, SluicegateError, parse_options, parse_size
from pyspark_sluicegate.pipelines.arguments import (
    Parser,
    add_gateway_arguments,
    add_watching_arguments,
    gateway_options,
)
from pyspark_sluicegate.pipelines.counting import (
    Counts,
    LetterTotals,
    Stream,
    as_json,
    as_table,
    ranges,
)
from pyspark_sluicegate.pipelines.expressions import compile_sql
from pyspark_sluicegate.pipelines.letters_source import FORMAT, DeadLetters
from pyspark_sluicegate.pipelines.redriving import Redrive, Selection
from pyspark_sluicegate.pipelines.running import (
    INTERRUPTED,
    Interrupts,
    checked,
    make_progress,
    run,
)
from pyspark_sluicegate.registering import register
from pyspark_sluicegate.sink_options import parse_sink_options
from pyspark_sluicegate.source import DefaultSource

NAME: Final = "dead-letters"
#: What dead letters are counted by.
GROUPS: Final = ("cause", "original_address", "content_type", "day")
#: JSON paths of an expression go into these columns.
_JSON: Final = {"body": "text", "headers": "headers"}


def make_parser() -> argparse.ArgumentParser:
    """Return the program's command line."""
    parser = Parser(prog=NAME, description=__doc__.partition("\n")[0])
    add_gateway_arguments(parser)
    parser.add_argument(
        "--address", required=True, help="the dead-letter or expiry address, which has a tap"
    )
    parser.add_argument(
        "--where", default="", metavar="EXPR",
        help="only these: SQL over cause, original_address, original_queue, day, timestamp, "
        "content_type, message_id, subject, headers.NAME, text, body.FIELD",
    )  # fmt: skip
    parser.add_argument("--redrive", action="store_true", help="send them back")
    parser.add_argument(
        "--to", default="", metavar="ADDRESS", help="with --redrive: all there, not to their origin"
    )
    parser.add_argument(
        "--to-queue", action="store_true",
        help="with --redrive: to the queue where each died, not to all queues of its address",
    )  # fmt: skip
    parser.add_argument("--routing", choices=("anycast", "multicast"), default="")
    parser.add_argument(
        "--id", default="", metavar="NAME",
        help="with --redrive: tells a selection apart from the same one that was sent before",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="count what --redrive would send")
    parser.add_argument(
        "--batch", default="100000", metavar="MESSAGES", help="offsets that are worked on at once"
    )
    add_watching_arguments(parser)
    return parser


class DeadLetterJob:
    """Reads the stream of a dead-letter address range by range, and counts or sends."""

    def __init__(self, spark: SparkSession, given: argparse.Namespace) -> None:
        """Check the options; nothing is asked of a gateway. Raises SluicegateError."""
        check(given)
        self._spark = spark
        self._given = given
        self._login = gateway_options(given)
        self._source = {**self._login, "address": given.address}
        self._options: Options = parse_options(self._source)
        size = parse_size("--batch", given.batch)
        assert size is not None
        self._batch = size
        self.totals = LetterTotals()
        self._interrupts = Interrupts()
        self._progress = make_progress(NAME, given)

    def run(self, interrupts: Interrupts) -> None:
        """Do what the options say. Raises SluicegateError, KeyboardInterrupt behind a range."""
        self._interrupts = interrupts
        for source in (DefaultSource, DeadLetters):
            register(self._spark, source)
        stream = self._stream()
        self.totals.heads = {stream.key: stream.head - stream.first}
        try:
            if self._given.redrive and not self._given.dry_run:
                self._redrive(stream)
            else:
                self._count(stream)
        finally:
            self._progress.end()

    def _stream(self) -> Stream:
        """Return what there is to read now."""
        url, address = self._options["url"][0], self._given.address
        gateway = Gateway(url, self._options)
        try:
            reply = gateway.call("/heads", {"address": address})
        except StatusError as error:
            if error.status != 404:
                raise
            raise SluicegateError(
                f"The address {address!r} at {url} has no stream, so nothing tells what died "
                f'there. Make one (POST /api/v1/streams {{"name": "{address}", "address": '
                f'"{address}"}}, or [streams."{address}"] in the configuration); it has what '
                "comes from then on."
            ) from error
        one, named = reply["items"][0], reply["gateway"]
        return Stream(
            gateway=named["name"], identity=named["id"] or url, name=one["name"],
            epoch=one["epoch"], first=one["first"], head=one["head"],
        )  # fmt: skip

    def _frame(self, first: int, end: int) -> DataFrame:
        """Return the chosen dead letters of a range."""
        reader = self._spark.read.format(FORMAT).options(**self._source)
        reader = reader.option("startingOffsets", str(first)).option("endingOffsets", str(end))
        frame = reader.load().withColumn("day", f.to_date("timestamp").cast("string"))
        if not self._given.where:
            return frame
        with checked(f"--where {self._given.where!r}"):
            return frame.where(compile_sql(self._given.where, _JSON))

    # ---- counting

    def _count(self, stream: Stream) -> None:
        """Print how many there are, by group."""
        redrive = self._plan(stream) if self._given.redrive else None
        counts = Counts(GROUPS)
        for first, end in ranges(stream.first, stream.head, self._batch):
            frame = self._frame(first, end)
            if redrive is not None:
                frame = redrive.left(frame)
            for row in grouped(frame).collect():
                found = row.asDict()
                counts.add(found)
                self.totals.letters += found["messages"]
            self._reach(stream, end)
        show = as_json if self._given.progress == "json" else as_table
        sys.stdout.write(show(counts))
        sys.stdout.flush()

    def _reach(self, stream: Stream, end: int) -> None:
        self.totals.batches += 1
        self.totals.places = {stream.key: end - stream.first}
        self._progress.tell(self.totals)
        self._interrupts.check()

    # ---- sending back

    def _plan(self, stream: Stream) -> Redrive:
        given = self._given
        selection = Selection(
            stream=stream, where=given.where, to=given.to, to_queue=given.to_queue,
            routing=given.routing, name=given.id,
        )  # fmt: skip
        sink = {**self._login, "url": self._options["url"][0], "routing": given.routing}
        sink = {name: value for name, value in sink.items() if value}
        return Redrive(selection, parse_sink_options(sink), sink)

    def _redrive(self, stream: Stream) -> None:
        redrive = self._plan(stream)
        start = max(stream.first, redrive.begin())
        self.totals.places = {stream.key: start - stream.first}
        for first, end in ranges(start, stream.head, self._batch):
            sent = redrive.send(self._frame(first, end), end)
            self.totals.sent += sent.sent
            self.totals.letters += sent.letters
            self.totals.homeless += sent.homeless
            self._reach(stream, end)
        totals = self.totals
        if self._given.progress == "json":
            told = {**totals.counters(), "producer": redrive.producer, "upTo": stream.head}
            text = json.dumps(told)
        else:
            text = f"{totals.sent:,} sent; the selection is done up to offset {stream.head:,}"
            if totals.homeless:
                text += f"; {totals.homeless:,} have no origin (--to names an address for them)"
            text += f". The gateway knows it as {redrive.producer!r}."
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def grouped(frame: DataFrame) -> DataFrame:
    """Return messages and bytes by group."""
    sums = f.count("*").alias("messages"), f.sum(f.length("body")).alias("bytes")
    return frame.groupBy(*GROUPS).agg(*sums)


def check(given: argparse.Namespace) -> None:
    """Raise SluicegateError for options that do not go together."""
    if len(given.url) > 1:
        raise SluicegateError(
            f"There are {len(given.url)} gateways in --url; {NAME} works on one at a time."
        )
    if {"*", "#"} & set(given.address.split(".")):
        raise SluicegateError(
            f"--address is {given.address!r}; {NAME} works on one address at a time."
        )
    for name in ("to", "to-queue", "id", "routing"):
        if getattr(given, name.replace("-", "_")) and not given.redrive:
            raise SluicegateError(f"--{name} is for --redrive, which is not given.")
    if given.to and given.to_queue:
        raise SluicegateError("--to and --to-queue say two places; give one of them.")
    if given.to == given.address:
        raise SluicegateError(
            f"--to is {given.to!r}, the address that is read: each run would double what is there."
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit status: 0, or 1 with the reason on the error output."""
    given = make_parser().parse_args(arguments)
    return run(
        NAME, lambda spark, told: DeadLetterJob(spark, given).run(told), interrupted=INTERRUPTED
    )


if __name__ == "__main__":
    sys.exit(main())
