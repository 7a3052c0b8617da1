"""Files of a table read back and written anew: from an offset on, or several as one."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyspark_sluicegate.archive.layout import STORED, FileFacts, file_schema
from pyspark_sluicegate.archive.store import Location, telling
from pyspark_sluicegate.archive.writing import Target, write_range

#: Rows at a time: a file is never in memory as a whole.
_BATCH_ROWS = 16_384


class _Object(io.RawIOBase):
    """An object of a store as a file to read, by ranges; its size is known from the log."""

    def __init__(self, place: Location, path: str, size: int) -> None:
        self._store = place.open()
        self._path = path
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        from obstore import get_range  # noqa: PLC0415 - an extra

        left = max(self._size - self._at, 0)
        count = left if size < 0 else min(size, left)
        if not count:
            return b""
        data = get_range(self._store, self._path, start=self._at, length=count)
        self._at += count
        return bytes(data)


def open_parquet(place: Location, facts: FileFacts) -> pq.ParquetFile:
    """Open a file of the table. Raises StoreError, also for one that was cut."""
    with telling(place, facts.path):
        try:
            if place.folder is not None:
                return pq.ParquetFile(f"{place.folder}/{facts.path}", memory_map=True)
            source = _Object(place, facts.path, facts.size)
            return pq.ParquetFile(pa.PythonFile(source, "r"), pre_buffer=True)
        except (pa.ArrowInvalid, EOFError) as error:
            raise damaged(place, facts, str(error)) from error


def damaged(place: Location, facts: FileFacts, why: str) -> OSError:
    """Return the error of a file that is not what the table's log says."""
    return OSError(
        f"its file {facts.path} (offsets {facts.first} to {facts.end - 1} of {facts.stream!r}) is "
        f"damaged: {' '.join(why.split())[:200]}. Restore that object from a version or a copy"
    )


def rewrite(
    files: Sequence[FileFacts],
    place: Location,
    nonce: str,
    *,
    start: int | None = None,
    compression: str,
) -> FileFacts:
    """Write neighbouring files of one day as one, from offset `start` on; returns its facts."""
    first = files[0]
    low = first.first if start is None else start

    def rows() -> Iterator[pa.RecordBatch]:
        for one in files:
            with open_parquet(place, one) as source:
                for batch in source.iter_batches(_BATCH_ROWS):
                    yield batch.filter(pc.greater_equal(batch.column("offset"), low))

    target = Target(
        gateway=first.gateway,
        address=first.address,
        stream=first.stream,
        epoch=first.epoch,
        start=low,
        end=files[-1].end,
        schema=_schema(files, place),
        file_bytes=1 << 62,
        compression=compression,
    )
    (made,) = write_range(rows(), target, place, lambda: nonce)
    return made


def _schema(files: Sequence[FileFacts], place: Location) -> pa.Schema:
    raw = False
    for one in files:
        with open_parquet(place, one) as source:
            raw = raw or len(source.schema_arrow.names) > len(STORED)
    return file_schema(raw=raw)


def delete_files(place: Location, files: Sequence[FileFacts]) -> None:
    """Delete files that no commit has. One that is gone is no error."""
    from obstore import delete  # noqa: PLC0415 - an extra
    from obstore.exceptions import NotFoundError  # noqa: PLC0415

    store = place.open()
    for one in files:
        with telling(place, one.path):
            try:
                delete(store, one.path)
            except (FileNotFoundError, NotFoundError):
                continue
