"""What Spark sees: the data source `sluicegate` with its stream reader and its batch reader.

What Spark calls, and what is done (one `StreamReader` lives on the driver, copies run in tasks):

    initialOffset    attach: the subscription's floor, kept by the gateway, so the same each time
    latestOffset     plan: how far the next batch may go; nothing new and Spark has come back for
                     more, so all before `start` is in its commit log: release `start`
    partitions       cut the range by bytes, pack small pieces together
    read             rows of a range; a broken answer goes on behind the last complete batch
    commit           lift the floor; what cannot be sent now goes with the next one

Nothing happens in `__init__`: readers are made in several processes and pickled. Spark calls
`commit` for a batch only when the next one is planned, and `stop` hardly ever: hence the release.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pyspark_sluicegate.client import Gateway, StatusError
from pyspark_sluicegate.offsets import (
    Partition,
    Places,
    Span,
    cut_and_pack,
    make_offset,
    read_offset,
)
from pyspark_sluicegate.options import (
    TIME_MS_MAX,
    Options,
    SluicegateError,
    check_kind,
    choose_place,
    make_ddl,
    parse_options,
)
from pyspark_sluicegate.planning import unplanned
from pyspark_sluicegate.pushdown import Bounds, narrow
from pyspark_sluicegate.rows import check_losses, make_request, read_spans
from pyspark_sluicegate.sink import BatchWriter, StreamWriter
from pyspark_sluicegate.sink_options import parse_sink_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

#: A commit that cannot be sent waits for the next one instead of holding the query up.
_COMMIT_SECONDS: Final = 5.0
#: So far a clock may be put back between two runs of a gateway: rows accepted before a moment are
#: looked for until so much later.
_CLOCK_MS: Final = 3_600_000
#: A snapshot of a batch query is held this long after its last read.
_PIN_MS: Final = 3_600_000

_log = logging.getLogger("pyspark_sluicegate")


def addressed(options: Options) -> dict[str, Any]:
    """Return the fields of a call that say which addresses are meant."""
    name = "addressPattern" if options["addressPattern"] else "address"
    return {name: options[name]}


def joining(options: Options) -> dict[str, Any]:
    """Return the fields of a plan by which new streams of a pattern join; empty without one."""
    if not options["addressPattern"]:
        return {}
    return {
        **addressed(options),
        "newStreamOffsets": options["newStreamOffsets"],
        "selector": options["selector"],
    }


class Member:
    """One gateway of a query; with several, the keys of its streams end in `@host:port`."""

    def __init__(self, url: str, options: Options, role: str = "") -> None:
        self.role = role
        self.gateway = Gateway(url, options)
        self.suffix = "@" + urlsplit(url).netloc if len(options["url"]) > 1 else ""
        self.fence: int | None = None
        #: Streams whose floor is not where the subscription was made.
        self.lifted: set[str] = set()
        self._options = options
        self._addressed = addressed(options)
        self._path = f"/subscriptions/{quote(options['subscription'], safe='')}"

    def own(self, places: Places) -> Places:
        cut = len(self.suffix)
        return {k[: len(k) - cut]: v for k, v in places.items() if k.endswith(self.suffix)}

    def named(self, places: Places) -> Places:
        return {key + self.suffix: value for key, value in places.items()}

    def attach(self, places: Places | None) -> Places:
        """Attach with the place of the checkpoint, if there is one; returns the floor."""
        options, url = self._options, self.gateway.url
        place, since_ms = options["startingOffsets"], options["startingTimestamp"]
        body = {
            **self._addressed,
            "startingOffsets": choose_place(place, options["address"], url, "latest"),
            "role": self.role,
            "position": None if places is None else self.own(places),
            "selector": options["selector"],
        }
        if since_ms is not None:
            body["startingTimestampMs"] = since_ms
        reply = self.gateway.call(self._path + ":attach", body)
        self.fence = reply["fence"]
        self.lifted = set(reply.get("lifted", ()))
        return self.named(reply["floor"])

    def heads(self) -> dict[str, Any]:
        """Return what the gateway says of its name and of the streams of the addresses."""
        return self.gateway.call("/heads", self._addressed)

    def ask(
        self, action: str, body: dict[str, Any], places: Places, seconds: float | None = None
    ) -> dict[str, Any]:
        """Call, attached; once more when the subscription has vanished."""
        for again in (True, False):
            if self.fence is None:
                self.attach(places)
            if "addressPattern" in body:
                body["role"] = self.role
            if action != "plan" or "addressPattern" in body:
                body["fence"] = self.fence
            try:
                return self.gateway.call(f"{self._path}:{action}", body, seconds)
            except StatusError as error:
                if error.status != 404 or not again:
                    raise
                self.fence = None
        raise AssertionError


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The driver's side of a streaming query, and what its tasks run."""

    #: What the gateway is told of the subscription: `archive`, `archived`, or nothing.
    role = ""

    def __init__(self, schema: StructType, options: Options) -> None:
        self._schema = schema
        self._options = options
        self._request = make_request(schema, options)
        self._name = options["subscription"]
        self._selector = options["selector"]
        self.members = [Member(url, options, self.role) for url in options["url"]]
        self._initial: dict[str, Any] | None = None
        self._frozen: Places | None = None
        self._heads: Places = {}
        self._released: dict[str, Any] | None = None

    def _offset(self, places: Places) -> dict[str, Any]:
        return make_offset(self._name, places, self._selector)

    def _places(self, offset: dict[str, Any]) -> Places:
        places = read_offset(offset, self._name, self._selector)
        suffixes = tuple(member.suffix for member in self.members)
        for key in places:
            if not key.endswith(suffixes):
                raise SluicegateError(
                    f"The checkpoint has a place of {key!r}, which none of the gateways in `url` "
                    f"({', '.join(self._options['url'])}) has. A query names all the gateways "
                    "that it began with, by the same host and port, or begins a new checkpoint."
                )
        return places

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            floors: Places = {}
            for member in self.members:
                floors |= self.begun(member, member.attach(None))
            self._initial = self._offset(floors)
        return self._initial

    def begun(self, member: Member, floors: Places) -> Places:
        """Return where a new query begins, given the floors of its subscription."""
        return floors

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._options["maxMessagesPerTrigger"]
        return ReadMaxRows(rows) if rows else ReadMaxBytes(self._options["maxBytesPerTrigger"])

    def prepareForTriggerAvailableNow(self) -> None:
        self._frozen = {}
        for member in self.members:
            try:
                reply = member.heads()
            except StatusError as error:
                if error.status != 404:
                    raise
                continue
            places = {one["name"]: [one["epoch"], one["head"]] for one in reply["items"]}
            self._frozen |= member.named(places)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        places = self._places(start)
        ends = dict(places)
        for member in self.members:
            body = self._plan(member, places, limit)
            reply = self.planned(member, body, member.ask("plan", body, places))
            self._heads |= member.named(reply["heads"])
            for key, (epoch, place) in member.named(reply["end"]).items():
                known = ends.get(key, [epoch, 0])
                ends[key] = [epoch, max(place, known[1]) if known[0] == epoch else place]
        end = self._offset(ends)
        if end == start:
            self.release(start)
            if len(self.members) > 1 and self._frozen is None:
                time.sleep(self._options["pollInterval"])
        return end

    def planned(
        self, member: Member, body: Mapping[str, Any], reply: dict[str, Any]
    ) -> dict[str, Any]:
        """Judge what a gateway has planned for `body`: raises for losses, as the options say."""
        check_losses(reply["losses"], self._options)
        return reply

    def _plan(self, member: Member, places: Places, limit: ReadLimit) -> dict[str, Any]:
        """Return the body of a plan call: both caps at once, unless Spark asks for all there is."""
        count = len(self.members)
        rows = self._options["maxMessagesPerTrigger"]
        size = None if isinstance(limit, ReadAllAvailable) else self._options["maxBytesPerTrigger"]
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        else:
            rows = None
        body: dict[str, Any] = {
            **joining(self._options),
            "start": member.own(places),
            "maxMessages": max(rows // count, 1) if rows else None,
            "maxBytes": max(size // count, 1) if size else None,
        }
        if self._frozen is not None:
            body["frozen"] = member.own(self._frozen)
        elif count == 1:
            body["waitMs"] = int(self._options["pollInterval"] * 1000)
        return body

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._offset(self._heads) if self._heads else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return cut_and_pack(self.spans(start, end), self._options)

    def spans(self, start: dict[str, Any], end: dict[str, Any]) -> list[Span]:
        """Return the ranges of a batch, with their sizes; tells of what was lost before."""
        low, high = self._places(start), self._places(end)
        spans: list[Span] = []
        for member in self.members:
            ranged = {"start": member.own(low), "end": member.own(high)}
            body = {**joining(self._options), **ranged}
            reply = member.ask("plan", body, low)
            losses = [*reply["losses"], *unplanned(ranged, reply, member.gateway.url)]
            self.lost(member, losses)
            for stream, (epoch, first) in reply["start"].items():
                last, size = reply["end"][stream][1], reply["bytes"][stream]
                if last > first:
                    spans.append(Span(member.gateway.url, stream, epoch, first, last, size))
        return spans

    def lost(self, member: Member, losses: Sequence[Mapping[str, Any]]) -> None:
        """Raise for what a batch has lost, or go on without it, as the options say."""
        check_losses(losses, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Partition)
        return read_spans(partition.spans, self._schema, self._options, self._request)

    def commit(self, end: dict[str, Any]) -> None:
        if self._options["commitMode"] != "off":
            self._lift("commit", end)

    def release(self, start: dict[str, Any]) -> None:
        """Lift the floor to what Spark came back with: its batches before that are committed."""
        fresh = start not in (self._initial, self._released)
        if fresh and self._options["commitMode"] == "idle" and self._lift("release", start):
            self._released = start

    def _lift(self, action: str, offset: dict[str, Any]) -> bool:
        places = self._places(offset)
        done = True
        for member in self.members:
            try:
                member.ask(action, {"end": member.own(places)}, places, _COMMIT_SECONDS)
            except SluicegateError as error:
                if isinstance(error, StatusError) and error.status == 409:
                    raise
                _log.warning("%s of %s put off: %s", action, self._name, error)
                done = False
        return done


class BatchReader(DataSourceReader):
    """A batch query: one DataFrame is one snapshot, held while it is read."""

    def __init__(self, schema: StructType, options: Options) -> None:
        self._schema = schema
        self._options = options
        self._request = make_request(schema, options)
        self._bounds = Bounds()
        if options["startingOffsets"] == "subscription":
            raise SluicegateError(
                "startingOffsets is 'subscription', which a batch read has none of; possible: "
                "earliest, latest, an offset."
            )

    def partitions(self) -> list[InputPartition]:
        options, spans = self._options, []
        pin = f"batch-{os.getpid()}-{time.monotonic_ns()}"
        for url in options["url"]:
            gateway = Gateway(url, options)
            body = {
                **addressed(options),
                "pin": pin,
                "pinMs": _PIN_MS,
                "selector": options["selector"],
            }
            reply = gateway.call("/heads", body)
            for one in reply["items"]:
                if not self._bounds.has(one["address"]):
                    continue
                first, end = self._range(gateway, one)
                first = self.begun(reply, one, first, end)
                size = one["bytes"] * max(end - first, 0) // max(one["head"] - one["first"], 1)
                if end > first:
                    spans.append(Span(url, one["name"], one["epoch"], first, end, size))
        return list(cut_and_pack(spans, options, pin))

    def _range(self, gateway: Gateway, stream: Mapping[str, Any]) -> tuple[int, int]:
        """Return the offsets [first, end) of a stream that the options and conditions ask for."""
        options, bounds, address = self._options, self._bounds, stream["address"]
        places = {"earliest": stream["first"], "latest": stream["head"]}
        begun = choose_place(options["startingOffsets"], address, gateway.url, "earliest")
        ended = choose_place(options["endingOffsets"], address, gateway.url, "latest")
        firsts = [int(places.get(begun, begun)), bounds.first]
        ends = [int(places.get(ended, ended)), stream["head"]]
        if bounds.end is not None:
            ends.append(bounds.end)
        path = f"/{quote(stream['name'], safe='')}:find"

        def find(moment_ms: int) -> int:
            within = min(max(moment_ms, 0), TIME_MS_MAX)
            return int(gateway.call(path, {"timestampMs": within})["offset"])

        for since_ms in (options["startingTimestamp"], bounds.since_ms):
            firsts += [] if since_ms is None else [find(since_ms)]
        if options["endingTimestamp"] is not None:
            ends.append(find(options["endingTimestamp"]))
        if bounds.until_ms is not None:
            ends.append(find(bounds.until_ms + _CLOCK_MS))
        return max(firsts), min(ends)

    def begun(
        self, reply: Mapping[str, Any], stream: Mapping[str, Any], first: int, end: int
    ) -> int:
        """Return where the reading at the gateway begins, of what is wanted of [first, end)."""
        return first

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Partition):  # Spark's stand-in for no partitions at all
            return iter(())
        request = {**self._request, "pin": partition.pin, "pinMs": _PIN_MS}
        return read_spans(partition.spans, self._schema, self._options, request)


class NarrowingReader(BatchReader):
    """A batch query whose conditions bound what is read; Spark refuses the method by default."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._bounds = narrow(filters)
        return filters


class DefaultSource(DataSource):
    """What `spark.readStream.format("sluicegate")` and `spark.read.format("sluicegate")` make."""

    @classmethod
    def name(cls) -> str:
        return "sluicegate"

    def _parsed(self, kind: str | None = None) -> Options:
        if kind is not None:
            check_kind(self.options, kind)
        return parse_options(self.options)

    def schema(self) -> str:
        return make_ddl(self._parsed())

    def reader(self, schema: StructType) -> BatchReader:
        options = self._parsed("batch")
        if options["archive"]:
            reader: BatchReader = _archived().ArchivedBatchReader(schema, options)
            return reader
        made = NarrowingReader if options["pushdown"] == "true" else BatchReader
        return made(schema, options)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:  # noqa: FBT001 - Spark's
        return BatchWriter(schema, parse_sink_options(self.options), overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: FBT001
        return StreamWriter(schema, parse_sink_options(self.options), overwrite=overwrite)

    def streamReader(self, schema: StructType) -> StreamReader:
        options = self._parsed("stream")
        if not options["subscription"]:
            raise SluicegateError(
                "The option 'subscription' is required: a name for this query, under which the "
                "gateway keeps what it has still to read. Each query needs its own."
            )
        if options["archive"]:
            reader: StreamReader = _archived().ArchivedStreamReader(schema, options)
            return reader
        return StreamReader(schema, options)


def _archived() -> Any:  # noqa: ANN401 - a module
    """Return the readers that know an archive: they build on this module, and on an extra."""
    return import_module("pyspark_sluicegate.archived")
