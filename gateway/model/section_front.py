"""The questions to each AMQP message that comes in: front, expiry, group, delivery time.

Each question reads as few sections as answer it, and decodes only the value that it is about. Hot:
most messages have neither annotations nor properties that matter here, which their first bytes
behind the header say.
"""

from __future__ import annotations

from typing import Final

from gateway.model.amqp_types import AmqpMap, DecodeError, Symbol, Timestamp, Value
from gateway.model.section_scan import (
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    list_head,
    list_item,
    section_at,
    section_code,
    whole_value,
)

#: What a message without properties goes on with behind its header.
_BODY_HEADS: Final = frozenset({b"\x00\x53\x75", b"\x00\x53\x77"})

#: What no message-annotations stand in front of.
NO_ANNOTATIONS: Final = frozenset(bytes((0, 0x53, code)) for code in range(PROPERTIES, FOOTER + 1))
#: How clients begin message-annotations.
_ANNOTATIONS: Final = b"\x00\x53\x72"
#: What the names of annotations that schedule a message begin with.
DELIVERY_NAMES: Final = b"x-opt-delivery-"
#: Times in ms are below this.
_TIMES_END: Final = 1 << 63


def front_end(body: bytes, start: int) -> int:
    """Return where the annotations behind the header end, which is at `start`.

    Raises DecodeError when something stands there that is no section, or a section that has its
    place before. Sections from the properties on are nobody's business here.
    """
    pos, end, last = start, len(body), HEADER
    while pos < end:
        head = body[pos : pos + 3]
        if head in NO_ANNOTATIONS:
            break
        if head == _ANNOTATIONS:
            code = MESSAGE_ANNOTATIONS
        else:
            code, at = section_code(body, pos)
            if at >= end or not HEADER <= code <= FOOTER:
                raise DecodeError(pos, "no message section")
            if code > MESSAGE_ANNOTATIONS:
                break
        if code <= last:
            raise DecodeError(pos, f"section {code:#04x} behind section {last:#04x}")
        last = code
        pos = section_at(body, pos)[2]
    return pos


def expiry_and_group(body: bytes, start: int = 0) -> tuple[int, bool]:
    """Return absolute-expiry-time in ms, 0 without one, and whether there is a group-id.

    `start` may be the end of the header. Raises DecodeError.
    """
    if body[start : start + 3] in _BODY_HEADS:
        return 0, False
    pos, end = start, len(body)
    while pos < end:
        code, at, pos = section_at(body, pos)
        if code == PROPERTIES:
            found = list_item(body, at, 8)
            if found is not None and type(found) is not Timestamp:
                raise DecodeError(at, "absolute-expiry-time is no timestamp")
            grouped = list_head(body, at)[1] > 10 and list_item(body, at, 10) is not None
            return int(found or 0), grouped
        if code > PROPERTIES:
            break
    return 0, False


def delivery_time(body: bytes, start: int, now_ms: int) -> int:
    """Return when the message asks to be delivered, in ms; 0 when it asks nothing, or in the past.

    `x-opt-delivery-time`, a time, counts before `x-opt-delivery-delay`, ms from now; both may be of
    any integer type. `start` may be the end of the header. Raises DecodeError.
    """
    if body[start : start + 3] in NO_ANNOTATIONS:
        return 0
    pos, end = start, len(body)
    while pos < end:
        code, at, pos = section_at(body, pos)
        if code > MESSAGE_ANNOTATIONS:
            break
        if code == MESSAGE_ANNOTATIONS and DELIVERY_NAMES in body[at:pos]:
            found = whole_value(body, at, pos)
            annotations = dict(found.pairs if isinstance(found, AmqpMap) else found.items())
            due = _integer(annotations.get(Symbol("x-opt-delivery-time")))
            delay = _integer(annotations.get(Symbol("x-opt-delivery-delay")))
            due = due or (now_ms + delay if delay > 0 else 0)
            return due if now_ms < due < _TIMES_END else 0
    return 0


def _integer(value: Value) -> int:
    """Return a number of any integer type as it is, and 0 for anything else."""
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else 0
