"""`python -m tests.durability --rounds N`: SIGKILL rounds, half of them without the switch.

With `--power` each round ends as a power cut does, on a file system that forgets.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.durability.power import run_power_rounds, why_not
from tests.durability.rounds import run_rounds


def main() -> int:
    parser = argparse.ArgumentParser(prog="crash")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--power", action="store_true")
    wanted = parser.parse_args()
    if wanted.power and (reason := why_not()):
        print(f"No power can be cut here: {reason}")
        return 2
    clean = True
    for concurrent in ("true", "false"):
        switch = f"concurrent-store-and-dispatch-queues={concurrent}"
        seed = f"{wanted.seed}/{concurrent}"
        with tempfile.TemporaryDirectory() as folder:
            place, rounds = Path(folder) / "gateway", wanted.rounds // 2
            if wanted.power:
                tally = run_power_rounds(place, rounds, seed, (switch,))
            else:
                tally = run_rounds(place, rounds, random.Random(seed), (switch,))
        print(f"{switch}: {tally}", flush=True)
        for text in [*tally.lost[:5], *tally.unmarked[:5], *tally.invented[:5], *tally.refusals]:
            print(f"  {text}")
        clean = clean and tally.clean
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
