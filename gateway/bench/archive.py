"""What the archive writes and reads a second, beside the plain read and Spark's own Parquet.

    python -m gateway.bench.archive [--rows N] [--size B] [--rounds N] [--json]

A scratch gateway taps an address, which takes `--rows` messages. By turns a query reads them to the
sink `noop`, and the archive carries them into a table of its own, a fifth of them a batch; a rate
is that of the batches but for the first. Then the gateway lets go of what is archived, and batch
reads take the same columns of the table's files through the source and through Spark's Parquet
reader, by turns, both to `noop`.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import click

from gateway.bench.spark import (
    ADDRESS,
    BATCHES,
    SETTINGS,
    publish,
    read_gateway,
    spark_session,
)
from gateway.trial.scratch import ScratchGateway

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS: Final = (
    "offset", "timestamp", "message_id", "subject", "content_type", "correlation_id", "reply_to",
    "body",
)  # fmt: skip
_DROPPED_SECONDS: Final = 60.0


def archive(
    session: SparkSession, gateway: ScratchGateway, table: Path, rows: int, compression: str
) -> float:
    """Archive the whole stream into a new table; returns rows a second but for the first batch."""
    from pyspark_sluicegate.archive.committing import Committer  # noqa: PLC0415 - an extra
    from pyspark_sluicegate.archive.layout import FileFacts  # noqa: PLC0415
    from pyspark_sluicegate.archive.store import parse_location  # noqa: PLC0415
    from pyspark_sluicegate.pipelines.files_source import FORMAT, ArchiveFiles  # noqa: PLC0415

    session.dataSource.register(ArchiveFiles)
    names = iter(range(1 << 30))
    place = parse_location("table", {"table": str(table)})
    committer = Committer(place, lambda: 0, lambda: f"{next(names):x}")
    done: list[tuple[float, int]] = []

    def commit(frame: DataFrame, batch: int) -> None:
        found = [row.asDict() for row in frame.collect()]
        for name, identity in {(row["gateway"], row.pop("identity")) for row in found}:
            committer.introduce(name, identity)
        made = committer.commit([FileFacts(**row) for row in found], "bench", batch)
        done.append((time.monotonic(), made.rows))

    frame = (
        session.readStream.format(FORMAT)
        .option("url", gateway.url)
        .option("address", ADDRESS)
        .option("subscription", f"archive {table.name}")
        .option("startingOffsets", "earliest")
        .option("minPartitions", "2")
        .option("maxMessagesPerTrigger", str(-(-rows // BATCHES)))
        .option("maxBytesPerTrigger", "16g")
        .option("archive", str(table))
        .option("compression", compression)
        .load()
    )
    with tempfile.TemporaryDirectory() as folder:
        query = frame.writeStream.foreachBatch(commit).option("checkpointLocation", folder)
        query.trigger(availableNow=True).start().awaitTermination()
    return sum(count for _, count in done[1:]) / (done[-1][0] - done[0][0])


def read_archived(session: SparkSession, gateway: ScratchGateway, table: Path, end: int) -> float:
    """Read offsets up to `end`, which the table alone has; returns rows a second."""
    frame = (
        session.read.format("sluicegate")
        .option("url", gateway.url)
        .option("address", ADDRESS)
        .option("columns", ",".join(COLUMNS))
        .option("endingOffsets", str(end))
        .option("minPartitions", "2")
        .option("targetPartitionBytes", "16m")
        .option("archive", str(table))
        .load()
    )
    return _timed(frame, end)


def read_parquet(session: SparkSession, table: Path, end: int) -> float:
    """Read the same rows by Spark's own reader."""
    frame = session.read.parquet(f"{table}/gateway=*/address=*/date=*/*.parquet")
    return _timed(frame.where(f"`offset` < {end}").select(*COLUMNS), end)


def _timed(frame: DataFrame, rows: int) -> float:
    begun = time.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    return rows / (time.monotonic() - begun)


