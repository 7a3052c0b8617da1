"""Rules that a value keeps: each says why a value breaks it, or None. Pure.

A configuration file, the HTTP API and the journal refuse the same values in the same words, because
all of them ask the rule that stands in the row of the value (`gateway.model.rows`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

#: Says why a value is impossible, or None.
Bound = Callable[[Any], str | None]
#: "No limit", wherever Artemis says so.
NO_LIMIT: Final = -1


def unlimited(value: int) -> str | None:
    """Refuse what is below -1."""
    if value < NO_LIMIT:
        return f"{value} is below -1; -1 already means no limit"
    return None


def not_zero(why: str) -> Bound:
    """Return a rule that refuses 0 for a reason, and what is below -1."""
    return lambda value: why if value == 0 else unlimited(value)


def not_negative(value: float) -> str | None:
    """Refuse what is below 0."""
    return f"{value} is below 0" if value < 0 else None


def at_most(most: int, why: str) -> Bound:
    """Return a rule that refuses what is below 0, and for a reason what is above `most`."""
    return lambda value: f"{value} is above {most}; {why}" if value > most else not_negative(value)


def at_least(low: int) -> Bound:
    """Return a rule that refuses what is below `low`."""
    return lambda value: f"{value} is too small; the least is {low}" if value < low else None


def within(low: float, high: float, things: str = "") -> Bound:
    """Return a rule that refuses what is outside `low` .. `high`; `things` are what is counted."""

    def bound(value: float) -> str | None:
        if low <= value <= high:
            return None
        shown = f"{value} {things}" if things else f"{value}"
        return f"{shown} is out of range; it lies between {low} and {high}"

    return bound


def limit(low: int = 1) -> Bound:
    """Return a rule for limits: -1 for none, otherwise at least `low`."""

    def bound(value: int) -> str | None:
        if value == NO_LIMIT or value >= low:
            return None
        return f"{value} is too small; the least is {low}, and -1 means no limit"

    return bound
