"""Damaged handshakes and frames, half a million of them; `fuzz` says what is judged.

`python -m tests.protocols.websocket.fuzz --executions 20000000` runs more.
"""

from __future__ import annotations

import random

import pytest

from protocols.websocket.frames import Frames
from tests.lanes import QUICK
from tests.protocols.websocket import fuzz
from tests.protocols.websocket.reference import SaidError, check_said, read

SHARES = 20
EACH = 1_000 if QUICK else 25_000


@pytest.mark.parametrize("share", range(SHARES))
def test_damaged_connections(share: int) -> None:
    ran, failed = fuzz.run(share * EACH, EACH)
    assert (ran, failed) == (EACH, [])


def test_most_of_them_come_to_frames_and_each_end_is_there() -> None:
    """What is refused in its first byte would prove little of what comes behind."""
    seen: dict[int, int] = {}
    payload = 0
    for number in range(2_000):
        come = read(fuzz.damaged_frames(random.Random(number)), bytes_max=fuzz.BYTES_MAX)
        payload += len(come.payload)
        for code in come.codes:
            seen[code] = seen.get(code, 0) + 1
    assert payload > 2_000 * 200
    assert seen[1002] > 500
    assert min(seen[1007], seen[1009], seen[1000], seen[4999]) > 20


def test_what_goes_wrong_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each judge in turn: the end's code, what is passed on, what is said."""
    right = Frames.read

    def greedy(frames: Frames, data: bytes, spent: object) -> bytes:
        return right(frames, data, spent) + b"!"  # type: ignore[arg-type]

    monkeypatch.setattr(Frames, "read", greedy)
    assert fuzz.run(0, 200)[1]
    monkeypatch.setattr(Frames, "read", right)
    monkeypatch.setattr(Frames, "message", lambda *_: b"\x81\x01\xff")
    assert fuzz.run(0, 200)[1]


@pytest.mark.parametrize(
    "said",
    [
        b"\x88\x00\x88\x00",
        b"\x81\x81\x00\x00\x00\x00x",
        b"\xc1\x00",
        b"\x83\x00",
        b"\x82\x05abc",
        b"\x82\x7e\x00\x05abcde",
        b"\x02\x01a",
        b"\x80\x01a",
        b"\x88\x02\x03\xe7",
    ],
)
def test_what_is_not_well_formed_is_seen(said: bytes) -> None:
    with pytest.raises(SaidError):
        check_said(said)


def test_what_is_held_is_counted() -> None:
    line = fuzz.Line(random.Random(1))
    line.say(b"GET / HTTP/1.1\r\nCookie: " + b"a" * 9_000)
    assert 9_000 < fuzz.held(line.session) < fuzz.HELD_MAX
