"""From a message as it was stored to the fields that readers see.

The only module of the streams that knows the two stored forms: AMQP sections [AMQP 3.2] and the
STOMP form of `gateway.model.stomp_form`. Nothing here raises on a message, whatever its bytes are:
what cannot be read arrives as it is, with content type `application/vnd.amqp`.

All that stands in front of an AMQP body is one run of bytes, and so is a STOMP head; senders repeat
theirs, so heads are remembered by these bytes. A head that was seen before costs one look-up.

    body, AMQP   data sections joined; a string value as UTF-8; a binary value as it is; other
                 values, and sequences, as JSON text; null or no body at all: None
    body, STOMP  as sent
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID

from gateway.model import stomp_form
from gateway.model.amqp_types import (
    AmqpArray,
    AmqpDecimal,
    AmqpMap,
    DecodeError,
    Described,
    Timestamp,
    Value,
    decode,
    skip,
)
from gateway.model.message import STOMP

RAW_AMQP: Final = "application/vnd.amqp"
#: Different heads remembered at once; a sender with ids in its messages never repeats one.
_HEADS_MAX: Final = 1024

_HEADER: Final = 0x70
_ANNOTATIONS: Final = 0x72
_PROPERTIES: Final = 0x73
_APPLICATION_PROPERTIES: Final = 0x74
_DATA: Final = 0x75
_SEQUENCE: Final = 0x76
_VALUE: Final = 0x77
_FOOTER: Final = 0x78
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

#: name -> value; several values only where a STOMP sender repeated a header.
Headers = Sequence[tuple[str, Value]]


class Head(NamedTuple):
    """What a message says besides its body."""

    message_id: str | None = None
    subject: str | None = None
    content_type: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    key: str | None = None
    ttl_ms: int | None = None
    created_ms: int | None = None
    expires_ms: int | None = None
    delivery_count: int = 0
    headers: Headers = ()
    annotations: Headers = ()


_UNREADABLE: Final = Head(content_type=RAW_AMQP)


class MessageReader:
    """Reads stored messages; keeps the heads it has seen. One for each reading, never shared."""

    __slots__ = ("_amqp_heads", "_stomp_heads")

    def __init__(self) -> None:
        self._amqp_heads: dict[bytes, Head] = {}
        self._stomp_heads: dict[bytes, Head] = {}

    def read(self, raw: bytes, flags: int) -> tuple[Head, bytes | None]:
        """Return head and body of one stored message. Never raises."""
        if flags & STOMP:
            return self._read_stomp(raw)
        try:
            return self._read_amqp(raw)
        except (DecodeError, IndexError):
            return _UNREADABLE, raw

    def _read_amqp(self, raw: bytes) -> tuple[Head, bytes | None]:
        """Walk to the first body section by section sizes alone, look the head up, cut the body."""
        end = len(raw)
        at = 0
        code = _FOOTER
        after = 0
        while at < end:
            code, start, after = _section(raw, at, end)
            if code >= _DATA:
                break
            at = after
        key = raw[:at]
        head = self._amqp_heads.get(key)
        if head is None:
            head = _amqp_head(key)
            if len(self._amqp_heads) >= _HEADS_MAX:
                self._amqp_heads.clear()
            self._amqp_heads[key] = head
        if at >= end:
            return head, None
        if code == _DATA and after == end:
            return head, _binary(raw, start, end)
        return head, _body(raw, at, end)

    def _read_stomp(self, raw: bytes) -> tuple[Head, bytes | None]:
        """Split at the empty line; content-length changes with the body: it is not in the key."""
        split = raw.find(b"\n\n")
        if split < 0:
            return _UNREADABLE, raw
        length_at = raw.find(b"\ncontent-length:", 0, split)
        if length_at < 0:
            key = raw[:split]
        else:
            key = raw[:length_at] + raw[raw.find(b"\n", length_at + 1) : split]
        head = self._stomp_heads.get(key)
        if head is None:
            head = _stomp_head(key)
            if len(self._stomp_heads) >= _HEADS_MAX:
                self._stomp_heads.clear()
            self._stomp_heads[key] = head
        return head, raw[split + 2 :]


# -- AMQP --------------------------------------------------------------------------------------


def _section(raw: bytes, at: int, end: int) -> tuple[int, int, int]:
    """Return a section's descriptor code, where its value starts and where the section ends."""
    if raw[at] != 0:
        raise DecodeError(at, "a section must be a described value")
    if raw[at + 1] == 0x53:
        code, start = raw[at + 2], at + 3
    else:
        descriptor, start = decode(raw, at + 1, end)
        if not isinstance(descriptor, int) or descriptor > 0xFF:
            raise DecodeError(at, "the descriptor names no section")
        code = int(descriptor)
    if not _HEADER <= code <= _FOOTER:
        raise DecodeError(at, f"descriptor {code:#x} names no section")
    kind = raw[start] >> 4
    if kind in (0xA, 0xC, 0xE):
        after = start + 2 + raw[start + 1]
    elif kind in (0xB, 0xD, 0xF):
        after = start + 5 + int.from_bytes(raw[start + 1 : start + 5], "big")
    else:
        after = skip(raw, start, end)
    if after > end:
        raise DecodeError(at, "the section is cut short")
    return code, start, after


