"""`python -m tests.mutants [--limit N] [NAME ...]`: the kill table; fails when a mutant lives."""

from __future__ import annotations

import argparse
import sys
import time
from logging import CRITICAL

import structlog

from tests.mutants.core_table import CORE_MUTANTS
from tests.mutants.plant import seeds_to_kill
from tests.mutants.table import MUTANTS
from tests.mutants.websocket_table import WEBSOCKET_MUTANTS
from tests.mutants.wire_table import WIRE_MUTANTS

LIMIT = 2000


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutants")
    parser.add_argument("--limit", type=int, default=LIMIT)
    parser.add_argument("names", nargs="*", help="parts of names; all when none is given")
    wanted = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(CRITICAL))
    alive = 0
    for mutant in (*MUTANTS, *CORE_MUTANTS, *WIRE_MUTANTS, *WEBSOCKET_MUTANTS):
        if wanted.names and not any(name in mutant.name for name in wanted.names):
            continue
        began = time.process_time()
        killed = seeds_to_kill(mutant, wanted.limit)
        spent = time.process_time() - began
        if killed is None:
            alive += 1
            print(f"{mutant.name:52} ALIVE after {wanted.limit} seeds", flush=True)
        else:
            print(f"{mutant.name:52} {killed[0]:5d} {spent:6.2f} s  {killed[1][:90]}", flush=True)
    print(f"{alive} alive")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
