"""What users write of the sink: options and columns, refused before anything is written."""

from __future__ import annotations

import pytest

from pyspark_sluicegate.options import OPTIONS, SluicegateError
from pyspark_sluicegate.sink_options import (
    COLUMNS,
    SINK_OPTIONS,
    check_columns,
    parse_sink_options,
)

LEAST = {"url": "http://127.0.0.1:8161", "address": "q"}


def test_options_are_found_in_any_case_and_spark_may_add_its_own() -> None:
    given = {"URL": LEAST["url"], "ADDRESS": "q", "retrydeadline": "3s", "Routing": "MultiCast"}
    options = parse_sink_options({**given, "checkpointLocation": "/x", "queryname": "n"})
    assert options["url"] == ["http://127.0.0.1:8161"]
    assert (options["retryDeadline"], options["routing"], options["batchId"]) == (
        3.0,
        "MULTICAST",
        None,
    )


WRONG = {
    "no url": ({"url": ""}, "'url' must be one"),
    "two gateways": ({"url": "http://a:1,http://b:1"}, "published by one gateway"),
    "path": ({"url": "http://a:1/x"}, "must be http"),
    "source": ({"startingOffsets": "x"}, "is for reading"),
    "near": ({"adress": "q"}, "did you mean 'address'"),
    "meant": ({"topic": "q"}, "did you mean 'address'"),
    "strange": ({"zzzz": "q"}, "known are: url, address"),
    "batch": ({"batchId": "1"}, "needs 'producerId'"),
    "no number": ({"batchId": "x", "producerId": "p"}, "a whole number from 0"),
    "long": ({"producerId": "p" * 201}, "at most 200 bytes"),
    "half a login": ({"username": "u"}, "go together"),
    "two logins": ({"username": "u", "password": "p", "token": "t"}, "Give one of"),
    "routing": ({"routing": "x"}, "anycast, multicast"),
    "time": ({"retryDeadline": "soon"}, "like 500ms"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_option_is_refused_with_what_is_possible(case: str) -> None:
    given, rule = WRONG[case]
    with pytest.raises(SluicegateError, match=rule):
        parse_sink_options({**LEAST, **given})


def test_options_that_both_have_mean_the_same() -> None:
    for name in SINK_OPTIONS.keys() & OPTIONS.keys():
        assert SINK_OPTIONS[name] == OPTIONS[name]


def test_each_column_has_its_types() -> None:
    options = parse_sink_options({"url": LEAST["url"]})
    for name, kinds in COLUMNS.items():
        for kind in kinds:
            check_columns({"body": "binary", "address": "string", name: kind}, options)


COLUMNS_WRONG = {
    "no body": ({}, "q", "The column 'body' .* is missing"),
    "type": ({"body": "int"}, "q", "The column 'body' is int; it must be binary or string"),
    "unknown": ({"body": "string", "prio": "int"}, "q", "did you mean 'priority'"),
    "strange": ({"body": "string", "zzzz": "int"}, "q", "cannot be written; Possible: body,"),
    "twice": ({"body": "string", "address": "string"}, "q", "drop one of them"),
    "nowhere": ({"body": "string"}, "", "neither the option 'address' nor a column"),
}


@pytest.mark.parametrize("case", COLUMNS_WRONG)
def test_a_wrong_column_is_refused_with_the_possible_ones(case: str) -> None:
    columns, address, rule = COLUMNS_WRONG[case]
    options = parse_sink_options({"url": LEAST["url"], "address": address})
    with pytest.raises(SluicegateError, match=rule):
        check_columns(columns, options)