def _amqp_head(prefix: bytes) -> Head:
    """Decode all sections in front of the body."""
    found: dict[str, Value] = {}
    at, end = 0, len(prefix)
    while at < end:
        code, start, after = _section(prefix, at, end)
        at = after
        if code == _HEADER:
            fields = _items(prefix, start, after)
            found["ttl_ms"] = _integer(_field(fields, 2))
            found["delivery_count"] = _integer(_field(fields, 4)) or 0
        elif code == _PROPERTIES:
            found.update(_properties(_items(prefix, start, after)))
        elif code == _APPLICATION_PROPERTIES:
            found["headers"] = _pairs(decode(prefix, start, after)[0])
        elif code == _ANNOTATIONS:
            found["annotations"] = _pairs(decode(prefix, start, after)[0])
    return Head(**found)


def _properties(fields: Sequence[Value]) -> dict[str, Value]:
    """Return the fields of a properties section that have a column [AMQP 3.2.4]."""
    return {
        "message_id": _identifier(_field(fields, 0)),
        "subject": _text_or_none(_field(fields, 3)),
        "reply_to": _text_or_none(_field(fields, 4)),
        "correlation_id": _identifier(_field(fields, 5)),
        "content_type": _text_or_none(_field(fields, 6)),
        "expires_ms": _integer(_field(fields, 8)),
        "created_ms": _integer(_field(fields, 9)),
        "key": _text_or_none(_field(fields, 10)),
    }


def _items(raw: bytes, start: int, end: int) -> Sequence[Value]:
    """Return the items of a list; the short forms, most of all properties, without a call each."""
    code = raw[start]
    if code == 0xC0:
        count, at = raw[start + 2], start + 3
    elif code == 0xD0:
        count, at = int.from_bytes(raw[start + 5 : start + 9], "big"), start + 9
    else:
        value = decode(raw, start, end)[0]
        return value if isinstance(value, list) else ()
    items: list[Value] = []
    for _ in range(min(count, 32)):
        code = raw[at]
        if code == 0x40:
            items.append(None)
            at += 1
        elif code in (0xA1, 0xA3):
            stop = at + 2 + raw[at + 1]
            if stop > end:
                raise DecodeError(at, "a text is cut short")
            items.append(raw[at + 2 : stop].decode("utf-8", "replace"))
            at = stop
        else:
            value, at = decode(raw, at, end)
            items.append(value)
    return items


def _field(fields: Sequence[Value], index: int) -> Value:
    return fields[index] if index < len(fields) else None


def _binary(raw: bytes, start: int, end: int) -> bytes:
    """Return the bytes of a data section whose value starts at `start` and ends at `end`."""
    if raw[start] == 0xA0:
        return raw[start + 2 : end]
    if raw[start] == 0xB0:
        return raw[start + 5 : end]
    raise DecodeError(start, "a data section must hold a binary")


