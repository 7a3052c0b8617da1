"""Header lines by the rules of each version [semantics of 7.2], and what is refused."""

from __future__ import annotations

import pytest

from gateway.model.errors import Code
from protocols.stomp.heads import FrameError, decode_head
from protocols.stomp.limits import StompLimits
from protocols.stomp.versions import Version

V0, V1, V2 = Version.V1_0, Version.V1_1, Version.V1_2
LIMITS = StompLimits()


def read(raw: bytes, version: Version | None = V2) -> dict[str, str]:
    return decode_head(raw, version, LIMITS).headers


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (b"foo:1\nfoo:2\nfoo:3", [{"foo": "3"}, {"foo": "3"}, {"foo": "1"}]),
        (b"a: \t padded \t", [{"a": "padded \t"}, {"a": " \t padded \t"}, {"a": " \t padded \t"}]),
        (b" a:1", [{" a": "1"}] * 3),
        (b"a:b:c", [{"a": "b:c"}] * 3),
        (b"a:", [{"a": ""}] * 3),
        (b"a:1\r", [{"a": "1"}] * 3),
        (b"a:x\\ny", [{"a": "x\\ny"}, {"a": "x\ny"}, {"a": "x\ny"}]),
        (b"a\\cb:1", [{"a\\cb": "1"}, {"a:b": "1"}, {"a:b": "1"}]),
        ("a:é\u202e".encode(), [{"a": "é\u202e"}] * 3),
    ],
)
def test_lines_by_version(lines: bytes, expected: list[dict[str, str]]) -> None:
    for version, headers in zip(Version, expected, strict=True):
        assert read(b"SEND\n" + lines, version) == headers


def test_s7_special_characters_in_names_and_values() -> None:
    raw = b"SEND\n\\rspecial-header\\\\\\n\\c\\r\\n:\\c\\\\\\ngood\\n\\r"
    assert read(raw) == {"\rspecial-header\\\n:\r\n": ":\\\ngood\n\r"}


@pytest.mark.parametrize("greeting", [b"CONNECT", b"STOMP"])
def test_connect_is_never_unescaped(greeting: bytes) -> None:
    assert read(greeting + b"\nlogin:a\\nb\\t", None) == {"login": "a\\nb\\t"}
    assert read(greeting + b"\nlogin:a\\nb\\t", V2) == {"login": "a\\nb\\t"}


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize(
    ("raw", "code", "part"),
    [
        (b"send\na:1", Code.BAD_FRAME, "'send' is no command"),
        (b"SEND \na:1", Code.BAD_FRAME, "'SEND ' is no command"),
        (b"MESSAGE\na:1", Code.BAD_FRAME, "'MESSAGE' is no command"),
        (b"X" * 40, Code.BAD_FRAME, "at most 32 bytes"),
        (b"\xef\xbb\xbfSEND\na:1", Code.BAD_FRAME, "is no command"),
        (b"SEND\nno colon here", Code.BAD_HEADER, "'no colon here' has no colon"),
        (b"SEND\n:value", Code.BAD_HEADER, "no name"),
        (b"SEND\n", Code.BAD_HEADER, "has no colon"),
        (b"SEND\na:\xff", Code.BAD_HEADER, "not UTF-8"),
        (b"SEND\na:\xc0\x80", Code.BAD_HEADER, "not UTF-8"),
        (b"SEND\na:\xed\xa0\x80", Code.BAD_HEADER, "not UTF-8"),
        (b"SEND\na:x\0y", Code.BAD_FRAME, "NUL"),
        (b"SEND\na:x\ry", Code.BAD_HEADER, "CR"),
        (b"SEND\n" + b"a:b\n" * 100 + b"a:b", Code.TOO_MANY, "100 header lines"),
        (b"SEND\na:" + b"x" * 8192, Code.TOO_LARGE, "limit is 8192"),
        (b"SEND\n" + b"a:" + b"x" * 66000, Code.TOO_LARGE, "limit is 65536"),
    ],
)
def test_refused_heads(version: Version, raw: bytes, code: Code, part: str) -> None:
    with pytest.raises(FrameError) as caught:
        read(raw, version)
    assert caught.value.refusal.code is code
    assert part in caught.value.refusal.text


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize(
    "text",
    [b"-1", b"+5", b"5 ", b"0x5", b"", b"1e9", b"1.0", b"12345678901", b"\xd9\xa5", b"five"],
)
def test_t10_content_length_is_digits_only(version: Version, text: bytes) -> None:
    with pytest.raises(FrameError) as caught:
        read(b"SEND\nreceipt:7\ncontent-length:" + text, version)
    assert caught.value.refusal.code is Code.BAD_HEADER
    assert "content-length" in caught.value.refusal.text
    assert caught.value.receipt == b"7"


