"""A second opinion on selectors: makes conditions, writes them as text, judges them slowly.

Nothing here uses the package's parser, tree or values. A condition is made as nested tuples; its
text has the parentheses that precedence asks for, and others at will. Truth is 0, 1/2 or 1, so that
AND is the least of its sides and OR the greatest.

    ("number", value, text)  ("text", value)  ("bool", value)  ("name", name)
    ("minus", a)  ("plus", a)  ("+-*/", a, b)  ("= <> < <= > >=", a, b)
    ("between", a, low, high, negated)  ("in", name, texts, negated)
    ("like", name, pattern, escape, negated)  ("null", name, negated)
    ("not", a)  ("and", a, b, ...)  ("or", a, b, ...)

A pattern is a list of characters, ANY and ONE.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from random import Random
from typing import Any

from hypothesis import strategies as st

from gateway.model.amqp_types import Float32, Int, Symbol, UByte, UInt, ULong

Condition = tuple[Any, ...]
ANY, ONE = "any", "one"
HALF = Fraction(1, 2)
OTHER = "a value of no kind that selectors know"

# ---- judging


def truth(condition: Condition, fields: Mapping[str, Any]) -> Fraction:
    """0 for false, 1 for true, 1/2 for unknown."""
    word = condition[0]
    if word == "and":
        return min(truth(part, fields) for part in condition[1:])
    if word == "or":
        return max(truth(part, fields) for part in condition[1:])
    if word == "not":
        return 1 - truth(condition[1], fields)
    if word == "null":
        return Fraction((fields.get(condition[1]) is None) != condition[2])
    if word == "in":
        ways = [("=", ("name", condition[1]), ("text", text)) for text in condition[2]]
        return truth(("not", ("or", *ways)) if condition[3] else ("or", *ways), fields)
    if word == "between":
        _, a, low, high, negated = condition
        if negated:
            return truth(("or", ("<", a, low), (">", a, high)), fields)
        return truth(("and", (">=", a, low), ("<=", a, high)), fields)
    if word == "like":
        return like(condition, fields)
    if word in ("=", "<>", "<", "<=", ">", ">="):
        return compared(word, value(condition[1], fields), value(condition[2], fields))
    found = value(condition, fields)
    return HALF if found is None else Fraction(found is True)


def like(condition: Condition, fields: Mapping[str, Any]) -> Fraction:
    _, name, pattern, _, negated = condition
    text = fields.get(name)
    if text is None:
        return HALF
    fits = isinstance(text, str) and fitting(pattern, text)
    return Fraction(fits != negated)


def fitting(pattern: list[str], text: str) -> bool:
    """Whether a pattern fits a text: all places that its beginning may end at, step by step."""
    places = {0}
    for part in pattern:
        if part == ANY:
            places = set(range(min(places), len(text) + 1)) if places else places
        else:
            places = {
                at + 1 for at in places if at < len(text) and (part == ONE or text[at] == part)
            }
    return len(text) in places


def kind(found: Any) -> str:
    if isinstance(found, bool):
        return "bool"
    if isinstance(found, (int, float)):
        return "number"
    return "text" if isinstance(found, str) else "other"


def compared(word: str, a: Any, b: Any) -> Fraction:
    if a is None or b is None:
        return HALF
    if kind(a) != kind(b) or kind(a) == "other":
        return Fraction(0)
    if kind(a) == "number":
        a, b = promoted(a, b)
    elif word not in ("=", "<>"):
        return Fraction(0)
    answers = {"=": a == b, "<>": a != b}
    if kind(a) == "number":
        answers |= {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}
    return Fraction(answers[word])


def promoted(a: float, b: float) -> tuple[Any, Any]:
    if isinstance(a, int) and isinstance(b, int):
        return a, b
    return double(a), double(b)


def double(a: float) -> float:
    try:
        return float(a)
    except OverflowError:
        return float("inf") if a > 0 else float("-inf")


def value(expression: Condition, fields: Mapping[str, Any]) -> Any:
    word = expression[0]
    if word in ("number", "text", "bool"):
        return expression[1]
    if word == "name":
        return fields.get(expression[1])
    if word in ("minus", "plus"):
        a = value(expression[1], fields)
        return None if kind(a) != "number" else -a if word == "minus" else a
    if word in ("+", "-", "*", "/"):
        a, b = value(expression[1], fields), value(expression[2], fields)
        if kind(a) != "number" or kind(b) != "number":
            return None
        return computed(word, *promoted(a, b))
    return {Fraction(0): False, Fraction(1): True}.get(truth(expression, fields))


def computed(word: str, a: Any, b: Any) -> Any:
    if word == "+":
        return a + b
    if word == "-":
        return a - b
    if word == "*":
        return a * b
    if isinstance(a, int):
        return None if b == 0 else int(Fraction(a, b))
    if b != 0:
        return a / b
    if a != a or a == 0:  # noqa: PLR0124 - NaN is what differs from itself
        return float("nan")
    return float("inf") if (a > 0) == (str(b)[0] != "-") else float("-inf")


# ---- writing

_LEVEL = {"or": 0, "and": 1, "not": 2, "+": 4, "-": 4, "*": 5, "/": 5, "minus": 6, "plus": 6}
_ATOM = 7


def level(condition: Condition) -> int:
    if condition[0] in ("number", "text", "bool", "name"):
        return _ATOM
    return _LEVEL.get(condition[0], 3)


class Writer:
    """Writes a condition; `chance` decides about what does not matter."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance

    def word(self, text: str) -> str:
        return "".join(self.chance.choice((c, c.lower())) for c in text)

    def gap(self) -> str:
        return self.chance.choice((" ", " ", "  ", "\n", "\t "))

    def glue(self) -> str:
        return self.chance.choice(("", " "))

    def write(self, condition: Condition, least: int = 0) -> str:
        text = self.bare(condition)
        if level(condition) < least or self.chance.random() < 0.1:
            return f"({self.glue()}{text}{self.glue()})"
        return text

    def bare(self, condition: Condition) -> str:
        word = condition[0]
        gap = self.gap
        match word:
            case "number":
                return str(condition[2])
            case "text":
                return quoted(condition[1])
            case "bool":
                return self.word("TRUE" if condition[1] else "FALSE")
            case "name":
                return named(condition[1])
            case "and" | "or":
                inner = 2 if word == "and" else 1
                joint = f"{gap()}{self.word(word.upper())}{gap()}"
                return joint.join(self.write(part, inner) for part in condition[1:])
            case "not":
                return f"{self.word('NOT')}{gap()}{self.write(condition[1], 2)}"
            case "minus" | "plus":
                sign = "-" if word == "minus" else "+"
                return sign + self.glue() + self.write(condition[1], 6)
            case "+" | "-" | "*" | "/":
                own = level(condition)
                left, right = self.write(condition[1], own), self.write(condition[2], own + 1)
                return left + self.glue() + word + self.glue() + right
            case "between":
                _, a, low, high, negated = condition
                words = f"{self.nots(negated)}{self.word('BETWEEN')}{gap()}"
                bounds = f"{self.write(low, 4)}{gap()}{self.word('AND')}{gap()}"
                return f"{self.write(a, 4)}{gap()}{words}{bounds}{self.write(high, 4)}"
            case "in":
                texts = ("," + self.glue()).join(map(quoted, condition[2]))
                words = f"{self.nots(condition[3])}{self.word('IN')}{self.glue()}"
                return f"{named(condition[1])}{gap()}{words}({texts})"
            case "like":
                return self.like(condition)
            case "null":
                words = f"{self.word('IS')}{gap()}{self.nots(condition[2])}{self.word('NULL')}"
                return f"{named(condition[1])}{gap()}{words}"
            case _:
                left, right = self.write(condition[1], 4), self.write(condition[2], 4)
                return left + self.glue() + word + self.glue() + right

    def nots(self, negated: bool) -> str:
        return self.word("NOT") + self.gap() if negated else ""

    def like(self, condition: Condition) -> str:
        _, name, pattern, escape, negated = condition
        parts = []
        for part in pattern:
            if part in (ANY, ONE):
                parts.append("%" if part == ANY else "_")
            elif part in ("%", "_", escape):
                parts.append(escape + part)
            else:
                parts.append(part)
        text = f"{named(name)}{self.gap()}{self.nots(negated)}{self.word('LIKE')}{self.glue()}"
        text += quoted("".join(parts))
        return text + (f" {self.word('ESCAPE')} {quoted(escape)}" if escape else "")


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def named(name: str) -> str:
    plain = name.isidentifier() and name.isascii() and name.upper() not in ("NULL", "IN")
    return name if plain else '"' + name.replace('"', '""') + '"'


