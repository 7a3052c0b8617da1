"""Segment files: names, making them ahead of need, writing batches into them.

A segment is preallocated and zero-filled before its first use, so that running out of disk happens
here and not in the middle of a record, and so that a sync has no new extents to record. Files that
are emptied are kept as spares (up to two) and used again: their old bytes cannot pass the new salt.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import Final

from storage.files import FileSystem
from storage.record import SEGMENT_HEADER_BYTES, encode_batch, encode_segment_header, salt_of

_SUFFIX: Final = ".journal"
_SPARE: Final = "spare-"
_SPARES_MAX: Final = 2
_ZEROS: Final = bytes(1 << 20)


def segment_name(number: int) -> str:
    """Return the file name of a segment; names sort as numbers do."""
    return f"{number:016d}{_SUFFIX}"


def segment_number(name: str) -> int | None:
    """Return the number of a segment file's name, None for other files."""
    stem = name.removesuffix(_SUFFIX)
    if not (stem.isascii() and stem.isdigit()):
        return None
    return int(stem) if segment_name(int(stem)) == name else None


def _spare_number(name: str) -> int | None:
    digits = name.removeprefix(_SPARE)
    return int(digits) if digits != name and digits.isascii() and digits.isdigit() else None


class Segments:
    """The journal directory as the writer sees it. All calls may block; all errors are OSError."""

    __slots__ = (
        "_directory",
        "_fd",
        "_fs",
        "_make_uuid",
        "_next_spare",
        "_number",
        "_offset",
        "_size",
        "_spares",
        "_uuid",
    )

    def __init__(self, fs: FileSystem, directory: str, make_uuid: Callable[[], bytes]) -> None:
        self._fs = fs
        self._directory = directory
        self._make_uuid = make_uuid
        self._fd = -1
        self._number = -1
        self._uuid = b""
        self._offset = 0
        self._size = 0
        spares = sorted(n for n in map(_spare_number, fs.listdir(directory)) if n is not None)
        self._spares: list[str] = [f"{_SPARE}{number}" for number in spares]
        self._next_spare = 1 + max(spares, default=0)

    def write(self, payload: bytes, *, number: int, synced: int, segment: int, size: int) -> int:
        """Write one batch behind the others and sync; returns the bytes written.

        Opens `segment` (with at least `size` bytes) when it is not the current one.
        """
        if segment != self._number:
            self._open(segment, size, number)
        offset = self._offset
        head = encode_batch(payload, number, synced, salt_of(self._uuid, offset))
        data = head + payload
        assert offset + len(data) <= self._size, (
            "a batch does not fit the room that was counted for it"
        )
        self._fs.pwrite(self._fd, data, offset)
        self._fs.fdatasync(self._fd)
        self._offset = offset + len(data)
        return len(data)

    def _open(self, segment: int, size: int, first: int) -> None:
        if self._fd >= 0:
            self._fs.close(self._fd)
            self._fd = -1
        path = posixpath.join(self._directory, segment_name(segment))
        self._fd = self._from_spare(path, size)
        self._uuid = self._make_uuid()
        self._fs.pwrite(self._fd, encode_segment_header(segment, self._uuid, first), 0)
        self._fs.fsync(self._fd)
        self._fs.fsync_dir(self._directory)
        self._number = segment
        self._offset = SEGMENT_HEADER_BYTES
        self._size = size

    def _from_spare(self, path: str, size: int) -> int:
        """Return a descriptor of a file named `path` of at least `size` allocated bytes."""
        while self._spares:
            spare = posixpath.join(self._directory, self._spares.pop(0))
            try:
                fd = self._fs.open(spare)
            except FileNotFoundError:
                continue  # somebody tidied up
            if self._fs.size(fd) >= size:
                self._fs.rename(spare, path)
                return fd
            # Half made when the process stopped, or of a smaller setting: it would never be used.
            self._fs.close(fd)
            self._fs.unlink(spare)
        fd = self._fs.open(path, create=True)
        self._fill(fd, size)
        return fd

    def _fill(self, fd: int, size: int) -> None:
        self._fs.allocate(fd, size)
        for offset in range(0, size, len(_ZEROS)):
            self._fs.pwrite(fd, _ZEROS[: min(len(_ZEROS), size - offset)], offset)

    def make_spare(self, size: int) -> bool:
        """Make one segment ahead of need when there is none; returns whether it did."""
        if self._spares:
            return False
        name = f"{_SPARE}{self._next_spare}"
        path = posixpath.join(self._directory, name)
        self._next_spare += 1
        fd = self._fs.open(path, create=True)
        try:
            self._fill(fd, size)
            self._fs.fsync(fd)
        except OSError:
            # What could not be made whole must not hold the room that the journal needs.
            self._fs.unlink(path)
            raise
        finally:
            self._fs.close(fd)
        self._spares.append(name)
        return True

    def delete(self, segments: list[int], size: int) -> None:
        """Take emptied segments away, oldest first; some of the usual size are kept for use again.

        One after the other, each for good: were a later one gone before an earlier one, a removal
        would be missing, or the numbers between them.
        """
        for number in segments:
            path = posixpath.join(self._directory, segment_name(number))
            fd = self._fs.open(path, write=False)
            length = self._fs.size(fd)
            self._fs.close(fd)
            if len(self._spares) < _SPARES_MAX and length == size:
                name = f"{_SPARE}{self._next_spare}"
                self._next_spare += 1
                self._fs.rename(path, posixpath.join(self._directory, name))
                self._spares.append(name)
            else:
                self._fs.unlink(path)
            self._fs.fsync_dir(self._directory)

    def close(self) -> None:
        """Close the file that is being written."""
        if self._fd >= 0:
            self._fs.close(self._fd)
            self._fd = -1
