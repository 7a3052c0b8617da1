r"""Expressions as users of the pipelines write them: SQL in which `body.region` is a JSON field.

A path that begins with the name of a JSON column goes into what is written there; all else is
Spark's SQL, with the columns of the source. Pure.

    body.order.items[0].price * 2     ->  get_json_object(body, '$.order.items[0].price') * 2
    headers['tenant-id']              ->  get_json_object(headers, '$[\'tenant-id\']')
    amount=body.amount                    under a name
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark_sluicegate.options import COLUMNS, SluicegateError

#: Columns of the source whose fields can be named, as they are read for it.
JSON_COLUMNS: Final = ("body", "headers")
_STEP: Final = r"(?:\.[A-Za-z_]\w*|\[\d+\]|\['[^'\\\]]+'\])"
_QUOTED: Final = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`"
_PATH: Final = re.compile(rf"{_QUOTED}|(?<![\w.])(body|headers)({_STEP}+)")
_WORD: Final = re.compile(rf"{_QUOTED}|(?<![\w.])([A-Za-z_]\w*)")
_NAMED: Final = re.compile(r"\s*([A-Za-z_]\w*)\s*=(?!=)\s*(\S.*)", re.DOTALL)
_LAST_WORD: Final = re.compile(r"(?:[\w-]+\.)*([A-Za-z_]\w*)")


@dataclass(frozen=True, slots=True)
class Named:
    """An expression with the name that its value has in the result."""

    name: str
    text: str


def parse_named(option: str, text: str) -> Named:
    """Return `NAME=EXPRESSION` in its parts; of a plain path the last word is the name.

    Raises SluicegateError for an expression that has no name of its own.
    """
    if given := _NAMED.fullmatch(text):
        return Named(given[1], given[2].strip())
    plain = _LAST_WORD.fullmatch(text.strip())
    if plain is None:
        raise SluicegateError(
            f"{option} {text!r} is an expression without a name; write {option} 'NAME={text}', "
            "as the field of the result is to be called."
        )
    return Named(plain[1], text.strip())


def check_names(names: Iterable[str], taken: Iterable[str]) -> None:
    """Raise SluicegateError for a name that stands twice, or that a result has anyway."""
    seen = set(taken)
    for name in names:
        if name in seen:
            raise SluicegateError(
                f"The field {name!r} would stand twice in a result, which has "
                f"{', '.join(sorted(seen))}; give it another name, as 'other={name}'."
            )
        seen.add(name)


def compile_sql(
    text: str,
    columns: Mapping[str, str] | None = None,
    field: Callable[[str], str] = lambda found: found,
) -> str:
    """Return Spark's SQL for an expression.

    Args:
        text: the expression.
        columns: JSON column -> the column that has its text; itself where it is left out.
        field: what is made of the text of each field.
    """
    there = columns or {}

    def put(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        column = there.get(match[1], match[1])
        path = match[2].replace("'", "\\'")
        return field(f"get_json_object({column}, '${path}')")

    return _PATH.sub(put, text)


def words_of(texts: Iterable[str]) -> set[str]:
    """Return the names that expressions mention, outside of quotes and paths."""
    return {m[1] for text in texts for m in _WORD.finditer(text) if m[1]}


def columns_for(texts: Iterable[str], always: Iterable[str]) -> list[str]:
    """Return the columns of the source that are read for these expressions, in its order."""
    wanted = words_of(texts) | set(always)
    return [name for name in COLUMNS if name in wanted]


_DURATION: Final = re.compile(
    r"\s*\d{1,9}\s+(?:millisecond|second|minute|hour|day|week)s?\s*", re.IGNORECASE
)


def check_duration(option: str, text: str) -> str:
    """Return a duration as Spark takes it. Raises SluicegateError."""
    if not _DURATION.fullmatch(text):
        raise SluicegateError(
            f"{option} is {text!r}; a number and a unit: '30 seconds', '5 minutes', '1 hour'."
        )
    return text.strip()


def matches(pattern: str, address: str) -> bool:
    """Whether an address pattern (`*` one word, `#` the rest) has the address."""
    words, given = pattern.split("."), address.split(".")
    for place, word in enumerate(words):
        if word == "#":
            return True
        if place >= len(given) or word not in ("*", given[place]):
            return False
    return len(words) == len(given)
