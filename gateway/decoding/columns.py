"""From messages as they were stored to the fields that readers see, one after the other.

With `shapes` the only module here that knows the two stored forms: AMQP sections [AMQP 3.2] and the
STOMP form of `gateway.model.stomp_form`. Nothing raises on a message, whatever its bytes are: what
cannot be read arrives as it is, with content type `application/vnd.amqp`.

All that stands in front of an AMQP body is one run of bytes, and so is a STOMP head but for the
digits of content-length. Senders repeat theirs, so the head of the message before is tried first
(no parsing at all), then those remembered by their bytes; only a new one is parsed. What is rare
(several body sections, values that are no text, long forms) goes through `gateway.model.sections`.

    body, AMQP   data sections joined; a string value as UTF-8; a binary value as it is; other
                 values, and sequences, as JSON text; null or no body at all: None
    body, STOMP  as sent
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from ..model.amqp_decode import decode
from ..model.amqp_values import AmqpMap, DecodeError, Timestamp, ULong, Value
from ..model.message import STOMP
from ..model.plain_text import id_text, json_text, text
from ..model.section_list import BodyKind, Sections, scan
from ..model.section_scan import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
)
from ..model.stomp_form import unpack
from .shapes import Length, Shape
from .spots import Spot, amqp_spots, stomp_spots

RAW_AMQP: Final = "application/vnd.amqp"
#: Heads (and parts of heads) remembered at once; a sender with ids in its messages repeats none.
_REMEMBERED_MAX: Final = 1024
#: Of a content-length: no message has more bytes than an Arrow column of one.
_DIGITS_MAX: Final = 10
#: A properties list has 13 fields; what is behind them is not the standard's.
_FIELDS_MAX: Final = 13
#: Fixed-width integers: constructor -> (bytes, signed). Their AMQP type does not show in text.
INTEGERS: Final = {
    0x50: (1, False), 0x51: (1, True), 0x52: (1, False), 0x53: (1, False), 0x54: (1, True),
    0x55: (1, True), 0x60: (2, False), 0x61: (2, True), 0x70: (4, False), 0x71: (4, True),
    0x80: (8, False), 0x81: (8, True),
}  # fmt: skip
Remembered = TypeVar("Remembered")
_i64 = struct.Struct(">q").unpack_from

#: name -> value; a tuple of values where a STOMP sender repeated a header.
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


class Parsed(NamedTuple):
    """Messages: `indices[i]` says which of `heads` row i has."""

    heads: list[Head]
    indices: array[int]
    bodies: list[bytes | None]


_UNREADABLE: Final = Head(content_type=RAW_AMQP)


class BlockReader:
    """Reads stored messages; keeps heads it has seen. One for each reading, never shared."""

    __slots__ = ("_amqp_heads", "_headers", "_parts", "_stomp_heads")

    def __init__(self) -> None:
        self._amqp_heads: dict[bytes, Head] = {}
        self._stomp_heads: dict[bytes, Head] = {}
        self._headers: dict[bytes, Sequence[Value]] = {}
        self._parts: dict[bytes, Headers] = {}

    def read(self, data: bytes, offsets: Sequence[int], flags: Sequence[int]) -> Parsed:
        """Return heads and bodies of the messages `data[offsets[i]:offsets[i + 1]]`.

        Never raises. `flags` has one word for each message.
        """
        heads: list[Head] = []
        indices = array("i")
        bodies: list[bytes | None] = []
        places: dict[int, int] = {}
        # What the message before had in front of its body; None when nothing can be like it.
        prefix: bytes | None = None
        before: bytes | None = None
        behind = b""
        amqp_index = stomp_index = 0
        at = offsets[0]
        for end, word in zip(offsets[1:], flags, strict=True):
            if word & STOMP:
                if before is not None and data.startswith(before, at, end):
                    split = data.find(b"\n", at + len(before), end)
                    if split >= 0 and data.startswith(behind, split, end):
                        indices.append(stomp_index)
                        bodies.append(data[split + len(behind) : end])
                        at = end
                        continue
                head, body, before, behind = self._read_stomp(data[at:end])
                index = stomp_index = _place(heads, places, head)
            else:
                if prefix is not None and data.startswith(prefix, at, end):
                    start = _whole_start(data, at + len(prefix), end)
                    if start:
                        indices.append(amqp_index)
                        bodies.append(data[start:end])
                        at = end
                        continue
                head, body, prefix = self._read_amqp(data[at:end])
                index = amqp_index = _place(heads, places, head)
            indices.append(index)
            bodies.append(body)
            at = end
        return Parsed(heads, indices, bodies)

    def shape_of(self, raw: bytes, word: int) -> tuple[Head, Shape | None]:
        """Return the head of a message, and its shape if others can have it. Never raises."""
        if word & STOMP:
            head, _, before, _ = self._read_stomp(raw)
            split = raw.find(b"\n\n")
            front = raw[: split + 2]
            if split < 0:
                return head, None
            if before is None:
                return head, Shape(front, text=True)
            width = raw.find(b"\n", len(before)) - len(before)
            shape = Shape(front, Length.DIGITS, len(before), width, text=True)
            return head, shape if 0 < width <= _DIGITS_MAX else None
        head, _, prefix = self._read_amqp(raw)
        if prefix is None:
            return head, None
        width = 4 if raw[len(prefix)] in (0xB0, 0xB1) else 1
        front = raw[: len(prefix) + 1 + width]
        return head, Shape(front, Length.BINARY, len(prefix) + 1, width)

    def spots_of(self, shape: Shape) -> list[Spot]:
        """Return where values are in the front of a shape that `shape_of` has returned."""
        if shape.text:
            return stomp_spots(shape.front)
        sections = _short_sections(shape.front[: shape.length_at - 4])
        return amqp_spots(shape.front, sections)

    def _read_amqp(self, raw: bytes) -> tuple[Head, bytes | None, bytes | None]:
        """Return head, body, and how the next message starts if it is the same but for the body."""
        try:
            body_at = _body_at(raw)
            if body_at < 0:
                found = scan(raw)
                spans = [(code, at, end) for code, (_, at, end) in found.spans.items()]
                return self._amqp_head(raw, spans), _rare_body(found), None
            key = raw[:body_at]
            head = self._amqp_heads.get(key)
            if head is None:
                head = self._amqp_head(key, _short_sections(key))
                _remember(self._amqp_heads, key, head)
            if raw[body_at + 2 : body_at + 3] in _SIMPLE_BODIES:
                start = _whole_start(raw, body_at + 3, len(raw))
                if start:
                    return head, raw[start:], raw[: body_at + 3]
            return head, _rare_body(scan(raw)), None
        except (DecodeError, IndexError):
            return _UNREADABLE, raw, None

    def _amqp_head(self, raw: bytes, sections: Iterable[tuple[int, int, int]]) -> Head:
        """Parse the sections in front of a body: (code, start of the value, end) of each."""
        fields: Sequence[Value] = ()
        header: Sequence[Value] = ()
        headers: Headers = ()
        annotations: Headers = ()
        for code, start, end in sections:
            if code == PROPERTIES:
                fields = _items(raw, start, end)
            elif code == HEADER:
                header = self._header(raw[start:end])
            elif code == APPLICATION_PROPERTIES:
                headers = self._pairs(raw[start:end])
            elif code == MESSAGE_ANNOTATIONS:
                annotations = self._pairs(raw[start:end])
        count = len(fields)
        return Head(
            _id(fields[0]) if count > 0 else None,
            _text(fields[3]) if count > 3 else None,
            _text(fields[6]) if count > 6 else None,
            _id(fields[5]) if count > 5 else None,
            _text(fields[4]) if count > 4 else None,
            _text(fields[10]) if count > 10 else None,
            _count(header[2]) if len(header) > 2 else None,
            _integer(fields[9]) if count > 9 else None,
            _integer(fields[8]) if count > 8 else None,
            (_count(header[4]) or 0) if len(header) > 4 else 0,
            headers,
            annotations,
        )

    def _header(self, raw: bytes) -> Sequence[Value]:
        """Return the fields of an encoded header section; there are few different ones."""
        known = self._headers.get(raw)
        if known is None:
            known = _items(raw, 0, len(raw))
            _remember(self._headers, raw, known)
        return known

    def _pairs(self, raw: bytes) -> Headers:
        """Return the pairs of an encoded map; a sender's properties repeat more than its ids."""
        known = self._parts.get(raw)
        if known is None:
            known = _pairs(raw)
            _remember(self._parts, raw, known)
        return known

    def _read_stomp(self, raw: bytes) -> tuple[Head, bytes | None, bytes | None, bytes]:
        """Return head, body, and what stands before and behind the digits of content-length."""
        split = raw.find(b"\n\n")
        if split < 0:
            return _UNREADABLE, raw, None, b""
        length_at = raw.find(_LENGTH, 0, split)
        before: bytes | None
        if length_at < 0:
            before, behind, key = None, b"", raw[:split]
        else:
            digits_at = length_at + len(_LENGTH)
            line_end = raw.find(b"\n", digits_at)
            before, behind = raw[:digits_at], raw[line_end : split + 2]
            key = raw[:length_at] + raw[line_end:split]
        head = self._stomp_heads.get(key)
        if head is None:
            head = _stomp_head(key)
            _remember(self._stomp_heads, key, head)
        return head, raw[split + 2 :], before, behind


