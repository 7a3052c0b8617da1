"""Waits of the reactor: when events follow close upon each other, look again before sleeping.

A client with one message in flight answers soon after it was answered. Being put to sleep meanwhile
and woken on another core is most of such a round trip. So a wait begins with looking, without
sleeping, for `SPIN_SECONDS` - but only

* if the wait before it was short: a gateway with little to do sleeps at once, and uses no more of
  a core than without this;
* if no batch is being written: the thread that writes needs the interpreter when the disk is done.

Where the reactor never sleeps, that thread would not come in: each poll and each socket call gives
the interpreter away for less time than a thread needs to wake, and takes it back. So while a batch
is being written the reactor steps aside for a moment, once in `ASIDE_AFTER_SECONDS`.

What can be read and nothing else is read here, by those who can (`direct`): on its way through the
reactor an event costs about as much as a small message does. The reactor gets the other events.

It stands in front of the reactor's epoll object and knows nothing else of the reactor.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Mapping
from typing import Final, Protocol

#: Long enough for a fast client to answer, short enough not to be missed by anybody else.
SPIN_SECONDS: Final = 60e-6
#: A wait that took longer than this says that the next one will, too.
SHORT_SECONDS: Final = 200e-6

#: So long the reactor goes on beside a writer that may be waiting for the interpreter.
ASIDE_AFTER_SECONDS: Final = 0.003
#: Asked of the clock; a thread wakes in about twice that.
ASIDE_SECONDS: Final = 20e-6

#: The event mask of what can be read, and nothing else is to be done about it.
_READABLE: Final = getattr(select, "EPOLLIN", 1)

Events = list[tuple[int, int]]


class Poller(Protocol):
    """What `select.epoll` has."""

    def poll(self, timeout: float = -1, maxevents: int = -1, /) -> Events: ...

    def register(self, fd: int, eventmask: int, /) -> None: ...

    def modify(self, fd: int, eventmask: int, /) -> None: ...

    def unregister(self, fd: int, /) -> None: ...

    def close(self) -> None: ...

    def fileno(self) -> int: ...


class ShortWaits:
    """An epoll object that looks for a while before it sleeps, and has read what it can."""

    def __init__(
        self,
        poller: Poller,
        *,
        clock: Callable[[], float],
        may_spin: Callable[[], bool],
        direct: Mapping[int, Callable[[], bool]],
        sleep: Callable[[float], None],
    ) -> None:
        """Stand before `poller`; `clock` counts seconds, `may_spin`: no batch is being written.

        `direct` has, by descriptor, who reads without the reactor: True when that was all.
        """
        self._poll = poller.poll
        self._direct = direct
        self._clock = clock
        self._may_spin = may_spin
        self._sleep = sleep
        self._short = False
        self._slept_at = clock()
        self.register = poller.register
        self.modify = poller.modify
        self.unregister = poller.unregister
        self.close = poller.close
        self.fileno = poller.fileno

    def poll(self, timeout: float = -1, maxevents: int = -1) -> Events:
        """See `select.epoll.poll`: seconds, -1 for ever; the events that nobody took."""
        readers = self._direct.get
        left = []
        for event in self._wait(timeout, maxevents):
            fd, mask = event
            if mask == _READABLE:
                reader = readers(fd)
                if reader is not None and reader():
                    continue
            left.append(event)
        return left

    def _wait(self, timeout: float, maxevents: int) -> Events:
        poll = self._poll
        clock = self._clock
        begun = clock()
        if begun - self._slept_at > ASIDE_AFTER_SECONDS and not self._may_spin():
            self._sleep(ASIDE_SECONDS)
            self._slept_at = clock()
        if not timeout:
            return poll(0, maxevents)
        if self._short and self._may_spin():
            until = begun + SPIN_SECONDS
            while True:
                events = poll(0, maxevents)
                if events:
                    return events
                if clock() >= until:
                    break
        events = poll(timeout, maxevents)
        now = clock()
        self._short = now - begun < SHORT_SECONDS
        if now - begun > ASIDE_SECONDS:
            self._slept_at = now
        return events


def shorten_waits(
    reactor: object,
    *,
    may_spin: Callable[[], bool],
    clock: Callable[[], float],
    direct: Mapping[int, Callable[[], bool]],
    sleep: Callable[[float], None],
) -> bool:
    """Put `ShortWaits` before the epoll object of a reactor; False where it has none."""
    poller = getattr(reactor, "_poller", None)
    if poller is None or not hasattr(poller, "poll") or isinstance(poller, ShortWaits):
        return False
    waits = ShortWaits(poller, clock=clock, may_spin=may_spin, direct=direct, sleep=sleep)
    setattr(reactor, "_poller", waits)  # noqa: B010
    return True
