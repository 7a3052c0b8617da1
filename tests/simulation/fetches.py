"""Reading pages without a thread: what was asked for is read, and answered, when told."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from storage.page_reads import Answer, PageJobs
from storage.pages import PageReader


class TurnFetches:
    """Implements `Fetches` of the persistence; the real work, one step at a time."""

    def __init__(self, reader: PageReader) -> None:
        self.jobs: deque[Callable[[], None]] = deque()
        self.answers: deque[Callable[[], None]] = deque()
        self._work = PageJobs(reader, self.answers.append)

    def fetch(
        self,
        place: tuple[int, int],
        offset: int,
        length: int,
        done: Callable[[Answer], None],
    ) -> None:
        self.jobs.append(partial(self._work.read, place, offset, length, done))

    def forget(self, store: int, pages: Sequence[int]) -> None:
        self.jobs.append(partial(self._work.forget, store, list(pages)))

    def stop(self) -> None:
        while self.step():
            pass
        self._work.close()

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
