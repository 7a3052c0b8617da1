"""The bytes that a connection keeps of its peer's, counted in the budget that all share.

An unfinished frame, SENDs that wait for room, RECEIPTs that wait for the journal. It knows only
their sum.
"""

from __future__ import annotations

from gateway.model.errors import Code, Refusal
from protocols.stomp.limits import StompLimits


class Kept:
    """Those of one connection.

    Attributes:
        size: as counted last.
    """

    __slots__ = ("_limits", "size")

    def __init__(self, limits: StompLimits) -> None:
        self._limits = limits
        self.size = 0

    def count(self, size: int) -> Refusal | None:
        """Count `size` bytes from now on; returns why they are too many, when they are."""
        budget = self._limits.unfinished
        budget.held += size - self.size
        assert budget.held >= 0, "nobody gives back more than it has"
        grew = size > self.size
        self.size = size
        if not grew or budget.held <= budget.maximum or size <= self._limits.unfinished_free_bytes:
            return None
        text = (
            f"Unfinished frames of all connections, and those that wait for room, with their "
            f"headers and receipts, hold more than {budget.maximum} bytes, a quarter of "
            f"global-max-size, {size} of them this one's; try again later."
        )
        return Refusal(code=Code.MEMORY_FULL, text=text, transient=True)
