"""Kills of an S3 server while an archive writes to it; all is counted at the end.

    python -m tests.spark.archive.store_kills [--rounds N] [--seed N]

Each round sends some messages and archives them; the server is killed when it has a file or a
commit more, and is back a moment later. What failed is taken again from the checkpoint, as Spark
does. Exit status 1 when an offset is missing or twice.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark_sluicegate.archive.proving import prove
from pyspark_sluicegate.archive.store import Location, StoreError
from pyspark_sluicegate.archive.table import open_table
from tests.spark.archive.jobs import Job, table_rows
from tests.spark.archive.stores import BUCKET, ENVIRONMENT, Versity, killed_amid
from tests.spark.archive.versity import NoVersityError
from tests.spark.support import Server

TABLE = f"s3://{BUCKET}/messages"
#: Seconds that the server is away; the library of the store tries again for longer, mostly.
AWAY = (0.05, 0.3, 1.0)
SENT_MIN, SENT_MAX = 200, 900


@dataclass
class Tally:
    """What came of the rounds.

    Attributes:
        failed: steps that the store's library gave up, and that were taken again.
        lost, doubled: offsets.
        problems: what `archive verify` would say.
    """

    kills: int = 0
    sent: int = 0
    failed: int = 0
    lost: int = 0
    doubled: int = 0
    problems: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.problems)


def place(store: Versity) -> Location:
    """Return where the table is."""
    return Location(TABLE, store.endpoint, "us-east-1")


def run_rounds(
    store: Versity,
    server: Server,
    rounds: int,
    seed: int,
    tell: Callable[[str], object] = lambda line: None,
) -> Tally:
    """Run so many rounds on a server that has the stream `orders`; returns what came of them."""
    chance, tally = random.Random(seed), Tally()
    job = Job(place(store), url=server.url, address="orders", targetFileBytes="4k")
    for number in range(rounds):
        count = chance.randint(SENT_MIN, SENT_MAX)
        server.fill("orders", count)
        tally.sent += count
        ending, more = (".json", 1) if number % 2 else (".parquet", chance.randint(1, 2))
        with killed_amid(store, ending, more, chance.choice(AWAY)):
            try:
                job.run()
            except StoreError:
                tally.failed += 1
        job.start()
        tell(f"round {number + 1}: {tally.sent} sent, {tally.failed} steps failed")
    job.run()
    tally.kills = store.kills
    (found,) = table_rows(place(store)).values()
    tally.lost = len(set(range(tally.sent)) - set(found))
    tally.doubled = len(found) - len(set(found))
    proof = prove(open_table(place(store)), quick=False, tell=lambda *_: None)
    tally.problems = tuple(proof.problems())
    return tally


def main() -> int:
    """See the module text."""
    parser = argparse.ArgumentParser(prog="store_kills")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    with tempfile.TemporaryDirectory() as folder:
        try:
            store = Versity(Path(folder))
        except NoVersityError as error:
            sys.stderr.write(f"{error}\n")
            return 1
        server = Server(Path(folder) / "streams", segmentBytes=20_000, localBytes=30_000)
        try:
            server.make("orders")
            tell = partial(print, flush=True)
            tally = run_rounds(store, server, wanted.rounds, wanted.seed, tell)
        finally:
            server.kill()
            store.kill()
    print(tally)
    return 0 if tally.clean else 1


if __name__ == "__main__":
    sys.exit(main())
