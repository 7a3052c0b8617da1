"""An append-only log of Arrow record batches that any Arrow program can open.

It knows offsets, rows and bytes; it knows no queue, no protocol and no clock. A log is a directory
of segments, each a pair of files named by the first offset they hold (20 decimal digits):

    NNN.arrows   an Arrow IPC stream: schema message, record-batch messages, end mark once sealed
    NNN.index    where the blocks are, little-endian:

        header  32 bytes   magic `SGIX`, version u16 = 1, checksum u16 = 1 (zlib.crc32),
                           first offset u64, zero x12, crc32 of the 28 bytes before u32
        entry   56 bytes   kind u8 (1 block, 2 seal), zero x3, rows u32, first offset u64,
                           end offset u64 (exclusive), position u64, size u64, newest ms u64,
                           crc32 of the block u32, crc32 of the 52 bytes before u32

A block counts once its entry is synced, and its entry is written only after the block is synced.
So when a log is opened:

    last segment, bytes behind the last entry        torn tail: cut
    last segment, bad last entry                     torn tail: cut (nothing was promised on it)
    a bad entry with a good one behind it            damage: refused with file and offset
    a block whose checksum is wrong                  damage, at opening (last) or reading (sealed)
    a sealed segment of another length, a hole       damage

A segment that was there before is never appended to: what is left of it is sealed at opening.
Offsets of rows ascend but need not be dense; a block covers [first, end) whatever it holds.

One thread appends and drops; any thread may read.
"""

from __future__ import annotations

import posixpath
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa

from storage.errors import DamageError, FormatError, StorageError
from storage.files import FileSystem, durable_replace, read_file

#: What a segment holds for each message.
SCHEMA: Final = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("flags", pa.int32(), nullable=False),
        pa.field("raw", pa.binary(), nullable=False),
    ]
)
SEGMENT_BYTES: Final = 64 << 20
END_MARK: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"

_HEADER: Final = struct.Struct("<4sHHQ12xI")
_ENTRY: Final = struct.Struct("<B3xIQQQQQII")
_MAGIC: Final = b"SGIX"
_VERSION: Final = 1
_CRC32: Final = 1
_BLOCK: Final = 1
_SEAL: Final = 2
SCHEMA_MESSAGE: Final = SCHEMA.serialize().to_pybytes()


class GoneError(LookupError):
    """The block was dropped by retention after it was looked up."""


#: What is appended: first offset, end offset (exclusive), newest timestamp in ms, rows.
Rows: TypeAlias = tuple[int, int, int, pa.RecordBatch]


class BlockRef(NamedTuple):
    """Where a stored block is."""

    path: str
    first: int
    end: int
    rows: int
    position: int
    size: int
    newest_ms: int
    crc: int


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


class _Segment:
    """One pair of files; descriptors only while it takes appends."""

    __slots__ = ("base", "blocks", "fd", "first", "index_fd", "index_size", "size")

    def __init__(self, base: str, first: int) -> None:
        self.base = base
        self.first = first
        self.blocks: list[BlockRef] = []
        self.size = len(SCHEMA_MESSAGE)
        self.index_size = _HEADER.size
        self.fd = -1
        self.index_fd = -1

    @property
    def path(self) -> str:
        return self.base + ".arrows"

    @property
    def index_path(self) -> str:
        return self.base + ".index"

    @property
    def end(self) -> int:
        return self.blocks[-1].end if self.blocks else self.first

    def facts(self) -> SegmentFacts:
        return SegmentFacts(
            first=self.first,
            end=self.end,
            rows=sum(b.rows for b in self.blocks),
            size_bytes=self.size + self.index_size,
            newest_ms=self.blocks[-1].newest_ms if self.blocks else 0,
        )


