"""How queues behave: what an operator may say, and what their address' settings say."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from gateway.addresses.settings import (
    QUEUE_DEFAULTS,
    AddressSettings,
    Durability,
    RingVictim,
    ring_size_problem,
)
from gateway.broker.directory.address import Address
from gateway.model.address import RoutingType, check_name
from gateway.model.attributes import (
    LASTING,
    PLAIN,
    ROWS,
    QueueAttributes,
    attribute_problem,
    changed,
)
from gateway.model.bounds import unlimited
from gateway.model.errors import Code, RefusedError
from gateway.queues.queue import Queue


def check(
    ring_size: int | None, max_consumers: int | None, attributes: Mapping[str, object]
) -> None:
    """Raise RefusedError (bad-value) for what no queue can have."""
    problems = [
        ("ringSize", ring_size, ring_size_problem),
        ("maxConsumers", max_consumers, unlimited),
    ]
    for key, value, problem in problems:
        text = problem(value) if value is not None else None
        if text:
            raise RefusedError.of(Code.BAD_VALUE, f"{key} cannot be {value}: {text}.")
    for name, given in attributes.items():
        text = attribute_problem(name, given)
        if text:
            raise RefusedError.of(Code.BAD_VALUE, f"{ROWS[name].json} cannot be {given!r}: {text}.")
    if attributes.get("last_value") is False and attributes.get("last_value_key"):
        raise RefusedError.of(
            Code.BAD_VALUE, "lastValueKey is for queues of last values, and lastValue is false."
        )


def wanted(settings: AddressSettings, attributes: Mapping[str, object]) -> QueueAttributes:
    """Return the attributes of a new queue: what is said, else what its address' settings say."""
    given = {name: getattr(settings, setting) for name, setting in QUEUE_DEFAULTS.items()}
    if attributes.get("last_value_key") and "last_value" not in attributes:
        given["last_value"] = True  # whatever the settings say
    elif given["last_value_key"]:
        given["last_value"] = True
    return changed(PLAIN, {**given, **attributes})


def begin(
    settings: AddressSettings,
    queue: Queue,
    serialized: Collection[RoutingType],
    relax: Callable[[int], None],
) -> None:
    """Give a new queue the limits that it has when nobody says a word about them; see `follow`."""
    queue.ring_size = settings.default_ring_size
    queue.max_consumers = settings.default_max_consumers
    follow(settings, queue, serialized, relax)


def check_lasting(queue: Queue, attributes: Mapping[str, object]) -> None:
    """Raise RefusedError (bad-value) for what a queue would have to be made anew for."""
    for name in LASTING:
        there = getattr(queue.attributes, name)
        if attributes.get(name, there) != there:
            raise RefusedError.of(
                Code.BAD_VALUE,
                f"{ROWS[name].json} of queue {queue.name!r} is {there!r} and cannot be changed; "
                "delete the queue and make it anew.",
            )


def check_subscription(name: str, queue: Queue | None, address: str) -> None:
    """Raise RefusedError (bad-name, already-exists) where a subscription cannot have this name.

    One that has moved to another address is dropped, so that nothing else may pass for it.
    """
    check_name(name, "queue")
    if queue is None or (
        queue.routing is RoutingType.MULTICAST and (queue.auto_created or queue.address == address)
    ):
        return
    raise RefusedError.of(
        Code.ALREADY_EXISTS,
        f"Queue {name!r} is on address {queue.address!r} and is no subscription ("
        f"{queue.routing.value}); give the subscription to {address!r} another name.",
    )


def follow(
    settings: AddressSettings,
    queue: Queue,
    serialized: Collection[RoutingType],
    relax: Callable[[int], None],
) -> None:
    """Give a queue what it takes from its address' settings at each start.

    `serialized`: routing types without concurrent store and dispatch. `relax` is told which queue's
    records need not be synced before they are reported.
    """
    queue.returns.max_attempts = settings.max_delivery_attempts
    queue.ring.evicts_next = settings.ring_victim is RingVictim.ARTEMIS
    queue.line.serialize(settings.strict_dispatch or queue.routing in serialized)
    if settings.durability is Durability.WRITE:
        relax(queue.queue_id)


def check_owner(place: Address | Queue | None, owner: object | None) -> None:
    """Raise RefusedError (not-authorized) where a connection may not read a temporary node."""
    if place is not None and place.owner is not None and place.owner is not owner:
        what = "Queue" if isinstance(place, Queue) else "Address"
        raise RefusedError.of(
            Code.NOT_AUTHORIZED,
            f"{what} {place.name!r} is temporary and belongs to the connection that made it: "
            "that one alone may consume from it or browse it. Others may send to it.",
        )


def too_many_consumers(queue: Queue) -> RefusedError:
    """Return the refusal of one consumer more than a queue may have."""
    return RefusedError.of(
        Code.MAX_CONSUMERS,
        f"Queue {queue.name!r} of address {queue.address!r} has "
        f"{queue.consumer_count} consumers and max-consumers is {queue.max_consumers}.",
        transient=True,
    )
