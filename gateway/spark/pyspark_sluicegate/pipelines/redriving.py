"""Dead letters sent back, each once however often a selection is run.

A selection is a producer of the gateway's sink, and a batch of it is numbered by the offset behind
its last dead letter. So the gateway's own record of what a producer has committed, which it writes
in one with the messages, is the place up to which the selection is sent: nothing else is kept, and
a run that is killed anywhere leaves either the whole of a range sent or nothing of it.

Texts and bytes cannot be written in one batch; each of the two is a producer with its own place.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as f

from pyspark_sluicegate.client import Gateway, Patience, RetryError, StatusError
from pyspark_sluicegate.options import Options
from pyspark_sluicegate.pipelines.counting import Stream
from pyspark_sluicegate.staging import Batch

#: Kind -> the column that is its body.
KINDS: Final = {"text": "text", "bytes": "body"}
#: Columns that go to the sink as they are.
_KEPT: Final = (
    "key",
    "message_id",
    "subject",
    "content_type",
    "correlation_id",
    "reply_to",
    "headers",
    "priority",
    "durable",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What is to be sent, and where to; equal ones are the same selection."""

    stream: Stream
    where: str
    to: str
    to_queue: bool
    routing: str
    name: str

    @property
    def producer(self) -> str:
        """The name under which the gateway remembers it, without its kind."""
        stream = self.stream
        told = json.dumps(
            [
                stream.identity, stream.name, stream.epoch,
                self.where, self.to, self.to_queue, self.routing, self.name,
            ]
        ).encode()  # fmt: skip
        return f"redrive-{stream.name[:60]}-{hashlib.sha256(told).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of a range: of `letters` chosen, `sent` left, `homeless` had nowhere to go."""

    letters: int = 0
    sent: int = 0
    homeless: int = 0


class Redrive:
    """One selection at one gateway."""

    def __init__(self, selection: Selection, options: Options, sink: Mapping[str, str]) -> None:
        """`options` are the sink's, parsed; `sink` the same as Spark takes them."""
        self.producer = selection.producer
        self._to = selection.to
        self._to_queue = selection.to_queue
        self._options = options
        self._sink = dict(sink)
        self._gateway = Gateway(options["url"][0], options)
        self._places: dict[str, int] | None = None

    @property
    def places(self) -> dict[str, int]:
        """Kind -> the offset up to which the gateway has it; what is under way counts."""
        if self._places is None:
            self._places = {kind: self._place(self._name(kind)) for kind in KINDS}
        return self._places

    def begin(self) -> int:
        """Have what an earlier run left half published finished; returns where this run begins."""
        for kind in KINDS:
            under_way = self._known(self._name(kind)).get("batch")
            if under_way is not None:
                # The gateway goes on with the stages that the first commit named.
                Batch(self._options, self._name(kind), under_way).commit([])
        return min(self.places.values())

    def left(self, frame: DataFrame) -> DataFrame:
        """Return the dead letters of a frame that a run would send."""
        wanted = f.lit(False)
        for kind, place in self.places.items():
            wanted = wanted | (_is(kind) & (f.col("offset") >= place))
        frame = frame.where(wanted)
        return frame if self._to else frame.where("original_address is not null")

    def send(self, frame: DataFrame, end: int) -> Sent:
        """Send what is left of a range that ends at `end`, in one batch for each kind."""
        sent = Sent()
        for kind, place in self.places.items():
            if end <= place:
                continue
            one = self._write(frame.where(_is(kind) & (f.col("offset") >= place)), kind, end)
            sent = Sent(
                sent.letters + one.letters, sent.sent + one.sent, sent.homeless + one.homeless
            )
            self.places[kind] = end
        return sent

    def _write(self, frame: DataFrame, kind: str, end: int) -> Sent:
        seen = Observation()
        homeless = f.lit(False) if self._to else f.col("original_address").isNull()
        frame = frame.observe(
            seen, f.count("*").alias("letters"), f.count_if(homeless).alias("homeless")
        )
        rows = frame.where(~homeless).select(
            f.coalesce(f.col(KINDS[kind]), f.lit("" if kind == "text" else b"")).alias("body"),
            self._destination().alias("address"),
            f.col("created").alias("timestamp"),
            *_KEPT,
        )
        writer = rows.write.format("sluicegate").mode("append").options(**self._sink)
        writer.option("producerId", self._name(kind)).option("batchId", str(end)).save()
        found = seen.get
        letters, lost = int(found["letters"] or 0), int(found["homeless"] or 0)
        return Sent(letters, letters - lost, lost)

    def _destination(self) -> Column:
        if self._to:
            return f.lit(self._to)
        address = f.col("original_address")
        if not self._to_queue:
            return address
        named = f.concat(address, f.lit("::"), f.col("original_queue"))
        return f.coalesce(named, address)

    def _name(self, kind: str) -> str:
        return f"{self.producer}-{kind}"

    def _place(self, producer: str) -> int:
        known = self._known(producer)
        places = (known.get("committed"), known.get("batch"))
        return max(place or 0 for place in places)

    def _known(self, producer: str) -> dict[str, Any]:
        """Return what the gateway knows of a producer; nothing where it knows none."""
        path = f"/api/v1/sink/producers/{quote(producer, safe='')}"
        patience = Patience(self._options["retryDeadline"])
        while True:
            try:
                connection, response = self._gateway.send("GET", path, b"", "application/json")
                found: dict[str, Any] = json.loads(self._gateway.drain(connection, response))
            except StatusError as error:
                if error.status != 404:
                    raise
                return {}
            except (RetryError, ValueError) as error:
                patience.wait(error, f"{self._gateway.url} {path}")
            else:
                return found


def _is(kind: str) -> Column:
    there = f.col("text").isNotNull()
    return there if kind == "text" else ~there
