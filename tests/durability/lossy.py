"""`python -m tests.durability.lossy MOUNT SEED`: a file system that loses power when told to.

A process of its own, since who uses it waits for it. It keeps all in memory, on the disk of the
simulation (`tests/simulation/disk.py`): what was synced stays, of the rest each sector and each
name is found or is not, as chance says. The gateway on it is the real one, with real files.

It reads commands from standard input, one a line, and says when each is done:

    mount      files can be used                        says `mounted`
    cut        from now on every call fails with EIO    says `cut`
    (unmount from outside)                              says `unmounted`, waits for `mount`
    end        what was mounted is gone                 ends

Directories are there as soon as they are made.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import random
import stat
import sys
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from tests.simulation.disk import SimDisk

with contextlib.suppress(ImportError):
    # A package that brings the library; without it, the system's is looked for.
    import fuseparts

    libraries = Path(fuseparts.__file__).parents[1] / "fuse_python.libs"
    for library in libraries.glob("libfuse-*"):
        os.environ.setdefault("FUSE_LIBRARY_PATH", str(library))

# It looks for the library when it is imported.
import mfusepy

Answer = TypeVar("Answer")

ROOT = ""
BLOCK = 4096
SECTOR = 512  # what st_blocks counts
#: What statvfs says: more than any test writes.
BLOCKS = 1 << 20


def powered(call: Callable[..., Answer]) -> Callable[..., Answer]:
    """Have a call fail while there is no power; one at a time."""

    @wraps(call)
    def guarded(self: Lossy, *arguments: Any, **named: Any) -> Answer:
        with self._one:
            if not self.on:
                raise OSError(errno.EIO, "there is no power")
            try:
                return call(self, *arguments, **named)
            except FileNotFoundError as error:
                raise OSError(errno.ENOENT, str(error)) from error
            except FileExistsError as error:
                raise OSError(errno.EEXIST, str(error)) from error

    return guarded


class Lossy(mfusepy.Operations):  # type: ignore[misc]
    """The calls of the system, on a simulated disk."""

    use_ns = True

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.directories = {ROOT}
        self.modes: dict[str, int] = {}
        self.on = True
        self._one = threading.Lock()

    def init(self, path: str) -> None:
        _say("mounted")

    def cut(self) -> None:
        """Lose the power; `resume` brings it back."""
        with self._one:
            self.on = False
            self.disk.lose_power()

    def resume(self) -> None:
        """The power is there again."""
        self.on = True

    # ---- what is where

    @powered
    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
        path = path.rstrip("/")
        if path in self.directories:
            return {"st_mode": stat.S_IFDIR | self.modes.get(path, 0o700), "st_nlink": 2}
        if fh is not None and fh in self.disk.fds:
            size = self.disk.size(fh)
        elif path in self.disk.names:
            size = len(self.disk.nodes[self.disk.names[path]].cache)
        else:
            raise FileNotFoundError(path)
        mode = stat.S_IFREG | self.modes.get(path, 0o600)
        blocks = (size + SECTOR - 1) // SECTOR
        return {"st_mode": mode, "st_nlink": 1, "st_size": size, "st_blocks": blocks}

    @powered
    def readdir(self, path: str, fh: int) -> list[str]:
        path = path.rstrip("/")
        below = [d for d in self.directories if d and posixpath.dirname(d).rstrip("/") == path]
        return [".", "..", *map(posixpath.basename, below), *self.disk.listdir(path)]

    @powered
    def statfs(self, path: str) -> dict[str, int]:
        free = BLOCKS - self.disk._used() // BLOCK
        return {
            "f_bsize": BLOCK,
            "f_frsize": BLOCK,
            "f_blocks": BLOCKS,
            "f_bfree": free,
            "f_bavail": free,
            "f_namemax": 255,
        }

    # ---- names

    @powered
    def mkdir(self, path: str, mode: int) -> int:
        self.directories.add(path)
        self.modes[path] = stat.S_IMODE(mode)
        return 0

    @powered
    def chmod(self, path: str, mode: int) -> int:
        self.modes[path.rstrip("/")] = stat.S_IMODE(mode)
        return 0

    @powered
    def create(self, path: str, mode: int, fi: object = None) -> int:
        self.modes[path] = stat.S_IMODE(mode)
        return self.disk.open(path, create=True)

    @powered
    def unlink(self, path: str) -> int:
        self.disk.unlink(path)
        return 0

    @powered
    def rename(self, old: str, new: str) -> int:
        self.disk.rename(old, new)
        return 0

    @powered
    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        self.disk.fsync_dir(path.rstrip("/"))
        return 0

    # ---- bytes

    @powered
    def open(self, path: str, flags: int) -> int:
        return self.disk.open(path)

    @powered
    def release(self, path: str, fh: int) -> int:
        self.disk.fds.pop(fh, None)
        return 0

    @powered
    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return self.disk.pread(fh, size, offset)

    @powered
    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        return self.disk.pwrite(fh, data, offset)

    @powered
    def fsync(self, path: str, datasync: int, fh: int) -> int:
        self.disk.fdatasync(fh)
        return 0

    @powered
    def fallocate(self, path: str, mode: int, offset: int, length: int, fh: int) -> int:
        self.disk.allocate(fh, offset + length)
        return 0

    @powered
    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        self.disk.nodes[self.disk.names[path]].truncate(length)
        return 0


def _say(text: str) -> None:
    print(text, flush=True)


def _obey(lossy: Lossy, orders: threading.Semaphore) -> None:
    for line in sys.stdin:
        match line.strip():
            case "cut":
                lossy.cut()
                _say("cut")
            case "mount":
                lossy.resume()
                orders.release()
            case "end":
                break
    os._exit(0)


def main() -> None:
    """See the module text."""
    mount, seed = sys.argv[1:]
    lossy = Lossy(SimDisk(random.Random(seed)))
    orders = threading.Semaphore(0)
    threading.Thread(target=_obey, args=(lossy, orders), daemon=True).start()
    while True:
        orders.acquire()
        mfusepy.FUSE(lossy, mount, foreground=True, nothreads=True, hard_remove=True)
        _say("unmounted")


if __name__ == "__main__":
    main()
