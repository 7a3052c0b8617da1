"""What a connection is looked at for, now and then: what does not end, who settles nothing.

A peer has begun a frame, or a delivery on a link, and does not end it: each must be whole within
`unfinished_seconds`, plus a second for each `unfinished_bytes_per_second` of it that have come.
Whoever sends at that pace takes as long as he likes. A frame's bytes count among those of all
connections while they wait; those of deliveries are counted by their links.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from gateway.model.peers import Cause
from protocols.amqp.conditions import RESOURCE_LIMIT, ConnectionFaultError
from protocols.amqp.incoming import IncomingLink
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.peer import AmqpPeer
from protocols.amqp.performatives import Error
from protocols.amqp.session import AmqpSession
from protocols.stuck import Stuck

#: What a part of a frame costs beside its bytes.
_PART_BYTES: Final = 64


class WatchedConnection(Protocol):
    """A connection, as its watch sees it; `retick` asks for another look at the time."""

    retick: bool

    @property
    def limits(self) -> AmqpLimits:
        """What it may ask for."""

    @property
    def seen(self) -> AmqpPeer:
        """What an operator sees of it."""

    @property
    def sessions(self) -> Mapping[int, AmqpSession]:
        """Those that are begun, by channel."""

    def fail(self, error: Error) -> None:
        """Close it with a condition."""


class Watch:
    """The watch over one connection.

    Attributes:
        since: when the frame began that is not complete; None when there is none.
        held: bytes that are kept of it, as they were counted last.
    """

    __slots__ = ("_armed", "_connection", "_limits", "_stuck", "held", "since")

    def __init__(self, connection: WatchedConnection) -> None:
        self._connection = connection
        self._limits = connection.limits
        self._stuck = Stuck(connection.limits.stuck_seconds)
        self.held = 0
        self._armed = False  # a look is due
        self.since: float | None = None

    def begin(self, now: float) -> None:
        """A frame has begun and is not complete."""
        self.since = now
        self.arm()

    def arm(self) -> None:
        """Have it looked at what has begun."""
        if not self._armed:
            self._armed = self._connection.retick = True

    def deadlines(self, now: float) -> list[float]:
        """Return when to look again."""
        steps = [] if self._stuck.step is None else [now + self._stuck.step]
        if self._armed:
            steps.append(now + self._limits.unfinished_seconds)
        return steps

    def count(self, size: int, parts: int) -> None:
        """Count what is kept of a frame. Raises ConnectionFaultError where all keep too much."""
        held = size + _PART_BYTES * parts if parts else 0
        grown = held - self.held
        if not grown:
            return
        self.held = held
        limits = self._limits
        shared = limits.unfinished
        shared.held += grown
        if grown > 0 and shared.held > shared.maximum and held > limits.unfinished_free_bytes:
            raise ConnectionFaultError(
                RESOURCE_LIMIT,
                f"Unfinished frames and deliveries of all connections hold more than "
                f"{shared.maximum} bytes, a quarter of global-max-size; try again later.",
            )

    def look(self, now: float, size: int) -> bool:
        """Detach links on which something does not end, or nothing is settled.

        Returns False when the connection has ended: a frame, of which `size` bytes have come, is
        too slow.
        """
        connection = self._connection
        if self.since is not None:
            error = self._late("A frame", now - self.since, size)
            if error is not None:
                connection.seen.end(Cause.TIMED_OUT, error.description or "")
                connection.fail(error)
                return False
        self._armed = self.since is not None
        for session in connection.sessions.values():
            for link in list(session.links.values()):
                if not isinstance(link, IncomingLink) or link.in_delivery is None:
                    continue
                self._armed = True
                if link.began is None:
                    link.began = now
                what = f"A delivery on link {link.name!r}"
                error = self._late(what, now - link.began, link.parts_bytes)
                if error is not None:
                    session.detach(link, error)
        if self._stuck.step is not None:
            seen = connection.seen
            for one in self._stuck.look(seen.consumers(), now):
                seen.end_consumer(one.number, self._stuck.refusal(one))
        return True

    def begin_anew(self, now: float) -> None:
        """The peer was not read from: what is unfinished has all its time again."""
        if self.since is not None:
            self.since = now
        for session in self._connection.sessions.values():
            for link in session.links.values():
                if isinstance(link, IncomingLink):
                    link.began = None

    def _late(self, what: str, took: float, size: int) -> Error | None:
        limits = self._limits
        allowed = limits.unfinished_seconds + size / limits.unfinished_bytes_per_second
        if took < allowed:
            return None
        text = (
            f"{what}, of {size} bytes so far, is not complete after {allowed:.0f} s; the limit is "
            f"{limits.unfinished_seconds:g} s (unfinished-timeout) and 1 s for every "
            f"{limits.unfinished_bytes_per_second} bytes (unfinished-min-rate)."
        )
        return Error(condition=RESOURCE_LIMIT, description=text)
