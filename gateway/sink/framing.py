"""The messages of a stage's Arrow stream, each looked at before Arrow makes columns of it. Pure.

Arrow trusts what a message says of itself: a few bytes that claim to be gigabytes once they are
inflated are inflated, and places outside a column's bytes are read when its size is asked for. So a
message is bounded before it is read, may not be compressed, and is validated before anything else
looks at it. A message begins with a FlatBuffers table [Arrow columnar format, Message.fbs], which
Arrow has verified when it is here:

    Message        field 2: the header, a table; of a record batch:
    RecordBatch    field 0: rows; field 3: there if buffers are compressed
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from gateway.model.errors import Code, RefusedError
from gateway.sink.ports import Source

#: One message of a stage, unless a single row may be larger. The Spark package cuts at 4 MiB.
MESSAGE_BYTES_MAX: Final = 32 << 20
#: Of one stage: each costs some thirty microseconds, however few rows it has.
BATCHES_MAX: Final = 65_536
_HEADER: Final = 2
_ROWS: Final = 0
_COMPRESSION: Final = 3
_u16 = struct.Struct("<H").unpack_from
_i32 = struct.Struct("<i").unpack_from
_i64 = struct.Struct("<q").unpack_from


class ArrowStage:
    """A stage that is read from its beginning. `schema`: as it says."""

    def __init__(self, source: Source, message_max: int) -> None:
        """Read the schema; a row may become a message of `message_max` bytes.

        Raises RefusedError (bad-value).
        """
        bounded = _Bounded(source, max(MESSAGE_BYTES_MAX, 2 * message_max))
        try:
            self._messages = pa.ipc.MessageReader.open_stream(pa.PythonFile(bounded, mode="r"))
            self.schema: pa.Schema = _schema_of(self._messages.read_next_message())
        except (pa.ArrowException, OSError, ValueError, StopIteration) as error:
            raise _unreadable(error) from error

    def batches(self, row: int = 0) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Go through the batches from the one that has this row on: (its first row, batch).

        Each is valid. Raises RefusedError (bad-value).
        """
        first = 0
        try:
            for number, message in enumerate(self._messages):
                rows = _check(message, number)
                if first + rows > row:
                    batch = pa.ipc.read_record_batch(message, self.schema)
                    # The shallow look first: sizes are computed from places that it checks.
                    batch.validate()
                    batch.validate(full=True)
                    yield first, batch
                first += rows
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _unreadable(error) from error


class _Bounded:
    """A source of which no more than so many bytes are read at once."""

    def __init__(self, source: Source, most: int) -> None:
        self._source = source
        self._most = most
        self.closed = False

    def read(self, count: int) -> bytes:
        if count > self._most:
            raise ValueError(f"one of its messages has {count} bytes, of {self._most} at most")
        return self._source.read(count)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        """Whoever opened the source closes it."""
        self.closed = True


def _schema_of(message: pa.ipc.Message) -> pa.Schema:
    """Return the schema that a stream begins with. Raises ValueError, pa.ArrowException."""
    if message.type != "schema":  # Arrow would take its bytes for one
        raise ValueError(f"it begins with a message of type {message.type}, and no schema")
    return pa.ipc.read_schema(message)


def _check(message: pa.ipc.Message, number: int) -> int:
    """Return how many rows a message says that it has. Raises ValueError."""
    if number == BATCHES_MAX:
        raise ValueError(f"it has more than {BATCHES_MAX} batches; write larger ones")
    if message.type != "record batch":
        raise ValueError(f"it has a {message.type}, and a stage has record batches only")
    table = message.metadata.to_pybytes()
    header = _table(table, _field(table, _i32(table, 0)[0], _HEADER))
    if _field(table, header, _COMPRESSION):
        raise ValueError("its buffers are compressed, and a stage is not")
    rows = _field(table, header, _ROWS)
    count: int = _i64(table, rows)[0] if rows else 0
    if count < 0:
        raise ValueError(f"one of its batches has {count} rows")
    return count


def _field(data: bytes, table: int, number: int) -> int:
    """Return where a field of a table is; 0: it is left out."""
    places = table - _i32(data, table)[0]
    slot = 4 + 2 * number
    if slot >= _u16(data, places)[0]:
        return 0
    at: int = _u16(data, places + slot)[0]
    return table + at if at else 0


def _table(data: bytes, at: int) -> int:
    """Return where the table is that a field refers to."""
    place: int = _i32(data, at)[0]
    return at + place


def _unreadable(error: Exception) -> RefusedError:
    return RefusedError.of(
        Code.BAD_VALUE, f"The stage is no Arrow stream that can be read: {error}."
    )
