"""What memory a long backlog takes: the Python workers that read it, and the gateway.

    python -m gateway.bench.spark_workers [--rows N] [--size B] [--json]

A scratch gateway taps an address, which takes `--rows` messages. One query with the source's own
defaults reads them to the sink `noop`, in two tasks a batch; meanwhile the resident memory of each
Python process of Spark and of the gateway is looked at. Linux, from /proc.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gateway.bench.cpu import resident_bytes
from gateway.bench.spark import ADDRESS, QUIET, SETTINGS, publish, spark_session
from gateway.trial.scratch import ScratchGateway

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECONDS: Final = 0.05
_MIB: Final = 1 << 20
#: How Spark's Python processes are called: the daemon, and its children, which run the tasks.
_DAEMON: Final = b"pyspark.daemon"


@dataclass(slots=True)
class Peaks:
    """The most memory that was seen, in bytes.

    Attributes:
        workers: by process; the daemon that starts them is one of them.
        gateway: the gateway's.
        begun: the gateway's before the query.
    """

    workers: dict[int, int] = field(default_factory=dict)
    gateway: int = 0
    begun: int = 0

    def look(self, gateway: int) -> None:
        """Take up what is in use now."""
        for pid in _workers():
            used = resident_bytes(pid) or 0
            self.workers[pid] = max(self.workers.get(pid, 0), used)
        self.gateway = max(self.gateway, resident_bytes(gateway) or 0)


def _workers() -> Iterator[int]:
    """Yield the Python processes that Spark has started below this one."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            command = (folder / "cmdline").read_bytes()
            mine = _descends(int(folder.name)) if _DAEMON in command else False
        except OSError:  # it has ended
            continue
        if mine:
            yield int(folder.name)


def _descends(pid: int) -> bool:
    """Whether a process was started by this one, or by one that was."""
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


@contextmanager
def watched(gateway: int) -> Iterator[Peaks]:
    """Look at the memory again and again inside."""
    peaks, over = Peaks(begun=resident_bytes(gateway) or 0), threading.Event()

    def look() -> None:
        while not over.wait(LOOK_SECONDS):
            peaks.look(gateway)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        over.set()
        thread.join()


def read(session: SparkSession, gateway: ScratchGateway, folder: Path) -> tuple[int, int]:
    """Read all of it as the source does by itself; returns rows and batches."""
    source = session.readStream.format("sluicegate").option("url", gateway.url)
    source = source.option("address", ADDRESS).option("subscription", "memory")
    source = source.option("startingOffsets", "earliest").option("minPartitions", "2")
    query = (
        source.load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batches = [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]
    return sum(batches), len(batches)


def measure(rows: int, size: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Return what was seen."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ScratchGateway(Path(folder), settings=SETTINGS) as gateway,
    ):
        publish(gateway, rows, size, "plain")
        say(f"{rows:,} messages are there")
        with spark_session(**QUIET) as session, watched(gateway.pid) as peaks:
            found, batches = read(session, gateway, Path(folder))
    if found != rows:
        raise click.ClickException(f"{found} rows were read of {rows}")
    return {
        "rows": rows,
        "size": size,
        "batches": batches,
        "worker_mib": sorted(used / _MIB for used in peaks.workers.values()),
        "gateway_before_mib": peaks.begun / _MIB,
        "gateway_mib": peaks.gateway / _MIB,
    }


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--rows", default=10_000_000, show_default=True, help="messages in the stream")
@click.option("--size", default=256, show_default=True, help="bytes of each body")
@click.option("--json", "as_json", is_flag=True, help="one object instead of a line")
def main(rows: int, size: int, *, as_json: bool) -> None:
    """See the module text."""
    found = measure(rows, size, lambda text: click.echo(text, err=True))
    if as_json:
        click.echo(json.dumps(found))
        return
    click.echo(
        f"{found['rows']:,} rows in {found['batches']} batches; "
        f"the largest of {len(found['worker_mib'])} workers {found['worker_mib'][-1]:.0f} MiB, "
        f"gateway {found['gateway_mib']:.0f} MiB ({found['gateway_before_mib']:.0f} before)"
    )


if __name__ == "__main__":
    main()
