"""The bodies of calls of streams, as they are read: unknown fields and other types are refused."""

from __future__ import annotations

import msgspec

from gateway.management.answers import Fields

#: Epoch and next offset.
Position = tuple[int, int]


class NewStream(Fields):
    """Body of `POST /streams`."""

    name: str
    address: str


class Attach(Fields):
    """Body of `:attach`: one address, or all tapped ones that `address_pattern` fits."""

    address: str | None = None
    address_pattern: str | None = None
    starting_offsets: str = "latest"
    starting_timestamp_ms: int | None = None
    role: str = ""
    position: dict[str, Position] | None = None
    selector: str = ""


class Plan(Fields):
    """Body of `:plan`; with `end` the size of a known range, else how far a batch may go.

    With `address_pattern` streams that are new join with `fence`, from `new_stream_offsets` on.
    """

    start: dict[str, Position]
    end: dict[str, Position] | None = None
    frozen: dict[str, Position] | None = None
    max_messages: int | None = None
    max_bytes: int | None = None
    wait_ms: int = 0
    address_pattern: str | None = None
    new_stream_offsets: str = "earliest"
    role: str = ""
    selector: str = ""
    fence: int = 0


class Commit(Fields):
    """Body of `:commit` and `:release`."""

    end: dict[str, Position]
    fence: int


class Heads(Fields):
    """Body of `POST /streams/heads`."""

    address: str | None = None
    address_pattern: str | None = None
    pin: str | None = None
    pin_ms: int = 3_600_000
    selector: str = ""


class Find(Fields):
    """Body of `:find`."""

    timestamp_ms: int


class ReadRange(Fields):
    """One range of `POST /streams/read`."""

    stream: str
    epoch: int
    start: int
    end: int


class Read(Fields):
    """Body of `POST /streams/read`."""

    ranges: list[ReadRange]
    columns: list[str] = msgspec.field(default_factory=list)
    form: str = "columns"
    headers: str = "false"
    body: str = "binary"
    skip_losses: bool = False
    selector: str = ""
    pin: str | None = None
    pin_ms: int = 3_600_000
