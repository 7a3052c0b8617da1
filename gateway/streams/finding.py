"""From a time to an offset: the first message that the address accepted at or after it.

    in the log    off the reactor: the first block whose newest time is late enough is read
    in the tail   here: the first run that is late enough
    in neither    the head: what comes from now on is later

A message's time is when the address accepted it, in ms of broker time. Times ascend with offsets
while the gateway runs; after a start with a clock that was put back they may not. The answer is
then still the lowest offset whose own time is late enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from twisted.internet.defer import Deferred, succeed

from gateway.streams.ports import BlockRef, Log, RunBlocking
from gateway.streams.stream import Accepted
from gateway.streams.tap import Tap

#: Of a stored row: when the address accepted it.
_TIMESTAMP: Final = 1


def find_offset(tap: Tap, since_ms: int, blocking: RunBlocking, start: int = 0) -> Deferred[int]:
    """Find the first offset of a stream whose message was accepted at or after `since_ms`.

    Looks from `start` on. The head when there is none yet: the next message is the first one then.
    What retention drops meanwhile is passed over. Fails as `Log.read` does when a block is damaged.
    """
    stream = tap.stream
    start = max(start, stream.first_offset)
    sealed = stream.sealed_offset
    if start >= sealed:
        tail = stream.tail(start, stream.durable_offset)
        found = first_in_tail(tail, since_ms)
        return succeed(stream.durable_offset if found is None else found)

    def looked(found: int | None) -> int | Deferred[int]:
        # What was sealed meanwhile has left the tail, and is looked at where it is now.
        return find_offset(tap, since_ms, blocking, sealed) if found is None else found

    return blocking.run(first_in_log, tap.log, start, sealed, since_ms).addCallback(looked)


def first_in_log(log: Log, start: int, end: int, since_ms: int) -> int | None:
    """Return the first stored offset of [start, end) that is late enough. Blocks the thread."""
    for ref in late_blocks(log.blocks(start, end), since_ms):
        try:
            rows = log.read(ref)
        except LookupError:
            continue  # retention was faster
        found = first_in_rows(rows, start, since_ms)
        if found is not None and found < end:
            return found
    return None


def late_blocks(refs: Iterable[BlockRef], since_ms: int) -> Iterable[BlockRef]:
    """Return the blocks that have a message which is late enough."""
    return (ref for ref in refs if ref.newest_ms >= since_ms)


def first_in_rows(rows: pa.RecordBatch, start: int, since_ms: int) -> int | None:
    """Return the first offset from `start` on in stored rows that is late enough."""
    times = rows.column(_TIMESTAMP).cast(pa.int64())
    late = pc.greater_equal(times, pa.scalar(max(since_ms, 0) * 1000, pa.int64()))
    found = pc.index(pc.and_(late, pc.greater_equal(rows.column(0), start)), True).as_py()
    return rows.column(0)[found].as_py() if found >= 0 else None


def first_in_tail(runs: Iterable[Accepted], since_ms: int) -> int | None:
    """Return the first offset in runs of a tail that is late enough."""
    return next((run.base for run in runs if run.now_ms >= since_ms), None)
