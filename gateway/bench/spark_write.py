"""What Spark's sink publishes a second, and what a tap costs the senders of an address.

    python -m gateway.bench.spark_write [--rows N] [--size B] [--rounds N] [--json]

A query of `--rows` rows of `--size` bytes in two tasks is written to a tapped address; by turns
with it AMQP senders put as many durable messages on a queue whose address is tapped, and on one
whose address is not.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import click

from gateway.bench.cpu import cpu_seconds, resident_bytes
from gateway.bench.run import BenchError
from gateway.bench.spark import ADDRESS as TARGET
from gateway.bench.spark import SETTINGS, send, spark_session
from gateway.trial.scratch import ScratchGateway

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Rates of two runs of the same thing differ by a tenth here, so each has several.
ROUNDS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One write by the sink: rows a second, and microseconds of the gateway's CPU a row."""

    rate: float
    cpu: float | None
    memory: int | None


def write(session: SparkSession, gateway: ScratchGateway, rows: int, size: int) -> Written:
    """Write rows to the tapped address; the time is that of the whole call."""
    frame = session.range(0, rows, 1, 2).selectExpr(f"cast(repeat('x', {size}) AS binary) AS body")
    before, began = cpu_seconds(gateway.pid), time.monotonic()
    (
        frame.write.format("sluicegate")
        .mode("append")
        .option("url", gateway.url)
        .option("address", TARGET)
        .save()
    )
    took, after = time.monotonic() - began, cpu_seconds(gateway.pid)
    cpu = None if before is None or after is None else (after - before) * 1e6 / rows
    return Written(rate=rows / took, cpu=cpu, memory=resident_bytes(gateway.pid))


def fill(gateway: ScratchGateway, address: str, rows: int, size: int) -> float:
    """Send to a queue and empty it; returns messages a second of sending. Raises BenchError."""
    rate = send(gateway, address, rows, size)
    path = f"/api/v1/queues/{address}/removeAllMessages"
    status, answer = gateway.request("POST", path, {})
    if status >= 300:
        raise BenchError(f"{address} was not emptied: {status} {answer}")
    return rate


def measure(rows: int, size: int, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Return the figures of all rounds and their medians."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ScratchGateway(Path(folder), settings=SETTINGS) as gateway,
    ):
        for name in (TARGET, "q.tapped"):
            gateway.request("POST", "/api/v1/streams", {"name": name, "address": name})
        tapped, plain, written = [], [], []
        for number in range(rounds):
            plain.append(fill(gateway, "q.plain", rows, size))
            tapped.append(fill(gateway, "q.tapped", rows, size))
            say(f"senders: round {number + 1} of {rounds}")
        with spark_session() as session:
            write(session, gateway, rows // 10, size)
            for number in range(rounds):
                written.append(write(session, gateway, rows, size))
                say(f"sink: round {number + 1} of {rounds}")
    cpus = [one.cpu for one in written if one.cpu is not None]
    return {
        "rows": rows,
        "size": size,
        "sink": median(one.rate for one in written),
        "sink_cpu_us_a_row": median(cpus) if cpus else None,
        "tapped": median(tapped),
        "plain": median(plain),
        "ratio": median(a / b for a, b in zip(tapped, plain, strict=True)),
        "rounds": [asdict(one) for one in written],
    }


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--rows", default=1_000_000, show_default=True, help="of each run")
@click.option("--size", default=256, show_default=True, help="bytes of each body")
@click.option("--rounds", default=ROUNDS, show_default=True, help="of each, by turns")
@click.option("--json", "as_json", is_flag=True, help="one object instead of text")
def main(rows: int, size: int, rounds: int, *, as_json: bool) -> None:
    """See the module text."""
    found = measure(rows, size, rounds, lambda text: click.echo(text, err=True))
    if as_json:
        click.echo(json.dumps(found))
        return
    cpu = found["sink_cpu_us_a_row"]
    click.echo(
        f"sink {found['sink']:,.0f} rows/s, gateway {cpu or 0:.2f} us/row; senders to a tapped "
        f"address {found['tapped']:,.0f}/s, to a plain one {found['plain']:,.0f}/s, "
        f"ratio {found['ratio']:.2f}"
    )


if __name__ == "__main__":
    main()
