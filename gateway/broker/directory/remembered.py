"""What the store remembers of an address and of a queue."""

from __future__ import annotations

from gateway.broker.directory.address import Address
from gateway.model.definitions import AddressDefinition, QueueDefinition
from gateway.queues.queue import Queue


def address_definition(address: Address) -> AddressDefinition:
    """Return what is remembered of an address."""
    return AddressDefinition(
        name=address.name,
        routing_types=address.routing_types,
        auto_created=address.auto_created,
        made_by=address.made_by,
    )


def queue_definition(queue: Queue) -> QueueDefinition:
    """Return what is remembered of a queue."""
    return QueueDefinition(
        queue_id=queue.queue_id,
        name=queue.name,
        address=queue.address,
        routing=queue.routing,
        durable=queue.durable,
        auto_created=queue.auto_created,
        ring_size=queue.ring_size,
        max_consumers=queue.max_consumers,
        paused=queue.paused,
        filter=queue.filter_text,
        no_local=queue.no_local,
        attributes=queue.attributes,
        made_by=queue.made_by,
    )
