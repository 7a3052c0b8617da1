"""A queue so simple that it is right: one list that is sorted again after each change.

What it cannot know, who of several consumers gets a message, it takes from the real queue and
judges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(eq=False)
class Item:
    """A message."""

    seq: int
    body: bytes
    priority: int
    durable: bool
    expires: int | None
    due: int | None = None
    attempts: int = 0
    key: str | None = None
    rank: int | None = None  # when it first waited
    told: bool = False  # it was handed out while the queue was a ring

    @property
    def place(self) -> tuple[int, int, int, int]:
        if self.due is not None:
            return (-self.priority, 0, self.due, self.seq)
        return (-self.priority, 1, 0, self.seq)


@dataclass(eq=False)
class Seat:
    """A consumer: `room` is what it takes, `held` what it has, `barred` what it must not get.

    `wants` is its selector.
    """

    priority: int
    wants: Callable[[Item], bool] = lambda item: True
    room: int = 0
    held: list[Item] = field(default_factory=list)
    barred: set[int] = field(default_factory=set)

    def takes(self, item: Item) -> bool:
        return item.seq not in self.barred and self.wants(item)


class NaiveQueue:
    """See the module text. `gone` lists (reason, seq) of all that left, in groups by call."""

    def __init__(self, *, evicts_next: bool, last_value: bool = False) -> None:
        self.evicts_next = evicts_next
        self.last_value = last_value
        self.ranks = 0
        self.waiting: list[Item] = []
        self.scheduled: list[Item] = []
        self.seats: list[Seat] = []
        self.ring = -1
        self.attempts_max = 10
        self.paused = False
        self.deleted = False
        self.next_seq = 1
        self.counts = dict.fromkeys(("added", "acknowledged", "expired", "killed", "replaced"), 0)
        self.gone: list[tuple[str, int]] = []

    def _leave(self, reason: str, item: Item) -> None:
        self.counts["killed" if reason == "removed" else reason] += 1
        self.gone.append((reason, item.seq))

    def _sort(self) -> None:
        self.waiting.sort(key=lambda item: item.place)

    def _late(self, item: Item, now: int) -> bool:
        return item.expires is not None and item.expires <= now

    def add(
        self,
        body: bytes,
        priority: int,
        *,
        durable: bool,
        expires: int | None,
        due: int | None = None,
        key: str | None = None,
    ) -> None:
        item = Item(self.next_seq, body, priority, durable, expires, due, key=key)
        self.next_seq += 1
        self.counts["added"] += 1
        if due is not None:
            self.scheduled.append(item)
            return
        self.waiting.append(item)
        self._sort()
        if not self._supersede(item) and 0 <= self.ring < len(self.waiting):
            self._evict()

    def _supersede(self, item: Item) -> bool:
        """It begins to wait: an earlier value goes; returns whether one did that waited."""
        if not self.last_value or item.key is None:
            return False
        if item.rank is None:
            item.rank = self.ranks = self.ranks + 1
        old = [
            i
            for i in self.waiting + self.scheduled
            if i.key == item.key and i.rank is not None and i.rank < item.rank
        ]
        waited = False
        for one in old:
            waited |= one in self.waiting
            (self.waiting if one in self.waiting else self.scheduled).remove(one)
            self._leave("replaced", one)
        return waited

    def _outdated(self, item: Item) -> bool:
        """Whether a later value is there, waiting or in delivery."""
        if not self.last_value or item.rank is None:
            return False
        there = self.waiting + self.scheduled + [i for seat in self.seats for i in seat.held]
        return any(i.key == item.key and (i.rank or 0) > item.rank for i in there)

    def come_due(self, now: int) -> None:
        """What is due waits in front, or goes when the ring is full: the last ones stay."""
        ripe = [i for i in self.scheduled if i.due is not None and i.due <= now]
        for item in [i for i in ripe if self._late(i, now)]:
            self.scheduled.remove(item)
            ripe.remove(item)
            self._leave("expired", item)
        for item in sorted(ripe, key=lambda i: (i.due, i.seq)):
            if item in self.scheduled:
                self._supersede(item)
        for item in sorted(ripe, key=lambda i: (i.due, i.seq), reverse=True):
            if item not in self.scheduled:
                continue  # superseded by one that is due later
            self.scheduled.remove(item)
            if 0 <= self.ring <= len(self.waiting):
                self._leave("replaced", item)
            else:
                self.waiting.append(item)
                self._sort()

    def _evict(self) -> None:
        key = (lambda item: item.place) if self.evicts_next else (lambda item: item.seq)
        self._drop(min(self.waiting, key=key))

    def _drop(self, victim: Item) -> None:
        self.waiting.remove(victim)
        self._leave("replaced", victim)

    def trim(self) -> int:
        evicted = 0
        while 0 <= self.ring < len(self.waiting):
            self._evict()
            evicted += 1
        return evicted

    def delivered(self, seat: Seat, seqs: list[int], now: int, *, hasty: bool = False) -> None:
        """The real queue has handed these to a consumer: judge it.

        `hasty`: it has not looked at all that waits, so that others may come late.
        """
        assert not self.paused, "a paused queue delivers"
        assert len(seqs) <= seat.room, "more than the consumer has room for"
        for seq in seqs:
            for item in [i for i in self.waiting if self._late(i, now) and seat.wants(i)]:
                if item.place < next(i.place for i in self.waiting if i.seq == seq):
                    self.waiting.remove(item)
                    self._leave("expired", item)
            first = next(i for i in self.waiting if seat.takes(i))
            assert first.seq == seq, f"{seq} is delivered where {first.seq} is next"
            assert not self._late(first, now), "an expired message is delivered"
            for other in self.seats:
                if other.priority > seat.priority and other.room > 0 and not hasty:
                    assert not other.takes(first), "a consumer of higher priority is passed over"
            self.waiting.remove(first)
            first.told = self.ring >= 0
            seat.held.append(first)
            seat.room -= 1

    def starving(self, now: int) -> list[int]:
        """Return what waits although somebody would take it."""
        if self.paused:
            return []
        open_seats = [seat for seat in self.seats if seat.room > 0]
        return [i.seq for i in self.waiting if any(seat.takes(i) for seat in open_seats)]

    def drop_late(self, now: int) -> None:
        """What has expired leaves, wherever it waits."""
        for items in (self.waiting, self.scheduled):
            for item in [i for i in items if self._late(i, now)]:
                items.remove(item)
                self._leave("expired", item)

    def acknowledge(self, seat: Seat, items: list[Item]) -> None:
        for item in items:
            seat.held.remove(item)
            self._leave("acknowledged", item)

    def kill(self, seat: Seat, items: list[Item]) -> None:
        for item in items:
            seat.held.remove(item)
            self._leave("killed", item)

    def release(
        self, seat: Seat, items: list[Item], *, failed: bool, due: dict[int, int] | None = None
    ) -> None:
        back = sorted(items, key=lambda i: i.seq, reverse=True)
        for item in list(back):
            item.attempts += failed
            if failed and 0 < self.attempts_max <= item.attempts:
                seat.held.remove(item)
                back.remove(item)
                self._leave("killed", item)
        outdated = [item for item in back if self._outdated(item)]
        for item in back:
            seat.held.remove(item)
        kept = 0
        for item in back:
            if self.deleted:
                self._leave("removed", item)
            elif item in outdated or 0 <= self.ring <= self._newer(item):
                self._leave("replaced", item)
            elif due is not None:
                item.due = due[item.seq]
                self.scheduled.append(item)
            else:
                self.waiting.append(item)
                kept += 1
        while kept > 0 and 0 <= self.ring < len(self.waiting):
            kept -= 1
            self._drop(min(self.waiting, key=lambda i: i.seq))
        self._sort()

    def _newer(self, item: Item) -> int:
        """Return how many that were sent later are there, waiting or, as far as told, held."""
        held = [i for seat in self.seats for i in seat.held if i.told]
        return sum(i.seq > item.seq for i in self.waiting + held)

    def take_out(self, seqs: set[int], why: str) -> int:
        items = [i for i in self.waiting + self.scheduled if i.seq in seqs]
        self.waiting = [i for i in self.waiting if i.seq not in seqs]
        self.scheduled = [i for i in self.scheduled if i.seq not in seqs]
        for item in items:
            self._leave(why, item)
        return len(items)

    def purge(self) -> int:
        items = self.waiting + self.scheduled
        self.waiting, self.scheduled = [], []
        for item in items:
            self._leave("removed", item)
        return len(items)
