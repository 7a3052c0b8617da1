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


def overlap(one: str, other: str) -> bool:
    """Return whether some name fits both patterns. Time is the product of their lengths."""
    left, right = one.split(DELIMITER), other.split(DELIMITER)
    seen: set[tuple[int, int]] = set()
    places = [(0, 0)]
    while places:
        at = places.pop()
        if at in seen:
            continue
        seen.add(at)
        i, j = at
        if i == len(left) and j == len(right):
            return True
        mine = left[i] if i < len(left) else None
        theirs = right[j] if j < len(right) else None
        if mine == ANY_WORDS:  # it ends, or takes one more word of the other
            places += [(i + 1, j)] + ([] if theirs is None else [(i, j + 1)])
        if theirs == ANY_WORDS:
            places += [(i, j + 1)] + ([] if mine is None else [(i + 1, j)])
        if mine is not None and theirs is not None and _alike(mine, theirs):
            places.append((i + 1, j + 1))
    return False


def covers(match: str, pattern: str) -> bool:
    """Return whether all names that fit `pattern` fit `match`, whose `#` may only come last."""
    wide, narrow = match.split(DELIMITER), pattern.split(DELIMITER)
    if wide[-1] == ANY_WORDS:
        wide.pop()
        if len(narrow) < len(wide):
            return False
    elif len(narrow) != len(wide):
        return False
    return all(
        (want == word or (want == ONE_WORD and word != "")) and word != ANY_WORDS
        for want, word in zip(wide, narrow, strict=False)
    )


def _alike(one: str, other: str) -> bool:
    """Whether one word can be both; `#` never is a single word here."""
    if ANY_WORDS in (one, other):
        return False
    if one == other:
        return True
    return (one == ONE_WORD and other != "") or (other == ONE_WORD and one != "")
