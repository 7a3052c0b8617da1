"""LIKE: against a table of dynamic programming, and at its limits."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.selectors import like
from tests.selectors.messages import amqp, outcome


def slowly(pattern: str, text: str) -> bool:
    """Whether the text is like the pattern, by a table of all prefixes of both."""
    row = [True] + [False] * len(text)
    for p in pattern:
        if p == "%":
            new = [row[0]]
            for j in range(len(text)):
                new.append(new[-1] or row[j + 1])
        else:
            new = [False] + [row[j] and p in ("_", text[j]) for j in range(len(text))]
        row = new
    return row[-1]


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("", "", True),
        ("", "a", False),
        ("a", "a", True),
        ("a", "A", False),
        ("%", "", True),
        ("%", "anything\nat all", True),
        ("_", "", False),
        ("_", "\n", True),
        # One character is one code point, also beyond the 16 bits of Java's char.
        ("_", "\U0001f600", True),
        ("__", "\U0001f600", False),
        ("12%3", "123", True),
        ("12%3", "12993", True),
        ("12%3", "1234", False),
        ("l_se", "lose", True),
        ("l_se", "loose", False),
        ("%ab%ba%", "aba", False),
        ("%ab%ba%", "abba", True),
        ("ab%ba", "aba", False),
        ("%_", "", False),
        ("%__%", "a", False),
        ("%__%", "ab", True),
        ("a%", "ab", True),
        ("%b", "ab", True),
        ("%b%", "abc", True),
        ("%b_%", "abb", True),
        ("%b_%", "ab", False),
        ("%_b_c%", "abbbc", True),
        ("a.c", "abc", False),
        ("[a]", "a", False),
        ("a*", "aaa", False),
    ],
)
def test_patterns(pattern: str, text: str, expected: bool) -> None:
    assert like.matcher(pattern)(text) is expected


@pytest.mark.parametrize(
    ("pattern", "escape", "text", "expected"),
    [
        ("\\_%", "\\", "_foo", True),
        ("\\_%", "\\", "bar", False),
        ("a!%b", "!", "a%b", True),
        ("a!%b", "!", "axb", False),
        ("a!!b", "!", "a!b", True),
        ("!a!b", "!", "ab", True),
        ("%%_", "%", "%x", True),
        ("__", "_", "_", True),
        ("%!%%", "!", "50% off", True),
        ("%!%%", "!", "50 off", False),
        ("_!_", "!", "x_", True),
    ],
)
def test_escapes(pattern: str, escape: str, text: str, expected: bool) -> None:
    assert like.matcher(pattern, escape)(text) is expected


@pytest.mark.parametrize(("pattern", "escape"), [("%%%", "%"), ("a!", "!"), ("!", "!")])
def test_an_escape_character_at_the_end_is_refused(pattern: str, escape: str) -> None:
    with pytest.raises(ValueError, match="escape"):
        like.matcher(pattern, escape)


def test_every_short_pattern_and_text() -> None:
    texts = ["".join(t) for n in range(5) for t in product("ab", repeat=n)]
    for n in range(5):
        for letters in product("ab%_", repeat=n):
            pattern = "".join(letters)
            matches = like.matcher(pattern)
            for text in texts:
                assert matches(text) is slowly(pattern, text), (pattern, text)


@given(
    pattern=st.text(alphabet="ab_%", max_size=16),
    text=st.text(alphabet="ab", max_size=40),
)
def test_longer_ones(pattern: str, text: str) -> None:
    assert like.matcher(pattern)(text) is slowly(pattern, text)


@given(text=st.text(max_size=12), escape=st.characters())
def test_an_escaped_text_is_like_itself_only(text: str, escape: str) -> None:
    pattern = "".join(escape + c if c in {"%", "_", escape} else c for c in text)
    matches = like.matcher(pattern, escape)
    assert matches(text) is True
    assert matches(text + "x") is False
    assert matches("x" + text) is False


def steps_of(pattern: str, text: str) -> int:
    """How often `str.startswith` and `str.find` were called: what stands for time here."""

    class Counted(str):
        __slots__ = ()
        calls = 0

        def find(self, *args: object) -> int:
            Counted.calls += 1
            return str.find(self, *args)  # type: ignore[arg-type]

        def startswith(self, *args: object) -> bool:
            Counted.calls += 1
            return str.startswith(self, *args)  # type: ignore[arg-type]

    Counted.calls = 0
    like.matcher(pattern)(Counted(text))
    return Counted.calls


@pytest.mark.parametrize("pattern", ["%a" * 500, "%a_" * 330, "%" * 1000 + "b", "%a%b_" * 200])
def test_nested_wildcards_cost_no_more_than_their_number_and_the_limit(pattern: str) -> None:
    assert steps_of(pattern, "a" * 60_000) <= 2 * len(pattern) + 3 * like.STEPS_MAX


def test_too_many_steps_are_unknown() -> None:
    matches = like.matcher("%a_b%")
    assert matches("a" * 60_000) is None
    assert matches("a" * (like.STEPS_MAX - 1)) is False
    assert matches("a" * (like.STEPS_MAX - 1) + "ab") is True
    # The steps are those of one evaluation: the next has its own.
    assert matches("acb") is True


def test_a_text_too_long_to_search_is_unknown() -> None:
    long = "a" * (like.TEXT_MAX + 1)
    assert like.matcher("%b%")(long) is None
    assert like.matcher("%b%c%")(long) is None
    assert like.matcher("%b%")(long[1:]) is False
    # Its ends can be looked at without a search.
    assert like.matcher("a%")(long) is True
    assert like.matcher("%b")(long) is False


def test_unknown_stays_unknown_when_negated() -> None:
    message = amqp({"s": "a" * (like.TEXT_MAX + 1)})
    assert outcome("s LIKE '%b%'", message) is None
    assert outcome("s NOT LIKE '%b%'", message) is None
    assert outcome("s NOT LIKE 'b%'", message) is True
