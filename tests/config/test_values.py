"""Readers of single values: what they take, what they refuse, and in which words."""

from __future__ import annotations

import pytest

from gateway.config import values as v
from gateway.config.tree import LogLevel, Wire


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (0, 0),
        (-1, -1),
        (1048576, 1048576),
        ("10", 10),
        ("10B", 10),
        ("10k", 10240),
        ("10KiB", 10240),
        ("10M", 10 << 20),
        ("10MB", 10 << 20),
        ("10 MiB", 10 << 20),
        ("2GiB", 2 << 30),
        ("1T", 1 << 40),
        ("-1", -1),
        ("1_000", 1000),
    ],
)
def test_sizes(value: object, size: int) -> None:
    assert v.size_bytes(value) == size


@pytest.mark.parametrize("value", ["", "ten", "10X", "1.5M", "M", True, 1.0, [], {}, 1 << 70])
def test_what_is_no_size(value: object) -> None:
    with pytest.raises(ValueError, match=r"size|fit"):
        v.size_bytes(value)


@pytest.mark.parametrize(
    ("value", "ms"),
    [(5, 5), ("5", 5), ("5ms", 5), ("5s", 5000), ("1.5s", 1500), ("2m", 120000), ("2min", 120000),
     ("1h", 3600000), ("1d", 86400000), ("-1", -1), (-1, -1)],
)  # fmt: skip
def test_durations(value: object, ms: int) -> None:
    assert v.duration_ms(value) == ms


@pytest.mark.parametrize("value", ["", "5 parsecs", "s", False, 0.5, None])
def test_what_is_no_duration(value: object) -> None:
    with pytest.raises(ValueError, match="duration"):
        v.duration_ms(value)


def test_counts() -> None:
    assert v.count(7) == 7
    assert v.count("7") == 7
    for wrong in ("7k", True, 7.5, "x"):
        with pytest.raises(ValueError, match="whole number"):
            v.count(wrong)


def test_limits_take_minus_one_and_nothing_else_below() -> None:
    read = v.limit(v.count, 5)
    assert [read(-1), read(5)] == [-1, 5]
    for wrong in (-2, 0, 4):
        with pytest.raises(ValueError, match="the least is 5, and -1 means no limit"):
            read(wrong)


def test_bounds_name_themselves() -> None:
    assert v.within(1, 3, v.count)(3) == 3
    with pytest.raises(ValueError, match="between 1 and 3"):
        v.within(1, 3, v.count)(4)
    with pytest.raises(ValueError, match="the least is 2"):
        v.at_least(2, v.count)(1)


def test_choices() -> None:
    assert v.choice(LogLevel)("INFO") is LogLevel.INFO
    assert v.choices(Wire)(["amqp", "STOMP", "Ws"]) == frozenset(Wire)
    with pytest.raises(ValueError, match="debug, info, warning, error"):
        v.choice(LogLevel)("loud")
    with pytest.raises(ValueError, match="array"):
        v.choices(Wire)("AMQP")
    with pytest.raises(ValueError, match="array"):
        v.choices(Wire)([])
    with pytest.raises(ValueError, match='"stomp" comes later'):
        v.choices(Wire, {"STOMP": "comes later"})(["AMQP", "stomp"])


def test_origins_are_those_that_browsers_write() -> None:
    taken = v.origins(["https://Shop.example", "http://[::1]:8080", "*"])
    assert taken == {"https://shop.example", "http://[::1]:8080", "*"}
    for wrong in ("shop.example", "https://shop.example/", "null", "https://*.example", "ws://x"):
        with pytest.raises(ValueError, match="is no origin of web pages"):
            v.origins([wrong])


def test_texts() -> None:
    assert v.text("x") == "x"
    with pytest.raises(ValueError, match="in quotes"):
        v.text(5)
    with pytest.raises(ValueError, match="control"):
        v.text("a\nb")
    with pytest.raises(ValueError, match="empty"):
        v.name_text(" ")


def test_booleans_and_numbers() -> None:
    assert v.boolean(True) is True
    assert v.number(2) == 2.0
    with pytest.raises(ValueError, match="true or false"):
        v.boolean("true")
    with pytest.raises(ValueError, match="number"):
        v.number(True)


def test_descriptions_are_short_and_typed() -> None:
    assert v.describe("x" * 100).endswith('..."')
    assert v.describe({}) == "a table"
    assert v.describe([1]) == "an array"
    assert v.describe(False) == "false (a boolean)"
