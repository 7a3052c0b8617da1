"""Where the sections of an AMQP message lie, and what its header says [AMQP 3.2].

    0x70 header                   list     0x75 data                      binary, one or more
    0x71 delivery-annotations     map      0x76 amqp-sequence             list, one or more
    0x72 message-annotations      map      0x77 amqp-value                any, one
    0x73 properties               list     0x78 footer                    map
    0x74 application-properties   map

Each section is a described value; descriptors may be smallulong, ulong or symbolic. Sections stand
in the order of the table, the three kinds of body exclude one another, and any section may be
missing (a missing body breaks the standard, but clients do it). A scan reads descriptors and outer
sizes only; what lies inside is decoded when somebody asks. A broken message is a `DecodeError`: the
caller decides what that means. Knows no flags of ours and no queue.
"""

from __future__ import annotations

import struct
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple
from uuid import UUID

from gateway.model.amqp_types import (
    AmqpMap,
    DecodeError,
    Described,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    Value,
    decode,
    skip,
)

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

#: More sections than any client sends; bounds a scan of 16 MiB of empty data sections.
SECTIONS_MAX: Final = 4096
_PRIORITY_MAX: Final = 9
_DEFAULT_PRIORITY: Final = 4
#: A header in its longest sensible encoding; longer ones are not worth remembering.
_HEADER_BYTES_CACHED: Final = 48

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

_u32 = struct.Struct(">I").unpack_from

_LIST: Final = frozenset({0x45, 0xC0, 0xD0})
_MAP: Final = frozenset({0xC1, 0xD1})
_BINARY: Final = frozenset({0xA0, 0xB0})
#: Constructors that a section's value may have; absent means any.
_SHAPES: Final[dict[int, frozenset[int]]] = {
    HEADER: _LIST,
    DELIVERY_ANNOTATIONS: _MAP,
    MESSAGE_ANNOTATIONS: _MAP,
    PROPERTIES: _LIST,
    APPLICATION_PROPERTIES: _MAP,
    DATA: _BINARY,
    SEQUENCE: _LIST,
    FOOTER: _MAP,
}
_SYMBOLS: Final[dict[str, int]] = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}


class BodyKind(Enum):
    """What kind of body a message has; the value is the section's code."""

    NONE = 0
    DATA = DATA
    SEQUENCE = SEQUENCE
    VALUE = VALUE


class HeaderFacts(NamedTuple):
    """What the header section says; a missing field has the standard's default [AMQP 3.2.1].

    Attributes:
        priority: 0..9, larger ones count as 9 (the byte itself goes out as it came).
        ttl_ms: None when absent.
        end: offset behind the header section; 0 without one.
    """

    durable: bool
    priority: int
    ttl_ms: int | None
    first_acquirer: bool
    delivery_count: int
    end: int


NO_HEADER: Final = HeaderFacts(False, _DEFAULT_PRIORITY, None, False, 0, 0)


def header_facts(body: bytes) -> HeaderFacts:
    """Return what the header says, or the defaults; raises DecodeError. Reads nothing behind it."""
    head = body[:4]
    if head == b"\x00\x53\x70\xc0":
        # Producers repeat their headers: a slice and a look into the cache is all it costs.
        end = 5 + body[4] if len(body) > 4 else 5
        if end <= _HEADER_BYTES_CACHED:
            return _remembered(body[:end])
    elif head[:2] == b"\x00\x53" and head[2:3] != b"\x70":
        return NO_HEADER
    code, _, end = section_at(body, 0) if body else (FOOTER, 0, 0)
    return _read_header(body[:end]) if code == HEADER else NO_HEADER


def header_fields(section: bytes) -> list[Value]:
    """Return the five fields of an encoded header section, None for absent ones."""
    value = _whole(section, 0, len(section))
    fields = value.value if type(value) is Described else None
    if type(fields) is not list or any(field is not None for field in fields[5:]):
        raise DecodeError(0, "header section is no list of five fields")
    fields = [*fields[:5], None, None, None, None, None][:5]
    for field, kind in zip(fields, (bool, UByte, UInt, bool, UInt), strict=True):
        if field is not None and type(field) is not kind:
            raise DecodeError(
                0, f"header field of type {type(field).__name__}, not {kind.__name__}"
            )
    return fields


def _read_header(section: bytes) -> HeaderFacts:
    durable, priority, ttl, first_acquirer, count = header_fields(section)
    return HeaderFacts(
        durable is True,
        _DEFAULT_PRIORITY if priority is None else min(int(priority), _PRIORITY_MAX),
        None if ttl is None else int(ttl),
        first_acquirer is True,
        int(count or 0),
        len(section),
    )


_remembered = lru_cache(maxsize=1024)(_read_header)


