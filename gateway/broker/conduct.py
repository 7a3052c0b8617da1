"""How queues behave: what an operator may say, and what their address' settings say."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gateway.addresses.settings import (
    AddressSettings,
    RingVictim,
    max_consumers_problem,
    ring_size_problem,
)
from gateway.model.address import RoutingType
from gateway.model.attributes import QueueAttributes, attribute_problem
from gateway.model.errors import Code, RefusedError
from gateway.queues.queue import Queue


def check(
    ring_size: int | None, max_consumers: int | None, attributes: Mapping[str, object]
) -> None:
    """Raise RefusedError (bad-value) for what no queue can have."""
    problems = [
        ("ringSize", ring_size, ring_size_problem),
        ("maxConsumers", max_consumers, max_consumers_problem),
    ]
    for key, value, problem in problems:
        text = problem(value) if value is not None else None
        if text:
            raise RefusedError.of(Code.BAD_VALUE, f"{key} cannot be {value}: {text}.")
    for name, given in attributes.items():
        text = attribute_problem(name, given)
        if text:
            first, *others = name.split("_")
            key = first + "".join(word.title() for word in others)
            raise RefusedError.of(Code.BAD_VALUE, f"{key} cannot be {given!r}: {text}.")


def begin(
    settings: AddressSettings, queue: Queue, serialized: Collection[RoutingType] = ()
) -> None:
    """Give a new queue what it has when nobody says a word about it; see `follow`."""
    queue.ring_size = settings.default_ring_size
    queue.max_consumers = settings.default_max_consumers
    queue.behave(
        QueueAttributes(
            exclusive=settings.default_exclusive_queue,
            purge_on_no_consumers=settings.default_purge_on_no_consumers,
            consumers_before_dispatch=settings.default_consumers_before_dispatch,
            delay_before_dispatch=settings.default_delay_before_dispatch,
        )
    )
    follow(settings, queue, serialized)


def follow(
    settings: AddressSettings, queue: Queue, serialized: Collection[RoutingType] = ()
) -> None:
    """Give a queue what it takes from its address' settings at each start.

    `serialized`: routing types without concurrent store and dispatch.
    """
    queue.max_attempts = settings.max_delivery_attempts
    queue.evicts_next = settings.ring_victim is RingVictim.ARTEMIS
    queue.serialize(settings.strict_dispatch or queue.routing in serialized)
