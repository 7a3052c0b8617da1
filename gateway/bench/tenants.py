"""What quiet tenants feel of a noisy one, with its quota and without.

    python -m gateway.bench.tenants [--quiet N] [--rate R] [--quota Q] [--seconds S] [--rounds N]

Two scratch gateways have one user for each tenant, and one of them a quota for the noisy one. Quiet
ones send over STOMP, each one message at a time with a receipt, so many a second, to a queue of its
own. The noisy one sends without receipts as fast as it is read, to a queue that keeps its newest
messages, from a process of its own, which is stopped while it is not wanted. The rounds take turns
(alone, beside the noisy one, beside the noisy one that is held), so that whatever else the machine
does meets all of them.
"""

from __future__ import annotations

import heapq
import http.client
import json
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final

import click

from gateway.bench import report
from gateway.bench.cpu import cpu_seconds
from gateway.bench.latency import percentiles
from gateway.bench.run import BenchError
from gateway.security.passwords import hash_password
from gateway.security.users import User, add_user
from gateway.trial.scratch import HOST, GatewayFailedError, ScratchGateway, importing_environment

NOISY: Final = "noisy"
PASSWORD: Final = "bench"  # noqa: S105 - of scratch gateways
SETTLE_SECONDS: Final = 2.0
#: For what is under way when the noisy one begins or stops.
PAUSE_SECONDS: Final = 0.5
_ANSWER_SECONDS: Final = 60.0
_BODY: Final = b"x" * 256
_NOISY_SENDS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Felt:
    """Milliseconds of the quiet tenants' messages, how many, and the gateway's CPU (s/s)."""

    count: int
    p50: float
    p99: float
    worst: float
    cpu: float
    noisy: float


class Tenant:
    """One connection of one user; sends one message at a time."""

    def __init__(self, port: int, user: str) -> None:
        """Log in; raises BenchError."""
        self.socket = socket.create_connection((HOST, port), timeout=_ANSWER_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = f"CONNECT\naccept-version:1.2\nhost:h\nlogin:{user}\npasscode:{PASSWORD}\n\n\0"
        self.socket.sendall(head.encode())
        if not self.socket.recv(4096).startswith(b"CONNECTED"):
            raise BenchError(f"The gateway does not let {user} in.")
        self.sent_at = 0
        self._frame = send_frame(f"tenant.{user}", receipt=True)

    def send(self) -> None:
        """Send one, and note when."""
        self.sent_at = time.perf_counter_ns()
        self.socket.sendall(self._frame)

    def heard(self) -> int:
        """Take the receipt; returns the nanoseconds that it took. Raises BenchError."""
        answer = self.socket.recv(4096)
        if not answer.startswith(b"RECEIPT"):
            raise BenchError(f"The gateway answered {answer[:200]!r}.")
        return time.perf_counter_ns() - self.sent_at


def send_frame(queue: str, *, receipt: bool) -> bytes:
    """Return a SEND of a message that is not durable."""
    asked = "receipt:r\n" if receipt else ""
    head = f"SEND\ndestination:/queue/{queue}\npersistent:false\ncontent-length:{len(_BODY)}\n"
    return head.encode() + asked.encode() + b"\n" + _BODY + b"\0"


def time_quiet(tenants: list[Tenant], rate: float, seconds: float, gateway: ScratchGateway) -> Felt:
    """Have each tenant send `rate` a second, spread over time, each after its receipt."""
    selector = selectors.DefaultSelector()
    for tenant in tenants:
        selector.register(tenant.socket, selectors.EVENT_READ, tenant)
    began = time.perf_counter()
    cpu, before = cpu_seconds(gateway.pid) or 0.0, noisy_count(gateway)
    due = [(began + at / rate / len(tenants), at) for at in range(len(tenants))]
    samples: list[tuple[int, int]] = []
    waiting = 0
    while waiting or time.perf_counter() < began + seconds:
        now = time.perf_counter()
        while due and due[0][0] <= now < began + seconds:
            tenants[due[0][1]].send()
            heapq.heappop(due)
            waiting += 1
        pause = max(0.0, min(due[0][0] - now, 0.1)) if due else 0.1
        for key, _ in selector.select(pause):
            samples.append((key.data.heard(), 1))
            waiting -= 1
            heapq.heappush(due, (time.perf_counter() + 1 / rate, tenants.index(key.data)))
        if time.perf_counter() > began + seconds + _ANSWER_SECONDS:
            raise BenchError(f"{waiting} messages were not answered.")
    passed = time.perf_counter() - began
    p50, p99, worst = percentiles(samples)
    return Felt(
        count=len(samples),
        p50=p50,
        p99=p99,
        worst=worst,
        cpu=((cpu_seconds(gateway.pid) or 0.0) - cpu) / passed,
        noisy=(noisy_count(gateway) - before) / passed,
    )


def noisy_count(gateway: ScratchGateway) -> int:
    """Return how many messages of the noisy one were taken."""
    connection = http.client.HTTPConnection(HOST, gateway.management_port, timeout=30)
    login = b64encode(f"{NOISY}:{PASSWORD}".encode()).decode()
    connection.request("GET", "/metrics", headers={"Authorization": f"Basic {login}"})
    wanted = f'sluicegate_address_routed_messages_total{{address="{NOISY}"}} '
    for line in connection.getresponse().read().decode().splitlines():
        if line.startswith(wanted):
            return int(float(line.removeprefix(wanted)))
    return 0


class Noise:
    """A process that sends as fast as it is read, but only inside `heard`."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-m", "gateway.bench.tenants", "flood", str(port)]
        self._process = subprocess.Popen(command, env=importing_environment())
        time.sleep(SETTLE_SECONDS)
        self._process.send_signal(signal.SIGSTOP)

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Have it send. Raises BenchError when it has ended."""
        if self._process.poll() is not None:
            raise BenchError("The noisy tenant has ended.")
        self._process.send_signal(signal.SIGCONT)
        time.sleep(PAUSE_SECONDS)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGSTOP)
            time.sleep(PAUSE_SECONDS)

    def end(self) -> None:
        """Send no more."""
        self._process.kill()
        self._process.wait(10)


