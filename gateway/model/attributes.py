"""How a queue delivers, as an operator says it; the names are Artemis' in snake_case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Final

_COUNT_MAX: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueAttributes:
    """What a queue does beside its limits.

    Attributes:
        exclusive: one consumer gets everything, until it leaves.
        purge_on_no_consumers: without consumers it takes nothing in and keeps nothing that waits.
        consumers_before_dispatch: nothing is delivered before so many consumers are there.
        delay_before_dispatch: ms after the first consumer when fewer will do; -1 never.
        enabled: it takes messages in; without it what it holds is still delivered.
    """

    exclusive: bool = False
    purge_on_no_consumers: bool = False
    consumers_before_dispatch: int = 0
    delay_before_dispatch: int = -1
    enabled: bool = True


PLAIN: Final = QueueAttributes()
NAMES: Final = tuple(field.name for field in fields(QueueAttributes))


def attribute_problem(name: str, value: object) -> str | None:
    """Say why an attribute cannot have this value, or None."""
    kind = type(getattr(PLAIN, name))
    if type(value) is not kind:
        return f"needs {'true or false' if kind is bool else 'a whole number'}"
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    least = getattr(PLAIN, name)
    if not least <= value <= _COUNT_MAX:
        return f"{value} is out of range; it lies between {least} and {_COUNT_MAX}"
    return None


def changed(attributes: QueueAttributes, values: Mapping[str, object]) -> QueueAttributes:
    """Return the attributes with these values in place of their own."""
    return replace(attributes, **values) if values else attributes  # type: ignore[arg-type]


def to_note(attributes: QueueAttributes) -> dict[str, object]:
    """Return what differs from a plain queue, for the journal."""
    return {n: getattr(attributes, n) for n in NAMES if getattr(attributes, n) != getattr(PLAIN, n)}


def from_note(values: Mapping[str, object]) -> QueueAttributes:
    """Return the attributes of a journal note. Raises ValueError on what it does not know."""
    for name, value in values.items():
        problem = attribute_problem(name, value) if name in NAMES else "is not known"
        if problem is not None:
            raise ValueError(f"queue attribute {name} {problem}")
    return changed(PLAIN, values)
