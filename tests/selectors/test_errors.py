"""What is refused: the code, the column, what was expected; and the limits."""

from __future__ import annotations

import pytest

from gateway.model.errors import Code, RefusedError
from gateway.selectors import SelectorError, compile_selector
from gateway.selectors.parser import DEPTH_MAX, LENGTH_MAX, NODES_MAX
from tests.selectors.messages import amqp


def refusal(selector: str) -> SelectorError:
    with pytest.raises(RefusedError) as caught:
        compile_selector(selector)
    error = caught.value
    assert type(error) is SelectorError
    assert error.refusal.code is Code.BAD_SELECTOR
    assert error.refusal.code.value == "bad-selector"
    assert not error.refusal.transient
    assert error.selector == selector
    assert f"column {error.column}: expected {error.expected}" in error.refusal.text
    return error


@pytest.mark.parametrize(
    ("selector", "column", "expected", "found"),
    [
        ("", 1, "a condition", "the end"),
        ("   ", 4, "a condition", "the end"),
        ("a", None, "", ""),
        ("a =", 4, "a name, a literal or '('", "the end"),
        ("a = = 5", 5, "a name, a literal or '('", "'='"),
        ("a == 5", 3, "'=' for equal", "'=='"),
        ("a != 5", 3, "'<>' for not equal", "'!='"),
        ("a = 1 && b = 2", 7, "AND", "'&&'"),
        ("a = 1 || b = 2", 7, "OR", "'||'"),
        ("a = 1 b", 7, "AND, OR or the end", "'b'"),
        ("a = 1 = b", 7, "AND, OR or the end", "'='"),
        ("a < b < c", 7, "AND, OR or the end", "'<'"),
        ("(a = 1", 7, "AND, OR or ')'", "the end"),
        ("(a = 1 b", 8, "AND, OR or ')'", "'b'"),
        ("(a + 1 b", 8, "an operator or ')'", "'b'"),
        ("(a = 1) b", 9, "AND, OR or the end", "'b'"),
        ("(a + 1) b", 9, "an operator or the end", "'b'"),
        ("a = 1)", 6, "AND, OR or the end", "')'"),
        ("()", 2, "a name, a literal or '('", "')'"),
        ("a b", 3, "an operator or the end", "'b'"),
        ("a = 1 AND", 10, "a name, a literal or '('", "the end"),
        ("a = 1 OR OR b", 10, "a name, a literal or '('", "'OR'"),
        ("AND", 1, "a name, a literal or '('", "'AND'"),
        ("NOT", 4, "a name, a literal or '('", "the end"),
        ("a = NOT b", 5, "a name, a literal or '('", "'NOT'"),
        ("NOT NULL", 5, "NULL is asked for with IS NULL", "'NULL'"),
        ("a = NULL", 5, "NULL is asked for with IS NULL", "'NULL'"),
        ("a IS 5", 6, "NULL or NOT NULL", "'5'"),
        ("a IS", 5, "NULL or NOT NULL", "the end"),
        ("a IS NOT 5", 10, "NULL", "'5'"),
        ("5 IS NULL", 1, "a name in front of IS", "a number"),
        ("a + 1 IS NULL", 1, "a name in front of IS", "a number"),
        ("(a = 1) IS NULL", 1, "a name in front of IS", "a condition"),
        ("a = 1 AND 'x' LIKE 'y'", 11, "a name in front of LIKE", "a text"),
        ("a NOT", 6, "BETWEEN, IN or LIKE behind NOT", "the end"),
        ("a NOT = 5", 7, "BETWEEN, IN or LIKE behind NOT", "'='"),
        ("a NOT NULL", 7, "BETWEEN, IN or LIKE behind NOT", "'NULL'"),
        ("a IN", 5, "'('", "the end"),
        ("a IN 'x'", 6, "'('", "''x''"),
        ("a IN ()", 7, "a text", "')'"),
        ("a IN ('x',)", 11, "a text", "')'"),
        ("a IN ('x' 'y')", 11, "',' or ')'", "''y''"),
        ("a IN ('x'", 10, "',' or ')'", "the end"),
        ("a IN (1, 2)", 7, "numbers are compared with =", "'1'"),
        ("a IN (b)", 7, "a text", "'b'"),
        ("5 IN ('x')", 1, "a name in front of IN", "a number"),
        ("a LIKE", 7, "a pattern in single quotes", "the end"),
        ("a LIKE b", 8, "a pattern in single quotes", "'b'"),
        ("a LIKE 5", 8, "a pattern in single quotes", "'5'"),
        ("a LIKE 'x' ESCAPE", 18, "one character in single quotes", "the end"),
        ("a LIKE 'x' ESCAPE ''", 19, "one character in single quotes", "''''"),
        ("a LIKE 'x' ESCAPE 'ab'", 19, "one character in single quotes", "''ab''"),
        ("a LIKE 'x!' ESCAPE '!'", 8, "a character behind each escape", "''x!''"),
        ("a BETWEEN 1", 12, "AND and the upper bound", "the end"),
        ("a BETWEEN 1 OR 2", 13, "AND and the upper bound", "'OR'"),
        ("a BETWEEN 1 AND", 16, "a name, a literal or '('", "the end"),
        ("a BETWEEN 'x' AND 'y'", 11, "a number", "a text"),
        ("a BETWEEN 1 AND 'y'", 17, "a number", "a text"),
        ("'x' BETWEEN 1 AND 2", 1, "a number", "a text"),
        # Texts and booleans have no order.
        ("a < 'x'", 5, "a number", "a text"),
        ("'x' >= a", 1, "a number", "a text"),
        ("a > TRUE", 5, "a number", "a condition"),
        ("(a = 1) < b", 1, "a number", "a condition"),
        ("a + 'x' = 1", 5, "a number", "a text"),
        ("'x' + a = 1", 1, "a number", "a text"),
        ("a * TRUE = 1", 5, "a number", "a condition"),
        ("-'x' = a", 2, "a number", "a text"),
        ("- (a = 1) = a", 3, "a number", "a condition"),
        # What is no condition.
        ("5", 1, "a condition", "a number"),
        ("'x'", 1, "a condition", "a text"),
        ("a + 1", 1, "a condition", "a number"),
        ("-a", 1, "a condition", "a number"),
        ("a = 1 AND 5", 11, "a condition", "a number"),
        ("5 OR a = 1", 1, "a condition", "a number"),
        ("NOT 5", 5, "a condition", "a number"),
        ("NOT 'x'", 5, "a condition", "a text"),
        ("NOT a + 1", 5, "a condition", "a number"),
        # Words.
        ("a = 'x", 7, "a closing '", "the end"),
        ("a = 'x''", 9, "a closing '", "the end"),
        ('"a = 1', 7, 'a closing "', "the end"),
        ('"" = 1', 1, "a name inside the double quotes", '""'),
        ("a = 5x", 6, "an operator or a blank behind the number", "'x'"),
        ("a = 1.2.3", 8, "an operator or a blank behind the number", "'.'"),
        ("a = 0x", 7, "a hexadecimal digit", "the end"),
        ("a = 0xg", 7, "a hexadecimal digit", "'g'"),
        ("a = 1e", 7, "a digit of the exponent", "the end"),
        ("a = 1e+", 8, "a digit of the exponent", "the end"),
        ("a = 1e+x", 8, "a digit of the exponent", "'x'"),
        ("a = 0189", 7, "a digit below 8", "'8'"),
        ("a = 18446744073709551616", 5, "at most 18446744073709551615", "'18446744073709551616'"),
        ("a = 0x10000000000000000", 5, "at most 18446744073709551615", "'0x10000000000000000'"),
        ("a = " + "9" * 400, 5, "at most 18446744073709551615", "one of 400 characters"),
        ("a = 1e309", 5, "the range of a double", "'1e309'"),
        ("a = 1e39f", 5, "the range of a float", "'1e39f'"),
        ("a = " + "9" * 400 + ".", 5, "the range of a double", "one of 401 characters"),
        ("a.b = 1", 2, "a name, a literal or an operator", "'.'"),
        ("a = ?", 5, "a name, a literal or an operator", "'?'"),
        ("a = 1;", 6, "a name, a literal or an operator", "';'"),
        ("a = 1 \0", 7, "a name, a literal or an operator", "U+0000"),
        ("a\N{NO-BREAK SPACE}= 1", 2, "a name, a literal or an operator", "U+00A0"),
        ("a = \ud800", 5, "a name, a literal or an operator", "U+D800"),
        (
            "\N{ARABIC-INDIC DIGIT FIVE} = a",
            1,
            "a name, a literal or an operator",
            "'\N{ARABIC-INDIC DIGIT FIVE}'",
        ),
        ("XPATH '//a'", 7, "XPATH and XQUERY are not offered", "''//a''"),
        ("xquery 'x'", 8, "XPATH and XQUERY are not offered", "''x''"),
        ("convert_string_expressions:", 28, "a condition", "the end"),
        ("convert_string_expressions:a = = 1", 32, "a name, a literal", "'='"),
        ("hyphenated_props:a = ", 22, "a name, a literal", "the end"),
        ("hyphenated_props:hyphenated_props:a = 1", 34, "a name, a literal", "':'"),
        ("größe = = 1", 9, "a name, a literal or '('", "'='"),
    ],
)
def test_columns(selector: str, column: int | None, expected: str, found: str) -> None:
    if column is None:
        compile_selector(selector)
        return
    error = refusal(selector)
    assert error.column == column
    assert expected in error.expected
    assert error.refusal.text.endswith(f"found {found}.")


