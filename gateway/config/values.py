"""Readers of single values: numbers, sizes, durations, choices. Pure; ValueError says why not.

Bare numbers are bytes, milliseconds or counts. Sizes are powers of 1024 however they are written
(`10M`, `10MB`, `10MiB`), as in Artemis; durations take `ms`, `s`, `m`, `h` and `d`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

from gateway.model import bounds
from gateway.model.address import check_name
from gateway.model.bounds import Bound
from gateway.model.errors import RefusedError
from gateway.model.rows import Row, Unit
from gateway.selectors import compile_selector

Reader = Callable[[object], object]
E = TypeVar("E", bound=Enum)
V = TypeVar("V")

_SIZE: Final = re.compile(r"\s*(-?\d[\d_]*)\s*([kmgt]?)(?:i?b)?\s*\Z", re.IGNORECASE)
_SIZE_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DURATION: Final = re.compile(r"\s*(-?\d[\d_]*(?:\.\d+)?)\s*(ms|s|m|min|h|d)?\s*\Z", re.IGNORECASE)
_DURATION_UNITS: Final = {
    "": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip
_ORIGIN: Final = re.compile(r"https?://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:\d{1,5})?\Z")
_COOKIE: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{0,64}\Z")
#: Whatever is counted is kept in a signed 64-bit number on disk and on the wire.
INT_MAX: Final = (1 << 63) - 1


def describe(value: object) -> str:
    """Name a value and its TOML type for an error text."""
    if isinstance(value, bool):
        return f"{str(value).lower()} (a boolean)"
    if isinstance(value, str):
        return f'"{value}"' if len(value) <= 60 else f'"{value[:57]}..."'
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        return "an array"
    return f"{value} (a {type(value).__name__})"


def text(value: object) -> str:
    """Take a text without control characters."""
    if not isinstance(value, str):
        raise ValueError(f"needs a text, not {describe(value)}; put it in quotes")  # noqa: TRY004
    if any(ord(c) < 32 or ord(c) == 127 for c in value):
        raise ValueError("holds a control character")
    return value


def name_text(value: object) -> str:
    """Take a text of at least one character."""
    taken = text(value)
    if not taken.strip():
        raise ValueError("is empty; give it at least one character")
    return taken


def address(value: object) -> str:
    """Take the name of an address."""
    taken = name_text(value)
    try:
        check_name(taken, "address")
    except RefusedError as error:
        raise ValueError(error.refusal.text) from None
    return taken


def optional_address(value: object) -> str | None:
    """Take the name of an address; an empty text is none."""
    return None if value == "" else address(value)


def selector(value: object) -> str:
    """Take a selector that compiles."""
    taken = name_text(value)
    try:
        compile_selector(taken)
    except RefusedError as error:
        raise ValueError(error.refusal.text) from None
    return taken


def names(value: object) -> frozenset[str]:
    """Take an array of names, kept in lower case."""
    if not isinstance(value, list):
        raise ValueError(f"needs an array of names, not {describe(value)}")  # noqa: TRY004
    return frozenset(name_text(item).lower() for item in value)


def roles(value: object) -> frozenset[str]:
    """Take an array of the names of roles, as they are written; an empty one is nobody."""
    if not isinstance(value, list):
        raise ValueError(f"needs an array of roles, not {describe(value)}")  # noqa: TRY004
    return frozenset(name_text(item) for item in value)


def origins(value: object) -> frozenset[str]:
    """Take an array of origins as browsers write them, kept in lower case; `*` is any."""
    taken = names(value)
    for one in taken:
        if one != "*" and not _ORIGIN.match(one):
            text = 'is no origin of web pages; write for example "https://shop.example:8443"'
            raise ValueError(f"{describe(one)} {text}")
    return taken


def cookie(value: object) -> str:
    """Take the name of a cookie [RFC 6265 4.1.1]; an empty text is none."""
    taken = text(value)
    if not _COOKIE.match(taken):
        wanted = "is no name of a cookie; write letters, digits, - and _"
        raise ValueError(f"{describe(taken)} {wanted}")
    return taken


def boolean(value: object) -> bool:
    """Take true or false."""
    if isinstance(value, bool):
        return value
    raise ValueError(f"needs true or false, not {describe(value)}")


def size_bytes(value: object) -> int:
    """Take bytes as a number or as `10MiB`."""
    if isinstance(value, str):
        found = _SIZE.match(value)
        if found is None:
            raise ValueError(f'{describe(value)} is no size; write bytes, or for example "10MiB"')
        return _bounded(int(found[1]) * _SIZE_UNITS[found[2].lower()])
    return _integer(value, 'a size in bytes, or for example "10MiB"')


def duration_ms(value: object) -> int:
    """Take milliseconds as a number or as `5s`."""
    if isinstance(value, str):
        found = _DURATION.match(value)
        if found is None:
            raise ValueError(
                f'{describe(value)} is no duration; write milliseconds, or for example "5s"'
            )
        return _bounded(round(float(found[1]) * _DURATION_UNITS[(found[2] or "").lower()]))
    return _integer(value, 'a duration in milliseconds, or for example "5s"')


def seconds(value: object) -> int:
    """Take whole seconds as a number, as Artemis counts here, or as `5s`."""
    if isinstance(value, str) and not value.strip().isdecimal():
        ms = duration_ms(value)
        if ms % 1000:
            raise ValueError(f"{describe(value)} is no whole number of seconds")
        return ms // 1000
    return count(value)


def count(value: object) -> int:
    """Take a whole number."""
    if isinstance(value, str) and re.fullmatch(r"\s*-?\d[\d_]*\s*", value):
        return _bounded(int(value))
    return _integer(value, "a whole number")


def number(value: object) -> float:
    """Take a number with or without a fraction."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise ValueError(f"needs a number, not {describe(value)}")


