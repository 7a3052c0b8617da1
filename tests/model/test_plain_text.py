"""AMQP values as text, and ids that come back from it."""

from __future__ import annotations

import json
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    UInt,
    ULong,
)
from gateway.model.plain_text import id_text, iso_time, json_text, parse_id, text
from tests.lanes import examples
from tests.model.amqp_strategies import values

_UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


@pytest.mark.parametrize(
    ("value", "as_text", "as_json"),
    [
        (None, "", "null"),
        (True, "true", "true"),
        (UByte(200), "200", "200"),
        (UInt(3_000_000_000), "3000000000", "3000000000"),
        (ULong(2**64 - 1), "18446744073709551615", "18446744073709551615"),
        (-5, "-5", "-5"),
        (Float32(0.5), "0.5", "0.5"),
        (1e300, "1e+300", "1e+300"),
        (float("nan"), "NaN", '"NaN"'),
        (float("-inf"), "-Infinity", '"-Infinity"'),
        ("é\n", "é\n", '"é\\n"'),
        (Symbol("s"), "s", '"s"'),
        (Char("c"), "c", '"c"'),
        (b"abc", "YWJj", '"YWJj"'),
        (_UUID, str(_UUID), f'"{_UUID}"'),
        (Timestamp(1), "1970-01-01T00:00:00.001Z", '"1970-01-01T00:00:00.001Z"'),
        ([1, [None]], "[1,[null]]", "[1,[null]]"),
        ({"a": Symbol("b")}, '{"a":"b"}', '{"a":"b"}'),
        (AmqpMap((([1], 2), (1, 3), ("1", 4))), '{"[1]":2,"1":4}', '{"[1]":2,"1":4}'),
        (AmqpArray(0x50, (UByte(1), UByte(2))), "[1,2]", "[1,2]"),
        (Described(Symbol("d"), "inner"), "inner", '"inner"'),
        (Described(Symbol("d"), None), "", "null"),
    ],
)
def test_text_and_json(value, as_text, as_json):
    assert text(value) == as_text
    assert json_text(value) == as_json


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        # sign, exponent + bias, coefficient
        ("32800001", "1"),
        ("b2800001", "-1"),
        ("318004d2", "12.34"),
        ("33000001", "1E+1"),
        ("78000000", "Infinity"),
        ("f8000000", "-Infinity"),
        ("7c000000", "NaN"),
        # The coefficient's leading bits 100 left out: 8388608 + 0 at exponent 0
        ("6ca00000", "8388608"),
        # not canonical: above seven digits, so zero
        ("6cbfffff", "0"),
        ("31c0000000000001", "1"),
        ("3180000000000005", "0.05"),
        ("30400000000000000000000000000007", "7"),
        ("303e0000000000000000000000000019", "2.5"),
    ],
)
def test_decimals_by_value(raw, shown):
    assert text(AmqpDecimal(bytes.fromhex(raw))) == shown


@given(st.binary(min_size=16, max_size=16))
@settings(max_examples=examples(200), deadline=None)
def test_any_decimal_has_a_text(raw):
    for width in (4, 8, 16):
        assert text(AmqpDecimal(raw[:width]))
        json.loads(json_text(AmqpDecimal(raw[:width])))


@given(values)
@settings(max_examples=examples(400), deadline=None)
def test_every_value_has_a_text_and_valid_json(value):
    assert isinstance(text(value), str)
    json.loads(json_text(value))


@pytest.mark.parametrize(
    ("stamp", "shown"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "253402300800000"),
        (-(2**63), "-9223372036854775808"),
    ],
)
def test_times(stamp, shown):
    assert iso_time(stamp) == shown


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain", "plain"),
        ("ID:host-1:2:3", "ID:host-1:2:3"),
        ("", ""),
        (_UUID, f"ID:AMQP_UUID:{_UUID}"),
        (ULong(5), "ID:AMQP_ULONG:5"),
        (b"abc", "ID:YWJj"),
        (b"", "ID:AMQP_BINARY:"),
        ("ID:YWJj", "ID:AMQP_STRING:ID:YWJj"),
        (f"ID:AMQP_UUID:{_UUID}", f"ID:AMQP_STRING:ID:AMQP_UUID:{_UUID}"),
        ("ID:AMQP_STRING:x", "ID:AMQP_STRING:ID:AMQP_STRING:x"),
        ("ID:AMQP_ULONG:x", "ID:AMQP_ULONG:x"),
    ],
)
def test_ids(value, written):
    assert id_text(value) == written
    back = parse_id(written)
    assert back == value
    assert type(back) is type(value)


@given(st.one_of(st.text(), st.text().map("ID:".__add__), st.binary(), st.uuids()))
@settings(max_examples=examples(400), deadline=None)
def test_any_id_comes_back(value):
    back = parse_id(id_text(value))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("ID:AMQP_NO_PREFIX:x", "x"),
        ("ID:AMQP_BINARY:0aff", b"\x0a\xff"),
        ("ID:AMQP_BINARY:zz", "ID:AMQP_BINARY:zz"),
        ("ID:AMQP_UUID:zz", "ID:AMQP_UUID:zz"),
        ("ID:AMQP_ULONG:18446744073709551616", "ID:AMQP_ULONG:18446744073709551616"),
        ("ID:AMQP_ULONG:-1", "ID:AMQP_ULONG:-1"),
        ("ID:YWJ", "ID:YWJ"),
        ("ID:YWK=", "ID:YWK="),
    ],
)
def test_ids_that_others_write(written, value):
    assert parse_id(written) == value
