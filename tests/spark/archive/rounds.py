"""Rounds in which something dies: the archive at a step, its gateway, its checkpoint; all counted.

    python -m tests.spark.archive.rounds FOLDER ROUNDS [SEED]

One round sends, archives a few steps and stops at one by chance. What dies is chosen by the seed;
at the end a last archive finishes, and the table must have each offset once.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections import Counter
from pathlib import Path

from pyspark_sluicegate.archive.ledger import OtherWriterError
from pyspark_sluicegate.archive.proving import prove
from pyspark_sluicegate.archive.table import open_table
from pyspark_sluicegate.client import StatusError
from tests.spark.archive.jobs import Job, at, table_rows
from tests.spark.support import Server

STEPS = ("planned", "written", "committed", "noted")
FAULTS = ("driver", "driver", "gateway", "checkpoint", "second driver", "compaction")


class StoppedError(Exception):
    """The archive is dead."""


class Rounds:
    """One table through many deaths."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.folder = folder
        self.server = Server(folder / "streams", segmentBytes=30_000, localBytes=60_000)
        self.sent = {"orders": 0, "news": 0}
        for name in self.sent:
            self.server.make(name)
        self.tally: Counter[str] = Counter()
        self.job = self.make_job()

    def make_job(self) -> Job:
        most = str(self.chance.randint(50, 900))
        return Job(
            self.folder / "table",
            url=self.server.url,
            addressPattern="#",
            maxMessagesPerTrigger=most,
        )

    def send(self) -> None:
        for name in self.sent:
            count = self.chance.randint(0, 400)
            if count:
                self.server.fill(name, count)
                self.sent[name] += count

    def step(self, until: str) -> None:
        """Archive one batch as far as `until`, and die."""
        if not self.job.plan():
            return
        if until == "planned":
            raise StoppedError
        found = self.job.write()
        if until == "written":
            raise StoppedError
        self.job.commit(found)
        if until == "committed":
            raise StoppedError
        self.job.note()

    def round(self) -> None:
        self.send()
        fault, until = self.chance.choice(FAULTS), self.chance.choice(STEPS)
        self.tally[f"{fault}, {until}"] += 1
        with contextlib.suppress(StoppedError):
            for number in range(self.chance.randint(1, 3)):
                self.step(until if number else "noted")
            self.step(until)
        if fault == "gateway":
            self.server.kill()
            self.server.start()
        if fault == "checkpoint":
            self.job = self.make_job()
        if fault == "second driver":
            other = self.make_job()
            # The older one is told that it is not alone; what it has committed by then counts.
            with contextlib.suppress(StoppedError, StatusError, OtherWriterError):
                other.plan()
                self.step("committed")
            self.job = other
        if fault == "compaction":
            from pyspark_sluicegate.archive.compacting import compact
            from tests.spark.archive.jobs import nonce

            compact(open_table(at(self.folder / "table")), 1 << 20, nonce, lambda: 1)
        self.job.start()

    def finish(self) -> None:
        """Archive the rest and judge the table."""
        self.job.run()
        found = {key[1]: offsets for key, offsets in table_rows(self.folder / "table").items()}
        assert found == {name: list(range(count)) for name, count in self.sent.items() if count}
        proof = prove(open_table(at(self.folder / "table")), quick=False, tell=lambda *_: None)
        assert proof.problems() == []


def run_rounds(folder: Path, rounds: int, seed: int) -> Rounds:
    made = Rounds(folder, seed)
    try:
        for _ in range(rounds):
            made.round()
        made.finish()
    finally:
        made.server.kill()
    return made


if __name__ == "__main__":
    done = run_rounds(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if sys.argv[3:] else 1)
    print(sum(done.sent.values()), "messages", dict(done.tally))
