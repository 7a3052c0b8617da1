"""What the broker needs of streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from gateway.model.errors import Code, RefusedError
from gateway.model.grants import Grant
from gateway.model.message import Message
from gateway.model.ports import Consumer, Subscription
from gateway.model.run import Run
from gateway.model.stream_start import StreamStart

Matches: TypeAlias = Callable[[Message], bool]


class Tap(Protocol):
    """A stream as the broker feeds it."""

    stream_id: int

    def record(self, run: Run, now_ms: int) -> int:
        """Take a run; returns the offset of its first message."""

    def recorded(self, base: int, count: int, ticket: int) -> None:
        """The run at `base` becomes durable with `ticket`."""

    def durable_up_to(self, ticket: int) -> None: ...


class Granted(Subscription, Protocol):
    """A subscription that gives a grant back at its end."""

    grant: Grant | None


class Streams(Protocol):
    """The taps."""

    def taps_on(self, address: str) -> Sequence[Tap]: ...

    def durable_up_to(self, ticket: int) -> None:
        """Pass the ticket on to all taps."""

    def replay(
        self, address: str, consumer: Consumer, start: StreamStart, matches: Matches | None
    ) -> Granted:
        """Show a consumer what the stream of an address keeps. Raises RefusedError (not-found).

        It is shown what `matches`; all where that is None.
        """


class NoStreams:
    """Stands where no stream is configured."""

    def taps_on(self, address: str) -> Sequence[Tap]:
        return ()

    def durable_up_to(self, ticket: int) -> None:
        """There is no stream to tell."""

    def replay(
        self, address: str, consumer: Consumer, start: StreamStart, matches: Matches | None
    ) -> Granted:
        raise RefusedError.of(Code.NOT_FOUND, f"No stream taps the address {address!r}.")
