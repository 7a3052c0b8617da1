"""Reading a backlog back from pages, beside another broker's.

    python -m gateway.bench.pages [--against HOST:PORT] [--address NAME] [--count N]

Durable messages of 1 KiB are sent to an address until all lie there, most of them on pages, and
then received by one consumer. Ours is a scratch gateway that keeps 1 MiB of the address in memory;
the other broker must page the address by its own configuration, which nobody can see from here.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Final

import click

from gateway.bench.command import Endpoint
from gateway.bench.drive import Job
from gateway.bench.run import BenchError, timed
from gateway.trial.scratch import HOST, GatewayFailedError, ScratchGateway

BODY_BYTES: Final = 1024
MEMORY_BYTES: Final = 1 << 20
#: So many messages are more than twice what memory may hold.
COUNT_MIN: Final = 2 * MEMORY_BYTES // BODY_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Messages a second of one round: sent to pages, read back."""

    sent: float
    read: float


def once(job: Job) -> Found:
    """Fill and read back, all of it; raises BenchError."""
    sent = timed(None, [job])
    read = timed(None, [replace(job, role="receive")])
    return Found(sent=sent.rate, read=read.rate)


def check_paged(gateway: ScratchGateway, address: str) -> None:
    """Raise BenchError unless what lies at the address is on pages, most of it."""
    status, answer = gateway.request("GET", f"/api/v1/addresses/{address}")
    found = answer if isinstance(answer, dict) else {}
    paged, held = int(found.get("pageBytes", 0)), int(found.get("messageCount", 0))
    if 2 * paged < held * BODY_BYTES or not held:
        text = f"GET of address {address} answers {status}: {paged} bytes of {held} messages"
        raise BenchError(f"{text} are on pages.")


def ours(gateway: ScratchGateway, job: Job) -> Found:
    """Run a round on the scratch gateway, and see that it paged."""
    mine = replace(job, host=HOST, port=gateway.port, user="", password="")
    sent = timed(None, [mine])
    check_paged(gateway, job.address)
    read = timed(None, [replace(mine, role="receive")])
    return Found(sent=sent.rate, read=read.rate)


def middle(found: list[Found]) -> Found:
    """Return the median of each figure."""
    return Found(sent=median(one.sent for one in found), read=median(one.read for one in found))


@click.command()
@click.option("--against", type=Endpoint(), help="Another broker's AMQP port.")
@click.option("--user", default="", help="Login at the other broker; none when left out.")
@click.option("--password", default="", envvar="SLUICEGATE_PASSWORD", help="Its password.")
@click.option(
    "--address",
    default="q.bench.paged",
    show_default=True,
    help="An anycast one, empty, that pages.",
)
@click.option("--count", default=200_000, show_default=True, type=click.IntRange(COUNT_MIN))
@click.option("--rounds", default=1, show_default=True, type=click.IntRange(1))
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def main(
    *,
    against: tuple[str, int] | None,
    user: str,
    password: str,
    address: str,
    count: int,
    rounds: int,
    as_json: bool,
) -> None:
    """Measure how fast a paged backlog is read back."""
    host, port = against or (HOST, 0)
    job = Job(
        protocol="amqp",
        role="send",
        host=host,
        port=port,
        address=address,
        count=count,
        size=BODY_BYTES,
        durable=True,
        user=user,
        password=password,
    )
    setting = f'address-settings."{address}".max-size-bytes="{MEMORY_BYTES}"'
    mine: list[Found] = []
    other: list[Found] = []
    try:
        with (
            tempfile.TemporaryDirectory(prefix="sluicegate-pages-") as folder,
            ScratchGateway(Path(folder), settings=[setting]) as gateway,
        ):
            for number in range(rounds):
                click.echo(f"round {number + 1} of {rounds}", err=True)
                mine.append(ours(gateway, job))
                if against is not None:
                    other.append(once(job))
    except (BenchError, GatewayFailedError) as error:
        raise click.ClickException(str(error)) from None
    show(middle(mine), middle(other) if other else None, as_json=as_json)


def show(mine: Found, other: Found | None, *, as_json: bool) -> None:
    """Print rates, and the ratio where there are two."""
    ratio = mine.read / other.read if other is not None else None
    if as_json:
        found = {"sent": mine.sent, "read": mine.read}
        peer = None if other is None else {"sent": other.sent, "read": other.read}
        click.echo(json.dumps({"ours": found, "peer": peer, "ratio": ratio}, indent=2))
        return
    click.echo(f"{'':<12}{'sent/s':>12}{'read/s':>12}")
    for name, one in (("ours", mine), ("peer", other)):
        if one is not None:
            click.echo(f"{name:<12}{one.sent:>12,.0f}{one.read:>12,.0f}")
    if ratio is not None:
        click.echo(f"read back {ratio:.2f} times as fast as the peer")


if __name__ == "__main__":
    main()
