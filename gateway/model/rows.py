"""Settings said once: a field of a frozen dataclass is the row of its setting. Pure.

    ring: Annotated[int, Unit.COUNT, unlimited, "messages that it keeps; -1 no limit"] = -1

The field gives name, type and default, and is what the code reads: plain attribute access. Behind
the type stand, in any order, the facts that everything else follows from: keys of the configuration
and their readers, bodies and views of the API, notes in the journal, what a reload reaches.

    a text        the words that people read about it
    `Unit`        how its numbers or texts are written; COUNT or TEXT where none stands
    a function    the rule that its values keep (`gateway.model.bounds`)
    anything else is found by its class: `row.fact(Reach)`
"""

from __future__ import annotations

from dataclasses import Field, dataclass, fields
from enum import Enum, auto
from types import NoneType
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin, get_type_hints

from gateway.model.bounds import Bound

Fact = TypeVar("Fact")


class Unit(Enum):
    """How a value is written."""

    COUNT = auto()
    BYTES = auto()
    MS = auto()
    SECONDS = auto()
    TEXT = auto()
    NAME = auto()  # a text of at least one character
    ADDRESS = auto()  # the name of an address; "" is none


class Reach(Enum):
    """What a change reaches while the gateway runs; see `gateway.config.reach`."""

    AT_ONCE = "at-once"
    NEW_CONNECTIONS = "new-connections"
    NEW_QUEUES = "new-queues"
    RESTART = "restart"
    REFUSED = "refused"
    STAYS = "stays"

    @property
    def applies(self) -> bool:
        """Whether a reload does something for it."""
        return self in (Reach.AT_ONCE, Reach.NEW_CONNECTIONS, Reach.NEW_QUEUES)


_UNITS: Final = {str: Unit.TEXT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One setting.

    Attributes:
        name: of the field: `max_size_bytes`.
        key: its name in the configuration: `max-size-bytes`.
        json: its name in the API: `maxSizeBytes`.
        kind: the type of its values, without None.
        optional: None may stand for it.
        default: `dataclasses.MISSING` where it has to be said.
        words: what people read about it.
    """

    name: str
    key: str
    json: str
    kind: Any
    optional: bool
    default: Any
    words: str
    unit: Unit
    bound: Bound | None
    facts: tuple[object, ...]

    @property
    def nullable(self) -> bool:
        """Whether the API takes null for it, and shows it: nothing is said."""
        return self.optional or self.kind is str

    def fact(self, of: type[Fact]) -> Fact | None:
        """Return its fact of a class, None where it has none."""
        return next((fact for fact in self.facts if isinstance(fact, of)), None)

    def problem(self, value: object) -> str | None:
        """Say why a value of its type is impossible, or None."""
        return None if self.bound is None or value is None else self.bound(value)


def rows_of(table: type) -> dict[str, Row]:
    """Return name -> row for each annotated field of a dataclass, in their order."""
    hints = get_type_hints(table, include_extras=True)
    return {
        field.name: _row(field, *get_args(hints[field.name]))
        for field in fields(table)
        if get_origin(hints[field.name]) is Annotated
    }


def _row(field: Field[object], kind: Any, *facts: Any) -> Row:  # noqa: ANN401 - any type and fact
    kinds = [member for member in get_args(kind) if member is not NoneType]
    optional = len(kinds) < len(get_args(kind))
    plain = kinds[0] if optional else kind
    first, *others = field.name.split("_")
    return Row(
        name=field.name,
        key=field.name.replace("_", "-"),
        json=first + "".join(word.title() for word in others),
        kind=plain,
        optional=optional,
        default=field.default,
        words=next((fact for fact in facts if isinstance(fact, str)), ""),
        unit=next((f for f in facts if isinstance(f, Unit)), _UNITS.get(plain, Unit.COUNT)),
        bound=next((fact for fact in facts if callable(fact)), None),
        facts=facts,
    )