def _body(raw: bytes, at: int, end: int) -> bytes | None:
    """Return the body that starts with the section at `at`."""
    parts: list[bytes] = []
    items: list[Value] = []
    first = -1
    while at < end:
        code, start, after = _section(raw, at, end)
        first = code if first < 0 else first
        if code == _DATA:
            parts.append(_binary(raw, start, after))
        elif code == _SEQUENCE:
            value = decode(raw, start, after)[0]
            items.extend(value if isinstance(value, list) else [value])
        elif code == _VALUE:
            return _value_bytes(decode(raw, start, after)[0])
        at = after
    if first == _FOOTER:
        return None
    return json_text(items).encode() if first == _SEQUENCE else b"".join(parts)


def _value_bytes(value: Value) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json_text(value)).encode("utf-8", "replace")


def _pairs(value: Value) -> Headers:
    if isinstance(value, AmqpMap):
        return [(_text(k), v) for k, v in value.pairs]
    return [(_text(k), v) for k, v in value.items()] if isinstance(value, Mapping) else ()


def _integer(value: Value) -> int | None:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _identifier(value: Value) -> str | None:
    """Return a message-id as text; a binary one as the conversion to STOMP writes it."""
    if isinstance(value, bytes):
        return "ID:" + b64encode(value).decode()
    return _text_or_none(value)


def _text_or_none(value: Value) -> str | None:
    return None if value is None else _text(value)


# -- STOMP -------------------------------------------------------------------------------------

#: Stored headers that are columns or belong to the frame; all others are the sender's own.
_STOMP_OWN: Final = stomp_form.PLACED_HEADERS | {"correlation-id", "reply-to"}


def _stomp_head(key: bytes) -> Head:
    pairs, _ = stomp_form.unpack(key + b"\n\n")
    first: dict[str, str] = {}
    headers: dict[str, list[str]] = {}
    for name, value in pairs:
        first.setdefault(name, value)
        if name not in _STOMP_OWN:
            headers.setdefault(name, []).append(value)
    expires = first.get("expires", "")
    return Head(
        subject=first.get("subject", first.get("type")),
        content_type=first.get("content-type"),
        correlation_id=first.get("correlation-id"),
        reply_to=first.get("reply-to"),
        key=first.get("JMSXGroupID", first.get("group-id")),
        expires_ms=int(expires) if expires.isdigit() else None,
        headers=[(n, v[0] if len(v) == 1 else tuple(v)) for n, v in headers.items()],
    )


# -- text forms --------------------------------------------------------------------------------


def headers_map(headers: Headers) -> list[tuple[str, str | None]]:
    """Return headers as text pairs; of a repeated one the first counts."""
    return [
        (name, _text_or_none(value[0] if isinstance(value, tuple) else value))
        for name, value in headers
    ]


def headers_json(headers: Headers) -> str:
    """Return headers as one JSON object; a repeated one becomes a list."""
    return json_text(dict(headers))


def json_text(value: Value) -> str:
    """Return an AMQP value as JSON text."""
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _text(value: Value) -> str:
    if isinstance(value, str):
        return str(value)
    plain = _plain(value)
    return plain if isinstance(plain, str) else json_text(value)


def _plain(value: Value) -> Value:
    """Return what JSON has for an AMQP value: times in ISO 8601, binaries in base64."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Timestamp):
        return _iso(int(value))
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, (bytes, AmqpDecimal)):
        return b64encode(value if isinstance(value, bytes) else value.raw).decode()
    if isinstance(value, Described):
        return _plain(value.value)
    if isinstance(value, AmqpMap):
        return {_text(k): _plain(v) for k, v in value.pairs}
    if isinstance(value, Mapping):
        return {_text(k): _plain(v) for k, v in value.items()}
    items = value.items if isinstance(value, AmqpArray) else value
    return [_plain(item) for item in items]


def _iso(stamp_ms: int) -> str:
    try:
        moment = _EPOCH + timedelta(milliseconds=stamp_ms)
    except OverflowError:
        return str(stamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
