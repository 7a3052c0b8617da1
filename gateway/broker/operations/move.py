"""Moving messages that wait from one queue to an address, in their order, as an errand's act."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.addresses.settings import FullPolicy
from gateway.broker.directory.address import Address
from gateway.broker.directory.directory import Directory
from gateway.broker.operations.errand import that_wait
from gateway.broker.pressure.admission import Usage, full_because
from gateway.broker.pressure.load import OVERHEAD_BYTES
from gateway.broker.routing.route import Route
from gateway.broker.routing.shared import Shared
from gateway.model.address import Destination, parse_destination
from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.message import (
    DURABLE,
    EXPIRES,
    GROUPED,
    PRIORITY_MASK,
    SCHEDULED,
    STOMP,
    TEXT,
    Message,
)
from gateway.model.run import Run
from gateway.queues.queue import Gone, Queue

_KEPT: Final = PRIORITY_MASK | DURABLE | STOMP | TEXT | EXPIRES | GROUPED


class Move:
    """Moves messages of a queue to an address, in their order; they count as acknowledged here."""

    def __init__(self, directory: Directory, shared: Shared, queue: Queue, target: str) -> None:
        """Raises RefusedError when `target` does not exist, has no queue, or is where they are."""
        self._store = directory.store
        self._queue = queue
        destination = parse_destination(target)
        self._only = _only_queue(directory, destination)
        address = directory.find_address(destination.address)
        targets = _targets(address, self._only)
        if not targets:
            raise RefusedError(_no_taker(address.name))
        if queue in targets:
            raise RefusedError.of(
                Code.BAD_VALUE, f"target {target!r} leads back to queue {queue.name!r}."
            )
        self._route = Route(shared, address, None, None, only=self._only)

    def act(self, messages: list[Message]) -> tuple[int, Refusal | None]:
        """Move those of these that still wait, as far as the target takes them."""
        route = self._route
        refusal = route.resolve()
        if refusal is None and not _targets(route.target, self._only):
            refusal = _no_taker(route.address)
        if refusal is not None:
            return 0, refusal
        fitting, full = self._room_for(that_wait(self._queue, messages))
        moved = self._move(fitting) if fitting else 0
        self._queue.ahead.give_back(self._queue.backlog)
        return moved, full

    def _move(self, messages: list[Message]) -> int:
        store = self._store
        store.begin_atomic()
        try:
            moved = {m.seq for m in messages if self._send(m)}
            self._queue.take_out(moved, Gone.ACKNOWLEDGED)
        finally:
            store.end_atomic()
        return len(moved)

    def _send(self, message: Message) -> bool:
        """Send a copy; returns whether a queue has it. What no queue wants stays where it is."""
        flags = message.flags
        expires = message.expires if flags & EXPIRES else 0
        due = message.due if flags & SCHEDULED else 0
        return self._route.has_taker_for(Run((message.body,), flags & _KEPT, expires, due))

    def _room_for(self, messages: Sequence[Message]) -> tuple[list[Message], Refusal | None]:
        """Return the first ones that the target takes, and why not the others.

        A full address is not filled further, unless it pages; what the gateway holds as a whole
        does not grow.
        """
        address = self._route.target
        if address.settings.address_full_policy is FullPolicy.PAGE:
            return list(messages), None
        size, count = address.size_bytes, address.messages
        for index, message in enumerate(messages):
            usage = Usage(size_bytes=size, messages=count, global_bytes=0, global_bytes_max=1)
            refusal = full_because(address.name, usage, address.settings)
            if refusal is not None:
                return list(messages[:index]), refusal
            size += len(message.body) + OVERHEAD_BYTES
            count += 1
        return list(messages), None


def _only_queue(directory: Directory, destination: Destination) -> Queue | None:
    """Return the queue of an `address::queue`. Raises RefusedError (not-found)."""
    if destination.queue is None:
        return None
    only = directory.find_queue(destination.queue)
    if only.address != destination.address:
        raise RefusedError.of(
            Code.NOT_FOUND, f"Queue {only.name!r} is not on address {destination.address!r}."
        )
    return only


def _targets(address: Address, only: Queue | None) -> list[Queue]:
    """Return the queues that a moved message could be in then."""
    if address.gone or only is None:
        return [] if address.gone else address.queues
    return [] if only.deleted else [only]


def _no_taker(name: str) -> Refusal:
    return Refusal(
        code=Code.NOT_FOUND,
        text=f"Address {name!r} has no queue that would take the messages; nothing was moved.",
    )
