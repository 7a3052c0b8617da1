"""What a message that came says to the gateway: its flags, its expiry, when it is due. Pure."""

from __future__ import annotations

from gateway.model.amqp_types import DecodeError
from gateway.model.errors import Code, RefusedError
from gateway.model.identity import has_duplicate_id
from gateway.model.message import DURABLE, EXPIRES, GROUPED, IDENTIFIED
from gateway.model.sections import (
    DELIVERY_NAMES,
    NO_ANNOTATIONS,
    delivery_time,
    expiry_and_group,
    front_end,
    header_facts,
    strip_delivery_annotations,
)


def look_into(body: bytes, now_ms: int, *, ids: bool = True) -> tuple[bytes, int, int, int]:
    """Return a message as it is stored, with its flags, its expiry and when it is due (0: now).

    absolute-expiry-time wins over ttl. Raises RefusedError when its header or annotations cannot be
    read, or something stands there that is no section of a message. What comes from the properties
    on is the receivers' business: it is taken as it is, and says nothing when it cannot be read.
    """
    try:
        facts = header_facts(body)
        front = facts.end
        if body[front : front + 3] not in NO_ANNOTATIONS:
            front = front_end(body, facts.end) - len(body)
            body = strip_delivery_annotations(body, facts.end)
            front += len(body)
    except DecodeError as error:
        raise RefusedError.of(
            Code.BAD_MESSAGE, f"This is no AMQP message: {error} [AMQP 3.2]."
        ) from error
    flags = facts.priority | (DURABLE if facts.durable else 0)
    expires = now_ms + facts.ttl_ms if facts.ttl_ms else 0
    due = 0
    try:
        absolute, grouped = expiry_and_group(body, front)
        flags |= GROUPED if grouped else 0
        expires = absolute if absolute > 0 else expires
        if front > facts.end and body.find(DELIVERY_NAMES, facts.end, front) >= 0:
            due = delivery_time(body, facts.end, now_ms)
    except DecodeError:
        pass  # what the header said still holds
    if ids and has_duplicate_id(body):
        flags |= IDENTIFIED
    return body, (flags | EXPIRES if expires else flags), expires, due
