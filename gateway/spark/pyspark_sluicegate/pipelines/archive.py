"""Carries streams of any number of gateways into one Delta table, exactly once.

    python -m pyspark_sluicegate.pipelines.archive --url http://gateway:8161
        --address 'orders.#' --table s3://lake/messages [--available-now]

An address with `*` or `#` is a pattern; addresses that come later join by themselves. The program
goes on until it is stopped, or with `--available-now` until it has what was there at its start. It
may be stopped and killed at any point, its checkpoint may be lost, and it may be started twice:
the table's own offsets decide what is needed (`archive/ledger.py`).
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_sluicegate.archive.committing import Committer
from pyspark_sluicegate.archive.compacting import compact
from pyspark_sluicegate.archive.layout import FileFacts
from pyspark_sluicegate.archive.store import Location, parse_location
from pyspark_sluicegate.client import Gateway, StatusError
from pyspark_sluicegate.options import Options, SluicegateError, parse_options, parse_size
from pyspark_sluicegate.pipelines.arguments import (
    Parser,
    add_gateway_arguments,
    add_watching_arguments,
    gateway_options,
)
from pyspark_sluicegate.pipelines.files_source import COMPRESSIONS, FORMAT, ArchiveFiles
from pyspark_sluicegate.pipelines.progress import Progress, Totals, heads_of
from pyspark_sluicegate.pipelines.running import Interrupts, run, wait
from pyspark_sluicegate.registering import register
from pyspark_sluicegate.source import addressed

#: Spark writes this into the thread that runs a query's batch.
_QUERY_ID: Final = "sql.streaming.queryId"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _nonce() -> str:
    return secrets.token_hex(8)


def make_parser() -> argparse.ArgumentParser:
    """Return the program's command line."""
    parser = Parser(prog="archive", description=__doc__.partition("\n")[0])
    add_gateway_arguments(parser)
    parser.add_argument(
        "--address", required=True,
        help="what to archive; with * (one word) or # (the rest) a pattern, also for new addresses",
    )  # fmt: skip
    parser.add_argument(
        "--table", required=True, help="s3://bucket/path, gs://, az://, or a folder"
    )
    parser.add_argument("--endpoint", default="", help="of an S3-compatible store")
    parser.add_argument("--region", default="", help="of the bucket")
    parser.add_argument("--subscription", default="archive", help="its name at the gateways")
    parser.add_argument(
        "--checkpoint", default="", metavar="FOLDER",
        help="where Spark keeps its place; losing it costs looking again, and no message",
    )  # fmt: skip
    parser.add_argument("--trigger", default="1 minute", help="how often a batch is made")
    parser.add_argument("--available-now", action="store_true", help="end when all is archived")
    parser.add_argument("--starting-offsets", default="earliest", metavar="WHERE")
    parser.add_argument("--max-bytes-per-trigger", default="512m", metavar="SIZE")
    parser.add_argument("--target-file-bytes", default="128m", metavar="SIZE")
    parser.add_argument("--compression", choices=COMPRESSIONS, default="zstd")
    parser.add_argument(
        "--keep-encoded", action="store_true", help="keep each message as it came, too"
    )
    parser.add_argument(
        "--skip-losses", action="store_true",
        help="go on behind messages that a gateway dropped, and note it in the table",
    )  # fmt: skip
    parser.add_argument(
        "--compact", type=int, default=0, metavar="BATCHES",
        help="join small files of past days after so many batches, and at the end (0: never)",
    )  # fmt: skip
    parser.add_argument(
        "--clean-hours", type=int, default=168, metavar="HOURS",
        help="a compaction removes files older than this that no version of the table has",
    )  # fmt: skip
    add_watching_arguments(parser)
    return parser


def source_options(given: argparse.Namespace) -> dict[str, str]:
    """Return the options of the query's source."""
    pattern = {"*", "#"} & set(given.address.split("."))
    return {
        **gateway_options(given),
        "addressPattern" if pattern else "address": given.address,
        "subscription": given.subscription,
        "startingOffsets": given.starting_offsets,
        "maxBytesPerTrigger": given.max_bytes_per_trigger,
        "failOnDataLoss": str(not given.skip_losses).lower(),
    }


def location_of(given: argparse.Namespace) -> Location:
    """Return the table's place. Raises SluicegateError."""
    named = {"archiveEndpoint": given.endpoint, "archiveRegion": given.region}
    return parse_location("--table", {"--table": given.table, **named})


