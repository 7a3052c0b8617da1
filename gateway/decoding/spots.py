"""Where the values of a head are: what may differ between messages of one sender.

AMQP sections in their usual short form are walked item by item: the fields of header and
properties, the values of application-properties and message-annotations [AMQP 1.6, 3.2]. Names,
sizes and constructors are no spots: messages that differ there have another structure. Of a STOMP
head the values of its lines are the spots.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ..model.section_scan import (
    APPLICATION_PROPERTIES,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
)

#: As the section of what stands in a STOMP head.
STOMP_HEAD: Final = -1
#: First half of a constructor -> bytes of a value of fixed width [AMQP 1.2.2].
_WIDTHS: Final = {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16}
#: First half of a constructor -> bytes of the size in front of a value.
_SIZES: Final = {0xA: 1, 0xB: 4}
#: Values whose bytes may all be read, or are looked at: no boolean, no character, no decimal.
_FREE: Final = frozenset(
    {0, 0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x60, 0x61, 0x70, 0x71, 0x72, 0x80, 0x81, 0x82, 0x83,
     0x98, 0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3}
)  # fmt: skip


class Spot(NamedTuple):
    """One value: bytes [start, end) of a head.

    `name` is the index of a field, the key of a map, or the name of a STOMP header. `code` is the
    constructor of an AMQP value, 0 in STOMP.
    """

    start: int
    end: int
    section: int
    name: int | str
    code: int


def amqp_spots(front: bytes, sections: Iterator[tuple[int, int, int]]) -> list[Spot]:
    """Return the spots of sections: (code, start of the value, end) of each.

    Behind a value that is neither of fixed width nor a string, a symbol or a binary, a section has
    none, and of a key that comes twice the first alone is one. May raise IndexError on a message
    that is cut.
    """
    found: list[Spot] = []
    for code, start, end in sections:
        if code in (HEADER, PROPERTIES):
            items = _items(front, start, end)
            found += [Spot(a, b, code, n, kind) for n, (a, b, kind) in enumerate(items)]
        elif code in (APPLICATION_PROPERTIES, MESSAGE_ANNOTATIONS):
            items = _items(front, start, end)
            for (a, b, _), (low, high, kind) in zip(items, items, strict=False):
                found.append(Spot(low, high, code, front[a:b].decode("utf-8", "replace"), kind))
    return _each_once(found)


def _each_once(spots: list[Spot]) -> list[Spot]:
    """Return the first of each name, without those that are empty or must not differ."""
    first: dict[tuple[int, int | str], Spot] = {}
    for spot in spots:
        first.setdefault((spot.section, spot.name), spot)
    return [spot for spot in first.values() if spot.end > spot.start and spot.code in _FREE]


def _items(front: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, constructor) of the items of a list or map, while they are simple."""
    at = start + (3 if front[start] in (0xC0, 0xC1) else 9)
    while at < end:
        code = front[at]
        width = _WIDTHS.get(code >> 4)
        if width is None:
            size = _SIZES.get(code >> 4)
            if size is None:
                return
            width = int.from_bytes(front[at + 1 : at + 1 + size], "big")
            at += size
        at += 1
        if at + width > end:
            return
        yield at, at + width, code
        at += width


def stomp_spots(front: bytes) -> list[Spot]:
    """Return the spots of a STOMP head; escaped ones and all but the first of a name are none."""
    found: list[Spot] = []
    at = 0
    while at < len(front):
        stop = front.find(b"\n", at)
        if stop <= at:
            break
        colon = front.find(b":", at, stop)
        if colon > at and b"\\" not in front[at:stop]:
            name = front[at:colon].decode("utf-8", "replace")
            if name != "content-length":
                found.append(Spot(colon + 1, stop, STOMP_HEAD, name, 0))
        at = stop + 1
    return _each_once(found)
