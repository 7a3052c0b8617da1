"""`python -m tests.simulation --seeds N [--first K]`: run seeds, print failures and the rate.

`SEED=k` in the environment runs that one and prints its last events.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback

from tests.simulation.world import run_seed

REPORTED_MAX = 5


def replay(seed: int) -> int:
    """Run one seed and print what happened last."""
    try:
        world = run_seed(seed)
    except Exception:
        traceback.print_exc()
        return 1
    print("\n".join(world.disk.log))
    print(f"seed {seed}: nothing found")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulate")
    parser.add_argument("--seeds", type=int, default=3000)
    parser.add_argument("--first", type=int, default=0)
    wanted = parser.parse_args()
    if "SEED" in os.environ:
        return replay(int(os.environ["SEED"]))
    began = time.process_time()
    failed = []
    for seed in range(wanted.first, wanted.first + wanted.seeds):
        try:
            run_seed(seed)
        except Exception:
            failed.append(seed)
            if len(failed) <= REPORTED_MAX:
                traceback.print_exc()
    spent = time.process_time() - began
    print(
        f"{wanted.seeds} seeds, {wanted.seeds / spent:.0f} a second, {len(failed)} failed {failed}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