class ArchiveJob:
    """The query, its commits, and what is told of them."""

    def __init__(self, spark: SparkSession, given: argparse.Namespace) -> None:
        """Check the options; nothing is asked of a gateway or a store. Raises SluicegateError."""
        self._spark = spark
        self._given = given
        self._source = source_options(given)
        self._options: Options = parse_options(self._source)
        self._place = location_of(given)
        if given.clean_hours < 1:
            raise SluicegateError(
                f"--clean-hours is {given.clean_hours}; it must be 1 or more: files of batches "
                "that are under way would be removed."
            )
        size = parse_size("--target-file-bytes", given.target_file_bytes)
        assert size is not None
        self._file_bytes = size
        self._committer = Committer(
            self._place,
            _now_ms,
            _nonce,
            raw=given.keep_encoded,
            compression=given.compression,
        )
        self._totals = Totals()
        self._progress = Progress(given.progress, given.metrics_file, time.monotonic)
        self.failure: SluicegateError | None = None

    def start(self) -> StreamingQuery:
        """Open the table, look at the gateways, start the query. Raises SluicegateError."""
        self._committer.open()
        self._look()
        register(self._spark, ArchiveFiles)
        given, place = self._given, self._place
        frame = self._spark.readStream.format(FORMAT).options(**self._source)
        frame = frame.option("archive", place.uri).option("archiveEndpoint", place.endpoint)
        frame = frame.option("archiveRegion", place.region)
        frame = frame.option("targetFileBytes", given.target_file_bytes)
        frame = frame.option("compression", given.compression)
        frame = frame.option("keepEncoded", str(given.keep_encoded).lower())
        writer = frame.load().writeStream.foreachBatch(self.commit)
        writer = writer.option("checkpointLocation", self._checkpoint())
        if given.available_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=given.trigger).start()

    def _checkpoint(self) -> str:
        if self._given.checkpoint:
            return str(self._given.checkpoint)
        state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
        return str(Path(state) / "sluicegate" / "archive" / self._given.subscription)

    def commit(self, frame: DataFrame, batch: int) -> None:
        """Commit one batch of files; Spark calls it."""
        try:
            self._commit(frame, batch)
        except SluicegateError as error:
            self.failure = error
            raise

    def _commit(self, frame: DataFrame, batch: int) -> None:
        rows = [row.asDict() for row in frame.collect()]
        for name, identity in sorted({(row["gateway"], row.pop("identity")) for row in rows}):
            self._committer.introduce(name, identity)
        query = self._spark.sparkContext.getLocalProperty(_QUERY_ID)
        files = [FileFacts(**row) for row in rows]
        made = self._committer.commit(files, f"sluicegate-query:{query}", batch)
        totals = self._totals
        totals.batches += 1
        totals.rows += made.rows
        totals.bytes += made.size
        totals.files += made.files
        totals.skipped += made.skipped
        totals.lost += made.lost
        self._look()
        self._progress.tell(totals)
        every = self._given.compact
        if every and totals.batches % every == 0:
            self.tidy()

    def _look(self) -> None:
        """Take up the gateways' heads, and check that the table knows them by these names."""
        for url in self._options["url"]:
            try:
                reply = Gateway(url, self._options).call("/heads", addressed(self._options))
            except StatusError as error:
                if error.status != 404:
                    raise
                continue
            gateway, streams = reply["gateway"], reply["items"]
            if gateway["id"]:
                self._committer.introduce(gateway["name"], gateway["id"])
            self._totals.heads |= heads_of(gateway["name"], streams)
            keys = [(gateway["name"], one["name"], one["epoch"]) for one in streams]
            for (name, stream, _), end in self._committer.open().ends(keys).items():
                self._totals.places[f"{name}/{stream}"] = end or 0

    def tidy(self) -> None:
        """Join small files, remove those that no version has."""
        table = self._committer.open()
        table.refresh()
        compact(table, self._file_bytes, _nonce, _now_ms, self._given.compression)
        table.vacuum(self._given.clean_hours)

    def end(self) -> None:
        """Tidy up where that is wanted, and tell of the end."""
        if self._given.compact and self._given.available_now:
            self.tidy()
        self._progress.tell(self._totals)
        self._progress.end()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit status: 0, or 1 with the reason on the error output."""
    given = make_parser().parse_args(arguments)

    def work(spark: SparkSession, interrupts: Interrupts) -> None:
        job = ArchiveJob(spark, given)
        query = job.start()
        try:
            while not wait(query, interrupts):
                continue
        except PySparkException as error:
            # What Spark wraps it into says it in several pages.
            raise (job.failure or error) from None
        finally:
            query.stop()
        job.end()

    return run("archive", work)


if __name__ == "__main__":
    sys.exit(main())