def _place(heads: list[Head], places: dict[int, int], head: Head) -> int:
    """Return where `head` (the object) is in the block's list, added when it is new."""
    index = places.get(id(head))
    if index is None:
        index = places[id(head)] = len(heads)
        heads.append(head)
    return index


def _remember(memory: dict[bytes, Remembered], key: bytes, value: Remembered) -> None:
    """Remember until the memory is full: a reading is short, and who fills it repeats nothing."""
    if len(memory) < _REMEMBERED_MAX:
        memory[key] = value


# ---- AMQP

#: Sections whose value, if it is a binary or a string, is the body: data and amqp-value.
_SIMPLE_BODIES: Final = (b"\x75", b"\x77")


def _whole_start(data: bytes, at: int, end: int) -> int:
    """Return where the bytes of a binary or string start that is at `at` and fills up to `end`.

    0 when it does not: it is something else, or another section follows.
    """
    if end - at > 1:
        code = data[at]
        if code in (0xA0, 0xA1) and at + 2 + data[at + 1] == end:
            return at + 2
        if code in (0xB0, 0xB1) and at + 5 + int.from_bytes(data[at + 1 : at + 5], "big") == end:
            return at + 5
    return 0


def _body_at(raw: bytes) -> int:
    """Return where the first section starts that is not in front of a body: the end if none does.

    -1 when a section is not written in the usual short form, or is none: `scan` knows. May raise
    IndexError on a message that is cut.
    """
    at, end, last = 0, len(raw), 0
    while at < end:
        code = raw[at + 2]
        if raw[at] or raw[at + 1] != 0x53 or code <= last:
            return -1
        if code >= DATA:
            return at
        kind = raw[at + 3]
        if kind in (0xC0, 0xC1):
            at += 5 + raw[at + 4]
        elif kind in (0xD0, 0xD1):
            at += 8 + int.from_bytes(raw[at + 4 : at + 8], "big")
        elif kind == 0x45:
            at += 4
        else:
            return -1
        last = code
    return at if at == end else -1


