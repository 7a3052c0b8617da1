"""The journal's bytes: segments, batches and records. Pure; knows positions, no queue and no file.

A segment file:

    0   header  64 B   magic "SLGJ", version u16, checksum id u16 (1 = zlib.crc32),
                       segment number u64, uuid 16 B, number of its first batch u64, zeros,
                       crc32 of the 60 bytes before
    64  batches, one behind the other; what follows the last one is leftover from before, or zeros

A batch is what one sync makes durable, whole or not at all:

    magic u32 0xB5A7C41D | payload length u32 | batch number u64 | last synced batch u64
    | payload crc u32 | header crc u32 | payload: records, one behind the other

Both sums are salted with the segment's uuid and the batch's offset, so that bytes of an earlier
life of a recycled file, or of another place, never pass. All numbers are little-endian. A zero byte
never begins a batch or a record.

Records (first byte is the kind):

    1 ADD     how u8, targets u32, count u32, accepted u64 (ms)
              | per target: queue u64, first seq u64
              | flags: one u32, or count x u32 (how bit 0)
              | expires: none, one u64 (how bit 1), count x u64 (bit 2)
              | due: none, or one u64 (bit 3)
              | lengths count x u32 (0xFFFFFFFF: not stored here) | bodies
    2 REMOVE  queue u64, ranges u32 | ranges x (first u64, last u64)
    3 NOTE    length u32 | bytes (definitions; opaque here)
    4 COUNT   queue u64, n u32 | n x (seq u64, flags u32)
    5 CLEAN   (the process stopped in order after this)
    6 SUSPECT (what was stored before may have been seen: the stop before was not in order)
    7 DUE     queue u64, n u32 | n x (seq u64, due u64)
    8 PAGED   page store u64, page u32, blocks u32 (so many blocks of that page exist)

A `how` with other bits is of a newer program; the bits of older ones keep their meaning.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from storage.errors import FormatError

SEGMENT_MAGIC: Final = b"SLGJ"
VERSION: Final = 1
SEGMENT_HEADER_BYTES: Final = 64
BATCH_MAGIC: Final = 0xB5A7C41D
ABSENT: Final = 0xFFFFFFFF

_SEGMENT = struct.Struct("<4sHHQ16sQ20x")
_BATCH = struct.Struct("<IIQQI")
_CRC = struct.Struct("<I")
BATCH_HEADER_BYTES: Final = _BATCH.size + _CRC.size
_SALT = struct.Struct("<16sQ")
_ADD = struct.Struct("<BBIIQ")
_TARGET = struct.Struct("<QQ")
_REMOVE = struct.Struct("<BQI")
_NOTE = struct.Struct("<BI")
_COUNT = struct.Struct("<BQI")
_COUNTED = struct.Struct("<QI")
_POSTPONED = struct.Struct("<QQ")
_PAGED = struct.Struct("<BQII")

ADD: Final = 1
REMOVE: Final = 2
NOTE: Final = 3
COUNT: Final = 4
CLEAN: Final = 5
SUSPECT: Final = 6
DUE: Final = 7
PAGED: Final = 8
_MIXED_FLAGS: Final = 1
_ONE_EXPIRY: Final = 2
_MIXED_EXPIRY: Final = 4
_DUE: Final = 8
_HOW_KNOWN: Final = 15


class BadRecordError(ValueError):
    """Bytes that are no record although their batch's sum is right: written by another program."""


@dataclass(slots=True)
class AddRun:
    """A run of messages for one or more queues; `targets` are (queue id, seq of the first body).

    `flags` and `expires` are one value for all, or a sequence with one for each body. A body of
    None is not stored. `due` is one time for all, in ms; 0: at once.
    """

    targets: Sequence[tuple[int, int]]
    bodies: Sequence[bytes | None]
    flags: int | Sequence[int]
    expires: int | Sequence[int]
    accepted_ms: int
    due: int = 0


# ---- segment header


