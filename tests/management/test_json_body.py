"""Strict JSON: bombs, doubles, and what is told about a wrong field."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.management.http import ProblemError, Request
from gateway.management.json_body import DEPTH_MAX, parse_json, read_fields, read_object
from gateway.model.errors import Code, RefusedError
from tests.costs import costs


class Shape(msgspec.Struct, rename="camel", kw_only=True):
    name: str
    ring_size: int = -1
    filter: str | None = None
    durable: bool = True


def post(body: bytes) -> Request:
    return Request(method="POST", path="/", body=body)


BAD = {
    "empty": b"",
    "nan": b'{"a": NaN}',
    "infinity": b'{"a": Infinity}',
    "minus infinity": b'{"a": -Infinity}',
    "beyond float": b'{"a": 1e999}',
    "deep arrays": b"[" * 100_000,
    "deep closed arrays": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "deep in strings' shadow": b'["]]]]",' * 20 + b"1" + b"]" * 20,
    "one level too many": b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1),
    "double field": b'{"a": 1, "a": 1}',
    "double field escaped": b'{"a": 1, "\\u0061": 2}',
    "double field inside": b'{"x": [{"a": 1, "a": 2}]}',
    "2**1000": b'{"a": %d}' % 2**1000,
    "5000 digits": b'{"a": ' + b"9" * 5000 + b"}",
    "a million digits": b"9" * 1_000_000,
    "2**63": b"%d" % 2**63,
    "lone surrogate": b'"\\ud800"',
    "lone low surrogate": b'"\\udc00 x"',
    "raw control": b'"a\x00b"',
    "bad UTF-8": b'"\xff"',
    "overlong UTF-8": b'"\xc0\xae"',
    "byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": "{}".encode("utf-16"),
    "trailing": b"{} {}",
    "trailing comma": b'{"a": 1,}',
    "single quotes": b"{'a': 1}",
    "comment": b"{} // x",
    "cut": b'{"a": ',
    "gzip": b"\x1f\x8b\x08\x00",
    "hexadecimal": b"0x10",
    "leading zero": b"01",
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_strict_json_is_refused(name):
    with pytest.raises(ProblemError) as caught:
        parse_json(BAD[name])
    assert (caught.value.status, caught.value.code) == (400, "bad-json")
    assert len(caught.value.message) < 250


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": [' + b"1," * 500_000 + b"1]}",
        b'{"a":{' + b",".join(b'"%d":1' % i for i in range(80_000)) + b',"79999":2}}',
        b"[" + b"{}," * 340_000 + b"{}]",
    ],
)
def test_a_body_of_the_largest_size_is_judged_quickly(body):
    with costs():
        try:
            parse_json(body)
        except ProblemError:
            assert b'"79999":2' in body


def test_nesting_up_to_the_limit_is_read():
    assert parse_json(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX) is not None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=10,
    )
)
def test_what_we_write_we_read(value):
    def depth(item):
        inner = item.values() if isinstance(item, dict) else item
        return 1 + max(map(depth, inner), default=0) if isinstance(item, (list, dict)) else 0

    if depth(value) <= DEPTH_MAX:
        assert parse_json(msgspec.json.encode(value)) == value


def test_a_missing_body_is_an_empty_object():
    assert read_object(post(b"")) == {}


@pytest.mark.parametrize("body", [b"[]", b"1", b"null", b'"x"', b"true"])
def test_only_objects_are_taken(body):
    with pytest.raises(ProblemError, match="must be an object"):
        read_object(post(body))


def test_fields_take_their_shape():
    found = read_fields(post(b'{"name": "a", "ringSize": 5, "filter": null}'), Shape)
    assert (found.name, found.ring_size, found.filter, found.durable) == ("a", 5, None, True)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"name": "a", "ringsize": 5}', "'ringsize' is unknown; did you mean 'ringSize'?"),
        (b'{"name": "a", "ring_size": 5}', "did you mean 'ringSize'?"),
        (b'{"name": "a", "q": 5}', "known are: durable, filter, name, ringSize"),
        (b'{"name": "a", "ringSize": "5"}', "'ringSize' is impossible: Expected 'int', got 'str'"),
        (b'{"name": "a", "ringSize": 5.5}', "'ringSize'"),
        (b'{"name": "a", "ringSize": true}', "'ringSize'"),
        (b'{"name": "a", "ringSize": null}', "'ringSize'"),
        (b'{"name": 1}', "'name'"),
        (b'{"name": "a", "durable": "yes"}', "'durable'"),
        (b"{}", "missing required field 'name'"),
    ],
)
def test_a_wrong_field_is_named(body, text):
    with pytest.raises(RefusedError) as caught:
        read_fields(post(body), Shape)
    assert caught.value.refusal.code is Code.BAD_VALUE
    assert text in str(caught.value)
