"""From the tails to the logs, and out of them again: sealing and retention.

    tail ──old or large──> taken ──written on the worker thread──> in the log, the journal lets go
                             └──it cannot be written──> told; the tail stays as it was
    in the log ──retention──> given up, told when somebody wanted it ──unlinked there──> gone

What changes a log is done on the worker thread, one at a time for each log; what is decided is
decided on the reactor thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from gateway.streams import retention, rows
from gateway.streams.ports import RunBlocking, StreamsOwner
from gateway.streams.retention import Limits
from gateway.streams.settings import StreamSettings
from gateway.streams.stream import Stream, Taken
from gateway.streams.tap import Tap

_LOST: Final = "expired_by_retention"

Result = TypeVar("Result")


class Sealing:
    """See the module text."""

    def __init__(
        self,
        blocking: RunBlocking,
        owner: StreamsOwner,
        settings: StreamSettings,
        now_ms: Callable[[], int],
    ) -> None:
        self._blocking = blocking
        self._owner = owner
        self.settings = settings
        self._now_ms = now_ms

    def on_log(self, tap: Tap, function: Callable[..., Result], *args: object) -> Deferred[Result]:
        """Run what changes a log on the worker thread, one at a time for each log."""
        return tap.lock.run(self._blocking.run, function, *args)

    def look_after(self, tap: Tap, now_ms: int) -> None:
        """Seal an old tail, end old pins, apply retention by age."""
        settings, stream = self.settings, tap.stream
        oldest = stream.oldest_ms
        if oldest is not None:
            age = now_ms - oldest
            if age >= settings.seal_after_ms or (
                stream.volatile and age >= settings.volatile_after_ms
            ):
                stream.ask_seal()
        tap.end_pins(now_ms)
        limits = settings.limits(stream.name)
        if limits.age_ms_max > 0 or limits.local_bytes > 0:
            self._retain(tap)
        self._watch_archive(tap, limits)

    def _watch_archive(self, tap: Tap, limits: Limits) -> None:
        """Tell once that an archive is so far behind that messages will be lost, and its end."""
        before = tap.lagging is not None
        waiting = retention.find_lag(tap.log.segments(), tap.archived(), limits, before=before)
        stream = tap.stream
        if waiting is None:
            tap.lagging = None
        else:
            text = (
                f"The stream {stream.name!r} holds {waiting} bytes that its archive has not taken; "
                f"retention-bytes is {limits.bytes_max}. Above it the oldest are dropped, archived "
                "or not. See that the archive runs, or raise retention-bytes."
            )
            tap.lagging = text
        if before is (waiting is None):
            self._owner.archive_lags(stream.name, tap.lagging, waiting or 0, limits.bytes_max)

    def seal(self, tap: Tap) -> Deferred[None]:
        """Write what has gathered; fires when it is in the log, or has failed and is told."""
        stream = tap.stream
        taken = stream.take()
        if taken is None:
            return succeed(None)

        def done(result: object) -> None:
            if isinstance(result, Failure):
                stream.seal_failed()
                self._failed(result, stream)
                return
            stream.sealed()
            if not tap.deleted:
                self._owner.release(stream.stream_id, taken.first, taken.end - 1)
                self._retain(tap)

        return self.on_log(tap, self._append, tap, taken).addBoth(done)

    def _append(self, tap: Tap, taken: Taken) -> None:
        if not tap.deleted:
            rows.append_taken(tap.log, taken)

    def _retain(self, tap: Tap) -> None:
        """Apply retention: the decision here, the unlinking on the worker thread."""
        stream = tap.stream
        drop = retention.decide(
            tap.log.segments(),
            tap.floor(),
            self.settings.limits(stream.name),
            self._now_ms(),
            archived=tap.archived(),
        )
        if drop.count == 0 or tap.dropping:
            return
        if drop.lost_end > drop.lost_first:
            lost_last = drop.lost_end - 1
            stream.lost_messages += drop.lost_end - drop.lost_first
            self._owner.stream_lost(stream.stream_id, drop.lost_first, lost_last, _LOST)
        stream.first_offset = tap.log.segments()[drop.count].first
        tap.dropping = True

        def done(result: object) -> None:
            tap.dropping = False
            if isinstance(result, Failure):
                self._failed(result, stream)

        self.on_log(tap, tap.log.drop, drop.count).addBoth(done)

    def _failed(self, failure: Failure, stream: Stream) -> None:
        error = failure.value
        if not isinstance(error, Exception):
            failure.raiseException()
        self._owner.stream_failed(stream.stream_id, error)
