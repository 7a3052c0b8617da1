"""What of a batch the table still needs: the decision on which exactly once rests.

A stream's end in the table is the offset behind its last row there. A batch brings ranges:

    below the end         the table has them: skipped
    across the end        its part from the end on is needed: trimmed
    from the end on       needed, if they begin exactly there
    behind a gap          refused: rows between would never come

The first range of a life that the table does not know may begin anywhere: what was before it is
older than the archive. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark_sluicegate.archive.layout import FileFacts, Key, by_stream
from pyspark_sluicegate.options import SluicegateError


class GapError(SluicegateError):
    """A batch begins behind the end of its stream in the table."""


class OtherWriterError(SluicegateError):
    """Another archive has written streams of this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What becomes of the files of a batch.

    Attributes:
        keep: are committed as they are.
        trim: (file, offset): only its rows from `offset` on are needed.
        drop: the table has all of them.
        ends: where each stream that gains something ends then.
    """

    keep: list[FileFacts] = field(default_factory=list)
    trim: list[tuple[FileFacts, int]] = field(default_factory=list)
    drop: list[FileFacts] = field(default_factory=list)
    ends: dict[Key, int] = field(default_factory=dict)


def decide(files: Sequence[FileFacts], ends: Mapping[Key, int | None]) -> Decision:
    """Return what becomes of `files`, given where their streams end in the table.

    Raises GapError.
    """
    made = Decision()
    for key, mine in by_stream(files).items():
        place = ends.get(key)
        for one in mine:
            if place is not None and one.end <= place:
                made.drop.append(one)
                continue
            if place is not None and one.first > place:
                raise _gap(one, place)
            if place is not None and one.first < place:
                made.trim.append((one, place))
            else:
                made.keep.append(one)
            place = made.ends[key] = one.end
    return made


def _gap(one: FileFacts, place: int) -> GapError:
    return GapError(
        f"The table ends at offset {place} of {one.stream!r} of gateway {one.gateway!r} (life "
        f"{one.epoch}); the batch goes on at {one.first}. {one.first - place} offsets would be "
        "missing, so nothing was committed. Most likely the subscription was deleted and made "
        "again: run the archive with a new subscription and startingOffsets=earliest. What the "
        "gateway has dropped meanwhile is passed over with failOnDataLoss=false, and recorded."
    )


def check_alone(mine: Mapping[Key, int], ends: Mapping[Key, int | None]) -> None:
    """Raise OtherWriterError when a stream is not where this archive has left it."""
    for key, place in mine.items():
        found = ends.get(key, place)
        if found != place:
            gateway, stream, _ = key
            raise OtherWriterError(
                f"Another archive writes {stream!r} of gateway {gateway!r} to this table: it ends "
                f"at {found}, this archive has left it at {place}. Nothing is lost or doubled. "
                "This one stops; run one archive for each stream and table."
            )


def ends_of(files: Iterable[FileFacts]) -> dict[Key, int]:
    """Return where the streams of a table's files end."""
    found: dict[Key, int] = {}
    for one in files:
        found[one.key] = max(found.get(one.key, 0), one.end)
    return found
