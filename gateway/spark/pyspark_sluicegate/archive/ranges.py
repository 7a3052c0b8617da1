"""What a table has of a range of offsets: which files, which parts of them, and what is missing.

Pure: works on the facts of the files of one life of one stream.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyspark_sluicegate.archive.layout import FileFacts


@dataclass(frozen=True, slots=True)
class Piece:
    """The part [start, end) of a file."""

    file: FileFacts
    start: int
    end: int

    @property
    def size(self) -> int:
        """About how many bytes of the file it is."""
        whole = max(self.file.end - self.file.first, 1)
        return -(-self.file.size * (self.end - self.start) // whole)


class Coverage:
    """The files of one life of one stream, in the order of their offsets."""

    def __init__(self, files: Sequence[FileFacts]) -> None:
        """`files` may be in any order; none may overlap another one."""
        self._files = sorted((f for f in files if not f.lost), key=lambda f: f.first)
        self._firsts = [one.first for one in self._files]

    def first(self) -> int | None:
        """Return the lowest offset; None for a stream that the table does not have."""
        return self._firsts[0] if self._firsts else None

    def covered_from(self, start: int) -> int | None:
        """Return the lowest offset from `start` on that a file covers."""
        index = max(bisect_right(self._firsts, start) - 1, 0)
        for one in self._files[index:]:
            if one.end > start:
                return max(one.first, start)
        return None

    def pieces(self, start: int, end: int) -> list[Piece]:
        """Return the parts of files within [start, end), in order."""
        index = max(bisect_right(self._firsts, start) - 1, 0)
        found = []
        for one in self._files[index:]:
            if one.first >= end:
                break
            low, high = max(one.first, start), min(one.end, end)
            if low < high:
                found.append(Piece(one, low, high))
        return found

    def gaps(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the ranges within [start, end) that no file covers."""
        found, place = [], start
        for piece in self.pieces(start, end):
            if piece.start > place:
                found.append((place, piece.start))
            place = piece.end
        if place < end:
            found.append((place, end))
        return found

    def find_end(
        self, start: int, limit: int, *, rows_max: int | None, bytes_max: int | None
    ) -> int:
        """Return how far a batch from `start` goes within both caps, at most to `limit`.

        It goes at least one offset on, and not across a gap, unless it begins with it.
        """
        if rows_max is not None:
            limit = min(limit, start + max(rows_max, 1))
        place, total = start, 0
        for piece in self.pieces(start, limit):
            if piece.start > place > start:
                break
            size = piece.size
            if bytes_max is not None and total + size > bytes_max:
                share = (piece.end - piece.start) * (bytes_max - total) // max(size, 1)
                place = piece.start + share
                return max(place, start + 1)
            total += size
            place = piece.end
        return place if place > start else limit


def pack(pieces: Sequence[Piece], target: int, bins_max: int) -> list[list[Piece]]:
    """Cut and pack pieces into lists of about `target` bytes, at most `bins_max`, in order."""
    total = sum(piece.size for piece in pieces)
    target = max(target, -(-total // max(bins_max, 1)), 1)
    bins: list[list[Piece]] = []
    filled = target
    for piece in pieces:
        for part in _cut(piece, target):
            if filled + part.size > target and (len(bins) < bins_max or not bins):
                bins.append([])
                filled = 0
            bins[-1].append(part)
            filled += part.size
    return bins


def _cut(piece: Piece, target: int) -> list[Piece]:
    count = min(max(1, -(-piece.size // target)), max(piece.end - piece.start, 1))
    rows = piece.end - piece.start
    cuts = [piece.start + rows * i // count for i in range(count + 1)]
    return [Piece(piece.file, a, b) for a, b in pairwise(cuts)]
