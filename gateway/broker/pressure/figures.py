"""What the gateway has counted since its start."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from gateway.model.errors import Code


@dataclass(slots=True)
class Figures:
    """Counters of the whole gateway, in messages.

    Attributes:
        refused: by the reason why they were not taken.
        delivered: handed out to consumers and browsers.
        lost_dead_letters: that had nowhere to go.
    """

    refused: Counter[Code] = field(default_factory=Counter)
    delivered: int = 0
    lost_dead_letters: int = 0
