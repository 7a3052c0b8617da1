"""Messages as the commands write and print them: AMQP sections from options, text from sections."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any, Final

from gateway.model.amqp_types import DecodeError, Described, Symbol, UByte, UInt, ULong, encode
from gateway.model.plain_text import id_text, json_text, text
from gateway.model.sections import (
    APPLICATION_PROPERTIES,
    HEADER,
    PROPERTIES,
    VALUE,
    BodyKind,
    Sections,
    header_facts,
    scan,
)

#: The place of content-type among the properties [AMQP 3.2.4].
_CONTENT_TYPE: Final = 6


def encoded(
    body: str,
    *,
    durable: bool,
    priority: int,
    ttl_ms: int,
    content_type: str | None,
    properties: dict[str, str],
) -> bytes:
    """Return a message with a text body; `ttl_ms` 0 is for ever."""
    head = [durable, UByte(priority), UInt(ttl_ms) if ttl_ms else None]
    sections = encode(Described(ULong(HEADER), head))
    if content_type:
        fields = [None] * _CONTENT_TYPE + [Symbol(content_type)]
        sections += encode(Described(ULong(PROPERTIES), fields))
    if properties:
        sections += encode(Described(ULong(APPLICATION_PROPERTIES), dict(properties)))
    return sections + encode(Described(ULong(VALUE), body))


def as_text(message: bytes) -> str:
    """Return a body as it is printed: text as text, bytes that are no text escaped."""
    try:
        body = _body(scan(message))
    except DecodeError:
        body = message
    return body.decode("utf-8", "backslashreplace") if isinstance(body, bytes) else text(body)


def as_object(message: bytes) -> dict[str, object]:
    """Return what `--json` prints of a message; one that cannot be read is its bytes."""
    try:
        found = scan(message)
        shown, body = _facts(found), _body(found)
    except DecodeError as error:
        shown, body = {"unreadable": str(error)}, message
    if isinstance(body, bytes):
        try:
            return {**shown, "body": body.decode("utf-8")}
        except UnicodeDecodeError:
            return {**shown, "body": b64encode(body).decode(), "bodyEncoding": "base64"}
    return {**shown, "body": json.loads(json_text(body))}


def _facts(found: Sections) -> dict[str, object]:
    header = header_facts(found.body)
    properties = found.application_properties
    ids = [found.message_id, found.correlation_id]
    message_id, correlation_id = [None if one is None else id_text(one) for one in ids]
    return {
        "id": message_id,
        "subject": found.subject,
        "contentType": None if found.content_type is None else str(found.content_type),
        "correlationId": correlation_id,
        "replyTo": found.reply_to,
        "durable": header.durable,
        "priority": header.priority,
        "deliveryCount": header.delivery_count,
        "properties": json.loads(json_text(properties)),
    }


def _body(found: Sections) -> Any:  # noqa: ANN401 - whatever a message may hold
    """Return the bytes of data sections, or the value; None without a body."""
    match found.body_kind:
        case BodyKind.DATA:
            return found.data()
        case BodyKind.SEQUENCE:
            return found.sequence()
        case BodyKind.VALUE:
            return found.value()
        case BodyKind.NONE:
            return None
