"""Which version is agreed, and the escape tables of each [STOMP 1.2 Value Encoding]."""

from __future__ import annotations

import pytest

from protocols.stomp.versions import (
    Version,
    escape_name,
    escape_value,
    negotiate,
    plain,
    unescape,
)

V0, V1, V2 = Version.V1_0, Version.V1_1, Version.V1_2


@pytest.mark.parametrize(
    ("accepted", "version"),
    [
        (None, V0),
        ("1.0", V0),
        ("1.1", V1),
        ("1.2", V2),
        ("1.0,1.1,1.3", V1),
        ("1.0,1.1,1.2", V2),
        ("1.2,1.0", V2),
        ("1.2,1.2", V2),
        (" 1.1 , 1.0", V1),
        ("1.3", None),
        ("9.9", None),
        ("", None),
        (",".join(["2.0"] * 1000), None),
    ],
)
def test_the_highest_common_version_is_spoken(accepted: str | None, version: Version) -> None:
    assert negotiate(accepted) is version


@pytest.mark.parametrize(
    ("text", "meanings"),
    [
        ("a\\nb", ["a\\nb", "a\nb", "a\nb"]),
        ("a\\cb", ["a\\cb", "a:b", "a:b"]),
        ("a\\\\b", ["a\\\\b", "a\\b", "a\\b"]),
        ("a\\rb", ["a\\rb", None, "a\rb"]),
        ("a\\tb", ["a\\tb", None, None]),
        ("a\\", ["a\\", None, None]),
        ("\\\\n", ["\\\\n", "\\n", "\\n"]),
        ("plain", ["plain", "plain", "plain"]),
    ],
)
def test_unescape(text: str, meanings: list[str | None]) -> None:
    for version, meaning in zip(Version, meanings, strict=True):
        if meaning is None:
            with pytest.raises(ValueError, match="undefined escape"):
                unescape(text, version)
        else:
            assert unescape(text, version) == meaning


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("plain", ["plain", "plain", "plain"]),
        ("a:b", ["a:b", "a\\cb", "a\\cb"]),
        ("a\\b", ["a\\b", "a\\\\b", "a\\\\b"]),
        ("a\nb", [None, "a\\nb", "a\\nb"]),
        ("a\rb", [None, None, "a\\rb"]),
        ("a\0b", [None, None, None]),
        ("", ["", "", ""]),
    ],
)
def test_escape_value(text: str, written: list[str | None]) -> None:
    assert [escape_value(text, version) for version in Version] == written


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a:b", [None, "a\\cb", "a\\cb"]),
        ("", [None, None, None]),
        ("a\nb", [None, "a\\nb", "a\\nb"]),
        ("name", ["name", "name", "name"]),
    ],
)
def test_escape_name(text: str, written: list[str | None]) -> None:
    assert [escape_name(text, version) for version in Version] == written


def test_texts_and_order() -> None:
    assert [version.text for version in Version] == ["1.0", "1.1", "1.2"]
    assert V0 < V1 < V2


def test_plain_has_no_control_characters() -> None:
    assert plain("a\r\nb\0c\x1b[2Jé\u202e") == "a  b c [2Jé "
