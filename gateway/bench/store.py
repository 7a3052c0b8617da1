"""What concurrent store and dispatch is worth: beside the serialized mode, and not written at all.

    python -m gateway.bench.store [--rounds N] [--scale X] [--json]

Two gateways that differ in the switch alone run each row in turn, with the disk as it is and with
syncs slowed down to 2 ms. A row sends durable messages of 1000 bytes, each confirmed before the
next one of its sender goes, to a consumer that settles at once. Further rows compare one gateway
with itself: many senders with one, durable with not durable, what is read back from pages with
what is in memory, and how fast a start reads the journal.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import click

from gateway.bench.drive import Job
from gateway.bench.rows import ROWS, Row
from gateway.bench.run import BenchError, Target, measure, timed
from gateway.store.persistence import open_journal
from gateway.trial.scratch import HOST, GatewayFailedError, ScratchGateway
from storage.files import RealFiles

BODY_BYTES: Final = 1000
PAGED_BYTES: Final = 1024
SLOW_SECONDS: Final = 0.002
#: Of the journal before it is read by a start.
RECOVERED: Final = 200_000
PAGED: Final = 200_000
#: Rates of two runs of the same thing differ by about so much here.
NOISE: Final = 0.95
SENDERS: Final = (1, 8, 32)
#: What one batch for many senders is worth: title and rows.
GROUPED: Final = (
    "100 durable senders of window 1 : one",
    "amqp-100x1-durable",
    "amqp-in-durable-w1",
)
PAGES: Final = 'address-settings."q.bench.paged.#".max-size-bytes="1MiB"'


class SlowGateway(ScratchGateway):
    """A gateway whose syncs take longer."""

    def command(self) -> list[str]:
        """See ScratchGateway."""
        python, _, _, *rest = super().command()
        return [python, "-m", "gateway.bench.slow_disk", str(SLOW_SECONDS), *rest]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One row of one gateway: medians. `written` and `syncs` are per message sent."""

    rate: float
    p50: float | None
    written: float
    bytes_written: float
    syncs: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One row with the switch on and off."""

    title: str
    on: Found
    off: Found

    @property
    def ratio(self) -> float:
        """How many times the serialized rate the concurrent one is."""
        return self.on.rate / self.off.rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A figure and the least that it should be."""

    title: str
    figure: float
    least: float

    @property
    def met(self) -> bool:
        """Whether it is that much."""
        return self.figure >= self.least


def target_of(gateway: ScratchGateway) -> Target:
    """Return a gateway as the drivers reach it."""
    ports = {"amqp": gateway.port, "stomp": gateway.stomp_port}
    return Target(name="ours", host=HOST, ports=ports, pids={})


def store_of(gateway: ScratchGateway) -> dict[str, Any]:
    """Return what a gateway says of its journal."""
    status, answer = gateway.request("GET", "/api/v1/store")
    if status != 200 or not isinstance(answer, dict):
        raise BenchError(f"GET /api/v1/store answers {status}.")
    found: dict[str, Any] = answer.get("journal", answer)
    return found


def rows() -> Iterator[Row]:
    """Yield the rows that are paired."""
    for protocol in ("amqp", "stomp"):
        for senders in SENDERS:
            yield Row(
                key=f"store-{protocol}-{senders}",
                title=f"{protocol.upper()}, {senders} waiting, fast consumer",
                protocol=protocol,
                kind="both",
                count=400 * senders + 1600,
                durable=True,
                connections=senders,
                window=1,
                ack="client" if protocol == "stomp" else "auto",
                settle_every=1,
            )


def once(row: Row, gateway: ScratchGateway, scale: float) -> Found:
    """Run a row once and see what the journal did meanwhile."""
    before = store_of(gateway)
    found = measure(row, target_of(gateway), scale=scale, size=BODY_BYTES)
    after = store_of(gateway)
    count = row.scaled(scale)

    def by(key: str) -> float:
        return float(after[key] - before[key])

    return Found(
        rate=found.rate,
        p50=found.p50,
        written=by("storedMessages") / count,
        bytes_written=by("bytesWritten") / count,
        syncs=by("batches") / count,
    )


def middle(found: Sequence[Found]) -> Found:
    """Return the median of each figure."""
    waits = [one.p50 for one in found if one.p50 is not None]
    return Found(
        rate=median(one.rate for one in found),
        p50=median(waits) if waits else None,
        written=median(one.written for one in found),
        bytes_written=median(one.bytes_written for one in found),
        syncs=median(one.syncs for one in found),
    )


@contextmanager
def pair(folder: Path, *, slow: bool) -> Iterator[tuple[ScratchGateway, ScratchGateway]]:
    """Run two gateways that differ in the switch alone."""
    kind = SlowGateway if slow else ScratchGateway
    with ExitStack() as stack:
        made = [
            stack.enter_context(
                kind(folder / name, settings=[f"concurrent-store-and-dispatch-queues={name}"])
            )
            for name in ("true", "false")
        ]
        yield made[0], made[1]


def paired(folder: Path, *, slow: bool, rounds: int, scale: float) -> Iterator[Pair]:
    """Yield each row, run in turn with the switch on and off."""
    disk = f"sync {SLOW_SECONDS * 1000:.0f} ms" if slow else "disk as it is"
    with pair(folder, slow=slow) as (on, off):
        for row in rows():
            title = f"{row.title}, {disk}"
            found: tuple[list[Found], list[Found]] = [], []
            for number in range(rounds):
                click.echo(f"{title}: round {number + 1} of {rounds}", err=True)
                for results, gateway in zip(found, (on, off), strict=True):
                    results.append(once(row, gateway, scale))
            yield Pair(title=title, on=middle(found[0]), off=middle(found[1]))


