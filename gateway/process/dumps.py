"""Memory is kept out of core dumps: it has messages and secrets."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path
from typing import Final

_FILTER: Final = Path("/proc/self/coredump_filter")


def keep_memory_out_of_dumps() -> None:
    """Have a crash write no core file, and whoever gets the core by a pipe no memory in it.

    The limit does not hold for a program that the system pipes cores to [core(5)]; the filter does.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # another system, or a kernel without it
        _FILTER.write_text("0", "ascii")
