"""The source of the archive's query: its tasks write the files, and a row stands for a file.

It plans and reads as the streaming source does. What differs is what a task yields: it writes its
ranges to Parquet files below the table's folder, and gives one row of facts for each. So no message
passes the JVM, and the driver has a few rows a batch to commit.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_sluicegate.archive.layout import FileFacts, file_schema
from pyspark_sluicegate.archive.store import Location, parse_location
from pyspark_sluicegate.archive.table import NoTableError, open_table
from pyspark_sluicegate.archive.writing import Target, write_loss, write_range
from pyspark_sluicegate.offsets import Partition, Span, cut_and_pack
from pyspark_sluicegate.options import (
    Options,
    SluicegateError,
    parse_options,
    parse_size,
)
from pyspark_sluicegate.planning import GONE
from pyspark_sluicegate.rows import check_losses, read_spans
from pyspark_sluicegate.source import Member, StreamReader

if TYPE_CHECKING:
    from collections.abc import Callable

FORMAT: Final = "sluicegate-archive-files"
COMPRESSIONS: Final = ("zstd", "snappy", "none")
#: The options of this source alone, with their defaults.
OWN: Final = {"targetFileBytes": "128m", "compression": "zstd", "keepEncoded": "false"}
PLACE: Final = ("archive", "archiveEndpoint", "archiveRegion")
_KINDS: Final[Mapping[pa.DataType, DataType]] = {
    pa.string(): StringType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.bool_(): BooleanType(),
    pa.binary(): BinaryType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
    pa.map_(pa.string(), pa.string()): MapType(StringType(), StringType()),
}
#: A row of facts, as Arrow and as Spark have it.
FACTS: Final = pa.schema(
    [
        *((n, pa.string()) for n in ("path", "gateway", "address", "date", "stream")),
        *((n, pa.int64()) for n in ("size", "epoch", "first", "end", "rows", "low", "high")),
        *((n, pa.int64()) for n in ("earliest", "latest")),
        ("lost", pa.bool_()),
        ("identity", pa.string()),
    ]
)
assert set(FACTS.names) == {"identity", *(one.name for one in fields(FileFacts))}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the rows of a stream come from: the gateway by name and id, and the address."""

    gateway: str
    identity: str
    address: str


class ArchivePartition(Partition):
    """Spans of one gateway with the origin of each stream; or ranges that are lost."""

    def __init__(
        self, spans: Sequence[Span], origins: Mapping[str, Origin], *, lost: bool = False
    ) -> None:
        super().__init__(spans)
        self.origins = dict(origins)
        self.lost = lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How files are written."""

    place: Location
    file_bytes: int
    compression: str
    raw: bool


def row_schema(*, raw: bool) -> StructType:
    """Return the columns that are asked of the gateway, in Spark's types."""
    wanted = [f for f in file_schema(raw=raw) if f.name != "stream"]
    return StructType([StructField(f.name, _KINDS[f.type]) for f in wanted])


