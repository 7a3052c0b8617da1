"""A long history behind a small disk: what stays at the gateway while an archive grows.

    python -m gateway.bench.history [--mib N] [--size B] [--local-mib N] [--json]

Batches of rows that nothing can make smaller go to a tapped address, and the archive's program
carries them into a table in a folder. The bytes of the gateway's streams are looked at all the
while; the sender waits while they are close to `--local-mib`, so that it is never far ahead of the
archive. At the end Spark reads from the first offset on, and each row must be there once, with
its own number.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import pyarrow as pa

from gateway.bench.spark import ADDRESS, QUIET, SETTINGS, spark_session
from gateway.trial.java import spark_environment
from gateway.trial.scratch import ScratchGateway, importing_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MIB: Final = 1 << 20
LOOK_SECONDS: Final = 0.1
#: Bytes of bodies that are sent and published at once.
BATCH_BYTES: Final = 8 * _MIB
NUMBER_BYTES: Final = 8
#: An archive that takes no step for so long is stuck.
STILL_SECONDS: Final = 300.0


def disk_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder; what goes away meanwhile does not count."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(where, name)).st_size  # noqa: PTH116, PTH118 - often
            except OSError:
                continue
    return total


@dataclass(slots=True)
class Disk:
    """The gateway's bytes on disk, the most that was seen.

    Attributes:
        whole: of its data directory: the journal's files, which are there from the start, too.
        streams: of its streams, and of what is staged for them.
    """

    folder: Path
    whole: int = 0
    streams: int = 0

    def look(self) -> None:
        """Take up what is there."""
        self.whole = max(self.whole, disk_bytes(self.folder))
        self.streams = max(self.streams, disk_bytes(self.folder / "streams"))


@contextmanager
def watched(disk: Disk) -> Iterator[None]:
    """Look at the disk again and again inside."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_SECONDS):
            disk.look()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def bodies(first: int, count: int, size: int) -> pa.RecordBatch:
    """Return rows of bodies of `size` bytes: their number, big-endian, then a hash's bytes."""
    data = bytearray(hashlib.shake_256(first.to_bytes(NUMBER_BYTES)).digest(count * size))
    for place in range(count):
        data[place * size : place * size + NUMBER_BYTES] = (first + place).to_bytes(NUMBER_BYTES)
    ends = pa.array(range(0, (count + 1) * size, size), pa.int32())
    column = pa.Array.from_buffers(
        pa.binary(), count, [None, ends.buffers()[1], pa.py_buffer(bytes(data))]
    )
    return pa.record_batch({"body": column})


