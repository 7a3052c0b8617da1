"""A disk that hangs: told in the log while it does, and the end of the gateway when it stays so.

    writing ──WARN_SECONDS on one batch──> told, once ──FAIL_SECONDS──> fail-stop
                                            told ──the batch is done──> told that it goes on

Senders wait by themselves meanwhile. Nobody is confirmed what such a disk was given, so that
another process, or another machine, may as well take over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import structlog

WARN_SECONDS: Final = 5.0
FAIL_SECONDS: Final = 120.0

_log = structlog.get_logger()


class Journal(Protocol):
    """What is watched. `stalled` is set here: seconds that one batch has taken so far."""

    stalled: float

    @property
    def busy_with(self) -> int: ...


class StoreWatch:
    """See the module text. `look` is called about once a second."""

    def __init__(
        self, journal: Journal, seconds: Callable[[], float], fail: Callable[[str], None]
    ) -> None:
        self._journal = journal
        self._seconds = seconds
        self._fail = fail
        self._number = 0
        self._since = 0.0
        self._told = False

    def look(self) -> None:
        """See whether the writer is still with the batch of the last look."""
        journal, now = self._journal, self._seconds()
        number = journal.busy_with
        if number != self._number or not number:
            if self._told:
                _log.info("store.goes_on", batch=self._number, seconds=round(now - self._since))
            self._number, self._since, self._told = number, now, False
            journal.stalled = 0.0
            return
        journal.stalled = now - self._since
        if journal.stalled >= FAIL_SECONDS:
            self._fail(f"The disk has not taken a batch for {FAIL_SECONDS:.0f} seconds.")
        elif journal.stalled >= WARN_SECONDS and not self._told:
            self._told = True
            _log.warning("store.slow", batch=number, seconds=round(journal.stalled))
