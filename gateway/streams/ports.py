"""The seams around the streams, as structural types.

The log is `storage.arrow_log`'s, the state files are `storage.stream_files`'; the journal, the
addresses and the worker thread are the broker's and the composition root's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from twisted.internet.defer import Deferred

Result = TypeVar("Result")

#: first offset, end offset (exclusive), newest timestamp in ms, rows.
StoredBlock = tuple[int, int, int, pa.RecordBatch]


class BlockRef(Protocol):
    """A stored block, as the log names it."""

    @property
    def first(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def rows(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def newest_ms(self) -> int: ...


class SegmentFacts(Protocol):
    """A file of the log, as retention sees it."""

    @property
    def first(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def rows(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def newest_ms(self) -> int: ...


class Log(Protocol):
    """The stored part of one stream. One thread appends and drops; any thread reads."""

    next_offset: int

    @property
    def first_offset(self) -> int: ...

    def segments(self) -> Sequence[SegmentFacts]: ...

    def blocks(self, start: int, end: int) -> Sequence[BlockRef]: ...

    def append(self, blocks: Sequence[StoredBlock]) -> None:
        """Add blocks; they are on the device when this returns. Blocks the thread."""

    def read(self, ref: Any) -> pa.RecordBatch:  # noqa: ANN401 - what `blocks` returned
        """Return a stored block; raises LookupError when retention has dropped it meanwhile."""

    def read_bytes(self, ref: Any) -> bytes:  # noqa: ANN401 - what `blocks` returned
        """Return a stored block as it lies in its file, checked: one whole Arrow IPC message.

        Raises LookupError when retention has dropped it meanwhile.
        """

    def drop(self, count: int) -> int:
        """Delete up to `count` oldest segments, never the newest; returns the bytes given back."""

    def close(self) -> None: ...

    def delete(self) -> None: ...


class StreamStore(Protocol):
    """Where logs and small state files are. Every call blocks the thread."""

    def load(self, name: str) -> bytes | None: ...

    def save(self, name: str, data: bytes) -> None:
        """Replace a state file, whole; on the device when this returns."""

    def remove(self, name: str) -> None: ...

    def open_log(self, stream_id: int) -> Log: ...


class RunBlocking(Protocol):
    """Runs a function that blocks: on a worker thread in production, at once in tests."""

    def run(self, function: Callable[..., Result], *args: object) -> Deferred[Result]: ...


class StreamsOwner(Protocol):
    """What the streams ask of the broker and the journal."""

    def release(self, stream_id: int, first: int, last: int) -> None:
        """`first`..`last` (inclusive) are safe in the log: the journal may forget them."""

    def taps_changed(self, address: str) -> None:
        """Ask `StreamRegistry.taps` again for this address."""

    def ensure_address(self, address: str) -> None:
        """Make the address when it is missing. Raises RefusedError."""

    def stream_failed(self, stream_id: int, error: Exception) -> None:
        """The log of a stream took nothing; what it should have taken stays in the journal."""

    def stream_lost(self, stream_id: int, first: int, last: int, reason: str) -> None:
        """Retention dropped messages that a subscription still wanted."""

    def archive_lags(self, stream: str, text: str | None, waiting: int, bytes_max: int) -> None:
        """An archive has fallen so far behind that messages will be lost; None: it caught up."""
