"""Rows of one task to a stage at the gateway, and a batch committed from its stages.

A stage goes over in pieces of up to 1 MiB, each with its place, so that a piece that may have been
lost is sent again; the gateway knows how far it is, also after it was killed. Every call can be
repeated without harm. It knows no Spark.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

from pyspark_sluicegate.client import Gateway, Patience, RetryError, StatusError
from pyspark_sluicegate.options import Options, SluicegateError

_ARROW: Final = "application/vnd.apache.arrow.stream"
_JSON: Final = "application/json"
_NO_CONTENT: Final = 204
#: The most that the gateway takes in one request.
_PIECE_BYTES: Final = 1 << 20
#: Larger record batches are cut: a gateway reads one as a whole.
_BATCH_BYTES: Final = 4 << 20
#: How long a commit call is held; the gateway says then how far it is.
_WAIT_MS: Final = 5_000
#: A stage that cannot be deleted expires by itself.
_ABORT_SECONDS: Final = 5.0


@dataclass(frozen=True)
class Staged:
    """What a task has staged; no rows: nothing."""

    partition: int
    attempt: str
    rows: int


class Batch:
    """One batch of one producer at a gateway."""

    def __init__(self, options: Options, producer: str, batch: int) -> None:
        self._gateway = Gateway(options["url"][0], options)
        self._options = options
        self._batch = batch
        self._producer = quote(producer, safe="")
        self._stages = f"/api/v1/sink/stages/{self._producer}/{batch}"

    def stage(self, batches: Iterable[pa.RecordBatch], partition: int, attempt: str) -> Staged:
        """Send rows as a stage; returns what is there then, durable.

        Raises SluicegateError: for a row that the gateway refuses, or when it cannot be reached.
        """
        path = f"{self._stages}/{partition}/{attempt}"
        rows = size = crc = 0
        for piece in _pieces(batches, self._metadata()):
            self._call("POST", f"{path}?offset={size}", piece, _ARROW)
            crc = zlib.crc32(piece, crc)
            size += len(piece)
        if size:
            rows = self._seal(path, partition, {"size": size, "crc32": crc})
        return Staged(partition, attempt, rows)

    def _seal(self, path: str, partition: int, facts: Mapping[str, int]) -> int:
        """End a stage; returns its rows. Raises SluicegateError for a row that is refused."""
        try:
            answer = self._call("POST", f"{path}:seal", json.dumps(facts).encode(), _JSON)
        except StatusError as error:
            _, _, text = str(error).partition(":seal: ")
            raise SluicegateError(
                f"Partition {partition} of the batch cannot be written: {text or error} "
                f"Nothing of the batch is published ({self._gateway.url})."
            ) from error
        rows: int = answer["rows"]
        return rows

    def _metadata(self) -> dict[str, str]:
        said = {
            "sluicegate.address": self._options["address"],
            "sluicegate.routing": self._options["routing"],
        }
        return {name: value for name, value in said.items() if value}

    def commit(self, stages: Sequence[Staged], *, passing: bool = False) -> None:
        """Have the gateway publish all of them; returns when that is durable.

        `passing`: this producer commits nothing more. Raises SluicegateError.
        """
        there = sorted((s for s in stages if s.rows), key=lambda s: s.partition)
        body = {
            "batch": self._batch,
            "stages": [
                {"partition": s.partition, "attempt": s.attempt, "rows": s.rows} for s in there
            ],
            "passing": passing,
            "waitMs": _WAIT_MS,
        }
        data = json.dumps(body).encode()
        path = f"/api/v1/sink/producers/{self._producer}:commit"
        what = f"{self._gateway.url} batch {self._batch}"
        patience, published = Patience(self._options["retryDeadline"]), 0
        while True:
            try:
                answer: Mapping[str, Any] = self._once("POST", path, data, _JSON)
                if answer.get("done"):
                    return
                error = RetryError("the gateway is still publishing it", answer)
            except RetryError as busy:
                error, answer = busy, busy.answer
            if answer.get("messages", 0) > published:
                published = answer["messages"]
                patience.reset()
            patience.wait(error, what)

    def abort(self, stage: Staged) -> None:
        """Have the gateway delete a stage; raises SluicegateError."""
        path = f"{self._stages}/{stage.partition}/{stage.attempt}"
        self._call("DELETE", path, b"", _JSON, _ABORT_SECONDS)

    def _call(
        self, method: str, path: str, data: bytes, kind: str, seconds: float | None = None
    ) -> dict[str, Any]:
        """Ask, again until the deadline."""
        patience = Patience(self._options["retryDeadline"] if seconds is None else seconds)
        while True:
            try:
                return self._once(method, path, data, kind)
            except RetryError as error:
                patience.wait(error, f"{self._gateway.url} {path}")

    def _once(self, method: str, path: str, data: bytes, kind: str) -> dict[str, Any]:
        connection, response = self._gateway.send(method, path, data, kind)
        answer = self._gateway.drain(connection, response)
        if response.status == _NO_CONTENT:
            return {}
        try:
            fields: dict[str, Any] = json.loads(answer)
        except ValueError as error:
            raise RetryError(f"an answer was cut: {error}") from error
        return fields


class _Pieces:
    """A file that an Arrow writer fills and that is emptied in pieces."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:  # noqa: ANN401 - bytes, or a buffer of Arrow's
        taken = bytes(data)
        self._parts.append(taken)
        self.size += len(taken)
        return len(taken)

    def take(self, least: int) -> Iterator[bytes]:
        """Give pieces while there are `least` bytes."""
        if self.size < least:
            return
        whole = b"".join(self._parts)
        at = 0
        while len(whole) - at >= max(least, 1):
            yield whole[at : at + _PIECE_BYTES]
            at += _PIECE_BYTES
        rest = whole[at:]
        self._parts = [rest] if rest else []
        self.size = len(rest)

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        """Nothing is held back here."""

    def close(self) -> None:
        self.closed = True


def _pieces(batches: Iterable[pa.RecordBatch], metadata: Mapping[str, str]) -> Iterator[bytes]:
    """Give the bytes of an Arrow stream in pieces; none where there are no rows."""
    sink = _Pieces()
    writer: pa.RecordBatchStreamWriter | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        if writer is None:
            writer = pa.ipc.new_stream(sink, batch.schema.with_metadata(metadata))
        for part in _cut(batch):
            writer.write_batch(part)
            yield from sink.take(_PIECE_BYTES)
    if writer is not None:
        writer.close()
        yield from sink.take(1)


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch that is large; its large rows may lie side by side."""
    rest = [batch]
    while rest:
        part = rest.pop()
        if part.num_rows == 1 or part.nbytes <= _BATCH_BYTES:
            yield part
        else:
            half = part.num_rows // 2
            rest += [part.slice(half), part.slice(0, half)]
