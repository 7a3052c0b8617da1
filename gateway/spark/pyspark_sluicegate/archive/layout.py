"""The form of the table: its columns, the names of its files, and the facts of one file.

    gateway=NAME/address=ADDRESS/date=YYYY-MM-DD/part-EPOCH-FIRST-END-NONCE.parquet

A file holds the rows of one range [FIRST, END) of offsets of one life (EPOCH) of one stream, sorted
by offset, all of one UTC day. Offsets of the range without a row are holes: the gateway declared
that no message ever had them. A file whose name begins with `lost` has no rows: its range was gone
before the archive came to it, and the archive was told to go on. A file without rows has no day.

Pure: knows no store and no log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa

from pyspark_sluicegate.options import SluicegateError

PARTITIONED: Final = ("gateway", "address", "date")
_STAMP: Final = pa.timestamp("us", tz="UTC")
_TEXTS: Final = pa.map_(pa.string(), pa.string())
#: What a file holds, in its order. A later version adds columns at the end and changes none.
STORED: Final[Mapping[str, pa.DataType]] = {
    "stream": pa.string(),
    "epoch": pa.int32(),
    "offset": pa.int64(),
    "timestamp": _STAMP,
    "message_id": pa.string(),
    "subject": pa.string(),
    "content_type": pa.string(),
    "correlation_id": pa.string(),
    "reply_to": pa.string(),
    "key": pa.string(),
    "body": pa.binary(),
    "headers": _TEXTS,
    "priority": pa.int32(),
    "ttl_ms": pa.int64(),
    "created": _STAMP,
    "expires": _STAMP,
    "durable": pa.bool_(),
    "redelivered": pa.bool_(),
    "delivery_count": pa.int32(),
    "size": pa.int32(),
    "protocol": pa.string(),
    "annotations": _TEXTS,
    "traceparent": pa.string(),
}
#: Only in tables of an archive that was told to keep it.
OPTIONAL: Final[Mapping[str, pa.DataType]] = {"amqp": pa.binary()}

_NAME: Final = re.compile(r"(part|lost)-(\d{1,10})-(\d{1,19})-(\d{1,19})-[0-9a-z]+\.parquet")
#: How Hive, and all who read its folders, call the folder of a value that is null.
_NO_DATE: Final = "__HIVE_DEFAULT_PARTITION__"

#: A stream in the table: gateway, stream, epoch.
Key = tuple[str, str, int]


def file_schema(*, raw: bool) -> pa.Schema:
    """Return the schema of a file; with `raw` it ends in the encoded message."""
    return pa.schema({**STORED, **(OPTIONAL if raw else {})})


def table_schema(*, raw: bool) -> pa.Schema:
    """Return the schema of the table: the partition columns, then those of the files."""
    kinds = {"gateway": pa.string(), "address": pa.string(), "date": pa.date32()}
    return pa.schema({**kinds, **STORED, **(OPTIONAL if raw else {})})


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """One file of the table.

    Attributes:
        path: below the table's folder.
        size: in bytes.
        date: UTC day of its rows as `YYYY-MM-DD`; None without rows.
        epoch: the life of the stream.
        first: the range of offsets that it covers is [first, end).
        rows: fewer than `end - first` where the gateway declared holes.
        lost: the range was gone; there are no rows.
        low: the lowest offset of a row; None without rows.
        high: the highest.
        earliest: of the column `timestamp`, in microseconds since 1970; None without rows.
        latest: as before.
    """

    path: str
    size: int
    gateway: str
    address: str
    date: str | None
    stream: str
    epoch: int
    first: int
    end: int
    rows: int
    lost: bool = False
    low: int | None = None
    high: int | None = None
    earliest: int | None = None
    latest: int | None = None

    @property
    def key(self) -> Key:
        return self.gateway, self.stream, self.epoch

    def partition_values(self) -> dict[str, str | None]:
        return {"gateway": self.gateway, "address": self.address, "date": self.date}

    def stats(self) -> str:
        """Return the file's statistics as Delta's log has them."""
        low: dict[str, object] = {"stream": self.stream, "epoch": self.epoch}
        high: dict[str, object] = dict(low)
        if self.rows and self.earliest is not None and self.latest is not None:
            low |= {"offset": self.low, "timestamp": _stamp(self.earliest, up=False)}
            high |= {"offset": self.high, "timestamp": _stamp(self.latest, up=True)}
        nulls = dict.fromkeys(low, 0)
        return json.dumps(
            {"numRecords": self.rows, "minValues": low, "maxValues": high, "nullCount": nulls}
        )

    def to_row(self) -> dict[str, Any]:
        """Return it as a row of plain values; `FileFacts(**row)` is its way back."""
        return asdict(self)


def _stamp(micros: int, *, up: bool) -> str:
    """Return a bound as ISO text with milliseconds, which is all that Delta's statistics keep."""
    millis = -(-micros // 1000) if up else micros // 1000
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{millis % 1000:03d}Z"


def make_path(
    gateway: str, address: str, day: str | None, span: tuple[int, int, int], *, nonce: str,
    lost: bool = False,
) -> str:  # fmt: skip
    """Return the path of a file for `span` (epoch, first, end); `nonce` makes it the only one."""
    epoch, first, end = span
    folder = f"gateway={_quote(gateway)}/address={_quote(address)}/date={day or _NO_DATE}"
    kind = "lost" if lost else "part"
    return f"{folder}/{kind}-{epoch}-{first:019d}-{end:019d}-{nonce}.parquet"


def _quote(value: str) -> str:
    # Readers of Hive's folders decode once. A dot alone would be a step in the path.
    return quote(value, safe="").replace(".", "%2E") if set(value) <= {"."} else quote(value, "")


def read_facts(action: Mapping[str, Any]) -> FileFacts:
    """Return the facts of a file of the log, whose add action is `action`, flattened.

    What another program has rewritten (its name says nothing) is judged by its statistics.
    Raises SluicegateError for a file that can be no part of an archive.
    """
    path, day = unquote(str(action["path"])), action["partition.date"]
    low, high = action.get("min.offset"), action.get("max.offset")
    epoch, named = action.get("min.epoch"), _NAME.fullmatch(path.rpartition("/")[2])
    first, end = low, None if high is None else int(high) + 1
    if named is not None:
        epoch, first, end = int(named[2]), int(named[3]), int(named[4])
    stream, rows = action.get("min.stream"), action["num_records"]
    whole = stream == action.get("max.stream") and epoch == action.get("max.epoch")
    if None in (stream, epoch, first, end, rows) or not whole:
        raise SluicegateError(
            f"The file {path!r} of the table does not say which offsets of which stream it holds. "
            "Another program has written it; an archive's files come from the archive alone."
        )
    return FileFacts(
        path=path,
        size=int(action["size_bytes"]),
        gateway=str(action["partition.gateway"]),
        address=str(action["partition.address"]),
        date=day.isoformat() if isinstance(day, date) else None,
        stream=str(stream),
        epoch=int(epoch),  # type: ignore[arg-type]
        first=int(first),  # type: ignore[arg-type]
        end=int(end),  # type: ignore[arg-type]
        rows=int(rows),
        lost=named is not None and named[1] == "lost",
        low=low,
        high=high,
        earliest=_micros(action.get("min.timestamp")),
        latest=_micros(action.get("max.timestamp")),
    )


def _micros(moment: object) -> int | None:
    if not isinstance(moment, datetime):
        return None
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def app_id(key: Key) -> str:
    """Return the application of Delta's transactions that carries a stream's end offset."""
    gateway, stream, epoch = key
    return f"sluicegate:{_quote(gateway)}/{_quote(stream)}/{epoch}"


def by_stream(files: Sequence[FileFacts]) -> dict[Key, list[FileFacts]]:
    """Return files by stream, each list in the order of its offsets."""
    found: dict[Key, list[FileFacts]] = {}
    for one in sorted(files, key=lambda one: (one.key, one.first, one.end)):
        found.setdefault(one.key, []).append(one)
    return found
