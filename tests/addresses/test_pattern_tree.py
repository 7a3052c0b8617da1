"""A tree of patterns finds what looking at each of them would."""

from __future__ import annotations

import random

import pytest

from gateway.addresses.pattern_tree import PatternTree
from gateway.addresses.wildcards import fits

WORDS = ("a", "b", "", "*", "#", "long")


def name(chance: random.Random, words: tuple[str, ...]) -> str:
    return ".".join(chance.choice(words) for _ in range(chance.randint(1, 5)))


@pytest.mark.parametrize("seed", range(30))
def test_it_finds_what_fits(seed):
    chance = random.Random(seed)
    tree, there = PatternTree(), set()
    for _ in range(200):
        pattern = name(chance, WORDS)
        if chance.random() < 0.6:
            tree.add(pattern)
            there.add(pattern)
        else:
            tree.discard(pattern)
            there.discard(pattern)
        asked = name(chance, ("a", "b", "", "long", "c"))
        assert tree.fitting(asked) == sorted(p for p in there if fits(p, asked))
    for pattern in list(there):
        tree.discard(pattern)
    assert list(tree.places(["a"])) == [(tree._root, 0)]
    assert not tree._root.below


def test_very_many_patterns_are_not_looked_at():
    tree = PatternTree()
    for number in range(20_000):
        tree.add(f"orders.{number}.*")
        tree.add(f"#.{number}")
    tree.add("orders.#")
    assert tree.fitting("orders.7.new") == ["orders.#", "orders.7.*"]
    assert len(list(tree.places(["orders", "7", "new"]))) < 20


def test_many_rests_in_one_pattern_take_no_longer_than_its_words_times_those_of_the_name():
    tree = PatternTree()
    tree.add(".".join(["#"] * 30))
    words = ["w"] * 60
    assert tree.fitting(".".join(words)) == [".".join(["#"] * 30)]
    assert len(list(tree.places(words))) <= 31 * 61
