"""How a queue delivers, as an operator says it; the names are Artemis' in snake_case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Final

_COUNT_MAX: Final = (1 << 31) - 1
_KEY_LENGTH_MAX: Final = 255
#: The property that names the value of a message on a last-value queue, unless another is said.
LAST_VALUE_KEY: Final = "_AMQ_LVQ_NAME"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueAttributes:
    """What a queue does beside its limits.

    Attributes:
        exclusive: one consumer gets everything, until it leaves.
        purge_on_no_consumers: without consumers it takes nothing in and keeps nothing that waits.
        consumers_before_dispatch: nothing is delivered before so many consumers are there.
        delay_before_dispatch: ms after the first consumer when fewer will do; -1 never.
        enabled: it takes messages in; without it what it holds is still delivered.
        last_value: of the messages that wait with one key only the last stays.
        last_value_key: the property that is the key; "" unless `last_value`.
        non_destructive: consumers are shown what there is, and remove nothing.
        group_buckets: groups share so many; 0: there are no groups, -1: each has its own.
        group_rebalance: with each consumer that comes, groups are shared out anew.
        group_rebalance_pause_dispatch: not before all that is in delivery is settled.
        group_first_key: the property that the first message of a group gets; "" none.
        consumer_priority: of consumers that do not say theirs.
        auto_delete: it goes when it is not used any more; None, as for the next two: as the
            settings of its address say at that time.
        auto_delete_delay: ms after its last consumer left.
        auto_delete_message_count: messages that it may still hold then; -1 any.
    """

    exclusive: bool = False
    purge_on_no_consumers: bool = False
    consumers_before_dispatch: int = 0
    delay_before_dispatch: int = -1
    enabled: bool = True
    last_value: bool = False
    last_value_key: str = ""
    non_destructive: bool = False
    group_buckets: int = -1
    group_rebalance: bool = False
    group_rebalance_pause_dispatch: bool = False
    group_first_key: str = ""
    consumer_priority: int = 0
    auto_delete: bool | None = None
    auto_delete_delay: int | None = None
    auto_delete_message_count: int | None = None


#: What a queue is from its making on: what it holds is kept accordingly.
LASTING: Final = ("last_value", "last_value_key", "non_destructive")
PLAIN: Final = QueueAttributes()
NAMES: Final = tuple(field.name for field in fields(QueueAttributes))


#: Types of those that are None unless they are said.
_UNSAID: Final = {
    "auto_delete": bool, "auto_delete_delay": int, "auto_delete_message_count": int,
}  # fmt: skip
#: The least value of a number, where that is not what a plain queue has.
_LEAST: Final = {
    "consumer_priority": -_COUNT_MAX - 1,
    "auto_delete_delay": 0,
    "auto_delete_message_count": -1,
}
_WORDS: Final = {bool: "true or false", int: "a whole number", str: "a text"}


def text_problem(value: str) -> str | None:
    """Say why a text cannot name a property, or None."""
    if len(value) > _KEY_LENGTH_MAX or not value.isprintable():
        return f"it is no name of a property: at most {_KEY_LENGTH_MAX} printable characters"
    return None


def attribute_problem(name: str, value: object) -> str | None:
    """Say why an attribute cannot have this value, or None."""
    kind = _UNSAID.get(name) or type(getattr(PLAIN, name))
    if type(value) is not kind:
        return f"needs {_WORDS[kind]}"
    if isinstance(value, str):
        return text_problem(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    least = _LEAST[name] if name in _LEAST else getattr(PLAIN, name)
    if not least <= value <= _COUNT_MAX:
        return f"{value} is out of range; it lies between {least} and {_COUNT_MAX}"
    return None


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
    return {n: getattr(attributes, n) for n in NAMES if getattr(attributes, n) != getattr(PLAIN, n)}


def from_note(values: Mapping[str, object]) -> QueueAttributes:
    """Return the attributes of a journal note. Raises ValueError on what it does not know."""
    for name, value in values.items():
        problem = attribute_problem(name, value) if name in NAMES else "is not known"
        if problem is not None:
            raise ValueError(f"queue attribute {name} {problem}")
    return changed(PLAIN, values)