@pytest.mark.parametrize("version", Version)
def test_t10_a_body_above_the_limit_is_refused_unread(version: Version) -> None:
    for text in (b"16777217", b"9999999999"):
        with pytest.raises(FrameError) as caught:
            read(b"SEND\ncontent-length:" + text, version)
        assert caught.value.refusal.code is Code.TOO_LARGE
        assert "16777216" in caught.value.refusal.text
    assert decode_head(b"SEND\ncontent-length:16777216", version, LIMITS).length == 16777216


@pytest.mark.parametrize("version", Version)
def test_of_differing_content_lengths_the_first_counts_in_every_version(version: Version) -> None:
    assert decode_head(b"SEND\ncontent-length:5\ncontent-length:9", version, LIMITS).length == 5


def test_absent_content_length() -> None:
    assert decode_head(b"SEND\na:1", V2, LIMITS).length == -1


@pytest.mark.parametrize(
    ("line", "versions"),
    [(b"a:is\\ttab", [V1, V2]), (b"a:cr\\r", [V1]), (b"a:end\\", [V1, V2]), (b"a\\x:1", [V1, V2])],
)
def test_t13_undefined_escapes_are_refused_by_name(line: bytes, versions: list[Version]) -> None:
    for version in Version:
        if version in versions:
            with pytest.raises(FrameError, match=f"STOMP {version.text}"):
                read(b"SEND\n" + line, version)
        else:
            read(b"SEND\n" + line, version)


def test_nack_is_unknown_in_1_0_only() -> None:
    with pytest.raises(FrameError, match=r"1\.0 has no NACK"):
        read(b"NACK\nmessage-id:1", V0)
    assert read(b"NACK\nmessage-id:1", V1) == {"message-id": "1"}


def test_before_connect_limits_are_tighter() -> None:
    with pytest.raises(FrameError) as caught:
        read(b"CONNECT\n" + b"\n".join(b"a:b" for _ in range(17)), None)
    assert caught.value.refusal.code is Code.TOO_MANY
    with pytest.raises(FrameError) as caught:
        read(b"CONNECT\n" + b"\n".join(b"a:" + b"b" * 4000 for _ in range(5)), None)
    assert caught.value.refusal.code is Code.TOO_LARGE
    assert len(read(b"CONNECT\n" + b"\n".join(b"a%d:b" % n for n in range(16)), None)) == 16


@pytest.mark.parametrize(
    ("raw", "version", "receipt"),
    [
        (b"SEND\nreceipt:r-1", V2, b"r-1"),
        (b"SEND\nreceipt: r-1", V0, b"r-1"),
        (b"SEND\nreceipt: r-1", V2, b" r-1"),
        (b"SEND\nreceipt:a\\cb", V2, b"a\\cb"),
        (b"SEND\nreceipt:a:b", V2, b"a:b"),
        (b"SEND\nreceipt:a\\tb", V0, b"a\\tb"),
        (b"SEND\nreceipt:1\nreceipt:2", V2, b"1"),
        (b"SEND\nreceipt:1\nreceipt:2", V1, b"2"),
        ("SEND\nreceipt:é".encode(), V1, "é".encode()),
        (b"SEND\nreceipt:", V2, b""),
        (b"SEND\na:1", V2, None),
        (b"CONNECT\nreceipt:1", None, b"1"),
    ],
)
def test_the_receipt_goes_back_as_it_came(
    raw: bytes, version: Version | None, receipt: bytes | None
) -> None:
    assert decode_head(raw, version, LIMITS).receipt == receipt
