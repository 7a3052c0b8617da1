"""A way to one address, as all that is built upon routes sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

from gateway.broker.directory.address import Address
from gateway.model.address import RoutingType
from gateway.model.errors import Refusal
from gateway.model.message import Message
from gateway.model.ports import ProducerOwner
from gateway.model.run import Outcome, Run
from gateway.queues.queue import Queue


class Way(Protocol):
    """Implemented by `Route`.

    Attributes:
        credited: what is sent came on credit that was given.
        sent: messages that were sent here.
    """

    credited: bool
    sent: int

    @property
    def target(self) -> Address: ...

    @property
    def routing(self) -> RoutingType | None: ...

    @property
    def origin(self) -> str: ...

    @property
    def is_fixed(self) -> bool:
        """Whether it leads to one queue."""

    def branch_to(
        self,
        address: Address,
        routing: RoutingType | None,
        owner: ProducerOwner | None,
        *,
        only: Queue | None = None,
    ) -> Self:
        """Return a way for copies of what is sent here; `owner` hears when it is held back."""

    def close(self) -> None: ...

    # ---- being held back

    def block(self, refusal: Refusal) -> None: ...

    def unblock(self) -> None: ...

    def blocked(self) -> Refusal | None: ...

    def credit(self, most: int, size: int) -> int: ...

    def refuse(self, refusal: Refusal, count: int, taken: int = 0, ticket: int = 0) -> Outcome:
        """Count the refusal of the last `count` messages; returns it."""

    # ---- looking

    def resolve(self) -> Refusal | None:
        """Look at the address and its bindings again; returns why there is no way any more."""

    def targets(self) -> list[Queue]:
        """Return all queues that could take a message from here."""

    def takers_of(self, message: Message, later: int = 0) -> list[Queue]:
        """Return the queues that would get this message if it came behind `later` others."""

    def routed(self, run: Run) -> Sequence[tuple[Run, list[Queue], list[Queue]]]:
        """Return (part, able, copies): one of the able gets it, and each of the others."""

    def fits(self, run: Run, ways: int) -> bool:
        """Whether a run fits, if as much is sent on so many ways at once."""

    # ---- sending

    def stamped(self, run: Run) -> Run:
        """Return the run with the time at which it came in, where the address wants that."""

    def ruled(self, run: Run) -> Run:
        """Return a run as it is now, with flags and expiry by the address' rules."""

    def send_admitted(self, run: Run) -> int:
        """Send what was admitted as a whole before; returns the ticket."""

    def store_run(self, run: Run) -> int:
        """Store what was found to fit, or what no limit holds for; returns the ticket."""

    def record_taps(self, run: Run) -> int:
        """Give a run to the taps alone; returns the ticket."""

    def give_up(self, run: Run) -> int:
        """Be done with what no queue wants; returns the ticket."""
