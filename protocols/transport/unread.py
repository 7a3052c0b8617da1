"""Peers that do not read: what waits for a socket that takes nothing, and what may wait there.

    output waits ──begin──> looked at each second ──nothing taken for `seconds`──> stuck, cut
    all of it is written ──end──> (not looked at)

Whoever reads slowly is never stuck; what he has the gateway hold is bounded by `Output`. A socket
takes bytes as long as its peer, or the systems between, make room.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from gateway.model.budget import Budget

#: How often those with output that waits are looked at.
LOOK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a connection may have the gateway hold of what it does not read.

    Attributes:
        bytes_max: answers that wait behind deliveries; above it nothing is read of the peer.
        free_bytes: what a connection may hold of that though `shared` is used up.
        seconds: for which its socket may take nothing; 0 for ever.
        shared: all that waits to be sent, of all connections of an acceptor.
    """

    bytes_max: int = 1 << 20
    free_bytes: int = 16 << 10
    seconds: float = 60.0
    shared: Budget = field(default_factory=lambda: Budget(128 << 20))

    def too_much(self, size: int) -> bool:
        """Return whether so many bytes of answers are too many for one connection."""
        return size > self.bytes_max or self.short_of(size)

    def short_of(self, size: int) -> bool:
        """Return whether all connections hold too much, and one of so many bytes has its part."""
        return size > self.free_bytes and self.shared.held > self.shared.maximum


class Unsent:
    """What one connection has to send and its socket does not take.

    Attributes:
        output: its bounds.
        size: bytes that its transport was not given yet.
    """

    __slots__ = ("_answers", "_count", "_given", "_kept", "output", "size")

    def __init__(self, output: Output) -> None:
        self.output = output
        self.size = 0
        self._kept: list[bytes] = []
        self._answers = 0  # bytes that came while there was no room for deliveries
        self._count = 0
        self._given = 0  # bytes of the last piece

    @property
    def held(self) -> int:
        """Bytes that wait, those that its transport was given with them; it may have sent some."""
        return self.size + self._given

    def keep(self, data: bytes) -> None:
        """Keep what the socket does not take."""
        self._kept.append(data)
        self.size += len(data)
        self.output.shared.held += len(data)

    def room(self, size_max: int) -> bool:
        """Return whether more deliveries may follow, up to so many bytes of output."""
        return self.size <= size_max and not self.output.short_of(self.size)

    def answered(self, size: int) -> bool:
        """Count an answer that is kept; returns whether they are too many."""
        self._answers += size
        return self.output.too_much(self._answers)

    def following(self) -> bytes:
        """Return the next piece for the transport, which has sent the last one; none at the end."""
        data = b"".join(self._kept)
        self._kept.clear()
        self.output.shared.held -= self._given
        self.size = 0
        self._given = len(data)
        if data:
            self._count += 1
        else:
            self._answers = 0
        return data

    def forget(self) -> None:
        """Drop what the transport was not given."""
        self.output.shared.held -= self.size
        self._kept.clear()
        self.size = 0

    def lost(self) -> None:
        """Drop everything: there is no socket any more."""
        self.forget()
        self.output.shared.held -= self._given
        self._given = 0

    def taken(self, transport: object) -> tuple[int, int]:
        """Return what changes whenever the transport sends: what is left of which piece."""
        left = len(getattr(transport, "dataBuffer", b"")) - getattr(transport, "offset", 0)
        return self._count, left

    @property
    def text(self) -> str:
        """Why the peer is cut when it reads nothing."""
        return (
            f"it has read nothing for {self.output.seconds:g} s (unread-timeout), while up to "
            f"{self.held} bytes waited for it"
        )


class Waiting(Protocol):
    """A connection that has output which waits."""

    @property
    def patience(self) -> float:
        """For how many seconds its socket may take nothing; 0 for ever."""

    def taken(self) -> Hashable:
        """Return what changes whenever the socket takes bytes."""

    def stuck(self) -> None:
        """The socket has taken nothing for all its patience."""


class Backlogs:
    """Looks after the connections of one reactor whose output waits; for its thread only."""

    __slots__ = ("_call", "_clock", "_known", "_looked")

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._looked = 0.0
        # What had been taken, and for how long that has been all; None before it was looked at.
        self._known: dict[Waiting, tuple[Hashable, float] | None] = {}
        self._call: IDelayedCall | None = None

    def begin(self, one: Waiting) -> None:
        """Look after this one until `end`."""
        self._known[one] = None
        if self._call is None:
            self._call = self._clock.callLater(LOOK_SECONDS, self._look)

    def end(self, one: Waiting) -> None:
        """Nothing waits there any more, or it is gone."""
        # The call that may be due finds nothing: what fills up and drains again makes no call
        # each time.
        self._known.pop(one, None)

    def _look(self) -> None:
        self._call = None
        now = float(self._clock.seconds())
        # A process that stood still has not waited for anybody.
        passed = min(now - self._looked, 2 * LOOK_SECONDS)
        self._looked = now
        for one, known in list(self._known.items()):
            taken = one.taken()
            idle = known[1] + passed if known is not None and known[0] == taken else 0.0
            self._known[one] = (taken, idle)
            if one.patience and idle >= one.patience:
                self.end(one)
                one.stuck()
        if self._known and self._call is None:
            self._call = self._clock.callLater(LOOK_SECONDS, self._look)
