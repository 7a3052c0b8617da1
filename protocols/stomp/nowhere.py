"""The way to a requester that is gone: what is sent there is taken, and kept by nobody.

RabbitMQ drops such answers as well. An ERROR would end the connection of a service in 1.2 for each
client that left before it was answered.
"""

from __future__ import annotations

from gateway.model.run import TAKEN, MixedRun, Outcome, Run


class Nowhere:
    """Implements the Producer port for one name.

    Attributes:
        address: the name that nothing has.
        credited, remakes, stamps, durability: of the port.
    """

    __slots__ = ("address", "credited", "durability", "remakes", "stamps")

    def __init__(self, address: str) -> None:
        self.address = address
        self.credited = self.remakes = self.stamps = False
        self.durability = "memory"

    def send(self, run: Run) -> Outcome:
        """See the Producer port."""
        return TAKEN

    def send_mixed(self, run: MixedRun) -> Outcome:
        """See the Producer port."""
        return TAKEN

    def stamped(self, run: Run) -> Run:
        """See the Producer port."""
        return run

    def blocked(self) -> None:
        """See the Producer port: there is no limit to nothing."""

    @property
    def waits(self) -> bool:
        """See the Producer port."""
        return False

    @property
    def holds(self) -> bool:
        """See the Producer port."""
        return False

    def credit(self, most: int, size: int) -> int:
        """See the Producer port."""
        return most

    def close(self) -> None:
        """See the Producer port."""
