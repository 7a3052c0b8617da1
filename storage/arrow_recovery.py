"""Opening an Arrow log: its segments as a crash, or a closed log, left them.

    last segment, bytes behind the last entry        torn tail: cut
    last segment, bad last entry                     torn tail: cut (nothing was promised on it)
    an index alone, the last one, without an entry   a start that was cut: deleted
    an index alone, the oldest one                   a drop that was cut: deleted
    a bad entry with a good one behind it            damage: refused with file and offset
    a block whose checksum is wrong                  damage, at opening (last) or reading (sealed)
    a sealed segment of another length, a hole       damage

A segment that was there before is never appended to: what is left of it is sealed here.
"""

from __future__ import annotations

import posixpath

from storage.arrow_index import read_index
from storage.arrow_segment import Segment
from storage.errors import DamageError
from storage.files import FileSystem, read_file


def recover(fs: FileSystem, directory: str) -> tuple[Segment, ...]:
    """Return the segments of a log, oldest first, all sealed.

    Reads all indexes, cuts the torn tail, refuses damage. Raises DamageError, FormatError.
    """
    names = fs.listdir(directory)
    bases = sorted(n[:-6] for n in names if n.endswith(".index") and n[:-6].isdigit())
    for name in names:
        if name.endswith(".arrows") and name[:-7].isdigit() and name[:-7] not in bases:
            raise DamageError(posixpath.join(directory, name), 0, "its index file is missing")
    segments: list[Segment] = []
    for base in bases:
        last = base == bases[-1]
        segment = Segment(fs, directory, base)
        sealed = _load(fs, segment, last=last)
        if not fs.exists(segment.path):
            _check_orphan(segment, older=bool(segments), last=last)
            segment.delete()
            continue
        if segment.blocks:
            _join(segments, segment, sealed=sealed, last=last)
        else:
            # Nothing was ever promised on it: a start that did not get to its first block.
            segment.delete()
    return tuple(segments)


def _load(fs: FileSystem, segment: Segment, *, last: bool) -> bool:
    """Fill a segment from its index; returns whether it is sealed."""
    path = segment.index_path
    index = read_index(
        path,
        read_file(fs, path),
        segment.path,
        first=segment.first,
        start=segment.size,
        last=last,
    )
    segment.load(index)
    return index.sealed


def _check_orphan(segment: Segment, *, older: bool, last: bool) -> None:
    """Raise unless a crash explains an index alone: creation of the last, drop of the oldest."""
    unfinished_start = last and not segment.blocks
    unfinished_drop = not older and not last
    if not (unfinished_start or unfinished_drop):
        raise DamageError(segment.index_path, 0, f"{segment.path}, which it describes, is missing")


def _join(segments: list[Segment], segment: Segment, *, sealed: bool, last: bool) -> None:
    """Take a segment with blocks into the log after checking that it follows the one before."""
    assert segment.blocks, "nothing was ever promised on it"
    if segments and segments[-1].end != segment.first:
        what = f"offsets {segments[-1].end} to {segment.first - 1} are missing before it"
        raise DamageError(segment.path, 0, what)
    if not sealed and not last:
        raise DamageError(segment.index_path, segment.index_size, "the seal is missing")
    if sealed:
        segment.check_sealed()
    else:
        segment.finish()
    segments.append(segment)
