"""From a tree to a function, once for each selector.

A condition is built in one of three ways, by what is asked about it: is it true, is it false, or
which of true, false and unknown is it. "True" and "false" need no third value anywhere below: AND
is true when both sides are and false when one side is, NOT exchanges the two questions. Only a
condition that is compared (`(a = 1) = flag`) is built for its value. So most selectors run on
Python's own truth, and every node of the tree is visited at most once for a message.

`access` says how a field is got out of whatever the function is called with. `itself` is the access
of a selector with one field, whose function is then called with the value of that field.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from gateway.selectors.like import matcher
from gateway.selectors.tree import (
    And,
    Arithmetic,
    Between,
    Comparison,
    Field,
    In,
    IsNull,
    Like,
    Literal,
    Negate,
    Node,
    Not,
    Or,
)
from gateway.selectors.values import (
    COMPARISONS,
    CONVERTING,
    Scalar,
    Ternary,
    arithmetic,
    as_number,
    negative,
)

#: What fields are got out of: a view, or the value of the one field.
Subject: TypeAlias = Any
Getter: TypeAlias = Callable[[Subject], Scalar]
#: Answers a yes-or-no question: None counts as no.
Test: TypeAlias = Callable[[Subject], Ternary]
Judge: TypeAlias = Callable[[Scalar], Ternary]
Access: TypeAlias = Callable[[str], Getter]

_ON_INTS: Final[dict[str, Callable[[int, int], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
#: How a comparison reads from its other side.
_MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def itself(value: Scalar) -> Scalar:
    """Return the value: the getter of a function that is called with it."""
    return value


def names(node: Node) -> frozenset[str]:
    """Return the names of all fields in a tree."""
    match node:
        case Field():
            return frozenset((node.name,))
        case Literal():
            return frozenset()
        case Negate() | Not():
            return names(node.operand)
        case Arithmetic() | Comparison():
            return names(node.left) | names(node.right)
        case Between():
            return names(node.operand) | names(node.low) | names(node.high)
        case In() | Like() | IsNull():
            return frozenset((node.field.name,))
        case And() | Or():
            return frozenset().union(*map(names, node.operands))


class Builder:
    """Builds functions of one selector."""

    def __init__(self, access: Access, *, converting: bool) -> None:
        self._access = access
        self._converting = converting
        self._comparisons = CONVERTING if converting else COMPARISONS

    def is_true(self, node: Node) -> Test:
        """Return the function that says whether a condition is true."""
        match node:
            case And():
                return _all([self.is_true(operand) for operand in node.operands])
            case Or():
                return _any([self.is_true(operand) for operand in node.operands])
            case Not():
                return self.is_false(node.operand)
            case _:
                return self._leaf(node)

    def is_false(self, node: Node) -> Test:
        """Return the function that says whether a condition is false."""
        match node:
            case And():
                return _any([self.is_false(operand) for operand in node.operands])
            case Or():
                return _all([self.is_false(operand) for operand in node.operands])
            case Not():
                return self.is_true(node.operand)
            case _:
                leaf = self._leaf(node)
                return lambda subject: leaf(subject) is False

    # ---- conditions without AND, OR, NOT

    def _leaf(self, node: Node) -> Test:
        match node:
            case Comparison():
                return self._comparison(node)
            case Between():
                return self._between(node)
            case In():
                return self._judged(node.field, _one_of(node.texts, negated=node.negated))
            case Like():
                return self._judged(node.field, _like(node))
            case IsNull():
                judge = _is_not_null if node.negated else _is_null
                return self._judged(node.field, judge)
            case Field():
                return self._judged(node, _as_condition)
            case Literal():
                value = node.value is True
                return lambda subject: value
            case _:
                raise AssertionError(f"the parser let {node} stand for a condition")

    def _judged(self, field: Field, judge: Judge) -> Test:
        get = self._access(field.name)
        if get is itself:
            return judge
        return lambda subject: judge(get(subject))

    def _comparison(self, node: Comparison) -> Test:
        sign, left, right = node.operator, node.left, node.right
        if type(left) is Literal and type(right) is Field:
            sign, left, right = _MIRRORED[sign], right, left
        if type(left) is Field and type(right) is Literal:
            return self._judged(left, self._against(sign, right.value))
        compare, first, second = self._comparisons[sign], self.value(left), self.value(right)
        return lambda subject: compare(first(subject), second(subject))

    def _against(self, sign: str, literal: Scalar) -> Judge:
        """Return the function that compares a field with a literal."""
        if not self._converting:
            if sign == "=" and type(literal) is str:
                return _equals_text(literal)
            if type(literal) is int:
                return _against_exact(COMPARISONS[sign], sign, literal)
        compare = self._comparisons[sign]
        return lambda value: compare(value, literal)

    def _between(self, node: Between) -> Test:
        least, most = self._comparisons[">="], self._comparisons["<="]
        below, above = self._comparisons["<"], self._comparisons[">"]
        get, low, high = self.value(node.operand), self.value(node.low), self.value(node.high)
        if node.negated:

            def outside(subject: Subject) -> Ternary:
                value = get(subject)
                return _or(below(value, low(subject)), above(value, high(subject)))

            return outside

        def inside(subject: Subject) -> Ternary:
            value = get(subject)
            return _and(least(value, low(subject)), most(value, high(subject)))

        return inside

    # ---- values

    def value(self, node: Node) -> Getter:
        """Return the function that computes a value; of a condition, its truth or None."""
        match node:
            case Literal():
                constant = node.value
                return lambda subject: constant
            case Field():
                return self._access(node.name)
            case Negate():
                operand = self._number(node.operand)
                return lambda subject: negative(operand(subject))
            case Arithmetic():
                sign = node.operator
                left, right = self._number(node.left), self._number(node.right)
                return lambda subject: arithmetic(sign, left(subject), right(subject))
            case Not():
                condition = self._ternary(node.operand)
                return lambda subject: _not(condition(subject))
            case And():
                return _folded(_and, [self._ternary(operand) for operand in node.operands])
            case Or():
                return _folded(_or, [self._ternary(operand) for operand in node.operands])
            case _:
                return self._leaf(node)

    def _ternary(self, node: Node) -> Test:
        if isinstance(node, (Not, And, Or)):
            value = self.value(node)
            return lambda subject: _as_condition(value(subject))
        return self._leaf(node)

    def _number(self, node: Node) -> Getter:
        value = self.value(node)
        if self._converting and type(node) is Field:
            return lambda subject: as_number(value(subject))
        return value


# ---- three-valued logic


def _not(a: Ternary) -> Ternary:
    return None if a is None else not a


def _and(a: Ternary, b: Ternary) -> Ternary:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def _or(a: Ternary, b: Ternary) -> Ternary:
    if a or b:
        return True
    return None if a is None or b is None else False


def _folded(combine: Callable[[Ternary, Ternary], Ternary], operands: list[Test]) -> Getter:
    first, *others = operands

    def value(subject: Subject) -> Scalar:
        result = first(subject)
        for operand in others:
            result = combine(result, operand(subject))
        return result

    return value


def _all(tests: list[Test]) -> Test:
    if len(tests) == 2:
        first, second = tests
        return lambda subject: first(subject) and second(subject)

    def every(subject: Subject) -> bool:
        for test in tests:  # noqa: SIM110 - all() of a generator costs twice as much
            if not test(subject):
                return False
        return True

    return every


def _any(tests: list[Test]) -> Test:
    if len(tests) == 2:
        first, second = tests
        return lambda subject: first(subject) or second(subject)

    def some(subject: Subject) -> bool:
        for test in tests:  # noqa: SIM110 - any() of a generator costs twice as much
            if test(subject):
                return True
        return False

    return some


# ---- one field and constants


def _as_condition(value: Scalar) -> Ternary:
    """Return a field as a condition: one that is there and no boolean is false."""
    return value if value is None or type(value) is bool else False


def _is_null(value: Scalar) -> Ternary:
    return value is None


def _is_not_null(value: Scalar) -> Ternary:
    return value is not None


def _equals_text(literal: str) -> Judge:
    def judge(value: Scalar) -> Ternary:
        return value == literal if value is not None else None

    return judge


def _against_exact(compare: Callable[[Scalar, Scalar], Ternary], sign: str, literal: int) -> Judge:
    holds = _ON_INTS[sign]

    def judge(value: Scalar) -> Ternary:
        if type(value) is int:
            return holds(value, literal)
        return compare(value, literal)

    return judge


def _one_of(texts: frozenset[str], *, negated: bool) -> Judge:
    def judge(value: Scalar) -> Ternary:
        if value is None:
            return None
        return (type(value) is str and value in texts) is not negated

    return judge


def _like(node: Like) -> Judge:
    like = matcher(node.pattern, node.escape)
    negated = node.negated

    def judge(value: Scalar) -> Ternary:
        if value is None:
            return None
        found = like(value) if type(value) is str else False
        return found if not negated else _not(found)

    return judge
