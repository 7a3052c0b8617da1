"""The writer's threads: batches are written and synced while the reactor goes on.

The only place of the journal that knows threads. `DiskWork` is what is done, without a thread;
`ThreadWriter` does it on two: one writes, one makes the next segment's file ahead, so that a batch
waits for a file only when none is ready. `post` runs a function on the journal's thread.
"""

from __future__ import annotations

import errno
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from storage.batch import Batch
from storage.journal import Journal
from storage.pages import PageWriter
from storage.segments import Segments

_WRITER: Final = "journal-writer"
_MAKER: Final = "journal-spares"
#: Batches of so many bytes are encoded before the writer gets them. It would do so while sockets
#: are written to, each of which calls gives the interpreter away, and then waits until the writer
#: is through: with 100 senders a tenth of the reactor's time. Larger ones are worth it.
ENCODED_AT_ONCE: Final = 64 << 10
#: Making ahead may find no room: the next segment is tried again, and loudly, when it is needed.
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class DiskWork:
    """What the writer does on the disk; each failure is told once, and ends all work but `close`.

    After a failure nothing is written, since nothing more may be confirmed, and nothing deleted,
    since what replaces it may not have been written.
    """

    __slots__ = (
        "_alarm", "_journal", "_pages", "_post", "_segment_bytes", "_segments",
        "failed", "may_take", "refused",
    )  # fmt: skip

    def __init__(
        self,
        journal: Journal,
        segments: Segments,
        post: Callable[[Callable[[], None]], None],
        segment_bytes: int,
        *,
        pages: PageWriter | None = None,
        alarm: Callable[[BaseException], None] | None = None,
    ) -> None:
        """`alarm` hears of a failure before the journal does, on whatever thread it happened.

        Posting takes memory, and that there is none may be the failure: it has to need nothing.
        """
        self._alarm = alarm
        self._journal = journal
        self._segments = segments
        self._pages = pages
        self._post = post
        self._segment_bytes = segment_bytes
        #: Whether so many bytes more would leave free what has to be; asked on the maker's thread.
        self.may_take: Callable[[int], bool] | None = None
        #: Called on the journal's thread when they would not.
        self.refused: Callable[[], None] = _nothing
        self.failed = False

    def write(self, batch: Batch, size: int, payload: bytes | None = None) -> None:
        """Write and sync a batch; `size` is its segment's, should it open one.

        `payload` is the batch encoded, if somebody has done so.
        """
        if self.failed:
            return
        try:
            paged = 0
            if batch.pages:
                assert self._pages is not None, "no place for pages"
                assert batch.written_as > 0, "the pages would name no batch"
                # First: the batch says that they exist.
                paged = self._pages.write(batch.pages)
            written = paged + self._segments.write(
                batch.encode() if payload is None else payload,
                number=batch.written_as,
                synced=batch.synced,
                segment=batch.segment,
                size=size,
                firm=batch.firm,
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, the store has failed
            self._fail(error)
            return
        self._post(lambda: self._journal.written(batch, written))

    def delete(self, segments: Sequence[int]) -> None:
        """Delete emptied segments, oldest first."""
        if self.failed:
            return
        try:
            self._segments.delete(segments, self._segment_bytes)
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)

    def drop_pages(self, store: int, pages: Sequence[int]) -> None:
        """Delete page files."""
        if self.failed or self._pages is None:
            return
        try:
            self._pages.delete(store, pages)
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)

    def read(self, segment: int, offset: int) -> None:
        """Read part of a synced segment; a failure is the journal's to judge."""
        if self.failed:
            return
        try:
            piece = self._segments.read(segment, offset)
        except Exception as error:  # noqa: BLE001 - whatever it is, that segment stays
            reason = error
            self._post(lambda: self._journal.piece_failed(segment, reason))
        else:
            self._post(lambda: self._journal.piece_read(segment, piece))

    @property
    def wants_spare(self) -> bool:
        """Whether no segment is made ahead."""
        return not self._segments.spares_ready and not self.failed

    def make_spare(self, go_on: Callable[[], bool]) -> None:
        """Make a segment ahead of need; `go_on` is asked between slices.

        Given up when the store fails meanwhile: the disk is asked once more at most, by a call that
        was about to be made.
        """
        if self.failed or not self.wants_spare:
            return
        try:
            if self.may_take is not None and not self.may_take(self._segment_bytes):
                self._post(self.refused)
                return
            self._segments.make_spare(self._segment_bytes, lambda: go_on() and not self.failed)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                self._fail(error)
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(error)

    def close(self, done: Callable[[], None]) -> None:
        """Close the file and tell `done`, whatever happens: all that counts was synced before."""
        try:
            if self._pages is not None:
                self._pages.close()
            self._segments.close()
        except OSError as error:
            self._fail(error)
        self._post(done)

    def broken(self, error: BaseException) -> None:
        """Something else than the disk has failed: nothing is written any more."""
        self.failed = True
        if self._alarm is not None:
            self._alarm(error)

    def _fail(self, error: Exception) -> None:
        self.broken(error)
        self._post(lambda: self._journal.failed(error))


