"""What holds for every stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.streams.retention import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """What holds for every stream.

    Attributes:
        retention: limits of each log.
        named: limits of the streams that have limits of their own, by their names.
        seal_after_ms: an unsealed tail is sealed at this age, so that it pins no journal file.
        volatile_after_ms: as before for what becomes visible only by sealing.
        streams_max: more taps than that are refused.
        subscriptions_max: of one stream.
    """

    retention: Limits = field(default_factory=Limits)
    named: Mapping[str, Limits] = field(default_factory=dict)
    seal_after_ms: int = 10_000
    volatile_after_ms: int = 200
    streams_max: int = 10_000
    subscriptions_max: int = 1_000

    def limits(self, name: str) -> Limits:
        """Return the limits of the stream `name`."""
        return self.named.get(name, self.retention)
