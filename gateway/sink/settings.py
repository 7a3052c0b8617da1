"""The bounds of the sink, as the table `[sink]` says them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """See `gateway.config.tree.SinkConfig`: sizes in bytes, times in ms.

    Attributes:
        origins: key path -> where it was written.
    """

    stage_max_size: int = 1 << 30
    staged_max_size: int = 4 << 30
    stages_max: int = 10_000
    stage_expiry: int = 300_000
    producers_max: int = 10_000
    producer_expiry: int = 30 * 86_400_000
    max_message_size: int = 16 << 20
    origins: Mapping[str, str] = field(default_factory=dict)

    def told(self, key: str, value: int) -> str:
        """Return a limit for people: key, value and where it was set."""
        return f"sink.{key} is {value}, set {self.origins.get(f'sink.{key}', 'by default')}"
