"""Queries, statuses and the words of refusals."""

from __future__ import annotations

import json

import pytest

from gateway.management import http
from gateway.management.http import ProblemError, Request
from gateway.model.errors import Code, RefusedError


def test_every_code_has_a_status():
    assert set(http.STATUS) == set(Code)
    assert all(400 <= status < 600 for status in http.STATUS.values())


@pytest.mark.parametrize("code", Code)
def test_a_refusal_is_told_with_its_code_and_text(code):
    response = http.error_response(RefusedError.of(code, "why"))
    assert response.status == http.STATUS[code]
    assert json.loads(response.body) == {"code": code.value, "message": "why"}


def test_a_fault_is_no_refusal():
    assert http.error_response(KeyError("x")) is None


def test_a_problem_keeps_its_headers():
    response = http.error_response(ProblemError(405, "c", "m", {"Allow": "GET"}))
    assert response.headers == {"Allow": "GET"}


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        ("a=1&b=2", {"a": "1", "b": "2"}),
        ("&&a=1&", {"a": "1"}),
        ("a", {"a": ""}),
        ("a=b=c", {"a": "b=c"}),
        ("%61=%26+%2B", {"a": "& +"}),
        ("n=%C3%A4", {"n": "\u00e4"}),
        ("a;b=1", {"a;b": "1"}),
    ],
)
def test_queries(text, fields):
    assert http.parse_query(text) == fields


@pytest.mark.parametrize(
    "text",
    [
        *(
            "a=1&a=2",
            "a=1&%61=2",
            "a=%",
            "a=%2",
            "a=%zz",
            "a=%+1",
            "a=%ff",
            "a=%00",
            "a=%0d%0a",
            "%7f",
        ),
        "&".join(f"f{i}=1" for i in range(33)),
    ],
)
def test_ambiguous_queries_are_refused(text):
    with pytest.raises(ProblemError) as caught:
        http.parse_query(text)
    assert caught.value.status == 400


def test_many_fields_cost_no_more_than_the_limit():
    with pytest.raises(ProblemError, match="more than 32"):
        http.parse_query("a&" * 1_000_000)


def query(**fields: str) -> Request:
    return Request(method="GET", path="/", query=fields)


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", "11", "0x1", "\u0661", "9" * 5000, " 1"])
def test_numbers_out_of_bounds_are_refused(text):
    with pytest.raises(RefusedError) as caught:
        http.query_int(query(limit=text), "limit", 5, high=10)
    assert caught.value.refusal.code is Code.BAD_VALUE
    assert "'limit'" in str(caught.value)


def test_numbers():
    assert http.query_int(query(), "limit", 5, high=10) == 5
    assert http.query_int(query(limit="10"), "limit", 5, high=10) == 10


def test_flags():
    assert http.query_flag(query(), "x") is False
    assert http.query_flag(query(x="true"), "x") is True
    assert http.query_flag(query(x="false"), "x") is False
    for text in ("", "True", "1", "yes"):
        with pytest.raises(RefusedError):
            http.query_flag(query(x=text), "x")


def test_an_unknown_query_field_is_named_with_the_nearest():
    with pytest.raises(RefusedError, match="'adress' is unknown; did you mean 'address'"):
        http.check_query(query(adress="x"), ("address", "pattern"))
    with pytest.raises(RefusedError, match="known are: address, pattern"):
        http.check_query(query(zzz="x"), ("pattern", "address"))
    with pytest.raises(RefusedError, match="there are none here"):
        http.check_query(query(zzz="x"), ())


def test_client_text_in_messages_is_short_and_printable():
    text = http.unknown_text("field", "\x1b[31m\r\n\u202e" + "x" * 10_000, ["a"])
    assert len(text) < 200
    assert text.isascii()
    assert text.isprintable()
