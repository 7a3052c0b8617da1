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

Without a view the answer is of the stored form: the schema is that of the log, and the metadata of
a batch comes on a batch without rows in front of it, with the stream's `address` added. What is
stored then goes out as it lies in the file, and whoever asked decodes it (`gateway.decoding`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from gateway.decoding.view import STORED, View, Viewer
from gateway.selectors import compile_selector
from gateway.streams.answer import Answer, Facts
from gateway.streams.filtering import Filter
from gateway.streams.plan import Reason
from gateway.streams.ports import BlockRef, Log
from gateway.streams.rows import rows_of
from gateway.streams.stream import BLOCK_BYTES, BLOCK_MESSAGES, Accepted, Stream

#: One answer stops here: bounds the memory of a reading and the time of a worker thread. A second
#: request costs about a millisecond against some 20 ms of decoding.
SLICE_BYTES: Final = 4 << 20
#: And here when nothing is decoded: some 3 ms of a worker thread.
STORED_BYTES: Final = 8 << 20
#: Blocks that one request may have looked up: more than any answer has, and few to look up at once.
BLOCKS_MAX: Final = 256
#: And here, when a selector leaves out most of what it is asked of.
FILTERED_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Where the parts of one range are, at the moment it was asked for.

    `cut`: it ends before the range does.
    """

    index: int
    address: str
    epoch: int
    start: int
    end: int
    log: Log
    refs: Sequence[BlockRef]
    runs: Sequence[Accepted]
    cut: bool = False


def take_snapshot(
    index: int, stream: Stream, log: Log, start: int, end: int, *, blocks_max: int = BLOCKS_MAX
) -> Snapshot:
    """Note where [start, end) of a stream is; what is not advertised is left out.

    Of more than `blocks_max` blocks the first so many are noted.
    """
    end = min(end, stream.durable_offset)
    refs = log.blocks(start, min(end, stream.sealed_offset))
    cut = len(refs) > blocks_max
    if cut:
        refs = refs[:blocks_max]
        end = refs[-1].end
    return Snapshot(
        index=index,
        address=stream.address,
        epoch=stream.epoch,
        start=start,
        end=end,
        log=log,
        refs=refs,
        runs=stream.tail(max(start, stream.sealed_offset), end),
        cut=cut,
    )


class _Part(NamedTuple):
    """Offsets [first, end) of a range: rows, or a block as it is stored, or (neither) dropped."""

    first: int
    end: int
    rows: pa.RecordBatch | None = None
    stored: bytes | None = None
    held: int = 0


def read_slice(
    view: View | None,
    snapshots: Sequence[Snapshot],
    *,
    skip_losses: bool,
    losses: Sequence[Mapping[str, object]] = (),
    selector: str = "",
    bytes_max: int | None = None,
    beyond: list[int] | None = None,
) -> list[bytes]:
    """Read and encode until the ranges or `bytes_max` end. Blocks the thread.

    What retention drops meanwhile is a loss: skipped and named, or the end of the answer.
    What is damaged ends the answer with its text; nothing behind it is sent. `losses` are those
    that were known before. Without a view the answer is of the stored form. Rows that a `selector`
    (one that compiles) does not match are left out and count as holes. `beyond` is where to go on
    behind the snapshots, where they are not all that was asked for.
    """
    if bytes_max is None:
        bytes_max = STORED_BYTES if view is None else SLICE_BYTES
    answer = Answer(STORED if view is None else view.schema)
    answer.losses.extend(losses)
    filtered = 0
    for snapshot in snapshots:
        viewer = None if view is None else Viewer(view, snapshot.address, snapshot.epoch)
        chosen = Filter(compile_selector(selector, snapshot.address)) if selector else None
        place = snapshot.start
        try:
            for part in _parts(snapshot, as_stored=view is None and chosen is None):
                if answer.size >= bytes_max or filtered >= FILTERED_BYTES:
                    return answer.finish([snapshot.index, place], None)
                if part.rows is None and part.stored is None:
                    loss = _loss(snapshot, part.first, part.end)
                    if not skip_losses:
                        return answer.finish([snapshot.index, place], str(loss["text"]))
                    answer.losses.append(loss)
                elif chosen is not None and part.rows is not None:
                    filtered += part.rows.nbytes
                    kept = _rows_part(part.first, part.end, chosen.keep(part.rows))
                    _add(answer, snapshot, kept, viewer)
                else:
                    _add(answer, snapshot, part, viewer)
                place = part.end
        except Exception as error:  # noqa: BLE001 - the reader is told, and the text names the file
            return answer.finish([snapshot.index, place], f"{type(error).__name__}: {error}")
    return answer.finish(beyond, None)


def _add(answer: Answer, snapshot: Snapshot, part: _Part, viewer: Viewer | None) -> None:
    holes = part.end - part.first - part.held
    facts: Facts = {
        "range": snapshot.index,
        "first": part.first,
        "end": part.end,
        "holes": holes,
    }
    if viewer is not None:
        answer.add(viewer.convert(part.rows), facts)
        return
    facts["address"] = snapshot.address
    if part.stored is not None:
        answer.add_stored(part.stored, part.held, facts)
    else:
        assert part.rows is not None, "a part has neither rows nor a block"
        answer.add_stored(part.rows.serialize().to_pybytes(), part.held, facts)


def _loss(snapshot: Snapshot, first: int, end: int) -> dict[str, object]:
    reason = Reason.EXPIRED.value
    text = f"{snapshot.address}: offsets {first} to {end - 1} are gone ({reason})"
    return {"range": snapshot.index, "first": first, "end": end, "reason": reason, "text": text}


def _parts(snapshot: Snapshot, *, as_stored: bool) -> Iterator[_Part]:
    """Yield parts that cover the range without a gap."""
    log = snapshot.log
    for ref in snapshot.refs:
        first, end = max(ref.first, snapshot.start), min(ref.end, snapshot.end)
        whole = first == ref.first and end == ref.end
        try:
            if whole and as_stored:
                yield _Part(first, end, stored=log.read_bytes(ref), held=ref.rows)
                continue
            rows = log.read(ref)
        except LookupError:
            yield _Part(first, end)
            continue
        yield _rows_part(first, end, rows if whole else _cut(rows, first, end))
    place = max(snapshot.refs[-1].end if snapshot.refs else snapshot.start, snapshot.start)
    for group in _tail_groups(snapshot.runs):
        end = group[-1].end
        yield _rows_part(place, end, rows_of(group))
        place = end
    if place < snapshot.end:
        yield _rows_part(place, snapshot.end, rows_of([]))


def _rows_part(first: int, end: int, rows: pa.RecordBatch) -> _Part:
    return _Part(first, end, rows=rows, held=len(rows))


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
