"""What the configuration says of streams: taps, what of them stays here, the table behind them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Final

from gateway.config import values as v
from gateway.model.bounds import at_least
from gateway.model.rows import Reach, Unit

AT_ONCE: Final = Reach.AT_ONCE
REFUSED: Final = Reach.REFUSED
RESTART: Final = Reach.RESTART


class Retain(Enum):
    """What of a stream stays on the disk: ALL within its bounds, or what is not ARCHIVED yet."""

    ALL = "all"
    ARCHIVED = "archived"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """One `[streams."NAME"]`: a tap on an address that exists from the start on.

    Attributes:
        name: the NAME of its table.
        address: the address whose messages it keeps.
        retain: `archived` lets go of what an archive has, above `local-bytes`; `all` keeps it; not
            written: `stream-retain`.
        local_bytes: bytes that stay here although they are archived; not written:
            `stream-local-bytes`.
        retention_bytes: bytes above which the oldest go, whoever wants them; not written:
            `stream-retention-bytes`.
    """

    name: str
    address: Annotated[str, REFUSED, v.Read(v.address)]
    retain: Annotated[Retain | None, AT_ONCE] = None
    local_bytes: Annotated[int | None, AT_ONCE, Unit.BYTES, at_least(1)] = None
    retention_bytes: Annotated[int | None, AT_ONCE, Unit.BYTES, at_least(1)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveConfig:
    """`[archive]`: the table that keeps the history of this gateway's streams.

    Attributes:
        table: `s3://bucket/path`, `gs://`, `az://` or an absolute folder; a gateway without any
            stream takes over from it the streams of its `name`; empty: none.
        endpoint: of an S3-compatible store.
        region: of the bucket.
    """

    table: Annotated[str, RESTART] = ""
    endpoint: Annotated[str, RESTART] = ""
    region: Annotated[str, RESTART] = ""
