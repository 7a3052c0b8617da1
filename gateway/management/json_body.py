"""From the bytes of a request's body to a checked value.

JSON is read strictly: UTF-8, no NaN or infinity, no lone surrogate, no field twice, numbers that
fit 64 bits, nesting of at most `DEPTH_MAX`. What is no such JSON is a 400; a field that is
unknown or has an impossible value is a 422 that names it, and nothing was changed.

Pure: knows no route and no queue.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from typing import Final, TypeVar

import msgspec

from gateway.management.http import ProblemError, Request, shorten, unknown_text
from gateway.model.errors import Code, RefusedError

#: No call nests deeper than 4; the rest is room for settings to come.
DEPTH_MAX: Final = 16
_INT_MAX: Final = (1 << 63) - 1

Shape = TypeVar("Shape", bound=msgspec.Struct)


class _TwiceError(Exception):
    """A name came twice in one JSON object."""


def parse_json(body: bytes) -> object:
    """Return the JSON value in `body`; raises ProblemError (400, bad-json)."""
    try:
        # msgspec first: it refuses what the standard library lets pass (NaN, lone surrogates).
        msgspec.json.decode(body)
        value: object = json.loads(body, object_pairs_hook=_unique)
    except RecursionError:
        raise _bad_json(f"nests deeper than {DEPTH_MAX}") from None
    except _TwiceError as error:
        raise _bad_json(f"has the field {shorten(str(error))} twice") from None
    except ValueError as error:
        raise _bad_json(f"cannot be read: {str(error)[:120]}") from None
    _check_bounds(value)
    return value


def read_object(request: Request) -> dict[str, object]:
    """Return the JSON object in the body (an empty body is `{}`); raises ProblemError (400)."""
    if not request.body:
        return {}
    value = parse_json(request.body)
    if not isinstance(value, dict):
        raise _bad_json("must be an object")
    return value


def read_fields(request: Request, shape: type[Shape]) -> Shape:
    """Return the body as `shape`, names as its encoded ones.

    Raises ProblemError (400) for what is no JSON object, RefusedError (bad-value) for a field that
    is unknown, missing or impossible.
    """
    fields = read_object(request)
    known = _names(shape)
    for name in fields:
        if name not in known:
            raise RefusedError.of(Code.BAD_VALUE, unknown_text("field", name, known))
    try:
        return msgspec.convert(fields, shape)
    except msgspec.ValidationError as error:
        raise RefusedError.of(Code.BAD_VALUE, _explain(str(error))) from None


@cache
def _names(shape: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(field.encode_name for field in msgspec.structs.fields(shape))


def _explain(text: str) -> str:
    """Turn `Expected ... - at `$.name`` into a sentence that begins with the name."""
    rule, separator, place = text.rpartition(" - at ")
    if not separator:
        return f"{text.replace('`', chr(39))}."
    name = place.strip("`").removeprefix("$.")
    return f"The field {name!r} is impossible: {rule.replace('`', chr(39))}."


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise _TwiceError(counts.most_common(1)[0][0])
    return found


def _check_bounds(value: object) -> None:
    """Refuse nesting and numbers beyond what any field takes, without recursion."""
    level = [value]
    for _ in range(DEPTH_MAX + 1):
        if not level:
            return
        if any(isinstance(item, int) and abs(item) > _INT_MAX for item in level):
            raise _bad_json("holds a number beyond 64 bits")
        level = [inner for item in level for inner in _inner(item)]
    raise _bad_json(f"nests deeper than {DEPTH_MAX}")


def _inner(item: object) -> list[object]:
    if isinstance(item, dict):
        return list(item.values())
    return item if isinstance(item, list) else []


def _bad_json(rule: str) -> ProblemError:
    return ProblemError(400, "bad-json", f"The JSON in the body {rule}.")
