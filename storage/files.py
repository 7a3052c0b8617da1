"""The file-system port and its real twin; nothing else touches files of the data directory.

All calls are synchronous and may block: they run on the writer thread, or before the listeners
open. Errors are `OSError`, never swallowed: the caller decides whether to stop.
"""

# The port speaks of descriptors and plain paths, as the calls below it do.
# ruff: noqa: PTH102, PTH104, PTH108, PTH110, PTH112, PTH116, PTH208

from __future__ import annotations

import errno
import os
import posixpath
from typing import Final, Protocol

_DIRECTORY_MODE: Final = 0o700
_FILE_MODE: Final = 0o600


class FileSystem(Protocol):
    """What storage needs of a file system; the simulator implements the same."""

    def open(self, path: str, *, create: bool = False, write: bool = True) -> int:
        """Return a descriptor. `create` makes the file and fails if it is there."""

    def close(self, fd: int) -> None: ...

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        """Return up to `count` bytes; short only at the end of the file."""

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        """Write all of `data`; returns its length. Raises OSError when it cannot."""

    def fdatasync(self, fd: int) -> None: ...

    def fsync(self, fd: int) -> None: ...

    def allocate(self, fd: int, size: int) -> None:
        """Reserve `size` bytes of disk, so that writing inside cannot run out of room."""

    def size(self, fd: int) -> int: ...

    def truncate(self, fd: int, size: int) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def listdir(self, path: str) -> list[str]: ...

    def mkdir(self, path: str) -> None:
        """Make the directory and its parents, for good; it may exist."""

    def fsync_dir(self, path: str) -> None: ...

    def exists(self, path: str) -> bool: ...

    def free_bytes(self, path: str) -> int: ...

    def drop_cache(self, fd: int) -> None:
        """Ask the system to forget cached pages, so that the next read is of the device."""


class RealFiles:
    """The operating system's files."""

    def open(self, path: str, *, create: bool = False, write: bool = True) -> int:
        flags = os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_RDWR if write else os.O_RDONLY)
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        return os.open(path, flags, _FILE_MODE)

    def close(self, fd: int) -> None:
        os.close(fd)

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        parts: list[bytes] = []
        assert count >= 0, f"{count} bytes"
        while count > 0:
            part = os.pread(fd, min(count, 1 << 30), offset)
            if not part:
                break
            parts.append(part)
            count -= len(part)
            offset += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        written = os.pwrite(fd, data, offset)
        if written == len(data):
            return written
        view = memoryview(data)
        while written < len(data):
            count = os.pwrite(fd, view[written:], offset + written)
            if count == 0:
                raise OSError(errno.ENOSPC, "short write")
            written += count
        return written

    def fdatasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def allocate(self, fd: int, size: int) -> None:
        os.posix_fallocate(fd, 0, size)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def mkdir(self, path: str) -> None:
        parent = posixpath.dirname(path.rstrip("/"))
        if os.path.isdir(path):
            return
        if parent:
            self.mkdir(parent)
        os.mkdir(path, _DIRECTORY_MODE)
        self.fsync_dir(parent or ".")

    def fsync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def free_bytes(self, path: str) -> int:
        facts = os.statvfs(path)
        return facts.f_bavail * facts.f_frsize

    def space(self, path: str) -> tuple[int, int, int]:
        """Return (which file system, its bytes, those that this process may still use)."""
        facts = os.statvfs(path)
        return (
            os.stat(path).st_dev,
            facts.f_blocks * facts.f_frsize,
            facts.f_bavail * facts.f_frsize,
        )

    def free_files(self, path: str) -> int:
        """Return how many more files its file system takes; -1 where there is no such limit."""
        facts = os.statvfs(path)
        return facts.f_favail if facts.f_files else -1

    def drop_cache(self, fd: int) -> None:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def read_file(fs: FileSystem, path: str) -> bytes:
    """Return the whole content of `path`; an OSError names it."""
    fd = fs.open(path, write=False)
    try:
        return fs.pread(fd, fs.size(fd), 0)
    except OSError as error:
        # Of a descriptor the system says only what, not where.
        raise OSError(error.errno, error.strerror, path) from error
    finally:
        fs.close(fd)


def settle(fs: FileSystem, path: str) -> None:
    """Have the next read of `path` be of the device: not of what a failed sync left in memory.

    What was written and never synced, as by a process that was killed, is synced.
    """
    fd = fs.open(path)
    try:
        fs.fdatasync(fd)
        fs.drop_cache(fd)
    finally:
        fs.close(fd)


def durable_replace(fs: FileSystem, path: str, data: bytes) -> None:
    """Make `path` hold `data`, whole or not at all, and on the device when this returns.

    Written beside it, synced, renamed over it, directory synced: a rename alone promises neither
    data nor order.
    """
    temporary = path + ".new"
    if fs.exists(temporary):
        fs.unlink(temporary)
    fd = fs.open(temporary, create=True)
    try:
        fs.pwrite(fd, data, 0)
        fs.fsync(fd)
    finally:
        fs.close(fd)
    fs.rename(temporary, path)
    fs.fsync_dir(posixpath.dirname(path) or ".")
