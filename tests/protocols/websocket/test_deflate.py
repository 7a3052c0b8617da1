"""permessage-deflate: which offers are agreed to, messages both ways, and bombs."""

from __future__ import annotations

import random
import tracemalloc
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.websocket.deflate import AT_ONCE_BYTES, DEFLATED_MAX, DEFLATED_MIN, agree
from protocols.websocket.frames import Frames
from protocols.websocket.limits import WebSocketLimits
from tests.lanes import examples
from tests.protocols.websocket.client import BINARY, PING, TEXT, Client, close, frame, request
from tests.protocols.websocket.inner import Built

PLAIN = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
TAIL = b"\x00\x00\xff\xff"
LIMITS = WebSocketLimits(message_bytes_max=1 << 20, deflate=True)


def pressed(data: bytes, *, level: int = 9, bits: int = 15) -> bytes:
    """Return what a message is compressed to."""
    made = zlib.compressobj(level, zlib.DEFLATED, -bits)
    return (made.compress(data) + made.flush(zlib.Z_SYNC_FLUSH)).removesuffix(TAIL)


class Pressed(Client):
    """A client that has agreed on compression; frames are made by hand."""

    def __init__(self, *, hurried: bool = False) -> None:
        super().__init__(Built(limits=LIMITS), offer="permessage-deflate", hurried=hurried)

    def message(self, data: bytes) -> bytes:
        return self.raw(frame(BINARY, pressed(data), reserved=4))


@pytest.mark.parametrize(
    ("offer", "answer"),
    [
        ("permessage-deflate", PLAIN),
        # What browsers say.
        ("permessage-deflate; client_max_window_bits", PLAIN),
        ("permessage-deflate; client_max_window_bits=8", PLAIN),
        ("permessage-deflate; client_no_context_takeover; server_no_context_takeover", PLAIN),
        (
            "permessage-deflate; server_max_window_bits=10",
            f"{PLAIN}; server_max_window_bits=10",
        ),
        (
            'permessage-deflate ; server_max_window_bits = "15"',
            f"{PLAIN}; server_max_window_bits=15",
        ),
        # The first that can be had.
        ("x-webkit-deflate-frame, permessage-deflate", PLAIN),
        ("permessage-deflate; server_max_window_bits=8, permessage-deflate", PLAIN),
        # What is not sound is declined, and costs no connection.
        ("permessage-deflate; server_max_window_bits=8", None),
        ("permessage-deflate; server_max_window_bits=16", None),
        ("permessage-deflate; server_max_window_bits=09", None),
        ("permessage-deflate; server_max_window_bits", None),
        ("permessage-deflate; server_max_window_bits=1e1", None),
        ("permessage-deflate; server_max_window_bits=-9", None),
        ("permessage-deflate; server_max_window_bits=99999999999999999999999", None),
        ("permessage-deflate; server_max_window_bits=\u0661\u0665", None),
        ("permessage-deflate; client_max_window_bits=7", None),
        ("permessage-deflate; client_max_window_bits=16", None),
        ("permessage-deflate; client_no_context_takeover=1", None),
        ("permessage-deflate; server_no_context_takeover=true", None),
        ("permessage-deflate; server_no_context_takeover; server_no_context_takeover", None),
        ("permessage-deflate; unheard_of", None),
        ("permessage-deflate;", None),
        ("permessage-deflate; =", None),
        ("permessage-deflate2", None),
        ("PERMESSAGE-DEFLATE", None),
        ("permessage-bzip2", None),
        ("", None),
    ],
)
def test_offers_are_agreed_to_or_declined(offer: str, answer: str | None) -> None:
    agreed = agree(offer.split(","))
    assert (None if agreed is None else agreed.answer) == answer
    built = Built(limits=LIMITS)
    data = request(Sec_WebSocket_Extensions=offer.encode().decode("latin-1"))
    built.session.receive_data(data, 1.0)
    said = built.session.data_to_send()
    assert said.startswith(b"HTTP/1.1 101 ")
    assert (b"Sec-WebSocket-Extensions: " in said) is (answer is not None)


