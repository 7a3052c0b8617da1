"""All sections of one AMQP message [AMQP 3.2]: their places, and their contents on demand.

Sections stand in the order of their codes, the three kinds of body exclude one another, and any
section may be missing (a missing body breaks the standard, but clients do it). `scan` finds all of
them, `peek` those in front of the body; contents are decoded when somebody asks.
"""

from __future__ import annotations

from enum import Enum
from typing import Final
from uuid import UUID

from .amqp_values import AmqpMap, DecodeError, Symbol, Timestamp, UInt, ULong, Value
from .section_scan import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    list_item,
    section_at,
    whole_value,
)

#: More sections than any client sends; bounds a scan of 16 MiB of empty data sections.
SECTIONS_MAX: Final = 4096


class BodyKind(Enum):
    """What kind of body a message has; the value is the section's code."""

    NONE = 0
    DATA = DATA
    SEQUENCE = SEQUENCE
    VALUE = VALUE


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
        return [item for at, end in self.parts for item in whole_value(self.body, at, end)]

    def value(self) -> Value:
        """Return the value of the amqp-value section."""
        at, end = self.parts[0]
        return whole_value(self.body, at, end)

    def read_properties(self) -> None:
        """Decode the properties section as a whole: for those who ask for most of its fields."""
        span = self.spans.get(PROPERTIES)
        if span is not None and self._fields is None:
            self._fields = whole_value(self.body, span[1], span[2])

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
        found = whole_value(self.body, span[1], span[2]) if span is not None else {}
        if isinstance(found, AmqpMap):
            # Repeated keys are forbidden, but no reason to lose the message: the last one counts.
            try:
                found = dict(found.pairs)
            except TypeError:
                raise DecodeError(span[1] if span else 0, "map with a key of no hash") from None
        self._maps[code] = found
        return self._maps[code]