def alone(folder: Path, *, rounds: int, scale: float) -> Iterator[Asked]:
    """Yield what one gateway is asked for."""
    with ScratchGateway(folder / "alone", settings=[PAGES]) as gateway:
        target = target_of(gateway)
        for title, key, other, least in (
            (f"{GROUPED[0]}, disk as it is", *GROUPED[1:], 5),
            ("durable : not durable, one sender", "amqp-in-durable", "amqp-in", 0.5),
        ):
            click.echo(title, err=True)
            one, two = (next(row for row in ROWS if row.key == k) for k in (key, other))
            yield Asked(title=title, figure=_against(one, two, target, rounds, scale), least=least)
        title = "out of pages : out of memory, durable, 1 KiB"
        click.echo(title, err=True)
        there, here = (
            Row(key=key, title=title, protocol="amqp", kind="out", count=PAGED, durable=True)
            for key in ("paged", "memory")
        )
        figure = _against(there, here, target, 1, scale, size=PAGED_BYTES)
        yield Asked(title=title, figure=figure, least=0.5)
    with SlowGateway(folder / "slow") as gateway:
        title = f"{GROUPED[0]}, sync {SLOW_SECONDS * 1000:.0f} ms"
        click.echo(title, err=True)
        one, two = (next(row for row in ROWS if row.key == k) for k in GROUPED[1:])
        figure = _against(one, two, target_of(gateway), rounds, scale)
        yield Asked(title=title, figure=figure, least=5)
    click.echo("recovery", err=True)
    yield Asked(title="records a second at a start", figure=recovery(folder, scale), least=200_000)


def _against(
    one: Row, other: Row, target: Target, rounds: int, scale: float, *, size: int = 256
) -> float:
    """Return the ratio of the rates of two rows, run in turn."""
    rates: tuple[list[float], list[float]] = [], []
    for _ in range(rounds):
        for found, row in zip(rates, (one, other), strict=True):
            found.append(measure(row, target, scale=scale, size=size).rate)
    return median(rates[0]) / median(rates[1])


def recovery(folder: Path, scale: float) -> float:
    """Return how many messages a second a start reads from a journal that was killed."""
    gateway = ScratchGateway(folder / "recovered")
    row = next(row for row in ROWS if row.key == "amqp-in-durable")
    count = row.scaled(scale * RECOVERED / row.count)
    with gateway:
        _fill(gateway, count)
        gateway.kill()
    started = time.perf_counter()
    _, found = open_journal(RealFiles(), str(gateway.data / "journal"))
    seconds = time.perf_counter() - started
    held = sum(map(len, found.messages.values()))
    if held != count:
        raise BenchError(f"{held} of {count} messages were recovered.")
    return held / seconds


def _fill(gateway: ScratchGateway, count: int) -> None:
    """Send durable messages that nobody takes."""
    job = Job(
        protocol="amqp",
        role="send",
        host=HOST,
        port=gateway.port,
        address="recovered",
        count=count,
        durable=True,
        confirmed=True,
    )
    timed(None, [job])


def asked_of(pairs: Sequence[Pair]) -> Iterator[Asked]:
    """Yield what the pairs are asked for."""
    for one in pairs:
        yield Asked(title=f"on : off, {one.title}", figure=one.ratio, least=NOISE)
        if "32 waiting" in one.title and "sync" in one.title:
            left_out = 1 - one.on.written
            yield Asked(title=f"not written, {one.title}", figure=left_out, least=0.5)


def table(pairs: Sequence[Pair], asked: Sequence[Asked]) -> Iterator[str]:
    """Yield the lines for people."""
    yield f"{'':<48}{'on/s':>9}{'off/s':>9}{'ratio':>7}{'p50 on':>9}{'off':>7}{'written':>9}"
    for one in pairs:
        waits = [f"{f.p50:.2f}" if f.p50 is not None else "-" for f in (one.on, one.off)]
        yield (
            f"{one.title:<48}{one.on.rate:>9,.0f}{one.off.rate:>9,.0f}{one.ratio:>7.2f}"
            f"{waits[0]:>9}{waits[1]:>7}{one.on.written:>9.0%}"
        )
    for goal in asked:
        mark = "" if goal.met else "  MISSED"
        yield f"{goal.title:<72}{goal.figure:>12,.2f}  asked {goal.least:,.2f}{mark}"


@click.command()
@click.option("--rounds", default=3, show_default=True, help="Of each row; medians are shown.")
@click.option("--scale", default=1.0, show_default=True, help="Of the message counts.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@click.option("--paired-only", is_flag=True, help="Leave out the rows of one gateway alone.")
def main(*, rounds: int, scale: float, as_json: bool, paired_only: bool) -> None:
    """Measure what concurrent store and dispatch is worth."""
    try:
        with tempfile.TemporaryDirectory(prefix="sluicegate-store-") as name:
            folder = Path(name)
            pairs = [
                one
                for slow in (False, True)
                for one in paired(folder / str(slow), slow=slow, rounds=rounds, scale=scale)
            ]
            goals = list(asked_of(pairs))
            if not paired_only:
                goals += alone(folder, rounds=rounds, scale=scale)
    except (BenchError, GatewayFailedError) as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        found = {
            "pairs": [asdict(one) | {"ratio": one.ratio} for one in pairs],
            "asked": [asdict(goal) | {"met": goal.met} for goal in goals],
        }
        click.echo(json.dumps(found, indent=2))
        return
    for line in table(pairs, goals):
        click.echo(line)


if __name__ == "__main__":
    main()
