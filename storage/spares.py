"""Segment files made ahead of need, so that opening a segment costs a rename and no filling.

A spare is as large as a usual segment, filled with zeros or with what an emptied segment left, and
on the device together with its name before it counts as ready. One thread takes spares and gives
emptied segments back; another one may make them meanwhile:

    making ──filled, synced──> ready ──take──> a segment ──emptied──> ready, or unlinked

Filling goes in slices with a sync each, so that a batch which is synced meanwhile waits behind one
slice at most, not behind a whole file.
"""

from __future__ import annotations

import itertools
import posixpath
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from storage.files import FileSystem

_PREFIX: Final = "spare-"
_READY_MAX: Final = 2
_SLICE: Final = bytes(1 << 20)


def spare_number(name: str) -> int | None:
    """Return the number of a spare's file name, None for other files."""
    digits = name.removeprefix(_PREFIX)
    return int(digits) if digits != name and digits.isascii() and digits.isdigit() else None


class Spares:
    """The spares of one journal directory. All calls may block; all errors are OSError."""

    __slots__ = ("_directory", "_fs", "_making", "_numbers", "_ready", "_usual")

    def __init__(self, fs: FileSystem, directory: str) -> None:
        """Take up what an earlier process left."""
        self._fs = fs
        self._directory = directory
        found = sorted(n for n in map(spare_number, fs.listdir(directory)) if n is not None)
        self._numbers = itertools.count(1 + max(found, default=0))
        self._ready: deque[str] = deque(self._path(number) for number in found)
        self._usual = 0
        # Held while a file is made: two at once would need the room of two.
        self._making = threading.Lock()

    def __len__(self) -> int:
        """Return how many are ready."""
        return len(self._ready)

    def _path(self, number: int) -> str:
        return posixpath.join(self._directory, f"{_PREFIX}{number}")

    def file_for(self, path: str, size: int) -> int:
        """Return a descriptor of a file now named `path`, of at least `size` allocated bytes.

        Its content and its name still have to be synced by the caller.
        """
        assert size > 0, f"a file of {size} bytes"
        fd = self._take(path, size)
        if fd is not None:
            return fd
        # One may be on its way: to wait for it is quicker than to make another beside it.
        with self._making:
            fd = self._take(path, size)
            return fd if fd is not None else self._create(path, size, _always)

    def _take(self, path: str, size: int) -> int | None:
        for _ in range(len(self._ready)):
            try:
                spare = self._ready.popleft()
                fd = self._fs.open(spare)
            except (IndexError, FileNotFoundError):
                continue  # the maker weeds them, or somebody tidied up
            length = self._fs.size(fd)
            if length >= size:
                self._fs.rename(spare, path)
                return fd
            self._fs.close(fd)
            if self._usual:
                self._ready.append(spare)  # of the usual size: for another one
            else:
                # Half made when the process stopped, or of a smaller setting.
                self._fs.unlink(spare)
        return None

    def make(self, size: int, go_on: Callable[[], bool]) -> bool:
        """Make one of the usual size when none is ready; returns whether it did.

        Before each write and sync of a slice it asks `go_on`, and gives up, leaving nothing, when
        that says no.
        """
        assert size > 0, f"a spare of {size} bytes"
        with self._making:
            if size != self._usual:
                self._usual = size
                self._weed()
            if self._ready:
                return False
            path = self._path(next(self._numbers))
            fd = self._create(path, size, go_on)
            if fd < 0:
                return False
            self._fs.close(fd)
            self._fs.fsync_dir(self._directory)
            self._ready.append(path)
            return True

    def _weed(self) -> None:
        """Unlink spares below the usual size."""
        assert self._making.locked(), "spares are weeded beside a maker"
        for _ in range(len(self._ready)):
            spare = self._ready.popleft()
            fd = self._fs.open(spare, write=False)
            length = self._fs.size(fd)
            self._fs.close(fd)
            if length < self._usual:
                self._fs.unlink(spare)
            else:
                self._ready.append(spare)

    def _create(self, path: str, size: int, go_on: Callable[[], bool]) -> int:
        """Return a descriptor of a new file of zeros, synced; -1 when `go_on` said no."""
        assert self._making.locked(), "two files are made at once"
        fs = self._fs
        fd = fs.open(path, create=True)
        try:
            fs.allocate(fd, size)
            for offset in range(0, size, len(_SLICE)):
                if not go_on():
                    break
                fs.pwrite(fd, _SLICE[: min(len(_SLICE), size - offset)], offset)
                if not go_on():
                    break
                fs.fdatasync(fd)
            else:
                fs.fsync(fd)
                return fd
        except OSError:
            # What could not be made whole must not hold the room that the journal needs.
            fs.close(fd)
            fs.unlink(path)
            raise
        fs.close(fd)
        fs.unlink(path)
        return -1

    def keep(self, path: str, length: int, usual: int) -> bool:
        """Make a spare of an emptied segment's file, or unlink it; returns whether it is kept.

        Kept are `_READY_MAX` of the usual size. The caller syncs the directory.
        """
        assert length >= 0, f"a file of {length} bytes"
        if len(self._ready) >= _READY_MAX or length != usual:
            self._fs.unlink(path)
            return False
        spare = self._path(next(self._numbers))
        self._fs.rename(path, spare)
        self._ready.append(spare)
        return True


def _always() -> bool:
    return True
