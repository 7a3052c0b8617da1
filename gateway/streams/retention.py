"""What may be dropped from a log, as a pure decision.

    rule 1  the newest segment always stays
    rule 2  a segment that is too old goes, if it lies below every floor
    rule 3  where an archive keeps the history, a segment goes while the log is above its local
            bytes, if it lies below every floor, the archive's among them
    rule 4  while the log is above its byte limit the oldest segment goes, whoever wants it

Only rule 4 can lose what a subscription still wants; the decision says exactly which offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.streams.ports import SegmentFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Retention of one stream.

    Attributes:
        bytes_max: of all its segments; 0 or less: none. 5 GiB: a tenth of a small disk.
        age_ms_max: of the newest message of a segment; 0 or less: none.
        local_bytes: of what an archive has already; 0 or less: the archive makes no difference.
    """

    bytes_max: int = 5 << 30
    age_ms_max: int = 0
    local_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """The `count` oldest segments go; [lost_first, lost_end) was still wanted (empty: nothing)."""

    count: int = 0
    lost_first: int = 0
    lost_end: int = 0


def decide(
    segments: Sequence[SegmentFacts],
    floor: int | None,
    limits: Limits,
    now_ms: int,
    *,
    archived: int | None = None,
) -> Drop:
    """Return what to drop.

    Args:
        segments: oldest first.
        floor: the lowest offset that any subscription or pin may ask for; None when there is none.
        limits: of this stream.
        now_ms: broker time.
        archived: an archive has all below; None: there is no archive.
    """
    total = sum(segment.size_bytes for segment in segments)
    count = 0
    for segment in segments[:-1]:
        free = floor is None or segment.end <= floor
        old = 0 < limits.age_ms_max < now_ms - segment.newest_ms
        large = 0 < limits.bytes_max < total
        spare = archived is not None and segment.end <= archived
        spare = spare and 0 < limits.local_bytes < total
        if not (large or ((old or spare) and free)):
            break
        total -= segment.size_bytes
        count += 1
    if count == 0:
        return Drop()
    end = segments[count - 1].end
    if floor is None or end <= floor:
        return Drop(count=count)
    return Drop(count=count, lost_first=max(floor, segments[0].first), lost_end=end)


def find_lag(
    segments: Sequence[SegmentFacts], archived: int | None, limits: Limits, *, before: bool
) -> int | None:
    """Return the bytes that an archive has still to take while the bound of bytes is near.

    None: it is not near, or the archive is not what holds the log. It is near at 80 %, and stays so
    down to 70 % where it was so `before`: what flaps is told once.
    """
    if limits.local_bytes <= 0 or limits.bytes_max <= 0:
        return None
    total = sum(segment.size_bytes for segment in segments)
    if total * 10 < limits.bytes_max * (7 if before else 8):
        return None
    waiting = sum(s.size_bytes for s in segments if archived is None or s.end > archived)
    return waiting if waiting * 2 > total else None
