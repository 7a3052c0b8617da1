"""The words of a selector [JMS 3.8.1.1].

    text         'it''s'            a quote inside is doubled
    exact        57  0x1F  017  9L  Java's integer literals, to 2^64 - 1: AMQP has unsigned ones
    approximate  7.  -.5  7E3  1.5f Java's floating-point literals, in the range of a double
    name         Java's identifiers: letters, digits, _ and $, no digit first; case counts
                 "any-thing"        in double quotes anything; a quote inside is doubled
    keyword      AND BETWEEN ESCAPE FALSE IN IS LIKE NOT NULL OR TRUE, case does not count
    symbol       = <> < <= > >= + - * / ( ) ,

Blank, tab, LF, CR and form feed separate words. A sign is a symbol of its own. Knows no grammar.
"""

from __future__ import annotations

import struct
import unicodedata
from dataclasses import dataclass
from enum import Enum
from typing import Final

from gateway.selectors.errors import SelectorError

KEYWORDS: Final = frozenset(
    ["AND", "BETWEEN", "ESCAPE", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE"]
)
EXACT_MAX: Final = (1 << 64) - 1
_BLANKS: Final = " \t\n\r\f"
_DIGITS: Final = "0123456789"
_HEX: Final = "0123456789abcdefABCDEF"
_PAIRS: Final = frozenset({"<>", "<=", ">="})
_SINGLES: Final = frozenset("=<>+-*/(),")
#: What other languages write, and what is meant by it here.
_FOREIGN: Final = {
    "!=": "'<>' for not equal",
    "==": "'=' for equal",
    "&&": "AND",
    "||": "OR",
}
_START_KINDS: Final = frozenset(["Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"])
_PART_KINDS: Final = _START_KINDS | {"Nd", "Mn", "Mc"}


class Kind(Enum):
    """Kinds of words; the value is how errors name them."""

    NAME = "name"
    TEXT = "text"
    NUMBER = "number"
    KEYWORD = "keyword"
    SYMBOL = "symbol"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """A word. `text` is the name, the upper-case keyword, the symbol, or as written."""

    kind: Kind
    text: str
    column: int
    value: str | int | float = ""

    def __str__(self) -> str:
        """Return how an error names it."""
        if self.kind is Kind.END:
            return "the end"
        return f"'{self.text}'" if len(self.text) <= 40 else f"a {self.kind.value}"


def tokens(selector: str, start: int = 0, *, hyphens: bool = False) -> list[Token]:
    """Return the words from `start` on, the last of kind END; raises SelectorError.

    `hyphens` lets names have '-' inside.
    """
    return _Lexer(selector, start, hyphens=hyphens).run()


class _Lexer:
    def __init__(self, selector: str, start: int, *, hyphens: bool) -> None:
        self.selector = selector
        self.at = start
        self.hyphens = hyphens

    def run(self) -> list[Token]:
        selector = self.selector
        found: list[Token] = []
        while True:
            while self.at < len(selector) and selector[self.at] in _BLANKS:
                self.at += 1
            if self.at >= len(selector):
                found.append(Token(Kind.END, "", len(selector) + 1))
                return found
            found.append(self._token(selector[self.at]))

    def _token(self, first: str) -> Token:
        if first == "'":
            start = self.at
            value = self._quoted("'", "a closing ' (a quote inside a text is doubled)")
            return Token(Kind.TEXT, self.selector[start : self.at], start + 1, value)
        if first == '"':
            start = self.at
            name = self._quoted('"', 'a closing " (a quote inside a name is doubled)')
            if not name:
                raise self._error(start, "a name inside the double quotes", found='""')
            return Token(Kind.NAME, name, start + 1)
        if unicodedata.category(first) in _START_KINDS or first == "$":
            return self._word()
        if first in _DIGITS or (first == "." and self._peek(1) in _DIGITS):
            return self._number()
        return self._symbol(first)

    def _peek(self, ahead: int) -> str:
        """Return the character `ahead` of here; a NUL, which nothing accepts, behind the end."""
        at = self.at + ahead
        return self.selector[at] if at < len(self.selector) else "\0"

    def _error(self, at: int, expected: str, found: str = "") -> SelectorError:
        return SelectorError(self.selector, at + 1, expected=expected, found=found)

    def _quoted(self, quote: str, expected: str) -> str:
        """Read what is in quotes; `at` moves behind the closing one."""
        selector = self.selector
        pieces: list[str] = []
        at = self.at + 1
        while True:
            end = selector.find(quote, at)
            if end < 0:
                raise self._error(len(selector), expected, "the end")
            pieces.append(selector[at:end])
            at = end + 1
            if selector[at : at + 1] != quote:
                self.at = at
                return quote.join(pieces)
            at += 1

    def _word(self) -> Token:
        selector, start = self.selector, self.at
        at = start + 1
        while at < len(selector) and self._inside_name(selector[at]):
            at += 1
        self.at = at
        name = selector[start:at]
        if name.upper() in KEYWORDS:
            return Token(Kind.KEYWORD, name.upper(), start + 1)
        return Token(Kind.NAME, name, start + 1)

    def _inside_name(self, character: str) -> bool:
        if character == "-":
            return self.hyphens
        return character == "$" or unicodedata.category(character) in _PART_KINDS

    def _symbol(self, first: str) -> Token:
        start = self.at
        pair = self.selector[start : start + 2]
        if pair in _FOREIGN:
            raise self._error(start, _FOREIGN[pair], f"'{pair}'")
        symbol = pair if pair in _PAIRS else first
        if symbol not in _PAIRS and symbol not in _SINGLES:
            named = f"'{first}'" if first.isprintable() else f"U+{ord(first):04X}"
            raise self._error(start, "a name, a literal or an operator", named)
        self.at += len(symbol)
        return Token(Kind.SYMBOL, symbol, start + 1)

    # ---- numbers

    def _number(self) -> Token:
        start = self.at
        prefix = self.selector[start : start + 2]
        value = self._hexadecimal() if prefix in {"0x", "0X"} else self._decimal()
        if self._inside_name(self._peek(0)) or self._peek(0) == ".":
            raise self._error(
                self.at, "an operator or a blank behind the number", f"'{self._peek(0)}'"
            )
        return Token(Kind.NUMBER, self.selector[start : self.at], start + 1, value)

    def _run(self, alphabet: str) -> str:
        """Read the longest run of these characters."""
        start = self.at
        while self._peek(0) in alphabet:
            self.at += 1
        return self.selector[start : self.at]

    def _hexadecimal(self) -> int:
        start = self.at
        self.at += 2
        digits = self._run(_HEX)
        if not digits:
            raise self._error(self.at, "a hexadecimal digit", self._here())
        return self._exact(int(digits, 16), start)

    def _decimal(self) -> int | float:
        start = self.at
        whole = self._run(_DIGITS)
        approximate = self._peek(0) == "."
        if approximate:
            self.at += 1
            self._run(_DIGITS)
        if self._peek(0) in "eE":
            approximate = True
            self.at += 1
            if self._peek(0) in "+-":
                self.at += 1
            if not self._run(_DIGITS):
                raise self._error(self.at, "a digit of the exponent", self._here())
        if approximate or self._peek(0) in "fFdD":
            return self._approximate(start)
        if whole[0] != "0" or whole == "0":
            return self._exact(int(whole), start)
        for index, digit in enumerate(whole):
            if digit in "89":
                raise self._error(
                    start + index,
                    "a digit below 8: a number that starts with 0 is octal",
                    f"'{digit}'",
                )
        return self._exact(int(whole, 8), start)

    def _exact(self, value: int, start: int) -> int:
        if value > EXACT_MAX:
            raise self._error(start, f"a whole number of at most {EXACT_MAX}", self._from(start))
        if self._peek(0) in "lL":
            self.at += 1
        return value

    def _approximate(self, start: int) -> float:
        value = float(self.selector[start : self.at])
        single = self._peek(0) in "fF"
        if single or self._peek(0) in "dD":
            self.at += 1
        if single:
            # Native packing rounds to an infinity where the others raise.
            value = float(struct.unpack("f", struct.pack("f", value))[0])
        if value - value != 0:
            kind = "float" if single else "double"
            raise self._error(start, f"a number in the range of a {kind}", self._from(start))
        return value

    def _from(self, start: int) -> str:
        written = self.selector[start : self.at]
        return f"'{written}'" if len(written) <= 40 else f"one of {len(written)} characters"

    def _here(self) -> str:
        return "the end" if self.at >= len(self.selector) else f"'{self._peek(0)}'"
