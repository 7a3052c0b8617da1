"""Segment files: their names, opening them, writing batches into them, taking them away.

A segment is preallocated and zero-filled before its first use, so that running out of disk happens
here and not in the middle of a record, and so that a sync has no new extents to record. Files that
are emptied are used again (see `storage.spares`): their old bytes cannot pass the new salt.

    file ready ──name──> header ──sync file, sync directory──> batches, one sync each

When the disk has no room for a whole file, the ballast makes room for as much as a batch needs, and
the file grows with each further batch: no write ever meets the end of the disk in its middle.

No batch is written before header and name are on the device, so a file whose header is not its own
has nothing in it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from typing import Final

from storage.ballast import NO_ROOM, Ballast
from storage.compaction import Piece
from storage.files import FileSystem
from storage.record import (
    BATCH_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    encode_batch,
    encode_segment_header,
    salt_of,
)
from storage.recovery import read_piece
from storage.spares import Spares

_SUFFIX: Final = ".journal"
#: What a file grows by, at least, while the disk is full.
_TIGHT_STEP: Final = 1 << 20
#: ... and when not even that much is left.
_BLOCK: Final = 4096


def segment_name(number: int) -> str:
    """Return the file name of a segment; names sort as numbers do."""
    assert number >= 0, f"segment {number}"
    return f"{number:016d}{_SUFFIX}"


def segment_number(name: str) -> int | None:
    """Return the number of a segment file's name, None for other files."""
    stem = name.removesuffix(_SUFFIX)
    if not (stem.isascii() and stem.isdigit()):
        return None
    return int(stem) if segment_name(int(stem)) == name else None


