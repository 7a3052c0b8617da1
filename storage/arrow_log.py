"""An append-only log of Arrow record batches that any Arrow program can open.

It knows offsets, rows and bytes; it knows no queue, no protocol and no clock. A log is a directory
of segments (`arrow_segment`), each a pair of files named by the first offset they hold (20 decimal
digits): an Arrow IPC stream and the index of its blocks. The newest segment takes appends until it
is full; all others are sealed. What a crash leaves is told from damage at opening
(`arrow_recovery`).

A block counts once its entry in the index is synced, and its entry is written only after the block
is synced. Offsets of rows ascend but need not be dense; a block covers [first, end) whatever it
holds.

One thread appends and drops; any thread may read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import pyarrow as pa

from storage.arrow_index import BlockRef
from storage.arrow_recovery import recover
from storage.arrow_segment import (
    LogFile,
    Segment,
    SegmentFacts,
    block_checksum,
    read_block,
    read_bytes,
)
from storage.errors import StorageError
from storage.files import FileSystem

SEGMENT_BYTES: Final = 64 << 20

#: What is appended: first offset, end offset (exclusive), newest timestamp in ms, rows.
Rows: TypeAlias = tuple[int, int, int, pa.RecordBatch]


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
        self._active: Segment | None = None
        fs.mkdir(directory)
        self._segments = recover(fs, directory)
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
        return [s.as_it_should_be(sealed=s is not self._active) for s in self._segments]

    def holds(self, path: str) -> bool:
        """Whether an Arrow file is one of this log's. Any thread."""
        return any(segment.path == path for segment in self._segments)

    def append(self, blocks: Sequence[Rows]) -> None:
        """Add blocks; they are on the device when this returns. Blocks the thread.

        Raises OSError: a full disk leaves the log as it was; a failed sync ends its use for good,
        since nobody can tell any more what reached the device.
        """
        if self._active is not None and self._active.failed is not None:
            raise StorageError(
                f"{self._directory} takes nothing after a failed sync: {self._active.failed}."
            )
        position = 0
        while position < len(blocks):
            position += self._append_some(blocks[position:])
        assert position == len(blocks), "a block was left out"

    def _append_some(self, blocks: Sequence[Rows]) -> int:
        """Append as many blocks as the active segment takes, with one sync for all of them."""
        segment = self._open_segment(blocks[0][0])
        parts: list[bytes] = []
        refs: list[BlockRef] = []
        size = segment.size
        for first, end, newest_ms, batch in blocks:
            if refs and size >= self._segment_bytes:
                break
            previous = refs[-1].end if refs else segment.end
            if first != previous or end <= first:
                raise ValueError(f"block [{first}, {end}) does not follow {previous}")
            part = batch.serialize().to_pybytes()
            crc = block_checksum(part, first)
            ref = BlockRef(
                segment.path, first, end, batch.num_rows, size, len(part), newest_ms, crc
            )
            parts.append(part)
            refs.append(ref)
            size += len(part)
        assert refs, "the segment takes no block, and none would"
        segment.write(b"".join(parts), refs)
        self.next_offset = segment.end
        return len(refs)

    def _open_segment(self, first: int) -> Segment:
        """Return the segment that takes the next block, rolled when the last one is full."""
        segment = self._active
        if segment is not None and segment.size < self._segment_bytes:
            return segment
        if segment is not None:
            self._seal_active(segment)
        segment = Segment(self._fs, self._directory, f"{first:020d}")
        segment.create()
        self._active = segment
        self._segments = (*self._segments, segment)
        return segment

    def _seal_active(self, segment: Segment) -> None:
        segment.seal()
        # Not before: a segment whose seal failed stays, and with it the failure.
        self._active = None

    def read(self, ref: BlockRef) -> pa.RecordBatch:
        """Return a stored block. Raises GoneError, DamageError. Any thread."""
        return read_block(self._fs, ref)

    def read_bytes(self, ref: BlockRef) -> bytes:
        """Return a stored block as it lies there. Raises GoneError, DamageError. Any thread."""
        return read_bytes(self._fs, ref)

    def drop(self, count: int) -> int:
        """Delete up to `count` oldest segments, never the newest; returns the bytes given back."""
        assert count >= 0, f"{count} segments"
        freed = 0
        for segment in self._segments[: min(count, len(self._segments) - 1)]:
            self._segments = self._segments[1:]
            segment.delete()
            freed += segment.size + segment.index_size
        assert self._segments or not freed, "the newest is gone too"
        return freed

    def close(self) -> None:
        """Seal what is open, so that every file is a complete Arrow stream."""
        segment = self._active
        if segment is not None and segment.failed is None:
            self._seal_active(segment)

    def delete(self) -> None:
        """Remove all files of the log."""
        if self._active is not None:
            self._active.close()
            self._active = None
        segments, self._segments = self._segments, ()
        for segment in segments:
            self._fs.unlink(segment.path)
            self._fs.unlink(segment.index_path)
        self._fs.fsync_dir(self._directory)