def _short_sections(prefix: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the sections of what `_body_at` has walked over."""
    at, end = 0, len(prefix)
    while at < end:
        start, kind = at + 3, prefix[at + 3]
        if kind == 0x45:
            after = start + 1
        elif kind < 0xD0:
            after = start + 2 + prefix[start + 1]
        else:
            after = start + 5 + int.from_bytes(prefix[start + 1 : start + 5], "big")
        yield prefix[at + 2], start, after
        at = after


def _rare_body(found: Sections) -> bytes | None:
    """Return the body of any message that can be read. Raises DecodeError."""
    if found.body_kind is BodyKind.DATA:
        return found.data()
    if found.body_kind is BodyKind.SEQUENCE:
        return json_text(found.sequence()).encode("utf-8", "replace")
    value = found.value() if found.body_kind is BodyKind.VALUE else None
    if value is None or isinstance(value, bytes):
        return value
    shown = value if isinstance(value, str) else json_text(value)
    return shown.encode("utf-8", "replace")


def _items(raw: bytes, start: int, end: int, count_max: int = _FIELDS_MAX) -> list[Value]:
    """Return the first items of an encoded list or map; the common short forms without a call."""
    code = raw[start]
    if code in (0xC0, 0xC1):
        count, at = raw[start + 2], start + 3
    elif code in (0xD0, 0xD1):
        count, at = int.from_bytes(raw[start + 5 : start + 9], "big"), start + 9
    elif code == 0x45:
        return []
    else:
        raise DecodeError(start, "neither a list nor a map")
    items: list[Value] = []
    for _ in range(min(count, count_max)):
        code = raw[at]
        if code in (0xA1, 0xA3):
            stop = at + 2 + raw[at + 1]
            items.append(raw[at + 2 : stop].decode("utf-8", "replace"))
            at = stop
        elif code == 0x40:
            items.append(None)
            at += 1
        elif code in INTEGERS:
            width, signed = INTEGERS[code]
            items.append(int.from_bytes(raw[at + 1 : at + 1 + width], "big", signed=signed))
            at += 1 + width
        elif code == 0x83 and at + 9 <= end:
            items.append(Timestamp(_i64(raw, at + 1)[0]))
            at += 9
        else:
            value, at = decode(raw, at, end)
            items.append(value)
    if at > end:
        raise DecodeError(at, "a list is cut short")
    return items


def _pairs(raw: bytes) -> Headers:
    """Return the pairs of one encoded map. Raises DecodeError, IndexError."""
    if raw[0] == 0xC1:
        flat = _items(raw, 0, len(raw), 0xFF)
        if len(flat) & 1:
            raise DecodeError(0, "a map has a name without a value")
        return list(zip(map(text, flat[::2]), flat[1::2], strict=True))
    value = decode(raw, 0, len(raw))[0]
    if isinstance(value, AmqpMap):
        return [(text(k), v) for k, v in value.pairs]
    return [(text(k), v) for k, v in value.items()] if isinstance(value, Mapping) else ()


def _integer(value: Value) -> int | None:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _count(value: Value) -> int | None:
    """Return a number of a header; None for one that is none there and would fit no column."""
    found = _integer(value)
    return found if found is not None and 0 <= found < 1 << 63 else None


def _id(value: Value) -> str | None:
    """Return a message-id as text, in the form that the conversion to STOMP writes."""
    if value is None:
        return None
    if isinstance(value, (str, bytes, UUID)) or type(value) in (int, ULong):
        return id_text(value)
    return text(value)


def _text(value: Value) -> str | None:
    return None if value is None else text(value)


# ---- STOMP

_LENGTH: Final = b"\ncontent-length:"
#: Stored headers that are columns or belong to the frame; all others are the sender's own.
_STOMP_OWN: Final = frozenset(
    {"destination", "content-type", "content-length", "priority", "persistent", "expires",
     "correlation-id", "reply-to"}
)  # fmt: skip
#: Headers of the sender's own that are columns too.
_STOMP_COLUMNS: Final = frozenset(
    {"NATIVE_MESSAGE_ID", "subject", "type", "JMSXGroupID", "timestamp"}
)


def _stomp_head(key: bytes) -> Head:
    own: dict[str, str] = {}
    headers: dict[str, Value] = {}
    for name, value in _stomp_pairs(key):
        if name in _STOMP_OWN:
            own.setdefault(name, value)
        elif name in headers:
            known = headers[name]
            headers[name] = (*known, value) if isinstance(known, tuple) else (known, value)
        else:
            headers[name] = value
    has = headers.keys() & _STOMP_COLUMNS
    return Head(
        _first(headers, "NATIVE_MESSAGE_ID") if has else None,
        (_first(headers, "subject") or _first(headers, "type")) if has else None,
        own.get("content-type"),
        own.get("correlation-id"),
        own.get("reply-to"),
        _first(headers, "JMSXGroupID") if has else None,
        None,
        _digits(_first(headers, "timestamp")) if has else None,
        _digits(own.get("expires")),
        0,
        list(headers.items()),
    )


def _stomp_pairs(key: bytes) -> Sequence[tuple[str, str]]:
    if b"\\" in key:
        return unpack(key + b"\n\n")[0]
    lines = key.decode("utf-8", "replace").split("\n")
    return [(name, value) for name, colon, value in [x.partition(":") for x in lines] if colon]


def _first(headers: Mapping[str, Value], name: str) -> str | None:
    value: str | tuple[str, ...] | None = headers.get(name)
    return value[0] if isinstance(value, tuple) else value


def _digits(value: str | None) -> int | None:
    return int(value) if value and value.isascii() and value.isdigit() and len(value) < 19 else None


# ---- text forms


def headers_map(headers: Headers) -> list[tuple[str, str | None]]:
    """Return headers as text pairs, each name once: of a repeated one the first counts."""
    shown: dict[str, str | None] = {}
    for name, value in headers:
        shown.setdefault(name, _text(value[0] if isinstance(value, tuple) else value))
    return list(shown.items())


def headers_json(headers: Headers) -> str:
    """Return headers as one JSON object; a repeated one becomes a list."""
    return json_text(dict(headers))
