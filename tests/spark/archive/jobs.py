"""The archive's query as Spark runs it, step by step, without a JVM; and rows made by hand."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyspark_sluicegate.archive.committing import Committed, Committer
from pyspark_sluicegate.archive.layout import FileFacts, app_id, file_schema
from pyspark_sluicegate.archive.ledger import decide
from pyspark_sluicegate.archive.store import Location, parse_location
from pyspark_sluicegate.archive.table import ArchiveTable, open_table
from pyspark_sluicegate.archive.writing import Target, write_range
from pyspark_sluicegate.pipelines.files_source import ArchiveFiles
from pyspark_sluicegate.source import DefaultSource

NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)
_numbers = itertools.count()


def nonce() -> str:
    """Return a name that no other file of the tests has."""
    return f"{next(_numbers):08x}"


def at(folder: Path) -> Location:
    return parse_location("archive", {"archive": str(folder)})


def rows(first: int, end: int, *, holes: Sequence[int] = (), start: datetime = NOON) -> Any:
    """Return rows as a gateway sends them, a second apart."""
    made = [
        {
            "epoch": 1, "offset": i, "timestamp": start + timedelta(seconds=i), "body": b"%d" % i,
            "headers": [("n", str(i))], "durable": True, "size": 10, "protocol": "amqp",
        }
        for i in range(first, end) if i not in holes
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(made, schema=file_schema(raw=False).remove(0))


def target(first: int, end: int, **given: Any) -> Target:
    facts: dict[str, Any] = {
        "gateway": "g", "address": "orders", "stream": "orders", "epoch": 1, "start": first,
        "end": end, "schema": file_schema(raw=False), "file_bytes": 1 << 27, "compression": "zstd",
    }  # fmt: skip
    return Target(**{**facts, **given})


def write(place: Location, first: int, end: int, **given: Any) -> list[FileFacts]:
    """Write one range as a task does."""
    holes, start = given.pop("holes", ()), given.pop("start", NOON)
    wanted = target(first, end, **given)
    return list(write_range([rows(first, end, holes=holes, start=start)], wanted, place, nonce))


def add(table: ArchiveTable, files: Sequence[FileFacts]) -> None:
    """Commit files as the archive does."""
    table.introduce("g", "id of g")
    made = decide(files, table.ends([one.key for one in files]))
    table.commit(files, {app_id(key): end for key, end in made.ends.items()}, 1)


def table_of(folder: Path, *ranges: tuple[int, int]) -> ArchiveTable:
    """Return a table with the stream `orders` of the gateway `g` in files of these ranges."""
    table = open_table(at(folder), create=True)
    for first, end in ranges:
        add(table, write(table.place, first, end))
    return table


class Job:
    """One archive: what Spark remembers (`checkpoint`) and what its process does (`start`)."""

    def __init__(self, place: Path | Location, **options: str) -> None:
        self.place = place if isinstance(place, Location) else at(place)
        #: Spark's id of the query: a new one with each new checkpoint.
        self.query = f"query {nonce()}"
        self.options = options
        self.checkpoint: dict[str, Any] = {"offsets": [], "commits": 0}
        self.start()

    def start(self) -> None:
        """Begin as a new process, from the checkpoint."""
        given = {
            "archive": self.place.uri, "archiveEndpoint": self.place.endpoint,
            "archiveRegion": self.place.region, "subscription": "archive",
            "startingOffsets": "earliest", "retryDeadline": "20s", "pollInterval": "20ms",
            **self.options,
        }  # fmt: skip
        source = ArchiveFiles({k: v for k, v in given.items() if v})
        self.reader = source.streamReader(None)  # type: ignore[arg-type]
        self.tasks = pickle.loads(pickle.dumps(source.streamReader(None)))  # type: ignore[arg-type]
        self.committer = Committer(self.place, lambda: 1, nonce)
        self.committed: list[Committed] = []

    def plan(self) -> bool:
        """Write the next batch ahead, unless one is under way; returns whether there is one."""
        offsets = self.checkpoint["offsets"]
        if len(offsets) > self.checkpoint["commits"]:
            return True
        start = json.loads(offsets[-1]) if offsets else self.reader.initialOffset()
        end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
        if end == start:
            return False
        offsets.append(json.dumps(end))
        if len(offsets) > 1:
            self.reader.commit(json.loads(offsets[-2]))
        return True

    def write(self) -> list[dict[str, Any]]:
        """Run the tasks of the batch; returns the rows that the driver collects."""
        offsets = self.checkpoint["offsets"]
        start = json.loads(offsets[-2]) if len(offsets) > 1 else self.reader.initialOffset()
        parts = pickle.loads(
            pickle.dumps(list(self.reader.partitions(start, json.loads(offsets[-1]))))
        )
        return [row for part in parts for b in self.tasks.read(part) for row in b.to_pylist()]

    def commit(self, found: list[dict[str, Any]]) -> Committed:
        for row in found:
            self.committer.introduce(row["gateway"], row.pop("identity"))
        files = [FileFacts(**row) for row in found]
        made = self.committer.commit(files, self.query, len(self.checkpoint["offsets"]) - 1)
        self.committed.append(made)
        return made

    def note(self) -> None:
        """Have Spark know that the batch is done."""
        self.checkpoint["commits"] = len(self.checkpoint["offsets"])

    def run(self) -> None:
        """Archive all there is."""
        while self.plan():
            self.commit(self.write())
            self.note()


def table_rows(place: Path | Location) -> dict[tuple[str, str, int], list[int]]:
    """Return the offsets of each stream, whose bodies are their offsets."""
    return table_rows_of(place, numbered=True)


def table_rows_of(
    place: Path | Location, *, numbered: bool = False
) -> dict[tuple[str, str, int], list[int]]:
    """Return the offsets of each stream, as an ordinary reader of the table finds them."""
    found: dict[tuple[str, str, int], list[int]] = {}
    where = place if isinstance(place, Location) else at(place)
    table = open_table(where)
    from deltalake import DeltaTable

    delta = DeltaTable(where.table_uri(), storage_options=where.table_options())
    assert delta.version() == table.version
    columns = ["gateway", "stream", "epoch", "offset", "body"]
    for row in delta.to_pyarrow_table(columns=columns).to_pylist():
        assert not numbered or row["body"] == b"%d" % row["offset"]
        key = (row["gateway"], row["stream"], row["epoch"])
        found.setdefault(key, []).append(row["offset"])
    return {key: sorted(offsets) for key, offsets in found.items()}


def source(url: str, table: Path | Location, **options: str) -> DefaultSource:
    """Return the source that reads `url` and the table."""
    place = table if isinstance(table, Location) else at(table)
    given = {
        "url": url, "subscription": "reader", "startingOffsets": "earliest",
        "retryDeadline": "20s", "pollInterval": "20ms", "archive": place.uri,
        "archiveEndpoint": place.endpoint, "archiveRegion": place.region,
    }  # fmt: skip
    return DefaultSource({k: v for k, v in {**given, **options}.items() if v})
