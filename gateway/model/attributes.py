"""How a queue delivers, as an operator says it; the names are Artemis' in snake_case.

`QueueAttributes` is the one table: a new attribute is one field of it and its behaviour. Keys of
`[addresses.NAME]`, bodies and views of the API, notes in the journal and what is refused follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Final

from gateway.model.bounds import within
from gateway.model.rows import Reach, Row, Unit, rows_of

_COUNT_MAX: Final = (1 << 31) - 1
_KEY_LENGTH_MAX: Final = 255
#: The property that names the value of a message on a last-value queue, unless another is said.
LAST_VALUE_KEY: Final = "_AMQ_LVQ_NAME"


def text_problem(value: str) -> str | None:
    """Say why a text cannot name a property, or None."""
    if len(value) > _KEY_LENGTH_MAX or not value.isprintable():
        return f"it is no name of a property: at most {_KEY_LENGTH_MAX} printable characters"
    return None


_COUNT: Final = within(0, _COUNT_MAX)
_ANY_COUNT: Final = within(-1, _COUNT_MAX)
#: What a queue is from its making on: what it holds is kept accordingly.
_LASTING: Final = Reach.REFUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueAttributes:
    """What a queue does beside its limits; None is what the settings of its address say then."""

    exclusive: Annotated[bool, "one consumer gets everything, until it leaves"] = False
    purge_on_no_consumers: Annotated[
        bool, "without consumers it takes nothing in and keeps nothing that waits"
    ] = False
    consumers_before_dispatch: Annotated[
        int, _COUNT, "nothing is delivered before so many consumers are there"
    ] = 0
    delay_before_dispatch: Annotated[
        int, Unit.MS, _ANY_COUNT, "after the first consumer when fewer will do; -1 never"
    ] = -1
    enabled: Annotated[
        bool, "it takes messages in; without it what it holds is still delivered"
    ] = True
    last_value: Annotated[
        bool, _LASTING, "of the messages that wait with one key only the last stays"
    ] = False
    last_value_key: Annotated[
        str, _LASTING, text_problem, 'the property that is the key; "" unless last-value'
    ] = ""
    non_destructive: Annotated[
        bool, _LASTING, "consumers are shown what there is, and remove nothing"
    ] = False
    group_buckets: Annotated[
        int, _ANY_COUNT, "groups share so many; 0: there are no groups, -1: each has its own"
    ] = -1
    group_rebalance: Annotated[
        bool, "with each consumer that comes, groups are shared out anew"
    ] = False
    group_rebalance_pause_dispatch: Annotated[
        bool, "not before all that is in delivery is settled"
    ] = False
    group_first_key: Annotated[
        str, text_problem, 'the property that the first message of a group gets; "" none'
    ] = ""
    consumer_priority: Annotated[
        int, within(-_COUNT_MAX - 1, _COUNT_MAX), "of consumers that do not say theirs"
    ] = 0
    auto_delete: Annotated[bool | None, "it goes when it is not used any more"] = None
    auto_delete_delay: Annotated[
        int | None, Unit.MS, _COUNT, "so long after its last consumer left"
    ] = None
    auto_delete_message_count: Annotated[
        int | None, _ANY_COUNT, "messages that it may still hold then; -1 any"
    ] = None


PLAIN: Final = QueueAttributes()
ROWS: Final[Mapping[str, Row]] = rows_of(QueueAttributes)
LASTING: Final = tuple(row.name for row in ROWS.values() if row.fact(Reach) is _LASTING)
_WORDS: Final = {bool: "true or false", int: "a whole number", str: "a text"}


def attribute_problem(name: str, value: object) -> str | None:
    """Say why an attribute cannot have this value, or None."""
    row = ROWS[name]
    if type(value) is not row.kind:
        return f"needs {_WORDS[row.kind]}"
    return row.problem(value)


def changed(attributes: QueueAttributes, values: Mapping[str, object]) -> QueueAttributes:
    """Return the attributes with these values in place of their own.

    A key alone makes a queue of last values; such a queue without one has `LAST_VALUE_KEY`.
    """
    if not values:
        return attributes
    found: QueueAttributes = replace(attributes, **values)  # type: ignore[arg-type]
    if values.get("last_value") is False:
        return replace(found, last_value_key="")
    if found.last_value or found.last_value_key:
        key = found.last_value_key or LAST_VALUE_KEY
        return replace(found, last_value=True, last_value_key=key)
    return found


def to_note(attributes: QueueAttributes) -> dict[str, object]:
    """Return what differs from a plain queue, for the journal."""
    said = ((name, getattr(attributes, name)) for name in ROWS)
    return {name: value for name, value in said if value != ROWS[name].default}


def from_note(values: Mapping[str, object]) -> QueueAttributes:
    """Return the attributes of a journal note. Raises ValueError on what it does not know."""
    for name, value in values.items():
        problem = attribute_problem(name, value) if name in ROWS else "is not known"
        if problem is not None:
            raise ValueError(f"queue attribute {name} {problem}")
    return changed(PLAIN, values)
