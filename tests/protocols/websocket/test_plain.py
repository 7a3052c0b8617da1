"""Plain frames: as wsproto reads them, whatever their sizes, and none that it would refuse."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.utils import apply_mask
from wsproto.frame_protocol import FrameProtocol, Opcode, ParseFailed

from protocols.websocket.masking import turned, unmask
from protocols.websocket.plain import AT_ONCE, Extent, extent, head_of, is_utf8, read_plain
from tests.lanes import examples
from tests.protocols.websocket.client import BINARY, PING, TEXT, frame

MOST = 1 << 17
KEYS = st.binary(min_size=4, max_size=4)


@settings(max_examples=examples(200))
@given(st.binary(max_size=300), KEYS, st.integers(0, 300))
def test_a_mask_is_taken_away_in_parts_as_at_once(payload: bytes, key: bytes, cut: int) -> None:
    cut = min(cut, len(payload))
    parts = unmask(payload[:cut], key) + unmask(payload[cut:], turned(key, cut))
    assert parts == unmask(payload, key) == apply_mask(payload, key)
    assert parts == bytes(byte ^ key[at % 4] for at, byte in enumerate(payload))


def _by_wsproto(data: bytes) -> list[bytes]:
    wsproto = FrameProtocol(client=False, extensions=[])
    wsproto.receive_bytes(data)
    found = []
    for one in wsproto.received_frames():
        assert one.frame_finished
        assert one.message_finished
        assert isinstance(one.payload, str | bytes)
        found.append(one.payload.encode() if isinstance(one.payload, str) else one.payload)
    return found


TEXTS = st.text(max_size=200).map(str.encode)
SIZED = st.sampled_from([0, 1, 125, 126, 127, 65_535, 65_536, 70_000]).map(lambda size: b"x" * size)


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just(TEXT), TEXTS | SIZED, KEYS),
            st.tuples(st.just(BINARY), st.binary(max_size=200) | SIZED, KEYS),
        ),
        max_size=6,
    )
)
def test_plain_frames_are_read_as_by_wsproto(said: list[tuple[int, bytes, bytes]]) -> None:
    data = b"".join(frame(opcode, payload, mask=key) for opcode, payload, key in said)
    found: list[bytes] = []
    at, text = read_plain(data, 0, MOST, found, text=True)
    assert found == [payload for _, payload, _ in said] == _by_wsproto(data)
    assert (at, text) == (len(data), any(opcode == TEXT for opcode, _, _ in said))


def test_a_turn_has_an_end() -> None:
    one = frame(TEXT, b"x")
    found: list[bytes] = []
    assert read_plain(one * (AT_ONCE + 1), 0, MOST, found, text=True) == (len(one) * AT_ONCE, True)
    assert len(found) == AT_ONCE


NOT_PLAIN = {
    "unmasked": frame(BINARY, b"x" * 9, mask=None),
    "reserved": frame(BINARY, b"x", reserved=4),
    "in parts": frame(BINARY, b"x", fin=False),
    "continuation": frame(0, b"x"),
    "control": frame(PING, b"x"),
    "unknown": frame(3, b"x"),
    "not whole": frame(BINARY, b"x" * 200)[:-1],
    "two bytes for 125": b"\x82\xfe" + struct.pack("!H", 125) + b"k" * 4 + b"x" * 125,
    "eight for 65535": b"\x82\xff" + struct.pack("!Q", 65_535) + b"k" * 4 + b"x" * 65_535,
    "top bit": b"\x82\xff" + struct.pack("!Q", 1 << 63 | 5) + b"k" * 4 + b"x" * 5,
    "too large": frame(BINARY, b"x" * (MOST + 1)),
}


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_what_is_not_plain_is_left(name: str) -> None:
    before = frame(TEXT, b"before")
    found: list[bytes] = []
    assert read_plain(before + NOT_PLAIN[name], 0, MOST, found, text=True) == (len(before), True)
    assert found == [b"before"]


def test_text_is_left_where_it_may_not_come() -> None:
    assert read_plain(frame(TEXT, b"x"), 0, MOST, [], text=False) == (0, False)


def test_text_that_is_not_utf8_is_told_behind_what_is() -> None:
    found: list[bytes] = []
    with pytest.raises(UnicodeDecodeError):
        read_plain(frame(TEXT, b"good") + frame(TEXT, b"\xff"), 0, MOST, found, text=True)
    assert found == [b"good"]


@settings(max_examples=examples(200))
@given(
    st.integers(0, 15),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0, 1, 125, 126, 65_535, 65_536, 1 << 40]),
)
def test_an_extent_is_known_with_the_whole_head(
    opcode: int, fin: bool, masked: bool, size: int
) -> None:
    data = frame(opcode, b"", fin=fin, mask=b"mask" if masked else None, length=size)
    data += b"mask" if masked and not data.endswith(b"mask") else b""
    for cut in range(len(data)):
        assert extent(data[:cut], 0) is None
    assert extent(b"ahead" + data, 5) == Extent(len(data), size, masked)


@pytest.mark.parametrize("name", ["two bytes for 125", "eight for 65535", "unmasked"])
def test_an_extent_says_what_is_not_sound(name: str) -> None:
    found = extent(NOT_PLAIN[name], 0)
    assert found is not None
    assert not found.is_sound


@settings(max_examples=examples(100))
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode) | SIZED)
def test_what_goes_out_is_read_by_wsproto(payload: bytes) -> None:
    text = is_utf8(payload)
    data = head_of(len(payload), text) + payload
    client = FrameProtocol(client=True, extensions=[])
    client.receive_bytes(data)
    try:
        (one,) = client.received_frames()
    except ParseFailed as error:  # pragma: no cover  (says which payload)
        raise AssertionError(payload) from error
    assert one.opcode is (Opcode.TEXT if text else Opcode.BINARY)
    assert one.payload == (payload.decode() if text else payload)
