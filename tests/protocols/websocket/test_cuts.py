"""Nothing hangs on how a stream of frames is cut, on turns that end, on pauses and on writes.

Streams of frames, right and wrong, are said whole and undisturbed, and again cut anywhere while
turns end, what is inside pauses, and the peer does not read. Both come to the same: payload,
answers, the code of the end. Both are what `reference` reads in the bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.websocket.limits import FRAMES_MAX, WebSocketLimits
from tests.lanes import examples
from tests.protocols.websocket.client import close, frame, request
from tests.protocols.websocket.inner import Built, Echo
from tests.protocols.websocket.reference import (
    NO_TEXT,
    TOO_BIG,
    UNSUPPORTED,
    Come,
    Said,
    check_said,
    read,
)

BYTES_MAX = 300
#: A frame whose payload need not be whole when it is found to be wrong.
WITHIN = frozenset([NO_TEXT, TOO_BIG, UNSUPPORTED])

BODIES = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=20).map(str.encode),
    st.sampled_from([b"", b"x" * 125, b"x" * 126, b"\xc3", b"\xa9", b"x" * 300, b"\xed\xa0\x80"]),
)
RIGHT = st.builds(frame, st.sampled_from([0, 1, 2, 9, 10]), BODIES, fin=st.booleans())
#: Messages of several frames, with others between them.
MESSAGES = st.builds(
    lambda opcode, bodies, between: b"".join(
        frame(0 if at else opcode, body, fin=at == len(bodies) - 1) + between
        for at, body in enumerate(bodies)
    ),
    st.sampled_from([1, 2]),
    st.lists(BODIES, min_size=1, max_size=5),
    st.sampled_from([b"", frame(9, b"between"), frame(10)]),
)
WRONG = st.one_of(
    st.builds(frame, st.integers(0, 15), BODIES, reserved=st.integers(0, 7)),
    st.builds(frame, st.sampled_from([1, 2, 8, 9]), BODIES, mask=st.none()),
    st.builds(frame, st.sampled_from([1, 2]), BODIES, length=st.sampled_from([1, 200, 1 << 16])),
    st.builds(close, st.one_of(st.none(), st.integers(0, 65_535)), st.text(max_size=5)),
    st.binary(min_size=1, max_size=20),
)
STREAMS = st.lists(st.one_of(MESSAGES, MESSAGES, MESSAGES, RIGHT, WRONG), min_size=1, max_size=8)


class Shell:
    """Says bytes as the shell does: it does not read what is paused, behind or choked."""

    def __init__(self, subprotocol: str, spent: Callable[[], bool]) -> None:
        self.built = Built(limits=WebSocketLimits(message_bytes_max=BYTES_MAX), kind=Echo)
        self.session = session = self.built.session
        session.spent = spent
        session.receive_data(request(Sec_WebSocket_Protocol=subprotocol), 1.0)
        assert session.data_to_send().startswith(b"HTTP/1.1 101 ")
        self.out = bytearray()

    def say(self, pieces: list[bytes], disturb: Callable[[Shell], None]) -> Said:
        session = self.session
        for piece in pieces:
            disturb(self)
            while session.behind or session.paused_reading or session.choked:
                if session.behind:
                    session.go_on(1.0)
                elif session.paused_reading:
                    self.built.inner.paused_reading = False
                else:
                    session.write_room = True
                    session.write_resumed()
                self.out += session.data_to_send()
            if session.closing:
                break
            session.receive_data(piece, 1.0)
            self.out += session.data_to_send()
        while session.behind:
            session.go_on(1.0)
            self.out += session.data_to_send()
        return check_said(bytes(self.out))


def judge(shell: Shell, said: Said, come: Come) -> bytes:
    """Compare what was said and passed on with what the bytes are; returns what was passed on."""
    came = b"".join(inner.all for _, inner in shell.built.made if isinstance(inner, Echo))
    sure = come.payload[: len(come.payload) - come.cut]
    assert said.payload == came
    assert came.startswith(sure)
    assert len(said.codes) == bool(come.codes)
    assert come.codes.issuperset(said.codes)
    if not come.codes & WITHIN:
        assert come.payload.startswith(came)
    left = iter(come.pings)
    assert all(pong in left for pong in said.pongs)
    if come.pings and (come.closed or not come.codes):
        assert said.pongs[-1] == come.pings[-1]
    assert shell.session.closing == come.closed
    assert sum(inner.lost for _, inner in shell.built.made) == bool(come.codes and shell.built.made)
    return sure


@settings(max_examples=examples(300), deadline=None)
@given(STREAMS, st.sampled_from(["v12.stomp", "v12.stomp", "amqp"]), st.data())
def test_a_stream_comes_to_the_same_however_it_comes(
    stream: list[bytes], subprotocol: str, data: st.DataObject
) -> None:
    whole = b"".join(stream)
    binary_only = subprotocol == "amqp"
    come = read(whole, bytes_max=BYTES_MAX, frames_max=FRAMES_MAX, binary_only=binary_only)
    if come.unsure or come.early:
        return
    shell = Shell(subprotocol, lambda: False)
    at_once = judge(shell, shell.say([whole], lambda _: None), come)

    cuts = data.draw(st.one_of(st.just(range(1, len(whole))), st.sets(st.integers(0, len(whole)))))
    ends = [0, *sorted(cuts), len(whole)]
    pieces = [whole[at:end] for at, end in itertools.pairwise(ends)]
    chance = data.draw(st.randoms(use_true_random=False))

    def disturb(shell: Shell) -> None:
        match chance.randrange(6):
            case 0:
                shell.session.write_room = False
            case 1:
                shell.session.write_room = False
                shell.session.choked = True
            case 2 if shell.built.made:
                shell.built.inner.paused_reading = True

    shell = Shell(subprotocol, lambda: chance.random() < 0.5)
    assert judge(shell, shell.say(pieces, disturb), come) == at_once
