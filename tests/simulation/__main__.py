"""`python -m tests.simulation`: run seeds, print failures and the rate.

`--seeds N` of the storage alone, `--core-seeds N` of the whole core over it, `--wire-seeds N` with
clients of both protocols over a network; `--only` one of them. `SEED=k` in the environment runs
that one of each, and prints its last events. One seed in a hundred runs twice, the same way.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Callable
from logging import CRITICAL
from typing import Protocol

import structlog

from tests.simulation.core.world import run_core_seed
from tests.simulation.disk import SimDisk
from tests.simulation.wire.world import run_wire_seed
from tests.simulation.world import run_seed

REPORTED_MAX = 5
#: Each so-manieth seed is run twice.
TWICE = 100


class Ran(Protocol):
    """A seed that was run."""

    disk: SimDisk


def trace(world: Ran) -> str:
    """Return what two runs of one seed must have in common: the hash of all its events."""
    return world.disk.log.trace.hexdigest()


def replay(kind: str, run: Callable[[int], Ran], seed: int) -> int:
    """Run one seed and print what happened last."""
    try:
        world = run(seed)
    except Exception:
        traceback.print_exc()
        return 1
    print("\n".join(world.disk.log))
    print(f"{kind}: seed {seed}: nothing found")
    return 0


def run_many(kind: str, run: Callable[[int], Ran], first: int, count: int) -> int:
    """Run seeds; returns how many failed."""
    began = time.process_time()
    failed = []
    for seed in range(first, first + count):
        try:
            ran = run(seed)
            assert seed % TWICE or trace(run(seed)) == trace(ran), f"seed {seed} is not one run"
        except Exception:
            failed.append(seed)
            if len(failed) <= REPORTED_MAX:
                traceback.print_exc()
    rate = count / max(time.process_time() - began, 1e-9)
    print(f"{kind}: {count} seeds, {rate:.0f} a second, {len(failed)} failed {failed}", flush=True)
    return len(failed)


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulate")
    parser.add_argument("--seeds", type=int, default=3000)
    parser.add_argument("--core-seeds", type=int, default=1000)
    parser.add_argument("--wire-seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", choices=["storage", "core", "wire"])
    wanted = parser.parse_args()
    kinds: list[tuple[str, Callable[[int], Ran], int]] = [
        ("storage", run_seed, wanted.seeds),
        ("core", run_core_seed, wanted.core_seeds),
        ("wire", run_wire_seed, wanted.wire_seeds),
    ]
    failed = 0
    for kind, run, count in kinds:
        if wanted.only not in (None, kind):
            continue
        if "SEED" in os.environ:
            failed += replay(kind, run, int(os.environ["SEED"]))
        else:
            structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(CRITICAL))
            failed += run_many(kind, run, wanted.first, count)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
