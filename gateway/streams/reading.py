"""A range of offsets as an Arrow IPC stream.

`take_snapshot` runs where the stream lives and costs no reading; `read_slice` runs on a worker
thread and reads, decodes and encodes a bounded part. The answer is one complete IPC stream:

    schema
    record batch, custom metadata `sluicegate` = {"range", "first", "end", "holes"}      0 or more
    record batch without rows, metadata = {"rows", "next": [range, offset] or null,
                                           "losses": [...], "error": text or null}       the trailer
    end mark

A batch covers [first, end) of its range; `holes` counts offsets in it that have no row: they never
held a message that could be read, or the reader's selector left it out. An answer without its
trailer is incomplete. `next` says where to go on when the answer stopped at its size limit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from gateway.selectors import compile_selector
from gateway.streams.filtering import Filter
from gateway.streams.plan import Reason
from gateway.streams.ports import BlockRef, Log
from gateway.streams.rows import rows_of
from gateway.streams.stream import BLOCK_BYTES, BLOCK_MESSAGES, Accepted, Stream
from gateway.streams.view import View, Viewer

#: One answer stops here: bounds the memory of a reading and the time of a worker thread. A second
#: request costs about a millisecond against some 20 ms of decoding.
SLICE_BYTES: Final = 4 << 20
#: And here, when a selector leaves out most of what is looked at.
FILTERED_BYTES: Final = 4 * SLICE_BYTES
METADATA: Final = "sluicegate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Where the parts of one range are, at the moment it was asked for."""

    index: int
    address: str
    epoch: int
    start: int
    end: int
    log: Log
    refs: Sequence[BlockRef]
    runs: Sequence[Accepted]


def take_snapshot(index: int, stream: Stream, log: Log, start: int, end: int) -> Snapshot:
    """Note where [start, end) of a stream is; what is not advertised is left out."""
    end = min(end, stream.durable_offset)
    return Snapshot(
        index=index,
        address=stream.address,
        epoch=stream.epoch,
        start=start,
        end=end,
        log=log,
        refs=log.blocks(start, min(end, stream.sealed_offset)),
        runs=stream.tail(max(start, stream.sealed_offset), end),
    )


class _Answer:
    """The IPC stream while it is written."""

    def __init__(self, view: View) -> None:
        self._sink = pa.BufferOutputStream()
        self._writer = pa.ipc.new_stream(self._sink, view.schema)
        self._empty = pa.RecordBatch.from_pylist([], schema=view.schema)
        self.rows = 0
        self.losses: list[Mapping[str, object]] = []

    @property
    def size(self) -> int:
        return int(self._sink.tell())

    def add(self, batch: pa.RecordBatch, facts: Mapping[str, object]) -> None:
        self.rows += len(batch)
        self._writer.write_batch(batch, custom_metadata={METADATA: json.dumps(facts)})

    def finish(self, next_place: list[int] | None, error: str | None) -> pa.Buffer:
        facts = {
            "rows": self.rows,
            "next": next_place,
            "losses": self.losses,
            "error": error,
        }
        self._writer.write_batch(self._empty, custom_metadata={METADATA: json.dumps(facts)})
        self._writer.close()
        return self._sink.getvalue()


def read_slice(
    view: View,
    snapshots: Sequence[Snapshot],
    *,
    skip_losses: bool,
    losses: Sequence[Mapping[str, object]] = (),
    selector: str = "",
    bytes_max: int = SLICE_BYTES,
) -> pa.Buffer:
    """Read, decode and encode until the ranges or `bytes_max` end. Blocks the thread.

    A `selector` is one that compiles; rows that do not match are left out and count as holes.

    What retention drops meanwhile is a loss: skipped and named, or the end of the answer.
    What is damaged ends the answer with its text; nothing behind it is sent. `losses` are those
    that were known before.
    """
    answer = _Answer(view)
    answer.losses.extend(losses)
    filtered = 0
    for snapshot in snapshots:
        viewer = Viewer(view, snapshot.address, snapshot.epoch)
        chosen = Filter(compile_selector(selector, snapshot.address)) if selector else None
        place = snapshot.start
        try:
            for first, end, rows in _pieces(snapshot):
                if answer.size >= bytes_max or filtered >= FILTERED_BYTES:
                    return answer.finish([snapshot.index, place], None)
                if rows is None:
                    loss = _loss(snapshot, first, end)
                    if not skip_losses:
                        return answer.finish([snapshot.index, place], str(loss["text"]))
                    answer.losses.append(loss)
                else:
                    if chosen is not None:
                        filtered += rows.nbytes
                        rows = chosen.keep(rows)  # noqa: PLW2901 - what is left of them
                    holes = end - first - len(rows)
                    facts = {"range": snapshot.index, "first": first, "end": end, "holes": holes}
                    answer.add(viewer.convert(rows), facts)
                place = end
        except Exception as error:  # noqa: BLE001 - the reader is told, and the text names the file
            return answer.finish([snapshot.index, place], f"{type(error).__name__}: {error}")
    return answer.finish(None, None)


def _loss(snapshot: Snapshot, first: int, end: int) -> dict[str, object]:
    reason = Reason.EXPIRED.value
    text = f"{snapshot.address}: offsets {first} to {end - 1} are gone ({reason})"
    return {"range": snapshot.index, "first": first, "end": end, "reason": reason, "text": text}


def _pieces(snapshot: Snapshot) -> Iterator[tuple[int, int, pa.RecordBatch | None]]:
    """Yield (first, end, rows) that cover the range without a gap; rows None: dropped meanwhile."""
    for ref in snapshot.refs:
        first, end = max(ref.first, snapshot.start), min(ref.end, snapshot.end)
        try:
            rows = snapshot.log.read(ref)
        except LookupError:
            yield first, end, None
            continue
        if first > ref.first or end < ref.end:
            rows = _cut(rows, first, end)
        yield first, end, rows
    place = max(snapshot.refs[-1].end if snapshot.refs else snapshot.start, snapshot.start)
    for group in _tail_groups(snapshot.runs):
        end = group[-1].end
        yield place, end, rows_of(group)
        place = end
    if place < snapshot.end:
        yield place, snapshot.end, rows_of([])


def _cut(rows: pa.RecordBatch, first: int, end: int) -> pa.RecordBatch:
    """Return the rows with offsets in [first, end)."""
    offsets = rows.column(0)
    low = _lower_bound(offsets, first)
    return rows.slice(low, _lower_bound(offsets, end) - low)


def _lower_bound(offsets: pa.Array, wanted: int) -> int:
    low, high = 0, len(offsets)
    while low < high:
        middle = (low + high) // 2
        if offsets[middle].as_py() < wanted:
            low = middle + 1
        else:
            high = middle
    return low


def _tail_groups(runs: Sequence[Accepted]) -> Iterator[list[Accepted]]:
    """Group the runs of a tail to pieces of about one block."""
    group: list[Accepted] = []
    count = size = 0
    for run in runs:
        group.append(run)
        count += len(run.bodies)
        size += run.size
        if count >= BLOCK_MESSAGES or size >= BLOCK_BYTES:
            yield group
            group, count, size = [], 0, 0
    if group:
        yield group
