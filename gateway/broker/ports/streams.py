"""What the broker needs of streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gateway.model.run import Run


class Tap(Protocol):
    """A stream as the broker feeds it."""

    stream_id: int

    def record(self, run: Run, now_ms: int) -> int:
        """Take a run; returns the offset of its first message."""

    def recorded(self, base: int, count: int, ticket: int) -> None:
        """The run at `base` becomes durable with `ticket`."""

    def durable_up_to(self, ticket: int) -> None: ...


class Streams(Protocol):
    """The taps."""

    def taps_on(self, address: str) -> Sequence[Tap]: ...

    def durable_up_to(self, ticket: int) -> None:
        """Pass the ticket on to all taps."""


class NoStreams:
    """Stands where no stream is configured."""

    def taps_on(self, address: str) -> Sequence[Tap]:
        return ()

    def durable_up_to(self, ticket: int) -> None:
        """There is no stream to tell."""