class ArrowLog:
    """The log of one stream.

    Attributes:
        next_offset: the offset that the next block must begin with.
    """

    def __init__(
        self, fs: FileSystem, directory: str, *, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        """Open the log in `directory` (made when missing). Raises DamageError, FormatError."""
        self._fs = fs
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._failed: OSError | None = None
        self._active: _Segment | None = None
        fs.mkdir(directory)
        self._segments: tuple[_Segment, ...] = _recover(fs, directory)
        self.next_offset = self._segments[-1].end if self._segments else 0

    @property
    def first_offset(self) -> int:
        """The lowest offset that is still here; `next_offset` when nothing is."""
        segments = self._segments
        return segments[0].first if segments else self.next_offset

    def segments(self) -> list[SegmentFacts]:
        """Return all segments, oldest first."""
        return [segment.facts() for segment in self._segments]

    def blocks(self, start: int, end: int) -> list[BlockRef]:
        """Return the blocks that hold any offset of [start, end), in order."""
        found: list[BlockRef] = []
        for segment in self._segments:
            if segment.first < end and segment.end > start:
                found += [b for b in segment.blocks if b.first < end and b.end > start]
        return found

    def files(self) -> list[LogFile]:
        """Return all files as they have to be now. Any thread."""
        return [_as_it_should_be(s, sealed=s is not self._active) for s in self._segments]

    def holds(self, path: str) -> bool:
        """Whether an Arrow file is one of this log's. Any thread."""
        return any(segment.path == path for segment in self._segments)

    def append(self, blocks: Sequence[Rows]) -> None:
        """Add blocks; they are on the device when this returns. Blocks the thread.

        Raises OSError: a full disk leaves the log as it was; a failed sync ends its use for good,
        since nobody can tell any more what reached the device.
        """
        if self._failed is not None:
            raise StorageError(
                f"{self._directory} takes nothing after a failed sync: {self._failed}."
            )
        position = 0
        while position < len(blocks):
            position += self._append_some(blocks[position:])
        assert position == len(blocks), "a block was left out"

    def _append_some(self, blocks: Sequence[Rows]) -> int:
        """Append as many blocks as the active segment takes, with one sync for all of them."""
        segment = self._open_segment(blocks[0][0])
        parts: list[bytes] = []
        entries: list[bytes] = []
        refs: list[BlockRef] = []
        size = segment.size
        for first, end, newest_ms, batch in blocks:
            if refs and size >= self._segment_bytes:
                break
            previous = refs[-1].end if refs else segment.end
            if first != previous or end <= first:
                raise ValueError(f"block [{first}, {end}) does not follow {previous}")
            part = batch.serialize().to_pybytes()
            crc = _checksum(part, first)
            ref = BlockRef(
                segment.path, first, end, batch.num_rows, size, len(part), newest_ms, crc
            )
            parts.append(part)
            refs.append(ref)
            entries.append(_entry(_BLOCK, ref))
            size += len(part)
        assert refs, "the segment takes no block, and none would"
        self._write(segment, b"".join(parts), b"".join(entries))
        segment.blocks.extend(refs)
        self.next_offset = segment.end
        return len(refs)

    def _write(self, segment: _Segment, data: bytes, entries: bytes) -> None:
        """Write data, sync, then entries, sync: an entry on disk vouches for its block."""
        assert segment.fd >= 0, "the segment is sealed"
        assert segment.index_fd >= 0, "its index is sealed"
        fs = self._fs
        try:
            fs.pwrite(segment.fd, data, segment.size)
        except OSError:
            fs.truncate(segment.fd, segment.size)
            raise
        self._sync(segment.fd)
        try:
            fs.pwrite(segment.index_fd, entries, segment.index_size)
        except OSError:
            fs.truncate(segment.index_fd, segment.index_size)
            fs.truncate(segment.fd, segment.size)
            raise
        self._sync(segment.index_fd)
        segment.size += len(data)
        segment.index_size += len(entries)

    def _sync(self, fd: int) -> None:
        try:
            self._fs.fdatasync(fd)
        except OSError as error:
            self._failed = error
            raise

    def _open_segment(self, first: int) -> _Segment:
        """Return the segment that takes the next block, rolled when the last one is full."""
        segment = self._active
        if segment is not None and segment.size < self._segment_bytes:
            return segment
        if segment is not None:
            self._seal_active(segment)
        segment = _Segment(posixpath.join(self._directory, f"{first:020d}"), first)
        _create_files(self._fs, segment, self._directory)
        self._active = segment
        self._segments = (*self._segments, segment)
        return segment

    def _seal_active(self, segment: _Segment) -> None:
        _seal(self._fs, segment, self._sync)
        self._active = None

    def read(self, ref: BlockRef) -> pa.RecordBatch:
        """Return a stored block. Raises GoneError, DamageError. Any thread."""
        assert ref.first < ref.end, "the block is a mark"
        try:
            fd = self._fs.open(ref.path, write=False)
        except FileNotFoundError:
            raise GoneError(ref.path) from None
        try:
            data = self._fs.pread(fd, ref.size, ref.position)
        finally:
            self._fs.close(fd)
        _check_block(ref, data)
        return pa.ipc.read_record_batch(pa.py_buffer(data), SCHEMA)

    def drop(self, count: int) -> int:
        """Delete up to `count` oldest segments, never the newest; returns the bytes given back."""
        assert count >= 0, f"{count} segments"
        freed = 0
        for segment in self._segments[: min(count, len(self._segments) - 1)]:
            self._segments = self._segments[1:]
            _unlink_pair(self._fs, segment, self._directory)
            freed += segment.size + segment.index_size
        assert self._segments or not freed, "the newest is gone too"
        return freed

    def close(self) -> None:
        """Seal what is open, so that every file is a complete Arrow stream."""
        segment = self._active
        if segment is not None and self._failed is None:
            self._seal_active(segment)

    def delete(self) -> None:
        """Remove all files of the log."""
        if self._active is not None:
            self._fs.close(self._active.fd)
            self._fs.close(self._active.index_fd)
            self._active = None
        segments, self._segments = self._segments, ()
        for segment in segments:
            self._fs.unlink(segment.path)
            self._fs.unlink(segment.index_path)
        self._fs.fsync_dir(self._directory)


def _as_it_should_be(segment: _Segment, *, sealed: bool) -> LogFile:
    blocks = tuple(segment.blocks)
    parts = [_index_header(segment.first), *(_entry(_BLOCK, ref) for ref in blocks)]
    if sealed:
        parts.append(_entry(_SEAL, _seal_mark(segment, segment.size - len(END_MARK))))
    return LogFile(
        path=segment.path,
        index_path=segment.index_path,
        blocks=blocks,
        size=segment.size if sealed else 0,
        index=b"".join(parts),
    )


def _index_header(first: int) -> bytes:
    header = _HEADER.pack(_MAGIC, _VERSION, _CRC32, first, 0)[:-4]
    return header + struct.pack("<I", zlib.crc32(header))


def _seal_mark(segment: _Segment, at: int) -> BlockRef:
    return BlockRef(segment.path, segment.end, segment.end, 0, at, len(END_MARK), 0, 0)


def _entry(kind: int, ref: BlockRef) -> bytes:
    assert ref.first <= ref.end, "the block ends before it begins"
    body = _ENTRY.pack(
        kind, ref.rows, ref.first, ref.end, ref.position, ref.size, ref.newest_ms, ref.crc, 0
    )[:-4]
    return body + struct.pack("<I", zlib.crc32(body))


def _checksum(data: bytes, first: int) -> int:
    """Return the checksum of a block, salted with its offset: a misplaced block does not pass."""
    return zlib.crc32(data, first & 0xFFFFFFFF)


def _check_block(ref: BlockRef, data: bytes) -> None:
    if len(data) != ref.size:
        what = f"the block of offsets {ref.first} to {ref.end - 1} ends early"
        raise DamageError(ref.path, ref.position, what)
    if _checksum(data, ref.first) != ref.crc:
        what = f"the checksum of the block of offsets {ref.first} to {ref.end - 1} is wrong"
        raise DamageError(ref.path, ref.position, what)


def _create_files(fs: FileSystem, segment: _Segment, directory: str) -> None:
    """Make both files, index first: an index without entries and segment is an unfinished start."""
    assert segment.fd < 0, "the files are made"
    created: list[tuple[int, str]] = []
    try:
        for path, data in (
            (segment.index_path, _index_header(segment.first)),
            (segment.path, SCHEMA_MESSAGE),
        ):
            created.append((fs.open(path, create=True), path))
            fs.pwrite(created[-1][0], data, 0)
            fs.fsync(created[-1][0])
            # Before the next name: two unsynced names can come out of a power cut in any order.
            fs.fsync_dir(directory)
    except OSError:
        for fd, path in created:
            fs.close(fd)
            fs.unlink(path)
        raise
    segment.index_fd, segment.fd = created[0][0], created[1][0]


def _unlink_pair(fs: FileSystem, segment: _Segment, directory: str) -> None:
    """Delete both files, the index last and after the other is gone for good.

    Alone, the index still says that what it names was dropped on purpose.
    """
    assert segment.fd < 0, "an open file would outlive its name"
    assert segment.index_fd < 0, "an open index would outlive its name"
    if fs.exists(segment.path):
        fs.unlink(segment.path)
        fs.fsync_dir(directory)
    fs.unlink(segment.index_path)
    fs.fsync_dir(directory)


def _seal(fs: FileSystem, segment: _Segment, sync: Callable[[int], None]) -> None:
    """End the segment's Arrow stream and say so in the index; closes both files."""
    assert segment.fd >= 0, "the segment is sealed"
    assert segment.index_fd >= 0, "its index is sealed"
    fs.pwrite(segment.fd, END_MARK, segment.size)
    sync(segment.fd)
    mark = _seal_mark(segment, segment.size)
    fs.pwrite(segment.index_fd, _entry(_SEAL, mark), segment.index_size)
    sync(segment.index_fd)
    segment.size += len(END_MARK)
    segment.index_size += _ENTRY.size
    fs.close(segment.fd)
    fs.close(segment.index_fd)
    segment.fd = segment.index_fd = -1


def _recover(fs: FileSystem, directory: str) -> tuple[_Segment, ...]:
    """Read all indexes, cut the torn tail, refuse damage, seal the last segment."""
    names = fs.listdir(directory)
    bases = sorted(n[:-6] for n in names if n.endswith(".index") and n[:-6].isdigit())
    for name in names:
        if name.endswith(".arrows") and name[:-7].isdigit() and name[:-7] not in bases:
            raise DamageError(posixpath.join(directory, name), 0, "its index file is missing")
    segments: list[_Segment] = []
    for base in bases:
        last = base == bases[-1]
        segment = _Segment(posixpath.join(directory, base), int(base))
        sealed = _load_index(fs, segment, last=last)
        if not fs.exists(segment.path):
            _check_orphan(segment, older=bool(segments), last=last)
            _unlink_pair(fs, segment, directory)
            continue
        if segment.blocks:
            _join(fs, segments, segment, sealed=sealed, last=last)
        else:
            # Nothing was ever promised on it: a start that did not get to its first block.
            _unlink_pair(fs, segment, directory)
    return tuple(segments)


def _check_orphan(segment: _Segment, *, older: bool, last: bool) -> None:
    """Raise unless a crash explains an index alone: creation of the last, drop of the oldest."""
    unfinished_start = last and not segment.blocks
    unfinished_drop = not older and not last
    if not (unfinished_start or unfinished_drop):
        raise DamageError(segment.index_path, 0, f"{segment.path}, which it describes, is missing")


def _join(
    fs: FileSystem, segments: list[_Segment], segment: _Segment, *, sealed: bool, last: bool
) -> None:
    """Take a segment with blocks into the log after checking that it follows the one before."""
    assert segment.blocks, "nothing was ever promised on it"
    if segments and segments[-1].end != segment.first:
        what = f"offsets {segments[-1].end} to {segment.first - 1} are missing before it"
        raise DamageError(segment.path, 0, what)
    if not sealed and not last:
        raise DamageError(segment.index_path, segment.index_size, "the seal is missing")
    if sealed:
        _check_sealed(fs, segment)
    else:
        _finish_last(fs, segment)
    segments.append(segment)


def _check_sealed(fs: FileSystem, segment: _Segment) -> None:
    """Check length, schema and end mark; the blocks are checked when they are read."""
    fd = fs.open(segment.path, write=False)
    try:
        size = fs.size(fd)
        schema = fs.pread(fd, len(SCHEMA_MESSAGE), 0)
        mark = fs.pread(fd, len(END_MARK), segment.size - len(END_MARK))
    finally:
        fs.close(fd)
    if size != segment.size:
        at = min(size, segment.size)
        raise DamageError(segment.path, at, f"it has {size} bytes instead of {segment.size}")
    if schema != SCHEMA_MESSAGE:
        raise DamageError(segment.path, 0, "the schema is not what was written")
    if mark != END_MARK:
        raise DamageError(segment.path, size - len(END_MARK), "the end mark is missing")


def _finish_last(fs: FileSystem, segment: _Segment) -> None:
    """Verify every block of an unsealed segment, cut what is behind them, and seal it."""
    assert segment.fd < 0, "the segment is open"
    segment.fd = fs.open(segment.path)
    segment.index_fd = fs.open(segment.index_path)
    fs.drop_cache(segment.fd)
    if fs.pread(segment.fd, len(SCHEMA_MESSAGE), 0) != SCHEMA_MESSAGE:
        raise DamageError(segment.path, 0, "the schema is not what was written")
    for ref in segment.blocks:
        _check_block(ref, fs.pread(segment.fd, ref.size, ref.position))
    fs.truncate(segment.fd, segment.size)
    fs.truncate(segment.index_fd, segment.index_size)
    _seal(fs, segment, fs.fdatasync)
    assert segment.fd < 0, "the segment stays open"


def _load_index(fs: FileSystem, segment: _Segment, *, last: bool) -> bool:
    """Fill `segment` from its index; returns whether it is sealed."""
    path = segment.index_path
    data = read_file(fs, path)
    if not _check_header(path, data, segment.first, last=last):
        return False
    position = _HEADER.size
    while position + _ENTRY.size <= len(data):
        entry = data[position : position + _ENTRY.size]
        if zlib.crc32(entry[:-4]) != int.from_bytes(entry[-4:], "little"):
            _check_torn(path, data, position, last=last)
            return False
        kind, rows, first, end, at, size, newest_ms, crc, _ = _ENTRY.unpack(entry)
        if first != segment.end or at != segment.size:
            raise DamageError(path, position, "the entry does not follow the one before")
        position += _ENTRY.size
        segment.index_size = position
        segment.size += size
        if kind == _SEAL:
            if position != len(data):
                raise DamageError(path, position, "there are bytes behind the seal")
            return True
        segment.blocks.append(BlockRef(segment.path, first, end, rows, at, size, newest_ms, crc))
    return False


def _check_header(path: str, data: bytes, first: int, *, last: bool) -> bool:
    """Return False for the header of a start that was cut; raises for damage."""
    header = data[: _HEADER.size]
    good = len(header) == _HEADER.size and zlib.crc32(header[:-4]) == int.from_bytes(
        header[-4:], "little"
    )
    if not good:
        if last and len(data) <= _HEADER.size:
            return False
        raise DamageError(path, 0, "the header is not what was written")
    magic, version, checksum, named_first, _ = _HEADER.unpack(header)
    if magic != _MAGIC or named_first != first:
        raise DamageError(path, 0, "the header belongs to another file")
    if (version, checksum) != (_VERSION, _CRC32):
        raise FormatError(f"{path} has format {version}.{checksum}; this program knows 1.1.")
    return True


def _check_torn(path: str, data: bytes, position: int, *, last: bool) -> None:
    """Raise DamageError unless the bad entry at `position` can be the end of a cut write."""
    for at in range(position + _ENTRY.size, len(data) - _ENTRY.size + 1, _ENTRY.size):
        entry = data[at : at + _ENTRY.size]
        if zlib.crc32(entry[:-4]) == int.from_bytes(entry[-4:], "little"):
            raise DamageError(path, position, "an entry is not what was written, a later one is")
    if not last:
        raise DamageError(path, position, "an entry of a sealed segment is not what was written")


class StreamFiles:
    """The folder of all streams: small state files, replaced whole, and one log for each stream."""

    def __init__(self, fs: FileSystem, root: str, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._fs = fs
        self._root = root
        self._segment_bytes = segment_bytes
        fs.mkdir(root)

    def load(self, name: str) -> bytes | None:
        """Return the state file `name` (a path below the folder); None when there is none."""
        path = posixpath.join(self._root, name)
        return read_file(self._fs, path) if self._fs.exists(path) else None

    def save(self, name: str, data: bytes) -> None:
        """Replace the state file `name`; on the device when this returns. Blocks the thread."""
        path = posixpath.join(self._root, name)
        self._fs.mkdir(posixpath.dirname(path))
        durable_replace(self._fs, path, data)

    def open_log(self, stream_id: int) -> ArrowLog:
        """Open the log of a stream, recovered. Raises DamageError, FormatError."""
        directory = posixpath.join(self._root, str(stream_id))
        return ArrowLog(self._fs, directory, segment_bytes=self._segment_bytes)

    def remove(self, name: str) -> None:
        """Delete the state file `name` if it is there."""
        path = posixpath.join(self._root, name)
        if self._fs.exists(path):
            self._fs.unlink(path)
