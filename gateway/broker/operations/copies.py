"""Messages of which several queues hold a copy, found again at a start."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.broker.directory.address import Address
from gateway.broker.pressure.load import OVERHEAD_BYTES, Load
from gateway.model.address import RoutingType
from gateway.model.message import SHARED, Message
from gateway.queues.queue import Queue

#: Shorter bytes may be one object for messages that have nothing to do with one another.
_OWN_BYTES = 2


class Recovering:
    """The messages that a start has put back so far, by the identity of their bytes."""

    __slots__ = ("_addresses", "_load", "_seen")

    def __init__(self, load: Load, addresses: Mapping[str, Address]) -> None:
        self._load = load
        self._addresses = addresses  # by name
        self._seen: dict[tuple[str, int], tuple[Queue, Message]] = {}

    def restored(self, queue: Queue) -> None:
        """Charge memory for what recovery put into a queue."""
        count = queue.message_count
        charge = queue.size_bytes + OVERHEAD_BYTES * count
        if queue.routing is RoutingType.MULTICAST:
            copies = self.join(queue)
            count -= len(copies)
            charge -= sum([len(m.body) for m in copies])
        self._load.charge(self._addresses[queue.address], count, charge)

    def join(self, queue: Queue) -> list[Message]:
        """Find copies of messages that queues before hold; recovery gives them the same bytes."""
        copies = []
        for message in queue.holdings():
            # Each address pays for what it has, also where one send reached several.
            place = queue.address, id(message.body)
            holder, first = self._seen.setdefault(place, (queue, message))
            if first is message or len(message.body) < _OWN_BYTES:
                continue
            if not first.flags & SHARED:
                first.flags |= SHARED
                first.share = [1]
                holder.line.any_flags |= SHARED
            first.share[0] += 1
            message.flags |= SHARED
            message.share = first.share
            queue.line.any_flags |= SHARED
            copies.append(message)
        return copies
