"""Room kept back on the disk, so that what makes room can go on when there is none left.

One file that holds nothing but its blocks. When a write finds the disk full, part of the file is
given up and the write is tried again; when there is room again, the file is made whole.

    whole ──give──> smaller ──give──> ... 0
      ^───────────── make ──────────────┘

`give` is called on the writer's thread, `make` on any: a lock keeps them apart.
"""

from __future__ import annotations

import errno
import posixpath
import threading
from collections.abc import Callable
from typing import Final

from storage.files import FileSystem

NAME: Final = "ballast"
#: What a disk without room says.
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class Ballast:
    """The ballast of one directory. All calls may block.

    Attributes:
        wanted: bytes that it is to hold.
        size: bytes that it holds.
        given: how often part of it was given up.
        on_asked: called, on the thread that writes, each time a write found no room.
    """

    __slots__ = ("_directory", "_fs", "_lock", "_path", "given", "on_asked", "size", "wanted")

    def __init__(self, fs: FileSystem, directory: str, wanted: int) -> None:
        """Take up what an earlier process left; raises OSError."""
        self._fs = fs
        self._directory = directory
        self._path = posixpath.join(directory, NAME)
        self._lock = threading.Lock()
        self.wanted = wanted
        self.given = 0
        self.on_asked: Callable[[], None] = _nothing
        self.size = self._resize(fs.size) if fs.exists(self._path) else 0

    @property
    def missing(self) -> int:
        """How many bytes were given up, or could never be had."""
        return max(0, self.wanted - self.size)

    def make(self) -> bool:
        """Bring it to the size wanted; returns False when there is no room. Raises OSError."""
        with self._lock:
            if self.size == self.wanted and self._fs.exists(self._path) == bool(self.wanted):
                return True
            try:
                self.size = self._resize(self._to_wanted)
            except OSError as error:
                if error.errno not in NO_ROOM and error.errno != errno.EFBIG:
                    raise
                self._shrink(self.size)  # no part of what could not be had
                if error.errno == errno.EFBIG:
                    self.wanted = self.size  # this process may not have such a file, ever
                return False
            return True

    def _to_wanted(self, fd: int) -> int:
        assert self.wanted >= 0, f"{self.wanted} bytes are wanted"
        assert self._lock.locked(), "another thread may be giving it up"
        if self.size > self.wanted:
            self._fs.truncate(fd, self.wanted)
        elif self.wanted:
            self._fs.allocate(fd, self.wanted)
        self._fs.fsync(fd)
        return self.wanted

    def give(self, count: int) -> bool:
        """Give up `count` bytes, or what is left; returns whether there were any."""
        assert count >= 0, f"{count} bytes are asked for"
        self.on_asked()
        with self._lock:
            if not self.size:
                return False
            self._shrink(max(0, self.size - count))
            self.given += 1
            return True

    def become(self, path: str) -> bool:
        """Be another file from now on, where the disk takes no new one; returns whether it could.

        The caller syncs the directory.
        """
        self.on_asked()
        with self._lock:
            if not self._fs.exists(self._path):
                return False
            self._fs.rename(self._path, path)
            self.size = 0
            self.given += 1
            return True

    def _shrink(self, size: int) -> None:
        assert 0 <= size <= self.size, f"{size} bytes of {self.size}"
        assert self._lock.locked(), "another thread may be making it whole"

        def cut(fd: int) -> int:
            self._fs.truncate(fd, size)
            self._fs.fsync(fd)  # only now are its blocks free for all
            return size

        if self._fs.exists(self._path):
            self.size = self._resize(cut)

    def _resize(self, act: Callable[[int], int]) -> int:
        new = not self._fs.exists(self._path)
        fd = self._fs.open(self._path, create=new)
        try:
            size = act(fd)
        finally:
            self._fs.close(fd)
        if new:
            self._fs.fsync_dir(self._directory)
        return size


def _nothing() -> None:
    """Stand for whoever does not want to know."""
