"""Where a replay begins, as clients write it."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.model.errors import Code, RefusedError
from gateway.model.stream_start import FORMS, At, StreamStart, parse_start


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("first", (At.FIRST, 0)),
        ("last", (At.LAST, 0)),
        ("next", (At.NEXT, 0)),
        ("offset=0", (At.OFFSET, 0)),
        ("offset=18446744073709551615", (At.OFFSET, 2**64 - 1)),
        ("timestamp=0", (At.TIME, 0)),
        ("timestamp=1700000000", (At.TIME, 1_700_000_000_000)),
        ("timestamp=1700000000.5", (At.TIME, 1_700_000_000_500)),
        ("timestamp=1700000000.1239", (At.TIME, 1_700_000_000_123)),
        ("timestamp=253402300799", (At.TIME, 253_402_300_799_000)),
        ("timestamp=2023-11-14T22:13:20Z", (At.TIME, 1_700_000_000_000)),
        ("timestamp=2023-11-14T23:13:20.250+01:00", (At.TIME, 1_700_000_000_250)),
        ("timestamp=1969-12-31T23:59:59Z", (At.TIME, -1000)),
    ],
)
def test_what_may_be_written(text: str, start: tuple[At, int]) -> None:
    assert parse_start(text) == StreamStart(at=start[0], value=start[1])


@pytest.mark.parametrize(
    "text",
    [
        "", "First", "first ", "earliest", "5", "offset", "offset=", "offset=-1", "offset=1.5",
        "offset=\u0665", "offset=" + "9" * 21, "timestamp=", "timestamp=soon", "timestamp=-1",
        "timestamp=2023-11-14T22:13:20", "timestamp=1e9", "1h",
    ],
)  # fmt: skip
def test_what_names_no_place_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(RefusedError) as refused:
        parse_start(text)
    assert refused.value.refusal.code is Code.BAD_VALUE
    assert FORMS in str(refused.value)


def test_ms_where_seconds_belong_are_told() -> None:
    with pytest.raises(RefusedError, match=r"after the year 9999: T is in seconds .* like ms"):
        parse_start("timestamp=1700000000000")


@given(st.text())
def test_any_text_is_a_place_or_refused(text: str) -> None:
    for one in (text, f"offset={text}", f"timestamp={text}"):
        with contextlib.suppress(RefusedError):
            assert parse_start(one).at in At
