"""The rules of the language one by one, each as a table [JMS 3.8.1]."""

from __future__ import annotations

import pytest

from gateway.model.amqp_types import Float32, Symbol, UByte, UInt, ULong
from gateway.selectors import SelectorError, compile_selector
from tests.selectors.messages import amqp, outcome, stomp

MESSAGE = amqp(
    {
        "n": 5,
        "u": UInt(4_294_967_295),
        "big": ULong(18_446_744_073_709_551_615),
        "min": -(2**63),
        "small": UByte(7),
        "f": 2.5,
        "f32": Float32(0.5),
        "s": "red",
        "e": "",
        "quote": "it's",
        "percent": "100%",
        "digits": "5",
        "yes": True,
        "no": False,
        "null": None,
        "bytes": b"red",
        "symbol": Symbol("red"),
        "my-key": "v",
        "with space": 1,
        'with"quote': 2,
        "AND": 3,
        "größe": 4,
        "$x_1": 6,
    }
)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("s = 'red'", True),
        ("s = 'RED'", False),
        ("s <> 'blue'", True),
        ("s = 'red '", False),
        ("e = ''", True),
        ("quote = 'it''s'", True),
        ("'red' = s", True),
        ("s = s", True),
        ("s = symbol", True),
        ("s = missing", None),
        ("missing = 'x'", None),
        ("missing <> 'x'", None),
        ('"null" = "null"', None),
    ],
)
def test_texts(selector: str, expected: bool | None) -> None:
    assert outcome(selector, MESSAGE) is expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("n = 5", True),
        ("n <> 5", False),
        ("n < 6", True),
        ("n < 5", False),
        ("n <= 5", True),
        ("n > 4", True),
        ("n > 5", False),
        ("n >= 5", True),
        ("6 > n", True),
        ("5 >= n", True),
        ("4 < n", True),
        ("5 <= n", True),
        ("5 = n", True),
        ("4 <> n", True),
        ("n = 5.0", True),
        ("n < 5.5", True),
        ("f = 2.5", True),
        ("f > 2", True),
        ("f32 = 0.5", True),
        ("f32 < 1", True),
        ("small = 7", True),
        # Unsigned values are what they are, not negative.
        ("u = 4294967295", True),
        ("u > 0", True),
        ("big = 18446744073709551615", True),
        ("big > 9223372036854775807", True),
        ("min = -9223372036854775808", True),
        ("min < -9223372036854775807", True),
        # An exact number meets an approximate one as a double, as in Java.
        ("9007199254740993 = 9007199254740992.0", True),
        ("9007199254740993 = 9007199254740992", False),
        ("missing < 5", None),
        ("n < missing", None),
    ],
)
def test_numbers(selector: str, expected: bool | None) -> None:
    assert outcome(selector, MESSAGE) is expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        # "If the comparison of non-like type values is attempted, the value of the operation is
        # false": whatever the operation is, and unknown when a side is NULL.
        ("n = '5'", False),
        ("n <> '5'", False),
        ("digits = 5", False),
        ("digits <> 5", False),
        ("digits > 4", False),
        ("digits <= 4", False),
        ("yes = 1", False),
        ("yes <> 1", False),
        ("no = 0", False),
        ("yes = 'true'", False),
        ("n = TRUE", False),
        ("s > 1", False),
        ("s < n", False),
        ("s < symbol", False),
        ("yes > no", False),
        ("bytes = 'red'", False),
        ("bytes <> 'red'", False),
        ("bytes = bytes", False),
        ("bytes <> bytes", False),
        ("bytes > 1", False),
        ("bytes = missing", None),
        ("missing = TRUE", None),
        ("'5' = 5", False),
        ("TRUE = 1", False),
    ],
)
def test_values_of_different_kinds(selector: str, expected: bool | None) -> None:
    assert outcome(selector, MESSAGE) is expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("yes", True),
        ("no", False),
        ("missing", None),
        ("s", False),
        ("n", False),
        ("TRUE", True),
        ("false", False),
        ("yes = TRUE", True),
        ("yes = FALSE", False),
        ("yes <> no", True),
        ("no = False", True),
        ("yes AND s = 'red'", True),
        ("(n = 5) = TRUE", True),
        ("(n = 5) = (s = 'red')", True),
        ("(n = 5) <> no", True),
        ("(missing = 1) = TRUE", None),
        ("(missing = 1) <> (n = 5)", None),
        ("(missing = 1 AND no) = FALSE", True),
        ("(missing = 1 OR yes) = TRUE", True),
        ("(NOT missing = 1) = TRUE", None),
        ("(NOT no) = yes", True),
        ("(NOT n) = yes", True),
        ("(yes AND NOT (no OR no)) = yes", True),
        ("(no OR yes AND missing) = yes", None),
        ("(n = 5 OR TRUE AND FALSE) = TRUE", True),
    ],
)
def test_booleans(selector: str, expected: bool | None) -> None:
    assert outcome(selector, MESSAGE) is expected


