"""Addresses whose name is a pattern: what is sent to a name that fits it reaches its queues.

Words are separated by `.`; `*` stands for one word that is not empty, `#` for zero or more words,
anywhere: `orders.#` fits `orders` and `orders.eu.new`. A wildcard stands for whole words only, so
`ord*` is a plain name. Pure.
"""

from __future__ import annotations

from gateway.addresses.match import ANY_WORDS, DELIMITER, ONE_WORD


def is_wildcard(name: str) -> bool:
    """Return whether the name of an address is a pattern."""
    if ANY_WORDS not in name and ONE_WORD not in name:
        return False
    return not {ANY_WORDS, ONE_WORD}.isdisjoint(name.split(DELIMITER))


def fits(pattern: str, name: str) -> bool:
    """Return whether `name` fits the pattern. Time is the product of their lengths at most."""
    words = name.split(DELIMITER)
    # reached[i]: the pattern up to here fits the first i words.
    reached = [True] + [False] * len(words)
    for want in pattern.split(DELIMITER):
        if want == ANY_WORDS:
            first = reached.index(True) if True in reached else len(reached)
            reached = [index >= first for index in range(len(reached))]
            continue
        following = [False] * len(reached)
        for index, word in enumerate(words):
            if reached[index] and (want == word or (want == ONE_WORD and word != "")):
                following[index + 1] = True
        reached = following
    return reached[-1]
