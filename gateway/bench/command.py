"""`sluicegate bench`: messages a second and latency, of a running gateway or one started for it.

With `--against` each row is also run on another broker, in turn, so that both figures come from the
same minutes of the same machine. With `--tls` all clients speak TLS; where no other broker is
named, each row is paired with the same gateway over plain TCP. `--ws` does so with WebSocket. Rows
are in `rows`, drivers in `drive`; here is the order of things.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import click

from gateway.bench import report
from gateway.bench.cpu import file_system, listener
from gateway.bench.report import Line
from gateway.bench.rows import WARM_UP, Row, select
from gateway.bench.run import BenchError, Measured, Target, measure
from gateway.cli.errors import EX_UNAVAILABLE, CliError
from gateway.trial.scratch import HOST, GatewayFailedError, ScratchGateway, free_ports
from gateway.trial.self_signed import self_signed

#: A peer is warm when three runs in a row lie this close together.
FLAT: Final = 0.05
_ADDRESS_HELP: Final = "HOST:PORT"

Say = Callable[[str], None]


class _Way(NamedTuple):
    """How clients come, and as whom."""

    tls: bool
    websocket: bool
    user: str
    password: str


class Endpoint(click.ParamType[tuple[str, int]]):
    """`HOST:PORT`, as a pair."""

    name = "HOST:PORT"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Split at the last colon; a port must be a number."""
        host, colon, port = str(value).removeprefix("amqp://").rpartition(":")
        if not colon or not port.isdigit():
            self.fail(f"{value!r} is not HOST:PORT, as 127.0.0.1:5672 is", param, ctx)
        return host or HOST, int(port)