# ---- making

NAMES = ("a", "b", "c", "d", "my-key", 'q"n', "null", "JMSPriority", "JMSType", "m.note")
TEXTS = ("", "a", "b", "ab", "aab", "a_b", "a%", "it's", "5", "true")
names = st.sampled_from(NAMES)
_texts = st.sampled_from(TEXTS)


@st.composite
def numbers(draw: Any) -> Condition:
    if draw(st.booleans()):
        whole = draw(
            st.one_of(
                st.integers(0, 3),
                st.integers(0, 3),
                st.sampled_from([10, 2**31, 2**63 - 1, 2**64 - 1]),
            )
        )
        form = draw(st.sampled_from(["{}", "{}L", "{}", "0x{:x}", "0X{:X}l", "0{:o}"]))
        return ("number", whole, form.format(whole))
    part = draw(st.sampled_from([0.0, 0.5, 1.0, 2.0, 2.5, 1e300, 9.223372036854776e18]))
    form = draw(st.sampled_from(["{!r}", "{!r}d", "{:.17E}", "{:.17e}D"]))
    return ("number", part, form.format(part))


_signs = st.sampled_from(["+", "-", "*", "/"])
_comparisons = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
_flags = st.booleans()

arithmetic = st.recursive(
    st.one_of(names.map(lambda name: ("name", name)), numbers()),
    lambda inner: st.one_of(
        st.tuples(_signs, inner, inner),
        st.tuples(st.sampled_from(["minus", "plus"]), inner),
    ),
    max_leaves=4,
)


