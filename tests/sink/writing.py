"""A program that writes batches as Spark does, without Spark, and what a tap has of them then."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any
from urllib.request import Request, urlopen

import msgspec
import pyarrow as pa

from gateway.trial.scratch import ScratchGateway
from pyspark_sluicegate.options import SluicegateError
from pyspark_sluicegate.sink_options import parse_sink_options
from pyspark_sluicegate.staging import Batch, Staged

PARTITIONS = 3


def options(url: str, **given: str) -> dict[str, Any]:
    """Return the options of a writer that is patient over restarts."""
    said = {"url": url, "address": "out", "retryDeadline": "60s", **given}
    return parse_sink_options({name: value for name, value in said.items() if value})


def bodies(producer: str, batch: int, partition: int, rows: int) -> list[bytes]:
    return [b"%s/%d/%d/%d" % (producer.encode(), batch, partition, i) for i in range(rows)]


def rows_of(texts: Sequence[bytes], **columns: Any) -> list[pa.RecordBatch]:
    """Return record batches of 700 rows."""
    whole = pa.record_batch({"body": pa.array(texts, pa.binary()), **columns})
    return [whole.slice(first, 700) for first in range(0, whole.num_rows, 700)]


class Program(threading.Thread):
    """Writes batches one after the other, as a streaming query that is started again when it fails.

    Attributes:
        committed: the highest batch whose commit was answered.
        failed: what made it stage a batch again.
        staged, committing: when it last began to do so, for whoever wants to kill in the middle.
    """

    def __init__(self, url: str, name: str, batches: int, rows: int) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.producer = name
        self.batches = batches
        self.rows = rows
        self.committed = -1
        self.failed: list[str] = []
        self.error: BaseException | None = None
        self.step = threading.Condition()
        self.at = ("", -1)
        self.over = threading.Event()

    def run(self) -> None:
        try:
            for batch in range(self.batches):
                self._write(batch)
        except BaseException as error:  # told by the test
            self.error = error

    def _write(self, batch: int) -> None:
        attempt = 0
        while not self.over.is_set():
            attempt += 1
            try:
                one = Batch(options(self.url), self.producer, batch)
                self._reach("stage", batch)
                stages = [self._stage(one, batch, p, attempt) for p in range(PARTITIONS)]
                self._reach("commit", batch)
                one.commit(stages)
                if batch % 3 == 0:
                    one.commit(stages)  # its answer was lost, so to say
                self.committed = batch
            except SluicegateError as error:
                self.failed.append(str(error))
            else:
                return

    def _stage(self, one: Batch, batch: int, partition: int, attempt: int) -> Staged:
        texts = bodies(self.producer, batch, partition, self.rows)
        return one.stage(rows_of(texts), partition, f"{time.monotonic_ns()}a{attempt}")

    def _reach(self, step: str, batch: int) -> None:
        with self.step:
            self.at = (step, batch)
            self.step.notify_all()

    def wait_for(self, step: str, seconds: float = 30) -> None:
        """Wait until it begins with a step."""
        with self.step:
            self.step.wait_for(lambda: self.at[0] == step or not self.is_alive(), seconds)


def tapped(gateway: ScratchGateway, stream: str) -> list[bytes]:
    """Return the bodies that a stream has, in their order, once each offset."""
    (shown,) = gateway.request("POST", "/api/v1/streams/heads", {"address": stream})[1]["items"]
    found: list[bytes] = []
    at = shown["first"]
    while at < shown["head"]:
        body = {
            "ranges": [
                {"stream": stream, "epoch": shown["epoch"], "start": at, "end": shown["head"]}
            ],
            "columns": ["offset", "body"],
        }
        request = Request(
            f"{gateway.url}/api/v1/streams/read",
            msgspec.json.encode(body),
            {"Content-Type": "application/json"},
        )
        with urlopen(request, timeout=30) as response:
            table = pa.ipc.open_stream(response).read_all()
        assert table.num_rows, f"nothing at {at} of {shown}"
        offsets = table.column("offset").to_pylist()
        assert offsets == list(range(at, at + len(offsets))), "an offset is missing or double"
        found += table.column("body").to_pylist()
        at += len(offsets)
    return found


def check_once(found: Sequence[bytes], batches: dict[str, int], rows: int) -> None:
    """Assert that each row of each batch is there once, in order per producer and partition."""
    wanted = sum(batches.values()) * PARTITIONS * rows
    assert len(found) == wanted, f"{len(found)} messages of {wanted}"
    lanes: defaultdict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for body in found:
        producer, batch, partition, row = body.decode().split("/")
        lanes[producer, int(partition)].append((int(batch), int(row)))
    for (producer, partition), places in lanes.items():
        every = [(batch, row) for batch in range(batches[producer]) for row in range(rows)]
        assert places == every, f"{producer} partition {partition} is out of order"
