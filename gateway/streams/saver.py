"""Writing a state file while it changes: calls that come during a write share the next one.

idle ──save──> writing ──written, nobody waits──> idle
                  └──written, others wait──> writing, with what holds by then
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from gateway.streams.ports import RunBlocking


class Saver:
    """Writes one state file; calls that come while a write is under way share the next one."""

    def __init__(self, blocking: RunBlocking, write: Callable[[bytes], None]) -> None:
        self._blocking = blocking
        self._write = write
        self._busy = False
        self._waiting: list[Deferred[None]] = []
        self._encode: Callable[[], bytes] | None = None

    def save(self, encode: Callable[[], bytes]) -> Deferred[None]:
        """Write what `encode` returns when the write begins; fires when that is on the device."""
        done: Deferred[None] = Deferred()
        self._waiting.append(done)
        self._encode = encode
        if not self._busy:
            self._next()
        return done

    def _next(self) -> None:
        encode = self._encode
        if encode is None or not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        self._busy = True

        def finished(result: object) -> None:
            self._busy = False
            for done in waiting:
                if isinstance(result, Failure):
                    done.errback(result)
                else:
                    done.callback(None)
            self._next()

        self._blocking.run(self._write, encode()).addBoth(finished)
