"""Which of very many patterns a name fits, without a look at each of them. Pure.

Patterns are as in `wildcards`. They are a tree of words; a name goes down all ways that its words
allow, each place of the tree at most once for each of its words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from gateway.addresses.match import ANY_WORDS, DELIMITER, ONE_WORD


class _Node:
    __slots__ = ("below", "pattern")

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        self.pattern: str | None = None  # the one that ends here


#: A place in the tree, and how many words of the name have led there.
_Place: TypeAlias = tuple[_Node, int]


class PatternTree:
    """A set of patterns."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, pattern: str) -> None:
        """Add a pattern; one that is there stays."""
        node = self._root
        for word in pattern.split(DELIMITER):
            node = node.below.setdefault(word, _Node())
        node.pattern = pattern

    def discard(self, pattern: str) -> None:
        """Take a pattern out, if it is there, and the words that lead to no other."""
        way = [self._root]
        words = pattern.split(DELIMITER)
        for word in words:
            node = way[-1].below.get(word)
            if node is None:
                return
            way.append(node)
        way[-1].pattern = None
        for above, word, node in zip(way[-2::-1], reversed(words), way[:0:-1], strict=True):
            if node.below or node.pattern is not None:
                return
            del above.below[word]

    def fitting(self, name: str) -> list[str]:
        """Return the patterns that a name fits, in order."""
        words = name.split(DELIMITER)
        return sorted(
            node.pattern
            for node, at in self.places(words)
            if at == len(words) and node.pattern is not None
        )

    def places(self, words: list[str]) -> Iterator[_Place]:
        """Yield each place that some of these words, from the first on, lead to."""
        seen: set[tuple[int, int]] = set()
        ways: list[_Place] = [(self._root, 0)]
        while ways:
            node, at = ways.pop()
            if (id(node), at) in seen:
                continue
            seen.add((id(node), at))
            yield node, at
            below = node.below
            if (rest := below.get(ANY_WORDS)) is not None:
                ways += [(rest, end) for end in range(at, len(words) + 1)]
            if at == len(words):
                continue
            word = words[at]
            if word and (one := below.get(ONE_WORD)) is not None:
                ways.append((one, at + 1))
            if word not in (ANY_WORDS, ONE_WORD) and (same := below.get(word)) is not None:
                ways.append((same, at + 1))
