"""Which kind of queue does what its attributes say; it is chosen once, when the queue is made."""

from __future__ import annotations

from typing import Final

from gateway.model import stomp_form
from gateway.model.address import RoutingType
from gateway.model.amqp_types import DecodeError
from gateway.model.attributes import QueueAttributes
from gateway.model.message import GROUPED, STOMP, Message
from gateway.model.sections import with_property
from gateway.queues.groups import GroupOf
from gateway.queues.last_value import KeyOf, LastValueQueue
from gateway.queues.non_destructive import NonDestructiveQueue
from gateway.queues.queue import Effects, Queue
from gateway.selectors.fields import reader
from gateway.selectors.values import OPAQUE

#: -1, as a signed number and as AMQP's unsigned one.
_CLOSING: Final = (-1, 0xFFFFFFFF)


def key_reader(name: str, address: str) -> KeyOf:
    """Return the function that reads a message's key out of the property `name`, as a text.

    Names are those of selectors. Numbers and their texts are one key, so that it does not depend on
    the protocol of the sender. A list, a map or bytes are no key.
    """
    read = reader(name, address)

    def key_of(message: Message) -> str | None:
        value = read(message)
        if type(value) is str:
            return value
        if value is None or value is OPAQUE:
            return None
        return str(value).lower() if isinstance(value, bool) else str(value)

    return key_of


def group_reader(address: str) -> GroupOf:
    """Return the function that reads a message's group, and whether the message closes it."""
    group_of = key_reader("JMSXGroupID", address)
    sequence_of = reader("JMSXGroupSeq", address)

    def read(message: Message) -> tuple[str | None, bool]:
        if not message.flags & GROUPED:
            return None, False
        return group_of(message), sequence_of(message) in _CLOSING

    return read


def with_true(body: bytes, flags: int, key: str) -> bytes:
    """Return a stored message with a property `key` that is true."""
    if flags & STOMP:
        return stomp_form.with_headers(body, [(key, "true")])
    try:
        return with_property(body, key, value=True)
    except DecodeError:
        return body  # nobody can read what is in it


def build(
    attributes: QueueAttributes,
    name: str,
    address: str,
    queue_id: int,
    effects: Effects[Queue],
    *,
    routing: RoutingType,
    durable: bool = True,
    temporary: bool = False,
    auto_created: bool = False,
) -> Queue:
    """Return an empty queue; arguments are those of Queue."""
    kind: type[Queue] = Queue
    if attributes.non_destructive:
        kind = NonDestructiveQueue
    elif attributes.last_value_key:
        kind = LastValueQueue
    queue = kind(
        name,
        address,
        queue_id,
        effects,
        routing=routing,
        durable=durable,
        temporary=temporary,
        auto_created=auto_created,
    )
    if attributes.last_value_key and isinstance(queue, LastValueQueue):
        queue.be_keyed(key_reader(attributes.last_value_key, address))
    queue.groups.group_of = group_reader(address)
    queue.groups.mark_first = with_true
    queue.behave(attributes)
    return queue
