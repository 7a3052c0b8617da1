"""The header section of an AMQP message: its fields, and the defaults of those that are missing.

[AMQP 3.2.1]: durable, priority, ttl, first-acquirer, delivery-count. Hot: it is asked of each
message that comes in. Producers repeat their headers, so the fields of a short one are remembered
by its bytes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from gateway.model.amqp_types import DecodeError, Described, UByte, UInt, Value
from gateway.model.section_scan import FOOTER, HEADER, section_at, whole_value

_PRIORITY_MAX: Final = 9
_DEFAULT_PRIORITY: Final = 4
#: A header in its longest sensible encoding; longer ones are not worth remembering.
_HEADER_BYTES_CACHED: Final = 48


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
    value = whole_value(section, 0, len(section))
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
