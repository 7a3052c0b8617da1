"""Where a message was first, as dead letters, expired messages and copies of diverts tell it. Pure.

AMQP messages tell it in message annotations, STOMP messages in headers; the names are Artemis'.
"""

from __future__ import annotations

from gateway.model import stomp_form
from gateway.model.amqp_types import DecodeError, Symbol
from gateway.model.message import STOMP, Message
from gateway.model.sections import peek, with_annotations

_STOMP_FACTS = (
    "_AMQ_ORIG_ADDRESS",
    "_AMQ_ORIG_QUEUE",
    "_AMQ_ORIG_MESSAGE_ID",
    "_AMQ_ORIG_ROUTING_TYPE",
    "_AMQ_ACTUAL_EXPIRY",
)
_AMQP_FACTS = (
    "x-opt-ORIG-ADDRESS",
    "x-opt-ORIG-QUEUE",
    "x-opt-ORIG-MESSAGE-ID",
    "x-opt-ACTUAL-EXPIRY",
)


def origin_of(message: Message) -> tuple[str, str] | None:
    """Return the address and the queue that a moved message was in first; None: it was not."""
    facts: dict[str, object]
    names: tuple[str, ...]
    if message.flags & STOMP:
        facts = dict(stomp_form.unpack(message.body)[0])
        names = _STOMP_FACTS
    else:
        try:
            facts = {str(k): v for k, v in peek(message.body).message_annotations.items()}
        except DecodeError:
            return None
        names = _AMQP_FACTS
    address, queue = facts.get(names[0]), facts.get(names[1])
    if isinstance(address, str) and isinstance(queue, str) and address and queue:
        return str(address), str(queue)
    return None


def without_origin(message: Message) -> bytes:
    """Return the body of a message that tells of no origin any more."""
    if message.flags & STOMP:
        return stomp_form.without_headers(message.body, _STOMP_FACTS)
    return with_annotations(message.body, {}, drop=frozenset(map(Symbol, _AMQP_FACTS)))
