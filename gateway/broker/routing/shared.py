"""What all routes of a gateway share: where they store, whom they ask, and what they add to."""

from __future__ import annotations

from typing import Protocol

from gateway.broker.directory.branches import Branches
from gateway.broker.directory.on_demand import OnDemand
from gateway.broker.ports.store import Store
from gateway.broker.ports.turns import Clock, Dispatching
from gateway.broker.pressure.pressure import Pressure
from gateway.broker.routing.duplicates import Duplicates
from gateway.broker.routing.fan import Judge
from gateway.broker.routing.way import Way
from gateway.model.run import MixedRun, Outcome, Run


class PageMode(Protocol):
    """Sends to pages what an address has no room for."""

    def send(self, route: Way, run: Run | MixedRun, *, admitted: bool) -> Outcome:
        """Store up to the message that reaches a limit, send the others to pages.

        `admitted`: no limit counts any more.
        """


class Letters(Protocol):
    """Takes what no queue of an address wants."""

    def unrouted(self, address: str, run: Run) -> int:
        """Send copies to the address' dead-letter address; returns the ticket."""


class Shared:
    """See the module text; `pages`, `letters` and `judge` are set once they are made."""

    __slots__ = (
        "branches",
        "busy",
        "clock",
        "disk",
        "dispatch",
        "duplicates",
        "holds",
        "judge",
        "letters",
        "load",
        "on_demand",
        "pages",
        "room",
        "store",
    )

    pages: PageMode
    letters: Letters
    judge: Judge

    def __init__(
        self,
        store: Store,
        *,
        branches: Branches,
        on_demand: OnDemand,
        pressure: Pressure,
        duplicates: Duplicates,
        clock: Clock,
        dispatch: Dispatching,
    ) -> None:
        self.store = store
        self.branches = branches
        self.on_demand = on_demand
        self.load = pressure.load
        self.room = pressure.room
        self.disk = pressure.disk
        self.busy = pressure.busy
        self.holds = pressure.holds
        self.duplicates = duplicates
        self.clock = clock
        self.dispatch = dispatch
