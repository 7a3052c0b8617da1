"""Reads a journal that may be damaged, as far as it can be read. Pure over bytes, changes nothing.

Where recovery would refuse, the survey notes what is damaged and goes on behind it: at the next
batch that is whole, in the same segment or in a later one. What it finds is what a salvage keeps.

What is lost is told by seqs: those that the damaged bytes still name, and those of a queue between
what was read before the damage and what comes after it, less those that are there or are removed
later. A lost removal lets a message come back, marked as one that may have been seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from storage.ranges import merged_ranges, without_ranges
from storage.record import (
    BATCH_HEADER_BYTES,
    BATCH_MAGIC,
    SEGMENT_HEADER_BYTES,
    AddRun,
    BadRecordError,
    Record,
    Remove,
    SegmentHead,
    decode_records,
    decode_segment_header,
)
from storage.recovery import Recovered, SegmentFile, apply_payload

_MAGIC: Final = BATCH_MAGIC.to_bytes(4, "little")
_UUID_AT: Final = 16
#: So far beyond the last seq that is sure a damaged batch may name others.
_NEAR: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Bytes that are not what was written, and the batches that cannot be read for it.

    `batches` is (first, last), None where nothing says how many there were.
    """

    path: str
    offset: int
    end: int
    what: str
    batches: tuple[int, int] | None


@dataclass(slots=True, kw_only=True)
class SegmentFacts:
    """One segment file: its bytes, its batches as (number, offset, payload), what is wrong."""

    number: int
    path: str
    size: int
    first: int
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    used: int = 0
    damaged: bool = False


@dataclass(slots=True)
class Survey:
    """What a journal holds and what is wrong with it.

    `gaps` are per queue id the seqs, as first, last, first, last ..., that nothing was read of;
    `named` those that damaged batches seem to have stored; `removed` those that were removed behind
    a damage.
    """

    found: Recovered = field(default_factory=Recovered)
    segments: list[SegmentFacts] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    gaps: dict[int, list[int]] = field(default_factory=dict)
    named: dict[int, list[int]] = field(default_factory=dict)
    removed: dict[int, list[int]] = field(default_factory=dict)

    def lost(self) -> dict[int, int]:
        """Return per queue id how many messages are missing, at most."""
        counts = {}
        for queue_id in dict.fromkeys([*self.found.highest, *self._only_named(), *self.gaps]):
            highest = self.found.highest.get(queue_id, 0)
            named = self.named.get(queue_id, [])
            pairs = zip(named[::2], named[1::2], strict=True)
            # What names a seq may be what is damaged.
            sane = [
                seq
                for low, high in pairs
                if 0 <= low <= high <= highest + _NEAR
                for seq in (low, high)
            ]
            there = [seq for seq in self.found.queues.get(queue_id, {}) for _ in range(2)]
            gone = merged_ranges([*self.removed.get(queue_id, []), *there])
            flat = [*self.gaps.get(queue_id, []), *sane]
            left = without_ranges(merged_ranges(flat), gone)
            counts[queue_id] = sum(high - low + 1 for low, high in left)
        return {queue_id: count for queue_id, count in counts.items() if count}

    def _only_named(self) -> list[int]:
        """Return the queues of which nothing is there but what damaged batches name."""
        known = self.found.highest
        near = [n for n in self.named if not known or min(abs(n - k) for k in known) <= _NEAR]
        return sorted(set(near) - known.keys())

    def live(self) -> dict[int, tuple[int, int]]:
        """Return per segment the messages that live in it and the bytes of their bodies."""
        totals: dict[int, tuple[int, int]] = {}
        for held in self.found.queues.values():
            for stored in held.values():
                count, size = totals.get(stored.segment, (0, 0))
                totals[stored.segment] = count + 1, size + len(stored.body)
        return totals


def survey(files: Iterator[tuple[int, str, bytes]]) -> Survey:
    """Read segments, given as (number of the name, path, content) in ascending number.

    Raises FormatError on a newer format.
    """
    seen = Survey()
    for number, path, data in files:
        assert number > max(seen.found.segments, default=-1), "segments in no order"
        seen.found.segment = max(seen.found.segment, number)
        seen.found.segments.append(number)
        head = _head(seen, path, data, number)
        if head is not None:
            _read(seen, SegmentFile(path, data, head))
    return seen


def _head(seen: Survey, path: str, data: bytes, number: int) -> SegmentHead | None:
    """Return the header, or one that the batches agree with where it is damaged."""
    head = decode_segment_header(data)
    if head is not None and head.number <= number:
        return head if head.number == number else None  # of an earlier life: nothing in it yet
    if head is None and data.count(0) == len(data):
        return None
    guess = SegmentHead(number, bytes(data[_UUID_AT : _UUID_AT + 16]), seen.found.ticket + 1)
    whole = next(_whole_after(SegmentFile(path, data, guess), SEGMENT_HEADER_BYTES - 1), None)
    seen.damage.append(
        Damage(
            path=path, offset=0, end=SEGMENT_HEADER_BYTES, batches=None,
            what="the header of the segment is not whole",
        )
    )  # fmt: skip
    if whole is None:
        facts = SegmentFacts(number=number, path=path, size=len(data), first=guess.first)
        facts.damaged = True
        seen.segments.append(facts)
        return None
    return guess


