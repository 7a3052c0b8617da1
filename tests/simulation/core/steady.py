"""The steady clock of a simulated core: by it a disk lags, and batches linger.

The clock goes on a little with each event. Where the plan says so, dispatch waits for a disk that
lags (`store-lag-limit`), and a batch that nobody waits for stays open for a while (`store-linger`).
The age of the oldest record that waits is counted here once more, from the tickets of the journal:
beyond the limit dispatch has to wait.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.broker import Gateway
from gateway.broker.pressure.lag import Lag
from gateway.store.lingering import Linger
from storage.batch import Batch
from storage.silent import never
from tests.simulation.core.life import CALM_MAX
from tests.simulation.model import ViolationError

if TYPE_CHECKING:
    from tests.simulation.core.world import CoreWorld

#: Seconds between two things that happen.
_BETWEEN = (0, 0.001, 0.01, 0.05)
#: A gateway that is called late itself waits for a quarter of the limit before it blames the disk.
_FORGIVEN = 1.25
#: How often the clock may go on after that until the disk is blamed.
_GRACE = 2


class Steady:
    """See the module text.

    Attributes:
        seconds: what the clock says.
    """

    def __init__(self, world: CoreWorld, seed: int | str) -> None:
        self.world = world
        self.chance = random.Random(f"core steady/{seed}")
        self.seconds = 0.0
        self._timers: list[tuple[float, Callable[[], None]]] = []
        self._awaited = random.Random(f"core awaited/{seed}")
        self._marks: deque[tuple[int, float]] = deque()  # tickets not on disk: when they came
        self._overdue = 0  # how often the clock went on since the oldest has waited too long

    def begin(self, gateway: Gateway) -> None:
        """A core was made: the timers of the last one are gone."""
        self._timers = []
        self._marks.clear()
        self._overdue = 0
        self._watch_lag(gateway)
        self.world.journal.lingers = self._lingers(gateway) if self.world.plan.linger else never

    # ---- time

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self._timers.append((self.seconds + seconds, call))

    def go_on(self, seconds: float) -> None:
        """Let the clock go on, and fire the timers that are due."""
        self.seconds += seconds
        due = [call for at, call in self._timers if at <= self.seconds]
        self._timers = [timer for timer in self._timers if timer[0] > self.seconds]
        for call in due:
            call()

    def step(self) -> None:
        """An event is over."""
        seconds = self.chance.choice(_BETWEEN)
        self.go_on(seconds)
        if seconds and self.world.plan.lag is not None and not self.world.failed:
            self._check_lag(self.world.plan.lag[0])

    # ---- a disk that lags

    def _watch_lag(self, gateway: Gateway) -> None:
        """Have dispatch wait for a disk that lags, where the plan says so."""
        world = self.world

        def changed(lag: Lag) -> None:
            world.log(f"      dispatch {'waits' if lag.waits else 'does not wait'} for the disk")
            world.figures["stored first" if lag.waits else "concurrent again"] += 1

        if world.plan.lag is not None:
            limit, calm = world.plan.lag
            store = gateway.turn.store

            def end_turn() -> None:
                store()
                self._mark()

            gateway.turn.store = end_turn
            gateway.pressure.lag.on_change = changed
            gateway.pressure.lag.watch(
                limit, now=lambda: self.seconds, later=self.call_later, calm=calm
            )
        world.ledger.lags = lambda: gateway.pressure.lag.waits

    def _mark(self) -> None:
        """A turn has ended: the age of what it brought begins."""
        ticket = self.world.journal.unsynced
        if ticket and (not self._marks or self._marks[-1][0] < ticket):
            self._marks.append((ticket, self.seconds))

    def _check_lag(self, limit: float) -> None:
        """When something has waited for longer than the limit, dispatch waits for the disk too."""
        world, marks = self.world, self._marks
        while marks and marks[0][0] <= world.ledger.reported:
            marks.popleft()
        if not world.journal.unsynced:
            marks.clear()  # consumers have taken it
        longest = _FORGIVEN * limit + 2 * max(_BETWEEN)
        late = bool(marks) and self.seconds - marks[0][1] > longest
        self._overdue = self._overdue + 1 if late and not world.gateway.pressure.lag.waits else 0
        if self._overdue > _GRACE:
            raise ViolationError(f"ticket {marks[0][0]} waits for {limit} s, dispatch does not")

    def check_keeps_up(self) -> None:
        """At rest the disk does not lag for long."""
        for _ in range(3):
            self.go_on(0.1)
        if self.world.gateway.pressure.lag.waits or self._timers:
            raise ViolationError("dispatch waits for a disk that has nothing to do")

    # ---- a batch that lingers

    def _lingers(self, gateway: Gateway) -> Callable[[Batch], bool]:
        world = self.world
        linger = Linger(
            world.plan.linger,
            awaited=lambda: gateway.awaited or self._awaited.random() < world.plan.awaited,
            delivered=lambda: gateway.figures.delivered,
            now=lambda: self.seconds,
            later=self.call_later,
            flush=world.journal.flush,
        )

        def stays_open(batch: Batch) -> bool:
            before = linger.batches
            stays = linger(batch)
            if linger.batches > before:
                world.log(f"      batch {batch.number} lingers")
                world.figures["lingered"] += 1
            return stays

        return stays_open

    def end_linger(self, settle: Callable[[], None]) -> None:
        """Let the time go by for which batches linger, until all of them have been written."""
        world, seconds = self.world, self.world.plan.linger
        for _ in range(CALM_MAX):
            if not seconds or world.failed or not world.journal.unsynced:
                return
            self.go_on(seconds)
            settle()
        raise ViolationError("a batch lingers for ever")
