"""Wildcard matches: which fit, which wins, and how they merge."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest

from gateway.addresses.match import (
    CACHE_MAX,
    SettingsEntry,
    SettingsTable,
    match_problem,
    matches,
    precedence,
)
from gateway.addresses.settings import ROWS, FullPolicy


@pytest.mark.parametrize(
    ("match", "address", "fits"),
    [
        ("#", "a", True),
        ("#", "a.b.c", True),
        ("news.europe.#", "news.europe", True),
        ("news.europe.#", "news.europe.sport", True),
        ("news.europe.#", "news.europe.sport.today", True),
        ("news.europe.#", "news.europeans", False),
        ("news.europe.#", "news", False),
        ("news.*", "news.europe", True),
        ("news.*", "news", False),
        ("news.*", "news.", False),
        ("news.*", "news.europe.sport", False),
        ("*.europe", "news.europe", True),
        ("*", "news", True),
        ("*", "news.europe", False),
        ("*.#", "news", True),
        ("*.#", "news.a.b", True),
        ("orders", "orders", True),
        ("orders", "orders.eu", False),
        ("a.*.c.#", "a.b.c", True),
        ("a.*.c.#", "a.b.d", False),
    ],
)
def test_what_a_match_fits(match: str, address: str, fits: bool) -> None:
    assert matches(match, address) is fits


@pytest.mark.parametrize("match", ["", "a.#.b", "#.a", "a*", "a.b#", "##", "**.a"])
def test_impossible_matches_are_named(match: str) -> None:
    assert match_problem(match) is not None


@pytest.mark.parametrize("match", ["#", "*", "a.*.b", "a.#", "*.#", "a"])
def test_possible_matches_pass(match: str) -> None:
    assert match_problem(match) is None


@pytest.mark.parametrize(
    ("address", "order"),
    [
        (
            "a.b.c",
            ["a.b.c", "a.b.*", "a.*.c", "*.b.c", "*.*.*", "a.b.c.#", "a.b.#", "a.*.#", "a.#", "#"],
        ),
        ("a.b", ["a.b", "a.*", "*.b", "*.*", "a.b.#", "a.*.#", "*.b.#", "a.#", "#"]),
        ("abc.d", ["abc.#", "*.*.#", "#"]),
        ("a.d", ["*.*.#", "a.#", "#"]),
    ],
)
def test_the_more_specific_match_goes_first(address: str, order: list[str]) -> None:
    for shuffled in itertools.islice(itertools.permutations(order), 0, 5000, 97):
        assert sorted(shuffled, key=lambda m: precedence(m, address)) == order


def entry(match: str, **values: object) -> SettingsEntry:
    origins: Mapping[str, str] = dict.fromkeys(values, f"f.toml:{match}")
    return SettingsEntry(match=match, values=values, origins=origins)


def test_matches_merge_field_by_field_most_specific_first() -> None:
    table = SettingsTable(
        [
            entry("#", max_size_messages=1, default_ring_size=7, dead_letter_address=None),
            entry("a.#", max_size_messages=2, address_full_policy=FullPolicy.FAIL),
            entry("a.b", max_size_messages=3),
        ]
    )
    here = table.for_address("a.b")
    assert here.max_size_messages == 3
    assert here.address_full_policy is FullPolicy.FAIL
    assert here.default_ring_size == 7
    assert here.dead_letter_address is None
    assert table.for_address("a.c").max_size_messages == 2
    elsewhere = table.for_address("z")
    assert elsewhere.max_size_messages == 1
    assert elsewhere.address_full_policy is FullPolicy.PAGE


def test_the_order_of_writing_does_not_matter() -> None:
    entries = [
        entry("#", default_ring_size=1),
        entry("a.*", default_ring_size=2),
        entry("a.b", default_ring_size=3),
    ]
    for order in itertools.permutations(entries):
        assert SettingsTable(order).for_address("a.b").default_ring_size == 3
        assert SettingsTable(order).for_address("a.x").default_ring_size == 2


def test_a_later_entry_with_the_same_match_wins() -> None:
    table = SettingsTable(
        [entry("#", default_ring_size=1, max_size_messages=5), entry("#", default_ring_size=2)]
    )
    assert table.for_address("x").default_ring_size == 2
    assert table.for_address("x").max_size_messages == 5


def test_explain_names_match_and_origin_of_every_value() -> None:
    table = SettingsTable([entry("#", default_ring_size=1), entry("a.#", max_size_messages=9)])
    told = {line.key: line for line in table.explain("a.b")}
    assert len(told) == len(ROWS)
    assert (told["default-ring-size"].match, told["default-ring-size"].origin) == ("#", "f.toml:#")
    assert (told["max-size-messages"].value, told["max-size-messages"].match) == (9, "a.#")
    assert (told["max-size-bytes"].value, told["max-size-bytes"].match) == (-1, None)


def test_the_cache_is_bounded_and_right() -> None:
    table = SettingsTable([entry("a.*", default_ring_size=2)])
    for n in range(CACHE_MAX + 10):
        assert table.for_address(f"a.{n}").default_ring_size == 2
    assert table.for_address("b").default_ring_size == -1
    assert table.for_address("a.1") is table.for_address("a.1")
    assert len(table._cache) <= CACHE_MAX


def test_contradictions_are_found_across_matches() -> None:
    table = SettingsTable([entry("#", max_expiry_delay=100), entry("a.#", min_expiry_delay=200)])
    (found,) = table.contradictions()
    assert found[0].match == "a.#"
    assert found[1] == "min_expiry_delay"
    assert (
        SettingsTable(
            [entry("a.#", min_expiry_delay=200), entry("b", max_expiry_delay=1)]
        ).contradictions()
        == []
    )
