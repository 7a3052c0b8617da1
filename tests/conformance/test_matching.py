"""Which settings an address has: the scenario rows A1 to A6, by their numbers."""

from __future__ import annotations

import itertools

import pytest

from gateway.addresses.match import SettingsEntry, SettingsTable, match_problem, precedence


def table(*matches: str) -> SettingsTable:
    """Return settings that name the match that gave them as their dead-letter address."""
    return SettingsTable(
        [SettingsEntry(match=m, values={"dead_letter_address": m}) for m in matches]
    )


def winners(matches: list[str], addresses: dict[str, str]) -> None:
    for order in itertools.islice(itertools.permutations(matches), 0, 5000, 97):
        settings = table(*order)
        found = {name: settings.for_address(name).dead_letter_address for name in addresses}
        assert found == addresses


def test_a1_the_most_specific_match_gives_the_settings():
    winners(
        ["a.b.#", "a.b.d.#", "#"],
        {
            "a.b": "a.b.#",
            "a.b.c": "a.b.#",
            "a.b.d": "a.b.d.#",
            "a.b.d.lll": "a.b.d.#",
            "a.b.dabc": "a.b.#",
            "a.babc": "#",
            "z.z": "#",
        },
    )


def test_a2_literal_words_count_before_wildcards():
    winners(
        [
            "a.b.c.d.e.f",
            "a.b.c.d.e.*",
            "a.*.*.*.*.*",
            "*.b.c.d.*.f",
            "*.b.*.d.*.f",
            "a.b.c.d.e.#",
        ],
        {
            "a.b.c.d.e.f": "a.b.c.d.e.f",
            "a.b.c.d.e.x": "a.b.c.d.e.*",
            "a.b.x.d.x.f": "a.*.*.*.*.*",
            "x.b.c.d.e.f": "*.b.c.d.*.f",
            "x.b.x.d.x.f": "*.b.*.d.*.f",
            "a.b.c.d.e.f.g": "a.b.c.d.e.#",
        },
    )


def test_a3_matches_of_one_length_are_ordered_from_the_left():
    winners(
        ["a.*", "a.#", "a.b.#", "a.*.c", "a.*.*.d", "a.*.d.#", "#"],
        {
            "a.x": "a.*",
            "a.b.x": "a.b.#",
            "a.x.c": "a.*.c",
            "a.x.c.d": "a.*.*.d",
            "a.b.x.d": "a.*.*.d",
            "a.d.d.g": "a.*.d.#",
        },
    )


@pytest.mark.parametrize(
    ("address", "order"),
    [
        ("a.b.c.d", ["a.b.c.*", "a.b.*.d", "a.b.c.#", "a.b.#", "a.#", "#"]),
        ("a.b.c", ["a.b.c.#", "a.b.#", "a.#", "#"]),
    ],
)
def test_a4_matches_merge_from_the_most_specific_down(address, order):
    everything = ["#", "a.#", "a.b.#", "a.b.c.#", "a.b.*.d", "a.b.c.*"]
    assert sorted(order, key=lambda match: precedence(match, address)) == order
    # Take the winner away each time: the next one in the order gives the value.
    for gone in range(len(order)):
        settings = table(*[m for m in everything if m not in order[:gone]])
        assert settings.for_address(address).dead_letter_address == order[gone]


def test_a5_a_match_between_markers_is_one_name():
    matches = ["#", "(a.#)", "a.#", "a.b", "a.*"]
    for order in itertools.permutations(matches):
        assert _in_order(order, "a.b") == ["a.b", "a.*", "a.#", "#"]
        assert _in_order(order, "a.#") == ["(a.#)", "a.*", "a.#", "#"]


def _in_order(matches: tuple[str, ...], name: str) -> list[str]:
    """Return those that match a name, the most specific first: found ones are taken away."""
    left, found = list(matches), []
    while True:
        settings = SettingsTable(
            [SettingsEntry(match=m, values={"dead_letter_address": m}) for m in left],
            markers="()",
        )
        winner = settings.explain(name)[0].match
        if winner is None:
            return found
        found.append(winner)
        left.remove(winner)


def test_a5_without_markers_the_characters_are_a_part_of_names():
    settings = table("(a.x)", "#")
    assert settings.for_address("a.x").dead_letter_address == "#"
    assert settings.for_address("(a.x)").dead_letter_address == "(a.x)"


def test_a6_a_rest_in_the_middle_is_refused():
    problem = match_problem("x.#.y")
    assert problem is not None
    assert "#" in problem
