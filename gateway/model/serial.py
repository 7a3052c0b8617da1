"""Serial numbers of 32 bits [RFC 1982]: delivery-id, delivery-count, transfer-id."""

from __future__ import annotations

from typing import Final

MASK: Final = 0xFFFFFFFF
_HALF: Final = 0x80000000


def add(a: int, n: int) -> int:
    """Return a + n on the circle of 2**32 numbers."""
    return (a + n) & MASK


def distance(a: int, b: int) -> int:
    """Return how far b lies ahead of a: negative when it lies behind, in -2**31 .. 2**31-1."""
    d = (b - a) & MASK
    return d - (MASK + 1) if d & _HALF else d


def before(a: int, b: int) -> bool:
    """Return whether a comes before b."""
    return distance(a, b) > 0
