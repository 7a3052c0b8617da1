"""How long a batch that nobody waits for may stay open, so that consumers overtake the disk.

    open ──nobody waits, and something of it was just handed out──> lingers ──store-linger──> fixed
                                                                   lingers ──somebody waits──> fixed

It is the whole batch that stays: were single messages put off, a crash could leave what was sent
later and lose what was sent before. A sender that waits is never put off, since whoever waits for
anything ends it for all.
"""

from __future__ import annotations

from collections.abc import Callable

from storage.batch import Batch
from storage.batch_state import Kind


class Linger:
    """See the module text; a function for `Journal.lingers`.

    Figures (read only): `batches` that lingered.
    """

    def __init__(
        self,
        seconds: float,
        *,
        awaited: Callable[[], bool],
        delivered: Callable[[], int],
        now: Callable[[], float],
        later: Callable[[float, Callable[[], None]], object],
        flush: Callable[[], None],
    ) -> None:
        """`awaited`: whether somebody waits for the disk; `delivered`: messages handed out."""
        self.batches = 0
        self._seconds = seconds
        self._awaited = awaited
        self._count = delivered
        self._now = now
        self._later = later
        self._flush = flush
        self._number = 0  # of the batch that lingers, or did
        self._until = 0.0
        self._delivered = 0

    def __call__(self, batch: Batch) -> bool:
        """Whether the open batch is to stay open."""
        before, self._delivered = self._delivered, self._count()
        plain = batch.adds and not batch.notes and not batch.pages
        if self._awaited() or not plain or batch.kind is not Kind.RECORDS:
            return False
        if batch.number == self._number:
            return self._now() < self._until
        if self._delivered == before:
            return False
        self._number = batch.number
        self._until = self._now() + self._seconds
        self.batches += 1
        self._later(self._seconds, self._flush)
        return True
