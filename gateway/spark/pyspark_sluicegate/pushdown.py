"""Conditions of a batch query as bounds of what is read: address, offset and timestamp.

Pure. Bounds only leave out rows that cannot match: every condition goes back to Spark, which looks
at what is left. A condition on another column, or of another form, bounds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a row must be to match; None bounds nothing.

    Attributes:
        addresses: its address is one of these.
        first: its offset is this or a higher one.
        end: its offset is a lower one.
        since_ms: it was accepted at this time or later, in ms since 1970.
        until_ms: it was accepted before.
    """

    addresses: frozenset[str] | None = None
    first: int = 0
    end: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def has(self, address: str) -> bool:
        """Whether rows of an address can match."""
        return self.addresses is None or address in self.addresses


def narrow(filters: Iterable[Filter]) -> Bounds:
    """Return the bounds of all conditions together."""
    bounds = Bounds()
    for one in filters:
        bounds = _narrow(bounds, one)
    return bounds


def _narrow(bounds: Bounds, one: Filter) -> Bounds:
    attribute: Sequence[str] = getattr(one, "attribute", ())
    values = _values(one)
    if len(attribute) != 1 or values is None:
        return bounds
    name = attribute[0].lower()
    if name == "address" and isinstance(one, (EqualTo, EqualNullSafe, In)):
        found = frozenset(value for value in values if isinstance(value, str))
        known = found if bounds.addresses is None else bounds.addresses
        return replace(bounds, addresses=found & known)
    if name == "offset" and all(type(value) is int for value in values):
        low, end = _range(one, values)
        return replace(
            bounds,
            first=bounds.first if low is None else max(bounds.first, low),
            end=_least(bounds.end, end),
        )
    if name == "timestamp" and all(_is_moment(value) for value in values):
        low, end = _range_ms(one, values)
        since = low if bounds.since_ms is None else max(low or 0, bounds.since_ms)
        return replace(bounds, since_ms=since, until_ms=_least(bounds.until_ms, end))
    return bounds


def _values(one: Filter) -> Sequence[Any] | None:
    """Return what a condition compares with, at least one value; None for another condition."""
    if isinstance(one, In):
        return list(one.value) or None
    known = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
    return [one.value] if isinstance(one, known) else None


def _range(one: Filter, values: Sequence[int]) -> tuple[int | None, int | None]:
    """Return lowest whole number and end (exclusive) of what matches."""
    low, high = min(values), max(values)
    if isinstance(one, GreaterThan):
        return low + 1, None
    if isinstance(one, GreaterThanOrEqual):
        return low, None
    if isinstance(one, LessThan):
        return None, high
    return (None, high + 1) if isinstance(one, LessThanOrEqual) else (low, high + 1)


def _range_ms(one: Filter, values: Sequence[datetime]) -> tuple[int | None, int | None]:
    """Return the same in ms: times of rows are whole ones, those of conditions need not be."""
    floors = [(value - _EPOCH) // _MS for value in values]
    uneven = [value.microsecond % 1000 > 0 for value in values]
    low, end = _range(one, floors)
    if isinstance(one, GreaterThanOrEqual) and low is not None:
        low += uneven[0]
    if isinstance(one, LessThan) and end is not None:
        end += uneven[0]
    return low, end


def _is_moment(value: object) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def _least(known: int | None, found: int | None) -> int | None:
    return min((x for x in (known, found) if x is not None), default=None)
