"""A sealed stage, read in slices of messages that one turn can publish. Runs on a thread."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator
from typing import Final

import pyarrow as pa

from gateway.sink.checking import Judged, judge_stage
from gateway.sink.encoding import Part, encode_rows
from gateway.sink.form import Form, read_form
from gateway.sink.framing import ArrowStage
from gateway.sink.ports import Files, Source

#: Rows and bytes of bodies of one slice: what the reactor takes in about a millisecond (measured).
SLICE_ROWS: Final = 1000
SLICE_BYTES: Final = 512 << 10
#: All columns of it: heads may be larger than bodies.
_WHOLE_BYTES: Final = 2 * SLICE_BYTES


class Slice:
    """Rows of one stage as messages.

    Attributes:
        first: the number of its first row in the stage.
        rows: how many they are.
        parts: them, by address.
    """

    __slots__ = ("_batch", "first", "form", "parts", "rows")

    def __init__(
        self, form: Form, batch: pa.RecordBatch, first: int, parts: list[Part] | None = None
    ) -> None:
        self.form = form
        self.first = first
        self.rows = batch.num_rows
        self.parts = encode_rows(batch, form) if parts is None else parts
        self._batch = batch

    def cut(self, rows: int) -> tuple[Slice, Slice]:
        """Return the first so many rows, and the others."""
        assert 0 < rows < self.rows, f"{rows} of {self.rows} rows"
        first, then = self._batch.slice(0, rows), self._batch.slice(rows)
        here, behind = self.first, self.first + rows
        if len(self.parts) > 1:
            return Slice(self.form, first, here), Slice(self.form, then, behind)
        (part,) = self.parts
        return (
            Slice(self.form, first, here, [part.part(0, rows)]),
            Slice(self.form, then, behind, [part.part(rows, self.rows)]),
        )


class StageReader:
    """Reads one stage from a row on."""

    def __init__(self, files: Files, file: str, row: int, message_max: int) -> None:
        """Open it. Raises OSError, RefusedError (bad-value)."""
        self._source: Source = files.open(file)
        try:
            stage = ArrowStage(self._source, message_max)
            self.form = read_form(stage.schema)
        except BaseException:
            self._source.close()
            raise
        self._slices = self._go(stage, row)

    def next(self) -> Slice | None:
        """Return the next slice, None at the end."""
        found = next(self._slices, None)
        if found is None:
            self.close()
        return found

    def close(self) -> None:
        """Close the file, and let go of what was read ahead: only its end would do so, too."""
        self._slices.close()
        self._source.close()

    def _go(self, stage: ArrowStage, row: int) -> Generator[Slice, None, None]:
        for first, batch in stage.batches(row):
            while row < first + batch.num_rows:
                rows = fitting(batch, row - first)
                yield Slice(self.form, batch.slice(row - first, rows), row)
                row += rows


def fitting(batch: pa.RecordBatch, row: int) -> int:
    """Return how many rows from `row` on are one slice; at least 1."""
    body = batch.column("body")
    most = min(SLICE_ROWS, batch.num_rows - row)
    ends = memoryview(body.buffers()[1]).cast("i")
    at = body.offset + row
    rows = bisect_right(ends, ends[at] + SLICE_BYTES, at, at + most + 1) - 1 - at
    rows = int(max(1, min(rows, most)))
    while rows > 1 and batch.slice(row, rows).nbytes > _WHOLE_BYTES:
        rows //= 2
    return rows


def judge_file(files: Files, file: str, message_max: int) -> Judged:
    """Read a stage to its end and judge it. Raises OSError, RefusedError."""
    source = files.open(file)
    try:
        return judge_stage(ArrowStage(source, message_max), message_max)
    finally:
        source.close()


def form_of(files: Files, file: str, message_max: int) -> Form:
    """Return what a stage says of all its rows. Raises OSError, RefusedError."""
    source = files.open(file)
    try:
        return read_form(ArrowStage(source, message_max).schema)
    finally:
        source.close()
