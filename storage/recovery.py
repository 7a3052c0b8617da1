"""Reads a journal back: what lives, what was defined, and where the damage is. Pure over bytes.

Batches are numbered without a gap over all segments and lives of the journal; each says up to which
number all were synced when it was taken, and each segment's header says with which it begins.

Damage rule. A batch that is not whole is

* rot, when something that was written after its sync follows: a whole batch behind it in its
  segment, or a segment whose numbers go on behind it. It was once complete and confirmed. Recovery
  refuses, naming file and offset;
* the torn tail otherwise: it was never confirmed. It is cut: counted, and nothing behind it in its
  segment is read. The next life of the journal continues with the number of the batch that was cut.

A header lies in one sector, so a crash leaves the old one or the new one. The old one is zeros,
over a file of zeros, or that of an earlier segment: a file that was being made ready, with nothing
in it. Any other header that is not whole, or is of another segment, is rot.

Nothing is ever appended to a segment that was read here; the caller opens a new one.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from storage.batch import run_bound
from storage.compaction import Piece
from storage.errors import DamageError
from storage.record import (
    BATCH_HEADER_BYTES,
    BATCH_MAGIC,
    SEGMENT_HEADER_BYTES,
    AddRun,
    BadRecordError,
    BatchHead,
    Clean,
    Counted,
    Note,
    Paged,
    Postponed,
    Remove,
    SegmentHead,
    Suspect,
    decode_batch_head,
    decode_records,
    decode_segment_header,
    salt_of,
)

#: What is read of a segment at a time while the gateway runs.
_PIECE_BYTES: Final = 1 << 20
_MAGIC: Final = BATCH_MAGIC.to_bytes(4, "little")


@dataclass(slots=True)
class Stored:
    """One recovered message of one queue.

    `suspect`: it lived through a stop that was not in order, so a consumer may have seen it.
    `changed`: its flags or its due time are not those of its ADD record. `size` is its share of
    that record.
    """

    body: bytes
    flags: int
    expires: int
    accepted_ms: int
    segment: int
    suspect: bool = False
    due: int = 0
    size: int = 0
    changed: bool = False


@dataclass(slots=True)
class Recovered:
    """What a journal holds.

    Attributes:
        queues: per queue id, seq -> message, in ascending seq.
        notes: all definition notes, in order.
        ticket: the largest batch number read.
        segment: the largest segment number seen.
        segments: the numbers of all segment files, with a header or without.
        clean: whether the last process stopped in order.
        torn_bytes: how much of a torn tail was cut (0: none).
        highest: per queue id the largest seq ever stored.
        end: where reading the last segment stopped.
        pages: (page store, page) -> how many of its blocks exist.
        removed: per queue id ticket, first, last of removals of what was not in the journal: of
            messages on pages, whose blocks have a ticket of their own.
        counted: per queue id seq -> (ticket, flags) of such messages.
        postponed: per queue id seq -> (ticket, due in ms) of such messages.
        suspect: the ticket before which all that was stored may have been seen.
        used: per segment the bytes of its batches, without definitions.
    """

    queues: dict[int, dict[int, Stored]] = field(default_factory=dict)
    notes: list[bytes] = field(default_factory=list)
    ticket: int = 0
    segment: int = 0
    segments: list[int] = field(default_factory=list)
    clean: bool = True
    torn_bytes: int = 0
    highest: dict[int, int] = field(default_factory=dict)
    records: int = 0
    end: tuple[str, int] | None = None
    pages: dict[tuple[int, int], int] = field(default_factory=dict)
    removed: dict[int, array[int]] = field(default_factory=dict)
    counted: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)
    postponed: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)
    suspect: int = 0
    used: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A segment file with its header read."""

    path: str
    data: bytes
    head: SegmentHead

    def batch_head(self, offset: int) -> BatchHead | None:
        """Return the header at `offset`; None when it is not whole."""
        return decode_batch_head(self.data, offset, salt_of(self.head.uuid, offset))

    def payload(self, offset: int, head: BatchHead | None) -> bytes | None:
        """Return the payload of the batch at `offset`; None when it is not whole."""
        if head is None:
            return None
        start = offset + BATCH_HEADER_BYTES
        payload = self.data[start : start + head.length]
        if len(payload) != head.length:
            return None
        return payload if zlib.crc32(payload, self._salt(offset)) == head.payload_crc else None

    def _salt(self, offset: int) -> int:
        return salt_of(self.head.uuid, offset)


