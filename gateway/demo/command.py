"""`sluicegate demo`: the whole main job in one go, checked.

A gateway on a scratch data directory; a tap on the address `orders`; a Proton client and a stomp.py
client that send orders to it; a Spark query that adds them up while they come. At the end Spark's
totals must be those of the orders sent, each counted once, and those that it sends back to the
gateway must arrive. Exit status 0 only then.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from gateway.demo.orders import ADDRESS, TOTALS, differences, expected
from gateway.demo.screen import Screen, screen, table
from gateway.trial.java import NoJavaError
from gateway.trial.scratch import GatewayFailedError, ScratchGateway

if TYPE_CHECKING:
    from gateway.demo.query import TotalsQuery
    from gateway.demo.senders import Sender

#: Spark needs some ten seconds on two cores; this is for a machine that is busy with other things.
PATIENCE_SECONDS: Final = 120.0
#: The orders come over about the time that Spark takes for a few micro-batches.
SENDING_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.1


class DemoError(click.ClickException):
    """The demo did not come out right; the text says what was expected and what came."""


@click.command("demo")
@click.option(
    "--orders", default=4000, show_default=True, type=click.IntRange(2), help="How many to send."
)
@click.option(
    "--seconds",
    default=SENDING_SECONDS,
    show_default=True,
    type=click.FloatRange(0),
    help="Time over which they are sent.",
)
def demo(*, orders: int, seconds: float) -> None:
    """Send orders over AMQP and STOMP, add them up in Spark, check the totals."""
    require_libraries()
    began = time.monotonic()
    try:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluicegate-")))
            shown = stack.enter_context(screen())
            query = _perform(stack, folder, shown, orders=orders, seconds=seconds)
    except (NoJavaError, GatewayFailedError) as error:
        raise DemoError(str(error)) from error
    click.echo("\nTotals that Spark read from the stream:\n")
    for line in table(query.totals):
        click.echo(line)
    wrong = differences(expected(range(orders)), query.totals)
    if wrong:
        raise DemoError("The totals are not those of the orders sent.\n" + "\n".join(wrong))
    took = time.monotonic() - began
    click.echo(f"\nEach of {orders:,} orders was counted once. {took:.0f} s, all stopped.")


def _perform(
    stack: ExitStack, folder: Path, shown: Screen, *, orders: int, seconds: float
) -> TotalsQuery:
    """Start everything, wait until Spark has all orders, return the finished query."""
    from gateway.demo import senders as clients  # noqa: PLC0415  (an extra)
    from gateway.demo.query import TotalsQuery, spark_session  # noqa: PLC0415  (Spark is slow)

    gateway = stack.enter_context(ScratchGateway(folder / "gateway"))
    shown.note(f"gateway: AMQP and STOMP on 127.0.0.1:{gateway.port}, API {gateway.url}")
    status, answer = gateway.request(
        "POST", "/api/v1/streams", {"name": ADDRESS, "address": ADDRESS}
    )
    if status not in (HTTPStatus.OK, HTTPStatus.CREATED):
        raise DemoError(f"The tap on {ADDRESS!r} was refused with {status}: {answer}")
    shown.note(f"stream: everything sent to the address {ADDRESS!r} from now on")
    senders = [
        clients.Sender(
            "AMQP 1.0 (Proton)",
            clients.send_over_amqp,
            gateway.port,
            clients.Orders(range(0, orders, 2), seconds=seconds),
        ),
        clients.Sender(
            "STOMP 1.2 (stomp.py)",
            clients.send_over_stomp,
            gateway.stomp_port,
            clients.Orders(range(1, orders, 2), seconds=seconds),
        ),
    ]
    with shown.busy("Spark: starts in local mode"):
        spark = stack.enter_context(spark_session(folder / "spark.log"))
        query = TotalsQuery(spark, gateway.url, folder / "checkpoint")
    shown.note("Spark: reads the stream while both clients send\n")
    stack.enter_context(_sending(senders))
    _watch(query, senders, shown, orders)
    query.finish()
    with shown.busy(f"Spark: sends the totals to the address {TOTALS!r}"):
        query.send_back()
    returned = clients.receive_totals(gateway.port, len(query.totals))
    wrong = differences(query.totals, returned)
    if wrong:
        raise DemoError("The totals that came back are others.\n" + "\n".join(wrong))
    shown.note(f"AMQP 1.0 (Proton): received {len(returned)} totals from {TOTALS!r}")
    return query


@contextmanager
def _sending(senders: Sequence[Sender]) -> Iterator[None]:
    """Run the senders; whatever happens, none is left behind."""
    for sender in senders:
        sender.start()
    try:
        yield
    finally:
        for sender in senders:
            sender.orders.cancel()
        for sender in senders:
            sender.join()


def _watch(query: TotalsQuery, senders: Sequence[Sender], shown: Screen, orders: int) -> None:
    """Show progress until Spark has counted all orders; raises DemoError when that cannot be."""
    total = {sender.title: len(sender.orders.numbers) for sender in senders} | {"Spark": orders}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        now = time.monotonic()
        done = {sender.title: sender.orders.confirmed for sender in senders} | {
            "Spark": query.orders()
        }
        shown.counts(done, total, now)
        for sender in senders:
            if sender.failure is not None:
                raise DemoError(f"{sender.title} could not send: {sender.failure}")
        if reason := query.failure():
            raise DemoError(f"Spark's query failed: {reason}")
        if query.orders() >= orders and not any(sender.is_alive() for sender in senders):
            return
        if now > deadline:
            state = ", ".join(
                f"{name} {count:,} of {total[name]:,}" for name, count in done.items()
            )
            raise DemoError(f"Not finished after {PATIENCE_SECONDS:.0f} s: {state}.")
        time.sleep(POLL_SECONDS)


def require_libraries() -> None:
    """Refuse by name when a client library is not installed."""
    missing = []
    for module, distribution in (
        ("proton", "python-qpid-proton"),
        ("stomp", "stomp.py"),
        ("pyspark", "pyspark"),
    ):
        try:
            __import__(module)
        except ImportError:
            missing.append(distribution)
    if missing:
        raise DemoError(
            f"The demo needs {', '.join(missing)}: pip install 'sluicegate[client,spark]'."
        )