def _read(seen: Survey, segment: SegmentFile) -> None:
    found = seen.found
    first = segment.head.first
    facts = SegmentFacts(
        number=segment.head.number, path=segment.path, size=len(segment.data), first=first
    )
    facts.damaged = bool(seen.damage) and seen.damage[-1].path == segment.path
    if not seen.segments and found.ticket == 0:
        found.ticket = first - 1
    elif first > found.ticket + 1:
        _missing(seen, seen.segments[-1], seen.segments[-1].size, first)
    seen.segments.append(facts)
    offset = SEGMENT_HEADER_BYTES
    while True:
        head = segment.batch_head(offset)
        payload = segment.payload(offset, head)
        if head is None or payload is None or head.number <= found.ticket:
            following = next(_whole_after(segment, offset), None)
            if following is None or following[1] <= found.ticket:
                break
            _missing(seen, facts, offset, following[1], end=following[0])
            _note_named(seen, segment.data[offset + BATCH_HEADER_BYTES : following[0]])
            offset = following[0]
            continue
        if head.number != found.ticket + 1:
            _missing(seen, facts, offset, head.number)
        _take(seen, facts, offset, payload)
        found.ticket = head.number
        offset += BATCH_HEADER_BYTES + head.length
    facts.used = offset
    assert offset <= len(segment.data), "more was read than there is"
    if head is not None and payload is None:
        found.torn_bytes += min(len(segment.data) - offset, BATCH_HEADER_BYTES + head.length)
        found.clean = False


def _take(seen: Survey, facts: SegmentFacts, offset: int, payload: bytes) -> None:
    """Apply a whole batch."""
    found = seen.found
    try:
        records = list(decode_records(payload))
    except BadRecordError as error:
        facts.damaged = True
        number = found.ticket + 1
        end = offset + BATCH_HEADER_BYTES + len(payload)
        seen.damage.append(
            Damage(
                path=facts.path, offset=offset, end=end, what=str(error), batches=(number, number)
            )
        )
        return
    if seen.damage:
        _note_gaps(seen, records)
    facts.batches.append((found.ticket + 1, offset, payload))
    apply_payload(found, payload, facts.number)


def _note_gaps(seen: Survey, records: list[Record]) -> None:
    """Note which seqs nothing was read of, and which are removed, behind a damage."""
    highest = seen.found.highest
    for record in records:
        match record:
            case AddRun():
                for queue_id, first in record.targets:
                    if queue_id in highest and first > highest[queue_id] + 1:
                        gap = [highest[queue_id] + 1, first - 1]
                        seen.gaps.setdefault(queue_id, []).extend(gap)
                    # Two runs of one batch follow one another.
                    last = first + len(record.bodies) - 1
                    highest[queue_id] = max(highest.get(queue_id, 0), last)
            case Remove():
                seen.removed.setdefault(record.queue_id, []).extend(record.ranges)
            case _:
                pass


def _note_named(seen: Survey, payload: bytes) -> None:
    """Note which seqs a payload that is not whole seems to store, as far as it can be read."""
    try:
        for record in decode_records(payload):
            if isinstance(record, AddRun):
                for queue_id, first in record.targets:
                    last = first + len(record.bodies) - 1
                    seen.named.setdefault(queue_id, []).extend([first, last])
            elif isinstance(record, Remove):
                seen.removed.setdefault(record.queue_id, []).extend(record.ranges)
    except (BadRecordError, MemoryError, OverflowError):
        return  # what comes behind is not told


def _missing(
    seen: Survey, facts: SegmentFacts, offset: int, following: int, end: int | None = None
) -> None:
    """Note that the batches before `following` cannot be read; they should begin at `offset`."""
    first, last = seen.found.ticket + 1, following - 1
    which = f"batch {first}" if first == last else f"batches {first} to {last}"
    facts.damaged = True
    seen.damage.append(
        Damage(
            path=facts.path,
            offset=offset,
            end=offset if end is None else end,
            what=f"{which} cannot be read, and had been synced",
            batches=(first, last),
        )
    )
    seen.found.ticket = last


def _whole_after(segment: SegmentFile, offset: int) -> Iterator[tuple[int, int]]:
    """Yield (offset, number) of whole batches behind `offset`, by search."""
    at = segment.data.find(_MAGIC, offset + 1)
    while at >= 0:
        head = segment.batch_head(at)
        if head is not None and segment.payload(at, head) is not None:
            yield at, head.number
        at = segment.data.find(_MAGIC, at + 1)