class Segments:
    """The journal directory as the writer sees it. All calls may block; all errors are OSError.

    One thread writes, deletes and closes; another one may make spares meanwhile.
    """

    __slots__ = (
        "_allocated",
        "_ballast",
        "_directory",
        "_dirty",
        "_fd",
        "_fs",
        "_make_uuid",
        "_number",
        "_offset",
        "_size",
        "_spares",
        "_uuid",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        make_uuid: Callable[[], bytes],
        ballast: Ballast | None = None,
    ) -> None:
        """Take up what is in `directory`; without `ballast` a full disk is a failure."""
        self._fs = fs
        self._directory = directory
        self._make_uuid = make_uuid
        self._fd = -1
        self._dirty = False  # something in the file is not synced
        self._number = -1
        self._uuid = b""
        self._offset = 0
        self._size = 0
        self._allocated = 0
        self._ballast = ballast
        self._spares = Spares(fs, directory)

    @property
    def spares_ready(self) -> int:
        """How many segments are made ahead."""
        return len(self._spares)

    @property
    def current(self) -> int:
        """The segment whose file is open, with room for all that was placed in it; -1: none."""
        return self._number

    def write(
        self,
        payload: bytes,
        *,
        number: int,
        synced: int,
        segment: int,
        size: int,
        firm: bool = True,
    ) -> int:
        """Write one batch behind the others and, if it is to be firm, sync all of them.

        Returns the bytes written. Opens `segment` (with at least `size` bytes) when it is not the
        current one; what is in that is synced before.
        """
        assert synced < number, f"batch {number} says that {synced} is synced"
        if segment != self._number:
            self._open(
                segment, size, number, SEGMENT_HEADER_BYTES + BATCH_HEADER_BYTES + len(payload)
            )
        offset = self._offset
        head = encode_batch(payload, number, synced, salt_of(self._uuid, offset))
        data = head + payload
        assert offset + len(data) <= self._size, (
            "a batch does not fit the room that was counted for it"
        )
        if offset + len(data) > self._allocated:
            self._reserve(self._fd, offset + len(data))
        self._fs.pwrite(self._fd, data, offset)
        self._dirty = True
        if firm:
            self._sync()
        assert self._dirty != firm, "the batch is to be synced, or not"
        self._offset = offset + len(data)
        return len(data)

    def _sync(self) -> None:
        assert self._fd >= 0, "no segment is open"
        self._fs.fdatasync(self._fd)
        self._dirty = False

    def _open(self, segment: int, size: int, first: int, needed: int) -> None:
        assert segment > self._number, f"segment {segment} comes after {self._number}"
        assert needed <= size, f"the first batch needs {needed} of {size} bytes"
        if self._fd >= 0:
            if self._dirty:
                self._sync()
            self._fs.close(self._fd)
            self._fd = -1
        path = posixpath.join(self._directory, segment_name(segment))
        try:
            self._fd = self._spares.file_for(path, size)
            self._allocated = size
        except OSError as error:
            if error.errno not in NO_ROOM or self._ballast is None:
                raise
            self._allocated = 0
            self._fd = self._open_scarce(path, self._ballast)
            self._reserve(self._fd, needed)
        self._uuid = self._make_uuid()
        self._fs.pwrite(self._fd, encode_segment_header(segment, self._uuid, first), 0)
        self._fs.fsync(self._fd)
        self._fs.fsync_dir(self._directory)
        self._number = segment
        self._offset = SEGMENT_HEADER_BYTES
        self._size = size

    def _open_scarce(self, path: str, ballast: Ballast) -> int:
        """Return a descriptor of a new file on a full disk, which may have no inode left either."""
        try:
            return self._fs.open(path, create=True)
        except OSError as error:
            if error.errno not in NO_ROOM or not ballast.become(path):
                raise
        return self._fs.open(path)

    def _reserve(self, fd: int, end: int) -> None:
        """See to it that the file has blocks up to `end`, with the ballast's help. OSError: not."""
        assert end > self._allocated, "the file has them"
        whole = -(-end // _TIGHT_STEP) * _TIGHT_STEP
        least = -(-end // _BLOCK) * _BLOCK
        given = True
        while True:
            try:
                self._fs.allocate(fd, whole)
            except OSError as error:
                if error.errno not in NO_ROOM or self._ballast is None:
                    raise
                if not given:
                    if whole == least:
                        raise
                    # What is left is less than a step, and may be enough for this batch.
                    whole = least
                    continue
                # Once more when nothing was left to give: somebody else may have made room.
                given = self._ballast.give(whole - self._allocated)
            else:
                self._allocated = whole
                assert whole >= end, "the file has fewer"
                return

    def make_spare(self, size: int, go_on: Callable[[], bool] = lambda: True) -> bool:
        """Make one segment ahead of need when none is; returns whether it did.

        May run on a thread of its own. `go_on` is asked before each write; at no, nothing is left.
        """
        return self._spares.make(size, go_on)

    def read(self, segment: int, offset: int) -> Piece:
        """Return what a segment adds from `offset` on, a piece of it. Raises StorageError too."""
        assert offset >= 0, f"a piece from {offset} on"
        path = posixpath.join(self._directory, segment_name(segment))
        fd = self._fs.open(path, write=False)
        try:
            return read_piece(path, segment, offset, lambda at, n: self._fs.pread(fd, n, at))
        finally:
            self._fs.close(fd)

    def delete(self, segments: Sequence[int], size: int) -> None:
        """Take emptied segments away, oldest first; some of the usual `size` are used again.

        One after the other, each for good: were a later one gone before an earlier one, a removal
        would be missing, or the numbers between them.
        """
        assert list(segments) == sorted(segments), f"{segments}: not the oldest first"
        for number in segments:
            path = posixpath.join(self._directory, segment_name(number))
            fd = self._fs.open(path, write=False)
            length = self._fs.size(fd)
            self._fs.close(fd)
            self._spares.keep(path, length, size)
            self._fs.fsync_dir(self._directory)

    def close(self) -> None:
        """Close the file that is being written."""
        if self._fd >= 0:
            self._fs.close(self._fd)
            self._fd = -1
