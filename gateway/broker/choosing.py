"""Which queues of its address a route leads to: one in turn, and those that each get a copy. Hot.

What a filter, a selector or the sender itself decides for each message is asked of a `Picker`.
"""

from __future__ import annotations

from gateway.broker.picking import Picker
from gateway.broker.spread import Spread
from gateway.model.address import RoutingType
from gateway.queues.queue import Queue


class Choosing(Spread):
    """The choosing half of a route.

    `only` is the queue of an `address::queue` route; `picky`: some queue does not take everything.
    """

    __slots__ = ("_only", "_picky", "_routing")

    _only: Queue | None
    _picky: bool
    _routing: RoutingType | None

    def targets(self) -> list[Queue]:
        """Return all queues that could take a message from here."""
        if self._only is not None:
            return [] if self._only.deleted else [self._only]
        address = self._address
        if self._routing is RoutingType.ANYCAST:
            return address.anycast
        if self._routing is RoutingType.MULTICAST:
            return address.multicast
        return address.anycast + address.multicast

    def _copied_to(self) -> list[Queue]:
        """Return the queues of which each gets a copy."""
        if self._only is not None or self._routing is RoutingType.ANYCAST:
            return []
        return self._address.taking(self._address.multicast)

    def _one_of(self) -> list[Queue]:
        """Return the queues of which one gets a message."""
        if self._only is not None:
            return self._address.taking(self.targets())
        if self._routing is RoutingType.MULTICAST:
            return []
        return self._address.taking(self._address.anycast)

    def _able(self) -> list[Queue]:
        """Return those of them that get it in turn, the next one first: with consumers, if any."""
        able = self._one_of()
        if len(able) <= 1:
            return able
        return self._address.in_turn([q for q in able if q.consumer_count] or able)

    def _picker(self) -> Picker | None:
        """Return who chooses where filters or selectors have a say."""
        anycast = self._one_of()
        if self._picky or (len(anycast) > 1 and any(queue.selective for queue in anycast)):
            places = {queue: place for place, queue in enumerate(self._address.anycast)}
            return Picker(anycast, self._copied_to(), self._origin, places=places)
        return None

    def takers_of(self, body: bytes, flags: int, expires: int, later: int = 0) -> list[Queue]:
        """Return who would get this message if it came behind `later` others."""
        picker = self._picker()
        if picker is None:
            return self.takers(later)
        queues = max(1, len(self._address.anycast))
        cursor = (self._address.cursor + later) % queues
        one, copies = picker.choose(body, flags, expires, cursor)
        return one + copies

    def takers(self, later: int) -> list[Queue]:
        """Return who would get a message that no filter keeps out, behind `later` others."""
        able = self._able()
        one = [able[later % len(able)]] if able else []
        return one + self._copied_to()
