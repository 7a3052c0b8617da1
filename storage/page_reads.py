"""Reading pages beside the reactor: one thread that reads what it is asked for, in order.

`post` runs a function on the reactor. The thread has a reader of its own, so that no file is closed
under anybody. What cannot be read is answered with its error.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from storage.errors import StorageError
from storage.pages import PageReader
from storage.record import AddRun

_NAME: Final = "page-reader"

#: What was read, or why it could not be.
Answer = AddRun | OSError | StorageError


class Fetches(Protocol):
    """Reads blocks of pages beside the reactor."""

    def fetch(
        self,
        place: tuple[int, int],
        offset: int,
        length: int,
        done: Callable[[Answer], None],
    ) -> None: ...

    def forget(self, store: int, pages: Sequence[int]) -> None: ...

    def stop(self) -> None: ...


class PageJobs:
    """What is done for one who waits for blocks, without a thread."""

    __slots__ = ("_post", "_reader")

    def __init__(self, reader: PageReader, post: Callable[[Callable[[], None]], None]) -> None:
        self._reader = reader
        self._post = post

    def read(
        self,
        place: tuple[int, int],
        offset: int,
        length: int,
        done: Callable[[Answer], None],
    ) -> None:
        """Read one block of (store, page), and post the answer."""
        assert length > 0, f"a block of {length} bytes"
        answer: Answer
        try:
            answer = self._reader.read(*place, offset, length)
        except (OSError, StorageError) as error:
            answer = error
        self._post(partial(done, answer))

    def forget(self, store: int, pages: Sequence[int]) -> None:
        """Close the files of pages that are about to go."""
        self._reader.forget(store, pages)

    def close(self) -> None:
        """Close all files."""
        self._reader.close()


class ThreadPages:
    """Implements `Fetches` with a thread; see the module text."""

    def __init__(self, reader: PageReader, post: Callable[[Callable[[], None]], None]) -> None:
        self._work = PageJobs(reader, post)
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=_NAME, daemon=True)
        self._thread.start()

    def fetch(
        self,
        place: tuple[int, int],
        offset: int,
        length: int,
        done: Callable[[Answer], None],
    ) -> None:
        """Read a block; `done` is called with the answer on the reactor."""
        self._jobs.put(partial(self._work.read, place, offset, length, done))

    def forget(self, store: int, pages: Sequence[int]) -> None:
        """Close the files of pages that are about to go."""
        self._jobs.put(partial(self._work.forget, store, list(pages)))

    def stop(self) -> None:
        """Finish what was asked for, close all files and end."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                break
            job()
        self._work.close()