def test_it_is_off_where_nobody_has_switched_it_on() -> None:
    plain = Client(offer="permessage-deflate")
    assert b"Extensions" not in plain.answer
    plain.say(frame(BINARY, pressed(b"x"), reserved=4))
    assert plain.ends()[0][0] == 1002


class TestMessages:
    def test_they_come_compressed_and_plain_and_in_parts(self) -> None:
        peer = Pressed()
        peer.message(b"CONNECT\n")
        assert peer.built.inner.came == b"CONNECT\n"
        peer.raw(frame(TEXT, b"plain"))
        text = pressed("äöü".encode() * 100)
        peer.raw(frame(TEXT, text[:5], reserved=4, fin=False))
        peer.raw(frame(PING, b"between") + frame(0, b"", fin=False) + frame(0, text[5:]))
        assert peer.built.inner.came == b"CONNECT\nplain" + "äöü".encode() * 100
        peer.message(b"")
        assert not peer.ends()

    def test_a_message_does_not_know_the_one_before(self) -> None:
        """Neither side keeps a window."""
        peer = Pressed()
        data = random.Random(1).randbytes(2000) * 2
        first, second = (peer.message(data) for _ in range(2))
        assert first == second
        whole = zlib.compressobj(9, zlib.DEFLATED, -15)
        whole.compress(data)
        whole.flush(zlib.Z_SYNC_FLUSH)
        with_window = (whole.compress(data) + whole.flush(zlib.Z_SYNC_FLUSH)).removesuffix(TAIL)
        peer.say(frame(BINARY, with_window, reserved=4))
        assert peer.ends() == [(1002, "Compressed data came that cannot be inflated.")]

    def test_streams_that_end_within_a_message(self) -> None:
        peer = Pressed()
        ended = zlib.compressobj(9, zlib.DEFLATED, -15)
        final = ended.compress(b"final") + ended.flush()
        peer.raw(frame(BINARY, final + b"\x00", reserved=4))
        peer.raw(frame(BINARY, final * 3 + b"\x00", reserved=4))
        assert peer.built.inner.came == b"final" * 4
        peer.say(frame(BINARY, final * 20, reserved=4))
        assert peer.ends()[0][0] == 1002

    @pytest.mark.parametrize("bits", [9, 12, 15])
    def test_large_enough_answers_go_out_compressed(self, bits: int) -> None:
        peer = Client(
            Built(limits=LIMITS), offer=f"permessage-deflate; server_max_window_bits={bits}"
        )
        peer.raw(frame(BINARY, b"x"))
        inner = peer.built.inner
        for size, shrinks in (
            (DEFLATED_MIN - 1, False),
            (DEFLATED_MIN, True),
            (DEFLATED_MAX, True),
            (DEFLATED_MAX + 1, False),
        ):
            inner.out = data = (b"order %d, " * size)[:size]
            said = peer.turn()
            assert (said[0] == 0xC2) is shrinks
            assert (len(said) < size) is shrinks
            if shrinks:
                at = {126: 4, 127: 10}.get(said[1], 2)
                assert zlib.decompressobj(-bits).decompress(said[at:] + TAIL) == data

    def test_what_does_not_shrink_goes_out_as_it_is(self) -> None:
        peer = Pressed()
        peer.raw(frame(BINARY, b"x"))
        peer.built.inner.out = data = random.Random(2).randbytes(5000)
        said = peer.turn()
        assert said == b"\x82\x7e\x13\x88" + data


