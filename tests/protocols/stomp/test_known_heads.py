"""Heads that repeat, and the bytes of a frame that is not complete."""

from __future__ import annotations

import pytest

from protocols.stomp.frame import Head
from protocols.stomp.known_heads import KnownHeads, key_of, without_line
from protocols.stomp.unfinished import Unfinished, Wanted

# ---- known heads


def routed(length: int) -> Head:
    head = Head("SEND", {"destination": "q"}, length)
    head.lead_to("route", b"[", b"]")
    return head


def test_a_head_is_found_by_its_bytes() -> None:
    known = KnownHeads(100)
    head = routed(-1)
    known.remember(b"SEND\ndestination:q", head)
    assert known.find(b"SEND\ndestination:q") is head
    assert known.find(b"SEND\ndestination:p") is None
    known.forget()
    assert known.find(b"SEND\ndestination:q") is None


@pytest.mark.parametrize(
    ("length", "found"),
    [(b"0", 0), (b"7", 7), (b"100", 100), (b"101", None), (b"", None), (b"-1", None),
     (b"7\r", 7), (b"7 ", None), (b"1" * 11, None), (b"1\ncontent-length:2", None)],
)  # fmt: skip
def test_a_head_that_differs_in_its_length_alone_is_made_from_it(
    length: bytes, found: int | None
) -> None:
    known = KnownHeads(100)
    known.remember(b"SEND\ndestination:q\ncontent-length:5", routed(5))
    head = known.find(b"SEND\ndestination:q\ncontent-length:" + length)
    assert (None if head is None else head.length) == found
    if head is not None:
        assert head.stored == b"[%d]" % head.length
        assert known.find(b"SEND\ndestination:q\ncontent-length:" + length) is head


def test_a_head_without_a_route_is_not_kept() -> None:
    with pytest.raises(AssertionError, match="without a route"):
        KnownHeads(100).remember(b"SEND\ndestination:q", Head("SEND", {}, -1))


def test_the_key_of_a_head() -> None:
    assert key_of(b"SEND\na:b") == (b"SEND\na:b", None)
    assert key_of(b"SEND\nreceipt:1\na:b") == (b"SEND\na:b", b"1")
    assert key_of(b"SEND\nreceipt:1\nreceipt:2") == (None, b"1"), "which one counts is decoded"
    assert key_of(b"SEND\na:" + b"x" * 1017)[0] is not None
    assert key_of(b"SEND\na:" + b"x" * 1018)[0] is None


def test_a_line_is_taken_out() -> None:
    assert without_line(b"A\nb:1\nc:2", b"\nb:") == (b"A\nc:2", b"1")
    assert without_line(b"A\nb:1\nc:2", b"\nc:") == (b"A\nb:1", b"2")
    assert without_line(b"A\nb:1", b"\nx:") is None


# ---- what is unfinished


@pytest.mark.parametrize(
    ("wanted", "data", "looks"),
    [
        (Wanted.LINE, b"abc", False),
        (Wanted.LINE, b"a\nc", True),
        (Wanted.LINE, b"a\0c", True),
        (Wanted.NUL, b"abc", False),
        (Wanted.NUL, b"a\nc", False),
        (Wanted.NUL, b"a\0c", True),
        (Wanted.BYTES, b"abc", False),
        (Wanted.BYTES, b"\n\0\n", False),
        (Wanted.LINE, b"0123456789", True),
        (Wanted.NUL, b"0123456789", True),
        (Wanted.BYTES, b"0123456789", True),
    ],
)
def test_what_is_worth_another_look(wanted: Wanted, data: bytes, looks: bool) -> None:
    unfinished = Unfinished()
    unfinished.kept += b"SEND"
    unfinished.want(wanted, 14)
    assert unfinished.join(data) == (b"SEND" + data if looks else None)
    assert bytes(unfinished.kept) == (b"" if looks else b"SEND" + data)


def test_what_is_kept_for_no_frame_is_always_worth_a_look() -> None:
    unfinished = Unfinished()
    assert unfinished.join(b"x") == b"x"


def test_a_frame_that_needs_nothing_is_complete() -> None:
    with pytest.raises(AssertionError):
        Unfinished().want(Wanted.BYTES, 0)


def test_what_is_dropped_is_gone() -> None:
    unfinished = Unfinished()
    unfinished.kept += b"x"
    unfinished.drop()
    assert unfinished.take() == b""
