"""A pipeline from its start to its exit status: the session, signals, errors, a query watched."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_sluicegate.options import SluicegateError
from pyspark_sluicegate.pipelines.arguments import cause_of, first_line
from pyspark_sluicegate.pipelines.progress import Progress
from pyspark_sluicegate.progress import lag

#: How often a query is looked at.
LOOK_SECONDS: Final = 1
#: A batch that runs when a pipeline is interrupted may take so long to its end.
_SETTLE_SECONDS: Final = 30.0
_SETTLE_PAUSE: Final = 0.05
INTERRUPTED: Final = 130
#: A row whose expression cannot be computed has no value there; it must not end the query.
_LENIENT: Final = {"spark.sql.ansi.enabled": "false", "spark.sql.session.timeZone": "UTC"}


class Interrupts:
    """Ctrl-C and SIGTERM, as something to ask for between two steps.

    An exception in the middle of a call to the JVM, which PySpark would raise, leaves that call and
    Spark's threads half done and prints pages of it. The second signal is one, for the impatient.
    """

    def __init__(self) -> None:
        self.count = 0

    def __bool__(self) -> bool:
        return self.count > 0

    def note(self, *_: object) -> None:
        """Take up a signal."""
        self.count += 1
        if self.count > 1:
            raise KeyboardInterrupt

    def check(self) -> None:
        """Raise KeyboardInterrupt if there was one."""
        if self:
            raise KeyboardInterrupt

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Hear signals meanwhile; a SparkContext that is made later takes Ctrl-C for itself."""
        kept = {one: signal.signal(one, self.note) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, before in kept.items():
                signal.signal(one, before)


#: What a pipeline does once there is a session.
Work = Callable[[SparkSession, Interrupts], None]


def run(name: str, work: Work, *, interrupted: int = 0) -> int:
    """Run a program; returns its exit status: 0, or 1 with the reason on the error output.

    `interrupted` is the status after Ctrl-C or SIGTERM: 0 for what goes on until it is stopped.
    A session that was there before stays.
    """
    # PySpark prints a page of JSON for each expression that it refuses; we say it in a line.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    before = SparkSession.getActiveSession()
    spark: SparkSession | None = None
    interrupts = Interrupts()
    try:
        spark = _session(name)
        with interrupts.heard():
            work(spark, interrupts)
    except KeyboardInterrupt:
        return interrupted
    except Exception as error:  # noqa: BLE001 - Spark wraps the cause in several of its own
        sys.stderr.write(f"{name}: {cause_of(error)}\n")
        return 1
    finally:
        if spark is not None and before is None:
            _stop(spark)
    return 0


def _session(name: str) -> SparkSession:
    builder = SparkSession.builder.appName(f"sluicegate-{name}")
    # Its own bar would be drawn into ours.
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    for key, value in _LENIENT.items():
        spark.conf.set(key, value)
    return spark


@contextmanager
def checked(said: str) -> Iterator[None]:
    """Let Spark's refusal of an expression name the options that have it."""
    try:
        yield
    except PySparkException as error:
        raise SluicegateError(
            f"{said} is no expression for this: {first_line(str(error))}"
        ) from error


def _stop(spark: SparkSession) -> None:
    """Stop Spark; a second Ctrl-C meanwhile must not print how far that was."""
    kept = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        spark.stop()
    finally:
        signal.signal(signal.SIGINT, kept)


@dataclass(slots=True, kw_only=True)
class QueryTotals:
    """What a streaming query has done since it was started.

    Attributes:
        late: groups that came behind the watermark, and are in no result; each is one row or more.
        untimed: rows without a time.
        state: groups that wait for their window to end.
        behind: stream -> offsets between what is read and its head.
    """

    batches: int = 0
    rows: int = 0
    results: int = 0
    late: int = 0
    untimed: int = 0
    state: int = 0
    behind: dict[str, int] = field(default_factory=dict)
    stateful: bool = True
    _told: str = ""

    def take(self, progress: Mapping[str, Any]) -> bool:
        """Add what Spark tells of one trigger; returns whether it was new."""
        if progress["timestamp"] <= self._told:
            return False
        self._told = progress["timestamp"]
        self.batches += "addBatch" in progress["durationMs"]
        self.rows += sum(one["numInputRows"] for one in progress["sources"])
        if progress["stateOperators"]:
            self.late += sum(s["numRowsDroppedByWatermark"] for s in progress["stateOperators"])
            self.state = sum(s["numRowsTotal"] for s in progress["stateOperators"])
        for observed in progress.get("observedMetrics", {}).values():
            found = observed.asDict() if hasattr(observed, "asDict") else dict(observed)
            self.untimed += found.get("untimed") or 0
            self.results += found.get("results") or 0
        self.behind = lag(progress)
        return True

    def counters(self) -> dict[str, int]:
        """Return what only grows, by name."""
        found = {"batches": self.batches, "rows": self.rows}
        if self.stateful:
            found |= {"results": self.results, "late": self.late, "untimed": self.untimed}
        return found

    def gauges(self) -> dict[str, int]:
        """Return what also falls, by name."""
        return {"open_groups": self.state} if self.stateful else {}

    def lags(self) -> dict[str, int]:
        """Return how many offsets each stream is behind its head."""
        return self.behind

    def share(self) -> float:
        """Return how much is read of what was there for this run, 0 to 1."""
        left = sum(self.behind.values())
        return self.rows / (self.rows + left) if left else 1.0

    def summary(self, seconds: float) -> str:
        """Return the figures for people."""
        text = f"{self.rows:,} rows  {self.rows / seconds:,.0f} rows/s  "
        if self.stateful:
            text += f"{self.results:,} results  {self.state:,} open  {self.late:,} late  "
        return f"{text}{sum(self.lags().values()):,} behind"


def wait(query: StreamingQuery, interrupts: Interrupts) -> bool:
    """Wait a moment; returns whether the query is over, or an interrupt has let its batch end.

    A stop in the middle of a batch loses nothing, but Spark and its workers print pages of it.
    """
    if not interrupts:
        return bool(query.awaitTermination(LOOK_SECONDS))
    end, before = time.monotonic() + _SETTLE_SECONDS, _last_batch(query)
    while (
        query.isActive
        and query.status["isTriggerActive"]
        and _last_batch(query) == before
        and time.monotonic() < end
    ):
        time.sleep(_SETTLE_PAUSE)
    return True


def _last_batch(query: StreamingQuery) -> int:
    told = query.lastProgress
    return -1 if told is None else int(told["batchId"])


def watch(
    query: StreamingQuery, totals: QueryTotals, progress: Progress, interrupts: Interrupts
) -> None:
    """Tell of a query until it ends or is interrupted; raises what it died of."""
    try:
        while not wait(query, interrupts):
            _tell(query, totals, progress)
    finally:
        query.stop()
        _tell(query, totals, progress)
        progress.end()


def _tell(query: StreamingQuery, totals: QueryTotals, progress: Progress) -> None:
    news = [one for one in query.recentProgress if totals.take(one)]
    if news:
        progress.tell(totals)


def add_query_arguments(parser: argparse.ArgumentParser, subscription: str) -> None:
    """Add what says where a streaming query begins, how often it works, and when it ends."""
    parser.add_argument(
        "--address", required=True,
        help="what is read; with * (one word) or # (the rest) a pattern, also for new addresses",
    )  # fmt: skip
    parser.add_argument(
        "--subscription", default=subscription, help="its name at the gateways, one for each query"
    )
    parser.add_argument(
        "--checkpoint", required=True, metavar="FOLDER",
        help="where Spark keeps its place; with it a restart goes on exactly there",
    )  # fmt: skip
    parser.add_argument(
        "--selector", default="", metavar="EXPR",
        help="only messages that match, sorted out by the gateway: region = 'eu'",
    )  # fmt: skip
    parser.add_argument("--starting-offsets", default="earliest", metavar="WHERE")
    parser.add_argument("--max-bytes-per-trigger", default="512m", metavar="SIZE")
    parser.add_argument("--trigger", default="10 seconds", help="how often a batch is made")
    parser.add_argument("--available-now", action="store_true", help="end when all is read")


def query_options(given: argparse.Namespace) -> dict[str, str]:
    """Return the source's options for what `add_query_arguments` has read."""
    pattern = {"*", "#"} & set(given.address.split("."))
    found = {
        "addressPattern" if pattern else "address": given.address,
        "subscription": given.subscription,
        "selector": given.selector,
        "startingOffsets": given.starting_offsets,
        "maxBytesPerTrigger": given.max_bytes_per_trigger,
    }
    return {name: value for name, value in found.items() if value}


def start(writer: Any, given: argparse.Namespace) -> StreamingQuery:  # noqa: ANN401 - Spark's
    """Start a query with its checkpoint and trigger."""
    writer = writer.option("checkpointLocation", os.fspath(given.checkpoint))
    if given.available_now:
        query: StreamingQuery = writer.trigger(availableNow=True).start()
    else:
        query = writer.trigger(processingTime=given.trigger).start()
    return query


def make_progress(name: str, given: argparse.Namespace) -> Progress:
    """Return what tells of the pipeline, as its options say."""
    return Progress(given.progress, given.metrics_file, time.monotonic, pipeline=name)
