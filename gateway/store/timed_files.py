"""The real file system, with the syncs of the journal timed."""

from __future__ import annotations

from collections.abc import Callable

from gateway.model.histogram import Histogram
from storage.files import RealFiles


class TimedFiles(RealFiles):
    """Counts in a histogram how long each `fdatasync` took; runs on the writer's thread."""

    def __init__(self, took: Histogram, now: Callable[[], float]) -> None:
        super().__init__()
        self.took = took
        self._now = now

    def fdatasync(self, fd: int) -> None:
        begun = self._now()
        super().fdatasync(fd)
        self.took.observe(self._now() - begun)