@dataclass(frozen=True, slots=True)
class SegmentHead:
    """A segment header whose sum is right; `first` is the number of its first batch."""

    number: int
    uuid: bytes
    first: int


def encode_segment_header(number: int, uuid: bytes, first: int) -> bytes:
    """Return the 64 bytes that open a segment whose first batch has the number `first`."""
    assert len(uuid) == 16, "the salt would not be that of the header"
    head = _SEGMENT.pack(SEGMENT_MAGIC, VERSION, 1, number, uuid, first)
    return head + _CRC.pack(zlib.crc32(head))


def decode_segment_header(data: bytes) -> SegmentHead | None:
    """Return the header, or None where there is none that is whole.

    Raises FormatError on a newer version.
    """
    if len(data) < SEGMENT_HEADER_BYTES or data[:4] != SEGMENT_MAGIC:
        return None
    if _CRC.unpack_from(data, SEGMENT_HEADER_BYTES - 4)[0] != zlib.crc32(
        data[: SEGMENT_HEADER_BYTES - 4]
    ):
        return None
    _, version, checksum, number, uuid, first = _SEGMENT.unpack_from(data)
    if version != VERSION or checksum != 1:
        raise FormatError(
            f"The journal has format version {version} with checksum {checksum}; this program "
            f"reads version {VERSION} with checksum 1. Start it with the program that wrote it. "
            "Nothing was changed."
        )
    return SegmentHead(number, uuid, first)


# ---- batches


def salt_of(uuid: bytes, offset: int) -> int:
    """Return the starting value of the sums of a batch at `offset` of the segment `uuid`."""
    return zlib.crc32(_SALT.pack(uuid, offset))


def encode_batch(payload: bytes, number: int, synced: int, salt: int) -> bytes:
    """Return a batch's header; the payload follows it in the file."""
    assert number >= 0 <= synced, f"batch {number} behind {synced}"
    head = _BATCH.pack(BATCH_MAGIC, len(payload), number, synced, zlib.crc32(payload, salt))
    return head + _CRC.pack(zlib.crc32(head, salt))


@dataclass(frozen=True, slots=True)
class BatchHead:
    """A batch header whose own sum is right."""

    length: int
    number: int
    synced: int
    payload_crc: int


def decode_batch_head(data: bytes | memoryview, offset: int, salt: int) -> BatchHead | None:
    """Return the header at `offset`, or None when there is none that is whole."""
    if offset + BATCH_HEADER_BYTES > len(data):
        return None
    magic, length, number, synced, crc = _BATCH.unpack_from(data, offset)
    if magic != BATCH_MAGIC:
        return None
    if _CRC.unpack_from(data, offset + _BATCH.size)[0] != zlib.crc32(
        data[offset : offset + _BATCH.size], salt
    ):
        return None
    return BatchHead(length, number, synced, crc)


# ---- records


def encode_add(run: AddRun, parts: list[bytes]) -> None:
    """Append the bytes of an ADD record to `parts`."""
    bodies = run.bodies
    how = 0 if isinstance(run.flags, int) else _MIXED_FLAGS
    if not isinstance(run.expires, int):
        how |= _MIXED_EXPIRY
    elif run.expires:
        how |= _ONE_EXPIRY
    if run.due:
        how |= _DUE
    parts.append(_ADD.pack(ADD, how, len(run.targets), len(bodies), run.accepted_ms))
    parts.extend([_TARGET.pack(*target) for target in run.targets])
    parts.append(
        _CRC.pack(run.flags) if isinstance(run.flags, int) else array("I", run.flags).tobytes()
    )
    if how & _MIXED_EXPIRY and not isinstance(run.expires, int):
        parts.append(array("Q", run.expires).tobytes())
    elif how & _ONE_EXPIRY:
        parts.append(struct.pack("<Q", run.expires))
    if run.due:
        parts.append(struct.pack("<Q", run.due))
    if how & _MIXED_FLAGS and None in bodies:
        parts.append(array("I", [ABSENT if b is None else len(b) for b in bodies]).tobytes())
        parts.extend([b for b in bodies if b is not None])
    else:
        # A run with one value for all has all its bodies.
        whole: Sequence[bytes] = bodies  # type: ignore[assignment]
        parts.append(array("I", map(len, whole)).tobytes())
        parts.extend(whole)


