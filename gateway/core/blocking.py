"""Threads for what blocks: streams are read and sealed on them, stages written and read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool

from gateway.process.threads import started_pool

#: Reading streams takes turns on these; more would take cores from the messages.
BLOCKING_THREADS: Final = 2

Result = TypeVar("Result")
#: One object that implements several of Twisted's interfaces; no type says so.
Reactor = Any


class Threads:
    """Runs what blocks (the `RunBlocking` ports) on threads of its own."""

    def __init__(
        self, reactor: Reactor, count: int = BLOCKING_THREADS, name: str = "blocking"
    ) -> None:
        self._reactor = reactor
        self._pool = started_pool(count, name)
        self._pool.start()

    def run(self, function: Callable[..., Result], *args: object) -> Deferred[Result]:
        """Run `function` on a thread; the answer comes on the reactor."""
        return deferToThreadPool(self._reactor, self._pool, function, *args)

    def stop(self) -> None:
        """End the threads when they are done with what they have."""
        self._pool.stop()
