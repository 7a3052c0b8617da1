"""Replays of streams over AMQP: where one begins, and the offset that each delivery carries.

A source asks for a replay by a filter, which has RabbitMQ's name or ours:

    "rabbitmq:stream-offset-spec"   a text: first, last, next ... [gateway.model.stream_start]
    "sluicegate:stream-offset"      any integer: that offset; a timestamp: that time

A delivery says its offset in two message-annotations, ours and RabbitMQ's, both ulong. Pure.
"""

from __future__ import annotations

from typing import Final

from gateway.model.amqp_types import DecodeError, Timestamp, ULong, Value
from gateway.model.sections import NO_ANNOTATIONS, header_facts, with_annotations
from gateway.model.stream_start import At, StreamStart, bad_start, parse_start

#: The names of the filter.
START_NAMES: Final = frozenset({"rabbitmq:stream-offset-spec", "sluicegate:stream-offset"})
OFFSET_ANNOTATION: Final = "x-opt-stream-offset"
RABBITMQ_ANNOTATION: Final = "x-stream-offset"

_NAMES: Final = (OFFSET_ANNOTATION, RABBITMQ_ANNOTATION)
#: What the names have in common: a message that was replayed before has them already.
_COMMON: Final = b"stream-offset"
#: sym8 with the name, then ulong; its eight bytes follow.
_PARTS: Final = [bytes((0xA3, len(name))) + name.encode() + b"\x80" for name in _NAMES]
_PAIRS_BYTES: Final = sum(map(len, _PARTS)) + 8 * len(_PARTS)
_VALUES: Final = 2 * len(_PARTS)
#: A message-annotations section that is a map8: its descriptor and the code of the map.
_SHORT_MAP: Final = b"\x00\x53\x72\xc1"
#: The section for a message that has none, up to its pairs: a map8 of their size and count.
_ALONE: Final = _SHORT_MAP + bytes((_PAIRS_BYTES + 1, _VALUES))


def start_of(value: Value) -> StreamStart:
    """Return where the value of a filter says that a replay begins; raises RefusedError."""
    if isinstance(value, Timestamp):
        return StreamStart(at=At.TIME, value=int(value))
    if isinstance(value, str):
        return parse_start(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return StreamStart(at=At.OFFSET, value=int(value))
    raise bad_start(f"{str(value)[:60]!r} ({type(value).__name__})")


def with_offset(body: bytes, offset: int) -> bytes:
    """Return an encoded message with its offset among its message-annotations.

    Raises DecodeError when its header or its annotations cannot be read.
    """
    at = header_facts(body).end
    number = offset.to_bytes(8, "big")
    pairs = b"".join([_PARTS[0], number, _PARTS[1], number])
    if body[at : at + 3] in NO_ANNOTATIONS:
        return b"".join([body[:at], _ALONE, pairs, body[at:]])
    if body[at : at + 4] == _SHORT_MAP and at + 6 < len(body):
        size, count = body[at + 4], body[at + 5]
        end = at + 5 + size
        fits = size + _PAIRS_BYTES <= 255 and count + _VALUES <= 255 and end <= len(body)
        if fits and body.find(_COMMON, at, end) < 0:
            head = bytes((size + _PAIRS_BYTES, count + _VALUES))
            return b"".join([body[: at + 4], head, body[at + 6 : end], pairs, body[end:]])
    return with_annotations(body, {name: ULong(offset) for name in _NAMES})


def shown_offset(body: bytes, offset: int) -> bytes:
    """As `with_offset`; a message that cannot be read goes out as it came."""
    try:
        return with_offset(body, offset)
    except DecodeError:
        return body
