"""Which queues of its address a route leads to: one in turn, and those that each get a copy. Hot.

What a filter, a selector or the sender itself decides for each message is asked of a `Picker`.
Looks, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.broker.directory.address import Address
from gateway.broker.routing.picking import Picker, is_picky
from gateway.model.address import RoutingType
from gateway.model.message import Message
from gateway.model.run import Run
from gateway.queues.queue import Queue


class Placement:
    """The queues behind one route.

    Attributes:
        address: where the route ends.
        only: the one queue of an `address::queue` route.
        picky: some queue does not take everything.
        routing: None: both.
    """

    __slots__ = ("_origin", "address", "only", "picky", "routing")

    def __init__(
        self, address: Address, routing: RoutingType | None, only: Queue | None, origin: str
    ) -> None:
        self.address = address
        self.routing = routing
        self.only = only
        self.picky = False
        self._origin = origin

    def move(self, address: Address, only: Queue | None) -> None:
        """Lead to another address of the same name."""
        self.address = address
        self.only = only

    def look_again(self) -> list[Queue]:
        """Look at the address' queues, which have changed; returns those that could take."""
        only = self.only
        if only is not None and only.deleted:
            # Until another one takes its name, what is sent here is unrouted.
            self.only = next((q for q in self.address.queues if q.name == only.name), only)
        targets = self.targets()
        self.picky = is_picky(targets)
        return targets

    def targets(self) -> list[Queue]:
        """Return all queues that could take a message."""
        if self.only is not None:
            return [] if self.only.deleted else [self.only]
        address = self.address
        if self.routing is RoutingType.ANYCAST:
            return address.anycast
        if self.routing is RoutingType.MULTICAST:
            return address.multicast
        return address.anycast + address.multicast

    def routed(self, run: Run) -> Sequence[tuple[Run, list[Queue], list[Queue]]]:
        """Return neighbours that go to the same queues: those of which one gets each, and copies.

        Of the former each gets one message in turn.
        """
        picker = self._picker()
        if picker is None:
            return ((run, self._able(), self._copied_to()),)
        return list(picker.runs(run, self.address.cursor))

    def takers_of(self, message: Message, later: int = 0) -> list[Queue]:
        """Return the queues that would get this message if it came behind `later` others."""
        picker = self._picker()
        if picker is None:
            able = self._able()
            one = [able[later % len(able)]] if able else []
            return one + self._copied_to()
        queues = max(1, len(self.address.anycast))
        one, copies = picker.choose(message, (self.address.cursor + later) % queues)
        return one + copies

    def _copied_to(self) -> list[Queue]:
        """Return the queues of which each gets a copy."""
        if self.only is not None or self.routing is RoutingType.ANYCAST:
            return []
        return self.address.taking(self.address.multicast)

    def _one_of(self) -> list[Queue]:
        """Return the queues of which one gets a message."""
        if self.only is not None:
            return self.address.taking(self.targets())
        if self.routing is RoutingType.MULTICAST:
            return []
        return self.address.taking(self.address.anycast)

    def _able(self) -> list[Queue]:
        """Return those of them that get it in turn, the next one first: with consumers, if any."""
        able = self._one_of()
        if len(able) <= 1:
            return able
        return self.address.in_turn([q for q in able if q.consumer_count] or able)

    def _picker(self) -> Picker | None:
        """Return a chooser where filters or selectors have a say."""
        anycast = self._one_of()
        if self.picky or (len(anycast) > 1 and any(queue.selective for queue in anycast)):
            places = {queue: place for place, queue in enumerate(self.address.anycast)}
            return Picker(anycast, self._copied_to(), self._origin, places=places)
        return None
