"""The stored form of STOMP messages: order, escapes, what is left out, and the way back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.model import stomp_form

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


def test_header_lines_stand_in_the_order_of_the_module_text() -> None:
    form = stomp_form.pack(
        "/queue/a",
        b"body",
        priority=7,
        persistent=True,
        content_type="text/plain",
        expires=99,
        headers=[("z", "1"), ("type", "t"), ("a", "2"), ("reply-to", "r"), ("correlation-id", "c")],
    )
    assert form == (
        b"destination:/queue/a\ncontent-type:text/plain\ncontent-length:4\npriority:7\n"
        b"persistent:true\nexpires:99\ncorrelation-id:c\nreply-to:r\ntype:t\nz:1\na:2\n\nbody"
    )


def test_what_is_absent_has_no_line() -> None:
    assert stomp_form.pack("q", b"") == (
        b"destination:q\ncontent-length:0\npriority:4\npersistent:false\nexpires:0\n\n"
    )


@pytest.mark.parametrize(
    "name", sorted(stomp_form.BROKER_HEADERS | stomp_form.PLACED_HEADERS), ids=str
)
def test_a_senders_copy_of_a_reserved_header_is_dropped(name: str) -> None:
    form = stomp_form.pack("q", b"x", headers=[(name, "forged"), ("kept", "1")])
    assert b"forged" not in form
    assert b"kept:1\n" in form


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("a", "b:c", "a:b\\cc\n"),
        ("a:b", "c", "a\\cb:c\n"),
        ("a", "1\r\n2", "a:1\\r\\n2\n"),
        ("a", "\\", "a:\\\\\n"),
        ("a", "", "a:\n"),
        ("", "x", ""),
        ("a", "x\0y", ""),
        ("a\0", "x", ""),
    ],
)
def test_header_line(name: str, value: str, line: str) -> None:
    assert stomp_form.header_line(name, value) == line


@pytest.mark.parametrize("text", ["\\t", "\\", "a\\", "\\u0041", "\\N"])
def test_undefined_escapes_are_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="undefined escape"):
        stomp_form.unescape(text)


@given(TEXT)
def test_escape_and_back(text: str) -> None:
    escaped = stomp_form.escape(text)
    assert not set("\n\r:") & set(escaped)
    assert stomp_form.unescape(escaped) == text


@given(TEXT.filter(bool), TEXT, st.lists(st.tuples(TEXT.filter(bool), TEXT)), st.binary())
def test_unpack_gives_back_what_was_packed(
    name: str, value: str, others: list[tuple[str, str]], body: bytes
) -> None:
    headers = [
        (n, v)
        for n, v in [(name, value), *others]
        if n not in stomp_form.BROKER_HEADERS | stomp_form.PLACED_HEADERS
        and n not in {"correlation-id", "reply-to", "type"}
    ]
    form = stomp_form.pack("q", body, headers=headers)
    found, content = stomp_form.unpack(form)
    assert content == body
    assert found[:5] == [
        ("destination", "q"),
        ("content-length", str(len(body))),
        ("priority", "4"),
        ("persistent", "false"),
        ("expires", "0"),
    ]
    assert found[5:] == headers


def test_unpack_never_raises() -> None:
    assert stomp_form.unpack(b"no colon\n:empty\na:\\q\n\xff:1\n\nbody") == (
        [("a", "\\q"), ("\ufffd", "1")],
        b"body",
    )
    assert stomp_form.unpack(b"") == ([], b"")


def test_the_outline_serves_bodies_of_every_size() -> None:
    before, behind = stomp_form.outline("q", 4, False, headers=[("a", "1")])
    for body in (b"", b"x", b"y" * 1000):
        assert b"%b%d%b%b" % (before, len(body), behind, body) == stomp_form.pack(
            "q", body, headers=[("a", "1")]
        )


def test_with_headers_replaces_and_adds() -> None:
    form = stomp_form.pack("q", b"a\n\nb", headers=[("x", "1"), ("y:", "2")])
    changed = stomp_form.with_headers(form, [("y:", "3"), ("z", "a\nb")])
    assert stomp_form.unpack(changed) == (
        [*stomp_form.unpack(form)[0][:6], ("y:", "3"), ("z", "a\nb")],
        b"a\n\nb",
    )


@pytest.mark.parametrize("expires", [0, 77, 1_700_000_000_000])
def test_another_end(expires: int) -> None:
    headers = [("note", "\nexpires:5"), ("late", "expires:6")]
    form = stomp_form.pack("q", b"\nexpires:7\n\nx", content_type="a", expires=12, headers=headers)
    same = stomp_form.pack(
        "q", b"\nexpires:7\n\nx", content_type="a", expires=expires, headers=headers
    )
    assert stomp_form.with_expires(form, expires) == same


@pytest.mark.parametrize("form", [b"", b"x", b"a:b\n\nx\nexpires:5\n", b"\n\n\nexpires:5\n"])
def test_what_tells_no_end_stays(form: bytes) -> None:
    assert stomp_form.with_expires(form, 7) == form
