"""Frames: messages both ways, and an end with its code for each broken rule, however it is cut."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.model.peers import Cause
from protocols.websocket.limits import FRAMES_MAX, WebSocketLimits
from tests.lanes import examples
from tests.protocols.websocket.client import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    BytesMessage,
    Client,
    Pong,
    TextMessage,
    close,
    frame,
)
from tests.protocols.websocket.inner import Built

STOMP = b"CONNECT\n\n\x00"


class TestMessages:
    def test_text_is_answered_with_text(self) -> None:
        client = Client()
        (said,) = client.say(frame(TEXT, STOMP))
        assert isinstance(said, TextMessage)
        assert said.data == STOMP.decode()
        assert client.built.inner.came == STOMP

    def test_what_is_no_utf8_is_binary_also_then(self) -> None:
        client = Client()
        client.say(frame(TEXT, STOMP))
        client.built.inner.out = b"\xff\x00"
        (said,) = client.read(client.turn())
        assert isinstance(said, BytesMessage)
        assert said.data == b"\xff\x00"
        client.built.inner.out = "é".encode()
        (said,) = client.read(client.turn())
        assert isinstance(said, TextMessage)

    def test_binary_is_answered_with_binary(self) -> None:
        client = Client()
        (said,) = client.say(frame(BINARY, STOMP))
        assert isinstance(said, BytesMessage)
        (said,) = client.say(frame(TEXT, b"text"))
        assert isinstance(said, BytesMessage), "the first message decides"

    def test_fragments_and_a_control_frame_between_them(self) -> None:
        client = Client()
        parts = [
            frame(TEXT, b"CONN", fin=False),
            frame(PING, b"p"),
            frame(0, b"ECT", fin=False),
            frame(0, b""),
        ]
        came = client.say(b"".join(parts))
        assert [type(one) for one in came] == [Pong, TextMessage]
        assert client.built.inner.came == b"CONNECT"

    def test_many_messages_of_one_read_come_as_one(self) -> None:
        client = Client()
        client.say(b"".join(frame(TEXT, b"%d\n" % n) for n in range(5)))
        assert client.built.inner.came == b"0\n1\n2\n3\n4\n"
        assert len(client.built.inner.times) == 1

    def test_a_large_frame_is_passed_on_as_it_comes(self) -> None:
        client = Client()
        data = frame(BINARY, b"x" * 100_000)
        client.say(data[:50_000])
        assert 49_000 < len(client.built.inner.came) < 50_000
        client.say(data[50_000:])
        assert client.built.inner.came == b"x" * 100_000

    def test_large_answers(self) -> None:
        client = Client()
        client.say(frame(BINARY, STOMP))
        for size in (125, 126, 65_535, 65_536, 200_000):
            client.built.inner.out = b"x" * size
            came = client.read(client.turn())
            assert b"".join(one.data for one in came) == b"x" * size  # type: ignore[union-attr]


BROKEN = {
    "unmasked": (frame(TEXT, b"x", mask=None), 1002),
    "reserved 1": (frame(TEXT, b"x", reserved=4), 1002),
    "reserved 2": (frame(TEXT, b"x", reserved=2), 1002),
    "reserved 3": (frame(TEXT, b"x", reserved=1), 1002),
    **{f"opcode {n}": (frame(n, b"x"), 1002) for n in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)},
    "control of 126": (frame(PING, b"x" * 126), 1002),
    "control in parts": (frame(PING, b"x", fin=False), 1002),
    "close in parts": (frame(CLOSE, b"", fin=False), 1002),
    "continues nothing": (frame(0, b"x"), 1002),
    "begins within": (frame(TEXT, b"x", fin=False) + frame(TEXT, b"x"), 1002),
    "long length": (b"\x81\xfe\x00\x01" + b"\x00" * 5, 1002),
    "longer length": (b"\x81\xff" + struct.pack("!Q", 126) + b"\x00" * 130, 1002),
    "top bit": (b"\x82\xff" + struct.pack("!Q", 1 << 63) + b"\x00" * 8, 1002),
    "close of one byte": (frame(CLOSE, b"\x03"), 1002),
    "close 999": (close(999), 1002),
    "close 1005": (close(1005), 1002),
    "close 1006": (close(1006), 1002),
    "close 2000": (close(2000), 1002),
    "close 5000": (close(5000), 1002),
    "close text": (frame(CLOSE, b"\x03\xe8\xff"), 1007),
    "bad text": (frame(TEXT, b"a\xffb"), 1007),
    "surrogate": (frame(TEXT, b"\xed\xa0\x80"), 1007),
    "cut text": (frame(TEXT, "é".encode()[:1]), 1007),
    "cut in parts": (frame(TEXT, b"\xc3", fin=False) + frame(0, b"(", fin=False), 1007),
    "large": (frame(BINARY, b"x" * 70_000), 1009),
    "large in parts": (
        frame(BINARY, b"x" * 40_000, fin=False) + frame(0, b"x" * 40_000, fin=False),
        1009,
    ),
    "endless": (frame(BINARY, b"x", fin=False) + frame(0, fin=False) * FRAMES_MAX, 1009),
}
SMALL = WebSocketLimits(message_bytes_max=65_536)


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_the_rules_ends_the_connection_with_its_code(name: str) -> None:
    data, code = BROKEN[name]
    client = Client(Built(limits=SMALL))
    client.say(frame(TEXT, STOMP) + data)
    ((found, reason),) = client.ends()
    assert found == code
    assert reason
    inner = client.built.inner
    assert inner.came.startswith(STOMP)
    assert inner.lost == 1
    assert client.session.seen.ending is not None
    assert client.session.seen.ending.cause is Cause.PROTOCOL_ERROR
    # What comes behind it counts for nothing, and the socket goes after a while.
    assert not client.session.closing
    before = inner.came
    client.say(frame(TEXT, b"more"))
    assert inner.came == before
    client.tick(2.1)
    assert client.session.closing


@settings(max_examples=examples(200))
@given(st.data())
def test_nothing_hangs_on_how_the_bytes_were_cut(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([*sorted(BROKEN), "none", "closed"]))
    good = frame(TEXT, STOMP) + frame(PING, b"1") + frame(TEXT, "é\n".encode(), fin=False)
    good += frame(PONG, b"2") + frame(0, b"rest") + frame(BINARY, b"\x00\xff")
    last = {"none": b"", "closed": close(1001, "gone")}
    whole = good + (last[name] if name in last else BROKEN[name][0])
    ends_at = st.integers(0, len(whole))
    cuts = sorted(data.draw(st.sets(ends_at, max_size=12)) | {len(whole)})
    hurried = data.draw(st.booleans())
    found = []
    for places in ([len(whole)], cuts):
        client = Client(Built(limits=SMALL), hurried=hurried)
        start = 0
        for end in places:
            client.say(whole[start:end])
            start = end
        inner = client.built.inner
        came = inner.came
        if name in BROKEN:
            came = came[: len(STOMP + "é\nrest".encode() + b"\x00\xff")]
        said = b"".join(
            one.data.encode() if isinstance(one, TextMessage) else bytes(one.data)
            for one in client.heard
            if isinstance(one, TextMessage | BytesMessage)
        )
        assert said == inner.came
        pongs = [bytes(one.payload) for one in client.heard if isinstance(one, Pong)]
        found.append((came, client.ends(), pongs, client.session.closing, inner.lost))
    assert found[0] == found[1]