def measure(
    rows: int, size: int, rounds: int, compression: str, say: Callable[[str], None]
) -> dict[str, Any]:
    """Return the medians and the figures of all rounds."""
    settings = (*SETTINGS, "stream-retain='archived'", "stream-local-bytes=1")
    with (
        tempfile.TemporaryDirectory() as folder,
        ScratchGateway(Path(folder), settings=settings) as gateway,
        spark_session() as session,
    ):
        publish(gateway, rows, size, "plain")
        table = Path(folder) / "table0"
        pin = {"address": ADDRESS, "pin": "bench", "pinMs": 3_600_000}
        gateway.request("POST", "/api/v1/streams/heads", pin)
        reads, writes = [], []
        for number in range(rounds):
            reads.append(read_gateway(session, gateway, f"round{number}", rows, {}).rate)
            name = Path(folder) / f"table{number}"
            writes.append(archive(session, gateway, name, rows, compression))
            say(f"archived {number + 1} of {rounds}")
        gateway.request("POST", "/api/v1/streams/heads", {**pin, "pinMs": 0})
        end = _dropped(gateway)
        say(f"{end} of {rows} offsets are in the table alone")
        backs, parquets = [], []
        for _ in range(rounds + 1):
            parquets.append(read_parquet(session, table, end))
            backs.append(read_archived(session, gateway, table, end))
        stored = sum(path.stat().st_size for path in table.glob("gateway=*/**/*.parquet"))
    return {
        "rows": rows,
        "size": size,
        "compression": compression,
        "read": median(reads),
        "archive": median(writes),
        "archive_of_read": median(w / r for w, r in zip(writes, reads, strict=True)),
        "archived_read": median(backs[1:]),
        "parquet_read": median(parquets[1:]),
        "archived_of_parquet": median(b / p for b, p in zip(backs[1:], parquets[1:], strict=True)),
        "stored_bytes_a_row": stored / rows,
    }


def _dropped(gateway: ScratchGateway) -> int:
    """Wait until the gateway has let go of what is archived; returns its first offset."""
    deadline, before = time.monotonic() + _DROPPED_SECONDS, -1
    while time.monotonic() < deadline:
        _, found = gateway.request("GET", f"/api/v1/streams/{ADDRESS}")
        if isinstance(found, dict) and found["first"] == before > 0:
            return before
        before = found["first"] if isinstance(found, dict) else -1
        time.sleep(1.0)
    raise TimeoutError(f"{ADDRESS} keeps what is archived")


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--rows", default=2_000_000, show_default=True, help="messages in the stream")
@click.option("--size", default=256, show_default=True, help="bytes of each body")
@click.option("--rounds", default=3, show_default=True, help="of each, by turns")
@click.option(
    "--compression", type=click.Choice(["zstd", "snappy", "none"]), default="zstd",
    show_default=True,
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="as JSON")
def main(*, rows: int, size: int, rounds: int, compression: str, as_json: bool) -> None:
    """Measure and print."""
    found = measure(rows, size, rounds, compression, lambda text: click.echo(text, err=True))
    if as_json:
        click.echo(json.dumps(found))
        return
    click.echo(f"{rows:,} rows of {size} B, {compression}")
    click.echo(f"read to noop        {found['read']:>12,.0f} rows/s")
    click.echo(
        f"archive             {found['archive']:>12,.0f} rows/s, "
        f"{found['archive_of_read']:.2f} of it"
    )
    click.echo(f"Spark's Parquet     {found['parquet_read']:>12,.0f} rows/s")
    click.echo(
        f"archived range      {found['archived_read']:>12,.0f} rows/s, "
        f"{found['archived_of_parquet']:.2f} of it"
    )
    click.echo(f"stored              {found['stored_bytes_a_row']:>12,.1f} bytes a row")


if __name__ == "__main__":
    main()
