"""A dead letter as the pipeline `dead-letters` sees it: where it was, why it is here, what it says.

Gateways write where a message was into an AMQP message's annotations and into a STOMP message's
headers; both come to the same columns here. Pure: Arrow in, Arrow out.

    cause           means
    expired         its time was over
    undelivered     rejected, or NACKed, or delivered as often as is allowed
    unrouted        no queue of its address took it
    direct          sent to this address by a client: it has no origin
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from pyspark_sluicegate.options import COLUMNS as SOURCE_COLUMNS
from pyspark_sluicegate.stored.model.amqp_values import DecodeError
from pyspark_sluicegate.stored.model.section_scan import DATA, VALUE, section_at

#: Column -> its Spark type, in order.
COLUMNS: Final[Mapping[str, str]] = {
    "offset": "bigint",
    "timestamp": "timestamp",
    "cause": "string",
    "original_address": "string",
    "original_queue": "string",
    "message_id": "string",
    "subject": "string",
    "content_type": "string",
    "correlation_id": "string",
    "reply_to": "string",
    "key": "string",
    "priority": "int",
    "durable": "boolean",
    "created": "timestamp",
    "protocol": "string",
    "headers": "string",
    "text": "string",
    "body": "binary",
}
#: What is read of the source for them: column -> its Spark type.
READ: Final[Mapping[str, str]] = {
    **{
        name: SOURCE_COLUMNS[name][0]
        for name in COLUMNS
        if name in SOURCE_COLUMNS and name != "headers"
    },
    "headers": "string",
    "annotations": "map<string,string>",
    "amqp": "binary",
}
CAUSES: Final = ("expired", "undelivered", "unrouted", "direct")
_KINDS: Final[Mapping[str, pa.DataType]] = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
SCHEMA: Final = pa.schema([(name, _KINDS[kind]) for name, kind in COLUMNS.items()])
_AMQP: Final = ("x-opt-ORIG-ADDRESS", "x-opt-ORIG-QUEUE", "x-opt-ACTUAL-EXPIRY")
_STOMP: Final = ("_AMQ_ORIG_ADDRESS", "_AMQ_ORIG_QUEUE", "_AMQ_ACTUAL_EXPIRY")
#: Headers of a STOMP message that go when it is sent again: they tell of this death, or of how it
#: was sent, or are columns.
_OWN: Final = (
    *_STOMP,
    "_AMQ_ORIG_MESSAGE_ID",
    "_AMQ_ORIG_ROUTING_TYPE",
    "destination-type",
    "timestamp",
)
#: A STOMP message does not say whether it is a text; these do.
_TEXTUAL: Final = ("text/", "application/json", "application/xml")
_STRINGS: Final = frozenset({0xA1, 0xB1})


def letters(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns of `COLUMNS` for rows with those of `READ`."""
    made = [letter(row) for row in rows.to_pylist()]
    return pa.RecordBatch.from_pylist(made, schema=SCHEMA)


def letter(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return one dead letter, given a row of the source."""
    headers = json.loads(row["headers"] or "{}")
    if row["protocol"] == "stomp":
        address, queue, expired = (headers.get(name) for name in _STOMP)
        headers = {name: value for name, value in headers.items() if name not in _OWN}
    else:
        notes = dict(row["annotations"] or ())
        address, queue, expired = (notes.get(name) for name in _AMQP)
    text = text_of(row)
    content_type = row["content_type"]
    if content_type is None and row["protocol"] == "amqp" and is_converted(row["amqp"]):
        content_type = "application/json"
    kept = {name: value for name, value in headers.items() if is_header(value)}
    return {
        **{name: row.get(name) for name in COLUMNS},
        "cause": cause_of_death(address, queue, expired),
        "original_address": address,
        "original_queue": queue,
        "content_type": content_type,
        "headers": json.dumps(kept, ensure_ascii=False) if kept else None,
        "text": text,
    }


def cause_of_death(address: str | None, queue: str | None, expired: object) -> str:
    """Return why a message with these facts is here."""
    if expired:
        return "expired"
    if address and queue:
        return "undelivered"
    return "unrouted" if address else "direct"


def is_header(value: object) -> bool:
    """Whether a header can be sent again: one value, and a number that JSON has."""
    if isinstance(value, bool | str | None):
        return True
    if isinstance(value, int):
        return -(1 << 63) <= value < 1 << 63
    return isinstance(value, float) and value - value == 0.0


def text_of(row: Mapping[str, Any]) -> str | None:
    """Return the body where it is a text and is to be one when it is sent again; None: bytes."""
    body = row["body"]
    if body is None:
        return None
    if row["protocol"] == "stomp":
        kind = (row["content_type"] or "text/").lower()
        is_text = kind.startswith(_TEXTUAL) or "+json" in kind or "+xml" in kind
    else:
        section = body_section(row["amqp"])
        is_text = section is not None and section != DATA
    if not is_text:
        return None
    try:
        return str(body, "utf-8")
    except UnicodeDecodeError:
        return None


def body_section(raw: bytes) -> int | None:
    """Return the code of the first body section of an AMQP message; None where there is none."""
    return _body_at(raw)[0]


def is_converted(raw: bytes) -> bool:
    """Whether the column `body` shows a body as JSON that was a map, list or number in AMQP."""
    section, at = _body_at(raw)
    if section is None or section == DATA:
        return False
    # A binary in an amqp-value is shown as its bytes.
    return section != VALUE or raw[at] not in _STRINGS | {0xA0, 0xB0, 0x40}


def _body_at(raw: bytes) -> tuple[int | None, int]:
    at = 0
    try:
        while at < len(raw):
            code, start, at = section_at(raw, at)
            if DATA <= code <= VALUE:
                return code, start
    except DecodeError:
        pass
    return None, 0
