"""The consumers of one queue in the order in which they are served.

Higher priority first, then arrival; among their like each round begins where the last one ended. It
knows no message.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import groupby, pairwise
from operator import attrgetter

from gateway.queues.selecting import Held


class Consumers:
    """See the module text.

    Attributes:
        all: in the order of their seats.
        exclusive: the first of them has the queue for itself.
        turn: where, among those of one priority, the next round begins.
    """

    __slots__ = ("_ranks", "all", "exclusive", "turn")

    def __init__(self) -> None:
        self.all: list[Held] = []
        self.exclusive = False
        self.turn = 0
        self._ranks: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self.all)

    @property
    def count(self) -> int:
        return len(self.all)

    def be_exclusive(self, exclusive: bool) -> None:  # noqa: FBT001 - says it by name
        """Serve the first alone from now on, or all; it then goes to its place."""
        was, self.exclusive = self.exclusive, exclusive
        if was and not exclusive:
            self.all.sort(key=lambda held: -held.priority)
            self._ranks.clear()

    def seat(self, held: Held) -> None:
        """Give a consumer its place, behind those of its priority."""
        at = len(self.all)
        # The one that has an exclusive queue keeps it.
        while at > int(self.exclusive) and self.all[at - 1].priority < held.priority:
            at -= 1
        assert held.attached, "one that has left takes a seat"
        self.all.insert(at, held)
        self._ranks.clear()

    def unseat(self, held: Held) -> None:
        """Take a consumer's place away."""
        assert held.attached, "it has left already"
        held.attached = False
        consumers, priority = self.all, held.priority
        at = consumers.index(held)
        # One that has an exclusive queue stays first, whatever its priority.
        after = int(at > 0 and consumers[0].priority < priority)
        first = bisect_left(consumers, -priority, after, at, key=lambda other: -other.priority)
        if at - first < self.turn:
            self.turn -= 1  # whose turn it is does not change
        assert self.turn >= 0, "the turn of nobody"
        del consumers[at]
        self._ranks.clear()

    def with_room(self, below: int | None, enough: int) -> list[tuple[Held, int, int]]:
        """Return some of the highest priority, below a given one, that have room.

        At most `enough`, from where the last round ended: (consumer, room, place among its like).
        """
        consumers = self.all
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
                place = (self.turn + step) % count
                held = consumers[first + place]
                room = held.consumer.room()
                if room > 0:
                    found.append((held, room, place))
                    if len(found) >= enough:
                        return found
            if found:
                return found
        return found

    def in_turn(self) -> list[Held]:
        """Return the consumers in the order in which they are served now."""
        if self.exclusive:
            return self.all[:1]
        found: list[Held] = []
        for first, after in self._ranks or self._ranked():
            start = self.turn % (after - first)
            rank = self.all[first:after]
            found += rank[start:] + rank[:start]
        return found

    def _ranked(self) -> list[tuple[int, int]]:
        """Note where in the list of consumers each priority begins and ends."""
        ranks = self._ranks
        for _, like in groupby(self.all, key=attrgetter("priority")):
            first = ranks[-1][1] if ranks else 0
            ranks.append((first, first + len(list(like))))
        assert not ranks or ranks[-1][1] == len(self.all), "some have no rank"
        return ranks

    def check_invariants(self) -> None:
        """Assert that each has one seat, in the order of priorities."""
        assert self.turn >= 0, "the turn of nobody"
        assert len(set(map(id, self.all))) == len(self.all), "one has two seats"
        assert all(held.attached for held in self.all), "one that has left has a seat"
        assert all(held.count >= 0 for held in self.all), "one gave back more than it had"
        falling = self.all[int(self.exclusive) :]
        for before, after in pairwise(falling):
            assert before.priority >= after.priority, "served before one of higher priority"
        if self._ranks:
            assert self._ranks[0][0] == 0, "no rank for the first"
            assert self._ranks[-1][1] == len(self.all), "no rank for the last"
        for first, after_last in self._ranks:
            assert len({h.priority for h in self.all[first:after_last]}) == 1, (
                "a rank of unlike ones"
            )
        for one, other in pairwise(self._ranks):
            assert one[1] == other[0], "ranks with a gap"
