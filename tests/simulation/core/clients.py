"""Who sends and takes in the simulated core: as they are told, and the ledger hears of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.model.message import Message
from gateway.model.ports import Subscription
from tests.simulation.model import ViolationError

if TYPE_CHECKING:
    from tests.simulation.core.world import CoreWorld


class Sender:
    """The owner of a producer."""

    def producer_unblocked(self) -> None:
        """It sends whenever it is told to."""

    def producer_blocked(self, refusal: object) -> None:
        """What it sends all the same is taken."""

    def producer_refused(self, refusal: object) -> None:
        """Nobody is judged in here: the simulated core has no permissions."""


class Taker:
    """A consumer; `held` is what it has and did not settle, `bound` what a transaction settles."""

    def __init__(self, world: CoreWorld, queue: str, selector: str) -> None:
        self.world = world
        self.queue = queue
        self.left = 0
        self.held: list[Message] = []
        self.bound: list[Message] = []
        self.barred: set[bytes] = set()
        self.wants: Callable[[bytes], bool] = wanted(selector)
        self.selector = selector
        self.hold: Subscription
        self.closed = False
        self.draining = False

    def room(self) -> int:
        return self.left

    def deliver(self, messages: list[Message], any_flags: int) -> None:
        if len(messages) > self.left or not messages:
            raise ViolationError(f"{len(messages)} messages for room of {self.left}")
        if any(m.flags & ~any_flags for m in messages):
            raise ViolationError("a message has flags that its run does not have")
        self.left -= len(messages)
        self.held += messages
        self.world.delivered(self, messages)

    def exhausted(self) -> None:
        """All that is for it may have come: a drain ends if so."""
        if self.draining:
            self._look_on()

    def drain(self) -> None:
        """Take at once what there is; `draining` until that is known to be all."""
        self.hold.dispatch_now()
        self._look_on()

    def _look_on(self) -> None:
        self.draining = self.left > 0 and self.hold.keeps_searching()
        if not (self.draining or self.selector or self.closed):
            self.world.check_taker(self, stored=True)

    def removed(self, refusal: object) -> None:
        self.close()

    def take_out(self, count: int) -> list[Message]:
        """Return some of what it holds, for a settlement."""
        chosen = self.held[:count]
        del self.held[:count]
        return chosen

    def close(self) -> None:
        """Give back what it holds, and leave."""
        if self.closed:
            return
        self.closed = True
        self.world.drop_work(self)
        if self.held:
            messages, self.held = self.held, []
            self.world.release(self, messages)
        self.hold.close()
        self.world.takers.remove(self)


def wanted(selector: str) -> Callable[[bytes], bool]:
    """Return what a selector of this simulation lets pass, by payload."""
    if not selector:
        return lambda key: True
    kind = selector.split("'")[1].encode()
    return lambda key: key.split(b":", 2)[1] == kind
