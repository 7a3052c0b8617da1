"""One segment of an Arrow log: a pair of files, and the order in which they are written.

    NNN.arrows   an Arrow IPC stream: schema message, record-batch messages, end mark once sealed
    NNN.index    where the blocks are (`arrow_index`)

    create ──> open ──write──> open ──seal──> sealed ──delete──> gone
                        └──a sync failed──> failed: nobody can tell what reached the device

The index is made first and deleted last: alone, without an entry, it is a start that did not get
far; alone, with entries, it says that what it names was dropped on purpose. A block is synced
before the entry that vouches for it is written. A segment has descriptors only while it is open.
"""

from __future__ import annotations

import posixpath
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from storage.arrow_index import (
    END_MARK,
    ENTRY_BYTES,
    HEADER_BYTES,
    BlockRef,
    Index,
    block_entry,
    index_header,
    seal_entry,
    whole_index,
)
from storage.errors import DamageError
from storage.files import FileSystem

#: What a segment holds for each message.
SCHEMA: Final = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("flags", pa.int32(), nullable=False),
        pa.field("raw", pa.binary(), nullable=False),
    ]
)
SCHEMA_MESSAGE: Final = SCHEMA.serialize().to_pybytes()


class GoneError(LookupError):
    """The block was dropped by retention after it was looked up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """What retention needs to know of a segment."""

    first: int
    end: int
    rows: int
    size_bytes: int
    newest_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """One pair of files as it has to be now: for whoever checks it.

    `size` is that of the sealed Arrow file, 0 while it still grows; `index` are the bytes of the
    index up to now. The checksum of a block is `zlib.crc32`, begun with the low 32 bits of its
    first offset.
    """

    path: str
    index_path: str
    blocks: Sequence[BlockRef]
    size: int
    index: bytes


class Segment:
    """See the module text.

    Attributes:
        first: the offset that it begins with, as its name says.
        blocks: the blocks that count: their entries are on the device.
        size: bytes of the Arrow file that count; `index_size` those of the index.
        failed: the failure of a sync; then the segment takes nothing any more.
    """

    __slots__ = (
        "_directory",
        "_fs",
        "blocks",
        "failed",
        "fd",
        "first",
        "index_fd",
        "index_path",
        "index_size",
        "path",
        "size",
    )

    def __init__(self, fs: FileSystem, directory: str, name: str) -> None:
        """Name the segment of `directory` whose files are called `name`; touches no file."""
        base = posixpath.join(directory, name)
        self._fs = fs
        self._directory = directory
        self.first = int(name)
        self.path = base + ".arrows"
        self.index_path = base + ".index"
        self.blocks: list[BlockRef] = []
        self.size = len(SCHEMA_MESSAGE)
        self.index_size = HEADER_BYTES
        self.fd = -1
        self.index_fd = -1
        self.failed: OSError | None = None

    @property
    def end(self) -> int:
        """The offset behind its last block."""
        return self.blocks[-1].end if self.blocks else self.first

    def facts(self) -> SegmentFacts:
        """Return what retention needs to know."""
        return SegmentFacts(
            first=self.first,
            end=self.end,
            rows=sum(b.rows for b in self.blocks),
            size_bytes=self.size + self.index_size,
            newest_ms=self.blocks[-1].newest_ms if self.blocks else 0,
        )

    def as_it_should_be(self, *, sealed: bool) -> LogFile:
        """Return the pair as it has to be on the device. Any thread."""
        blocks = tuple(self.blocks)
        index = whole_index(self.first, blocks)
        if sealed:
            index += seal_entry(self.path, self.end, self.size - len(END_MARK))
        return LogFile(
            path=self.path,
            index_path=self.index_path,
            blocks=blocks,
            size=self.size if sealed else 0,
            index=index,
        )

    def load(self, index: Index) -> None:
        """Take over what the index on the device says."""
        assert not self.blocks, "the segment has blocks already"
        self.blocks = index.blocks
        self.size = index.size
        self.index_size = index.index_size

    def create(self) -> None:
        """Make both files, index first; raises OSError, and then neither is left."""
        assert self.fd < 0, "the files are made"
        fs = self._fs
        created: list[tuple[int, str]] = []
        try:
            for path, data in (
                (self.index_path, index_header(self.first)),
                (self.path, SCHEMA_MESSAGE),
            ):
                created.append((fs.open(path, create=True), path))
                fs.pwrite(created[-1][0], data, 0)
                fs.fsync(created[-1][0])
                # Before the next name: two unsynced names can come out of a power cut in any order.
                fs.fsync_dir(self._directory)
        except OSError:
            for fd, path in created:
                fs.close(fd)
                fs.unlink(path)
            raise
        self.index_fd, self.fd = created[0][0], created[1][0]

    def write(self, data: bytes, refs: Sequence[BlockRef]) -> None:
        """Add blocks, whose bytes are `data`; they are on the device when this returns.

        Raises OSError: with `failed` set a sync failed, without it the files are as they were.
        """
        assert self.fd >= 0, "the segment is sealed"
        assert self.index_fd >= 0, "its index is sealed"
        entries = b"".join([block_entry(ref) for ref in refs])
        fs = self._fs
        try:
            fs.pwrite(self.fd, data, self.size)
        except OSError:
            fs.truncate(self.fd, self.size)
            raise
        self._sync(self.fd)
        try:
            fs.pwrite(self.index_fd, entries, self.index_size)
        except OSError:
            fs.truncate(self.index_fd, self.index_size)
            fs.truncate(self.fd, self.size)
            raise
        self._sync(self.index_fd)
        self.size += len(data)
        self.index_size += len(entries)
        self.blocks.extend(refs)

    def seal(self) -> None:
        """End the Arrow stream and say so in the index; closes both files. Raises OSError."""
        assert self.fd >= 0, "the segment is sealed"
        assert self.index_fd >= 0, "its index is sealed"
        fs = self._fs
        fs.pwrite(self.fd, END_MARK, self.size)
        self._sync(self.fd)
        fs.pwrite(self.index_fd, seal_entry(self.path, self.end, self.size), self.index_size)
        self._sync(self.index_fd)
        self.size += len(END_MARK)
        self.index_size += ENTRY_BYTES
        self.close()

    def close(self) -> None:
        """Give the descriptors back."""
        self._fs.close(self.fd)
        self._fs.close(self.index_fd)
        self.fd = self.index_fd = -1

    def finish(self) -> None:
        """Verify every block of a segment that was not sealed, cut what is behind, and seal it.

        Raises DamageError, OSError.
        """
        assert self.fd < 0, "the segment is open"
        fs = self._fs
        self.fd = fs.open(self.path)
        self.index_fd = fs.open(self.index_path)
        fs.drop_cache(self.fd)
        if fs.pread(self.fd, len(SCHEMA_MESSAGE), 0) != SCHEMA_MESSAGE:
            raise DamageError(self.path, 0, "the schema is not what was written")
        for ref in self.blocks:
            check_block(ref, fs.pread(self.fd, ref.size, ref.position))
        fs.truncate(self.fd, self.size)
        fs.truncate(self.index_fd, self.index_size)
        self.seal()
        assert self.fd < 0, "the segment stays open"

    def check_sealed(self) -> None:
        """Check length, schema and end mark; the blocks are checked when they are read.

        Raises DamageError.
        """
        fs = self._fs
        fd = fs.open(self.path, write=False)
        try:
            size = fs.size(fd)
            schema = fs.pread(fd, len(SCHEMA_MESSAGE), 0)
            mark = fs.pread(fd, len(END_MARK), self.size - len(END_MARK))
        finally:
            fs.close(fd)
        if size != self.size:
            at = min(size, self.size)
            raise DamageError(self.path, at, f"it has {size} bytes instead of {self.size}")
        if schema != SCHEMA_MESSAGE:
            raise DamageError(self.path, 0, "the schema is not what was written")
        if mark != END_MARK:
            raise DamageError(self.path, size - len(END_MARK), "the end mark is missing")

    def delete(self) -> None:
        """Delete both files, the index last and after the other is gone for good."""
        assert self.fd < 0, "an open file would outlive its name"
        assert self.index_fd < 0, "an open index would outlive its name"
        fs = self._fs
        if fs.exists(self.path):
            fs.unlink(self.path)
            fs.fsync_dir(self._directory)
        fs.unlink(self.index_path)
        fs.fsync_dir(self._directory)

    def _sync(self, fd: int) -> None:
        try:
            self._fs.fdatasync(fd)
        except OSError as error:
            self.failed = error
            raise


def block_checksum(data: bytes, first: int) -> int:
    """Return the checksum of a block, salted with its offset: a misplaced block does not pass."""
    return zlib.crc32(data, first & 0xFFFFFFFF)


def check_block(ref: BlockRef, data: bytes) -> None:
    """Raise DamageError unless `data` is what was written as that block."""
    if len(data) != ref.size:
        what = f"the block of offsets {ref.first} to {ref.end - 1} ends early"
        raise DamageError(ref.path, ref.position, what)
    if block_checksum(data, ref.first) != ref.crc:
        what = f"the checksum of the block of offsets {ref.first} to {ref.end - 1} is wrong"
        raise DamageError(ref.path, ref.position, what)


def read_bytes(fs: FileSystem, ref: BlockRef) -> bytes:
    """Return a stored block, one whole IPC message. Raises GoneError, DamageError. Any thread."""
    assert ref.first < ref.end, "the block is a mark"
    try:
        fd = fs.open(ref.path, write=False)
    except FileNotFoundError:
        raise GoneError(ref.path) from None
    try:
        data = fs.pread(fd, ref.size, ref.position)
    finally:
        fs.close(fd)
    check_block(ref, data)
    return data


def read_block(fs: FileSystem, ref: BlockRef) -> pa.RecordBatch:
    """Return a stored block. Raises GoneError, DamageError. Any thread."""
    return pa.ipc.read_record_batch(pa.py_buffer(read_bytes(fs, ref)), SCHEMA)
