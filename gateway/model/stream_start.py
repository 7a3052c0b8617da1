"""Where a replay of a stream begins, and how clients write it. Pure.

    first         the oldest message that the stream keeps
    last          the newest message that is there now; without any the next one
    next          what the address accepts from now on
    offset=N      message N, or the first later one that is kept
    timestamp=T   the first message that the address accepted at T or later

T is seconds since 1970, as in RabbitMQ's `x-stream-offset`, or a time of ISO 8601 with its zone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final

from gateway.model.errors import Code, RefusedError

#: What a refusal tells that an author may write.
FORMS: Final = "first, last, next, offset=N or timestamp=T (T: seconds since 1970, or ISO 8601)"
_NUMBER: Final = re.compile(r"[0-9]{1,20}", re.ASCII)
_SECONDS: Final = re.compile(r"[0-9]{1,20}(\.[0-9]{1,9})?", re.ASCII)
#: The end of the year 9999. A larger number of seconds is one of ms, written by mistake.
_SECONDS_MAX: Final = 253_402_300_799
_SHOWN: Final = 60


class At(Enum):
    """The kinds of places where a replay may begin."""

    FIRST = "first"
    LAST = "last"
    NEXT = "next"
    OFFSET = "offset"
    TIME = "timestamp"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStart:
    """Where a replay begins.

    Attributes:
        at: the kind of place.
        value: of OFFSET the offset, of TIME ms since the epoch; else 0.
    """

    at: At
    value: int = 0


_WORDS: Final = {at.value: StreamStart(at=at) for at in (At.FIRST, At.LAST, At.NEXT)}


def parse_start(text: str) -> StreamStart:
    """Return the place that a text names; raises RefusedError (bad-value) with all forms."""
    known = _WORDS.get(text)
    if known is not None:
        return known
    kind, _, value = text.partition("=")
    if kind == At.OFFSET.value and _NUMBER.fullmatch(value):
        return StreamStart(at=At.OFFSET, value=int(value))
    if kind == At.TIME.value:
        found = _seconds_ms(value) if _SECONDS.fullmatch(value) else _iso_ms(value)
        if found is not None:
            return StreamStart(at=At.TIME, value=found)
    raise bad_start(repr(text[:_SHOWN]))


def bad_start(shown: str) -> RefusedError:
    """Return the refusal of what is no place; `shown` is how to quote it."""
    return RefusedError.of(
        Code.BAD_VALUE, f"The stream offset {shown} names no place in a stream; write {FORMS}."
    )


def _seconds_ms(text: str) -> int:
    whole, _, part = text.partition(".")
    seconds = int(whole)
    if seconds > _SECONDS_MAX:
        raise RefusedError.of(
            Code.BAD_VALUE,
            f"The stream offset timestamp={text[:_SHOWN]} is after the year 9999: T is in seconds "
            "since 1970, and this looks like ms.",
        )
    return seconds * 1000 + int(part.ljust(3, "0")[:3])


def _iso_ms(text: str) -> int | None:
    """Return ms of a time in ISO 8601; None when it is none, or has no zone."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if found.tzinfo is None else round(found.timestamp() * 1000)