@st.composite
def likes(draw: Any) -> Condition:
    pattern = draw(st.lists(st.sampled_from([ANY, ONE, "a", "b", "_", "%", "'", "5"]), max_size=5))
    escape = draw(st.sampled_from(["!", "a", "'", "%"]))
    if escape == "%" and ANY in pattern:
        escape = "!"
    if not {"%", "_"} & set(pattern) and escape not in pattern and draw(_flags):
        escape = ""
    return ("like", draw(names), pattern, escape, draw(_flags))


leaves = st.one_of(
    st.tuples(_comparisons, arithmetic, arithmetic),
    st.tuples(
        st.sampled_from(["=", "<>"]),
        names.map(lambda name: ("name", name)),
        _texts.map(lambda text: ("text", text)),
    ),
    st.tuples(st.just("between"), arithmetic, arithmetic, arithmetic, _flags),
    st.tuples(st.just("in"), names, st.lists(_texts, min_size=1, max_size=4), _flags),
    likes(),
    st.tuples(st.just("null"), names, _flags),
    names.map(lambda name: ("name", name)),
    _flags.map(lambda value: ("bool", value)),
)


def _joined(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    several = st.lists(inner, min_size=2, max_size=4)
    return st.one_of(
        several.map(lambda parts: ("and", *parts)),
        several.map(lambda parts: ("or", *parts)),
        inner.map(lambda part: ("not", part)),
        st.tuples(st.sampled_from(["=", "<>"]), inner, inner),
    )


conditions = st.recursive(leaves, _joined, max_leaves=6)

#: (as it is sent, as it is seen)
FIELD_VALUES = st.one_of(
    st.sampled_from(TEXTS).map(lambda text: (text, text)),
    st.sampled_from(TEXTS).map(lambda text: (Symbol(text), text)),
    st.integers(-3, 3).map(lambda n: (n, n)),
    st.sampled_from([-(2**63), 2**63 - 1]).map(lambda n: (n, n)),
    st.sampled_from([(ULong(2**64 - 1), 2**64 - 1), (UInt(2), 2), (UByte(0), 0), (Int(-2), -2)]),
    st.sampled_from([0.0, -0.0, 2.5, -1.0, 1e300, float("inf"), float("nan")]).map(
        lambda f: (f, f)
    ),
    st.sampled_from([(Float32(0.5), 0.5), (True, True), (False, False), (None, None)]),
    st.just((b"a", OTHER.encode())),
)
fields = st.dictionaries(
    st.sampled_from([name for name in NAMES if name not in ("JMSPriority", "JMSType", "m.note")]),
    FIELD_VALUES,
    min_size=3,
)