TRUTH = {"T": "n = 5", "F": "n = 6", "U": "missing = 5"}
VALUE = {"T": True, "F": False, "U": None}


@pytest.mark.parametrize(
    ("left", "right", "both", "either"),
    [
        ("T", "T", "T", "T"),
        ("T", "F", "F", "T"),
        ("T", "U", "U", "T"),
        ("F", "T", "F", "T"),
        ("F", "F", "F", "F"),
        ("F", "U", "F", "U"),
        ("U", "T", "U", "T"),
        ("U", "F", "F", "U"),
        ("U", "U", "U", "U"),
    ],
)
def test_and_or_of_three_values(left: str, right: str, both: str, either: str) -> None:
    assert outcome(f"{TRUTH[left]} AND {TRUTH[right]}", MESSAGE) is VALUE[both]
    assert outcome(f"{TRUTH[left]} OR {TRUTH[right]}", MESSAGE) is VALUE[either]
    three = f"{TRUTH[left]} AND {TRUTH[right]} AND TRUE"
    assert outcome(three, MESSAGE) is VALUE[both]
    assert outcome(f"{TRUTH[left]} OR {TRUTH[right]} OR FALSE", MESSAGE) is VALUE[either]
    # The same where the value itself is wanted.
    assert outcome(f"({TRUTH[left]} AND {TRUTH[right]}) = TRUE", MESSAGE) is VALUE[both]
    assert outcome(f"({TRUTH[left]} OR {TRUTH[right]}) = TRUE", MESSAGE) is VALUE[either]


