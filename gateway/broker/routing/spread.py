"""Giving runs to queues and taps: what is in memory, and in the journal when it is durable. Hot."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.broker.ports.store import Appends
from gateway.broker.pressure.load import OVERHEAD_BYTES
from gateway.broker.routing.placement import Placement
from gateway.broker.routing.shared import Shared
from gateway.model.message import DURABLE, Share
from gateway.model.run import Run
from gateway.queues.queue import Queue


class Spread:
    """The storing half of a route. `store` takes what is recorded; it may stand for another."""

    __slots__ = ("_clock", "_dispatch", "_is_owned", "_origin", "_place", "_shared", "store")

    def __init__(self, shared: Shared, place: Placement, origin: str, *, is_owned: bool) -> None:
        """`is_owned`: the route is a client's; `origin` is the connection that it sends from."""
        self._shared = shared
        self._clock = shared.clock
        self._dispatch = shared.dispatch
        self._place = place
        self._origin = origin
        self._is_owned = is_owned
        self.store: Appends = shared.store

    def give(self, able: list[Queue], copies: list[Queue], run: Run) -> int:
        """Give a run to one of the able ones in turn, and a copy to each of the others."""
        address = self._place.address
        count = run.count
        queues = len(copies) + (1 if able else 0)
        if not queues and not address.taps:
            address.unrouted += count
            return self.give_up(run)
        address.routed += count
        if queues:
            self._shared.load.charge(address, count, run.size + OVERHEAD_BYTES * count * queues)
        shares = [[queues] for _ in run.bodies] if queues > 1 else []
        if len(able) <= 1:
            if able and len(address.anycast) > 1 and self._place.only is None:
                address.chose(able[0])
            return self.give_all(able + copies, run, shares)
        ticket = self._deal(able, run, shares)
        if copies or address.taps:
            ticket = max(ticket, self.give_all(copies, run, shares))
        return ticket

    def give_up(self, run: Run) -> int:
        """A client sent what no queue wants: where settings say so, these are dead letters."""
        address = self._place.address
        if not self._is_owned or not address.settings.send_to_dla_on_no_route:
            return 0
        return self._shared.letters.unrouted(address.name, run)

    def _deal(self, able: list[Queue], run: Run, shares: Sequence[Share]) -> int:
        """Deal a run out over the anycast queues in turn."""
        ways = len(able)
        self._place.address.chose(able[(run.count - 1) % ways])
        ticket = 0
        for way in range(min(ways, run.count)):
            one = self.give_one(able[way], run.dealt(way, ways), shares[way::ways])
            ticket = max(ticket, one)
        return ticket

    def give_one(self, queue: Queue, run: Run, shares: Sequence[Share]) -> int:
        """Give a run to one queue; `shares` as `Queue.add_run` has them."""
        first = queue.add_run(run, shares, origin=self._mark(queue))
        self._dispatch.touch(queue)
        ticket = 0
        if run.flags & DURABLE and queue.durable:
            ticket = self.store.append(
                ((queue.queue_id, first),), run, run.size, self._clock.now_ms()
            )
        self._follow(queue, run)
        return ticket

    def _follow(self, queue: Queue, run: Run) -> None:
        """Have the queue let go of what an add, which is recorded, leaves no place for."""
        if queue.replaces:
            queue.drop_superseded()
        if 0 <= queue.ring.size < queue.line.waiting_count and not run.due:
            self._dispatch.overflow(queue, run.count)

    def _mark(self, queue: Queue) -> str:
        """Return where a message comes from, if some consumer of the queue has to know."""
        return self._origin if queue.told_apart else ""

    def give_all(self, queues: list[Queue], run: Run, shares: Sequence[Share]) -> int:
        """Give each queue and each tap the whole run, stored once."""
        now_ms = self._clock.now_ms()
        targets: list[tuple[int, int]] = []
        for queue in queues:
            first = queue.add_run(run, shares, origin=self._mark(queue))
            self._dispatch.touch(queue)
            if run.flags & DURABLE and queue.durable:
                targets.append((queue.queue_id, first))
        taps = self._place.address.taps
        if taps and not queues:
            self._dispatch.need_end()
        bases = [tap.record(run, now_ms) for tap in taps]
        targets += [(tap.stream_id, base) for tap, base in zip(taps, bases, strict=True)]
        ticket = self.store.append(targets, run, run.size, now_ms) if targets else 0
        for tap, base in zip(taps, bases, strict=True):
            tap.recorded(base, run.count, ticket)
        for queue in queues:
            self._follow(queue, run)
        # Only a durable message's sender waits; a tap alone makes nobody wait.
        return ticket if run.flags & DURABLE else 0
