"""What may be dropped from a log, as a pure decision.

    rule 1  the newest segment always stays
    rule 2  a segment that is too old goes, if it lies below every floor
    rule 3  while the log is above its byte limit the oldest segment goes, whoever wants it

Only rule 3 can lose what a subscription still wants; the decision says exactly which offsets.
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
    """

    bytes_max: int = 5 << 30
    age_ms_max: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """The `count` oldest segments go; [lost_first, lost_end) was still wanted (empty: nothing)."""

    count: int = 0
    lost_first: int = 0
    lost_end: int = 0


def decide(
    segments: Sequence[SegmentFacts], floor: int | None, limits: Limits, now_ms: int
) -> Drop:
    """Return what to drop.

    Args:
        segments: oldest first.
        floor: the lowest offset that any subscription or pin may ask for; None when there is none.
        limits: of this stream.
        now_ms: broker time.
    """
    total = sum(segment.size_bytes for segment in segments)
    count = 0
    for segment in segments[:-1]:
        free = floor is None or segment.end <= floor
        old = 0 < limits.age_ms_max < now_ms - segment.newest_ms
        large = 0 < limits.bytes_max < total
        if not (large or (old and free)):
            break
        total -= segment.size_bytes
        count += 1
    if count == 0:
        return Drop()
    end = segments[count - 1].end
    if floor is None or end <= floor:
        return Drop(count=count)
    return Drop(count=count, lost_first=max(floor, segments[0].first), lost_end=end)
