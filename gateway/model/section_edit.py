"""Change one thing in an AMQP message and leave every other byte as it came.

What the broker may change on the way [AMQP 3.2]: delivery-annotations go, the header tells failed
deliveries, a dead letter gets message-annotations and loses its expiry. Bytes are cut and joined;
nothing is decoded but what changes. Raises `DecodeError` when a section that changes is broken.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import lru_cache
from typing import Final

from gateway.model.amqp_types import (
    NODES_MAX,
    DecodeError,
    Described,
    Symbol,
    UInt,
    ULong,
    Value,
    decode,
    encode,
    skip,
)
from gateway.model.section_header import header_facts, header_fields
from gateway.model.section_scan import (
    APPLICATION_PROPERTIES,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    list_head,
    section_at,
)

_TTL: Final = 2
_FIRST_ACQUIRER: Final = 3
_DELIVERY_COUNT: Final = 4
_EXPIRY: Final = 8
_NULL: Final = b"\x40"


def strip_delivery_annotations(body: bytes, start: int | None = None) -> bytes:
    """Return the message without delivery-annotations; `start` is the end of its header."""
    at = header_facts(body).end if start is None else start
    head = body[at : at + 3]
    if head[:2] == b"\x00\x53" and head != b"\x00\x53\x71":
        return body
    if not head or section_at(body, at)[0] != DELIVERY_ANNOTATIONS:
        return body
    return body[:at] + body[section_at(body, at)[2] :]


def with_header(
    body: bytes, *, delivery_count: int, first_acquirer: bool | None = None, keep_ttl: bool = True
) -> bytes:
    """Return the message with a header that tells this delivery-count.

    durable, priority (also above 9) and ttl stay as they came; so does first-acquirer when None.
    """
    end = header_facts(body).end
    return _header(body[:end], delivery_count, first_acquirer, keep_ttl) + body[end:]


@lru_cache(maxsize=1024)
def _header(
    section: bytes,
    delivery_count: int,
    first_acquirer: bool | None,  # noqa: FBT001 - the arguments are the cache's key
    keep_ttl: bool,  # noqa: FBT001
) -> bytes:
    fields = header_fields(section) if section else [None] * 5
    fields[_DELIVERY_COUNT] = UInt(delivery_count) if delivery_count else None
    if first_acquirer is not None:
        fields[_FIRST_ACQUIRER] = first_acquirer
    if not keep_ttl:
        fields[_TTL] = None
    while fields and fields[-1] is None:
        fields.pop()
    if not section and not fields:
        return b""
    return encode(Described(ULong(HEADER), fields))


def with_first_acquirer(section: bytes) -> bytes:
    """Return a header section, or b"" for none, so that it says first-acquirer true.

    One that says already whether its message was acquired, or of deliveries that failed, stays as
    it is. Raises DecodeError.
    """
    fields = header_fields(section) if section else [None] * 5
    if fields[_FIRST_ACQUIRER] is not None or fields[_DELIVERY_COUNT]:
        return section
    return _header(section, 0, True, True)


def with_annotations(body: bytes, add: Mapping[str, Value], *, drop: Container[str] = ()) -> bytes:
    """Return the message with these message-annotations added and those named in `drop` gone.

    An added one replaces that of the same name; a section that becomes empty goes as well.
    """
    start, at, end = _find(body, MESSAGE_ANNOTATIONS)
    pairs, count = _other_pairs(body, at, add, drop) if at else (b"", 0)
    pairs += b"".join([encode(Symbol(key)) + encode(value) for key, value in add.items()])
    count += 2 * len(add)
    section = b"\x00\x53\x72" + _container(0xC1, count, pairs) if count else b""
    return body[:start] + section + body[end:]


def with_property(body: bytes, key: str, value: Value) -> bytes:
    """Return the message with this application-property, in place of one of the same name."""
    start, at, end = _find(body, APPLICATION_PROPERTIES)
    pairs, count = _other_pairs(body, at, (), (key,), kind=str) if at else (b"", 0)
    pairs += encode(key) + encode(value)
    section = b"\x00\x53\x74" + _container(0xC1, count + 2, pairs)
    return body[:start] + section + body[end:]


def without_expiry(body: bytes) -> bytes:
    """Return the message with neither ttl nor absolute-expiry-time, and no failed deliveries.

    What a dead letter and an expired message become on their way to another address.
    """
    body = with_header(body, delivery_count=0, keep_ttl=False)
    start, at, end = _find(body, PROPERTIES)
    if not at:
        return body
    first, count, last = list_head(body, at)
    if count <= _EXPIRY:
        return body
    here = first
    for _ in range(_EXPIRY):
        here = skip(body, here, last)
    behind = skip(body, here, last)
    items = body[first:here] + _NULL + body[behind:last]
    return body[:start] + b"\x00\x53\x73" + _container(0xC0, count, items) + body[end:]


def _find(body: bytes, wanted: int) -> tuple[int, int, int]:
    """Return start, start of the value, end of a section; where it belongs and 0 when missing."""
    pos, end = 0, len(body)
    while pos < end:
        code, at, behind = section_at(body, pos)
        if code == wanted:
            return pos, at, behind
        if code > wanted:
            break
        pos = behind
    return pos, 0, pos


def _other_pairs(
    body: bytes, at: int, add: Container[Value], drop: Container[Value], kind: type = Symbol
) -> tuple[bytes, int]:
    """Return the encoded pairs of the map at `at` whose keys are in neither, and their values."""
    pos, count, end = list_head(body, at)
    if count > NODES_MAX or count % 2:
        raise DecodeError(at, f"map of {count} values, the limit is {NODES_MAX} and even")
    kept: list[bytes] = []
    for _ in range(count // 2):
        key, value_at = decode(body, pos, end)
        behind = skip(body, value_at, end)
        if not (type(key) is kind and (key in add or key in drop)):
            kept.append(body[pos:behind])
        pos = behind
    if pos != end:
        raise DecodeError(pos, f"{end - pos} bytes left over in a container")
    return b"".join(kept), 2 * len(kept)


def _container(code8: int, count: int, content: bytes) -> bytes:
    if len(content) < 255 and count < 256:
        return bytes((code8, len(content) + 1, count)) + content
    head = (len(content) + 4).to_bytes(4, "big") + count.to_bytes(4, "big")
    return bytes((code8 | 0x10,)) + head + content
