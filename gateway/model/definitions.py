"""What exists besides messages and outlives a restart: addresses, queues and streams."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.model.address import RoutingType
from gateway.model.attributes import PLAIN, QueueAttributes


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDefinition:
    """A queue. `ring_size` and `max_consumers`: -1 is no limit. `queue_id` is never used twice.

    `filter` is a selector, `no_local` the origin whose messages it does not take; "" is none.
    """

    queue_id: int
    name: str
    address: str
    routing: RoutingType
    durable: bool = True
    auto_created: bool = False
    ring_size: int = -1
    max_consumers: int = -1
    paused: bool = False
    attributes: QueueAttributes = PLAIN
    filter: str = ""
    no_local: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressDefinition:
    """An address and the ways it routes."""

    name: str
    routing_types: frozenset[RoutingType]
    auto_created: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDefinition:
    """A tap on an address. `stream_id` shares the numbers of queue ids; `epoch` counts lives."""

    stream_id: int
    name: str
    address: str
    epoch: int


Definition = QueueDefinition | AddressDefinition | StreamDefinition
