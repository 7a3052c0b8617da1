"""Expressions with JSON paths, their names, and the columns that are read for them."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from pyspark_sluicegate.options import SluicegateError
from pyspark_sluicegate.pipelines.expressions import (
    check_duration,
    check_names,
    columns_for,
    compile_sql,
    matches,
    parse_named,
    words_of,
)


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("body.region", "get_json_object(body, '$.region')"),
        ("body.order.items[0].price", "get_json_object(body, '$.order.items[0].price')"),
        ("headers['tenant-id']", r"get_json_object(headers, '$[\'tenant-id\']')"),
        ("body.a-body.b", "get_json_object(body, '$.a')-get_json_object(body, '$.b')"),
        ("upper(address)", "upper(address)"),
        ("body", "body"),
        ("concat('body.region', address)", "concat('body.region', address)"),
        (r"'it\'s body.x'", r"'it\'s body.x'"),
        ("somebody.x + x.body.y", "somebody.x + x.body.y"),
    ],
)
def test_a_path_goes_into_json_and_all_else_stays(text: str, sql: str) -> None:
    assert compile_sql(text) == sql


def test_a_path_goes_into_another_column_and_is_wrapped() -> None:
    found = compile_sql("body.n * 2", {"body": "text"}, lambda one: f"try_cast({one} as int)")
    assert found == "try_cast(get_json_object(text, '$.n') as int) * 2"


@pytest.mark.parametrize(
    ("text", "name", "rest"),
    [
        ("body.region", "region", "body.region"),
        ("address", "address", "address"),
        ("total=body.a + body.b", "total", "body.a + body.b"),
        (" n = 1", "n", "1"),
    ],
)
def test_a_name_is_given_or_the_last_word(text: str, name: str, rest: str) -> None:
    found = parse_named("--key", text)
    assert (found.name, found.text) == (name, rest)


@pytest.mark.parametrize("text", ["body.a + body.b", "upper(address)", "a == b", "body.items[0]"])
def test_an_expression_without_a_name_is_refused_with_one_to_write(text: str) -> None:
    with pytest.raises(SluicegateError, match=r"write --key 'NAME="):
        parse_named("--key", text)


def test_a_field_stands_once_in_a_result() -> None:
    check_names(["region", "amount"], ["count"])
    for names in (["region", "region"], ["count"]):
        with pytest.raises(SluicegateError, match="would stand twice"):
            check_names(names, ["count"])


def test_columns_are_those_that_are_mentioned() -> None:
    texts = ["upper(body.region)", "headers.n", "'subject'", "if(priority > 4, 'a', key)"]
    assert words_of(texts) >= {"body", "headers", "priority", "key"}
    found = columns_for(texts, ["timestamp"])
    assert found == ["timestamp", "body", "headers", "key", "priority"]


@pytest.mark.parametrize("text", ["1 minute", "30 Seconds", " 2 hours ", "500 milliseconds"])
def test_durations(text: str) -> None:
    assert check_duration("--window", text) == text.strip()


@pytest.mark.parametrize("text", ["1m", "minute", "-1 minute", "1 fortnight", ""])
def test_wrong_durations_say_how_one_is_written(text: str) -> None:
    with pytest.raises(SluicegateError, match=r"--window is .*'5 minutes'"):
        check_duration("--window", text)


@pytest.mark.parametrize(
    ("pattern", "address", "has"),
    [
        ("orders", "orders", True),
        ("orders", "orders.eu", False),
        ("orders.*", "orders.eu", True),
        ("orders.*", "orders.eu.x", False),
        ("orders.*", "orders", False),
        ("orders.#", "orders", True),
        ("orders.#", "orders.eu.x", True),
        ("#", "totals", True),
    ],
)
def test_a_pattern_has_an_address(pattern: str, address: str, has: bool) -> None:
    assert matches(pattern, address) is has