BOMB = pressed(b"\n" * (64 << 20))
MANY = pressed(b"\n" * (1 << 20))
BROKEN = {
    "a bomb": (frame(BINARY, BOMB, reserved=4), 1009),
    "a bomb of text": (frame(TEXT, BOMB, reserved=4), 1009),
    "a bomb in parts": (
        frame(BINARY, BOMB[:900], reserved=4, fin=False) + frame(0, BOMB[900:]),
        1009,
    ),
    "a bomb in a bomb": (frame(BINARY, pressed(BOMB) + b"x", reserved=4), 1002),
    "nothing, and much of it": (frame(BINARY, b"\0\0\0\xff\xff" * 300_000, reserved=4), 1009),
    "no deflate": (frame(BINARY, b"\xff" * 9, reserved=4), 1002),
    "bad text": (frame(TEXT, pressed(b"a\xff"), reserved=4), 1007),
    "text cut": (frame(TEXT, pressed("é".encode()[:1]), reserved=4), 1007),
    "the bit on a ping": (frame(PING, b"x", reserved=4), 1002),
    "the bit on a close": (frame(8, b"\x03\xe8", reserved=4), 1002),
    "the bit on a continuation": (
        frame(BINARY, pressed(b"x"), reserved=4, fin=False) + frame(0, b"x", reserved=4),
        1002,
    ),
    "another bit": (frame(BINARY, pressed(b"x"), reserved=6), 1002),
    "endless": (
        frame(BINARY, pressed(b"x"), reserved=4, fin=False) + frame(0, fin=False) * 1100,
        1009,
    ),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("step", [7919, 1 << 30])
def test_bombs_and_broken_rules_end_the_connection_with_their_code(name: str, step: int) -> None:
    data, code = BROKEN[name]
    peer = Pressed()
    peer.say(frame(TEXT, b"CONNECT"))
    for at in range(0, len(data), step):
        peer.say(data[at : at + step])
    ((found, reason),) = peer.ends()
    assert (found, bool(reason)) == (code, True)
    if name.startswith("a bomb") and code == 1009:
        assert reason == "A message is larger than 1048576 bytes."
    assert peer.built.inner.lost == 1


def test_a_bomb_costs_no_more_memory_than_a_message_may() -> None:
    frames = Pressed().session._tunnel._frames  # type: ignore[union-attr]
    data = frame(BINARY, BOMB, reserved=4)
    tracemalloc.start()
    try:
        frames.read(data, lambda: False)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert frames.failed is not None
    # zlib's buffer doubles on its way to the limit.
    assert most < 4 * LIMITS.message_bytes_max + 4 * len(data)


def test_many_messages_of_one_read_have_a_turn_each() -> None:
    """A read of 256 KiB may hold 250 of 1 MiB: what is inflated at once stays small."""
    peer = Pressed()
    frames: Frames = peer.session._tunnel._frames  # type: ignore[union-attr,assignment]
    data = frame(BINARY, MANY, reserved=4) * 100
    total = len(frames.read(data, lambda: False))
    turns = 1
    assert total <= 2 * AT_ONCE_BYTES
    while frames.behind:
        part = frames.read(b"", lambda: False)
        assert len(part) <= 2 * AT_ONCE_BYTES
        total += len(part)
        turns += 1
    assert total == 100 << 20
    assert turns >= 100
    assert frames.failed is None


@settings(max_examples=examples(150))
@given(st.data())
def test_nothing_hangs_on_how_the_bytes_were_cut(data: st.DataObject) -> None:
    said = data.draw(st.lists(st.binary(max_size=2000), max_size=5))
    whole = b""
    for one in said:
        if data.draw(st.booleans()):
            body = pressed(one, level=data.draw(st.integers(0, 9)))
            at = data.draw(st.integers(0, len(body)))
            whole += frame(BINARY, body[:at], reserved=4, fin=False)
            whole += frame(PING, b"p") + frame(0, body[at:])
        else:
            whole += frame(BINARY, one)
    name = data.draw(st.sampled_from(["none", "no deflate", "bad text", "another bit"]))
    whole += BROKEN[name][0] if name != "none" else b""
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=12)) | {len(whole)})
    found = []
    for places in ([len(whole)], cuts):
        peer = Pressed(hurried=data.draw(st.booleans()))
        start = 0
        for end in places:
            peer.say(whole[start:end])
            start = end
        came = peer.built.made[0][1].came if peer.built.made else b""
        found.append((came[: sum(map(len, said))], peer.ends()))
    assert found[0] == found[1]
    assert found[0][0] == b"".join(said)


def test_nothing_is_inflated_behind_our_close() -> None:
    peer = Pressed()
    peer.say(frame(TEXT, b"bye"))
    frames: Frames = peer.session._tunnel._frames  # type: ignore[union-attr]
    peer.say(frame(BINARY, BOMB, reserved=4) * 3 + frame(PING, b"x"))
    assert frames.failed is None
    assert not peer.session.behind
    assert not peer.session.closing
    peer.say(close(1000))
    assert peer.session.closing
