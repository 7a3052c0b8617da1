"""Why a selector is refused: what stands where, and what belongs there."""

from __future__ import annotations

from gateway.model.errors import Code, Refusal, RefusedError

#: How much of a selector an error repeats; the rest is cut around the column.
_SHOWN_MAX = 200


class SelectorError(RefusedError):
    """A selector that cannot be compiled; its refusal has the code `bad-selector`.

    Attributes:
        selector: the text as it was given.
        column: where the trouble is: 1 is the first character, one more than the last is its end.
        expected: what belongs there, or which limit was passed.
    """

    def __init__(self, selector: str, column: int, *, expected: str, found: str = "") -> None:
        instead = f", found {_printable(found)}" if found else ""
        text = f"The selector {shown(selector, column)} is wrong at column {column}: "
        super().__init__(
            Refusal(code=Code.BAD_SELECTOR, text=f"{text}expected {expected}{instead}.")
        )
        self.selector = selector
        self.column = column
        self.expected = expected


def shown(selector: str, column: int) -> str:
    """Return a selector in quotes for people: without control characters, cut around the column."""
    start = max(0, min(column - 1 - _SHOWN_MAX // 2, len(selector) - _SHOWN_MAX))
    part = selector[start : start + _SHOWN_MAX]
    before = "..." if start else ""
    behind = "..." if start + len(part) < len(selector) else ""
    return f'"{before}{_printable(part)}{behind}"'


def _printable(text: str) -> str:
    """Return a text without what drives terminals or cannot be encoded."""
    return "".join([c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text])
