"""Between the two stored forms of a message: AMQP sections and the STOMP form, per delivery.

A message is kept as its sender sent it, and converted when somebody of the other protocol gets it.
What maps both ways:

    AMQP                                      STOMP
    header durable, priority                  persistent, priority (of the message's flags)
    ttl, absolute-expiry-time                 expires
    properties message-id                     NATIVE_MESSAGE_ID (ids keep their type: `plain_text`)
      subject, correlation-id                 type, correlation-id
      reply-to + x-opt-jms-reply-to           reply-to, as a destination that a SEND takes
      content-type, content-encoding          content-type, content-encoding
      creation-time                           timestamp
      group-id, group-sequence                JMSXGroupID, JMSXGroupSeq
      reply-to-group-id                       JMS_AMQP_ReplyToGroupID
      to + x-opt-jms-dest                     destination
      user-id                                 JMSXUserID (to STOMP only: nobody claims one there)
    application-properties                    headers of the same names, values as text
    x-opt-ORIG-*, x-opt-ACTUAL-EXPIRY         _AMQ_ORIG_*, _AMQ_ACTUAL_EXPIRY
    x-opt-ingress-time                        ingress-timestamp
    other message-annotations                 JMS_AMQP_MA_<name>
    data sections joined; value string, binary  the same bytes
    other values, sequences                   JSON (content-type application/json unless one is set)

Headers that belong to a frame or to the broker never become properties, nor properties such
headers; no other name that starts with _AMQ_ passes. Nothing here raises: an AMQP message that
cannot be read arrives as its raw bytes, as application/vnd.amqp. Work is bounded by the message and
the decoder.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, assert_never

from gateway.model import stomp_form
from gateway.model.amqp_types import (
    Byte,
    DecodeError,
    Described,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    Value,
    encode,
)
from gateway.model.message import DEFAULT_PRIORITY, DURABLE, PRIORITY_MASK, TEXT
from gateway.model.plain_text import id_text, json_text, parse_id, text
from gateway.model.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    VALUE,
    BodyKind,
    Sections,
    peek,
    scan,
)

RAW_AMQP: Final = "application/vnd.amqp"
_JSON: Final = "application/json"
_TTL_MAX: Final = 0xFFFFFFFF
_STAMP: Final = b"\ntimestamp:"
_STAMP_DIGITS: Final = 18
_UNKNOWN_TIME: Final = b"\xff" * 8
_TIME_MAX: Final = (1 << 63) - 1
#: Heads above this size are converted each time: they are not the ones that repeat.
_HEAD_BYTES_CACHED: Final = 4096

#: STOMP header -> index in the AMQP properties list.
_PROPERTY_TEXTS: Final = {"type": 3, "JMSXGroupID": 10, "JMS_AMQP_ReplyToGroupID": 12}
_PROPERTY_SYMBOLS: Final = {"content-type": 6, "content-encoding": 7}
_MESSAGE_ID: Final = 0
_CORRELATION_ID: Final = 5
_TO: Final = 2
_REPLY_TO: Final = 4
_EXPIRY: Final = 8
_CREATED: Final = 9
_SEQUENCE: Final = 11

_ORIGIN: Final = "_AMQ_ORIG_"
_ACTUAL_EXPIRY: Final = "_AMQ_ACTUAL_EXPIRY"
_AMQP_ORIGIN: Final = "x-opt-ORIG-"
_AMQP_ACTUAL_EXPIRY: Final = "x-opt-ACTUAL-EXPIRY"
_INTERNAL: Final = "_AMQ_"
_JMS: Final = "x-opt-jms-"
_ANNOTATION: Final = "JMS_AMQP_MA_"
_AMQP_INGRESS: Final = "x-opt-ingress-time"
_INGRESS: Final = "ingress-timestamp"
_CREATION: Final = "timestamp"
#: STOMP headers that are annotations when they are times.
_TIMES: Final = {"AMQ_SCHEDULED_TIME": "x-opt-delivery-time", _INGRESS: _AMQP_INGRESS}

#: Never an application property: the frame's, the broker's, and what only the gateway may say.
_NO_PROPERTY: Final = (
    stomp_form.BROKER_HEADERS
    | stomp_form.PLACED_HEADERS
    | {"destination-type", "heart-beat", "receipt-id", "JMSXUserID", "JMSXDeliveryCount"}
)
#: Never a STOMP header made of an application property.
_NO_HEADER: Final = _NO_PROPERTY | {"id"}
#: No value carries these into a header: NUL ends a frame, and the others drive terminals.
_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_CONTROL_IN_NAME: Final = re.compile("[\x00-\x1f\x7f]")

#: How a destination is written, and its kind by JMS: queue, topic, temporary queue and topic.
_PREFIXES: Final = (
    ("/queue/", 0),
    ("/topic/", 1),
    ("queue://", 0),
    ("topic://", 1),
    ("/exchange/amq.topic/", 1),
    ("/amq/queue/", 0),
    ("/reply-queue/", 2),
    ("/remote-temp-queue/", 2),
    ("/remote-temp-topic/", 3),
)
_MULTICAST: Final = "MULTICAST"
_WILD: Final = frozenset("*#")
_TEXT_MESSAGE: Final = Byte(5)
_BYTES_MESSAGE: Final = Byte(3)


# ---- AMQP to STOMP


def amqp_to_stomp(body: bytes, flags: int, address: str, *, expires: int | None = None) -> bytes:
    """Return the stored STOMP form of an AMQP message; never raises.

    Args:
        body: encoded sections.
        flags: the message's; priority and durability come from here.
        address: becomes the destination, where it is no wildcard or the message does not say.
        expires: ms since the epoch when the queue will drop it, 0 never; None: as it says itself.
    """
    kept = flags & (PRIORITY_MASK | DURABLE)
    try:
        found = scan(body)
        content, made_json = _stomp_content(found)
        head = body[: _head_end(found)]
        outline = _stomp_outline if len(head) <= _HEAD_BYTES_CACHED else _stomp_outline.__wrapped__
        before, behind = outline(head, kept, address, expires, made_json)
    except DecodeError:
        content = body
        before, behind = stomp_form.outline(
            address,
            flags & PRIORITY_MASK,
            bool(flags & DURABLE),
            content_type=RAW_AMQP,
            expires=expires or 0,
            headers=((_CREATION, "0"),),
        )
    return b"%b%d%b%b" % (before, len(content), behind, content)


def _head_end(found: Sections) -> int:
    return max((span[2] for code, span in found.spans.items() if code < DATA), default=0)


def _stomp_content(found: Sections) -> tuple[bytes, bool]:
    """Return the body bytes and whether they were made as JSON."""
    match found.body_kind:
        case BodyKind.DATA:
            return found.data(), False
        case BodyKind.NONE:
            return b"", False
        case BodyKind.SEQUENCE:
            return json_text(found.sequence()).encode("utf-8", "replace"), True
        case BodyKind.VALUE:
            return _stomp_value(found.value())
        case _:
            assert_never(found.body_kind)


def _stomp_value(value: Value) -> tuple[bytes, bool]:
    if isinstance(value, bytes):
        return value, False
    if value is None or isinstance(value, str):
        return text(value).encode("utf-8", "replace"), False
    return json_text(value).encode("utf-8", "replace"), True


@lru_cache(maxsize=1024)
def _stomp_outline(
    head: bytes,
    flags: int,
    address: str,
    expires: int | None,
    made_json: bool,  # noqa: FBT001 - the arguments are the cache's key
) -> tuple[bytes, bytes]:
    """Return what stands before and behind content-length, for all that is in front of a body."""
    found = peek(head)
    found.read_properties()
    content_type = found.content_type or (_JSON if made_json else None)
    return stomp_form.outline(
        _where(address, None if found.to is None else _clean(found.to)),
        flags & PRIORITY_MASK,
        bool(flags & DURABLE),
        content_type=None if content_type is None else _clean(content_type),
        expires=max(found.absolute_expiry_time or 0, 0) if expires is None else expires,
        headers=_stomp_headers(found).items(),
    )


def _where(address: str, named: str | None) -> str:
    """Return where a message was sent: what it says itself, for who reads a wildcard address."""
    return named if named and not _WILD.isdisjoint(address) else address


def _stomp_headers(found: Sections) -> dict[str, str]:
    headers = _standard_headers(found)
    for key, value in found.message_annotations.items():
        name = _annotation_header(key)
        if name is not None:
            headers.setdefault(name, _clean(text(value)))
    for name, value in found.application_properties.items():
        if (
            name not in _NO_HEADER
            and not name.startswith((_INTERNAL, _ANNOTATION))
            and not _CONTROL_IN_NAME.search(name)
        ):
            headers.setdefault(name, _clean(text(value)))
    headers.setdefault(_CREATION, "0")
    return headers


def _standard_headers(found: Sections) -> dict[str, str]:
    """Return the headers that AMQP properties have a fixed name for; absent ones are left out."""
    ids = (("correlation-id", found.correlation_id), ("NATIVE_MESSAGE_ID", found.message_id))
    headers = {name: id_text(value) for name, value in ids if value is not None}
    reply_to = found.reply_to
    if reply_to is not None:
        headers["reply-to"] = _as_destination(reply_to, found.message_annotations)
    user = found.user_id
    plain: tuple[tuple[str, Value], ...] = (
        ("type", found.subject),
        ("content-encoding", found.content_encoding),
        (_CREATION, found.creation_time),
        ("JMSXGroupID", found.group_id),
        ("JMSXGroupSeq", found.group_sequence),
        ("JMS_AMQP_ReplyToGroupID", found.reply_to_group_id),
        ("JMSXUserID", None if user is None else user.decode("utf-8", "replace")),
    )
    for name, value in plain:
        if value is not None:
            # Times are ms here, as STOMP clients write them, not ISO 8601 as in user properties.
            headers[name] = value if isinstance(value, str) else str(int(value))
    return {name: _clean(value) for name, value in headers.items()}


def _as_destination(reply_to: str, annotations: dict[Value, Value]) -> str:
    """Return a reply address as SEND takes it; temporary ones are named without a prefix."""
    kind = annotations.get("x-opt-jms-reply-to")
    if not isinstance(kind, int) or reply_to.startswith(("/queue/", "/topic/")):
        return reply_to
    return {0: "/queue/", 1: "/topic/"}.get(int(kind), "") + reply_to


def _annotation_header(key: Value) -> str | None:
    """Return the header that a message-annotation becomes; None for those that are JMS's own."""
    if not isinstance(key, str) or key.startswith(_JMS) or _CONTROL_IN_NAME.search(key):
        return None
    if key.startswith(_AMQP_ORIGIN):
        return _ORIGIN + key.removeprefix(_AMQP_ORIGIN).replace("-", "_")
    if key == _AMQP_ACTUAL_EXPIRY:
        return _ACTUAL_EXPIRY
    if key == _AMQP_INGRESS:
        return _INGRESS
    return _ANNOTATION + key


