"""The index of one segment of an Arrow log, as bytes and as values.

It says which blocks the Arrow file beside it holds. Numbers are little-endian:

    header  32 bytes   magic `SGIX`, version u16 = 1, checksum u16 = 1 (zlib.crc32),
                       first offset u64, zero x12, crc32 of the 28 bytes before u32
    entry   56 bytes   kind u8 (1 block, 2 seal), zero x3, rows u32, first offset u64,
                       end offset u64 (exclusive), position u64, size u64, newest ms u64,
                       crc32 of the block u32, crc32 of the 52 bytes before u32

An entry follows the one before it, in offsets and in bytes of the Arrow file; a seal is the last
one. In the last segment of a log a bad entry at the end is a torn tail, and ends the index. A bad
entry with a good one behind it, or in an older segment, is damage. Pure.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from storage.errors import DamageError, FormatError

#: The end of an Arrow stream; a sealed Arrow file has it behind its blocks.
END_MARK: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"

_HEADER: Final = struct.Struct("<4sHHQ12xI")
_ENTRY: Final = struct.Struct("<B3xIQQQQQII")
_MAGIC: Final = b"SGIX"
_VERSION: Final = 1
_CRC32: Final = 1
_BLOCK: Final = 1
_SEAL: Final = 2
#: Sizes in bytes.
HEADER_BYTES: Final = _HEADER.size
ENTRY_BYTES: Final = _ENTRY.size


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


@dataclass(slots=True, kw_only=True)
class Index:
    """What an index says.

    Attributes:
        blocks: the blocks, in order.
        size: bytes of the Arrow file that count: up to the end of the last block, or of the seal.
        index_size: bytes of the index that count.
        sealed: whether the seal is there.
    """

    blocks: list[BlockRef] = field(default_factory=list)
    size: int
    index_size: int = HEADER_BYTES
    sealed: bool = False


def index_header(first: int) -> bytes:
    """Return the header of the index of the segment that begins with offset `first`."""
    header = _HEADER.pack(_MAGIC, _VERSION, _CRC32, first, 0)[:-4]
    return header + struct.pack("<I", zlib.crc32(header))


def block_entry(ref: BlockRef) -> bytes:
    """Return the entry of a block."""
    return _entry(_BLOCK, ref)


def seal_entry(path: str, end: int, position: int) -> bytes:
    """Return the seal of the Arrow file `path`, whose end mark is at byte `position`.

    `end` is the offset behind its last block.
    """
    return _entry(_SEAL, BlockRef(path, end, end, 0, position, len(END_MARK), 0, 0))


def whole_index(first: int, blocks: Sequence[BlockRef]) -> bytes:
    """Return an index up to its last block, without a seal."""
    return b"".join([index_header(first), *(block_entry(ref) for ref in blocks)])


def _entry(kind: int, ref: BlockRef) -> bytes:
    assert ref.first <= ref.end, "the block ends before it begins"
    body = _ENTRY.pack(
        kind, ref.rows, ref.first, ref.end, ref.position, ref.size, ref.newest_ms, ref.crc, 0
    )[:-4]
    return body + struct.pack("<I", zlib.crc32(body))


def read_index(
    index_path: str, data: bytes, path: str, *, first: int, start: int, last: bool
) -> Index:
    """Return what an index says, up to its torn tail.

    Args:
        index_path: names the file of the index, for errors.
        data: all its bytes.
        path: the Arrow file that the blocks are in.
        first: the offset that the segment begins with, as its name says.
        start: the byte of the Arrow file that the first block begins with.
        last: whether this is the last segment of its log, whose tail may be torn.

    Raises DamageError, FormatError.
    """
    index = Index(size=start)
    if not _check_header(index_path, data, first, last=last):
        return index
    end = first
    while index.index_size + ENTRY_BYTES <= len(data):
        position = index.index_size
        entry = data[position : position + ENTRY_BYTES]
        if not _is_whole(entry):
            _check_torn(index_path, data, position, last=last)
            return index
        kind, rows, begin, behind, at, size, newest_ms, crc, _ = _ENTRY.unpack(entry)
        if begin != end or at != index.size:
            raise DamageError(index_path, position, "the entry does not follow the one before")
        end = behind
        index.index_size += ENTRY_BYTES
        index.size += size
        if kind == _SEAL:
            if index.index_size != len(data):
                what = "there are bytes behind the seal"
                raise DamageError(index_path, index.index_size, what)
            index.sealed = True
            return index
        index.blocks.append(BlockRef(path, begin, behind, rows, at, size, newest_ms, crc))
    return index


def _is_whole(part: bytes) -> bool:
    """Whether a header or an entry is what was written."""
    return zlib.crc32(part[:-4]) == int.from_bytes(part[-4:], "little")


def _check_header(path: str, data: bytes, first: int, *, last: bool) -> bool:
    """Return False for the header of a start that was cut; raises for damage."""
    header = data[:HEADER_BYTES]
    if not (len(header) == HEADER_BYTES and _is_whole(header)):
        if last and len(data) <= HEADER_BYTES:
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
    for at in range(position + ENTRY_BYTES, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
        if _is_whole(data[at : at + ENTRY_BYTES]):
            raise DamageError(path, position, "an entry is not what was written, a later one is")
    if not last:
        raise DamageError(path, position, "an entry of a sealed segment is not what was written")