def recover(files: Iterator[tuple[int, str, bytes]]) -> Recovered:
    """Read segments, given as (number of the name, path, content) in ascending number.

    Raises DamageError on rot, FormatError on a newer format.
    """
    found = Recovered()
    for number, path, data in files:
        assert number > max(found.segments, default=-1), "segments in no order"
        found.segment = max(found.segment, number)
        found.segments.append(number)
        head = _header(path, data, number)
        if head is not None:
            _read_segment(found, SegmentFile(path, data, head))
    return found


def read_piece(path: str, number: int, offset: int, read: Callable[[int, int], bytes]) -> Piece:
    """Return what a sealed segment adds from `offset` (0: its begin) on, about a MiB of it.

    `read(offset, count)` returns bytes of the file. It ends at the first batch that is not whole:
    a torn tail of an earlier life. Whether all was read that should be there is for the caller, who
    knows what lives. Raises DamageError when the file is another one, BadRecordError.
    """
    assert offset >= 0, f"a piece from {offset} on"
    opening = decode_segment_header(read(0, SEGMENT_HEADER_BYTES))
    if opening is None or opening.number != number:
        raise DamageError(path, 0, "the header of the segment is not whole")
    runs: list[tuple[int, AddRun]] = []
    at = offset or SEGMENT_HEADER_BYTES
    base, data = at, read(at, _PIECE_BYTES)
    while True:
        salt = salt_of(opening.uuid, at)
        head = decode_batch_head(data, at - base, salt)
        end = at - base + BATCH_HEADER_BYTES + (head.length if head is not None else 0)
        if head is None or end > len(data):
            if at > base:
                return Piece(runs=runs, end=at, last=False)
            if head is None:
                return Piece(runs=runs, end=at, last=True)
            data = read(at, end)  # a batch that is larger than a piece
        payload = data[at - base + BATCH_HEADER_BYTES : end]
        if zlib.crc32(payload, salt) != head.payload_crc:
            return Piece(runs=runs, end=at, last=True)
        runs += [(head.number, r) for r in decode_records(payload) if isinstance(r, AddRun)]
        at = base + end


def _header(path: str, data: bytes, number: int) -> SegmentHead | None:
    """Return the header, None when the crash came while the file was made. Raises DamageError."""
    head = decode_segment_header(data)
    if head is None:
        if data.count(0) != len(data):
            raise DamageError(path, 0, "the header of the segment is not whole")
        return None
    if head.number > number:
        raise DamageError(path, 0, f"this is segment {head.number} by its header")
    # Of an earlier life: the file was a spare and got its new name, but not yet its header.
    return head if head.number == number else None


def _read_segment(found: Recovered, segment: SegmentFile) -> None:
    """Apply all whole batches of a segment."""
    _check_first(found, segment)
    offset = SEGMENT_HEADER_BYTES
    while True:
        head = segment.batch_head(offset)
        payload = segment.payload(offset, head)
        if head is None or payload is None:
            break
        expected = found.ticket + 1
        if head.number != expected:
            what = f"batch {head.number} stands where batch {expected} belongs"
            raise DamageError(segment.path, offset, what)
        try:
            apply_payload(found, payload, segment.head.number)
        except BadRecordError as error:
            raise DamageError(segment.path, offset, str(error)) from error
        found.ticket = head.number
        offset += BATCH_HEADER_BYTES + head.length
    _judge_tail(found, segment, offset, head)
    assert offset <= len(segment.data), "more was read than there is"
    found.end = segment.path, offset


def _check_first(found: Recovered, segment: SegmentFile) -> None:
    """Compare the segment's first number with where reading stopped before."""
    expected = found.ticket + 1
    first = segment.head.first
    if found.end is None:
        found.ticket = first - 1
    elif first > expected:
        # The segment before ended too early: what is missing there was synced before this began.
        path, offset = found.end
        raise _missing(found, path, offset, first - 1)
    elif first < expected:
        what = f"it begins with batch {first}, where batch {expected} belongs"
        raise DamageError(segment.path, 0, what)


def _missing(found: Recovered, path: str, offset: int, last: int) -> DamageError:
    """Return the refusal of a journal whose batches up to `last` were synced and are not whole."""
    first = found.ticket + 1
    which = f"batch {first}" if first == last else f"batches {first} to {last}"
    held = sum(map(len, found.queues.values()))
    what = (
        f"{which} (at least {last - first + 1}) cannot be read, and had been synced. "
        f"What comes before is whole; {held} messages lived then"
    )
    return DamageError(path, offset, what, batches=last - first + 1)