def test_the_text_is_one_sentence_for_people() -> None:
    assert refusal("a = = 5").refusal.text == (
        'The selector "a = = 5" is wrong at column 5: '
        "expected a name, a literal or '(', found '='."
    )


def test_a_long_selector_is_shown_around_its_column() -> None:
    text = refusal(" OR ".join(["abcdefgh = 1"] * 20) + " OR ? = 1").refusal.text
    assert '"...' in text
    assert 'OR ? = 1" is wrong' in text
    assert 300 > len(text) > 250
    text = refusal("? " + "a" * 900).refusal.text
    assert '"? aaa' in text
    assert 'aaa..." is wrong at column 1' in text


def test_control_characters_are_not_repeated() -> None:
    assert "\x1b" not in refusal("a = \x1b[31m").refusal.text


def test_length_is_limited_in_bytes() -> None:
    fitting = "s = '" + "x" * (LENGTH_MAX - 6) + "'"
    assert compile_selector(fitting).matches(amqp({"s": "x" * (LENGTH_MAX - 6)}))
    error = refusal(fitting[:-1] + "x'")
    assert error.column == 1
    assert f"at most {LENGTH_MAX} bytes, found {LENGTH_MAX + 1} bytes" in error.refusal.text
    assert refusal("s = '" + "é" * (LENGTH_MAX // 2) + "'").column == 1
    assert refusal("\ud800" * LENGTH_MAX).column == 1


@pytest.mark.parametrize("opening", ["(", "NOT ", "NOT(", "- ", "+", "-("])
def test_depth_is_limited(opening: str) -> None:
    step = sum(opening.count(part) for part in ("(", "NOT", "-", "+"))
    inside = "a" if opening[0] in "-+" else "a = 1"
    closing = ")" * opening.count("(")

    def nested(times: int) -> str:
        # A comparison in front, since a sign makes no condition.
        return (
            "0 = 0 AND "
            + ("0 = " if opening[0] in "-+" else "")
            + (opening * times + inside + closing * times)
        )

    compile_selector(nested(DEPTH_MAX // step))
    error = refusal(nested(DEPTH_MAX // step + 1))
    assert error.expected == f"at most {DEPTH_MAX} open parentheses, NOTs and signs"


def test_depth_is_what_is_open_at_once() -> None:
    compile_selector(" AND ".join(["((((a = 1))))"] * 12))
    compile_selector(" AND ".join(["NOT NOT - - a = 1"] * 8))


@pytest.mark.parametrize("opening", ["(", "-", "NOT ", "((a = ", "a = (", "1 + ("])
def test_ten_thousand_of_anything_are_refused(opening: str) -> None:
    refusal(opening * 10_000)
    refusal(opening * (LENGTH_MAX // len(opening)))


def test_nodes_are_limited() -> None:
    # n names, n - 1 plus signs, one comparison, one literal.
    most = (NODES_MAX - 1) // 2
    sums = " + ".join(["a"] * most)
    assert compile_selector(f"{sums} = {most}").matches(amqp({"a": 1}))
    error = refusal(f"{sums} + a = {most + 1}")
    assert error.expected == f"at most {NODES_MAX} names, literals and operators"
    ors = " OR ".join(["a = 1"] * (NODES_MAX // 4))
    compile_selector(ors)
    assert refusal(ors + " OR a = 1 OR a = 1").column > len(ors)


def test_texts_of_in_are_limited_by_length_alone() -> None:
    texts = ", ".join(f"'{n}'" for n in range(100))
    assert compile_selector(f"s IN ({texts})").matches(amqp({"s": "99"}))
