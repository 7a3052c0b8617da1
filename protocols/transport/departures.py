"""Clients that leave while nobody reads from them: a descriptor nobody reads tells of no end.

    reading stops ──watch──> looked at each second ──its peer has ended its side──> grace ──> gone
    reading goes on, connection lost ──forget──> (not looked at)

The reactor sees that a peer has left when it reads to the end, which it does not while reading is
stopped, and not at once behind bytes that wait. The kernel knows it all the same (`POLLRDHUP`), for
TCP and UNIX sockets, and says nothing of a peer that is there and waits. A peer that ends with TLS'
close_notify alone has not left. Where a system cannot tell (it is Linux' own), nothing is watched,
and such a connection goes once it is read from again.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Any, Final, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

#: How often what is watched is looked at.
LOOK_SECONDS: Final = 1.0
#: How long what a peer sent before it left may still be read, should reading go on.
GRACE_SECONDS: Final = 5.0

_ENDED: Final[int] = getattr(select, "POLLRDHUP", 0)


class Poll(Protocol):
    """What `select.poll` makes."""

    def register(self, fd: int, eventmask: int, /) -> object: ...

    def unregister(self, fd: int, /) -> object: ...

    def poll(self, timeout: float, /) -> list[tuple[int, int]]: ...


def descriptor_of(transport: Any) -> int:  # noqa: ANN401 - any transport of Twisted's
    """Return the descriptor of a transport's socket, -1 where it has none of its own."""
    try:
        found: int = transport.getHandle().fileno()
    except (AttributeError, OSError):
        return -1
    return found


class Departures:
    """Looks after the connections of one reactor that are not read from; for its thread only."""

    __slots__ = ("_call", "_clock", "_ended", "_gone", "_poll")

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._poll: Poll | None = select.poll() if _ENDED else None
        self._gone: dict[int, Callable[[], None]] = {}
        self._ended: dict[int, float] = {}  # when it was first seen
        self._call: IDelayedCall | None = None

    def watch(self, fd: int, gone: Callable[[], None]) -> None:
        """Call `gone` once when the peer has left for longer than the grace; -1 is no socket."""
        if self._poll is None or fd < 0:
            return
        self._poll.register(fd, _ENDED | select.POLLHUP | select.POLLERR)
        self._gone[fd] = gone
        self._ended.pop(fd, None)
        if self._call is None:
            self._call = self._clock.callLater(LOOK_SECONDS, self._look)

    def forget(self, fd: int) -> None:
        """Watch it no more; before its number can be another's."""
        # The call that may be due finds nothing: reading that stops and goes on with each message
        # makes no call each time.
        if self._gone.pop(fd, None) is not None:
            self._ended.pop(fd, None)
            if self._poll is not None:
                self._poll.unregister(fd)

    def _look(self) -> None:
        self._call = None
        if not self._gone or self._poll is None:
            return
        now = self._clock.seconds()
        for fd, _ in self._poll.poll(0):
            gone = self._gone.get(fd)
            if gone is not None and now - self._ended.setdefault(fd, now) >= GRACE_SECONDS:
                self.forget(fd)
                gone()
        if self._gone and self._call is None:
            self._call = self._clock.callLater(LOOK_SECONDS, self._look)
