"""What the gateway writes: no value starts a header line of its own [T11]."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.model.errors import Code, Refusal
from protocols.stomp.frame import Head, encode, error, receipts
from protocols.stomp.heads import decode_head
from protocols.stomp.limits import StompLimits
from protocols.stomp.versions import Version

ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def test_encode() -> None:
    assert encode("RECEIPT", [("receipt-id", "1")]) == b"RECEIPT\nreceipt-id:1\n\n\0\n"
    assert encode("ERROR", [], b"body") == b"ERROR\n\nbody\0\n"


@pytest.mark.parametrize("version", Version)
@given(st.lists(st.tuples(ANY, ANY), max_size=5))
def test_a_written_head_has_the_lines_it_was_given_and_no_other(
    version: Version, headers: list[tuple[str, str]]
) -> None:
    head = encode("SEND", headers, version=version).removesuffix(b"\n\n\0\n")
    lines = head.split(b"\n")
    assert len(lines) <= 1 + len(headers)
    assert b"\0" not in head
    assert b"\r" not in head
    assert all(line.count(b":") >= 1 for line in lines[1:])


@pytest.mark.parametrize("version", [Version.V1_1, Version.V1_2])
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=10),
        st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=10),
        max_size=5,
    )
)
def test_what_is_written_is_read_back(version: Version, headers: dict[str, str]) -> None:
    headers.pop("content-length", None)
    raw = encode("SEND", headers.items(), version=version).removesuffix(b"\n\n\0\n")
    assert decode_head(raw, version, StompLimits()).headers == headers


@pytest.mark.parametrize(
    ("value", "lines"),
    [
        ("a\nadmin:1", [None, b"x:a\\nadmin\\c1", b"x:a\\nadmin\\c1"]),
        ("a\r\nadmin:1", [None, None, b"x:a\\r\\nadmin\\c1"]),
        ("a\0", [None, None, None]),
    ],
)
def test_an_injected_header_stays_inside_its_value(value: str, lines: list[bytes | None]) -> None:
    for version, line in zip(Version, lines, strict=True):
        frame = encode("MESSAGE", [("x", value)], version=version)
        assert frame == b"MESSAGE\n" + (line + b"\n" if line else b"") + b"\n\0\n"


def test_receipts_are_one_string() -> None:
    assert receipts([b"1"]) == b"RECEIPT\nreceipt-id:1\n\n\0\n"
    assert receipts([b"1", b"2"]) == (b"RECEIPT\nreceipt-id:1\n\n\0\nRECEIPT\nreceipt-id:2\n\n\0\n")


def test_error_tells_code_text_and_receipt() -> None:
    refusal = Refusal(code=Code.ADDRESS_FULL, text="Address 'q' is full:\r\nconsume some.")
    body = b"Address 'q' is full:\r\nconsume some.\n"
    assert error(refusal, b"r-1", version=Version.V1_2) == (
        b"ERROR\nmessage:Address 'q' is full\\c  consume some.\nerror-code:address-full\n"
        b"content-type:text/plain\ncontent-length:%d\nreceipt-id:r-1\n\n%b\0\n" % (len(body), body)
    )
    assert b"receipt-id" not in error(refusal)
    assert b"message:Address 'q' is full:  consume some.\n" in error(refusal)
    assert b"\nversion:1.0,1.1,1.2\n" in error(refusal, extra=[("version", "1.0,1.1,1.2")])


def test_a_head_remembers_header_blocks_by_size_within_bounds() -> None:
    head = Head("SEND", {}, -1)
    head.lead_to("route", b"content-length:", b"\n\n")
    for size in range(1000):
        assert head.stored_for(size) == b"content-length:%d\n\n" % size
    assert len(head._sizes) <= 256
    other = Head("SEND", {}, 5)
    other.lead_to("route", b"content-length:", b"\n\n")
    assert other.stored == b"content-length:5\n\n"
    assert other.sized(6).stored == b"content-length:6\n\n"
    assert other.sized(6).route == "route"