def _clean(value: str) -> str:
    """Return a header value without raw control characters; CR and LF go through the escapes."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", value)


# ---- STOMP to AMQP


def stomp_to_amqp(stored: bytes, flags: int, address: str, *, now_ms: int = 0) -> bytes:
    """Return the encoded AMQP message of a stored STOMP message; never raises.

    Args:
        stored: the form of `stomp_form`.
        flags: the message's; TEXT decides between a string value and data.
        address: becomes `to`, where it is no wildcard.
        now_ms: broker time, for the ttl of a message that expires; 0 leaves ttl out.
    """
    head, _, content = stored.partition(b"\n\n")
    is_text = bool(flags & TEXT)
    key, created = _without_stamp(_without_length(head))
    sections = _amqp_sections if len(key) <= _HEAD_BYTES_CACHED else _amqp_sections.__wrapped__
    expires, middle, rest = sections(key, address, is_text, bool(created))
    if created:
        middle = b"%b%b%b" % (middle, created.to_bytes(8, "big"), rest)
    if is_text:
        body: Value = Described(ULong(VALUE), content.decode("utf-8", "replace"))
    else:
        body = Described(ULong(DATA), content)
    header = _amqp_header(flags, expires, now_ms)
    return b"".join((header, middle, encode(body)))


def _without_length(head: bytes) -> bytes:
    """Return a head without its content-length line, so that heads of one producer are the same."""
    start = head.find(b"\ncontent-length:")
    if start < 0:
        return head
    end = head.find(b"\n", start + 1)
    return head[:start] + (head[end:] if end >= 0 else b"")


def _without_stamp(head: bytes) -> tuple[bytes, int]:
    """Return a head without the time that ends it, which differs all the time, and that; or 0."""
    start = head.rfind(_STAMP)
    digits = head[start + len(_STAMP) :]
    if start < 0 or not digits.isdigit() or len(digits) > _STAMP_DIGITS:
        return head, 0
    return head[:start], int(digits)


def _amqp_header(flags: int, expires: int, now_ms: int) -> bytes:
    """Return the header section; priority and durable are there when they are not the default."""
    priority = flags & PRIORITY_MASK
    fields: list[Value] = [
        True if flags & DURABLE else None,
        UByte(priority) if priority != DEFAULT_PRIORITY else None,
        UInt(min(max(expires - now_ms, 1), _TTL_MAX)) if expires and now_ms else None,
    ]
    return _section(HEADER, fields)


def _section(code: int, fields: list[Value]) -> bytes:
    while fields and fields[-1] is None:
        fields.pop()
    return encode(Described(ULong(code), fields)) if fields else b""


@lru_cache(maxsize=1024)
def _amqp_sections(
    head: bytes,
    address: str,
    is_text: bool,  # noqa: FBT001 - the arguments are the cache's key
    stamped: bool,  # noqa: FBT001
) -> tuple[int, bytes, bytes]:
    """Return when it expires (0: never), and the sections between header and body.

    `stamped`: what stands before, and what behind, the eight bytes of the time that it was sent.
    """
    headers: dict[str, str] = {}
    for name, value in stomp_form.unpack(head + b"\n\n")[0]:
        headers.setdefault(name, value)  # the first one counts [STOMP 1.2 Repeated Header Entries]
    expires = _number(headers.get("expires"), _TIME_MAX) or 0
    annotations: dict[str, Value] = {
        "x-opt-jms-dest": Byte(_destination_kind(headers)),
        "x-opt-jms-msg-type": _TEXT_MESSAGE if is_text else _BYTES_MESSAGE,
    }
    properties = _amqp_properties(headers, address, annotations)
    if expires:
        properties[_EXPIRY] = Timestamp(expires)
    if stamped:
        headers.pop(_CREATION, None)
        properties[_CREATED] = Timestamp(-1)
    others: dict[str, str] = {}
    for name, value in headers.items():
        _sort_header(name, value, annotations, others)
    sections = [
        encode(
            Described(ULong(MESSAGE_ANNOTATIONS), {Symbol(k): v for k, v in annotations.items()})
        ),
        _section(PROPERTIES, properties),
    ]
    if others:
        sections.append(encode(Described(ULong(APPLICATION_PROPERTIES), others)))
    middle = b"".join(sections)
    if not stamped:
        return expires, middle, b""
    # No text has such bytes, and no other time or number of these sections does.
    before, _, behind = middle.partition(_UNKNOWN_TIME)
    return expires, before, behind


def _amqp_properties(
    headers: dict[str, str], address: str, annotations: dict[str, Value]
) -> list[Value]:
    """Return the fields of the properties section; headers that went into one are taken out."""
    fields: list[Value] = [None] * 13
    sent_to = headers.get("destination", "")
    for prefix, _ in _PREFIXES:
        sent_to = sent_to.removeprefix(prefix)
    fields[_TO] = _where(address, sent_to)
    native = headers.pop("NATIVE_MESSAGE_ID", headers.get("message-id"))
    fields[_MESSAGE_ID] = None if native is None else parse_id(native)
    if "correlation-id" in headers:
        fields[_CORRELATION_ID] = parse_id(headers.pop("correlation-id"))
    for name, index in _PROPERTY_TEXTS.items():
        fields[index] = headers.pop(name, None)
    for name, index in _PROPERTY_SYMBOLS.items():
        if headers.get(name, "").isascii() and name in headers:
            fields[index] = Symbol(headers.pop(name))
    created = _number(headers.get(_CREATION), _TIME_MAX)
    if created is not None:
        fields[_CREATED] = Timestamp(created) if created else None
        del headers[_CREATION]
    # A sequence of -1 closes the group; an unsigned field says that with its largest value.
    closing = headers.get("JMSXGroupSeq") == "-1"
    sequence = _TTL_MAX if closing else _number(headers.get("JMSXGroupSeq"), _TTL_MAX)
    if sequence is not None:
        fields[_SEQUENCE] = UInt(sequence)
        del headers["JMSXGroupSeq"]
    reply_to = headers.pop("reply-to", None)
    if reply_to is not None:
        fields[_REPLY_TO], kind = _without_prefix(reply_to)
        if kind is not None:
            annotations["x-opt-jms-reply-to"] = Byte(kind)
    return fields


def _without_prefix(destination: str) -> tuple[str, int | None]:
    """Return the address in a destination, and the kind that its prefix says."""
    for prefix, kind in _PREFIXES:
        if len(destination) > len(prefix) and destination.startswith(prefix):
            return destination[len(prefix) :], kind
    return destination, None


def _destination_kind(headers: dict[str, str]) -> int:
    written = headers.get("destination-type")
    if written is not None:
        return int(written == _MULTICAST)
    return _without_prefix(headers.get("destination", ""))[1] or 0


def _sort_header(
    name: str, value: str, annotations: dict[str, Value], others: dict[str, str]
) -> None:
    """Put a header that is no property of its own where it belongs, or nowhere."""
    if name in _NO_PROPERTY:
        return
    if name.startswith(_ORIGIN) and name.isascii():
        fact = name.removeprefix(_ORIGIN).replace("_", "-")
        number = _number(value, _TIME_MAX) if fact == "MESSAGE-ID" else None
        kind = _number(value, 1) if fact == "ROUTING-TYPE" else None
        found: Value = number if number is not None else value
        annotations[_AMQP_ORIGIN + fact] = found if kind is None else Byte(kind)
    elif name == _ACTUAL_EXPIRY:
        annotations[_AMQP_ACTUAL_EXPIRY] = _number(value, _TIME_MAX) or value
    elif name.startswith(_ANNOTATION) and name.isascii():
        key = name.removeprefix(_ANNOTATION)
        if key and not key.startswith((_JMS, _AMQP_ORIGIN, _AMQP_ACTUAL_EXPIRY)):
            annotations.setdefault(key, value)
    elif (time := _number(value, _TIME_MAX)) is not None and name in _TIMES:
        annotations[_TIMES[name]] = time
    elif not name.startswith(_INTERNAL):
        others[name] = value


def _number(written: str | None, most: int) -> int | None:
    """Return a header's number from 0 to `most`; None when it is none."""
    if written is None or not written.isascii() or not written.isdigit() or len(written) > 19:
        return None
    number = int(written)
    return number if number <= most else None
