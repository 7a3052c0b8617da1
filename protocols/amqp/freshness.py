"""A delivery that nobody acquired before says so: first-acquirer true in its header [AMQP 3.2.1].

A missing field means false, which is also what a message says that may have been seen before a
crash. Producers repeat their headers, so a run of deliveries is looked at against the form of the
last one: one comparison and, where there was a header, one slice for each.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

from gateway.model.amqp_types import DecodeError
from gateway.model.sections import FOOTER, HEADER, section_at, with_first_acquirer

_SHORT: Final = b"\x00\x53"
_SHORT_HEADER: Final = b"\x00\x53\x70\xc0"
_AFTER_HEADER: Final = range(HEADER + 1, FOOTER + 1)
#: Five fields need less; what is longer is nothing that a producer repeats.
_HEADER_BYTES_MAX: Final = 64
#: size, what is the same for all of a link, id, tag head, tag; behind it format 0, settled, header
_FRAME: Final = ">I16sI2sI{}s"
_TAIL_BYTES: Final = 2


class Form:
    """How bodies begin that show the same header.

    Attributes:
        lead: a whole header section; of bodies without one, what tells their first section.
        head: the header section that the delivery shows; empty where the body has what it shows.
        added: bytes by which a delivery is longer than its body.
        pack: packs a frame's head, with `head` behind it.
        frame_bytes: of what `pack` gives.
    """

    __slots__ = ("_first", "added", "frame_bytes", "head", "lead", "pack")

    def __init__(self, lead: bytes, head: bytes, *, cut: bool) -> None:
        """Make it; `cut`: bodies have the lead no longer when the head is put before them."""
        self.lead = lead if cut else b""
        self._first = lead[2] if not cut and lead[:2] == _SHORT else -1
        self.head = head
        self.added = len(head) - len(self.lead)
        frame = struct.Struct(_FRAME.format(_TAIL_BYTES + len(head)))
        self.pack = frame.pack
        self.frame_bytes = frame.size

    def rest(self, bodies: list[bytes]) -> list[bytes] | None:
        """Return what follows the head in each delivery; None when one body begins otherwise."""
        lead = self.lead
        if not lead:
            try:
                return bodies if [b[2] for b in bodies].count(self._first) == len(bodies) else None
            except IndexError:
                return None
        rest = [body.removeprefix(lead) for body in bodies]
        if len(rest) == 1:
            return None if rest[0] is bodies[0] else rest
        gone = sum(map(len, bodies)) - sum(map(len, rest))
        return rest if gone == len(lead) * len(bodies) else None


#: Bodies that go out as they are.
AS_IT_IS: Final = Form(b"", b"", cut=False)


def form_of(body: bytes) -> Form:
    """Return the form of a message in AMQP sections; AS_IT_IS when its header cannot be read."""
    start = body[:4]
    if start == _SHORT_HEADER:
        if len(body) <= 4 or body[4] > _HEADER_BYTES_MAX:
            return AS_IT_IS
        return _headed(body[: 5 + body[4]])
    if start[:2] == _SHORT and len(start) > 2 and start[2] in _AFTER_HEADER:
        return _bare(start[:3])
    try:
        code, value, end = section_at(body, 0)
    except DecodeError:
        return AS_IT_IS
    if code != HEADER:
        return _bare(body[:value])
    return _headed(body[:end]) if end <= _HEADER_BYTES_MAX else AS_IT_IS


@lru_cache(maxsize=64)
def _bare(lead: bytes) -> Form:
    return Form(lead, with_first_acquirer(b""), cut=False)


@lru_cache(maxsize=1024)
def _headed(section: bytes) -> Form:
    try:
        head = with_first_acquirer(section)
    except DecodeError:
        return AS_IT_IS
    return AS_IT_IS if head == section else Form(section, head, cut=True)
