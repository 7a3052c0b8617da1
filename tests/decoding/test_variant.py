"""Properties as variants: what Spark's own reader makes of them."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pyspark.sql.types import VariantVal

from gateway.decoding.variant import encode_pairs
from gateway.model.amqp_types import (
    AmqpArray,
    AmqpDecimal,
    AmqpMap,
    Char,
    Described,
    Float32,
    Symbol,
    Timestamp,
    UByte,
    ULong,
)
from tests.lanes import examples

UTC = dt.UTC


def read(pairs: list[tuple[str, Any]]) -> Any:
    made = encode_pairs(pairs)
    assert made is not None
    found = VariantVal(made.value, made.metadata)
    found.toJson()
    return found.toPython()


def decimal64(coefficient: int, exponent: int, sign: int = 0) -> AmqpDecimal:
    """Return a decimal64 in binary integer decimal encoding [IEEE 754]."""
    return AmqpDecimal((sign << 63 | (exponent + 398) << 53 | coefficient).to_bytes(8, "big"))


VALUES = [
    (None, None), (True, True), (False, False), ("", ""), ("a" * 63, "a" * 63),
    ("ü" * 40, "ü" * 40), (Symbol("sym"), "sym"), (Char("c"), "c"), (UByte(200), 200),
    (0, 0), (-128, -128), (128, 128), (-32769, -32769), (1 << 31, 1 << 31),
    (-(1 << 63), -(1 << 63)), ((1 << 63) - 1, (1 << 63) - 1),
    (ULong((1 << 64) - 1), Decimal((1 << 64) - 1)), (1.5, 1.5), (Float32(0.25), 0.25),
    (b"", b""), (b"\x00\xff" * 40, b"\x00\xff" * 40),
    (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
    (Timestamp(1_700_000_000_123), dt.datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)),
    (Timestamp(-1), dt.datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
    (Timestamp(1 << 60), None), (Timestamp(-(1 << 60)), None),
    (decimal64(12345, -2), Decimal("123.45")), (decimal64(7, 3), Decimal(7000)),
    (decimal64(5, -9, 1), Decimal("-5E-9")), (decimal64(0, 0), Decimal(0)),
    (decimal64(1, -38), Decimal("1E-38")), (decimal64(1, -39), "1E-39"),
    (decimal64(1, 40), "1E+40"), (AmqpDecimal(b"\x7c" + b"\x00" * 7), "NaN"),
    ([1, "a", None, [2]], [1, "a", None, [2]]), (AmqpArray(0x71, (1, 2)), [1, 2]), ([], []),
    (list(range(300)), list(range(300))), ({"b": 1, "a": {"c": True}}, {"b": 1, "a": {"c": True}}),
    (AmqpMap(((1, "one"), ("1", "two"))), {"1": "one"}), ({}, {}),
    (Described(Symbol("x"), 5), 5), (("first", "second"), ["first", "second"]),
]  # fmt: skip


@pytest.mark.parametrize(("value", "seen"), VALUES)
def test_values_keep_their_types(value: Any, seen: Any) -> None:
    found = read([("n", value)])
    assert found == {"n": seen}
    assert type(found["n"]) is type(seen)


def test_no_properties_are_an_empty_object() -> None:
    assert read([]) == {}


def test_of_a_name_that_comes_twice_the_first_counts() -> None:
    assert read([("a", 1), ("a", 2)]) == {"a": 1}


def test_many_names_in_any_order() -> None:
    pairs = [(f"name {n * 7919 % 1000} \U0001f600", n) for n in range(1000)]
    assert read(pairs) == dict(pairs)


def test_what_is_too_large_for_a_variant_is_null() -> None:
    assert encode_pairs([("a", "x" * (1 << 24))]) is None
    assert encode_pairs([("x" * (1 << 24), 1)]) is None
    assert encode_pairs([("a", "x" * ((1 << 24) - 100))]) is not None


SCALARS = (
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(max_size=80)
    | st.floats(allow_nan=False) | st.binary(max_size=80)
)  # fmt: skip
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=20,
)


@settings(max_examples=examples(200), deadline=None)
@given(st.dictionaries(st.text(max_size=5), TREES, max_size=12))
def test_any_tree_comes_back(tree: dict[str, Any]) -> None:
    assert read(list(tree.items())) == tree


@settings(max_examples=examples(50), deadline=None)
@given(st.dictionaries(st.text(max_size=5), st.text(), max_size=40))
def test_names_are_in_the_order_of_javas_strings(names: dict[str, str]) -> None:
    """Spark looks a name up by halves in an object of 32 fields or more."""
    made = encode_pairs(list(names.items()))
    assert made is not None
    in_order = list(VariantVal(made.value, made.metadata).toPython())
    assert in_order == sorted(names, key=lambda n: n.encode("utf-16-be", "surrogatepass"))
    assert json.loads(VariantVal(made.value, made.metadata).toJson()) == names