def _integer(value: object, wanted: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"needs {wanted}, not {describe(value)}")  # noqa: TRY004
    return _bounded(value)


def _bounded(value: int) -> int:
    if not -INT_MAX <= value <= INT_MAX:
        raise ValueError(f"{value} does not fit in 64 bits")
    return value


def bounded(read: Callable[[object], V], bound: Bound) -> Callable[[object], V]:
    """Return a reader that also refuses what a rule refuses."""

    def reader(value: object) -> V:
        taken = read(value)
        problem = bound(taken)
        if problem is not None:
            raise ValueError(problem)
        return taken

    return reader


def at_least(low: int, read: Callable[[object], int]) -> Callable[[object], int]:
    """Return a reader that also refuses what is below `low`."""
    return bounded(read, bounds.at_least(low))


def within(low: int, high: int, read: Callable[[object], int]) -> Callable[[object], int]:
    """Return a reader that also refuses what is outside `low` .. `high`."""
    return bounded(read, bounds.within(low, high))


def limit(read: Callable[[object], int], low: int = 1) -> Callable[[object], int]:
    """Return a reader of limits: -1 for none, otherwise at least `low`."""
    return bounded(read, bounds.limit(low))


def choice(kind: type[E]) -> Callable[[object], E]:
    """Return a reader of an enum's values, in any case."""

    def reader(value: object) -> E:
        for member in kind:
            if isinstance(value, str) and value.casefold() == str(member.value).casefold():
                return member
        raise ValueError(f"{describe(value)} is not one of {_names(kind)}")

    return reader


def choices(
    kind: type[E], later: Mapping[str, str] | None = None
) -> Callable[[object], frozenset[E]]:
    """Return a reader of arrays of an enum's values; `later` names refused ones with a reason."""
    one = choice(kind)

    def reader(value: object) -> frozenset[E]:
        if not isinstance(value, list) or not value:
            raise ValueError(f"needs an array of {_names(kind)}, not {describe(value)}")
        for item in value:
            reason = (later or {}).get(str(item).upper())
            if reason is not None:
                raise ValueError(f"{describe(item)} {reason}")
        return frozenset(one(item) for item in value)

    return reader


def _names(kind: type[Enum]) -> str:
    return ", ".join(str(member.value) for member in kind)


# ---- rows


@dataclass(frozen=True, slots=True)
class Read:
    """The fact of a row that is read as no other: by which reader."""

    reader: Reader


_BY_UNIT: Final[Mapping[Unit, Reader]] = {
    Unit.COUNT: count,
    Unit.BYTES: size_bytes,
    Unit.MS: duration_ms,
    Unit.SECONDS: seconds,
    Unit.TEXT: text,
    Unit.NAME: name_text,
    Unit.ADDRESS: optional_address,
}


def readers(rows: Mapping[str, Row]) -> dict[str, Reader]:
    """Return key -> reader of what rows say; it refuses what their rules refuse."""
    return {row.key: _bound_reader(row) for row in rows.values()}


def _bound_reader(row: Row) -> Reader:
    read = _reader(row)
    return read if row.bound is None else bounded(read, row.bound)


def _reader(row: Row) -> Reader:
    own = row.fact(Read)
    if own is not None:
        return own.reader
    if isinstance(row.kind, type) and issubclass(row.kind, Enum):
        return choice(row.kind)
    return {bool: boolean, float: number}.get(row.kind) or _BY_UNIT[row.unit]
