"""The consumers of one queue in the order in which they are served.

Higher priority first, then arrival; among their like each round begins where the last one ended. It
knows no message.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

from gateway.model.attributes import QueueAttributes
from gateway.queues.selecting import Held
from gateway.queues.storing import Serialized


class Seated(Serialized):
    """The part of a queue that its consumers sit in."""

    __slots__ = ("_consumers", "_next", "_ranks")

    def __init__(self) -> None:
        super().__init__()
        self._consumers: list[Held] = []
        self._next = 0
        self._ranks: list[tuple[int, int]] = []

    @property
    def consumer_count(self) -> int:
        return len(self._consumers)

    @property
    def consumers(self) -> Sequence[Held]:
        return self._consumers

    def behave(self, attributes: QueueAttributes) -> None:
        """See Conduct; who kept an exclusive queue goes to his place when it is that no more."""
        was_exclusive = self.exclusive
        super().behave(attributes)
        if was_exclusive and not self.exclusive:
            self._consumers.sort(key=lambda held: -held.priority)
            self._ranks.clear()

    def _seat(self, held: Held) -> None:
        """Give a consumer its place, behind those of its priority."""
        at = len(self._consumers)
        # Whoever has an exclusive queue keeps it.
        while at > int(self.exclusive) and self._consumers[at - 1].priority < held.priority:
            at -= 1
        self._consumers.insert(at, held)
        self._ranks.clear()

    def _unseat(self, held: Held) -> None:
        """Take a consumer's place away."""
        held.attached = False
        consumers, priority = self._consumers, held.priority
        at = consumers.index(held)
        # One that has an exclusive queue stays first, whatever its priority.
        after = int(at > 0 and consumers[0].priority < priority)
        first = bisect_left(consumers, -priority, after, at, key=lambda other: -other.priority)
        if at - first < self._next:
            self._next -= 1  # whose turn it is does not change
        del consumers[at]
        self._ranks.clear()

    def _with_room(self, below: int | None, enough: int) -> list[tuple[Held, int, int]]:
        """Return some of the highest priority, below a given one, that have room.

        At most `enough`, from where the last round ended: (consumer, room, place among its like).
        """
        consumers = self._consumers
        if self.exclusive or len(consumers) == 1:
            if below is not None or not consumers:
                return []
            held = consumers[0]
            room = held.consumer.room()
            return [(held, room, 0)] if room > 0 else []
        found: list[tuple[Held, int, int]] = []
        for first, after in self._ranks or self._ranked():
            if below is not None and consumers[first].priority >= below:
                continue
            count = after - first
            for step in range(count):
                place = (self._next + step) % count
                held = consumers[first + place]
                room = held.consumer.room()
                if room > 0:
                    found.append((held, room, place))
                    if len(found) >= enough:
                        return found
            if found:
                return found
        return found

    def _ranked(self) -> list[tuple[int, int]]:
        """Note where in the list of consumers each priority begins and ends."""
        ranks = self._ranks
        for _, like in groupby(self._consumers, key=attrgetter("priority")):
            first = ranks[-1][1] if ranks else 0
            ranks.append((first, first + len(list(like))))
        return ranks
