"""What identifiers of a selector mean: fields of the message, its properties, facts of the broker.

    JMSPriority  AMQPriority                    0 to 9
    JMSDeliveryMode                             'PERSISTENT' or 'NON_PERSISTENT'
    AMQDurable                                  'DURABLE' or 'NON_DURABLE'
    JMSExpiration  AMQExpiration                ms since the epoch, 0 for never
    JMSTimestamp  AMQTimestamp                  creation-time / header timestamp, 0 without one
    JMSMessageID  AMQUserID                     message-id / NATIVE_MESSAGE_ID, typed ids as text
    JMSCorrelationID                            correlation-id, typed ids as text
    JMSType                                     subject / header type
    JMSReplyTo                                  reply-to, without the prefix /queue/ or /topic/
    JMSDestination                              to / destination likewise, else the address
    AMQAddress                                  the address of the queue
    AMQSize                                     bytes of the message as it is stored
    JMSXDeliveryCount                           deliveries with this one: 1 for a first
    JMSXGroupID  AMQGroupID                     group-id / header JMSXGroupID
    JMSXGroupSeq                                group-sequence / header JMSXGroupSeq, a number
    JMSXUserID                                  user-id; NULL for STOMP, where nobody vouches for it
    JMS_AMQP_ContentType, -ContentEncoding, -ReplyToGroupID     these AMQP properties
    _AMQ_ORIG_ADDRESS, -QUEUE, -MESSAGE_ID, -ROUTING_TYPE, _AMQ_ACTUAL_EXPIRY     of a dead letter
    m.<name>  JMS_AMQP_MA_<name>                message-annotation; STOMP: header JMS_AMQP_MA_<name>
    any other name                              application property / STOMP header, a text

Both stored forms answer to the same names with the same types, so that a selector does not depend
on the protocols of sender or consumer. A name with characters that no identifier has, such as
`m.x-opt-ORIG-ADDRESS` (which is `_AMQ_ORIG_ADDRESS`), is written in double quotes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

from gateway.model.amqp_types import ULong, Value
from gateway.model.message import COUNT_SHIFT, DURABLE, EXPIRES, PRIORITY_MASK, STOMP, Message
from gateway.model.plain_text import id_text
from gateway.model.sections import APPLICATION_PROPERTIES, MESSAGE_ANNOTATIONS
from gateway.selectors.stored import (
    header,
    header_mark,
    map_value,
    property_value,
    widened,
)
from gateway.selectors.values import Scalar

#: Reads one field of a message.
Reader = Callable[[Message], Scalar]
_OfBody = Callable[[bytes], Scalar]

_ANNOTATION: Final = "m."
_ANNOTATION_HEADER: Final = "JMS_AMQP_MA_"
_PREFIXES: Final = ("/queue/", "/topic/")
_DIGITS_MAX: Final = 19

#: Facts that the gateway writes: header of a STOMP message -> (annotation of an AMQP one, is a
#: number).
_ORIGIN: Final = {
    "_AMQ_ORIG_ADDRESS": ("x-opt-ORIG-ADDRESS", False),
    "_AMQ_ORIG_QUEUE": ("x-opt-ORIG-QUEUE", False),
    "_AMQ_ORIG_MESSAGE_ID": ("x-opt-ORIG-MESSAGE-ID", True),
    "_AMQ_ORIG_ROUTING_TYPE": ("x-opt-ORIG-ROUTING-TYPE", True),
    "_AMQ_ACTUAL_EXPIRY": ("x-opt-ACTUAL-EXPIRY", True),
    "ingress-timestamp": ("x-opt-ingress-time", True),
}
_ORIGIN_HEADERS: Final = {annotation: name for name, (annotation, _) in _ORIGIN.items()}


def is_property(name: str) -> bool:
    """Whether this is an application property or a STOMP header of the sender's own."""
    return (
        name not in _STANDARD
        and name not in _OF_ADDRESS
        and name not in _ORIGIN
        and not name.startswith((_ANNOTATION, _ANNOTATION_HEADER))
    )


def is_fact(name: str) -> bool:
    """Whether this costs nothing to read: it is not in the body."""
    return name in _FACTS


def reader(name: str, address: str) -> Reader:
    """Return the function that reads the field `name`; `address` is that of the queue."""
    if name in _STANDARD:
        return _STANDARD[name]
    if name in _OF_ADDRESS:
        return _OF_ADDRESS[name](address)
    if name.startswith(_ANNOTATION):
        return _annotation(name.removeprefix(_ANNOTATION))
    if name.startswith(_ANNOTATION_HEADER):
        return _annotation(name.removeprefix(_ANNOTATION_HEADER))
    if name in _ORIGIN:
        return _annotation(_ORIGIN[name][0])
    mark = header_mark(name)
    key = name.encode("utf-8", "replace")

    def read(message: Message) -> Scalar:
        if message.flags & STOMP:
            return header(message.body, mark)
        return map_value(message.body, APPLICATION_PROPERTIES, key)

    return read


