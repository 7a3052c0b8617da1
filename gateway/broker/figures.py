"""What the whole gateway may hold and has counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway.model.errors import Code


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the whole gateway may hold. -1: no limit."""

    global_max_size: int = 512 << 20
    global_max_messages: int = -1


@dataclass(slots=True)
class Figures:
    """Counters of the whole gateway."""

    refused: Counter[Code] = field(default_factory=Counter)
    delivered: int = 0
    lost_dead_letters: int = 0


class NoStreams:
    """Stands where no stream is configured."""

    def taps_on(self, address: str) -> Sequence[object]:
        return ()

    def durable_up_to(self, ticket: int) -> None:
        """There is nobody to tell."""
