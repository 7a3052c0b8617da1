"""From runs in memory to blocks of rows, the form in which the log keeps them.

Runs on a worker thread when a tail is sealed, and when a reader asks for what is not sealed yet.
Columns: `offset` int64, `timestamp` timestamp[us, UTC], `flags` int32, `raw` binary.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from gateway.decoding.view import STORED
from gateway.streams.ports import Log, StoredBlock
from gateway.streams.stream import BLOCK_BYTES, BLOCK_MESSAGES, Accepted, Taken

_WORD: Final = 0xFFFFFFFF
_SIGN: Final = 0x80000000


def append_taken(log: Log, taken: Taken) -> None:
    """Write what was taken from a tail. Blocks the thread."""
    log.append(list(blocks(taken)))


def blocks(taken: Taken) -> Iterator[StoredBlock]:
    """Yield the blocks that cover [first, end) without a gap, in order."""
    first = taken.first
    groups = list(_groups(taken.runs))
    for index, group in enumerate(groups):
        # What was lost in between is covered by the block in front of it.
        end = groups[index + 1][0].base if index + 1 < len(groups) else taken.end
        yield first, end, max(run.now_ms for run in group), rows_of(group)
        first = end


def _groups(runs: Sequence[Accepted]) -> Iterator[list[Accepted]]:
    """Split runs into groups of at most one block; a message larger than a block stands alone."""
    group: list[Accepted] = []
    count = size = 0
    for run in runs:
        for part in _parts(run):
            full = count + len(part.bodies) > BLOCK_MESSAGES or size + part.size > BLOCK_BYTES
            if group and full:
                yield group
                group, count, size = [], 0, 0
            group.append(part)
            count += len(part.bodies)
            size += part.size
    if group:
        yield group


def _parts(run: Accepted) -> Iterator[Accepted]:
    """Split one run that is larger than a block."""
    if len(run.bodies) <= BLOCK_MESSAGES and run.size <= BLOCK_BYTES:
        yield run
        return
    start = size = 0
    for index, body in enumerate(run.bodies):
        if index > start and (index - start >= BLOCK_MESSAGES or size + len(body) > BLOCK_BYTES):
            yield run.cut(run.base + start, run.base + index)
            start, size = index, 0
        size += len(body)
    yield run.cut(run.base + start, run.end)


def rows_of(runs: Sequence[Accepted]) -> pa.RecordBatch:
    """Return runs as one batch of rows."""
    if not runs:
        return pa.RecordBatch.from_pylist([], schema=STORED)
    offsets = [pa.arange(run.base, run.end) for run in runs]
    stamps, words = array("q"), array("i")
    raws: list[bytes] = []
    for run in runs:
        count = len(run.bodies)
        stamps.extend(array("q", [run.now_ms * 1000]) * count)
        if isinstance(run.flags, int):
            words.extend(array("i", [_signed(run.flags)]) * count)
        else:
            words.extend(map(_signed, run.flags))
        raws.extend(run.bodies)
    columns = [
        pa.concat_arrays(offsets),
        pa.Array.from_buffers(STORED.field(1).type, len(stamps), [None, pa.py_buffer(stamps)]),
        pa.Array.from_buffers(pa.int32(), len(words), [None, pa.py_buffer(words)]),
        pa.array(raws, pa.binary()),
    ]
    return pa.record_batch(columns, schema=STORED)


def _signed(word: int) -> int:
    """Return the flags as the signed number with the same 32 bits."""
    word &= _WORD
    return word - (_WORD + 1) if word & _SIGN else word
