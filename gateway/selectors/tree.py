"""What a selector says, as a tree of frozen nodes.

    condition   And, Or, Not, Comparison, Between, In, Like, IsNull
    value       Literal, Field, Negate, Arithmetic; a Literal of bool and a Field are conditions too

The parser has checked what can be known without a message: no arithmetic on texts, no text where a
condition belongs. Chains of AND and of OR are one node each, whatever their length. Columns count
from 1, in characters of the selector as it was written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

#: Comparisons by order; `=` and `<>` are the others.
ORDERINGS: Final = frozenset({"<", "<=", ">", ">="})


@dataclass(frozen=True, slots=True)
class Literal:
    """A text, an exact or approximate number, TRUE or FALSE."""

    value: str | int | float | bool


@dataclass(frozen=True, slots=True)
class Field:
    """An identifier: a field or property of the message."""

    name: str


@dataclass(frozen=True, slots=True)
class Negate:
    """Unary minus."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Two numbers and `+`, `-`, `*` or `/`."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two values and `=`, `<>`, `<`, `<=`, `>` or `>=`."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Between:
    """`operand [NOT] BETWEEN low AND high`."""

    operand: Node
    low: Node
    high: Node
    negated: bool


@dataclass(frozen=True, slots=True)
class In:
    """`field [NOT] IN (texts)`."""

    field: Field
    texts: frozenset[str]
    negated: bool


@dataclass(frozen=True, slots=True)
class Like:
    """`field [NOT] LIKE pattern [ESCAPE escape]`; `escape` is "" without one."""

    field: Field
    pattern: str
    escape: str
    negated: bool


@dataclass(frozen=True, slots=True)
class IsNull:
    """`field IS [NOT] NULL`."""

    field: Field
    negated: bool


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a condition; unknown stays unknown."""

    operand: Node


@dataclass(frozen=True, slots=True)
class And:
    """Two or more conditions."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Two or more conditions."""

    operands: tuple[Node, ...]


Node: TypeAlias = (
    Literal
    | Field
    | Negate
    | Arithmetic
    | Comparison
    | Between
    | In
    | Like
    | IsNull
    | Not
    | And
    | Or
)
