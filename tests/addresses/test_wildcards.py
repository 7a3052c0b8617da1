"""Names that are patterns, against a walk over all ways to fit words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.addresses.wildcards import fits, is_wildcard
from tests.costs import costs


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders", False),
        ("orders.#", True),
        ("orders.*", True),
        ("*.eu", True),
        ("#", True),
        ("*", True),
        ("a.#.b", True),
        ("ord*", False),
        ("a.b#", False),
        ("", False),
        ("..", False),
    ],
)
def test_a_wildcard_is_a_whole_word(name, expected):
    assert is_wildcard(name) is expected


@pytest.mark.parametrize(
    ("pattern", "names", "others"),
    [
        ("news.#", ["news", "news.eu", "news.eu.sport"], ["new", "newsx", "x.news"]),
        ("news.*", ["news.eu"], ["news", "news.", "news.eu.sport"]),
        ("*.eu", ["news.eu"], ["eu", ".eu", "a.b.eu"]),
        ("#", ["a", "a.b", "a..b", ""], []),
        ("a.#.b", ["a.b", "a.x.b", "a.x.y.b"], ["a", "b", "a.b.c"]),
        ("#.b", ["b", "a.b", "b.b"], ["a", "b.a"]),
        ("a.*.#", ["a.b", "a.b.c"], ["a", "a."]),
    ],
)
def test_what_fits(pattern, names, others):
    assert all(fits(pattern, name) for name in names)
    assert not any(fits(pattern, name) for name in others)


def fits_slowly(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(fits_slowly(pattern[1:], words[i:]) for i in range(len(words) + 1))
    if not words or (pattern[0] == "*" and not words[0]):
        return False
    return pattern[0] in ("*", words[0]) and fits_slowly(pattern[1:], words[1:])


@given(
    st.lists(st.sampled_from(["a", "b", "*", "#", ""]), min_size=1, max_size=5),
    st.lists(st.sampled_from(["a", "b", "c", ""]), min_size=1, max_size=5),
)
def test_as_all_ways_to_fit_words(pattern, words):
    assert fits(".".join(pattern), ".".join(words)) == fits_slowly(pattern, words)


def test_a_pattern_of_wildcards_is_judged_in_bounded_time():
    with costs():
        assert not fits(".".join(["#", "a"] * 60 + ["z"]), ".".join(["a"] * 127))
