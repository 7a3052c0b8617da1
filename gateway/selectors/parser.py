"""From the words of a selector to its tree, by recursive descent [JMS 3.8.1.1-2].

    condition   conjunction { OR conjunction }
    conjunction negation { AND negation }
    negation    { NOT } predicate
    predicate   sum [ (= | <> | < | <= | > | >=) sum
                    | IS [NOT] NULL
                    | [NOT] BETWEEN sum AND sum
                    | [NOT] IN ( text {, text} )
                    | [NOT] LIKE text [ESCAPE text] ]
    sum         product { (+ | -) product }
    product     factor { (* | /) factor }
    factor      { + | - } ( literal | name | ( condition ) )

IS NULL, IN and LIKE take a name on their left. What is known to be no number cannot be ordered or
computed with, what is known to be no condition cannot stand for one; a name may be anything.

Bounded by bytes of text, by nodes (names, literals, operators; not the texts of IN, which cost a
look into a set) and by depth (open parentheses, NOTs and signs). Python's stack grows by 8 frames
with each open parenthesis. Raises SelectorError and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.selectors import like
from gateway.selectors.errors import SelectorError
from gateway.selectors.lexer import Kind, Token, tokens
from gateway.selectors.tree import (
    ORDERINGS,
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
from gateway.selectors.values import arithmetic

LENGTH_MAX: Final = 1_024
NODES_MAX: Final = 64
DEPTH_MAX: Final = 32

_CONVERT: Final = "convert_string_expressions:"
_HYPHENS: Final = "hyphenated_props:"
_NUMBER: Final = "a number"
_TEXT: Final = "a text"
_CONDITION: Final = "a condition"
_ANYTHING: Final = "anything"
_COMPARISONS: Final = ORDERINGS | {"=", "<>"}
_XPATH: Final = frozenset({"XPATH", "XQUERY"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A selector's tree, and whether texts that are numbers count as such."""

    tree: Node
    converting: bool


@dataclass(frozen=True, slots=True)
class _Part:
    """A node, where it was written, and what it is known to be."""

    node: Node
    column: int
    kind: str


_Operand = Callable[[], _Part]


def parse(selector: str) -> Parsed:
    """Return the tree of a selector; raises SelectorError."""
    size = len(selector.encode("utf-8", "surrogatepass"))
    if size > LENGTH_MAX:
        raise SelectorError(
            selector, 1, expected=f"at most {LENGTH_MAX} bytes", found=f"{size} bytes"
        )
    start, converting, hyphens = 0, False, False
    while True:
        if not converting and selector.startswith(_CONVERT, start):
            start, converting = start + len(_CONVERT), True
        elif not hyphens and selector.startswith(_HYPHENS, start):
            start, hyphens = start + len(_HYPHENS), True
        else:
            break
    parser = _Parser(selector, tokens(selector, start, hyphens=hyphens))
    return Parsed(tree=parser.whole(), converting=converting)


