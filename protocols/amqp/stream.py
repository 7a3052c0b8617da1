"""The hot loop: transfers of known shapes, read without decoding, collected to runs [AMQP 2.7.5].

A shape (see `frames`) says what bytes a link's transfers have in common. Neighbouring transfers of
one link become one run and one call, also when two shapes alternate (durable and not, with and
without ttl). Whatever does not match in every byte that is not a number, is left for the general
codec: the two agree on every input, which a test shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.model.serial import MASK
from protocols.amqp.frames import Shape
from protocols.amqp.incoming import IncomingLink, look_into

if TYPE_CHECKING:
    from protocols.amqp.connection import AmqpConnection
    from protocols.amqp.session import AmqpSession

#: Messages in one run: bounds what one call to the broker costs.
RUN_MAX = 4096


def receive_transfers(connection: AmqpConnection, data: bytes, at: int, end: int) -> int:
    """Take the transfers of known shapes that `data[at:end]` starts with; returns where it stopped.

    Raises SessionFaultError through the session's count of frames: never, since a run stays within
    window and credit.
    """
    while True:
        shape = connection.shapes[0] if connection.shapes else None
        if shape is None:
            return at
        session = connection.sessions.get(shape.channel)
        link = session.links.get(shape.handle) if session is not None else None
        if (
            session is None
            or session.ended
            or not isinstance(link, IncomingLink)
            or link.in_delivery is not None
        ):
            return at
        after = _receive_run(connection, session, link, data, at=at, end=end)
        if after == at and not _promote(connection, data, at, end):
            return at
        at = after


def _promote(connection: AmqpConnection, data: bytes, at: int, end: int) -> bool:
    """Put the shape that fits the next transfer first; returns whether another one does."""
    shapes = connection.shapes
    frame_max = connection.limits.max_frame_size
    for index in range(1, len(shapes)):
        shape = shapes[index]
        session = connection.sessions.get(shape.channel)
        # Only what the run will take for certain, or two shapes would be put first in turn for
        # ever: what breaks a rule goes to the general codec, which says so.
        if (
            session is not None
            and session.next_delivery is not None
            and _fits(shape, data, at, end, next_id=session.next_delivery)
            and int.from_bytes(data[at : at + 4], "big") <= frame_max
            and _limit(session, shape) > 0
        ):
            shapes.insert(0, shapes.pop(index))
            return True
    return False


def _fits(shape: Shape, data: bytes, at: int, end: int, *, next_id: int) -> bool:
    if end - at < shape.count:
        return False
    fields = shape.unpack(data, at)
    constants = shape.constants
    return bool(
        fields[2] == next_id
        and fields[0] >= shape.count
        and fields[1] == constants[0]
        and fields[3] == constants[1]
        and fields[4] == constants[2]
        and (not constants[3] or fields[5] == constants[3])
        and at + fields[0] <= end
    )


def _limit(session: AmqpSession, shape: Shape) -> int:
    link = session.links.get(shape.handle)
    if not isinstance(link, IncomingLink) or link.in_delivery is not None or session.ended:
        return 0
    return min(link.credit, session.incoming_window, RUN_MAX)


def _receive_run(
    connection: AmqpConnection,
    session: AmqpSession,
    link: IncomingLink,
    data: bytes,
    *,
    at: int,
    end: int,
) -> int:
    """Collect one run of one link and hand it over; returns where it ends."""
    shape = connection.shapes[0]
    limit = _limit(session, shape)
    expected = session.next_delivery
    if limit <= 0 or expected is None:
        return at
    first = expected
    frame_max = connection.limits.max_frame_size
    others = connection.shapes_like(shape)
    bodies: list[bytes] = []
    append = bodies.append
    marks: list[tuple[int, Shape]] = [(0, shape)]
    unpack, count, begin = shape.unpack, shape.count, shape.body
    before, tag, behind, fields_count = shape.constants
    while end - at >= count and len(bodies) < limit:
        fields = unpack(data, at)
        after = at + fields[0]
        if (
            fields[2] == expected
            and fields[1] == before
            and fields[4] == behind
            and fields[3] == tag
            and (not fields_count or fields[5] == fields_count)
            and after <= end
            and count <= fields[0] <= frame_max
        ):
            append(data[at + begin : after])
            at = after
            expected += 1
            continue
        other = next(
            (s for s in others if s is not shape and _fits(s, data, at, end, next_id=expected)),
            None,
        )
        if other is None:
            break
        shape = other
        marks.append((len(bodies), shape))
        if len(marks) > 2 * RUN_MAX:
            break
        unpack, count, begin = shape.unpack, shape.count, shape.body
        before, tag, behind, fields_count = shape.constants
        if int.from_bytes(data[at : at + 4], "big") > frame_max:
            break
    if not bodies:
        return at
    session.next_delivery = expected & MASK
    session.count_frames(len(bodies))
    _hand_over(session, link, bodies, marks, first)
    return at


def _hand_over(
    session: AmqpSession,
    link: IncomingLink,
    bodies: list[bytes],
    marks: list[tuple[int, Shape]],
    first: int,
) -> None:
    """Give a run to its link: as one of equal messages when it is, with flags for each when not."""
    shape = marks[0][1]
    settled = shape.settled
    if len(marks) == 1 and not shape.scan:
        link.receive_run(bodies, shape.flags, shape.ttl_ms, first, settled=settled)
        return
    flags: list[int] = []
    ttls: list[int] = []
    scanned = False
    for index, (start, shape) in enumerate(marks):
        stop = marks[index + 1][0] if index + 1 < len(marks) else len(bodies)
        flags += [shape.flags] * (stop - start)
        ttls += [shape.ttl_ms] * (stop - start)
        scanned = scanned or (shape.scan and stop > start)
    if not scanned:
        if len(set(flags)) == 1 and len(set(ttls)) == 1:
            link.receive_run(bodies, flags[0], ttls[0], first, settled=settled)
        else:
            link.receive_mixed(bodies, flags, ttls, first, settled=settled)
        return
    now_ms = session.now_ms()
    looked = [look_into(body, now_ms) for body in bodies]
    link.receive_looked(
        [x[0] for x in looked],
        [x[1] for x in looked],
        [x[2] for x in looked],
        first,
        settled=settled,
    )
