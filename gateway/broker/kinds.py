"""Which kind of queue does what its attributes say; it is chosen once, when the queue is made."""

from __future__ import annotations

from gateway.model.address import RoutingType
from gateway.model.attributes import QueueAttributes
from gateway.model.message import Message
from gateway.queues.last_value import KeyOf, LastValueQueue
from gateway.queues.non_destructive import NonDestructiveQueue
from gateway.queues.queue import Effects, Queue
from gateway.selectors.fields import reader
from gateway.selectors.values import OPAQUE


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


def build(
    attributes: QueueAttributes,
    name: str,
    address: str,
    queue_id: int,
    effects: Effects,
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
    queue.behave(attributes)
    return queue
