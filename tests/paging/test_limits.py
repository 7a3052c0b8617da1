"""How much may lie on pages, and how much of it may be read: over the edges of each limit."""

from __future__ import annotations

import pytest

from gateway.addresses.settings import AddressSettings
from gateway.paging.limits import (
    OLD_RULE_MESSAGES,
    STEP_BYTES,
    STEP_MESSAGES,
    Room,
    pages_full,
    reading_room,
)


@pytest.mark.parametrize(
    ("limit", "pages", "full"),
    [
        (-1, 99, False),
        (4096, 4, False),
        (4096, 5, True),
        (4095, 4, True),
        (1023, 0, False),
        (1023, 1, True),
    ],
)
def test_pages_are_full_above_the_number_that_is_allowed(limit, pages, full):
    settings = AddressSettings(page_size_bytes=1024, page_limit_bytes=limit)
    found = pages_full("a", settings, pages=pages, most_messages=0)
    assert (found is not None) == full
    assert found is None or "page-limit-bytes" in found.text


@pytest.mark.parametrize(("most", "full"), [(9, False), (10, True), (11, True)])
def test_pages_are_full_at_the_number_of_messages(most, full):
    settings = AddressSettings(page_limit_messages=10)
    assert (pages_full("a", settings, pages=1, most_messages=most) is not None) == full


def room(settings: AddressSettings, **use: int) -> Room:
    facts = {"waiting": 0, "held": 0, "held_bytes": 0} | use
    return reading_room(settings, **facts, ring=False)


def test_what_is_held_counts_whoever_has_it():
    settings = AddressSettings(max_read_page_messages=100)
    assert room(settings).messages == 100
    assert room(settings, held=99).messages == 1
    assert room(settings, held=100).messages == 0
    assert room(settings, held=150).messages == 0


def test_prefetch_limits_what_waits_and_not_what_is_held():
    settings = AddressSettings(max_read_page_messages=100, prefetch_page_messages=10)
    assert room(settings).messages == 10
    assert room(settings, held=60, waiting=0).messages == 10
    assert room(settings, held=60, waiting=10).messages == 0
    assert room(settings, held=95, waiting=0).messages == 5


def test_bytes_count_alike():
    settings = AddressSettings(max_read_page_bytes=1000, prefetch_page_bytes=100)
    assert room(settings).size == 100
    assert room(settings, held=10, held_bytes=950).size == 50
    assert room(settings, held=10, waiting=5, held_bytes=200).size == 0
    assert room(settings, held=10, held_bytes=1000).size == 0


def test_without_limits_the_older_rule_holds():
    settings = AddressSettings(max_read_page_bytes=-1, page_size_bytes=4096)
    assert room(settings) == Room(OLD_RULE_MESSAGES, 8192)
    assert room(settings, held=OLD_RULE_MESSAGES).messages == 0


def test_one_step_is_bounded():
    assert room(AddressSettings()) == Room(STEP_MESSAGES, STEP_BYTES)
    assert room(AddressSettings(), waiting=STEP_MESSAGES, held=STEP_MESSAGES).messages == 0
    ring = reading_room(
        AddressSettings(), waiting=STEP_MESSAGES, held=STEP_MESSAGES, held_bytes=0, ring=True
    )
    assert ring == Room(STEP_MESSAGES, STEP_BYTES)
