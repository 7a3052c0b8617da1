"""What the kernel says of this process, under the names that Prometheus' clients give it."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gateway.model.histogram import Histogram

_PROC: Final = Path("/proc/self")
#: name, kind, text, value.
ProcessFigure = tuple[str, str, str, float]

_SYNC_BOUNDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
)  # fmt: skip
_LAG_BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


def sync_histogram() -> Histogram:
    """Return what the syncs of the journal are counted in."""
    text = "How long syncs of the journal took"
    return Histogram("journal_sync_seconds", text, _SYNC_BOUNDS)


def lag_histogram() -> Histogram:
    """Return what the lateness of the reactor is counted in."""
    text = "How late the reactor came to what was due, looked at ten times a second"
    return Histogram("reactor_lag_seconds", text, _LAG_BOUNDS)


def process_figures() -> Iterator[ProcessFigure]:
    """Yield what there is to say; what a system does not tell is left out."""
    times = os.times()
    text = "User and system CPU time"
    yield "process_cpu_seconds_total", "counter", text, times.user + times.system
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield "process_max_fds", "gauge", "File descriptors that may be open", most
    try:
        # Behind the name, which may hold anything: state, ppid ...; the 20th is the start.
        fields = (_PROC / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        booted = next(
            int(line.split()[1])
            for line in Path("/proc/stat").read_text("utf-8").splitlines()
            if line.startswith("btime ")
        )
        count = len(os.listdir(_PROC / "fd"))  # noqa: PTH208 - names are all that is wanted
    except (OSError, ValueError, StopIteration):
        return
    page, tick = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
    yield "process_virtual_memory_bytes", "gauge", "Virtual memory", int(fields[20])
    yield "process_resident_memory_bytes", "gauge", "Resident memory", int(fields[21]) * page
    yield "process_open_fds", "gauge", "File descriptors that are open", count
    text = "When it was started, in seconds since 1970"
    yield "process_start_time_seconds", "gauge", text, booted + int(fields[19]) / tick