def _judge_tail(
    found: Recovered, segment: SegmentFile, offset: int, head: BatchHead | None
) -> None:
    """Tell the end of the data, a torn tail and rot apart: no whole batch is at `offset`."""
    for later in _heads_after(segment, offset, head):
        if later.synced > found.ticket:
            raise _missing(found, segment.path, offset, later.number - 1)
    # Without a header there are zeros, leftovers of a recycled file or a torn header: nothing that
    # was ever confirmed.
    if head is not None:
        rest = len(segment.data) - offset
        found.torn_bytes += min(rest, BATCH_HEADER_BYTES + head.length)
        found.clean = False


def _heads_after(segment: SegmentFile, offset: int, head: BatchHead | None) -> Iterator[BatchHead]:
    """Yield whole headers behind a broken batch: where its length says, then by search.

    All of them: what was only handed to the kernel does not say that what is before was synced.
    """
    at = offset
    while head is not None:
        at += BATCH_HEADER_BYTES + head.length
        head = segment.batch_head(at)
        if head is not None:
            yield head
    at = segment.data.find(_MAGIC, offset + 1)
    while at >= 0:
        following = segment.batch_head(at)
        if following is not None:
            yield following
        at = segment.data.find(_MAGIC, at + 1)


def apply_payload(found: Recovered, payload: bytes, segment: int) -> None:
    """Apply a whole batch, the one behind `found.ticket`. Raises BadRecordError."""
    found.clean = False
    found.used[segment] = found.used.get(segment, 0) + BATCH_HEADER_BYTES + len(payload)
    for record in decode_records(payload):
        found.records += 1
        match record:
            case AddRun():
                _apply_add(found, record, segment)
            case Remove():
                _apply_remove(found, record)
            case Note():
                found.notes.append(record.data)
                found.used[segment] -= len(record.data)
            case Counted():
                held = found.queues.get(record.queue_id, {})
                for seq, flags in record.entries:
                    if seq in held:
                        held[seq].flags = flags
                        held[seq].changed = True
                    else:
                        paged = found.counted.setdefault(record.queue_id, {})
                        paged[seq] = found.ticket + 1, flags
            case Postponed():
                held = found.queues.get(record.queue_id, {})
                for seq, due in record.entries:
                    if seq in held:
                        held[seq].due = due
                        held[seq].changed = True
                    else:
                        paged = found.postponed.setdefault(record.queue_id, {})
                        paged[seq] = found.ticket + 1, due
            case Paged():
                page = record.store, record.page
                found.pages[page] = max(found.pages.get(page, 0), record.blocks)
            case Clean():
                found.clean = True
            case Suspect():
                found.suspect = found.ticket + 1
                for held in found.queues.values():
                    for stored in held.values():
                        stored.suspect = True


def _apply_add(found: Recovered, run: AddRun, segment: int) -> None:
    count = len(run.bodies)
    flags = [run.flags] * count if isinstance(run.flags, int) else run.flags
    expires = [run.expires] * count if isinstance(run.expires, int) else run.expires
    accepted = run.accepted_ms
    # What many queues share is counted in parts: together they hold it once.
    targets = len(run.targets)
    beside = run_bound(run, 0) // (count or 1)
    for queue_id, first in run.targets:
        held = found.queues.setdefault(queue_id, {})
        found.highest[queue_id] = max(found.highest.get(queue_id, 0), first + count - 1)
        for seq, (body, flag, expiry) in enumerate(
            zip(run.bodies, flags, expires, strict=True), first
        ):
            if body is not None:
                size = (len(body) + beside) // targets
                held[seq] = Stored(body, flag, expiry, accepted, segment, due=run.due, size=size)


def _apply_remove(found: Recovered, record: Remove) -> None:
    held = found.queues.get(record.queue_id, {})
    pop = held.pop
    for low, high in zip(record.ranges[::2], record.ranges[1::2], strict=True):
        before = len(held)
        if high - low < len(held):
            for seq in range(low, high + 1):
                pop(seq, None)
        else:
            # A stream that was deleted is removed from 0 on, most of which went long before.
            for seq in [seq for seq in held if low <= seq <= high]:
                del held[seq]
        if before - len(held) != high - low + 1:
            paged = found.removed.setdefault(record.queue_id, array("Q"))
            paged.extend((found.ticket + 1, low, high))
