"""The folder of staged batches: one file for each stage, part of it while it comes, then whole.

    NAME.part    as far as it has come; what was appended is synced by `seal` alone
    NAME.arrow   whole and on the device, under a name that says how many rows it has

A name says all that is known of a stage, so that a start finds what was there before. Every call
blocks the thread.
"""

from __future__ import annotations

import posixpath
import zlib
from typing import Final

from storage.files import FileSystem

PART: Final = ".part"
WHOLE: Final = ".arrow"
#: Read at once: what a sum is made of, and at most what a reader asks for.
_CHUNK_BYTES: Final = 1 << 20


class StageFiles:
    """See the module text."""

    def __init__(self, fs: FileSystem, root: str) -> None:
        self._fs = fs
        self._root = root

    def found(self) -> list[tuple[str, int]]:
        """Return (file name, size in bytes) of what is there."""
        fs = self._fs
        fs.mkdir(self._root)
        # A process that was killed leaves names that are seen and not yet on the device.
        fs.fsync_dir(self._root)
        return [(name, self._size(name)) for name in fs.listdir(self._root)]

    def _size(self, name: str) -> int:
        fd = self._fs.open(self._path(name), write=False)
        try:
            return self._fs.size(fd)
        finally:
            self._fs.close(fd)

    def write(self, name: str, offset: int, data: bytes) -> None:
        """Write a piece of the part `name`; the one at 0 makes the file where it is missing."""
        fs, path = self._fs, self._path(name + PART)
        fd = fs.open(path, create=offset == 0 and not fs.exists(path))
        try:
            fs.pwrite(fd, data, offset)
        finally:
            fs.close(fd)

    def checksum(self, name: str) -> int:
        """Return the CRC-32 of the part `name`."""
        source = self.open(name + PART)
        try:
            crc = 0
            while data := source.read(_CHUNK_BYTES):
                crc = zlib.crc32(data, crc)
            return crc
        finally:
            source.close()

    def seal(self, name: str, whole: str) -> None:
        """Give the part `name` the name of a whole stage; on the device when this returns."""
        fs, path = self._fs, self._path(name + PART)
        fd = fs.open(path)
        try:
            fs.fsync(fd)
        finally:
            fs.close(fd)
        fs.rename(path, self._path(whole + WHOLE))
        fs.fsync_dir(self._root)

    def remove(self, file: str) -> None:
        """Delete a file if it is there."""
        path = self._path(file)
        if self._fs.exists(path):
            self._fs.unlink(path)

    def open(self, file: str) -> StageSource:
        """Open a file for reading. Raises OSError."""
        return StageSource(self._fs, self._path(file))

    def _path(self, file: str) -> str:
        return posixpath.join(self._root, file)


class StageSource:
    """A file that is read from its beginning, as readers of Arrow streams want it."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self._fd = fs.open(path, write=False)
        self._at = 0
        self.closed = False

    def read(self, count: int) -> bytes:
        """Return up to `count` bytes more; none at the end."""
        data = self._fs.pread(self._fd, count, self._at)
        self._at += len(data)
        return data

    def readable(self) -> bool:
        return not self.closed

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._fs.close(self._fd)