class ThreadWriter:
    """Implements `storage.writing.Writer` with a thread that writes and one that makes spares."""

    def __init__(
        self,
        journal: Journal,
        segments: Segments,
        post: Callable[[Callable[[], None]], None],
        segment_bytes: int,
        *,
        pages: PageWriter | None = None,
        alarm: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._journal = journal
        self._work = DiskWork(journal, segments, post, segment_bytes, pages=pages, alarm=alarm)
        # At most one write, delete, read and stop wait at a time: the journal hands over one batch
        # after the other.
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._orders: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._ordered = False
        self._stopping = False
        self._maker = threading.Thread(target=self._make, name=_MAKER, daemon=True)
        self._maker.start()
        self._thread = threading.Thread(target=self._run, name=_WRITER, daemon=True)
        self._thread.start()

    def ask(self, may_take: Callable[[int], bool], refused: Callable[[], None]) -> None:
        """Make no file ahead that `may_take` says no to; `refused` is told on the journal's thread.

        A file that a batch needs now is made whatever it says: what drains the disk must go on.
        """
        self._work.may_take, self._work.refused = may_take, refused

    def write(self, batch: Batch) -> None:
        assert not self._stopping, "nothing is written behind the mark of a stop"
        size = self._journal.rotation.segment_size(batch)
        payload: bytes | None = None
        if batch.bytes_bound <= ENCODED_AT_ONCE and not batch.pages:
            # What cannot be encoded is the writer's to report.
            with suppress(Exception):
                payload = batch.encode()
        self._jobs.put(lambda: self._work.write(batch, size, payload))

    def delete(self, segments: Sequence[int]) -> None:
        doomed = list(segments)
        self._jobs.put(lambda: self._work.delete(doomed))

    def drop_pages(self, store: int, pages: Sequence[int]) -> None:
        doomed = list(pages)
        self._jobs.put(lambda: self._work.drop_pages(store, doomed))

    def read(self, segment: int, offset: int) -> None:
        self._jobs.put(lambda: self._work.read(segment, offset))

    def stop(self, done: Callable[[], None]) -> None:
        assert not self._stopping, "it stops already"
        self._jobs.put(lambda: self._stop(done))

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._jobs.get()()
                if self._work.wants_spare and not self._ordered:
                    self._ordered = True
                    self._orders.put(True)
            except BaseException as error:  # noqa: BLE001 - even an answer may find no memory
                self._work.broken(error)

    def _make(self) -> None:
        try:
            while self._orders.get():
                self._work.make_spare(lambda: not self._stopping)
                self._ordered = False
        except BaseException as error:  # noqa: BLE001 - as above
            self._work.broken(error)

    def _stop(self, done: Callable[[], None]) -> None:
        self._stopping = True
        self._orders.put(False)
        self._maker.join()
        self._work.close(done)


def _nothing() -> None:
    """Stand for whoever does not want to know."""
