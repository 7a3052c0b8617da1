"""One history: what is older than a gateway keeps comes from the archive's table.

The gateway says where its first offset is; below it the table is asked, with the same offsets. A
range is cut there: its older part is read from files by the executors, the rest from the gateway.
Lost is only what neither has. The driver looks at the table's log when a range begins below the
gateway's first offset, and not before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from pyspark_sluicegate.archive.layout import STORED, by_stream
from pyspark_sluicegate.archive.ranges import Coverage, Piece, pack
from pyspark_sluicegate.archive.reading import read_pieces
from pyspark_sluicegate.archive.store import Location, parse_location
from pyspark_sluicegate.archive.table import ArchiveTable, open_table
from pyspark_sluicegate.offsets import Span
from pyspark_sluicegate.options import Options, SluicegateError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

#: A loss that the table may make good.
_EXPIRED: Final = "expired_by_retention"
Losses = Sequence[Mapping[str, Any]]


class ArchivedPartition(InputPartition):
    """Parts of files that one task reads."""

    def __init__(self, place: Location, pieces: Sequence[Piece]) -> None:
        self.place = place
        self.pieces = list(pieces)

    def read(self, schema: StructType) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        return read_pieces(self.pieces, to_arrow_schema(schema, timezone="UTC"), self.place)


class History:
    """The table of a reader; nothing of it is opened before it is needed."""

    def __init__(self, options: Options) -> None:
        """Raises SluicegateError for options that a table cannot serve."""
        self._options = options
        self.place = parse_location("archive", options)
        unknown = [n for n in options["columns"] if n not in STORED and n != "address"]
        refused = [*unknown, *(n for n in ("selector", "startingTimestamp") if options.get(n))]
        if refused:
            raise SluicegateError(
                f"With the option 'archive' {refused[0]!r} is not possible: a table has no such "
                "thing. Leave it out, or read without 'archive'."
            )
        self._table: ArchiveTable | None = None
        self._known: tuple[int, dict[Any, Coverage]] = (-1, {})
        #: Gateways whose name stands for them in the table: checked once.
        self._trusted: set[tuple[str, str]] = set()

    def __getstate__(self) -> dict[str, Any]:
        """Return what a task needs: the log is the driver's."""
        return {**self.__dict__, "_table": None, "_known": (-1, {})}

    def coverage(self, gateway: Mapping[str, Any], stream: str, epoch: int) -> Coverage:
        """Return what the newest version of the table has of a stream's life.

        `gateway` has `name` and `id`. Raises SluicegateError for the table of another gateway.
        """
        table = self._table
        if table is None:
            table = self._table = open_table(self.place)
        else:
            table.refresh()
        self._check(table, gateway["name"], gateway["id"])
        if self._known[0] != table.version:
            found = by_stream(table.files())
            self._known = table.version, {key: Coverage(files) for key, files in found.items()}
        return self._known[1].get((gateway["name"], stream, epoch)) or Coverage([])

    def _check(self, table: ArchiveTable, name: str, identity: str) -> None:
        if (name, identity) in self._trusted:
            return
        known = table.identity(name)
        if known != identity:
            what = f"of another gateway called {name!r}" if known else f"without a gateway {name!r}"
            raise SluicegateError(
                f"The archive {self.place.uri} is a table {what}; this one's id is {identity}. "
                "Name the table that the archive of this gateway writes."
            )
        self._trusted.add((name, identity))

    def first(
        self, gateway: Mapping[str, Any], stream: str, place: Sequence[int], wanted: str
    ) -> int:
        """Return where a new reader begins: at the table's first offset where it wants all.

        `place` is [epoch, floor] as the gateway has it; `wanted` is startingOffsets.
        """
        epoch, floor = place
        if floor == 0 or not (wanted == "earliest" or wanted.isdigit()):
            return floor
        low = 0 if wanted == "earliest" else int(wanted)
        cover = self.coverage(gateway, stream, epoch)
        start = cover.covered_from(low)
        whole = start is not None and not cover.gaps(start, floor)
        # A gap before the gateway's first offset is told as a loss when it is come to.
        return min(floor, start) if start is not None and (whole or start < floor) else floor

    def plan(
        self,
        gateway: Mapping[str, Any],
        loss: Mapping[str, Any],
        *,
        rows_max: int | None,
        bytes_max: int | None,
    ) -> tuple[int | None, Losses]:
        """Return how far a batch goes that begins in what a gateway has lost, and what stays lost.

        None: the table has nothing of it.
        """
        if loss["reason"] != _EXPIRED or loss["end"] <= loss["first"]:
            return None, [loss]
        cover = self.coverage(gateway, loss["stream"], loss["epoch"])
        start = cover.covered_from(loss["first"])
        if start is None or start >= loss["end"]:
            return None, [loss]
        end = cover.find_end(start, loss["end"], rows_max=rows_max, bytes_max=bytes_max)
        lost = [] if start == loss["first"] else [_narrowed(loss, loss["first"], start)]
        return end, lost

    def split(
        self, gateway: Mapping[str, Any], loss: Mapping[str, Any], end: int
    ) -> tuple[list[Piece], Losses]:
        """Return the parts of files of a batch up to `end` of what a gateway has lost.

        What neither has is returned as losses.
        """
        if loss["reason"] != _EXPIRED:
            return [], [loss]
        cover = self.coverage(gateway, loss["stream"], loss["epoch"])
        high = min(loss["end"], end)
        gaps = cover.gaps(loss["first"], high)
        return cover.pieces(loss["first"], high), [_narrowed(loss, a, b) for a, b in gaps]

    def partitions(self, pieces: Sequence[Piece]) -> list[InputPartition]:
        """Pack parts of files into tasks by their bytes."""
        options = self._options
        bins = pack(pieces, options["targetPartitionBytes"], options["maxPartitions"])
        return [ArchivedPartition(self.place, one) for one in bins]

    def pieces_of(self, gateway: Mapping[str, Any], span: Span) -> tuple[list[Piece], Losses]:
        """Return the parts of files of a range, and the losses in it."""
        loss = {
            "stream": span.stream, "epoch": span.epoch, "first": span.start, "end": span.end,
            "reason": _EXPIRED, "text": "",
        }  # fmt: skip
        return self.split(gateway, loss, span.end)


def _narrowed(loss: Mapping[str, Any], first: int, end: int) -> dict[str, Any]:
    text = (
        f"{loss['stream']} (life {loss['epoch']}): offsets {first} to {end - 1} are neither at the "
        "gateway nor in the archive"
    )
    return {**loss, "first": first, "end": end, "text": text}
