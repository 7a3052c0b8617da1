"""The quick lane: the pure parts, without a process or a port, for the time between two thoughts.

`make test` runs everything. `make quick` runs the folders and modules below with a tenth of the
examples of each property; whatever starts a process or touches a port there fails.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent
#: Set by `make quick`, in every worker.
QUICK: Final = bool(os.environ.get("SLUICEGATE_QUICK"))

FOLDERS: Final = (
    "addresses",
    "broker",
    "config",
    "management",
    "model",
    "paging",
    "protocols",
    "queues",
    "reference",
    "security",
    "selectors",
    "sink",
    "storage",
    "streams",
)
MODULES: Final = (
    "gateway/test_alarm.py",
    "gateway/test_clock.py",
    "gateway/test_lingering.py",
    "gateway/test_logs.py",
    "gateway/test_persistence.py",
    "gateway/test_reloads.py",
    "gateway/test_scrubber.py",
    "gateway/test_slow_store.py",
    "gateway/test_steady.py",
    "gateway/test_summing.py",
)
#: What lies in those folders and is for the whole run alone: processes, ports, or many seconds.
LATER: Final = (
    "management/test_chunks.py",
    "paging/test_rescue.py",
    "paging/test_soak.py",
    "protocols/test_departures.py",
    "protocols/test_reads.py",
    "protocols/test_unread.py",
    "security/test_canary.py",
    "sink/test_doors.py",
    "sink/test_framing_mutants.py",
    "sink/test_kill.py",
    "storage/test_lock.py",
)
#: What says that a test has left the lane.
FORBIDDEN: Final = frozenset({"subprocess.Popen", "os.fork", "os.posix_spawn", "socket.bind"})


def examples(count: int) -> int:
    """Return how many examples a property is tried with; `count` in the whole run."""
    return max(10, count // 10) if QUICK else count


def in_lane(path: Path) -> bool:
    """Whether a test module runs in the quick lane; folders on the way to one do as well."""
    if path == ROOT or ROOT not in path.parents:
        return True
    name = path.relative_to(ROOT).as_posix()
    if name in LATER:
        return False
    below = any(name == folder or name.startswith(folder + "/") for folder in FOLDERS)
    return below or name in MODULES or any(module.startswith(name + "/") for module in MODULES)


def keep_in_lane() -> None:
    """Have a process or a port fail the test that asks for it."""

    def judge(event: str, arguments: tuple[object, ...]) -> None:
        if event in FORBIDDEN:
            raise AssertionError(
                f"{event} {arguments!r:.80} in the quick lane: tests/lanes.py has LATER for such"
            )

    sys.addaudithook(judge)
