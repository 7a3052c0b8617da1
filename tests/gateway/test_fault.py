"""A fault of the gateway's own, in what it does now and then: it ends, and ends in order."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from gateway.trial.scratch import importing_environment
from tests.gateway.test_service import FREE_PORTS, command

#: Has the scan for unused queues fail, then runs the command line that follows.
BROKEN = """
import sys
from gateway.broker.directory.reaper import Reaper

def sweep(self):
    raise ZeroDivisionError("a fault for the test")

Reaper.sweep_in_slices = sweep
from gateway.cli.main import main
main()
"""


def test_a_fault_of_its_own_is_70_and_the_journal_is_closed_all_the_same(tmp_path: Path) -> None:
    data = str(tmp_path / "d")
    sets = [*FREE_PORTS, "address-queue-scan-period=100"]
    arguments = command("--data", data, sets=sets)[3:]
    done = subprocess.run(
        [sys.executable, "-c", BROKEN, *arguments],
        capture_output=True,
        text=True,
        env=importing_environment(),
        timeout=60,
        check=False,
    )
    assert done.returncode == 70, done.stderr
    assert "error: cannot-run: The gateway met a fault of its own" in done.stderr
    events = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert [one["clean"] for one in events if one["event"] == "gateway.stopped"] == [True]
