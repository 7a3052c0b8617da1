"""What the bench sends: message shapes, independent of the protocol that carries them.

Uniform load is one shape. Mixed load cycles through 64 of them: bodies from 16 B to 4 KiB, with and
without properties, with and without a time to live, durable and not in turn. The cycle is written
down, not drawn by chance, so that every run sends the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

#: The end of each body: room for the time at which it was sent, as hexadecimal digits.
STAMP_BYTES: Final = 16
SIZE_MIN: Final = STAMP_BYTES
CYCLE: Final = 64
#: Long enough that nothing expires between a row and its drain.
TTL_MS: Final = 600_000
_SIZES: Final = (256, 64, 1024, 16, 512, 200, 4096, 128, 700, 32, 2048)
_WORDS: Final = ("north", "green-tea", "2026-11-21T10:00:00Z", "r", "a rather long text " * 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One kind of message.

    Attributes:
        size: bytes of the body, at least SIZE_MIN.
        durable: AMQP `durable`, STOMP `persistent`.
        ttl: milliseconds to live; 0 for ever.
        properties: application properties or user headers.
    """

    size: int
    durable: bool
    ttl: int = 0
    properties: tuple[tuple[str, str], ...] = ()


def uniform(size: int, *, durable: bool) -> list[Shape]:
    """Return the one shape of even load."""
    return [Shape(size=max(size, SIZE_MIN), durable=durable)]


def mixed() -> list[Shape]:
    """Return the cycle of mixed load; half of it is durable."""
    return list(_cycle())


def _cycle() -> Iterator[Shape]:
    for place in range(CYCLE):
        count = (place * 3) % 6
        yield Shape(
            size=_SIZES[place % len(_SIZES)],
            durable=place % 2 == 1,
            ttl=TTL_MS if place % 3 == 1 else 0,
            properties=tuple(
                (f"property-{number}", _WORDS[(place + number) % len(_WORDS)])
                for number in range(count)
            ),
        )


def body(shape: Shape) -> bytes:
    """Return the body of a shape, with an empty stamp at its end."""
    return b"x" * (shape.size - STAMP_BYTES) + b"0" * STAMP_BYTES


def stamp(now: int) -> bytes:
    """Return `now` (ns) as the end of a body carries it."""
    return b"%016x" % now