@click.command("bench")
@click.option(
    "--target", type=Endpoint(), help="A running gateway's AMQP port; else one is started."
)
@click.option(
    "--target-stomp", type=Endpoint(), help="Its STOMP port; the AMQP port when left out."
)
@click.option("--against", type=Endpoint(), help="Another broker's AMQP port: pairs each AMQP row.")
@click.option("--against-stomp", type=Endpoint(), help="Its STOMP port: pairs each STOMP row.")
@click.option(
    "--tls",
    is_flag=True,
    help="Clients speak TLS, also to --against; without it, beside plain TCP.",
)
@click.option(
    "--ws",
    is_flag=True,
    help="Clients speak over WebSocket, also to --against; without it, beside plain TCP.",
)
@click.option("--user", default="", help="Login at the target and the peer; none when left out.")
@click.option("--password", default="", envvar="SLUICEGATE_PASSWORD", help="Its password.")
@click.option(
    "--rows", default="", help="Rows to run, comma-separated patterns: 'amqp-in*,stomp-*'."
)
@click.option(
    "--rounds", default=1, show_default=True, type=click.IntRange(1), help="Medians of these."
)
@click.option(
    "--size", default=256, show_default=True, type=click.IntRange(16, 65536), help="Bytes a body."
)
@click.option(
    "--scale",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0.001),
    help="Times the messages.",
)
@click.option(
    "--warm-up",
    default=8,
    show_default=True,
    type=click.IntRange(0),
    help="At most so many runs of 200,000 until the peer's rate is flat.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True, file_okay=False, writable=True),
    help="Where to put the scratch data directory.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@click.option("--list", "only_list", is_flag=True, help="List the rows and stop.")
def bench(
    *,
    target: tuple[str, int] | None,
    target_stomp: tuple[str, int] | None,
    against: tuple[str, int] | None,
    against_stomp: tuple[str, int] | None,
    tls: bool,
    ws: bool,
    user: str,
    password: str,
    rows: str,
    rounds: int,
    size: int,
    scale: float,
    warm_up: int,
    data: Path | None,
    as_json: bool,
    only_list: bool,
) -> None:
    """Measure messages a second, latency and CPU time, over AMQP and STOMP."""
    try:
        chosen = select(rows)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--rows") from error
    if only_list:
        for row in chosen:
            click.echo(f"{row.key:24} {row.count:>8,}  {row.protocol.upper()} {row.title}")
        return
    about = report.machine()
    way = _Way(tls=tls, websocket=ws, user=user, password=password)
    peer = _peer(against, against_stomp, way)
    try:
        with ExitStack() as stack:
            say = stack.enter_context(_progress())
            if target or target_stomp:
                ours = _running(target, target_stomp, way)
            else:
                started, kind = stack.enter_context(_scratch(data, way))
                about["dataDirectory"] = f"scratch on {kind}"
                ours, plain = started[0], started[1:]
                peer = peer or (plain[0] if plain else None)
            plan = _Plan(ours, peer, say=say, rounds=rounds, scale=scale, size=size)
            if peer is not None:
                plan.warm_up(warm_up if against else min(warm_up, 1))
            lines = plan.run(chosen)
    except BenchError as error:
        raise _failed(error) from error
    except GatewayFailedError as error:
        raise CliError("cannot-run", str(error)) from error
    if as_json:
        click.echo(json.dumps(report.as_json(lines, about, size), indent=2))
        return
    report.show(lines, peer=peer.name if peer else None, terminal=sys.stdout.isatty())
    click.echo("; ".join(f"{key} {value}" for key, value in about.items()) + f"; bodies {size} B")


def _failed(error: BenchError) -> CliError:
    if not error.unreachable:
        return CliError("bench-failed", str(error))
    attempt = "sluicegate run, or another --target"
    return CliError("not-connected", str(error), attempt=attempt, status=EX_UNAVAILABLE)


class _Plan:
    """The order of rows, rounds and targets, and what is said meanwhile."""

    def __init__(
        self, ours: Target, peer: Target | None, *, say: Say, rounds: int, scale: float, size: int
    ) -> None:
        self._ours, self._peer = ours, peer
        self._say, self._rounds, self._scale, self._size = say, rounds, scale, size

    def warm_up(self, most: int) -> None:
        """Run the warm-up row on the peer until its rate is flat, and once on ours."""
        if self._peer is None or "amqp" not in self._peer.ports or not most:
            return
        rates: list[float] = []
        while len(rates) < most and not is_flat(rates):
            rates.append(self._measure(WARM_UP, self._peer).rate)
            self._say(f"warming {self._peer.name}, run {len(rates)}: {rates[-1]:,.0f}/s")
        if "amqp" in self._ours.ports:
            self._measure(WARM_UP, self._ours)

    def run(self, rows: Sequence[Row]) -> list[Line]:
        """Measure all rows; each round alternates who goes first."""
        lines = []
        for place, row in enumerate(rows):
            if row.protocol not in self._ours.ports:
                continue
            line = Line(row, row.scaled(self._scale))
            for turn in range(self._rounds):
                where = f"[{place + 1}/{len(rows)}] {row.key}"
                if self._rounds > 1:
                    where += f", round {turn + 1}"
                self._pair(line, where, peer_first=bool((place + turn) % 2))
            lines.append(line)
        return lines

    def _pair(self, line: Line, where: str, *, peer_first: bool) -> None:
        both = [(self._ours, line.ours)]
        if self._peer is not None and line.row.protocol in self._peer.ports:
            both.insert(0 if peer_first else 1, (self._peer, line.peer))
        for target, found in both:
            one = self._measure(line.row, target)
            found.append(one)
            self._say(f"{where}, {target.name}: {one.rate:,.0f}/s")

    def _measure(self, row: Row, target: Target) -> Measured:
        return measure(row, target, scale=self._scale, size=self._size)


def is_flat(rates: Sequence[float]) -> bool:
    """Return whether the last three rates lie within FLAT of their greatest."""
    last = rates[-3:]
    return len(last) == 3 and min(last) >= (1 - FLAT) * max(last)


def _running(
    amqp: tuple[str, int] | None,
    stomp: tuple[str, int] | None,
    way: _Way,
) -> Target:
    """Return a target for a gateway that runs already; one port speaks both protocols."""
    first = amqp or stomp
    assert first is not None
    both = {"amqp": amqp or first, "stomp": stomp or first}
    return _target("gateway", both, way)


def _peer(
    amqp: tuple[str, int] | None,
    stomp: tuple[str, int] | None,
    way: _Way,
) -> Target | None:
    given = {name: place for name, place in (("amqp", amqp), ("stomp", stomp)) if place}
    if not given:
        return None
    return _target("peer", given, way)


def _target(
    name: str,
    places: dict[str, tuple[str, int]],
    way: _Way,
) -> Target:
    hosts = {host for host, _ in places.values()}
    if len(hosts) > 1:
        raise click.UsageError(f"The ports of one broker must be on one host, not {sorted(hosts)}.")
    host = hosts.pop()
    local = host in ("localhost", "::1") or host.startswith("127.")
    return Target(
        name=name,
        host=host,
        ports={protocol: port for protocol, (_, port) in places.items()},
        pids={
            protocol: listener(port) if local else None for protocol, (_, port) in places.items()
        },
        user=way.user,
        password=way.password,
        tls=way.tls,
        websocket=way.websocket,
    )


@contextmanager
def _scratch(parent: Path | None, way: _Way) -> Iterator[tuple[list[Target], str]]:
    """Start a gateway on a scratch data directory; also give its kind of file system.

    With `tls` or `websocket` there are two targets, the same gateway that way and over plain TCP.
    """
    with tempfile.TemporaryDirectory(prefix="sluicegate-bench-", dir=parent) as name:
        folder = Path(name)
        ports: list[int] = free_ports(1) if way.tls else []
        with ScratchGateway(folder, settings=[_tls_acceptor(folder, at) for at in ports]) as made:
            pids: dict[str, int | None] = {"amqp": made.pid, "stomp": made.pid}
            plain = {"amqp": made.port, "stomp": made.stomp_port}
            # WebSocket is spoken at the port of all protocols.
            port = ports[0] if ports else made.port
            targets = [Target(name="plain TCP", host=HOST, ports=plain, pids=pids)]
            if way.tls or way.websocket:
                targets.insert(
                    0,
                    Target(
                        name="gateway",
                        host=HOST,
                        ports={"amqp": port, "stomp": port},
                        pids=pids,
                        tls=way.tls,
                        websocket=way.websocket,
                    ),
                )
            else:
                targets = [replace(targets[0], name="gateway")]
            yield targets, file_system(folder)


def _tls_acceptor(folder: Path, port: int) -> str:
    """Return the setting of an acceptor with a certificate of its own, made in `folder`."""
    made = self_signed(folder)
    files = f"privateKey={made.key}:certKey={made.certificate}"
    return f"acceptors.tls.endpoint='ssl:{port}:{files}:interface={HOST}'"


@contextmanager
def _progress() -> Iterator[Say]:
    """Give a function that shows where we are: a moving line on a terminal, else a line each."""
    if not sys.stderr.isatty():
        yield lambda text: click.echo(text, err=True)
        return
    from rich.console import Console  # noqa: PLC0415  (70 ms that a pipe need not wait)

    console = Console(stderr=True)
    with console.status("starting") as status:

        def say(text: str) -> None:
            console.print(text, highlight=False, style="dim")
            status.update(text)

        yield say
