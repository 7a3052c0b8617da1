"""What idle browser tabs cost: memory of each, and what those feel that are not idle.

    python -m gateway.bench.tabs [--tabs N] [--active N] [--seconds S] [--json]

A scratch gateway has `--active` STOMP clients over WebSocket, each of which sends a message to a
queue of its own and receives it, so many times a second. They are timed alone, and again beside
`--tabs` idle ones, which are logged in, subscribed to a topic, and exchange heart-beats.
"""

from __future__ import annotations

import json
import queue
import resource
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final, cast

import click

from gateway.bench import report
from gateway.bench.amqp import PeerError
from gateway.bench.cpu import cpu_seconds, resident_bytes
from gateway.bench.latency import percentiles
from gateway.bench.run import BenchError
from gateway.bench.tabs_held import open_tab
from gateway.trial.scratch import GatewayFailedError, ScratchGateway, importing_environment

#: Descriptors that a process needs beside its connections.
SPARE: Final = 500
RATE: Final = 10.0
SETTLE_SECONDS: Final = 3.0
OPEN_SECONDS: Final = 300.0
_TEXT: Final = b"x" * 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Echoes:
    """Milliseconds of the active clients' echoes, how many, and the gateway's CPU (s/s)."""

    count: int
    p50: float
    p99: float
    worst: float
    cpu: float


class _Active:
    """A client that hears what it says."""

    def __init__(self, port: int, number: int) -> None:
        self._address = f"q.echo.{number}"
        said = f"SUBSCRIBE\nid:0\ndestination:{self._address}\nreceipt:s\n\n\x00".encode()
        self.socket, self._tab = open_tab(port, said=said)
        self._sent = 0
        self._came = b""

    def say(self) -> None:
        head = f"SEND\ndestination:{self._address}\npersistent:false\n\n".encode()
        self._sent = time.perf_counter_ns()
        self._tab.sendall(head + _TEXT + b"\x00")

    def hear(self) -> int | None:
        """Return how long the echo took, in ns, once all of it is there."""
        data = self._tab.recv()
        if data == b"":
            raise PeerError("the gateway closed an active client's connection")
        self._came += data or b""
        if _TEXT + b"\x00" not in self._came:
            return None
        self._came = b""
        return time.perf_counter_ns() - self._sent


def echo(active: list[_Active], seconds: float, pid: int | None) -> Echoes:
    """Have each of `active` say something RATE times a second, evenly spread; returns the times."""
    epoll = select.epoll()
    by_fd = {one.socket.fileno(): one for one in active}
    for fd in by_fd:
        epoll.register(fd, select.EPOLLIN)
    waiting: set[int] = set()
    samples: list[tuple[int, int]] = []
    order, place = list(by_fd), 0
    gap = 1 / (RATE * len(active))
    before = cpu_seconds(pid) if pid is not None else None
    began = time.monotonic()
    while (now := time.monotonic() - began) < seconds or waiting:
        if now > seconds + 30:
            raise BenchError(f"{len(waiting)} echoes did not come back")
        while now < seconds and place * gap <= now:
            fd = order[place % len(order)]
            place += 1
            if fd not in waiting:
                waiting.add(fd)
                by_fd[fd].say()
        for fd, _ in epoll.poll(max(0.0, min(place * gap - now, 0.05))):
            took = by_fd[fd].hear()
            if took is not None:
                waiting.discard(fd)
                samples.append((took, 1))
    ended = time.monotonic()
    after = cpu_seconds(pid) if pid is not None else None
    epoll.close()
    p50, p99, worst = percentiles(samples)
    cpu = 0.0 if before is None or after is None else (after - before) / (ended - began)
    return Echoes(count=len(samples), p50=p50, p99=p99, worst=worst, cpu=cpu)


@contextmanager
def held(port: int, count: int) -> Iterator[None]:
    """Have so many idle tabs open; raises BenchError when the gateway refuses or ends one."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway.bench.tabs_held", str(port), str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=importing_environment(),
    )
    lines: queue.Queue[str] = queue.Queue()
    reader = threading.Thread(
        target=lambda: lines.put(cast("IO[str]", process.stdout).readline()), daemon=True
    )
    reader.start()
    try:
        line = lines.get(timeout=OPEN_SECONDS)
        if line != "open\n":
            raise BenchError(line.strip() or "the process of the idle tabs ended")
        yield
        if process.poll() is not None:
            raise BenchError(cast("IO[str]", process.stdout).read().strip())
    except queue.Empty:
        raise BenchError(f"{count} tabs were not open after {OPEN_SECONDS:.0f} s") from None
    finally:
        process.kill()
        process.wait()
        reader.join()


def allowed(tabs: int, active: int) -> int:
    """Return how many tabs the limit of descriptors leaves room for; raises that limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = tabs + active + SPARE
    if soft < wanted:
        soft = min(wanted, hard) if hard != resource.RLIM_INFINITY else wanted
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(tabs, soft - active - SPARE)


@click.command()
@click.option("--tabs", default=10_000, show_default=True, type=click.IntRange(1))
@click.option("--active", default=50, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=10.0, show_default=True, type=click.FloatRange(0.5))
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of lines.")
def main(*, tabs: int, active: int, seconds: float, as_json: bool) -> None:
    """Measure what idle tabs over WebSocket cost."""
    count = allowed(tabs, active)
    if count < tabs:
        click.echo(f"RLIMIT_NOFILE leaves room for {count:,} tabs of {tabs:,}.", err=True)
    try:
        with ExitStack() as stack:
            folder = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="sluicegate-tabs-"))
            )
            settings = [
                f"acceptors.all.connections-allowed={count + active + SPARE}",
                "user-max-queues=-1",
                "user-max-consumers=-1",
            ]
            gateway = stack.enter_context(ScratchGateway(folder, settings=settings))
            few = [_Active(gateway.port, number) for number in range(active)]
            for _ in few:
                few[0].say()
                while few[0].hear() is None:
                    pass
            alone = echo(few, seconds, gateway.pid)
            before = resident_bytes(gateway.pid)
            click.echo(f"opening {count:,} tabs", err=True)
            stack.enter_context(held(gateway.port, count))
            time.sleep(SETTLE_SECONDS)
            after = resident_bytes(gateway.pid)
            beside = echo(few, seconds, gateway.pid)
    except (BenchError, PeerError, GatewayFailedError, OSError) as error:
        raise click.ClickException(str(error)) from error
    each = None if before is None or after is None else (after - before) / count
    if as_json:
        found = {"tabs": count, "bytesEach": each, "alone": asdict(alone), "beside": asdict(beside)}
        click.echo(json.dumps({"machine": report.machine(), **found}, indent=2))
        return
    click.echo(f"{count:,} idle tabs: {'-' if each is None else f'{each / 1024:.1f}'} KiB each")
    for name, one in (("alone", alone), (f"beside {count:,}", beside)):
        click.echo(
            f"{one.count:,} echoes of {active}, {name}: p50 {one.p50:.2f} p99 {one.p99:.2f} "
            f"worst {one.worst:.2f} ms; gateway {one.cpu:.0%} of a core"
        )
    click.echo(f"p50 {beside.p50 / alone.p50:.2f} times, p99 {beside.p99 / alone.p99:.2f} times")


if __name__ == "__main__":
    main()
