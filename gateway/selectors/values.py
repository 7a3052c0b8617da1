"""What selectors compute with: values of fields, three-valued comparison, arithmetic [JMS 3.8.1].

A value is None (NULL, unknown), bool, int (exact), float (approximate), str, or OPAQUE: a value
that is there but is no value of the language (bytes, lists, maps). No subclasses of these: whoever
reads messages widens what AMQP has, so that `type(value) is int` decides.

Comparing gives True, False, or None when a side is None. Values of different kinds are not equal
and not different and in no order: False, whatever is asked. Exact and approximate are one kind:
the exact one becomes a double first, as Java promotes. Exact numbers never wrap: unsigned AMQP
values and their products are what they are. Nothing here raises.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Final, TypeAlias


class Opaque:
    """The class of OPAQUE."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "OPAQUE"


OPAQUE: Final = Opaque()
Scalar: TypeAlias = bool | int | float | str | Opaque | None
Ternary: TypeAlias = bool | None
Compare: TypeAlias = Callable[[Scalar, Scalar], Ternary]
#: Texts longer than this are no numbers, with `convert_string_expressions:` or without.
_NUMBER_CHARACTERS_MAX: Final = 64


def approximate(number: int) -> float:
    """Return the double of an exact number; an infinity for one that is out of range."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def equal(a: Scalar, b: Scalar) -> Ternary:
    """Return a = b."""
    if a is None or b is None:
        return None
    kind = type(a)
    if kind is type(b):
        return a == b and kind is not Opaque
    pair = _promoted(a, b)
    return pair is not None and pair[0] == pair[1]


def different(a: Scalar, b: Scalar) -> Ternary:
    """Return a <> b: false for values of different kinds, as `=` is."""
    if a is None or b is None:
        return None
    if type(a) is type(b):
        # OPAQUE is one object: never different from itself, nor equal above.
        return a != b
    pair = _promoted(a, b)
    return pair is not None and pair[0] != pair[1]


def _promoted(a: Scalar, b: Scalar) -> tuple[float, float] | None:
    """Return an exact and an approximate number as doubles; None for anything else."""
    if type(a) is int and type(b) is float:
        return approximate(a), b
    if type(a) is float and type(b) is int:
        return a, approximate(b)
    return None


def _ordering(holds: Callable[[float, float], bool]) -> Compare:
    def compare(a: Scalar, b: Scalar) -> Ternary:
        if a is None or b is None:
            return None
        if (type(a) is int and type(b) is int) or (type(a) is float and type(b) is float):
            return holds(a, b)
        pair = _promoted(a, b)
        return pair is not None and holds(*pair)

    return compare


COMPARISONS: Final[dict[str, Compare]] = {
    "=": equal,
    "<>": different,
    "<": _ordering(operator.lt),
    "<=": _ordering(operator.le),
    ">": _ordering(operator.gt),
    ">=": _ordering(operator.ge),
}


# ---- texts as numbers: the prefix `convert_string_expressions:`


def as_number(value: Scalar) -> Scalar:
    """Return the number that a text is, decimal and without blanks; anything else as it is."""
    if type(value) is not str or len(value) > _NUMBER_CHARACTERS_MAX:
        return value
    # int() and float() take more: blanks around, digits of other scripts, 1_000, "nan".
    if not value.isascii() or "_" in value or value != value.strip():
        return value
    try:
        return int(value)
    except ValueError:
        pass
    try:
        number = float(value)
    except ValueError:
        return value
    return number if number - number == 0 else value


def _as_boolean(value: Scalar) -> Scalar:
    if type(value) is not str:
        return value
    return {"true": True, "false": False}.get(value.lower(), value)


def _converting(compare: Compare, *, orders: bool) -> Compare:
    def converted(a: Scalar, b: Scalar) -> Ternary:
        if orders:
            a, b = as_number(a), as_number(b)
        elif type(a) is not type(b):
            # Only towards the other side: two texts are compared as texts.
            convert = _as_boolean if bool in (type(a), type(b)) else as_number
            a, b = convert(a), convert(b)
        return compare(a, b)

    return converted


CONVERTING: Final[dict[str, Compare]] = {
    sign: _converting(compare, orders=sign not in ("=", "<>"))
    for sign, compare in COMPARISONS.items()
}


# ---- arithmetic


def negative(value: Scalar) -> Scalar:
    """Return -value; None for what is no number."""
    return -value if type(value) is int or type(value) is float else None


def arithmetic(sign: str, a: Scalar, b: Scalar) -> Scalar:
    """Return a `sign` b; None when a side is no number, or an exact one is divided by zero."""
    if type(a) is int and type(b) is int:
        return _exact(sign, a, b)
    if type(a) is float and type(b) is float:
        return _approximate(sign, a, b)
    pair = _promoted(a, b)
    return None if pair is None else _approximate(sign, *pair)


def _exact(sign: str, a: int, b: int) -> int | None:
    match sign:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case _:
            if b == 0:
                return None
            quotient = abs(a) // abs(b)  # towards zero, as Java divides
            return quotient if (a < 0) == (b < 0) else -quotient


def _approximate(sign: str, a: float, b: float) -> float:
    match sign:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case _:
            # Java's doubles divide by zero: an infinity, or NaN for 0/0.
            return a / b if b else a * math.copysign(math.inf, b)
