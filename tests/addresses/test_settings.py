"""Impossible address settings are named, possible ones pass."""

from __future__ import annotations

from dataclasses import fields

import pytest

from gateway.addresses.settings import (
    DEFAULTS,
    QUEUE_DEFAULTS,
    ROWS,
    AddressSettings,
    FullPolicy,
    contradiction,
)
from gateway.model import attributes
from gateway.model.address import RoutingType


def test_defaults_are_the_promised_ones() -> None:
    assert AddressSettings() == DEFAULTS
    assert DEFAULTS.dead_letter_address == "DLQ"
    assert DEFAULTS.expiry_address == "ExpiryQueue"
    assert DEFAULTS.max_delivery_attempts == 10
    assert DEFAULTS.address_full_policy is FullPolicy.PAGE
    assert DEFAULTS.default_address_routing_type is RoutingType.ANYCAST
    assert DEFAULTS.default_queue_routing_type is RoutingType.ANYCAST
    assert (DEFAULTS.max_size_bytes, DEFAULTS.max_size_messages) == (-1, -1)
    assert (DEFAULTS.default_ring_size, DEFAULTS.default_max_consumers) == (-1, -1)


def test_no_default_is_itself_impossible() -> None:
    assert [row.problem(row.default) for row in ROWS.values()] == [None] * len(ROWS)
    assert [getattr(DEFAULTS, name) for name in ROWS] == [row.default for row in ROWS.values()]


@pytest.mark.parametrize(
    ("field", "value", "word"),
    [
        ("default_ring_size", 0, "ring of 0"),
        ("default_ring_size", -5, "below -1"),
        ("page_size_bytes", 1023, "between 1024 and"),
        ("page_limit_messages", 0, "would page nothing"),
        ("max_size_messages", -2, "below -1"),
        ("max_delivery_attempts", 0, "0 attempts"),
        ("max_delivery_attempts", 65536, "65535"),
        ("default_max_consumers", -2, "below -1"),
        ("expiry_delay", -2, "below -1"),
    ],
)
def test_impossible_values_say_why(field: str, value: int, word: str) -> None:
    problem = ROWS[field].problem(value)
    assert problem is not None
    assert word in problem


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("default_ring_size", 1),
        ("default_ring_size", -1),
        ("max_size_bytes", 1),
        ("max_delivery_attempts", 65535),
        ("max_delivery_attempts", -1),
        ("default_max_consumers", 0),
        ("dead_letter_address", None),
    ],
)
def test_possible_values_pass(field: str, value: object) -> None:
    assert ROWS[field].problem(value) is None


@pytest.mark.parametrize(
    ("least", "most", "wrong"),
    [(10, 5, True), (5, 10, False), (5, 5, False), (10, -1, False), (-1, 0, False)],
)
def test_expiry_bounds_that_cross_are_a_contradiction(least: int, most: int, wrong: bool) -> None:
    found = contradiction({"min_expiry_delay": least, "max_expiry_delay": most})
    assert (found is not None) is wrong


def test_keys_are_kebab_case() -> None:
    assert ROWS["max_size_bytes"].key == "max-size-bytes"


def test_every_field_is_a_row_with_words() -> None:
    assert tuple(ROWS) == tuple(field.name for field in fields(AddressSettings))
    assert all(row.words for row in ROWS.values())


def test_what_queues_have_by_default_is_what_a_plain_queue_has() -> None:
    for name, setting in QUEUE_DEFAULTS.items():
        assert ROWS[setting].default == attributes.ROWS[name].default
        assert ROWS[setting].kind is attributes.ROWS[name].kind
        assert ROWS[setting].bound is attributes.ROWS[name].bound
        assert ROWS[setting].unit is attributes.ROWS[name].unit
        assert setting.startswith("default_" + name)
