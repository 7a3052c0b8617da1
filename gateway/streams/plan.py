"""How far a batch goes, and what of it is lost, as pure decisions.

Sizes are those of stored blocks, so they are near the truth, never exact; a plan always lets at
least one block (or one run of the tail) through, or a large message would stop a reader for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from gateway.streams.subscription import Place


class Piece(NamedTuple):
    """Something that is read in one go: a stored block or a run of the tail."""

    first: int
    end: int
    size: int


class Reason(Enum):
    """Why messages that a reader asks for are not there."""

    EXPIRED = "expired_by_retention"
    RECREATED = "stream_recreated"
    TRUNCATED = "truncated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Offsets [first, end) of one life of a stream that cannot be read any more."""

    epoch: int
    first: int
    end: int
    reason: Reason


def find_loss(place: Place, epoch: int, start: int) -> Loss | None:
    """Return what a reader that wants to go on at (`epoch`, `start`) has lost; None for nothing."""
    if epoch != place.epoch:
        return Loss(epoch=epoch, first=start, end=start, reason=Reason.RECREATED)
    if start < place.first:
        return Loss(epoch=epoch, first=start, end=place.first, reason=Reason.EXPIRED)
    if start > place.head:
        return Loss(epoch=epoch, first=place.head, end=start, reason=Reason.TRUNCATED)
    return None


def effective_start(place: Place, epoch: int, start: int) -> int:
    """Return where reading really goes on: what is lost is left out."""
    if epoch != place.epoch:
        return place.first
    return min(max(start, place.first), place.head)


def find_end(
    pieces: Sequence[Piece], start: int, head: int, *, rows_max: int | None, bytes_max: int | None
) -> int:
    """Return the end of a batch that begins at `start`: at most `head`, within both limits."""
    end = head
    if rows_max is not None:
        end = min(end, start + max(rows_max, 1))
    if bytes_max is None:
        return max(end, start)
    total = 0
    for piece in pieces:
        if piece.end <= start:
            continue
        if piece.first >= end:
            break
        size = _share(piece, start, end)
        if total and total + size > bytes_max:
            return max(min(end, piece.first), start)
        total += size
    return max(end, start)


def count_bytes(pieces: Sequence[Piece], start: int, end: int) -> int:
    """Return about how many bytes [start, end) has."""
    return sum(_share(p, start, end) for p in pieces if p.end > start and p.first < end)


def _share(piece: Piece, start: int, end: int) -> int:
    inside = min(piece.end, end) - max(piece.first, start)
    # Rounded up: a part of a piece with little in it would count as nothing, and let another in.
    return -(-piece.size * inside // (piece.end - piece.first))
