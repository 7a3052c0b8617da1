"""Mutated stages in a process of its own: a crash in Arrow is seen there, and not had."""

from __future__ import annotations

import subprocess
import sys

#: Mutated stages of one run in a process of its own: a crash there is seen, and not had.
MUTANTS = 1_500
_MUTATE = """
import random, sys
from tests.sink.test_framing import mutant, judge
from gateway.model.errors import RefusedError
refused = 0
for seed in range(int(sys.argv[1]), int(sys.argv[1]) + int(sys.argv[2])):
    try:
        judge(mutant(random.Random(seed)))
    except RefusedError:
        refused += 1
print(refused)
"""


def test_no_mutated_stage_ends_the_process() -> None:
    command = [sys.executable, "-c", _MUTATE, "0", str(MUTANTS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > MUTANTS // 2
