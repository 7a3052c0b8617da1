"""Stored messages of both forms with the fields that a test names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gateway.model import stomp_form
from gateway.model.amqp_types import Described, Symbol, ULong, Value, encode
from gateway.model.message import DURABLE, EXPIRES, STOMP, Message
from gateway.selectors import compile_selector

ADDRESS = "orders"
#: Fields of the properties section in their order [AMQP 3.2.4].
FIELDS = (
    "message_id",
    "user_id",
    "to",
    "subject",
    "reply_to",
    "correlation_id",
    "content_type",
    "content_encoding",
    "absolute_expiry_time",
    "creation_time",
    "group_id",
    "group_sequence",
    "reply_to_group_id",
)


def section(code: int, value: Value) -> bytes:
    return encode(Described(ULong(code), value))


def amqp(
    properties: Mapping[str, Value] | None = None,
    *,
    annotations: Mapping[str, Value] | None = None,
    flags: int = 4,
    expires: int = 0,
    **fields: Value,
) -> Message:
    """An AMQP message with these application properties, annotations and properties."""
    listed = [fields.get(name) for name in FIELDS]
    assert set(fields) <= set(FIELDS)
    while listed and listed[-1] is None:
        listed.pop()
    body = section(0x70, [True]) if flags & DURABLE else b""
    if annotations:
        body += section(0x72, {Symbol(name): value for name, value in annotations.items()})
    if listed:
        body += section(0x73, listed)
    if properties is not None:
        body += section(0x74, dict(properties))
    return _message(body + section(0x75, b"body"), flags, expires)


def stomp(
    headers: Mapping[str, str] | None = None,
    *,
    destination: str = "/queue/orders",
    content_type: str | None = None,
    flags: int = 4,
    expires: int = 0,
) -> Message:
    """A STOMP message with these headers."""
    body = stomp_form.pack(
        destination,
        b"body: not a header\ncolour:none\n",
        priority=flags & 15,
        persistent=bool(flags & DURABLE),
        content_type=content_type,
        expires=expires,
        headers=(headers or {}).items(),
    )
    return _message(body, flags | STOMP, expires)


def _message(body: bytes, flags: int, expires: int) -> Message:
    message = Message(body, 1, flags | (EXPIRES if expires else 0))
    if expires:
        message.expires = expires
    return message


def outcome(selector: str, message: Message) -> Any:
    """True, False or None (unknown): what a condition comes to."""
    prefixes = re.match("(convert_string_expressions:|hyphenated_props:)*", selector)
    assert prefixes is not None
    head, selector = prefixes[0], selector[prefixes.end() :]
    is_true = compile_selector(head + selector, ADDRESS).matches(message)
    is_false = compile_selector(f"{head}NOT ({selector})", ADDRESS).matches(message)
    assert type(is_true) is bool
    assert type(is_false) is bool
    assert not (is_true and is_false)
    return True if is_true else False if is_false else None