def encode_remove(queue_id: int, ranges: Sequence[int]) -> bytes:
    """Return a REMOVE record; `ranges` is first, last, first, last ..."""
    assert len(ranges) % 2 == 0, "half a range"
    return _REMOVE.pack(REMOVE, queue_id, len(ranges) // 2) + array("Q", ranges).tobytes()


def encode_note(note: bytes) -> bytes:
    """Return a NOTE record."""
    return _NOTE.pack(NOTE, len(note)) + note


def encode_count(queue_id: int, counted: Sequence[tuple[int, int]]) -> bytes:
    """Return a COUNT record for (seq, flags) pairs."""
    return _COUNT.pack(COUNT, queue_id, len(counted)) + b"".join(
        [_COUNTED.pack(*c) for c in counted]
    )


def encode_postponed(queue_id: int, postponed: Sequence[tuple[int, int]]) -> bytes:
    """Return a DUE record for (seq, due) pairs."""
    return _COUNT.pack(DUE, queue_id, len(postponed)) + b"".join(
        [_POSTPONED.pack(*p) for p in postponed]
    )


def encode_paged(store: int, page: int, blocks: int) -> bytes:
    """Return a PAGED record."""
    assert blocks > 0, "a page without blocks need not be told"
    return _PAGED.pack(PAGED, store, page, blocks)


CLEAN_RECORD: Final = bytes([CLEAN])
SUSPECT_RECORD: Final = bytes([SUSPECT])


@dataclass(frozen=True, slots=True)
class Remove:
    """Decoded REMOVE: ranges as first, last, first, last ..."""

    queue_id: int
    ranges: Sequence[int]


@dataclass(frozen=True, slots=True)
class Note:
    """Decoded NOTE."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Counted:
    """Decoded COUNT."""

    queue_id: int
    entries: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Postponed:
    """Decoded DUE."""

    queue_id: int
    entries: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Paged:
    """Decoded PAGED: that page holds so many blocks."""

    store: int
    page: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Clean:
    """Decoded CLEAN."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """Decoded SUSPECT."""


Record = AddRun | Remove | Note | Counted | Postponed | Paged | Clean | Suspect


def decode_records(payload: bytes) -> Iterator[Record]:
    """Yield the records of a batch whose sum is right. Raises BadRecordError."""
    offset = 0
    try:
        while offset < len(payload):
            kind = payload[offset]
            if kind == ADD:
                record, offset = _decode_add(payload, offset)
                yield record
            elif kind == REMOVE:
                _, queue_id, n = _REMOVE.unpack_from(payload, offset)
                offset += _REMOVE.size
                ranges, offset = _array("Q", payload, offset, 2 * n)
                yield Remove(queue_id, ranges)
            elif kind == NOTE:
                _, length = _NOTE.unpack_from(payload, offset)
                offset += _NOTE.size
                yield Note(_slice(payload, offset, length))
                offset += length
            elif kind == COUNT:
                _, queue_id, n = _COUNT.unpack_from(payload, offset)
                offset += _COUNT.size
                entries = list(_COUNTED.iter_unpack(_slice(payload, offset, n * _COUNTED.size)))
                offset += n * _COUNTED.size
                yield Counted(queue_id, entries)
            elif kind == DUE:
                _, queue_id, n = _COUNT.unpack_from(payload, offset)
                offset += _COUNT.size
                entries = list(_POSTPONED.iter_unpack(_slice(payload, offset, n * _POSTPONED.size)))
                offset += n * _POSTPONED.size
                yield Postponed(queue_id, entries)
            elif kind == PAGED:
                _, store, page, blocks = _PAGED.unpack_from(payload, offset)
                offset += _PAGED.size
                yield Paged(store, page, blocks)
            elif kind == CLEAN:
                offset += 1
                yield Clean()
            elif kind == SUSPECT:
                offset += 1
                yield Suspect()
            else:
                raise BadRecordError(f"unknown record kind {kind} at {offset} of a batch")
    except struct.error as error:
        raise BadRecordError(f"a record is cut short at {offset} of a batch") from error


def _slice(payload: bytes, offset: int, length: int) -> bytes:
    data = payload[offset : offset + length]
    if len(data) != length:
        raise BadRecordError(f"a record is cut short at {offset} of a batch")
    return data


def _array(code: str, payload: bytes, offset: int, count: int) -> tuple[array[int], int]:
    values = array(code)
    length = values.itemsize * count
    values.frombytes(_slice(payload, offset, length))
    return values, offset + length


@dataclass(frozen=True, slots=True)
class AddHead:
    """An ADD record without its bodies: `sizes` are theirs."""

    targets: Sequence[tuple[int, int]]
    flags: int | Sequence[int]
    expires: int | Sequence[int]
    accepted_ms: int
    due: int
    sizes: array[int]


def peek_add(payload: bytes, offset: int = 0) -> AddHead:
    """Return the head of the ADD record at `offset`. Raises BadRecordError."""
    try:
        if payload[offset : offset + 1] != bytes([ADD]):
            raise BadRecordError(f"no ADD record at {offset} of a block")
        return _add_head(payload, offset)[0]
    except struct.error as error:
        raise BadRecordError(f"a record is cut short at {offset} of a block") from error


def likely_add(payload: bytes) -> AddHead | None:
    """Return the head of the one ADD record that bytes without a right sum seem to be, or None.

    Its lengths must come to those of the bytes: then what is wrong is in a body, or in the flags.
    """
    try:
        head = peek_add(payload)
        end = _add_head(payload, 0)[1] + sum(head.sizes)
    except (BadRecordError, struct.error, ValueError, OverflowError, MemoryError):
        return None
    return head if end == len(payload) and len(head.sizes) else None


def _add_head(payload: bytes, offset: int) -> tuple[AddHead, int]:
    """Return the head of an ADD record and where its bodies begin."""
    _, how, n_targets, count, accepted = _ADD.unpack_from(payload, offset)
    if how > _HOW_KNOWN:
        raise BadRecordError(f"an ADD record at {offset} of a batch has unknown bits: {how:#x}")
    offset += _ADD.size
    targets: list[tuple[int, int]] = []
    for _ in range(n_targets):
        queue_id, first = _TARGET.unpack_from(payload, offset)
        targets.append((queue_id, first))
        offset += _TARGET.size
    flags: int | Sequence[int]
    expires: int | Sequence[int] = 0
    if how & _MIXED_FLAGS:
        flags, offset = _array("I", payload, offset, count)
    else:
        flags = _CRC.unpack_from(payload, offset)[0]
        offset += 4
    if how & _MIXED_EXPIRY:
        expires, offset = _array("Q", payload, offset, count)
    elif how & _ONE_EXPIRY:
        one, offset = _array("Q", payload, offset, 1)
        expires = one[0]
    due = 0
    if how & _DUE:
        one, offset = _array("Q", payload, offset, 1)
        due = one[0]
    sizes, offset = _array("I", payload, offset, count)
    return AddHead(targets, flags, expires, accepted, due, sizes), offset


def _decode_add(payload: bytes, offset: int) -> tuple[AddRun, int]:
    head, offset = _add_head(payload, offset)
    bodies: list[bytes | None] = []
    for length in head.sizes:
        if length == ABSENT:
            bodies.append(None)
            continue
        bodies.append(payload[offset : offset + length])
        offset += length
    if offset > len(payload):
        raise BadRecordError("an ADD record is cut short")
    run = AddRun(head.targets, bodies, head.flags, head.expires, head.accepted_ms, head.due)
    return run, offset
