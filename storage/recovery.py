"""Reads a journal back: what lives, what was defined, and where the damage is. Pure over bytes.

Damage rule. Let W be the largest `last synced` number in any whole batch. A batch that is not whole
is

* rot, when a whole batch that was written after its sync follows, in its segment or in a later one
  (whose numbers then do not continue where reading stopped): it was once complete and confirmed.
  Recovery refuses, naming file and offset;
* the torn tail otherwise: it was never confirmed. It is cut: counted, and nothing behind it in its
  segment is read. The next life of the journal continues with the number of the batch that was cut.

Nothing is ever appended to a segment that was read here; the caller opens a new one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from storage.errors import DamageError
from storage.record import (
    BATCH_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    AddRun,
    BadRecordError,
    BatchHead,
    Clean,
    Counted,
    Note,
    Remove,
    decode_batch_head,
    decode_records,
    decode_segment_header,
    salt_of,
)


@dataclass(slots=True)
class Stored:
    """One recovered message of one queue."""

    body: bytes
    flags: int
    expires: int
    accepted_ms: int
    segment: int


@dataclass(slots=True)
class Recovered:
    """What a journal holds.

    Attributes:
        queues: per queue id, seq -> message, in ascending seq.
        notes: all definition notes, in order.
        ticket: the largest batch number read.
        segment: the largest segment number seen.
        segments: the numbers of all segments with a header.
        clean: whether the last process stopped in order.
        torn_bytes: how much of a torn tail was cut (0: none).
        highest: per queue id the largest seq ever stored.
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


def recover(files: Iterator[tuple[int, str, bytes]]) -> Recovered:
    """Read segments, given as (number of the name, path, content) in ascending number.

    Raises DamageError on rot, FormatError on a newer format.
    """
    found = Recovered()
    for number, path, data in files:
        found.segment = max(found.segment, number)
        header = decode_segment_header(data)
        # No header, or that of a file's earlier life: the crash came while the segment was being
        # opened. Nothing was confirmed from it; if that is not so, the numbers of the batches do
        # not continue, which is found below.
        if header is None or header[0] != number:
            continue
        found.segments.append(number)
        _read_segment(found, path, data, number, header[1])
    return found


def _read_segment(found: Recovered, path: str, data: bytes, number: int, uuid: bytes) -> None:
    """Apply all whole batches of a segment."""
    offset = SEGMENT_HEADER_BYTES
    expected = found.ticket + 1
    while True:
        salt = salt_of(uuid, offset)
        head = decode_batch_head(data, offset, salt)
        end = offset + BATCH_HEADER_BYTES
        payload = data[end : end + head.length] if head is not None else b""
        if (
            head is None
            or len(payload) != head.length
            or zlib.crc32(payload, salt) != head.payload_crc
        ):
            _judge_tail(found, path, data, offset, uuid, head)
            return
        if found.ticket and head.number != expected:
            raise DamageError(
                path, offset, f"batch {head.number} stands where batch {expected} belongs"
            )
        try:
            _apply(found, payload, number)
        except BadRecordError as error:
            raise DamageError(path, offset, str(error)) from error
        found.ticket = head.number
        expected = head.number + 1
        offset = end + head.length


def _judge_tail(
    found: Recovered, path: str, data: bytes, offset: int, uuid: bytes, head: BatchHead | None
) -> None:
    """Tell the end of the data, a torn tail and rot apart: no whole batch is at `offset`."""
    for later in _heads_after(data, offset, uuid, head):
        if later.synced > found.ticket:
            raise DamageError(
                path, offset, f"batch {found.ticket + 1} was synced and is not whole any more"
            )
    # Without a header there are zeros, leftovers of a recycled file or a torn header: nothing that
    # was ever confirmed.
    if head is not None:
        found.torn_bytes += min(len(data) - offset, BATCH_HEADER_BYTES + head.length)
        found.clean = False


def _heads_after(
    data: bytes, offset: int, uuid: bytes, head: BatchHead | None
) -> Iterator[BatchHead]:
    """Yield whole headers behind a broken batch: where its length says, then by search."""
    if head is not None:
        at = offset + BATCH_HEADER_BYTES + head.length
        following = decode_batch_head(data, at, salt_of(uuid, at))
        if following is not None:
            yield following
    magic = b"\x1d\xc4\xa7\xb5"
    at = data.find(magic, offset + 1)
    while at >= 0:
        following = decode_batch_head(data, at, salt_of(uuid, at))
        if following is not None:
            yield following
            return
        at = data.find(magic, at + 1)


def _apply(found: Recovered, payload: bytes, segment: int) -> None:
    found.clean = False
    for record in decode_records(payload):
        found.records += 1
        if isinstance(record, AddRun):
            _apply_add(found, record, segment)
        elif isinstance(record, Remove):
            held = found.queues.get(record.queue_id)
            if held is not None:
                pop = held.pop
                for low, high in zip(record.ranges[::2], record.ranges[1::2], strict=True):
                    for seq in range(low, high + 1):
                        pop(seq, None)
        elif isinstance(record, Note):
            found.notes.append(record.data)
        elif isinstance(record, Counted):
            held = found.queues.get(record.queue_id, {})
            for seq, flags in record.entries:
                if seq in held:
                    held[seq].flags = flags
        elif isinstance(record, Clean):
            found.clean = True


def _apply_add(found: Recovered, run: AddRun, segment: int) -> None:
    count = len(run.bodies)
    flags = [run.flags] * count if isinstance(run.flags, int) else run.flags
    expires = [run.expires] * count if isinstance(run.expires, int) else run.expires
    accepted = run.accepted_ms
    for queue_id, first in run.targets:
        held = found.queues.setdefault(queue_id, {})
        found.highest[queue_id] = max(found.highest.get(queue_id, 0), first + count - 1)
        for seq, (body, flag, expiry) in enumerate(
            zip(run.bodies, flags, expires, strict=True), first
        ):
            if body is not None:
                held[seq] = Stored(body, flag, expiry, accepted, segment)
