"""The options and columns of the Spark source: what users write, checked before anything is done.

An unknown option is refused with the nearest known one: a cap that is silently ignored is worse
than a query that does not start. It knows no network and no Spark.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
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
    "properties": ["variant"],
    "traceparent": ["string"],
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


def _place(*words: str) -> Callable[[str, str], str | dict[str, str]]:
    """Return the parser of a place in streams: a word, a number, or JSON of these by address."""
    possible = f'{", ".join(words)}, an offset, or JSON like {{"orders": 1042}}'

    def one(name: str, value: object) -> str:
        found = _KAFKAS.get(value, value) if isinstance(value, int) else value
        word = str(found).strip().lower()
        number = word.isascii() and word.isdigit() and len(word) < 20
        if isinstance(found, bool) or not (number or word in words):
            raise SluicegateError(f"The option {name!r} is {value!r}; possible: {possible}.")
        return word

    def parse(name: str, value: str) -> str | dict[str, str]:
        if not value.lstrip().startswith("{"):
            return one(name, value) if value else ""
        try:
            places = json.loads(value)
        except ValueError as error:
            raise SluicegateError(f"The option {name!r} is no JSON object: {error}.") from None
        return {address: one(f"{name}.{address}", place) for address, place in places.items()}

    return parse


#: What Kafka's source writes for the ends of a stream.
_KAFKAS: Final[Mapping[int, str]] = {-1: "latest", -2: "earliest"}
#: The end of the year 9999, which ends what Spark's timestamps are.
TIME_MS_MAX: Final = 253_402_300_799_999
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _moment(name: str, value: str) -> int | None:
    """Return ms since 1970 of a time in ISO 8601 or in ms; without a zone it is UTC."""
    text = value.strip()
    if not text:
        return None
    moment_ms = -1
    # int() reads more than ASCII digits.
    if text.isascii() and text.isdigit():
        moment_ms = int(text[:20])
    else:
        with suppress(ValueError, OverflowError):
            moment = datetime.fromisoformat(text)
            zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            moment_ms = (zoned - _EPOCH) // timedelta(milliseconds=1)
    if not 0 <= moment_ms <= TIME_MS_MAX:
        raise SluicegateError(
            f"The option {name!r} is {value!r}; like 2026-11-25T08:00:00Z, or ms since 1970."
        )
    return moment_ms


_FLAG: Final = _one_of("true", "false")
#: name -> default (empty: off, or required) and how a text becomes a value.
OPTIONS: Final[Mapping[str, tuple[str, Callable[[str, str], Any]]]] = {
    "url": ("", _urls),
    "address": ("", _text),
    "addressPattern": ("", _text),
    "newStreamOffsets": ("earliest", _one_of("earliest", "latest")),
    "subscription": ("", _text),
    "selector": ("", _text),
    "startingOffsets": ("", _place("earliest", "latest", "subscription")),
    "startingTimestamp": ("", _moment),
    "endingOffsets": ("", _place("latest")),
    "endingTimestamp": ("", _moment),
    "maxMessagesPerTrigger": ("", parse_size),
    "maxBytesPerTrigger": ("512m", parse_size),
    "minPartitions": ("1", parse_size),
    "maxPartitions": ("64", parse_size),
    "targetPartitionBytes": ("64m", parse_size),
    "includeHeaders": ("false", _one_of("false", "map", "json", "variant")),
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
    "pushdown": ("false", _FLAG),
    "archive": ("", _text),
    "archiveEndpoint": ("", _text),
    "archiveRegion": ("", _text),
}
#: What a stream and a batch read cannot do with: option -> why.
NOT_IN_STREAMS: Final[Mapping[str, str]] = {
    "endingOffsets": "a stream has no end",
    "endingTimestamp": "a stream has no end",
    "pushdown": "Spark hands no conditions to streams; 'selector' leaves rows out",
}
NOT_IN_BATCHES: Final[Mapping[str, str]] = {
    "maxMessagesPerTrigger": "a batch read has no triggers; 'endingOffsets' bounds it",
    "maxBytesPerTrigger": "a batch read has no triggers; 'endingOffsets' bounds it",
}
_CONTRADICTING: Final = (
    ("startingOffsets", "startingTimestamp"),
    ("endingOffsets", "endingTimestamp"),
)


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
    for first, second in _CONTRADICTING:
        if texts[first] and texts[second]:
            raise SluicegateError(f"The options {first!r} and {second!r} contradict; give one.")
    _check_addresses(options)
    _check_archive(options)
    asked = {"false": "", "variant": "properties"}.get(options["includeHeaders"], "headers")
    if asked and asked not in options["columns"]:
        options["columns"].append(asked)
    return options


def _check_addresses(options: Options) -> None:
    """Refuse a place for an address that is not read: its rows would begin somewhere else."""
    known = {options["address"]} | {
        f"{options['address']}@{urlsplit(url).netloc}" for url in options["url"]
    }
    for name in ("startingOffsets", "endingOffsets"):
        value = options[name]
        if isinstance(value, dict) and options["addressPattern"]:
            raise SluicegateError(
                f"The option {name!r} names places of single addresses; with 'addressPattern' it "
                "can be a word, or a time can be given."
            )
        strange = sorted(set(value) - known) if isinstance(value, dict) else []
        if strange:
            raise SluicegateError(
                f"The option {name!r} names {strange[0]!r}; possible: {', '.join(sorted(known))}."
            )


def check_kind(given: Mapping[str, str], kind: str) -> None:
    """Refuse what a `stream` or a `batch` read cannot do with; raises SluicegateError."""
    foreign = NOT_IN_STREAMS if kind == "stream" else NOT_IN_BATCHES
    names = {name.lower(): name for name in foreign}
    for name in given:
        if name.lower() in names and str(given[name]).strip().lower() not in ("", "false"):
            option = names[name.lower()]
            raise SluicegateError(f"The option {option!r} is not for a {kind}: {foreign[option]}.")


def choose_place(place: str | Mapping[str, str], address: str, url: str, default: str) -> str:
    """Return where an address of the gateway at `url` begins or ends: a word or an offset."""
    if isinstance(place, Mapping):
        place = place.get(f"{address}@{urlsplit(url).netloc}", place.get(address, ""))
    return place or default


def _check_archive(options: Options) -> None:
    if not options["archive"]:
        given = [n for n in ("archiveEndpoint", "archiveRegion") if options[n]]
        if given:
            raise SluicegateError(f"The option {given[0]!r} needs the option 'archive'.")
        return
    for name in ("selector", "startingTimestamp", "endingTimestamp"):
        if options[name]:
            raise SluicegateError(
                f"The option {name!r} cannot be given with 'archive': the table's rows are not "
                "judged by the gateway. Begin at 'startingOffsets' and filter in Spark."
            )
    if options["pushdown"] == "true":
        raise SluicegateError("The option 'pushdown' cannot be given with 'archive'.")
    if "properties" in options["columns"] or options["includeHeaders"] == "variant":
        raise SluicegateError(
            "The column 'properties' is not in an archive's table; 'headers' has the same as "
            "texts (includeHeaders=map)."
        )
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
