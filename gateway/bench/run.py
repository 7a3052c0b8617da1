"""One row against one broker: driver processes started, timed and read; the queue left empty.

A target is a broker at an address, ours or another's. A row's `in` sends and then drains without
measuring, `out` fills without measuring and then receives, `both` does the two at once.
"""

from __future__ import annotations

import itertools
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import IO, Final, cast

from gateway.bench.cpu import cpu_seconds
from gateway.bench.drive import Job, Outcome
from gateway.bench.rows import Row
from gateway.trial.scratch import importing_environment

#: Above the drivers' own time-out, which explains more.
ANSWER_SECONDS: Final = 120.0
#: Peers make addresses below this prefix anycast queues.
ADDRESS_PREFIX: Final = "q.bench"
_NS: Final = 1e9


class BenchError(Exception):
    """A row could not be measured; the text says what the driver saw.

    `unreachable`: nobody answers at the target.
    """

    def __init__(self, text: str, *, unreachable: bool = False) -> None:
        super().__init__(text)
        self.unreachable = unreachable


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A broker.

    Attributes:
        name: for the table.
        host: where both listeners are.
        ports: port by protocol (`amqp`, `stomp`); one that is missing is not measured.
        pids: process by protocol whose CPU time is counted, where it is on this machine.
        tls: clients speak TLS to it.
        websocket: clients speak over WebSocket to it.
    """

    name: str
    host: str
    ports: dict[str, int]
    pids: dict[str, int | None]
    user: str = ""
    password: str = ""
    tls: bool = False
    websocket: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run of a row: messages a second, milliseconds, microseconds of CPU a message."""

    rate: float
    p50: float | None
    p99: float | None
    worst: float | None
    cpu: float | None


_numbers = itertools.count(1)


def measure(row: Row, target: Target, *, scale: float = 1.0, size: int = 256) -> Measured:
    """Run a row once; raises BenchError."""
    job = Job(
        protocol=row.protocol,
        role="send",
        host=target.host,
        port=target.ports[row.protocol],
        address=f"{ADDRESS_PREFIX}.{row.key}.{next(_numbers)}",
        count=row.scaled(scale),
        connections=row.connections,
        window=row.window,
        size=size,
        durable=row.durable,
        confirmed=row.confirmed,
        shape=row.shape,
        stamped=row.kind == "both",
        ack=row.ack,
        settle_every=row.settle_every,
        user=target.user,
        password=target.password,
        tls=target.tls,
        websocket=target.websocket,
    )
    taking = replace(job, role="receive", connections=1, early=row.kind == "both")
    pid = target.pids.get(row.protocol)
    if row.kind == "fan":
        job = replace(job, address=f"/topic/bench.{row.key}.{next(_numbers)}")
        taking = replace(job, role="receive", early=True)
        giving = replace(job, count=job.count // job.connections, connections=1)
        return timed(pid, [taking, giving])
    if row.kind == "both":
        return timed(pid, [taking, job])
    if row.kind == "in":
        found = timed(pid, [job])
        timed(None, [taking])
        return found
    # What lies there was confirmed, whatever way the row itself sends.
    timed(None, [replace(job, window=2000, confirmed=row.durable, stamped=False)])
    return timed(pid, [taking])


def timed(pid: int | None, jobs: list[Job]) -> Measured:
    """Run a driver process for each job at once, receivers first; returns the figures."""
    with _processes(jobs) as processes:
        for process in processes:
            process.expect_ready()
        before = None if pid is None else cpu_seconds(pid)
        for process in processes:
            process.go()
        outcomes = [process.outcome() for process in processes]
        after = None if pid is None else cpu_seconds(pid)
    count = outcomes[0].count
    # With a receiver that waited for the sender, time starts at the sender's first message.
    started = max(outcome.started for outcome in outcomes)
    ended = max(outcome.ended for outcome in outcomes)
    latency = outcomes[0].latency
    cpu = None
    if before is not None and after is not None:
        cpu = (after - before) * 1e6 / count
    padded = [*latency, None, None, None]
    return Measured(
        rate=count * _NS / max(ended - started, 1),
        p50=padded[0],
        p99=padded[1] if latency else None,
        worst=padded[2] if latency else None,
        cpu=cpu,
    )


class _DriverProcess:
    """A running `drive`; its lines are read on a thread so that waiting has an end."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gateway.bench.drive"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=importing_environment(),
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._write(json.dumps(asdict(job)))

    def _read(self) -> None:
        for line in cast("IO[str]", self._process.stdout):
            self._lines.put(line)
        self._lines.put("")

    def _write(self, line: str) -> None:
        stdin = cast("IO[str]", self._process.stdin)
        try:
            stdin.write(line + "\n")
            stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, and the next line of its output says why

    def _answer(self) -> dict[str, object]:
        what = f"{self.job.protocol} {self.job.role}"
        try:
            line = self._lines.get(timeout=ANSWER_SECONDS)
        except queue.Empty:
            raise BenchError(f"{what}: no answer for {ANSWER_SECONDS:.0f} s") from None
        if not line:
            raise BenchError(f"{what}: the driver process ended without an answer")
        answer = json.loads(line)
        if "error" in answer:
            raise BenchError(answer["error"], unreachable=bool(answer.get("unreachable")))
        return cast("dict[str, object]", answer)

    def expect_ready(self) -> None:
        self._answer()

    def go(self) -> None:
        self._write("go")

    def outcome(self) -> Outcome:
        return Outcome(**self._answer())  # type: ignore[arg-type]

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            try:
                cast("IO[str]", pipe).close()
            except BrokenPipeError:
                continue


@contextmanager
def _processes(jobs: list[Job]) -> Iterator[list[_DriverProcess]]:
    started: list[_DriverProcess] = []
    try:
        started.extend(_DriverProcess(job) for job in jobs)
        yield started
    finally:
        for process in started:
            process.end()
