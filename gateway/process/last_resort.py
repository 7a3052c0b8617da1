"""The end of a gateway that cannot go on, whatever else fails on the way.

A fault of the store is told to the reactor, which says why, says good-bye and stops. Each of these
steps needs memory, a turn or a disk that answers, and the fault may be that there is none of it.
So one thread is started with the process and waits on a lock that is there. Letting it go takes
nothing that could be refused: no memory, no thread, no lock that somebody else holds.

    waiting ──arm──> counting down ──arm (sooner)──> ... ──time──> the process is gone
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Final

#: From a fault to the end: good-byes take up to 6 s of it.
FATAL_SECONDS: Final = 15.0
#: What is said where the reason itself cannot be told any more.
_NO_WORDS: Final = b"error: store-failed: The gateway cannot go on, nor say why.\n"
_STANDARD_ERROR: Final = 2


class LastResort:
    """Ends the process with a status at a time that is set; see the module text.

    Attributes:
        told: somebody has said why the process ends, so that the last resort need not.
    """

    __slots__ = ("_cause", "_deadline", "_exit", "_gate", "_now", "_status", "told")

    def __init__(
        self,
        *,
        leave: Callable[[int], object] = os._exit,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the thread; raises RuntimeError when the system gives none."""
        self.told = False
        self._exit = leave
        self._now = now
        self._deadline = 0.0
        self._status = 0
        self._cause: BaseException | None = None
        self._gate = threading.Lock()
        self._gate.acquire()
        threading.Thread(target=self._wait, name="last-resort", daemon=True).start()

    def arm(self, seconds: float, status: int, cause: BaseException | None = None) -> None:
        """Have the process end with `status` in so long at the latest; from any thread.

        A later end than the one that is set changes nothing.
        """
        try:
            deadline = self._now() + seconds
        except MemoryError:
            deadline = 1.0  # long ago
        if self._deadline and self._deadline <= deadline:
            return
        if self._cause is None:
            self._cause = cause
        self._status = status
        self._deadline = deadline
        try:
            self._gate.release()
        except RuntimeError:
            return  # it was let go before, and looks at the deadline next

    def failed(self, cause: BaseException) -> None:
        """The store has failed: the process ends soon, whoever hears of it."""
        self.arm(FATAL_SECONDS, os.EX_IOERR, cause)

    def _wait(self) -> None:
        try:
            self._gate.acquire()
            while (left := self._deadline - self._now()) > 0:
                self._gate.acquire(timeout=left)
            if not self.told:
                self._say()
        finally:
            self._exit(self._status)

    def _say(self) -> None:
        try:
            line = f"error: store-failed: The gateway cannot go on: {cause_of(self._cause)}.\n"
            os.write(_STANDARD_ERROR, line.encode("utf-8", "backslashreplace"))
        except BaseException:  # noqa: BLE001 - nothing may keep the process from its end
            os.write(_STANDARD_ERROR, _NO_WORDS)


def cause_of(error: BaseException | None) -> str:
    """Return why something failed, in words also where an exception has none."""
    if error is None:
        return "it did not stop in time"
    if isinstance(error, MemoryError):
        return "there is no memory left (RLIMIT_AS, the container's limit, or the machine's)"
    if isinstance(error, RuntimeError) and "thread" in str(error):
        return f"no thread can be started ({error}): RLIMIT_NPROC, or the container's limit of pids"
    return str(error) or type(error).__name__