class _Parser:
    def __init__(self, selector: str, words: list[Token]) -> None:
        self.selector = selector
        self.words = words
        self.at = 0
        self.nodes = 0
        self.depth = 0
        self.open = 0

    # ---- words

    @property
    def word(self) -> Token:
        return self.words[self.at]

    def next(self) -> Token:
        word = self.words[self.at]
        if word.kind is not Kind.END:
            self.at += 1
        return word

    def take(self, *wanted: str) -> Token | None:
        """Return the next word, read, when it is one of these symbols or keywords."""
        word = self.words[self.at]
        if word.kind in {Kind.SYMBOL, Kind.KEYWORD} and word.text in wanted:
            self.at += 1
            return word
        return None

    def need(self, wanted: str, shown: str) -> Token:
        word = self.take(wanted)
        if word is None:
            raise self.error(self.word, shown)
        return word

    def error(self, word: Token, expected: str) -> SelectorError:
        return SelectorError(self.selector, word.column, expected=expected, found=str(word))

    # ---- limits and kinds

    def count(self, column: int) -> None:
        self.nodes += 1
        if self.nodes > NODES_MAX:
            expected = f"at most {NODES_MAX} names, literals and operators"
            raise SelectorError(self.selector, column, expected=expected)

    def deeper(self, word: Token) -> None:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            expected = f"at most {DEPTH_MAX} open parentheses, NOTs and signs"
            raise SelectorError(self.selector, word.column, expected=expected)

    def require(self, part: _Part, kind: str) -> Node:
        if part.kind not in {kind, _ANYTHING}:
            raise SelectorError(self.selector, part.column, expected=kind, found=part.kind)
        return part.node

    # ---- conditions

    def whole(self) -> Node:
        if self.word.kind is Kind.END:
            raise self.error(self.word, "a condition; leave the selector out to get every message")
        part = self.condition()
        last = self.next()
        if last.kind is not Kind.END:
            raise self.error(last, self.follow(part))
        return self.require(part, _CONDITION)

    def follow(self, part: _Part) -> str:
        """Return what could stand behind a complete part."""
        end = "')'" if self.open else "the end"
        if part.kind == _CONDITION:
            return f"AND, OR or {end}"
        if type(part.node) is Field and part.node.name.upper() in _XPATH:
            return "a comparison: XPATH and XQUERY are not offered"
        return f"an operator or {end}"

    def condition(self) -> _Part:
        return self.chain("OR", self.conjunction)

    def conjunction(self) -> _Part:
        return self.chain("AND", self.negation)

    def chain(self, keyword: str, operand: _Operand) -> _Part:
        first = operand()
        if self.word.kind is not Kind.KEYWORD or self.word.text != keyword:
            return first
        operands = [self.require(first, _CONDITION)]
        while (word := self.take(keyword)) is not None:
            self.count(word.column)
            operands.append(self.require(operand(), _CONDITION))
        node = Or(tuple(operands)) if keyword == "OR" else And(tuple(operands))
        return _Part(node, first.column, _CONDITION)

    def negation(self) -> _Part:
        nots: list[Token] = []
        while (word := self.take("NOT")) is not None:
            self.count(word.column)
            self.deeper(word)
            nots.append(word)
        part = self.predicate()
        for word in reversed(nots):
            part = _Part(Not(self.require(part, _CONDITION)), word.column, _CONDITION)
            self.depth -= 1
        return part

    def predicate(self) -> _Part:
        left = self.sum()
        sign = self.take(*_COMPARISONS)
        if sign is not None:
            return self.comparison(left, sign)
        if (word := self.take("IS")) is not None:
            return self.is_null(left, word)
        negated = self.take("NOT") is not None
        word = self.word
        if self.take("BETWEEN") is not None:
            node = self.between(left, word, negated=negated)
        elif self.take("IN") is not None:
            node = self.one_of(left, word, negated=negated)
        elif self.take("LIKE") is not None:
            node = self.like(left, word, negated=negated)
        elif negated:
            raise self.error(word, "BETWEEN, IN or LIKE behind NOT")
        else:
            return left
        return _Part(node, left.column, _CONDITION)

    def comparison(self, left: _Part, sign: Token) -> _Part:
        self.count(sign.column)
        right = self.sum()
        if sign.text in ORDERINGS:
            self.require(left, _NUMBER)
            self.require(right, _NUMBER)
        return _Part(Comparison(sign.text, left.node, right.node), left.column, _CONDITION)

    def is_null(self, left: _Part, word: Token) -> _Part:
        field = self.field(left, word)
        negated = self.take("NOT") is not None
        self.need("NULL", "NULL" if negated else "NULL or NOT NULL")
        return _Part(IsNull(field, negated), left.column, _CONDITION)

    def field(self, left: _Part, word: Token) -> Field:
        """Return the name on the left of an operator that takes nothing else there."""
        self.count(word.column)
        if type(left.node) is not Field:
            found = "an expression" if left.kind == _ANYTHING else left.kind
            raise SelectorError(
                self.selector, left.column, expected=f"a name in front of {word.text}", found=found
            )
        return left.node

    def between(self, left: _Part, word: Token, *, negated: bool) -> Node:
        self.count(word.column)
        operand = self.require(left, _NUMBER)
        low = self.require(self.sum(), _NUMBER)
        self.need("AND", "AND and the upper bound of BETWEEN")
        return Between(operand, low, self.require(self.sum(), _NUMBER), negated)

    def one_of(self, left: _Part, word: Token, *, negated: bool) -> Node:
        field = self.field(left, word)
        self.need("(", "'(' and the texts of IN")
        texts = [self.text("a text: IN compares texts, numbers are compared with =")]
        while self.take(",") is not None:
            texts.append(self.text("a text: IN compares texts, numbers are compared with ="))
        self.need(")", "',' or ')'")
        return In(field, frozenset(texts), negated)

    def like(self, left: _Part, word: Token, *, negated: bool) -> Node:
        field = self.field(left, word)
        at = self.word
        pattern = self.text("a pattern in single quotes")
        escape = ""
        if self.take("ESCAPE") is not None:
            escape_at = self.word
            escape = self.text("one character in single quotes")
            if len(escape) != 1:
                raise self.error(escape_at, "one character in single quotes")
        try:
            like.segments(pattern, escape)
        except ValueError:
            raise self.error(at, "a character behind each escape character") from None
        return Like(field, pattern, escape, negated)

    def text(self, expected: str) -> str:
        word = self.next()
        if word.kind is not Kind.TEXT:
            raise self.error(word, expected)
        assert isinstance(word.value, str)
        return word.value

    # ---- values

    def sum(self) -> _Part:
        return self.computed(("+", "-"), self.product)

    def product(self) -> _Part:
        return self.computed(("*", "/"), self.factor)

    def computed(self, signs: tuple[str, ...], operand: _Operand) -> _Part:
        part = operand()
        while (sign := self.take(*signs)) is not None:
            self.count(sign.column)
            left = self.require(part, _NUMBER)
            right = self.require(operand(), _NUMBER)
            part = _Part(_folded(sign.text, left, right), part.column, _NUMBER)
        return part

    def factor(self) -> _Part:
        signs: list[Token] = []
        while (sign := self.take("+", "-")) is not None:
            self.count(sign.column)
            self.deeper(sign)
            signs.append(sign)
        part = self.primary()
        for sign in reversed(signs):
            node = self.require(part, _NUMBER)
            part = _Part(_signed(sign.text, node), sign.column, _NUMBER)
            self.depth -= 1
        return part

    def primary(self) -> _Part:
        word = self.next()
        if word.kind is Kind.SYMBOL and word.text == "(":
            return self.parenthesis(word)
        self.count(word.column)
        if word.kind is Kind.NAME:
            return _Part(Field(word.text), word.column, _ANYTHING)
        if word.kind is Kind.NUMBER:
            return _Part(Literal(word.value), word.column, _NUMBER)
        if word.kind is Kind.TEXT:
            return _Part(Literal(word.value), word.column, _TEXT)
        if word.kind is Kind.KEYWORD and word.text in {"TRUE", "FALSE"}:
            return _Part(Literal(word.text == "TRUE"), word.column, _CONDITION)
        if word.kind is Kind.KEYWORD and word.text == "NULL":
            raise self.error(word, "a value; NULL is asked for with IS NULL")
        raise self.error(word, "a name, a literal or '('")

    def parenthesis(self, word: Token) -> _Part:
        self.deeper(word)
        self.open += 1
        inner = self.condition()
        if self.take(")") is None:
            raise self.error(self.word, self.follow(inner))
        self.open -= 1
        self.depth -= 1
        return _Part(inner.node, word.column, inner.kind)


def _folded(sign: str, left: Node, right: Node) -> Node:
    """Return the result of two literals, or the node that computes it for each message."""
    if type(left) is Literal and type(right) is Literal:
        result = arithmetic(sign, left.value, right.value)
        if isinstance(result, (int, float)):
            return Literal(result)
    return Arithmetic(sign, left, right)


def _signed(sign: str, node: Node) -> Node:
    if type(node) is Literal and isinstance(node.value, (int, float)):
        return Literal(-node.value if sign == "-" else node.value)
    # A plus changes nothing but makes it arithmetic: NULL for what is no number.
    return Negate(node) if sign == "-" else Arithmetic("+", node, Literal(0))
