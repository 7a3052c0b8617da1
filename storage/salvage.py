"""Makes a damaged journal usable again without deleting a byte of it.

For each damaged segment: its file is copied into the quarantine and synced, then a new file of the
same number takes its place in one step. The new one holds all batches that are whole, and in place
of each that is not an empty one that says that what was stored before may have been seen. A crash
in the middle leaves each segment either as it was or repaired; a second salvage goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from storage.files import FileSystem, durable_replace
from storage.quarantine import keep_copy
from storage.record import (
    SUSPECT_RECORD,
    encode_batch,
    encode_segment_header,
    salt_of,
)
from storage.survey import SegmentFacts, Survey


def salvage(
    fs: FileSystem,
    seen: Survey,
    quarantine: str,
    make_uuid: Callable[[], bytes],
    *,
    instead: bytes = b"",
) -> list[str]:
    """Repair all damaged segments of a survey; returns the copies in `quarantine`.

    `instead` are records that stand where the first lost batch was.

    Raises OSError; what was done until then stays.
    """
    copies: list[str] = []
    lost = min([one.batches[0] for one in seen.damage if one.batches is not None], default=0)
    for at, facts in enumerate(seen.segments):
        if not facts.damaged:
            continue
        copy = keep_copy(fs, facts.path, quarantine)
        later = seen.segments[at + 1].first if at + 1 < len(seen.segments) else 0
        durable_replace(fs, facts.path, _rebuilt(facts, later, make_uuid(), {lost: instead}))
        copies.append(copy)
    return copies


def _rebuilt(facts: SegmentFacts, later: int, uuid: bytes, instead: Mapping[int, bytes]) -> bytes:
    """Return a segment with all that is whole; `later`: the first batch of the next one, or 0."""
    payloads = {number: payload for number, _, payload in facts.batches}
    last = later - 1 if later else max(payloads, default=facts.first)
    assert last >= max(payloads, default=0), "a batch that is whole would be left out"
    parts = [encode_segment_header(facts.number, uuid, facts.first)]
    offset = len(parts[0])
    for number in range(facts.first, last + 1):
        payload = payloads.get(number, SUSPECT_RECORD + instead.get(number, b""))
        head = encode_batch(payload, number, number - 1, salt_of(uuid, offset))
        parts += [head, payload]
        offset += len(head) + len(payload)
    return b"".join(parts)