class History:
    """A gateway with a small disk, and the archive beside it."""

    def __init__(self, folder: Path, local_bytes: int) -> None:
        """Nothing runs yet; `local_bytes` is what its streams may come to."""
        self.table = folder / "table"
        self._folder = folder
        self._bound = local_bytes
        # A quarter is for what is archived already; the rest for what is not, and for stages.
        settings = ("name='history'", "stream-retain='archived'")
        kept = f"stream-local-bytes={local_bytes // 4}"
        self.gateway = ScratchGateway(folder, settings=(*SETTINGS, *settings, kept))
        self.disk = Disk(self.gateway.data)
        self.streams = self.gateway.data / "streams"

    def archive(self, *more: str) -> subprocess.Popen[bytes]:
        """Start the archive's program, as a process of its own."""
        log = (self._folder / "archive.log").open("ab")
        environment = {**importing_environment(), **spark_environment()}
        paths = [environment["PYTHONPATH"], str(Path(__file__).parents[1] / "spark")]
        command = [
            sys.executable, "-m", "pyspark_sluicegate.pipelines.archive", "--url", self.gateway.url,
            "--address", ADDRESS, "--table", str(self.table), "--trigger", "1 second",
            "--checkpoint", str(self._folder / "checkpoint"), "--progress", "none",
            "--max-bytes-per-trigger", "64m", "--target-file-bytes", "64m", *more,
        ]  # fmt: skip
        with log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**environment, "PYTHONPATH": os.pathsep.join(paths)},
            )  # fmt: skip

    def log(self) -> str:
        """Return the end of what the archive has said."""
        return (self._folder / "archive.log").read_text()[-2000:]

    def send(self, rows: int, size: int, alive: Callable[[], bool]) -> Iterator[int]:
        """Publish rows, batch by batch, when there is room; yields how many are sent."""
        from pyspark_sluicegate.sink_options import parse_sink_options  # noqa: PLC0415 - not ours
        from pyspark_sluicegate.staging import Batch  # noqa: PLC0415

        options = parse_sink_options({"url": self.gateway.url, "address": ADDRESS})
        each = max(BATCH_BYTES // size, 1)
        for number, first in enumerate(range(0, rows, each)):
            self._wait_for_room(alive)
            count = min(each, rows - first)
            batch = Batch(options, "history", number)
            batch.commit([batch.stage([bodies(first, count, size)], 0, "a")])
            yield first + count

    def _wait_for_room(self, alive: Callable[[], bool]) -> None:
        """Wait until a stage and its messages fit: each is there twice for a moment."""
        end = time.monotonic() + STILL_SECONDS
        while disk_bytes(self.streams) > self._bound - 3 * BATCH_BYTES:
            if not alive():
                raise click.ClickException(f"the archive has ended: {self.log()}")
            if time.monotonic() > end:
                raise click.ClickException(f"the archive takes no step: {self.log()}")
            time.sleep(LOOK_SECONDS)


def read(session: SparkSession, history: History) -> dict[str, int]:
    """Read from the first offset on; returns what there is of rows, offsets and numbers."""
    frame = (
        session.read.format("sluicegate")
        .option("url", history.gateway.url)
        .option("address", ADDRESS)
        .option("archive", str(history.table))
        .load()
    )
    number = f"CAST(conv(hex(substring(body, 1, {NUMBER_BYTES})), 16, 10) AS BIGINT)"
    found = frame.selectExpr(
        "count(*) AS rows",
        "count(DISTINCT offset) AS offsets",
        "coalesce(min(offset), 0) AS first",
        "coalesce(max(offset), -1) + 1 AS end",
        f"count_if({number} != offset) AS wrong",
    ).first()
    assert found is not None, "an aggregate has a row"
    return {name: int(value) for name, value in found.asDict().items()}


def measure(mib: int, size: int, local_mib: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Return what was seen. Raises click.ClickException where a row is missing or twice."""
    rows = max(mib * _MIB // size, 1)
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder), local_mib * _MIB)
        with history.gateway as gateway, watched(history.disk):
            gateway.request("POST", "/api/v1/streams", {"name": ADDRESS, "address": ADDRESS})
            began = time.monotonic()
            _fill(history, rows, size, say)
            took = time.monotonic() - began
            facts = gateway.request("GET", f"/api/v1/streams/{ADDRESS}")[1]
            assert isinstance(facts, dict), facts
            say(f"the gateway has offsets {facts['first']:,} to {facts['head']:,}; reading all")
            began = time.monotonic()
            with spark_session(**QUIET) as session:
                found = read(session, history)
            reading = time.monotonic() - began
        table = disk_bytes(history.table)
    wanted = {"rows": rows, "offsets": rows, "first": 0, "end": rows, "wrong": 0}
    if found != wanted:
        raise click.ClickException(f"read {found}, wanted {wanted}")
    return {
        "rows": rows,
        "size": size,
        "history_mib": rows * size / _MIB,
        "table_mib": table / _MIB,
        "local_limit_mib": local_mib,
        "streams_peak_mib": history.disk.streams / _MIB,
        "whole_peak_mib": history.disk.whole / _MIB,
        "at_gateway": facts["head"] - facts["first"],
        "sent_and_archived_seconds": took,
        "read_seconds": reading,
    }


def _fill(history: History, rows: int, size: int, say: Callable[[str], None]) -> None:
    """Send all rows while the archive runs, and have it take the rest."""
    archive = history.archive()
    try:
        told = 0
        for sent in history.send(rows, size, lambda: archive.poll() is None):
            if sent * 10 // rows > told:
                told = sent * 10 // rows
                say(f"{sent:,} of {rows:,} sent, {disk_bytes(history.streams) / _MIB:.0f} MiB here")
        archive.terminate()
        archive.wait(STILL_SECONDS)
        last = history.archive("--available-now")
        if last.wait(STILL_SECONDS):
            raise click.ClickException(f"the archive failed: {history.log()}")
    finally:
        archive.kill()  # its JVM ends with it
        archive.wait()


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--mib", default=10_240, show_default=True, help="the history, MiB of bodies")
@click.option("--size", default=4096, show_default=True, help="bytes of each body")
@click.option("--local-mib", default=256, show_default=True, help="the streams at the gateway, MiB")
@click.option("--json", "as_json", is_flag=True, help="one object instead of a line")
def main(mib: int, size: int, local_mib: int, *, as_json: bool) -> None:
    """See the module text."""
    found = measure(mib, size, local_mib, lambda text: click.echo(text, err=True))
    if as_json:
        click.echo(json.dumps(found))
        return
    click.echo(
        f"{found['rows']:,} rows, {found['history_mib']:,.0f} MiB, in a table of "
        f"{found['table_mib']:,.0f} MiB; streams of {found['streams_peak_mib']:.0f} MiB at the "
        f"gateway at the most ({found['whole_peak_mib']:.0f} with its journal), "
        f"{found['at_gateway']:,} rows at the end; all read, each once"
    )


if __name__ == "__main__":
    main()
