"""The readers of the source where the option `archive` names a table.

They plan as the others do. Where a gateway says that a range begins below its first offset, the
table is asked first (`history`), and the range's older part becomes tasks that read files.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import InputPartition

from pyspark_sluicegate.archive.ranges import Piece
from pyspark_sluicegate.history import ArchivedPartition, History
from pyspark_sluicegate.offsets import Partition, Places, Span, cut_and_pack
from pyspark_sluicegate.options import Options, SluicegateError, choose_place
from pyspark_sluicegate.rows import check_losses, read_spans
from pyspark_sluicegate.source import BatchReader, Member, StreamReader, addressed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

#: What a batch reads at a gateway stays there for so long, and as long again after each request: a
#: gateway whose history is archived may let go of it at any time.
_PIN_MS: Final = 600_000
_LET_GO_SECONDS: Final = 2.0

_log = logging.getLogger("pyspark_sluicegate")


class ArchivedStreamReader(StreamReader):
    """A streaming query over gateways and the table of their archive."""

    role = "archived"

    def __init__(self, schema: StructType, options: Options) -> None:
        super().__init__(schema, options)
        self._history = History(options)
        self._gateways: dict[str, Mapping[str, Any]] = {}
        self._pin = ""
        self._pieces: list[Piece] = []

    def _gateway(self, member: Member) -> Mapping[str, Any]:
        url = member.gateway.url
        if url not in self._gateways:
            self._gateways[url] = member.heads()["gateway"]
        return self._gateways[url]

    def begun(self, member: Member, floors: Places) -> Places:
        options = self._options
        place, url = options["startingOffsets"], member.gateway.url
        wanted = choose_place(place, options["address"], url, "latest")
        found: Places = {}
        for stream, (epoch, floor) in member.own(floors).items():
            start = floor
            if stream not in member.lifted and floor > 0:
                start = self._history.first(self._gateway(member), stream, (epoch, floor), wanted)
            found[stream] = [epoch, start]
        return member.named(found)

    def planned(
        self, member: Member, body: Mapping[str, Any], reply: dict[str, Any]
    ) -> dict[str, Any]:
        count = max(len(reply["end"]), 1)
        rows, size = body["maxMessages"], body["maxBytes"]
        for loss in reply["losses"]:
            end, lost = self._history.plan(
                self._gateway(member),
                loss,
                rows_max=max(rows // count, 1) if rows else None,
                bytes_max=max(size // count, 1) if size else None,
            )
            check_losses(lost, self._options)
            if end is not None:
                reply["end"][loss["stream"]] = [loss["epoch"], end]
        return reply

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._pieces = []
        # One name for each batch: a pin that is prolonged stays where it was made.
        text = json.dumps([self._name, end], sort_keys=True)
        pin = f"archived-{hashlib.sha256(text.encode()).hexdigest()[:32]}"
        if self._pin != pin:
            self._let_go()
        self._pin = pin
        for member in self.members:
            body = {**addressed(self._options), "pin": pin, "pinMs": _PIN_MS}
            member.gateway.call("/heads", body)
        self._end = end["q"]
        spans = cut_and_pack(self.spans(start, end), self._options, pin)
        return [*self._history.partitions(self._pieces), *spans]

    def release(self, start: dict[str, Any]) -> None:
        super().release(start)
        self._let_go()

    def _let_go(self) -> None:
        """End the pin of the batch before: Spark has come back for more. It ends by itself, too."""
        pin, self._pin = self._pin, ""
        for member in self.members if pin else ():
            body = {**addressed(self._options), "pin": pin, "pinMs": 0}
            try:
                member.gateway.call("/heads", body, _LET_GO_SECONDS)
            except SluicegateError as error:
                _log.warning("a pin at %s ends later: %s", member.gateway.url, error)

    def lost(self, member: Member, losses: Sequence[Mapping[str, Any]]) -> None:
        for loss in losses:
            epoch, end = self._end[loss["stream"] + member.suffix]
            if epoch != loss["epoch"]:
                check_losses([loss], self._options)
                continue
            pieces, lost = self._history.split(self._gateway(member), loss, end)
            check_losses(lost, self._options)
            self._pieces += pieces

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, ArchivedPartition):
            return partition.read(self._schema)
        assert isinstance(partition, Partition)
        request = {**self._request, "pin": partition.pin, "pinMs": _PIN_MS}
        return read_spans(partition.spans, self._schema, self._options, request)


class ArchivedBatchReader(BatchReader):
    """A batch query over gateways and the table of their archive."""

    def __init__(self, schema: StructType, options: Options) -> None:
        super().__init__(schema, options)
        self._history = History(options)
        self._pieces: list[Piece] = []

    def partitions(self) -> list[InputPartition]:
        self._pieces = []
        spans = super().partitions()
        return [*self._history.partitions(self._pieces), *spans]

    def begun(
        self, reply: Mapping[str, Any], stream: Mapping[str, Any], first: int, end: int
    ) -> int:
        """Take what is older than the gateway's first offset from the table."""
        gateway = reply["gateway"]
        name, epoch, kept = stream["name"], stream["epoch"], stream["first"]
        # An offset of this stream alone, or a word for all; a time is not for an archive.
        place = self._options["startingOffsets"] or "earliest"
        earliest = place == "earliest" if isinstance(place, str) else "earliest" in place.values()
        earliest = earliest and first == kept
        if kept == 0 or (first >= kept and not earliest):
            return first
        cover = self._history.coverage(gateway, name, epoch)
        start = cover.first() if earliest else first
        end = min(end, kept)
        if start is None or start >= end:
            return max(first, kept) if start is not None else first
        span = Span("", name, epoch, start, end, 0)
        pieces, lost = self._history.pieces_of(gateway, span)
        check_losses(lost, self._options)
        self._pieces += pieces
        return int(kept)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, ArchivedPartition):
            return partition.read(self._schema)
        return super().read(partition)
