"""The journal's writer without threads: what was asked for is done, and answered, when told."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from storage.batch import Batch
from storage.journal import Journal
from storage.pages import PageWriter
from storage.segments import Segments
from storage.writer import DiskWork


class TurnWriter:
    """Implements `storage.writing.Writer`; the real work in the real order, one step at a time.

    `jobs` wait for `step`, `answers` for `answer`: between the two lies what a thread would do.
    """

    def __init__(
        self,
        journal: Journal,
        segments: Segments,
        segment_bytes: int,
        *,
        pages: PageWriter | None = None,
    ) -> None:
        self.jobs: deque[Callable[[], None]] = deque()
        self.answers: deque[Callable[[], None]] = deque()
        self.work = DiskWork(journal, segments, self._post, segment_bytes, pages=pages)
        self._journal = journal
        self._segment = -1
        self._opening: list[Callable[[], None]] = []

    def _post(self, answer: Callable[[], None]) -> None:
        self.answers.append(answer)

    def write(self, batch: Batch) -> None:
        job = partial(self.work.write, batch, self._journal.rotation.segment_size(batch))
        if batch.segment != self._segment:
            self._segment = batch.segment
            self._opening.append(job)
        self.jobs.append(job)

    def delete(self, segments: Sequence[int]) -> None:
        self.jobs.append(partial(self.work.delete, list(segments)))

    def read(self, segment: int, offset: int) -> None:
        self.jobs.append(partial(self.work.read, segment, offset))

    def drop_pages(self, store: int, pages: Sequence[int]) -> None:
        self.jobs.append(partial(self.work.drop_pages, store, list(pages)))

    def stop(self, done: Callable[[], None]) -> None:
        self.jobs.append(partial(self.work.close, done))

    def step(self) -> bool:
        """Do the next job; returns whether there was one."""
        if self.jobs:
            self.jobs.popleft()()
            return True
        return False

    def answer(self) -> bool:
        """Give the next answer; returns whether there was one."""
        if self.answers:
            self.answers.popleft()()
            return True
        return False

    def make_spare(self) -> None:
        """What the second thread does; in the middle of it the first one does its next job."""
        if self.work.wants_spare:
            self.work.make_spare(self._meanwhile)

    def _meanwhile(self) -> bool:
        # A job that needs a file would wait for this one, as the thread does.
        if self.jobs and self.jobs[0] not in self._opening:
            self.step()
        return True

    def run(self) -> None:
        """Do and answer all that there is."""
        while self.step() or self.answer():
            pass

    @property
    def idle(self) -> bool:
        return not self.jobs and not self.answers