@pytest.mark.parametrize(("value", "opposite"), [("T", "F"), ("F", "T"), ("U", "U")])
def test_not_of_three_values(value: str, opposite: str) -> None:
    assert outcome(f"NOT {TRUTH[value]}", MESSAGE) is VALUE[opposite]
    assert outcome(f"NOT NOT {TRUTH[value]}", MESSAGE) is VALUE[value]
    assert outcome(f"(NOT {TRUTH[value]}) = TRUE", MESSAGE) is VALUE[opposite]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("n = 5 OR n = 6 AND n = 7", True),
        ("(n = 5 OR n = 6) AND n = 7", False),
        ("NOT n = 6 AND n = 5", True),
        ("NOT (n = 6 AND n = 5)", True),
        ("NOT n = 5 OR n = 5", True),
        ("n + 1 = 6", True),
        ("1 + 2 * 3 = 7", True),
        ("(1 + 2) * 3 = 9", True),
        ("10 - 4 - 3 = 3", True),
        ("24 / 4 / 2 = 3", True),
        ("24 / 4 * 2 = 12", True),
        ("-n + 10 = 5", True),
        ("2 * -n = -10", True),
        ("- -n = 5", True),
        ("+n = 5", True),
        ("-+-n = 5", True),
        ("n--5 = 10", True),
        ("n = 5 AND s = 'red' AND f > 2 AND yes", True),
        ("n > 3 AND n < 7 OR s = 'x'", True),
    ],
)
def test_precedence(selector: str, expected: bool | None) -> None:
    assert outcome(selector, MESSAGE) is expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("n + n = 10", True),
        ("n * f = 12.5", True),
        ("n - f = 2.5", True),
        ("n / 2 = 2", True),
        ("-n / 2 = -2", True),
        ("n / -2 = -2", True),
        ("-n / -2 = 2", True),
        ("n / 2.0 = 2.5", True),
        ("n / 0 = 1", None),
        ("n / 0 IS NULL", SelectorError),
        ("1 / 0 = 1", None),
        ("n / 0.0 > 1e308", True),
        ("-n / 0.0 < -1e308", True),
        ("n / -0.0 < -1e308", True),
        ("0.0 / 0.0 = 0.0", False),
        ("0.0 / 0.0 <> 0.0", True),
        # A NaN is no number's equal, not even its own.
        ("0.0 / 0.0 = 0.0 / 0.0", False),
        ("n + missing = 5", None),
        ("missing * 0 = 0", None),
        ("s + 1 = 2", None),
        ("yes + 1 = 2", None),
        ("-s = 1", None),
        ("+s = 'red'", None),
        ("-bytes = 1", None),
        # Exact numbers do not wrap; with a double they become one, or an infinity.
        ("9223372036854775807 + 1 = 9223372036854775808", True),
        ("min * min > 0", True),
        ("9223372036854775807 * n > 9223372036854775807", True),
        ("f * big > 1.8e19", True),
        (" * ".join(["big"] * 17) + " * 1.0 > 1.7e308", True),
        ("-" + " * ".join(["big"] * 17) + " * 1.0 < -1.7e308", True),
        (" * ".join(["big"] * 17) + " > 1.7e308", True),
    ],
)
def test_arithmetic(selector: str, expected: bool | type[SelectorError] | None) -> None:
    if expected is SelectorError:
        with pytest.raises(SelectorError):
            compile_selector(selector)
    else:
        assert outcome(selector, MESSAGE) is expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("n = 0x5", True),
        ("n = 0X05", True),
        ("u = 0xFFFFFFFF", True),
        ("u = 0xffffffffL", True),
        ("n = 05", True),
        ("8 = 010", True),
        ("n = 5L", True),
        ("n = 5l", True),
        ("0 = 00", True),
        ("f = 2.5e0", True),
        ("f = 25E-1", True),
        ("f = .25e+1", True),
        ("n = 5.", True),
        ("n = 5.e0", True),
        ("n = 5d", True),
        ("n = 5F", True),
        ("f = 2.5D", True),
        ("9.5 = 09.5", True),
        ("17.0 = 017f", True),
        # A float is rounded to 24 bits before it is widened.
        ("0.1f = 0.1", False),
        ("f32 = 0.5f", True),
        ("n = 5e0", True),
        ("-57.9E2 = -5790", True),
        ("n=5", True),
        ("n\t=\n5\r\f", True),
        ("  n = 5  ", True),
    ],
)
def test_literals(selector: str, expected: bool | None) -> None:
    assert outcome(selector, MESSAGE) is expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("n BETWEEN 5 AND 6", True),
        ("n BETWEEN 4 AND 5", True),
        ("n BETWEEN 6 AND 9", False),
        ("n BETWEEN 6 AND 4", False),
        ("n NOT BETWEEN 6 AND 9", True),
        ("n NOT BETWEEN 5 AND 5", False),
        ("n BETWEEN f AND big", True),
        ("n + 1 BETWEEN 2 * 3 AND 6.0", True),
        ("5 BETWEEN n AND n", True),
        ("missing BETWEEN 1 AND 2", None),
        ("missing NOT BETWEEN 1 AND 2", None),
        # x >= low AND x <= high, with unknown bounds.
        ("n BETWEEN missing AND 9", None),
        ("n BETWEEN missing AND 4", False),
        ("n BETWEEN 9 AND missing", False),
        ("n NOT BETWEEN missing AND 4", True),
        ("n NOT BETWEEN 9 AND missing", True),
        ("n NOT BETWEEN missing AND 9", None),
        ("s BETWEEN 1 AND 2", False),
        ("s NOT BETWEEN 1 AND 2", False),
        ("n BETWEEN 1 AND 9 AND s = 'red'", True),
        ("n BETWEEN 1 AND 9 AND n BETWEEN 2 AND 3 OR yes", True),
    ],
)
def test_between(selector: str, expected: bool | None) -> None:
    assert outcome(selector, MESSAGE) is expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("s IN ('red', 'blue')", True),
        ("s IN ('blue')", False),
        ("s NOT IN ('blue', 'green')", True),
        ("s NOT IN ('red')", False),
        ("missing IN ('red')", None),
        ("missing NOT IN ('red')", None),
        ("quote IN ('it''s')", True),
        # Equivalent to equalities, so a number is not in it: NOT IN is NOT (... OR ...).
        ("n IN ('5')", False),
        ("n NOT IN ('5')", True),
        ("yes IN ('true')", False),
        ("bytes NOT IN ('red')", True),
        ("(s) IN ('red')", True),
    ],
)
def test_in(selector: str, expected: bool | None) -> None:
    assert outcome(selector, MESSAGE) is expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("s IS NULL", False),
        ("s IS NOT NULL", True),
        ("missing IS NULL", True),
        ("missing IS NOT NULL", False),
        ("null IS NULL", SelectorError),
        ('"null" IS NULL', True),
        ("bytes IS NULL", False),
        ("bytes IS NOT NULL", True),
        ("e IS NULL", False),
        ("no IS NULL", False),
        ("is_null IS NULL", True),
    ],
)
def test_is_null(selector: str, expected: bool | type[SelectorError] | None) -> None:
    if expected is SelectorError:
        with pytest.raises(SelectorError):
            compile_selector(selector)
    else:
        assert outcome(selector, MESSAGE) is expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("s LIKE 'r%'", True),
        ("s LIKE '_e_'", True),
        ("s NOT LIKE '_e_'", False),
        ("s NOT LIKE 'b%'", True),
        ("missing LIKE '%'", None),
        ("missing NOT LIKE '%'", None),
        ("n LIKE '5'", False),
        ("n NOT LIKE '5'", True),
        ("percent LIKE '100!%' ESCAPE '!'", True),
        ("percent LIKE '1!00%' ESCAPE '!'", True),
        ("percent NOT LIKE '100!%' ESCAPE '!'", False),
        ("quote LIKE 'it''_'", True),
        ("quote LIKE 'it''%' ESCAPE ''''", False),
        ("quote LIKE 'it''''s' ESCAPE ''''", True),
    ],
)
def test_like(selector: str, expected: bool | None) -> None:
    assert outcome(selector, MESSAGE) is expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("N = 5", None),
        ('"n" = 5', True),
        ("\"my-key\" = 'v'", True),
        # Without quotes it is a subtraction of two absent fields.
        ("my-key = 'v'", None),
        ("hyphenated_props:my-key = 'v'", True),
        ("hyphenated_props:n -1 = 4", True),
        ("hyphenated_props:n-1 = 4", None),
        ('"with space" = 1', True),
        ('"with""quote" = 2', True),
        ('"AND" = 3', True),
        ("größe = 4", True),
        ("$x_1 = 6", True),
        ("n = 5 and s = 'red' Or no", True),
        ("not n between 1 And 2", True),
        ("s like 'R%' oR s In ('red')", True),
        ("missing is Null AND s Is not nulL", True),
        ("yes = true AND no = FaLsE", True),
        ("BETWEENS IS NULL AND inn IS NULL AND nullable IS NULL", True),
    ],
)
def test_names(selector: str, expected: bool | None) -> None:
    assert outcome(selector, MESSAGE) is expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("n = 5", False),
        ("n = '5'", True),
        ("n > 4", False),
        ("convert_string_expressions:n = 5", True),
        ("convert_string_expressions:n = 5.0", True),
        ("convert_string_expressions:5 = n", True),
        ("convert_string_expressions:n <> 6", True),
        ("convert_string_expressions:n > 4", True),
        ("convert_string_expressions:n > m", False),
        ("convert_string_expressions:n < m", True),
        ("convert_string_expressions:n = '5'", True),
        # Two texts are compared as texts.
        ("convert_string_expressions:padded = '5'", False),
        ("convert_string_expressions:padded = 5", True),
        ("convert_string_expressions:n BETWEEN 4 AND m", True),
        ("convert_string_expressions:n NOT BETWEEN 6 AND m", True),
        ("convert_string_expressions:n + 1 = 6", True),
        ("convert_string_expressions:-f = -2.5", True),
        ("convert_string_expressions:f > 2.4e0", True),
        ("convert_string_expressions:word = 5", False),
        ("convert_string_expressions:word <> 5", False),
        ("convert_string_expressions:word > 5", False),
        ("convert_string_expressions:word + 1 = 6", None),
        ("convert_string_expressions:missing = 5", None),
        ("convert_string_expressions:flag = TRUE", True),
        ("convert_string_expressions:flag <> FALSE", True),
        ("convert_string_expressions:word = TRUE", False),
        ("convert_string_expressions:hyphenated_props:a-b = 1", True),
        ("hyphenated_props:convert_string_expressions:a-b = 1", True),
        # Python's own spellings of numbers are none here.
        ("convert_string_expressions:under = 15", False),
        ("convert_string_expressions:nan <> 1", False),
        ("convert_string_expressions:infinite > 1", False),
        ("convert_string_expressions:arabic = 5", False),
        ("convert_string_expressions:huge > 1", False),
        ("convert_string_expressions:blank = 5", False),
        ("convert_string_expressions:plus = 5", True),
    ],
)
def test_texts_as_numbers(selector: str, expected: bool | None) -> None:
    message = stomp(
        {
            "n": "5",
            "m": "10",
            "padded": "05",
            "f": "2.5",
            "word": "red",
            "flag": "True",
            "a-b": "1",
            "under": "1_5",
            "nan": "nan",
            "infinite": "Infinity",
            "arabic": "\N{ARABIC-INDIC DIGIT FIVE}",
            "huge": "9" * 400,
            "blank": " 5",
            "plus": "+5",
        }
    )
    assert outcome(selector, message) is expected


def test_a_selector_tells_its_text_and_names() -> None:
    selector = compile_selector("a = 1 AND NOT (b LIKE 'x' OR -c + d < 3) OR e BETWEEN f AND g")
    assert selector.names == frozenset("abcdefg")
    assert selector.text.startswith("a = 1")
    assert "a = 1" in repr(selector)


def test_equal_texts_of_one_queue_are_one_selector() -> None:
    assert compile_selector("a = 1", "q") is compile_selector("a = 1", "q")
    assert compile_selector("a = 1", "q") is not compile_selector("a = 1", "r")
