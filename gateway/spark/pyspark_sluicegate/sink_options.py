"""The options and columns of the Spark sink: what users write, checked before anything is written.

It knows no network and no Spark.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark_sluicegate.options import OPTIONS, Options, SluicegateError

#: Column -> the Spark types that it may have.
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "body": ("binary", "string"),
    "address": ("string",),
    "key": ("string",),
    "message_id": ("string",),
    "subject": ("string",),
    "content_type": ("string",),
    "correlation_id": ("string",),
    "reply_to": ("string",),
    "headers": ("map<string,string>", "string"),
    "priority": ("int", "tinyint", "smallint", "bigint"),
    "ttl_ms": ("bigint", "int"),
    "timestamp": ("timestamp",),
    "durable": ("boolean",),
}


def _routing(name: str, value: str) -> str:
    if value.strip().upper() not in ("", "ANYCAST", "MULTICAST"):
        raise SluicegateError(
            f"The option {name!r} is {value!r}; possible: anycast, multicast; "
            "as the address has it without."
        )
    return value.strip().upper()


def _number(name: str, value: str) -> int | None:
    if not value:
        return None
    if not (value.isascii() and value.isdigit() and len(value) <= 18):
        raise SluicegateError(
            f"The option {name!r} is {value!r}; it must be a whole number from 0."
        )
    return int(value)


def _producer(name: str, value: str) -> str:
    if len(value.encode()) > _PRODUCER_BYTES_MAX or not value.isprintable():
        raise SluicegateError(
            f"The option {name!r} is {value[:60]!r}; it must be printable and have at most "
            f"{_PRODUCER_BYTES_MAX} bytes."
        )
    return value


#: What a gateway takes as the name of a producer.
_PRODUCER_BYTES_MAX: Final = 200
#: Options that mean the same for reading.
_SHARED: Final = (
    "url",
    "address",
    "token",
    "tokenFile",
    "username",
    "password",
    "tlsCaFile",
    "readTimeout",
    "connectTimeout",
    "retryDeadline",
)
#: name -> default (empty: off, or required) and how a text becomes a value.
SINK_OPTIONS: Final[Mapping[str, tuple[str, Callable[[str, str], Any]]]] = {
    **{name: OPTIONS[name] for name in _SHARED},
    "routing": ("", _routing),
    "producerId": ("", _producer),
    "batchId": ("", _number),
}
#: What Spark itself adds to the options of a writer.
_SPARKS: Final = frozenset({"checkpointlocation", "queryname", "outputmode"})
_MEANT: Final = {
    "queue": "address",
    "topic": "address",
    "path": "address",
    "deliverymode": "routing",
    "routingtype": "routing",
    "transactionalid": "producerId",
    "txnappid": "producerId",
    "txnversion": "batchId",
}


def parse_sink_options(given: Mapping[str, str]) -> Options:
    """Return the checked options; raises SluicegateError naming option, rule and value."""
    names = {name.lower(): name for name in SINK_OPTIONS}
    texts = {name: default for name, (default, _) in SINK_OPTIONS.items()}
    for name, value in given.items():
        lower = name.lower()
        if lower in names:
            texts[names[lower]] = str(value)
        elif lower not in _SPARKS:
            raise SluicegateError(f"The option {name!r} {_why_not(lower)}")
    options: Options = {name: SINK_OPTIONS[name][1](name, one) for name, one in texts.items()}
    if len(options["url"]) != 1:
        raise SluicegateError(
            "The option 'url' must be one http[s]://host:port: a batch is published by one gateway."
        )
    if options["batchId"] is not None and not options["producerId"]:
        raise SluicegateError("The option 'batchId' needs 'producerId' beside it.")
    if bool(options["username"]) != bool(options["password"]):
        raise SluicegateError("The options 'username' and 'password' go together.")
    if sum(bool(options[name]) for name in ("username", "token", "tokenFile")) > 1:
        raise SluicegateError("Give one of 'token', 'tokenFile' and 'username' with 'password'.")
    return options


def _why_not(name: str) -> str:
    sources = {known.lower(): known for known in OPTIONS}
    if name in sources:
        return f"is for reading, and this is a writer; known here are: {', '.join(SINK_OPTIONS)}."
    names = {known.lower(): known for known in SINK_OPTIONS}
    near = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    meant = _MEANT.get(name) or (names[near[0]] if near else None)
    hint = f"did you mean {meant!r}?" if meant else f"known are: {', '.join(SINK_OPTIONS)}."
    return f"is unknown; {hint}"


def check_columns(columns: Mapping[str, str], options: Options) -> None:
    """Raise SluicegateError unless these columns, name -> Spark type, can be written."""
    for name, kind in columns.items():
        if name not in COLUMNS:
            near = difflib.get_close_matches(name.lower(), list(COLUMNS), n=1, cutoff=0.6)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise SluicegateError(
                f"The column {name!r} ({kind}) cannot be written; {hint}Possible: "
                f"{', '.join(COLUMNS)}. Select these, or drop the others."
            )
        if kind not in COLUMNS[name]:
            raise SluicegateError(
                f"The column {name!r} is {kind}; it must be {' or '.join(COLUMNS[name])}. "
                f"Cast it, as col({name!r}).cast({COLUMNS[name][0]!r})."
            )
    if "body" not in columns:
        raise SluicegateError(
            "The column 'body' (binary or string) is missing; it is what is sent. to_json(struct("
            "...)).alias('body') makes one of several columns."
        )
    if options["address"] and "address" in columns:
        raise SluicegateError(
            f"The option 'address' is {options['address']!r} and there is a column 'address' too; "
            "drop one of them: which is meant cannot be known."
        )
    if not options["address"] and "address" not in columns:
        raise SluicegateError(
            "There is neither the option 'address' nor a column 'address'; one of them says where "
            "the rows go."
        )
