"""One section of a message: its code in every encoding, its bounds, and lists read item by item."""

from __future__ import annotations

import pytest

from gateway.model.amqp_types import DecodeError, Symbol, ULong, encode
from gateway.model.section_scan import (
    DATA,
    PROPERTIES,
    VALUE,
    list_head,
    list_item,
    section_at,
    section_code,
    whole_value,
)

ITEMS = encode(["a", None, "c"])


@pytest.mark.parametrize(
    "descriptor", [b"\x53\x73", encode(ULong(0x73)), encode(Symbol("amqp:properties:list"))]
)
def test_a_code_is_read_in_each_of_its_encodings(descriptor: bytes) -> None:
    head = b"??\x00" + descriptor
    assert section_code(head + ITEMS, 2) == (PROPERTIES, len(head))
    assert section_at(head + ITEMS, 2) == (PROPERTIES, len(head), len(head + ITEMS))


@pytest.mark.parametrize(
    "body", [b"", b"\x01\x53\x73", b"\x00\x53", b"\x00" + encode(Symbol("amqp:nothing:list"))]
)
def test_what_is_no_section_is_refused(body: bytes) -> None:
    with pytest.raises(DecodeError):
        section_at(body, 0)


def test_a_value_has_the_constructor_of_its_section_and_ends_within_the_message() -> None:
    assert section_at(b"\x00\x53\x77\x40", 0) == (VALUE, 3, 4)
    assert section_at(b"\x00\x53\x75\xa0\x02ab", 0) == (DATA, 3, 7)
    with pytest.raises(DecodeError, match="with constructor 0x40"):
        section_at(b"\x00\x53\x75\x40", 0)
    for cut in (b"\xa0", b"\xa0\x02a", b"\xb0\x00\x00", b"\xb0\x00\x00\x00\x02a"):
        with pytest.raises(DecodeError, match="cut short"):
            section_at(b"\x00\x53\x75" + cut, 0)


def test_a_value_fills_its_bounds() -> None:
    assert whole_value(ITEMS, 0, len(ITEMS)) == ["a", None, "c"]
    with pytest.raises(DecodeError, match="1 bytes left over"):
        whole_value(ITEMS + b"\x40", 0, len(ITEMS) + 1)


def test_items_are_read_one_by_one_and_none_lies_behind_the_end() -> None:
    assert [list_item(ITEMS, 0, index) for index in range(5)] == ["a", None, "c", None, None]
    assert list_item(b"\x45", 0, 0) is None


@pytest.mark.parametrize(
    ("body", "head"),
    [
        (b"\x45", (1, 0, 1)),
        (b"\xc0\x03\x02\x40\x40", (3, 2, 5)),
        (b"\xd0\x00\x00\x00\x05\x00\x00\x00\x01\x40", (9, 1, 10)),
    ],
)
def test_a_list_says_where_its_items_are(body: bytes, head: tuple[int, int, int]) -> None:
    assert list_head(body, 0) == head


@pytest.mark.parametrize("body", [b"\xc0\x00\x00", b"\xc0\x02\x02\x40", b"\xd0\x00\x00\x00\x03???"])
def test_a_count_that_does_not_fit_is_refused(body: bytes) -> None:
    with pytest.raises(DecodeError):
        list_head(body + bytes(9), 0)
