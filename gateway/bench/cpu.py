"""CPU time of a process, and which process listens on a port; Linux, from /proc alone.

Elsewhere, or where a process is not ours to see, the answers are None and the bench leaves the
column empty.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_LISTEN: Final = "0A"


def cpu_seconds(pid: int) -> float | None:
    """Return the CPU time that a process has used, user and system, all threads, in seconds."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The name may hold blanks and brackets; what follows its last bracket is numbers.
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))


def resident_bytes(pid: int | None) -> int | None:
    """Return the memory that a process has in use, where that can be seen."""
    try:
        text = (_PROC / str(pid) / "statm").read_text()
    except OSError:
        return None
    return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")


def listener(port: int) -> int | None:
    """Return the process that listens on a TCP port of this machine, if it can be seen."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    return _holder(inodes) if inodes else None


def _holder(names: set[str]) -> int | None:
    for folder in _PROC.iterdir():
        if folder.name.isdigit() and not names.isdisjoint(_open_files(folder / "fd")):
            return int(folder.name)
    return None


def _open_files(folder: Path) -> Iterator[str]:
    try:
        for link in folder.iterdir():
            with suppress(OSError):  # closed since it was listed
                yield str(link.readlink())
    except OSError:
        return


def file_system(path: Path) -> str:
    """Return the type of the file system that holds a path (`ext4`, `tmpfs`), `?` if unknown."""
    try:
        lines = (_PROC / "mounts").read_text().splitlines()
    except OSError:
        return "?"
    resolved = str(path.resolve())
    best, kind = "", "?"
    for line in lines:
        _, mount, found, *_ = line.split()
        inside = resolved == mount or resolved.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, found
    return kind


def processor() -> str:
    """Return the processor's name and how many of them this process may use."""
    try:
        lines = (_PROC / "cpuinfo").read_text().splitlines()
        name = next(
            line.partition(":")[2].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        name = "unknown processor"
    return f"{name}, {os.cpu_count()} cores"