def _annotation(annotation: str) -> Reader:
    """Return the reader of a message-annotation, and of the STOMP header that stands for it."""
    if not annotation:
        return lambda message: None
    name = _ORIGIN_HEADERS.get(annotation, _ANNOTATION_HEADER + annotation)
    mark = header_mark(name)
    is_number = name in _ORIGIN and _ORIGIN[name][1]
    key = annotation.encode("utf-8", "replace")

    def read(message: Message) -> Scalar:
        if message.flags & STOMP:
            found = header(message.body, mark)
            return _number(found) if is_number else found
        return map_value(message.body, MESSAGE_ANNOTATIONS, key)

    return read


# ---- fields of one place in either form


def _either(amqp: _OfBody, stomp: _OfBody) -> Reader:
    return lambda message: stomp(message.body) if message.flags & STOMP else amqp(message.body)


def _header(name: str) -> Callable[[bytes], str | None]:
    mark = header_mark(name)
    return lambda body: header(body, mark)


def _number(written: str | None) -> int | None:
    """Return the whole number that a header is; None when it is none, or not there."""
    if written is None:
        return None
    digits = written.removeprefix("-")
    if len(digits) > _DIGITS_MAX or not digits.isascii() or not digits.isdigit():
        return None
    return int(written)


def _number_header(name: str) -> Callable[[bytes], int | None]:
    mark = header_mark(name)
    return lambda body: _number(header(body, mark))


def _property(index: int) -> _OfBody:
    return lambda body: widened(property_value(body, index))


def _id(index: int) -> _OfBody:
    """Return the reader of an id. A string is what it is; other types as STOMP clients see them."""

    def read(body: bytes) -> Scalar:
        value = property_value(body, index)
        if isinstance(value, (ULong, UUID, bytes)):
            return id_text(value)
        return widened(value)

    return read


def _user(body: bytes) -> Scalar:
    value = property_value(body, 1)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else widened(value)


def _or_zero(of_body: _OfBody) -> _OfBody:
    # Java clients and Artemis say 0 where there is no time.
    return lambda body: of_body(body) or 0


def _bare(destination: Value) -> Scalar:
    """Return the address in a destination as STOMP clients write them."""
    if type(destination) is str:
        for prefix in _PREFIXES:
            if len(destination) > len(prefix) and destination.startswith(prefix):
                return destination.removeprefix(prefix)
    return widened(destination)


def _destination(address: str) -> Reader:
    written = _header("destination")

    def read(message: Message) -> Scalar:
        if message.flags & STOMP:
            found = _bare(written(message.body))
        else:
            found = widened(property_value(message.body, 2))
        return address if found is None else found

    return read


_reply_header: Final = _header("reply-to")
_message_id: Final = _either(_id(0), _header("NATIVE_MESSAGE_ID"))
_timestamp: Final = _either(_or_zero(_property(9)), _or_zero(_number_header("timestamp")))
_group_id: Final = _either(_property(10), _header("JMSXGroupID"))


# ---- facts of the broker


def _priority(message: Message) -> Scalar:
    return message.flags & PRIORITY_MASK


def _expiration(message: Message) -> Scalar:
    return message.expires if message.flags & EXPIRES else 0


def _delivery_mode(message: Message) -> Scalar:
    return "PERSISTENT" if message.flags & DURABLE else "NON_PERSISTENT"


def _durable(message: Message) -> Scalar:
    return "DURABLE" if message.flags & DURABLE else "NON_DURABLE"


_FACTS: Final[dict[str, Reader]] = {
    "AMQPriority": _priority,
    "JMSPriority": _priority,
    "AMQDurable": _durable,
    "JMSDeliveryMode": _delivery_mode,
    "AMQExpiration": _expiration,
    "JMSExpiration": _expiration,
    "AMQSize": lambda message: len(message.body),
    "JMSXDeliveryCount": lambda message: (message.flags >> COUNT_SHIFT) + 1,
}
_STANDARD: Final[dict[str, Reader]] = {
    **_FACTS,
    "AMQTimestamp": _timestamp,
    "JMSTimestamp": _timestamp,
    "AMQUserID": _message_id,
    "JMSMessageID": _message_id,
    "JMSCorrelationID": _either(_id(5), _header("correlation-id")),
    "JMSType": _either(_property(3), _header("type")),
    "JMSReplyTo": _either(_property(4), lambda body: _bare(_reply_header(body))),
    "AMQGroupID": _group_id,
    "JMSXGroupID": _group_id,
    "JMSXGroupSeq": _either(_property(11), _number_header("JMSXGroupSeq")),
    "JMSXUserID": _either(_user, lambda body: None),
    "JMS_AMQP_ContentType": _either(_property(6), _header("content-type")),
    "JMS_AMQP_ContentEncoding": _either(_property(7), _header("content-encoding")),
    "JMS_AMQP_ReplyToGroupID": _either(_property(12), _header("JMS_AMQP_ReplyToGroupID")),
}
#: Fields that need the address of the queue.
_OF_ADDRESS: Final[dict[str, Callable[[str], Reader]]] = {
    "AMQAddress": lambda address: lambda message: address,
    "JMSDestination": _destination,
}
