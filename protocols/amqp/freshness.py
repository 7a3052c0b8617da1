"""A delivery that nobody acquired before says so: first-acquirer true in its header [AMQP 3.2.1].

A missing field means false, which is also what a message says that may have been seen before a
crash. Producers repeat their headers, so a run of deliveries is looked at against the form of the
last one: one comparison and, where there was a header, one slice for each.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from gateway.model.amqp_types import DecodeError
from gateway.model.sections import FOOTER, HEADER, section_at, with_first_acquirer
from protocols.amqp.run_frames import RunFrames

_SHORT: Final = b"\x00\x53"
_SHORT_HEADER: Final = b"\x00\x53\x70\xc0"
_AFTER_HEADER: Final = range(HEADER + 1, FOOTER + 1)
#: Five fields need less; what is longer is nothing that a producer repeats.
_HEADER_BYTES_MAX: Final = 64
_HEADED_MAX: Final = 1024


class Form:
    """How bodies begin that show the same header.

    Attributes:
        lead: the header section that `head` replaces; empty where there is none, or it stays.
        head: the header section that the delivery shows before the rest of the body.
        cut: bytes of the lead.
        frames: puts them into frames.
    """

    __slots__ = ("_first", "cut", "frames", "head", "lead")

    def __init__(self, lead: bytes, head: bytes, *, first: int = -1) -> None:
        """Make it; `first`: the code of the first section of bodies without a header."""
        self.lead = lead
        self.cut = len(lead)
        self.head = head
        self.frames = RunFrames(head)
        self._first = first

    def rest(self, bodies: list[bytes]) -> list[bytes] | None:
        """Return what follows the head in each delivery; None when one body begins otherwise."""
        lead = self.lead
        if not lead:
            if self._first < 0:
                return None
            try:
                return bodies if [b[2] for b in bodies].count(self._first) == len(bodies) else None
            except IndexError:
                return None
        rest = [body.removeprefix(lead) for body in bodies]
        if len(rest) == 1:
            return None if rest[0] is bodies[0] else rest
        gone = sum(map(len, bodies)) - sum(map(len, rest))
        return rest if gone == len(lead) * len(bodies) else None


#: Bodies that go out as they are; of a run that differs, too.
AS_IT_IS: Final = Form(b"", b"")


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
    return Form(b"", with_first_acquirer(b""), first=lead[2] if lead[:2] == _SHORT else -1)


def forms_of(bodies: list[bytes]) -> list[Form]:
    """Return the form of each."""
    known = _HEADED.get
    try:
        return [known(body[: 5 + body[4]]) or form_of(body) for body in bodies]
    except IndexError:
        return [form_of(body) for body in bodies]


#: By header section, of those that were seen.
_HEADED: Final[dict[bytes, Form]] = {}


def _headed(section: bytes) -> Form:
    form = _HEADED.get(section)
    if form is None:
        try:
            head = with_first_acquirer(section)
        except DecodeError:
            return AS_IT_IS
        if len(_HEADED) >= _HEADED_MAX:
            _HEADED.clear()
        form = AS_IT_IS if head == section else Form(section, head)
        _HEADED[section] = form
    return form
