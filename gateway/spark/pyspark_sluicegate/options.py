"""The options and columns of the Spark source: what users write, checked before anything is done.

An unknown option is refused with the nearest known one: a cap that is silently ignored is worse
than a query that does not start. It knows no network and no Spark.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

#: Every column with the Spark types it can have; the first nine are the default.
COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "address": ["string"],
    "offset": ["bigint"],
    "timestamp": ["timestamp"],
    "message_id": ["string"],
    "subject": ["string"],
    "content_type": ["string"],
    "correlation_id": ["string"],
    "reply_to": ["string"],
    "body": ["binary", "string"],
    "headers": ["map<string,string>", "string"],
    "epoch": ["int"],
    "key": ["string"],
    "priority": ["int"],
    "ttl_ms": ["bigint"],
    "created": ["timestamp"],
    "expires": ["timestamp"],
    "durable": ["boolean"],
    "redelivered": ["boolean"],
    "delivery_count": ["int"],
    "size": ["int"],
    "protocol": ["string"],
    "annotations": ["map<string,string>"],
    "amqp": ["binary"],
}

#: name -> value, as `OPTIONS` says.
Options = dict[str, Any]


class SluicegateError(Exception):
    """What the source cannot do, with the reason and the way out."""


def _text(_: str, value: str) -> str:
    return value


def _urls(name: str, value: str) -> list[str]:
    urls = [part.strip().rstrip("/") for part in value.split(",") if part.strip()]
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path:
            raise SluicegateError(
                f"The option {name!r} has {url!r}; it must be http[s]://host:port."
            )
    if len(set(urls)) != len(urls):
        raise SluicegateError(f"The option {name!r} is {value!r}; it must list each gateway once.")
    return urls


def _names(name: str, value: str) -> list[str]:
    names = [part.strip() for part in value.split(",")] if value else list(COLUMNS)[:9]
    for one in names:
        if one not in COLUMNS or names.count(one) > 1:
            known = ", ".join(COLUMNS)
            raise SluicegateError(f"The option {name!r} has {one!r}; possible, once: {known}.")
    return names


def _one_of(*possible: str) -> Callable[[str, str], str]:
    def parse(name: str, value: str) -> str:
        if value.strip().lower() not in possible:
            allowed = ", ".join(possible)
            raise SluicegateError(f"The option {name!r} is {value!r}; possible: {allowed}.")
        return value.strip().lower()

    return parse


def parse_size(name: str, value: str) -> int | None:
    """Return bytes or a count; None for an empty text. Raises SluicegateError."""
    if not value:
        return None
    match = re.fullmatch(r"\s*(\d{1,15})\s*([kmg]?)(i?b)?\s*", value.lower())
    size = int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2]] if match else 0
    if size < 1:
        raise SluicegateError(f"The option {name!r} is {value!r}; like 1000, 64k, 512m, 2g.")
    return size


def _seconds(name: str, value: str) -> float:
    match = re.fullmatch(r"\s*(\d{1,9})\s*(ms|s|m|h|)\s*", value.lower())
    if match is None:
        raise SluicegateError(f"The option {name!r} is {value!r}; like 500ms, 30s, 2m, 1h.")
    return int(match[1]) * {"": 0.001, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}[match[2]]


_FLAG: Final = _one_of("true", "false")
#: name -> default (empty: off, or required) and how a text becomes a value.
OPTIONS: Final[Mapping[str, tuple[str, Callable[[str, str], Any]]]] = {
    "url": ("", _urls),
    "address": ("", _text),
    "addressPattern": ("", _text),
    "newStreamOffsets": ("earliest", _one_of("earliest", "latest")),
    "subscription": ("", _text),
    "startingOffsets": ("", _text),
    "endingOffsets": ("latest", _text),
    "maxMessagesPerTrigger": ("", parse_size),
    "maxBytesPerTrigger": ("512m", parse_size),
    "minPartitions": ("1", parse_size),
    "maxPartitions": ("64", parse_size),
    "targetPartitionBytes": ("64m", parse_size),
    "includeHeaders": ("false", _one_of("false", "map", "json")),
    "columns": ("", _names),
    "bodyFormat": ("binary", _one_of("binary", "string", "amqp")),
    "failOnDataLoss": ("true", _FLAG),
    "commitMode": ("idle", _one_of("idle", "engine", "off")),
    "token": ("", _text),
    "tokenFile": ("", _text),
    "username": ("", _text),
    "password": ("", _text),
    "tlsCaFile": ("", _text),
    "readTimeout": ("30s", _seconds),
    "connectTimeout": ("5s", _seconds),
    "retryDeadline": ("2m", _seconds),
    "pollInterval": ("100ms", _seconds),
    "archive": ("", _text),
    "archiveEndpoint": ("", _text),
    "archiveRegion": ("", _text),
}


#: What other sources call it.
_MEANT: Final = {
    "maxoffsetspertrigger": "maxMessagesPerTrigger",
    "maxeventspertrigger": "maxMessagesPerTrigger",
    "startingposition": "startingOffsets",
    "queue": "address",
    "queues": "address",
    "topic": "address",
    "subscribe": "address",
    "path": "address",
    "groupid": "subscription",
}


def parse_options(given: Mapping[str, str]) -> Options:
    """Return the checked options; raises SluicegateError naming option, rule and value."""
    names = {name.lower(): name for name in OPTIONS}
    texts = {name: default for name, (default, _) in OPTIONS.items()}
    for name, value in given.items():
        if name.lower() not in names:
            raise SluicegateError(f"The option {name!r} is unknown; {_hint(name.lower())}")
        texts[names[name.lower()]] = str(value)
    options: Options = {name: OPTIONS[name][1](name, text) for name, text in texts.items()}
    if not options["url"]:
        raise SluicegateError("The option 'url' is required.")
    if bool(options["address"]) == bool(options["addressPattern"]):
        what = "exclude each other" if options["address"] else "are both missing: one is required"
        raise SluicegateError(f"The options 'address' and 'addressPattern' {what}.")
    least, most = options["minPartitions"], options["maxPartitions"]
    if least > most:
        raise SluicegateError(f"minPartitions ({least}) is above maxPartitions ({most}).")
    if bool(options["username"]) != bool(options["password"]):
        raise SluicegateError("The options 'username' and 'password' go together.")
    if sum(bool(options[name]) for name in ("username", "token", "tokenFile")) > 1:
        raise SluicegateError("Give one of 'token', 'tokenFile' and 'username' with 'password'.")
    _check_archive(options)
    if options["includeHeaders"] != "false" and "headers" not in options["columns"]:
        options["columns"].append("headers")
    return options


def _check_archive(options: Options) -> None:
    if not options["archive"]:
        given = [n for n in ("archiveEndpoint", "archiveRegion") if options[n]]
        if given:
            raise SluicegateError(f"The option {given[0]!r} needs the option 'archive'.")
        return
    if options["includeHeaders"] == "json":
        raise SluicegateError(
            "The option 'includeHeaders' is 'json'; with 'archive' it can be 'map' or 'false': a "
            "table keeps headers as a map of texts."
        )
    if options["bodyFormat"] == "amqp" or "amqp" in options["columns"]:
        raise SluicegateError(
            "With 'archive' encoded messages (bodyFormat=amqp, the column 'amqp') cannot be read: "
            "not every table has them. Read the table's own column 'amqp' where it is there."
        )


def _hint(name: str) -> str:
    meant = _MEANT.get(name)
    if meant is None:
        names = {known.lower(): known for known in OPTIONS}
        near = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
        meant = names[near[0]] if near else None
    return f"did you mean {meant!r}?" if meant else f"known are: {', '.join(OPTIONS)}."


def make_ddl(options: Options) -> str:
    """Return the schema that the options ask for."""
    second = {
        "headers": options["includeHeaders"] == "json",
        "body": options["bodyFormat"] == "string",
    }
    return ", ".join(f"{n} {COLUMNS[n][second.get(n, False)]}" for n in options["columns"])
