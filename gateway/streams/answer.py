"""One answer of `reading` while it is written: an Arrow IPC stream, in the form that was asked for.

    columns   the view of the rows, each batch with its facts as metadata
    stored    the rows as the log has them; the facts come on a batch without rows before each

A stored block is one whole IPC message in its file. It goes into the stream as it is: Arrow's
stream form has no positions in it. The answer is kept in pieces, so that no block is copied.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

METADATA: Final = "sluicegate"

Facts = dict[str, object]


class _Pieces:
    """What Arrow writes to, as a file: keeps what is written, in pieces."""

    closed = False

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.size = 0

    def write(self, data: bytes) -> int:
        self.pieces.append(bytes(data))
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """Nothing waits."""


class Answer:
    """The IPC stream while it is written.

    Attributes:
        rows: how many it has.
        losses: what was skipped.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = _Pieces()
        self._writer = pa.ipc.new_stream(self._sink, schema)
        self._empty = pa.RecordBatch.from_pylist([], schema=schema)
        self.rows = 0
        self.losses: list[Mapping[str, object]] = []

    @property
    def size(self) -> int:
        """Bytes up to now."""
        return self._sink.size

    def add(self, batch: pa.RecordBatch, facts: Facts) -> None:
        """Add rows with their facts."""
        self.rows += len(batch)
        self._write(batch, facts)

    def add_stored(self, block: bytes, count: int, facts: Facts) -> None:
        """Add a stored block of `count` rows behind its facts."""
        self._write(self._empty, facts)
        self.rows += count
        self._sink.write(block)

    def finish(self, next_place: list[int] | None, error: str | None) -> list[bytes]:
        """End the stream with its trailer; returns all of it, in pieces."""
        facts: Facts = {
            "rows": self.rows,
            "next": next_place,
            "losses": self.losses,
            "error": error,
        }
        self._write(self._empty, facts)
        self._writer.close()
        return self._sink.pieces

    def _write(self, batch: pa.RecordBatch, facts: Facts) -> None:
        self._writer.write_batch(batch, custom_metadata={METADATA: json.dumps(facts)})
