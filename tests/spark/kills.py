"""Kills while Spark carries messages from one address to another: each arrives once, or it is told.

    python -m tests.spark.kills [--rounds N] [--seed N]

Batches of numbered messages are staged and committed at a gateway, and a streaming query carries
them on by source and sink. Each round feeds some and kills one part a moment later: the gateway
(started again on its data), the driver (started again from its checkpoint) or a worker of a task.
Most rounds let the query carry something first, so that work is killed and not only a start.
At the end each number is at the other address once. Every part is a process of its own.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from gateway.trial.java import spark_environment
from gateway.trial.scratch import ScratchGateway
from pyspark_sluicegate.staging import Batch
from tests.sink.writing import options, rows_of, tapped
from tests.spark.support import ROOT

#: Messages that a round feeds at the most, and rows of one of Spark's batches.
FED_MAX = 900
CAP = 400
#: A driver that starts takes most of a round; gateways and workers are killed more often.
VICTIMS = ("gateway",) * 5 + ("worker",) * 3 + ("driver",) * 2
#: A query that carries nothing for so long, although it was started again, hangs.
STILL_SECONDS = 180.0
PAUSE_MAX = 1.5
#: Rounds that kill without a look at whether the query carries anything yet.
BLIND = 0.25
CARRIED_SECONDS = 30.0


@dataclass
class Tally:
    """What came of the rounds."""

    kills: Counter[str] = field(default_factory=Counter)
    #: Rounds in which the query carried messages after the kill before.
    at_work: int = 0
    #: Drivers that ended by themselves, as they do when a task failed too often.
    revived: int = 0
    fed: int = 0
    lost: list[bytes] = field(default_factory=list)
    doubled: list[bytes] = field(default_factory=list)
    invented: list[bytes] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.invented)

    def __str__(self) -> str:
        kills = ", ".join(f"{self.kills[name]} x {name}" for name in sorted(self.kills))
        return (
            f"{self.fed} messages, kills: {kills}, {self.at_work} of them at work, "
            f"{self.revived} queries ended by themselves; {len(self.lost)} lost, "
            f"{len(self.doubled)} doubled, {len(self.invented)} invented"
        )


class Driver:
    """The query, in a process of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        self._command = [sys.executable, "-m", "tests.spark.kills_job", url, str(folder)]
        self._log = folder / "driver.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; a query that was starved by a busy machine is started again by `revive`."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env={**spark_environment(), "PYTHONPATH": f"{ROOT}:{ROOT / 'gateway' / 'spark'}"},
                # With all that it starts, so that a kill leaves none of it behind.
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill the driver, its JVM and its workers."""
        assert self._process is not None, "no driver was started"
        for pid in _session(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def kill_a_worker(self, chance: random.Random) -> bool:
        """Kill one process that runs tasks; False when there is none yet."""
        assert self._process is not None, "no driver was started"
        every = _session(self._process.pid)
        found = [
            pid for pid in every if _command(pid).endswith(b"pyspark.daemon\0pyspark.worker\0")
        ]
        # The first is the daemon, whose children run the tasks.
        workers = found[1:]
        if not workers:
            return False
        with suppress(ProcessLookupError):
            os.kill(chance.choice(workers), signal.SIGKILL)
        return True

    def revive(self) -> bool:
        """Start it again when its query has ended: a task may fail too often, as on a cluster.

        Returns whether it had ended.
        """
        if self._process is None or self._process.poll() is None:
            return False
        self.start()
        return True


def _session(leader: int) -> list[int]:
    """Return the processes of a session: Spark's daemons have groups of their own in it."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == leader:
                found.append(int(folder.name))
    return sorted(found)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def run_kills(
    folder: Path, rounds: int, seed: int, tell: Callable[[str], object] = lambda line: None
) -> Tally:
    """Run so many rounds, telling a line about each; returns what came of them."""
    chance = random.Random(seed)
    tally = Tally()
    folder.mkdir(parents=True, exist_ok=True)
    gateway = ScratchGateway(folder / "gateway")
    gateway.start()
    driver = Driver(gateway.url, folder)
    try:
        for name in ("in", "out"):
            gateway.request("POST", "/api/v1/streams", {"name": name, "address": name})
        driver.start()
        carried = 0
        for number in range(rounds):
            _feed(gateway, tally, number, chance)
            if chance.random() >= BLIND:
                _wait_for_work(gateway, driver, tally, carried)
            time.sleep(chance.random() * PAUSE_MAX)
            tally.revived += driver.revive()
            before, carried = carried, _carried(gateway)
            tally.at_work += carried > before
            victim = _kill(gateway, driver, tally, chance)
            tell(f"round {number + 1}: {tally.fed} fed, {carried} carried, killed the {victim}")
        _wait(gateway, driver, tally)
        _judge(tapped(gateway, "out"), tally)
    finally:
        driver.kill()
        gateway.kill()
    return tally


def _feed(gateway: ScratchGateway, tally: Tally, number: int, chance: random.Random) -> None:
    count = chance.randrange(1, FED_MAX)
    bodies = [b"%d" % one for one in range(tally.fed, tally.fed + count)]
    batch = Batch(options(gateway.url, address="in"), "feeding", number)
    batch.commit([batch.stage(rows_of(bodies), 0, "a")])
    tally.fed += count


def _carried(gateway: ScratchGateway) -> int:
    _, shown = gateway.request("GET", "/api/v1/streams/out")
    assert isinstance(shown, dict), shown
    return int(shown["head"])


def _wait_for_work(gateway: ScratchGateway, driver: Driver, tally: Tally, before: int) -> None:
    """Wait until the query has carried more than `before`, or for long enough."""
    end = time.monotonic() + CARRIED_SECONDS
    while _carried(gateway) <= before and time.monotonic() < end:
        tally.revived += driver.revive()
        time.sleep(0.1)


def _kill(gateway: ScratchGateway, driver: Driver, tally: Tally, chance: random.Random) -> str:
    """Kill one of them; returns which."""
    victim = chance.choice(VICTIMS)
    if victim == "worker" and not driver.kill_a_worker(chance):
        victim = "gateway"
    if victim == "driver":
        driver.kill()
        driver.start()
    if victim == "gateway":
        gateway.kill()
        gateway.start()
    tally.kills[victim] += 1
    return victim


def _wait(gateway: ScratchGateway, driver: Driver, tally: Tally) -> None:
    """Wait until as many have arrived as were fed, and a moment longer for any that are doubled."""
    carried, end = 0, time.monotonic() + STILL_SECONDS
    while (now := _carried(gateway)) < tally.fed and time.monotonic() < end:
        if now > carried:
            carried, end = now, time.monotonic() + STILL_SECONDS
        tally.revived += driver.revive()
        time.sleep(0.2)
    time.sleep(1)


def _judge(found: list[bytes], tally: Tally) -> None:
    counts = Counter(found)
    fed = {b"%d" % one for one in range(tally.fed)}
    tally.lost = sorted(fed - counts.keys())
    tally.invented = sorted(counts.keys() - fed)
    tally.doubled = sorted(body for body, count in counts.items() if count > 1)


def main() -> int:
    """See the module text."""
    parser = argparse.ArgumentParser(prog="kills")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tally = run_kills(
            Path(folder) / "kills", wanted.rounds, wanted.seed, partial(print, flush=True)
        )
    print(tally)
    for bodies in (tally.lost, tally.doubled, tally.invented):
        if bodies:
            print("  ", bodies[:10])
    return 0 if tally.clean else 1


if __name__ == "__main__":
    sys.exit(main())
