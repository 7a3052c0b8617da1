"""LIKE: `%` stands for any characters, `_` for one, all others for themselves [JMS 3.8.1.2].

A pattern is cut at its `%` into segments. The first must stand at the start of the text, the last
at its end, and each one between is looked for behind the one before: the leftmost place is always
as good as any other, so nothing is ever tried twice. A segment without `_` is one `str.find`,
linear in the text. One with `_` looks for its longest run of plain characters and checks the rest
there; the places it may check are counted, and a text that needs more is neither like the pattern
nor unlike it: None, unknown. So is one above `TEXT_MAX` characters, where it would have to be
searched. There is no recursion and no `re`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.selectors.values import Ternary

#: A longer text is not judged. Header lines are shorter; AMQP properties could have 16 MiB.
TEXT_MAX: Final = 65_536
#: Places that one evaluation may check for segments with `_`.
STEPS_MAX: Final = 1_024

Matcher = Callable[[str], Ternary]


@dataclass(frozen=True, slots=True)
class Segment:
    """What stands between two `%`.

    Attributes:
        length: characters, `_` included.
        pieces: (offset in the segment, plain characters) between the `_`, the longest first.
    """

    length: int
    pieces: tuple[tuple[int, str], ...]

    @property
    def plain(self) -> str | None:
        """The segment when it has no `_`; None otherwise."""
        if not self.length:
            return ""
        whole = len(self.pieces) == 1 and len(self.pieces[0][1]) == self.length
        return self.pieces[0][1] if whole else None

    def stands_at(self, text: str, at: int) -> bool:
        for offset, piece in self.pieces:  # noqa: SIM110 - all() of a generator costs twice as much
            if not text.startswith(piece, at + offset):
                return False
        return True


def segments(pattern: str, escape: str = "") -> list[Segment]:
    """Cut a pattern at its `%`; raises ValueError when it ends with the escape character."""
    found: list[Segment] = []
    runs: list[tuple[int, str]] = []
    length = at = 0
    fresh = True
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if character == escape:
            if at == len(pattern):
                raise ValueError("nothing behind the escape character")
            character = pattern[at]
            at += 1
        elif character == "%":
            found.append(_segment(length, runs))
            runs, length, fresh = [], 0, True
            continue
        elif character == "_":
            length += 1
            fresh = True
            continue
        if fresh:
            runs.append((length, character))
        else:
            runs[-1] = (runs[-1][0], runs[-1][1] + character)
        length += 1
        fresh = False
    found.append(_segment(length, runs))
    return found


def _segment(length: int, runs: list[tuple[int, str]]) -> Segment:
    return Segment(length, tuple(sorted(runs, key=lambda run: -len(run[1]))))


def matcher(pattern: str, escape: str = "") -> Matcher:
    """Return the function that says whether a text is like the pattern; raises as `segments`."""
    parts = segments(pattern, escape)
    plain = [part.plain for part in parts]
    if len(parts) == 1:
        return _whole(parts[0])
    first, last = plain[0], plain[-1]
    if len(parts) == 2 and first is not None and last is not None:
        return _ends(first, last)
    if len(parts) == 3 and first == last == "" and plain[1] is not None:
        return _inside(plain[1])
    return _general(parts)


def _whole(segment: Segment) -> Matcher:
    plain = segment.plain
    if plain is not None:
        return lambda text: text == plain
    return lambda text: len(text) == segment.length and segment.stands_at(text, 0)


def _ends(first: str, last: str) -> Matcher:
    if not last:
        return lambda text: text.startswith(first)
    if not first:
        return lambda text: text.endswith(last)
    least = len(first) + len(last)
    return lambda text: len(text) >= least and text.startswith(first) and text.endswith(last)


def _inside(plain: str) -> Matcher:
    return lambda text: None if len(text) > TEXT_MAX else plain in text


def _general(parts: list[Segment]) -> Matcher:
    first, *middle, last = parts
    least = sum([part.length for part in parts])
    searches = [_search(part) for part in middle if part.length]

    def like(text: str) -> Ternary:
        size = len(text)
        if size > TEXT_MAX:
            return None
        end = size - last.length
        if size < least or not first.stands_at(text, 0) or not last.stands_at(text, end):
            return False
        at, steps = first.length, STEPS_MAX
        for search in searches:
            at, steps = search(text, at, end, steps)
            if at < 0:
                return False if steps > 0 else None
        return True

    return like


_Search = Callable[[str, int, int, int], tuple[int, int]]


def _search(segment: Segment) -> _Search:
    """Return a function (text, at, end, steps left) -> (behind the leftmost place, steps left).

    The place is -1 when there is none before `end`, or the steps are used up.
    """
    plain = segment.plain
    length = segment.length
    if plain is not None:

        def find(text: str, at: int, end: int, steps: int) -> tuple[int, int]:
            found = text.find(plain, at, end)
            return (found + length if found >= 0 else -1), steps

        return find
    if not segment.pieces:
        return lambda text, at, end, steps: (at + length if at + length <= end else -1, steps)
    offset, anchor = segment.pieces[0]

    def check(text: str, at: int, end: int, steps: int) -> tuple[int, int]:
        at += offset
        last = end - length + offset + len(anchor)
        while steps:
            at = text.find(anchor, at, last)
            if at < 0:
                return -1, steps
            if segment.stands_at(text, at - offset):
                return at - offset + length, steps
            at += 1
            steps -= 1
        return -1, 0

    return check
