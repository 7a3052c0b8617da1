"""The duplicate id that a sender gives a message: property or header `_AMQ_DUPL_ID`.

Over AMQP it is an application-property, a string or binary; over STOMP a header, which is a string.
A string is the same id over both. A key is what is remembered of an id: its kind and its bytes, or
a digest where that is long, so that an id of a megabyte costs no more than any other. Pure.
"""

from __future__ import annotations

import hashlib
from typing import Final

from gateway.model import stomp_form
from gateway.model.amqp_types import DecodeError, Value
from gateway.model.message import STOMP
from gateway.model.sections import APPLICATION_PROPERTIES, peek

DUPLICATE_ID: Final = "_AMQ_DUPL_ID"
#: What is looked for in bytes before anything is decoded.
DUPLICATE_BYTES: Final = DUPLICATE_ID.encode()
_KEY_BYTES_MAX: Final = 128


def duplicate_key(body: bytes, flags: int) -> bytes | None:
    """Return what to remember of a message's duplicate id, None when it has none."""
    if DUPLICATE_BYTES not in body:
        return None
    return _stomp_key(body) if flags & STOMP else _amqp_key(body)


def has_duplicate_id(body: bytes) -> bool:
    """Whether an AMQP message has a duplicate id; one that cannot be read has none."""
    return DUPLICATE_BYTES in body and _amqp_key(body) is not None


def _stomp_key(body: bytes) -> bytes | None:
    for name, value in stomp_form.unpack(body)[0]:
        if name == DUPLICATE_ID:  # the first one of a repeated header counts [STOMP 1.2]
            return _key(value)
    return None


def _amqp_key(body: bytes) -> bytes | None:
    try:
        sections = peek(body)
        span = sections.spans.get(APPLICATION_PROPERTIES)
        if span is None or body.find(DUPLICATE_BYTES, span[1], span[2]) < 0:
            return None
        return _key(sections.application_properties.get(DUPLICATE_ID))
    except DecodeError:
        return None


def _key(value: Value) -> bytes | None:
    """Return the key of an id; anything but text and bytes is none."""
    if type(value) is str:
        key = b"s" + value.encode("utf-8", "surrogatepass")
    elif type(value) is bytes:
        key = b"b" + value
    else:
        return None
    if len(key) <= _KEY_BYTES_MAX:
        return key
    return b"h" + hashlib.blake2b(key, digest_size=32).digest()
