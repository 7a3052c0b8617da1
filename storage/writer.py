"""The writer's thread: encodes, writes and syncs batches while the reactor goes on.

The only place of the journal that knows threads. One bounded queue in, one callable out (`post`
runs a function on the journal's thread).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Final

from storage.batch import Batch
from storage.journal import Journal
from storage.segments import Segments

_NAME: Final = "journal-writer"


class ThreadWriter:
    """Implements `storage.journal.Writer` with one thread."""

    def __init__(
        self,
        journal: Journal,
        segments: Segments,
        post: Callable[[Callable[[], None]], None],
        segment_bytes: int,
    ) -> None:
        self._journal = journal
        self._segments = segments
        self._post = post
        self._segment_bytes = segment_bytes
        self._failed = False
        # At most one write, one delete and one stop wait at a time: the journal hands over one
        # batch after the other.
        self._jobs: queue.SimpleQueue[Callable[[], bool]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=_NAME, daemon=True)
        self._thread.start()

    def write(self, batch: Batch) -> None:
        size = self._journal.segment_size(batch)
        self._jobs.put(lambda: self._write(batch, size))

    def delete(self, segments: Sequence[int]) -> None:
        doomed = list(segments)
        self._jobs.put(lambda: self._delete(doomed))

    def stop(self, done: Callable[[], None]) -> None:
        self._jobs.put(lambda: self._stop(done))

    def _run(self) -> None:
        jobs = self._jobs
        while jobs.get()():
            pass

    def _write(self, batch: Batch, size: int) -> bool:
        if self._failed:
            return True
        try:
            written = self._segments.write(
                batch.encode(),
                number=batch.number,
                synced=batch.synced,
                segment=batch.segment,
                size=size,
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, the store has failed
            return self._fail(error)
        self._post(lambda: self._journal.written(batch, written))
        try:
            # While nothing waits: the next segment is made before it is needed.
            if self._jobs.empty():
                self._segments.make_spare(self._segment_bytes)
        except OSError:
            # The disk may be nearly full. The next segment is tried again when it is needed, and
            # fails loudly then.
            return True
        return True

    def _delete(self, segments: list[int]) -> bool:
        # After a failure nothing is deleted: what replaces it may not have been written.
        if self._failed:
            return True
        try:
            self._segments.delete(segments, self._segment_bytes)
        except OSError as error:
            return self._fail(error)
        return True

    def _fail(self, error: Exception) -> bool:
        self._failed = True
        self._post(lambda: self._journal.failed(error))
        return True

    def _stop(self, done: Callable[[], None]) -> bool:
        self._segments.close()
        self._post(done)
        return False