def flood(port: int) -> None:
    """Send for ever."""
    tenant = Tenant(port, NOISY)
    data = send_frame(NOISY, receipt=False) * _NOISY_SENDS
    tenant.socket.settimeout(None)
    while True:
        tenant.socket.sendall(data)


def prepare(folder: Path, quiet: int) -> None:
    """Write the users; all have one password, so that it is hashed once."""
    hashed, text = hash_password(PASSWORD), ""
    for name in [NOISY, *(f"t{number}" for number in range(quiet))]:
        text = add_user(text, User(name=name, password=hashed))
    (folder / "data").mkdir()
    (folder / "data" / "users.toml").write_text(text)


class House:
    """A gateway, its quiet tenants, and its noisy one."""

    def __init__(self, stack: ExitStack, quiet: int, quota: int | None) -> None:
        """Start it; raises BenchError, GatewayFailedError."""
        settings = [f'address-settings."{NOISY}".default-ring-size=1000']
        if quota is not None:
            settings.append(f"quotas.users.{NOISY}.messages-in={quota}")
            settings.append(f'quotas.users.{NOISY}.burst="100ms"')
        place = tempfile.TemporaryDirectory(prefix="sluicegate-tenants-")
        folder = Path(stack.enter_context(place))
        prepare(folder, quiet)
        self.gateway = stack.enter_context(ScratchGateway(folder, settings=settings))
        port = self.gateway.stomp_port
        self.tenants = [Tenant(port, f"t{number}") for number in range(quiet)]
        self.noise = Noise(port)
        stack.callback(self.noise.end)

    def measure(self, rate: float, seconds: float, *, noisy: bool) -> Felt:
        """Time the quiet tenants."""
        if not noisy:
            return time_quiet(self.tenants, rate, seconds, self.gateway)
        with self.noise.heard():
            return time_quiet(self.tenants, rate, seconds, self.gateway)


def measure(
    *, quiet: int, rate: float, seconds: float, quota: int, rounds: int
) -> dict[str, list[Felt]]:
    """Time all three ways by turns. Raises BenchError, GatewayFailedError."""
    found: dict[str, list[Felt]] = {"alone": [], "noisy": [], "held": []}
    with ExitStack() as stack:
        free, bound = House(stack, quiet, None), House(stack, quiet, quota)
        ways = [("alone", free, False), ("noisy", free, True), ("held", bound, True)]
        for house in (free, bound):
            house.measure(rate, SETTLE_SECONDS, noisy=False)
        for at in range(rounds):
            for name, house, noisy in ways[at % 3 :] + ways[: at % 3]:
                found[name].append(house.measure(rate, seconds, noisy=noisy))
    return found


@click.group(invoke_without_command=True)
@click.option("--quiet", default=99, show_default=True, type=click.IntRange(1))
@click.option("--rate", default=5.0, show_default=True, type=click.FloatRange(0.1))
@click.option("--quota", default=1_000, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=4.0, show_default=True, type=click.FloatRange(0.5))
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1))
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of lines.")
@click.pass_context
def main(
    context: click.Context,
    *,
    quiet: int,
    rate: float,
    quota: int,
    seconds: float,
    rounds: int,
    as_json: bool,
) -> None:
    """Measure what quiet tenants feel of a noisy one."""
    if context.invoked_subcommand is not None:
        return
    try:
        found = measure(quiet=quiet, rate=rate, seconds=seconds, quota=quota, rounds=rounds)
    except (BenchError, GatewayFailedError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        shown = {name: [asdict(one) for one in felt] for name, felt in found.items()}
        click.echo(json.dumps({"machine": report.machine(), **shown}, indent=2))
        return
    for name, felt in found.items():
        for one in felt:
            click.echo(
                f"{name:6} {one.count:,} messages of {quiet}: p50 {one.p50:.2f} p99 {one.p99:.2f} "
                f"worst {one.worst:.2f} ms; gateway {one.cpu:.0%} of a core, "
                f"the noisy one {one.noisy:,.0f} a second"
            )
    for name in ("noisy", "held"):
        pairs = zip(found[name], found["alone"], strict=True)
        times = sorted(other.p99 / alone.p99 for other, alone in pairs)
        click.echo(
            f"{name}: p99 {median(times):.2f} times that of alone, in the middle of {rounds} pairs "
            f"({times[0]:.2f} to {times[-1]:.2f})"
        )


@main.command("flood", hidden=True)
@click.argument("port", type=int)
def flood_command(port: int) -> None:
    """Be the noisy one."""
    flood(port)


if __name__ == "__main__":
    main()
