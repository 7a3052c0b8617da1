"""A text that does not show itself."""

from __future__ import annotations

from typing import final


@final
class Secret:
    """Holds a password or a hash; every way of showing it gives `***`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text; the one place to look for when asking where secrets go."""
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return "***"

    def __format__(self, spec: str) -> str:
        return "***"

    def __reduce__(self) -> str | tuple[object, ...]:
        """Refuse to be pickled: a pickle would show the text."""
        raise TypeError("a Secret cannot be pickled")
