"""`python -m tests.durability --rounds N`: SIGKILL rounds, half of them without the switch."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.durability.rounds import run_rounds


def main() -> int:
    parser = argparse.ArgumentParser(prog="crash")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    clean = True
    for concurrent in ("true", "false"):
        switch = f"concurrent-store-and-dispatch-queues={concurrent}"
        chance = random.Random(f"{wanted.seed}/{concurrent}")
        with tempfile.TemporaryDirectory() as folder:
            tally = run_rounds(Path(folder) / "gateway", wanted.rounds // 2, chance, (switch,))
        print(f"{switch}: {tally}", flush=True)
        for text in [*tally.lost[:5], *tally.unmarked[:5], *tally.invented[:5], *tally.refusals]:
            print(f"  {text}")
        clean = clean and tally.clean
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