def section_at(body: bytes, pos: int) -> tuple[int, int, int]:
    """Return the code of the section at `pos`, where its value starts, and where it ends.

    Raises DecodeError when it is no section, or its value has the wrong constructor.
    """
    end = len(body)
    if body[pos : pos + 2] == b"\x00\x53" and pos + 3 < end:
        code, at = body[pos + 2], pos + 3
    else:
        code, at = _descriptor(body, pos)
    if at >= end or not HEADER <= code <= FOOTER:
        raise DecodeError(pos, "no message section")
    constructor = body[at]
    if code != VALUE:
        if constructor not in _SHAPES[code]:
            raise DecodeError(at, f"section {code:#04x} with constructor {constructor:#04x}")
        # The two usual sizes, spelled out: this runs four times for a usual message.
        if constructor & 0x10:
            behind = at + 5 + _u32(body, at + 1)[0] if at + 5 <= end else end + 1
        elif constructor == 0x45:
            behind = at + 1
        else:
            behind = at + 2 + body[at + 1] if at + 2 <= end else end + 1
        if behind > end:
            raise DecodeError(at, f"section {code:#04x} cut short")
        return code, at, behind
    return code, at, skip(body, at, end)


def _descriptor(body: bytes, pos: int) -> tuple[int, int]:
    if body[pos : pos + 1] != b"\x00":
        raise DecodeError(pos, "no message section")
    descriptor, at = decode(body, pos + 1, len(body), depth_max=0)
    if type(descriptor) is ULong:
        return int(descriptor), at
    if type(descriptor) is Symbol and descriptor in _SYMBOLS:
        return _SYMBOLS[descriptor], at
    raise DecodeError(pos, "no message section")


def _whole(body: bytes, start: int, end: int) -> Value:
    value, behind = decode(body, start, end)
    if behind != end:
        raise DecodeError(behind, f"{end - behind} bytes left over in a section")
    return value


def peek(body: bytes) -> Sections:
    """Return the sections in front of the body; what lies behind is not looked at.

    `body_kind` is known, the body's bounds are not. Raises DecodeError.
    """
    return _scan(body, whole=False)


def scan(body: bytes) -> Sections:
    """Return all sections of a message, which must fill `body`; raises DecodeError."""
    return _scan(body, whole=True)


def _scan(body: bytes, *, whole: bool) -> Sections:
    found = Sections(body)
    spans, parts = found.spans, found.parts
    pos, end, last = 0, len(body), 0
    while pos < end:
        start = pos
        code, at, pos = section_at(body, start)
        if code < last or (code == last and code not in (DATA, SEQUENCE)):
            raise DecodeError(start, f"section {code:#04x} behind section {last:#04x}")
        if DATA <= code <= VALUE:
            if last != code and DATA <= last <= VALUE:
                raise DecodeError(start, "two kinds of body in one message")
            found.body_kind = BodyKind(code)
            if not whole:
                return found
            parts.append((at, pos))
            if len(parts) > SECTIONS_MAX:
                raise DecodeError(start, f"more than {SECTIONS_MAX} body sections")
        else:
            spans[code] = (start, at, pos)
        last = code
    return found


_Id = ULong | UUID | bytes | str
_ID: Final = (ULong, UUID, bytes, str)
_TEXT: Final = (str,)
#: content-type and content-encoding are symbols; some clients write strings.
_TOKEN: Final = (Symbol, str)
_TIME: Final = (Timestamp,)


