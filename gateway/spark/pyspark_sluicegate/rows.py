"""The rows of spans: asked for, checked batch by batch, decoded, taken up again after a cut.

A task runs this on an executor. What the gateway sends is described in its `reading` module: an
Arrow IPC stream of the stored form, each block behind a batch without rows that says which offsets
it covers, and a trailer without which it is incomplete. The gateway reads and sends, and looks into
no message: the decoding is done here (`stored`), where there are as many cores as Spark has.
"""

from __future__ import annotations

import http.client
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from pyspark_sluicegate.client import Fields, Gateway, Patience, RetryError, StatusError
from pyspark_sluicegate.offsets import Span
from pyspark_sluicegate.options import COLUMNS, Options, SluicegateError
from pyspark_sluicegate.stored.decoding.view import STORED, View, Viewer

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: Metadata key of what the gateway says about a record batch.
_FACTS: Final = b"sluicegate"

_log = logging.getLogger("pyspark_sluicegate")


def make_loss_error(losses: Sequence[Mapping[str, Any]]) -> SluicegateError:
    """Return the error that names what was lost and the two ways on."""
    texts = "; ".join(str(loss.get("text", loss)) for loss in losses[:5])
    return SluicegateError(
        f"Messages were lost before they were read: {texts}. Set failOnDataLoss=false to go on "
        "with what is there, or start with a new subscription and checkpoint."
    )


def check_losses(losses: Sequence[Mapping[str, Any]], options: Options) -> None:
    """Raise for losses, or with failOnDataLoss=false log them."""
    if losses and options["failOnDataLoss"] == "true":
        raise make_loss_error(losses)
    for loss in losses:
        _log.warning("messages were lost and are skipped: %s", loss.get("text", loss))


def make_request(schema: StructType, options: Options) -> dict[str, Any]:
    """Return what is asked of the gateway for a schema, also one given with `.schema(...)`."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    for field in schema.fields:
        kind, possible = kinds[field.name], COLUMNS.get(field.name)
        if possible is None or kind not in possible or not field.nullable:
            what = f"as {' or '.join(possible)}, nullable" if possible else ", ".join(COLUMNS)
            raise SluicegateError(f"The schema has {field.name!r} {kind}; possible: {what}.")
    return {
        "form": "stored",
        "skipLosses": options["failOnDataLoss"] == "false",
        "selector": options["selector"],
    }


def make_view(schema: StructType, options: Options) -> View:
    """Return the columns of a schema that `make_request` has checked."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    plain = "amqp" if options["bodyFormat"] == "amqp" else "binary"
    return View(
        names=tuple(kinds),
        schema=to_arrow_schema(schema, timezone="UTC"),
        header_mode="map" if kinds.get("headers", "string") != "string" else "json",
        body_format="string" if kinds.get("body") == "string" else plain,
    )


def read_spans(
    spans: Sequence[Span], schema: StructType, options: Options, request: Mapping[str, Any]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of spans of one gateway; goes on behind the last batch after a cut."""
    view = make_view(schema, options)
    todo = list(spans)
    patience = Patience(options["retryDeadline"])
    while todo:
        gateway = Gateway(todo[0].url, options)
        asked = list(todo)
        failed = RetryError("the answer brought nothing")
        try:
            for batch in _answer(gateway, request, todo, view):
                yield batch
                # What Spark does with a batch is not time that the gateway took.
                patience.reset()
        except RetryError as error:
            failed = error
        if todo == asked:
            patience.wait(failed, f"{gateway.url}: reading {todo[0].stream!r} at {todo[0].start}")
        todo = [span for span in todo if span.start < span.end]


def _answer(
    gateway: Gateway, request: Mapping[str, Any], todo: list[Span], view: View
) -> Iterator[pa.RecordBatch]:
    """Yield the checked batches of one answer; `todo` always tells what is still to come."""
    ranges = [{"stream": s.stream, "epoch": s.epoch, "start": s.start, "end": s.end} for s in todo]
    try:
        connection, response = gateway.post("/read", {**request, "ranges": ranges})
    except StatusError as error:
        if not error.losses:
            raise
        raise make_loss_error(error.losses) from error
    rows, facts = 0, {"rows": -1}
    viewers: dict[int, Viewer] = {}
    try:
        reader = pa.ipc.open_stream(response)
        _check_schema(gateway, reader.schema)
        while True:
            _, metadata = reader.read_next_batch_with_custom_metadata()
            facts = _read_facts(gateway, metadata)
            if "rows" in facts:
                break
            index = facts["range"]
            stored = reader.read_next_batch()
            _check_batch(stored, facts, todo[index], strict=not request["skipLosses"])
            if index not in viewers:
                viewers[index] = Viewer(view, facts["address"], todo[index].epoch)
            batch = viewers[index].convert(stored)
            todo[index] = replace(todo[index], start=facts["end"])
            rows += len(stored)
            yield batch
        gateway.drain(connection, response)
    except (OSError, http.client.HTTPException, pa.ArrowInvalid, StopIteration) as error:
        connection.close()
        raise RetryError(f"the answer was cut: {type(error).__name__} {error}") from error
    except BaseException:
        connection.close()
        raise
    _check_trailer(facts, rows, todo, strict=not request["skipLosses"])


def _read_facts(gateway: Gateway, metadata: Mapping[bytes, bytes] | None) -> Fields:
    """Return what is said about a record batch; what is left out of it is an error when asked."""
    try:
        said = json.loads((metadata or {})[_FACTS])
    except (KeyError, ValueError):
        said = {}
    return Fields(said, f"{gateway.url} /read")


def _check_schema(gateway: Gateway, sent: pa.Schema) -> None:
    if not sent.equals(STORED):
        raise SluicegateError(
            f"{gateway.url} sent {sent}; this package reads the stored form {STORED}. "
            "Use the package of the gateway's own version."
        )


def _check_batch(
    batch: pa.RecordBatch, facts: Mapping[str, int], span: Span, *, strict: bool
) -> None:
    """Raise SluicegateError unless the batch goes on exactly where the one before ended."""
    first, end = facts["first"], facts["end"]
    good = span.start <= first < end <= span.end and (first == span.start or not strict)
    good = good and len(batch) == end - first - facts["holes"]
    if good and len(batch):
        offsets = batch.column(0)
        rising = pc.all(pc.less(offsets.slice(0, len(batch) - 1), offsets.slice(1))).as_py()
        inside = first <= offsets[0].as_py() and offsets[-1].as_py() < end
        good = inside and rising is not False
    if not good:
        raise SluicegateError(
            f"{span.url} sent {len(batch)} rows as offsets {first} to {end - 1} of "
            f"{span.stream!r}; expected were those from {span.start} to {span.end - 1}, each once."
        )


def _check_trailer(facts: Mapping[str, Any], rows: int, todo: list[Span], *, strict: bool) -> None:
    """Take up what the gateway says at the end: rows sent, losses skipped, where to go on."""
    if facts["rows"] != rows:
        raise SluicegateError(f"The gateway sent {facts['rows']} rows, {rows} have arrived.")
    for loss in facts["losses"]:
        _log.warning("messages were lost and are skipped: %s", loss.get("text", loss))
    if facts["error"]:
        raise SluicegateError(f"{todo[0].url} cannot read on: {facts['error']}")
    last, place = facts["next"] or (len(todo), 0)
    for index, span in enumerate(todo[: last + 1]):
        reached = place if index == last else span.end
        if strict and reached != span.start:
            raise SluicegateError(f"{span.url} left out {span.start} to {reached - 1}.")
        todo[index] = replace(span, start=max(span.start, reached))
