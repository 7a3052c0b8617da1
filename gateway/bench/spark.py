"""What Spark reads a second, beside the ceiling of its Python API, and what it costs the gateway.

    python -m gateway.bench.spark [--rows N] [--size B] [--rounds N] [--json]

A scratch gateway taps an address, which takes `--rows` messages. A query in Spark's local mode on
two cores reads them to the sink `noop`, a fifth of them a batch; by turns with it runs one over a
source that yields as many rows of the same columns from memory. A round's rate is that of its
batches but for the first, which warms up.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import click

from gateway.bench.cpu import cpu_seconds, resident_bytes
from gateway.bench.drive import Job
from gateway.bench.run import timed
from gateway.trial.java import spark_environment
from gateway.trial.scratch import HOST, ScratchGateway

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ADDRESS: Final = "bench.spark"
#: Without a queue: what is measured is the stream alone.
SETTINGS: Final = (
    f'address-settings."{ADDRESS}".default-address-routing-type="MULTICAST"',
    f'address-settings."{ADDRESS}".default-queue-routing-type="MULTICAST"',
)
#: For runs that tell something themselves; Spark's bar would be drawn into it.
QUIET: Final = {"spark.ui.showConsoleProgress": "false"}
BATCHES: Final = 5
_SEALED_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One query: rows a second, and microseconds of the gateway's CPU a row."""

    rate: float
    cpu: float | None
    memory: int | None


@contextmanager
def spark_session(**settings: str) -> Iterator[SparkSession]:
    """Yield Spark in local mode on two cores, on loopback, with our packages on its path."""
    os.environ.update(spark_environment())
    root = Path(__file__).resolve().parents[2]
    paths = [str(root), str(root / "gateway" / "spark"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    # The environment is read when this is imported.
    from pyspark.sql import SparkSession  # noqa: PLC0415

    chosen = {
        "spark.driver.bindAddress": HOST,
        "spark.driver.host": HOST,
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.ui.enabled": "false",
        **settings,
    }
    builder = SparkSession.builder.master("local[2]").appName("sluicegate bench")
    for key, value in chosen.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def send(
    gateway: ScratchGateway, address: str, rows: int, size: int, shape: str = "uniform"
) -> float:
    """Send durable messages over AMQP, each confirmed; returns messages a second."""
    job = Job(
        protocol="amqp",
        role="send",
        host=HOST,
        port=gateway.port,
        address=address,
        count=rows,
        connections=1,
        window=2000,
        size=size,
        durable=True,
        confirmed=True,
        shape=shape,
        stamped=False,
        ack="auto",
        settle_every=1,
    )
    return timed(None, [job]).rate


def publish(gateway: ScratchGateway, rows: int, size: int, shape: str) -> None:
    """Send `rows` messages to the tapped address and wait until they are in sealed segments."""
    gateway.request("POST", "/api/v1/streams", {"name": ADDRESS, "address": ADDRESS})
    send(gateway, ADDRESS, rows, size, shape)
    deadline = time.monotonic() + _SEALED_SECONDS
    while time.monotonic() < deadline:
        _, found = gateway.request("GET", f"/api/v1/streams/{ADDRESS}")
        if isinstance(found, dict) and found["head"] == rows:
            return
        time.sleep(0.1)
    raise TimeoutError(f"{ADDRESS} has not all of {rows} messages after {_SEALED_SECONDS:.0f} s")


def run_query(frame: DataFrame) -> float:
    """Run a query to its end; returns rows a second of the batches behind the first."""
    with tempfile.TemporaryDirectory() as folder:
        query = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", folder)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        batches = [p for p in query.recentProgress if p["numInputRows"]][1:]
    rows = float(sum(p["numInputRows"] for p in batches))
    return rows / float(sum(p["durationMs"]["triggerExecution"] for p in batches)) * 1000


def read_gateway(
    session: SparkSession, gateway: ScratchGateway, name: str, rows: int, options: dict[str, str]
) -> Read:
    """Read the whole stream as a new subscription."""
    frame = (
        session.readStream.format("sluicegate")
        .option("url", gateway.url)
        .option("address", ADDRESS)
        .option("subscription", name)
        .option("startingOffsets", "earliest")
        .option("minPartitions", "2")
        .option("maxMessagesPerTrigger", str(-(-rows // BATCHES)))
        .option("maxBytesPerTrigger", "16g")
        .options(**options)
        .load()
    )
    before = cpu_seconds(gateway.pid)
    rate = run_query(frame)
    after = cpu_seconds(gateway.pid)
    cpu = None if before is None or after is None else (after - before) * 1e6 / rows
    return Read(rate=rate, cpu=cpu, memory=resident_bytes(gateway.pid))


def read_memory(session: SparkSession, rows: int, size: int) -> float:
    """Read as many rows of the same columns from memory."""
    frame = (
        session.readStream.format("sluicegate_bench_memory")
        .option("rows", str(rows))
        .option("size", str(size))
        .option("cap", str(-(-rows // BATCHES)))
        .load()
    )
    return run_query(frame)


def measure(
    rows: int, size: int, rounds: int, shape: str, say: Callable[[str], None]
) -> dict[str, Any]:
    """Return the figures of all rounds and their medians."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ScratchGateway(Path(folder), settings=SETTINGS) as gateway,
    ):
        publish(gateway, rows, size, shape)
        with spark_session() as session:
            from gateway.bench.spark_memory import MemorySource  # noqa: PLC0415

            session.dataSource.register(MemorySource)
            say("warming up")
            read_memory(session, rows // 4, size)
            reads, ceilings = [], []
            for number in range(rounds):
                ceilings.append(read_memory(session, rows, size))
                reads.append(read_gateway(session, gateway, f"round{number}", rows, {}))
                say(f"round {number + 1} of {rounds}")
    ratios = [read.rate / top for read, top in zip(reads, ceilings, strict=True)]
    cpus = [read.cpu for read in reads if read.cpu is not None]
    return {
        "rows": rows,
        "size": size,
        "shape": shape,
        "rate": median(read.rate for read in reads),
        "ceiling": median(ceilings),
        "ratio": median(ratios),
        "gateway_cpu_us_a_row": median(cpus) if cpus else None,
        "rounds": [{**asdict(r), "ceiling": c} for r, c in zip(reads, ceilings, strict=True)],
    }


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--rows", default=2_000_000, show_default=True, help="messages in the stream")
@click.option("--size", default=256, show_default=True, help="bytes of each body")
@click.option("--rounds", default=3, show_default=True, help="of each, by turns")
@click.option(
    "--shape", default="uniform", show_default=True, help="messages, as `bench` names them"
)
@click.option("--json", "as_json", is_flag=True, help="one object instead of a table")
def main(rows: int, size: int, rounds: int, shape: str, *, as_json: bool) -> None:
    """See the module text."""
    found = measure(rows, size, rounds, shape, lambda text: click.echo(text, err=True))
    if as_json:
        click.echo(json.dumps(found))
        return
    click.echo(
        f"{found['rate']:,.0f} rows/s, ceiling {found['ceiling']:,.0f}, "
        f"ratio {found['ratio']:.2f}, "
        f"gateway {found['gateway_cpu_us_a_row']:.2f} us/row"
    )


if __name__ == "__main__":
    main()