class Sections:
    """The sections of one message, found by `scan` or `peek`; contents are decoded when asked for.

    Every accessor may raise DecodeError.

    Attributes:
        body: the whole message.
        spans: code -> (start, start of the value, end) of each section that is no body.
        parts: (start of the value, end) of each body section; empty after `peek`.
        body_kind: which kind of body there is.
    """

    __slots__ = ("_fields", "_maps", "body", "body_kind", "parts", "spans")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.spans: dict[int, tuple[int, int, int]] = {}
        self.parts: list[tuple[int, int]] = []
        self.body_kind = BodyKind.NONE
        self._maps: dict[int, dict[Value, Value]] = {}
        self._fields: list[Value] | None = None

    @property
    def message_id(self) -> _Id | None:
        found: _Id | None = self._property(0, _ID)
        return found

    @property
    def user_id(self) -> bytes | None:
        found: bytes | None = self._property(1, (bytes,))
        return found

    @property
    def to(self) -> str | None:
        return self._text(2, _TEXT)

    @property
    def subject(self) -> str | None:
        return self._text(3, _TEXT)

    @property
    def reply_to(self) -> str | None:
        return self._text(4, _TEXT)

    @property
    def correlation_id(self) -> _Id | None:
        found: _Id | None = self._property(5, _ID)
        return found

    @property
    def content_type(self) -> str | None:
        return self._text(6, _TOKEN)

    @property
    def content_encoding(self) -> str | None:
        return self._text(7, _TOKEN)

    @property
    def absolute_expiry_time(self) -> int | None:
        return self._number(8, _TIME)

    @property
    def creation_time(self) -> int | None:
        return self._number(9, _TIME)

    @property
    def group_id(self) -> str | None:
        return self._text(10, _TEXT)

    @property
    def group_sequence(self) -> int | None:
        return self._number(11, (UInt,))

    @property
    def reply_to_group_id(self) -> str | None:
        return self._text(12, _TEXT)

    @property
    def delivery_annotations(self) -> dict[Value, Value]:
        return self._map(DELIVERY_ANNOTATIONS)

    @property
    def message_annotations(self) -> dict[Value, Value]:
        return self._map(MESSAGE_ANNOTATIONS)

    @property
    def application_properties(self) -> dict[Value, Value]:
        found = self._map(APPLICATION_PROPERTIES)
        if any(type(name) is not str for name in found):
            raise DecodeError(self.spans[APPLICATION_PROPERTIES][1], "property name is no string")
        return found

    @property
    def footer(self) -> dict[Value, Value]:
        return self._map(FOOTER)

    def data(self) -> bytes:
        """Return the bytes of all data sections, joined."""
        body = self.body
        # One-byte sizes stand behind 0xa0, four-byte sizes behind 0xb0.
        return b"".join([body[at + (2 if body[at] == 0xA0 else 5) : end] for at, end in self.parts])

    def sequence(self) -> list[Value]:
        """Return the items of all sequence sections, joined."""
        return [item for at, end in self.parts for item in _whole(self.body, at, end)]

    def value(self) -> Value:
        """Return the value of the amqp-value section."""
        at, end = self.parts[0]
        return _whole(self.body, at, end)

    def read_properties(self) -> None:
        """Decode the properties section as a whole: for those who ask for most of its fields."""
        span = self.spans.get(PROPERTIES)
        if span is not None and self._fields is None:
            self._fields = _whole(self.body, span[1], span[2])

    def _text(self, index: int, kinds: tuple[type, ...]) -> str | None:
        found: str | None = self._property(index, kinds)
        return found

    def _number(self, index: int, kinds: tuple[type, ...]) -> int | None:
        found: int | None = self._property(index, kinds)
        return found

    def _property(self, index: int, kinds: tuple[type, ...]) -> Value:
        span = self.spans.get(PROPERTIES)
        if span is None:
            return None
        fields = self._fields
        if fields is None:
            value = list_item(self.body, span[1], index)
        else:
            value = fields[index] if index < len(fields) else None
        if value is not None and type(value) not in kinds:
            raise DecodeError(span[1], f"property {index} of type {type(value).__name__}")
        return value

    def _map(self, code: int) -> dict[Value, Value]:
        known = self._maps.get(code)
        if known is not None:
            return known
        span = self.spans.get(code)
        found = _whole(self.body, span[1], span[2]) if span is not None else {}
        if isinstance(found, AmqpMap):
            # Repeated keys are forbidden, but no reason to lose the message: the last one counts.
            try:
                found = dict(found.pairs)
            except TypeError:
                raise DecodeError(span[1] if span else 0, "map with a key of no hash") from None
        self._maps[code] = found
        return self._maps[code]


def list_head(body: bytes, at: int) -> tuple[int, int, int]:
    """Return where the items of the list at `at` start, how many they are, and where they end.

    The list's outer size is known to be right (`section_at`); raises DecodeError for a false count.
    """
    constructor = body[at]
    if constructor == 0x45:
        return at + 1, 0, at + 1
    if constructor in (0xC0, 0xC1):
        start, end = at + 3, at + 2 + body[at + 1]
        count = body[at + 2] if start <= end else -1
    else:
        start, end = at + 9, at + 5 + int(_u32(body, at + 1)[0])
        count = _u32(body, at + 5)[0] if start <= end else -1
    if not 0 <= count <= end - start:
        raise DecodeError(at, "count does not fit the size of its container")
    return start, count, end


def list_item(body: bytes, at: int, index: int) -> Value:
    """Return item `index` of the list at `at`, None behind its end; raises DecodeError."""
    pos, count, end = list_head(body, at)
    if count <= index:
        return None
    for _ in range(index):
        pos = skip(body, pos, end)
    return decode(body, pos, end)[0]


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
            code, at = _descriptor(body, pos)
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
            found = _whole(body, at, pos)
            annotations = dict(found.pairs if isinstance(found, AmqpMap) else found.items())
            due = _integer(annotations.get(Symbol("x-opt-delivery-time")))
            delay = _integer(annotations.get(Symbol("x-opt-delivery-delay")))
            due = due or (now_ms + delay if delay > 0 else 0)
            return due if now_ms < due < _TIMES_END else 0
    return 0


def _integer(value: Value) -> int:
    """Return a number of any integer type as it is, and 0 for anything else."""
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else 0