class ArchiveReader(StreamReader):
    """The streaming source's reader, whose tasks write."""

    role = "archive"

    def __init__(self, options: Options, form: Form) -> None:
        super().__init__(row_schema(raw=form.raw), options)
        self._form = form
        self._origins: dict[str, dict[str, Origin]] = {}
        self._lost: list[Span] = []
        self._looked = False

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._lost = []
        spans = self._unknown_yet(self.spans(start, end))
        packed = cut_and_pack(spans, self._options)
        return [
            *(ArchivePartition(one.spans, self._origins_of(one.spans)) for one in packed),
            *(ArchivePartition([one], self._origins_of([one]), lost=True) for one in self._lost),
        ]

    def lost(self, member: Member, losses: Sequence[Mapping[str, Any]]) -> None:
        """Note what is lost, where the options say to go on, so that the table has it noted."""
        check_losses(losses, self._options)
        for one in losses:
            # Of a stream that is gone nobody says what its address was.
            if one["end"] > one["first"] and one["reason"] != GONE:
                span = (one["stream"], one["epoch"], one["first"], one["end"])
                self._lost.append(Span(member.gateway.url, *span, size=0))

    def _origins_of(self, spans: Sequence[Span]) -> dict[str, Origin]:
        """Return the origins of the streams of one gateway, asked for again for a new stream."""
        url = spans[0].url
        known = self._origins.get(url, {})
        if any(span.stream not in known for span in spans):
            member = next(one for one in self.members if one.gateway.url == url)
            reply = member.heads()
            gateway = reply["gateway"]
            name, identity = gateway["name"], gateway["id"]
            known = {s["name"]: Origin(name, identity, s["address"]) for s in reply["items"]}
            self._origins[url] = known
        return {span.stream: known[span.stream] for span in spans}

    def _unknown_yet(self, spans: list[Span]) -> list[Span]:
        """Leave out, once, what the table has: after a lost checkpoint that can be a lot.

        What counts is decided when a batch is committed; this only saves the work.
        """
        if self._looked or not spans:
            return spans
        self._looked = True
        try:
            table = open_table(self._form.place)
        except NoTableError:
            return spans
        left = []
        for span in spans:
            origin = self._origins_of([span])[span.stream]
            end = table.ends([(origin.gateway, span.stream, span.epoch)])
            place = next(iter(end.values())) or 0
            if span.end > place:
                left.append(span)
        return left

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ArchivePartition)
        origins = partition.origins
        rows = [
            {**facts.to_row(), "identity": origins[facts.stream].identity}
            for facts in self._write(partition, lambda: secrets.token_hex(8))
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=FACTS)

    def _write(self, partition: ArchivePartition, nonce: Callable[[], str]) -> Iterator[FileFacts]:
        form = self._form
        # What is lost is known from the plan; nothing is passed over while rows are read.
        request = {**self._request, "skipLosses": False}
        for span in partition.spans:
            origin = partition.origins[span.stream]
            target = Target(
                gateway=origin.gateway,
                address=origin.address,
                stream=span.stream,
                epoch=span.epoch,
                start=span.start,
                end=span.end,
                schema=file_schema(raw=form.raw),
                file_bytes=form.file_bytes,
                compression=form.compression,
            )
            if partition.lost:
                yield write_loss(target, form.place, nonce())
                continue
            rows = read_spans([span], self._schema, self._options, request)
            yield from write_range(rows, target, form.place, nonce)


class ArchiveFiles(DataSource):
    """`spark.readStream.format("sluicegate-archive-files")`, for the pipeline `archive` alone."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        kinds = {pa.string(): "string", pa.int64(): "bigint", pa.bool_(): "boolean"}
        return ", ".join(f"`{field.name}` {kinds[field.type]}" for field in FACTS)

    def streamReader(self, schema: StructType) -> ArchiveReader:
        given = {name.lower(): value for name, value in self.options.items()}
        own = {name: given.pop(name.lower(), default).lower() for name, default in OWN.items()}
        if own["compression"] not in COMPRESSIONS:
            raise SluicegateError(
                f"The option 'compression' is {own['compression']!r}; possible: "
                f"{', '.join(COMPRESSIONS)}."
            )
        # A table is written here, not read: to the source these options mean another thing.
        there = {name: given.pop(name.lower(), "") for name in PLACE}
        size = parse_size("targetFileBytes", own["targetFileBytes"])
        assert size is not None
        raw = own["keepEncoded"] == "true"
        columns = ",".join(field.name for field in row_schema(raw=raw))
        fixed = {"columns": columns, "includeheaders": "map", "targetpartitionbytes": str(size)}
        place = parse_location("archive", there)
        form = Form(place=place, file_bytes=size, compression=own["compression"], raw=raw)
        return ArchiveReader(parse_options({**given, **fixed}), form)
