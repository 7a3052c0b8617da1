"""What a stage is: an Arrow IPC stream whose schema has these columns, and says the rest itself.

    body                    binary (a data section) or string (an amqp-value); required
    address                 string; in its place the schema's metadata may name one for all rows
    key                     string: group-id
    message_id, subject, content_type, correlation_id, reply_to      string
    headers                 map<string, string>, or string: a JSON object; application-properties
    priority, ttl_ms        integers
    timestamp               timestamp: creation-time
    durable                 boolean; true where it is null or missing

Metadata of the schema: `sluicegate.address`, `sluicegate.routing` (ANYCAST or MULTICAST). Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from gateway.model.address import RoutingType
from gateway.model.errors import Code, RefusedError

_Test = Callable[[pa.DataType], bool]


def _timestamp(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.unit == "us"


def _headers(kind: pa.DataType) -> bool:
    text = pa.types.is_string
    return bool(text(kind)) or (
        bool(pa.types.is_map(kind)) and text(kind.key_type) and text(kind.item_type)
    )


def _body(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_string(kind))


_TEXT: Final[tuple[_Test, str]] = (pa.types.is_string, "string")
#: Column -> whether a type will do, and which will.
COLUMNS: Final[Mapping[str, tuple[_Test, str]]] = {
    "body": (_body, "binary or string"),
    "address": _TEXT,
    "key": _TEXT,
    "message_id": _TEXT,
    "subject": _TEXT,
    "content_type": _TEXT,
    "correlation_id": _TEXT,
    "reply_to": _TEXT,
    "headers": (_headers, "map<string, string> or string"),
    "priority": (pa.types.is_integer, "an integer"),
    "ttl_ms": (pa.types.is_integer, "an integer"),
    "timestamp": (_timestamp, "timestamp[us]"),
    "durable": (pa.types.is_boolean, "bool"),
}


@dataclass(frozen=True, slots=True)
class Form:
    """What all rows of a stage have in common.

    Attributes:
        address: of all rows; None: each row names its own.
        routing: how they are routed; None: as the address has it.
        names: the columns that are there.
        is_text: bodies are strings.
    """

    address: str | None
    routing: RoutingType | None
    names: frozenset[str]
    is_text: bool


def read_form(schema: pa.Schema) -> Form:
    """Return what a schema says. Raises RefusedError (bad-value) for one that is no stage's."""
    try:
        return _read_form(schema)
    except UnicodeDecodeError as error:
        raise _bad(f"A column of the stage has a name that is no UTF-8: {error}.") from error


def _read_form(schema: pa.Schema) -> Form:
    for field in schema:
        known = COLUMNS.get(field.name)
        if known is None:
            raise _bad(f"A stage has the column {field.name[:60]!a}; possible: {_possible()}.")
        if not known[0](field.type):
            raise _bad(f"The column {field.name!r} is {field.type}; it must be {known[1]}.")
    names = schema.names
    if "body" not in names or len(set(names)) < len(names):
        raise _bad(f"A stage has the columns {', '.join(names)}; it needs 'body', and each once.")
    said = schema.metadata or {}
    address = said.get(b"sluicegate.address", b"").decode("utf-8", "replace") or None
    if (address is None) is ("address" not in names):
        raise _bad("A stage has either a column 'address' or an address for all rows, not both.")
    routing = said.get(b"sluicegate.routing", b"").decode("ascii", "replace")
    if routing not in ("", *RoutingType.__members__):
        raise _bad(f"A stage's routing is {routing[:40]!a}; possible: ANYCAST, MULTICAST.")
    return Form(
        address=address,
        routing=RoutingType[routing] if routing else None,
        names=frozenset(names),
        is_text=bool(pa.types.is_string(schema.field("body").type)),
    )


def _possible() -> str:
    return ", ".join(COLUMNS)


def _bad(text: str) -> RefusedError:
    return RefusedError.of(Code.BAD_VALUE, text)
