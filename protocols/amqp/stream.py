"""The hot loop: transfers of known shapes, read without decoding, collected to runs [AMQP 2.7.5].

A shape (see `frames`) says what bytes a link's transfers have in common. Neighbouring transfers of
one link become one run and one call, also when shapes alternate (durable and not, with and without
ttl). Whatever does not match in every byte that is not a number, is left for the general
codec: the two agree on every input, which a test shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import repeat
from typing import Protocol

from gateway.model.errors import RefusedError
from gateway.model.identity import DUPLICATE_BYTES
from gateway.model.message import EXPIRES, IDENTIFIED
from gateway.model.run import MixedRun, Run
from gateway.model.serial import MASK
from protocols.amqp.frames import HEAD_BYTES
from protocols.amqp.incoming import IncomingLink
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.looking import look_into
from protocols.amqp.relaying import Tags
from protocols.amqp.session import AmqpSession
from protocols.amqp.shapes import Family, Shape, Shapes

#: Messages in one run: bounds what one call to the broker costs.
RUN_MAX = 4096
#: Of an anonymous sender: each may lead elsewhere, and have an address made.
_RELAYED_RUN_MAX = 32
#: Bytes of a message, on average, from which on only its properties are looked through (measured).
_LOOK_BYTES = 256
#: A byte of such an id's name that text seldom has: one byte is looked for forty times as fast.
_RARE = b"Q"
_MAP8 = 0xC1


class TransferTables(Protocol):
    """What the loop reads of a connection.

    Attributes:
        spent: whether what is left has to wait for another turn.
        behind: set when it has to.
    """

    behind: bool

    @property
    def shapes(self) -> Shapes:
        """What transfers look like here."""

    @property
    def sessions(self) -> Mapping[int, AmqpSession]:
        """Those that are begun, by channel."""

    @property
    def limits(self) -> AmqpLimits:
        """What the peer may ask for."""

    @property
    def spent(self) -> Callable[[], bool]: ...


def receive_transfers(tables: TransferTables, data: bytes, at: int, end: int) -> int:
    """Take the transfers of known shapes that `data[at:end]` starts with; returns where it stopped.

    Raises SessionFaultError through the session's count of frames: never, since a run stays within
    window and credit.
    """
    while True:
        known = tables.shapes.known
        if not known:
            return at
        shape = known[0]
        session = tables.sessions.get(shape.channel)
        link = session.links.get(shape.handle) if session is not None else None
        if (
            session is None
            or session.ended
            or not isinstance(link, IncomingLink)
            or link.in_delivery is not None
        ):
            return at
        after = _receive_run(tables, session, link, data, at=at, end=end)
        if end - after < HEAD_BYTES:
            return after
        if after > at:
            if tables.spent():
                tables.behind = True
                return after
        elif not _promote(tables, data, at, end):
            return at
        at = after


def _promote(tables: TransferTables, data: bytes, at: int, end: int) -> bool:
    """Put the shape that fits the next transfer first; returns whether another one does."""
    shapes = tables.shapes.known
    frame_max = tables.limits.max_frame_size
    for index in range(1, len(shapes)):
        shape = shapes[index]
        session = tables.sessions.get(shape.channel)
        # Only what the run will take for certain, or two shapes would be put first in turn for
        # ever: what breaks a rule goes to the general codec, which says so.
        if (
            session is not None
            and session.next_delivery is not None
            and shape.fits(data, at, end, next_id=session.next_delivery)
            and int.from_bytes(data[at : at + 4], "big") <= frame_max
            and _limit(session, shape) > 0
        ):
            tables.shapes.promote(index)
            return True
    return False


def _limit(session: AmqpSession, shape: Shape) -> int:
    link = session.links.get(shape.handle)
    if not isinstance(link, IncomingLink) or link.in_delivery is not None or session.ended:
        return 0
    return min(link.credit, session.incoming_window, RUN_MAX)


def _receive_run(
    tables: TransferTables,
    session: AmqpSession,
    link: IncomingLink,
    data: bytes,
    *,
    at: int,
    end: int,
) -> int:
    """Collect one run of one link and hand it over; returns where it ends."""
    shape = tables.shapes.known[0]
    relayed = link.producer is None
    limit = min(link.credit, session.incoming_window, _RELAYED_RUN_MAX if relayed else RUN_MAX)
    first = session.next_delivery
    if limit <= 0 or first is None:
        return at
    start = at
    run = Collector(data, end, limit, first, tables.limits.max_frame_size)
    at = run.collect(shape, at)
    if end - at > HEAD_BYTES and len(run.bodies) < limit and len(tables.shapes.known) > 1:
        at = run.collect_mixed(shape, tables.shapes.family(shape), at)
    bodies = run.bodies
    if not bodies:
        return at
    session.next_delivery = run.expected & MASK
    session.count_frames(len(bodies))
    kinds = run.kinds
    if relayed:
        link.routes.tag_of = Tags(data, start, first)
    if (shape.properties or kinds) and _has_ids(run, shape, start, at):
        _hand_over_looked(session, link, bodies, first, settled=shape.settled)
    elif (kinds and kinds.count(shape) < len(kinds)) or shape.scan:
        _hand_over_mixed(session, link, run, shape, first)
    else:
        link.receive(_run(session, bodies, shape.flags, shape.ttl_ms), first, settled=shape.settled)
    if relayed:
        link.routes.tag_of = None
    return at


def _has_ids(run: Collector, shape: Shape, start: int, stop: int) -> bool:
    """Whether some message of a run, which is between these places, may have a duplicate id."""
    bodies = run.bodies
    if run.data.find(_RARE, start, stop) < 0:
        return False
    if stop - start < _LOOK_BYTES * len(bodies):
        return run.data.find(DUPLICATE_BYTES, start, stop) >= 0
    try:
        for body, kind in zip(bodies, run.kinds or repeat(shape), strict=False):
            if kind.properties:
                at = kind.size_at
                end = at + 1 + body[at] if at and body[at - 1] == _MAP8 else None
                if body.find(DUPLICATE_BYTES, at, end) >= 0:
                    return True
    except IndexError:
        return True  # cut short behind its header: the look will say so
    return False


class Collector:
    """Transfers of one link, one behind the other, while they are collected."""

    __slots__ = ("_end", "_frame_max", "_limit", "bodies", "data", "expected", "kinds")

    def __init__(self, data: bytes, end: int, limit: int, first: int, frame_max: int) -> None:
        self.data = data
        self._end = end
        self._limit = limit
        self._frame_max = frame_max
        self.expected = first
        self.bodies: list[bytes] = []
        #: The shape of each message since they were found to differ; none before.
        self.kinds: list[Shape] = []

    def collect(self, shape: Shape, at: int) -> int:
        """Take transfers of one shape; returns where another one begins."""
        data, end, frame_max, expected = self.data, self._end, self._frame_max, self.expected
        append, limit = self.bodies.append, self._limit
        unpack, count, begin, before, tag, behind, fields_count = shape.parts
        while end - at >= count and limit:
            fields = unpack(data, at)
            size = fields[0]
            after = at + size
            if not (
                fields[2] == expected
                and fields[1] == before
                and fields[4] == behind
                and fields[3] == tag
                and (not fields_count or fields[5] == fields_count)
                and after <= end
                and count <= size <= frame_max
            ):
                break
            append(data[at + begin : after])
            at = after
            expected += 1
            limit -= 1
        self.expected = expected
        return at

    def collect_mixed(self, shape: Shape, family: Family, at: int) -> int:
        """Go on with transfers of any shape of a family; returns where none of them begins."""
        data, end, frame_max, expected = self.data, self._end, self._frame_max, self.expected
        append, took, limit = self.bodies.append, self.kinds.append, self._limit
        self.kinds += [shape] * len(self.bodies)
        limit -= len(self.bodies)
        start, stop, get = family.start, family.stop, family.known.get
        while limit:
            found = get(data[at + start : at + stop]) or family.find(data, at, end)
            if found is None:
                break
            unpack, count, begin, before, tag, behind, fields_count = found.parts
            if end - at < count:
                break
            fields = unpack(data, at)
            size = fields[0]
            after = at + size
            if not (
                fields[2] == expected
                and fields[1] == before
                and fields[4] == behind
                and fields[3] == tag
                and (not fields_count or fields[5] == fields_count)
                and after <= end
                and count <= size <= frame_max
            ):
                break
            append(data[at + begin : after])
            took(found)
            at = after
            expected += 1
            limit -= 1
        self.expected = expected
        return at


def _hand_over_mixed(
    session: AmqpSession, link: IncomingLink, run: Collector, shape: Shape, first: int
) -> None:
    """Give a run to its link with flags for each message."""
    bodies = run.bodies
    kinds = run.kinds or [shape] * len(bodies)
    settled = shape.settled
    if any(kind.scan for kind in set(kinds)):
        _hand_over_looked(session, link, bodies, first, settled=settled)
        return
    flags = [kind.flags for kind in kinds]
    ttls = [kind.ttl_ms for kind in kinds]
    if flags.count(flags[0]) == ttls.count(ttls[0]) == len(flags):
        link.receive(_run(session, bodies, flags[0], ttls[0]), first, settled=settled)
        return
    now_ms = session.now_ms()
    expires = [now_ms + ttl if ttl else 0 for ttl in ttls]
    flags = [f | EXPIRES if ttl else f for f, ttl in zip(flags, ttls, strict=True)]
    link.receive_mixed(MixedRun(bodies, flags, expires), first, settled=settled)


def _run(session: AmqpSession, bodies: list[bytes], flags: int, ttl_ms: int) -> Run:
    return Run(bodies, flags | EXPIRES, session.now_ms() + ttl_ms) if ttl_ms else Run(bodies, flags)


def _hand_over_looked(
    session: AmqpSession, link: IncomingLink, bodies: list[bytes], first: int, *, settled: bool
) -> None:
    """Give a run to its link after a look into each message."""
    now_ms = session.now_ms()
    ids = session.limits.duplicate_detection
    try:
        looked = [look_into(body, now_ms, ids=ids) for body in bodies]
    except RefusedError:
        _hand_over_readable(session, link, bodies, first, settled=settled)
        return
    stored, flags, expires, dues = map(list, zip(*looked, strict=True))
    if all(values.count(values[0]) == len(values) for values in (flags, expires, dues)):
        link.receive(Run(stored, flags[0], expires[0], dues[0]), first, settled=settled)
        return
    run = MixedRun(stored, flags, expires, dues)
    if not run.dues and not any(each & IDENTIFIED for each in flags):
        link.receive_mixed(run, first, settled=settled)
        return
    for one in run.runs():
        if session.links.get(link.handle) is not link:
            return  # an anonymous sender's message led nowhere
        link.receive(one, first, settled=settled)
        first = (first + one.count) & MASK


def _hand_over_readable(
    session: AmqpSession, link: IncomingLink, bodies: list[bytes], first: int, *, settled: bool
) -> None:
    """Give a run to its link piece by piece: some of it cannot be read, and is refused."""
    start = 0
    for index, body in enumerate(bodies):
        try:
            look_into(body, 0, ids=False)
        except RefusedError as error:
            if start < index:
                at = (first + start) & MASK
                _hand_over_looked(session, link, bodies[start:index], at, settled=settled)
            if session.links.get(link.handle) is not link:
                return  # an anonymous sender's message led nowhere
            link.count_one()
            if not link.turn_away((first + index) & MASK, error.refusal, settled=settled):
                return
            link.grant()
            start = index + 1
    if start < len(bodies):
        at = (first + start) & MASK
        _hand_over_looked(session, link, bodies[start:], at, settled=settled)
