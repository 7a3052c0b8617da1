"""The session around another one: what is inside, its life, its pressure, and every end."""

from __future__ import annotations

import struct

import pytest

from gateway.model.errors import Code, Refusal
from gateway.model.peers import Cause
from protocols.transport.speaking import PeerFacts
from protocols.websocket.limits import HELD_BYTES_MAX, WebSocketLimits
from protocols.websocket.plain import AT_ONCE
from tests.protocols.websocket.client import (
    BINARY,
    PING,
    PONG,
    TEXT,
    BytesMessage,
    Client,
    CloseConnection,
    Ping,
    Pong,
    TextMessage,
    close,
    frame,
)
from tests.protocols.websocket.inner import Built

STOMP = b"CONNECT\n\n\x00"
AMQP = b"AMQP\x00\x01\x00\x00"


class TestInside:
    @pytest.mark.parametrize(
        ("offered", "name"), [("v10.stomp", "STOMP"), ("amqp", "AMQP"), ("AMQPWSB10", "AMQP")]
    )
    def test_the_subprotocol_tells(self, offered: str, name: str) -> None:
        client = Client(protocol=offered)
        client.say(frame(BINARY, b"\x00"))
        assert [made for made, _ in client.built.made] == [name]

    @pytest.mark.parametrize(("first", "name"), [(STOMP, "STOMP"), (AMQP, "AMQP")])
    def test_without_one_the_first_bytes_do(self, first: bytes, name: str) -> None:
        client = Client(protocol=None)
        for at in range(len(first)):
            client.say(frame(BINARY, first[at : at + 1]))
        assert [made for made, _ in client.built.made] == [name]
        assert client.built.inner.came == first

    @pytest.mark.parametrize("deflate", [False, True])
    def test_output_goes_in_the_pieces_that_it_says(self, *, deflate: bool) -> None:
        client = Client(Built(limits=WebSocketLimits(deflate=deflate)), protocol="v12.stomp")
        client.say(frame(TEXT, STOMP))
        inner = client.built.inner
        inner.out = b"one" + b"\xff\0two" + b"x" * 200_000
        inner.ends = [3, 8]
        assert client.read(client.turn()) == [
            TextMessage(data="one"),
            BytesMessage(data=b"\xff\0two"),
            TextMessage(data="x" * 200_000),
        ]
        assert inner.most == 65_536, "what may be cut anywhere is cut for clients on Netty"

    def test_output_goes_whole_where_it_says_nothing(self) -> None:
        client = Client(protocol="v12.stomp")
        client.say(frame(TEXT, STOMP))
        client.built.inner.out = b"x" * 200_000
        (message,) = client.read(client.turn())
        assert message == TextMessage(data="x" * 200_000)

    def test_first_bytes_of_nothing_that_is_spoken(self) -> None:
        for spoken, first in (("STOMP", AMQP), ("AMQP", STOMP), ("STOMP", b"\x00noise")):
            client = Client(Built(spoken=(spoken,)), protocol=None)
            client.say(frame(BINARY, first))
            ((code, reason),) = client.ends()
            assert code == 1003
            assert reason.endswith(f"spoken here: {spoken}.")
            assert client.built.made == []

    @pytest.mark.parametrize("protocol", ["amqp", None])
    def test_amqp_is_not_text(self, protocol: str | None) -> None:
        client = Client(protocol=protocol)
        client.say(frame(TEXT, AMQP))
        assert client.ends() == [(1003, "AMQP is sent in binary messages, not in text.")]
        client = Client(protocol=protocol)
        client.say(frame(BINARY, AMQP) + frame(TEXT, AMQP))
        assert [code for code, _ in client.ends()] == [1003]

    def test_whoever_says_nothing_is_told_so(self) -> None:
        client = Client()
        assert client.tick(9.0) == []
        client.tick(1.5)
        ((code, reason),) = client.ends()
        assert (code, reason) == (1008, "Nothing that tells a protocol came for 10 s.")
        client.tick(2.5)
        assert client.session.closing
        assert client.session.seen.ending is not None
        assert client.session.seen.ending.cause is Cause.TIMED_OUT


class TestLife:
    def test_the_last_ping_is_answered(self) -> None:
        client = Client()
        came = client.say(frame(PING, b"1") + frame(PING, b"2"))
        assert came == [Pong(payload=b"2")]

    def test_a_silent_peer_is_asked_and_its_answer_is_life(self) -> None:
        client = Client()
        client.say(frame(TEXT, STOMP))
        client.tick(19.0)
        assert client.session.tick(client.now) == 120.0
        came = client.tick(1.0)
        assert came == [Ping(payload=b"")]
        assert client.tick(1.0) == []
        client.say(frame(PONG))
        assert client.built.inner.times == [100.0, 121.0]
        assert client.built.inner.came == STOMP
        client.say(frame(TEXT, b"x")[:3])
        assert client.built.inner.times == [100.0, 121.0, 121.0], "half a frame is life too"
        assert client.session.tick(client.now) == 141.0

    @pytest.mark.parametrize("seconds", [0.0, 3.0])
    def test_it_is_asked_as_often_as_is_written(self, seconds: float) -> None:
        client = Client(Built(limits=WebSocketLimits(ping_seconds=seconds)))
        client.say(frame(TEXT, STOMP))
        came = client.tick(3.0)
        assert came == ([Ping(payload=b"")] if seconds else [])
        assert client.session.tick(client.now) == (106.0 if seconds else None)

    def test_a_peer_that_does_not_read_is_not_asked(self) -> None:
        client = Client()
        client.say(frame(TEXT, STOMP))
        client.session.write_room = False
        assert client.tick(25.0) == []
        assert client.session.tick(client.now) == 145.0

    def test_what_is_inside_has_deadlines_too(self) -> None:
        client = Client()
        client.say(frame(TEXT, STOMP))
        client.built.inner.deadline = 105.0
        assert client.session.tick(100.0) == 105.0


class TestEnds:
    def test_what_is_inside_ends_with_its_last_bytes_a_close_and_the_socket(self) -> None:
        client = Client()
        came = client.say(frame(TEXT, b"bye"))
        assert [type(one) for one in came] == [TextMessage, CloseConnection]
        assert client.ends() == [(1000, "client-closed")]
        assert not client.session.closing, "the peer's own Close is waited for"
        client.raw(frame(TEXT, b"late") + close(1000))
        assert client.session.closing
        assert client.built.inner.came == b"bye"
        assert client.session.seen.ending is client.built.inner.seen.ending

    @pytest.mark.parametrize(
        ("cause", "code"),
        [
            (Cause.STOPPING, 1001),
            (Cause.PROTOCOL_ERROR, 1002),
            (Cause.LOGIN_REFUSED, 1008),
            (Cause.TIMED_OUT, 1008),
            (Cause.STORE_FAILED, 1011),
            (Cause.FULL, 1013),
        ],
    )
    def test_the_code_says_why(self, cause: Cause, code: int) -> None:
        client = Client()
        client.say(frame(TEXT, STOMP))
        client.built.inner.end(cause)
        client.read(client.turn())
        assert client.ends() == [(code, cause.value)]

    @pytest.mark.parametrize(
        ("cause", "code", "seconds", "said"),
        [
            (Cause.REFUSED, Code.DISK_FULL, 5, (1013, "disk-full, retry-after 5")),
            (Cause.REFUSED, Code.TOO_LARGE, None, (1008, "too-large")),
            (Cause.LOGIN_REFUSED, Code.TOO_MANY, 12, (1013, "login-refused, retry-after 12")),
            (Cause.LOGIN_REFUSED, Code.NOT_AUTHORIZED, None, (1008, "login-refused")),
            (Cause.STOPPING, Code.SHUTTING_DOWN, 5, (1001, "gateway-stopping, retry-after 5")),
            (Cause.SLOW_CONSUMER, Code.SLOW_CONSUMER, None, (1008, "slow-consumer")),
        ],
    )
    def test_a_refusal_is_named_with_the_time_to_wait(
        self, cause: Cause, code: Code, seconds: int | None, said: tuple[int, str]
    ) -> None:
        client = Client()
        client.say(frame(TEXT, STOMP))
        client.built.inner.end(cause, code=code, retry_after=seconds)
        client.read(client.turn())
        assert client.ends() == [said]

    @pytest.mark.parametrize("code", [1000, 1001, 3000, 4999, None])
    def test_the_peer_says_close_and_is_answered(self, code: int | None) -> None:
        client = Client()
        client.say(frame(TEXT, STOMP))
        out = client.raw(close(code))
        assert out == (b"\x88\x00" if code is None else struct.pack("!BBH", 0x88, 2, code))
        assert client.session.closing
        assert client.built.inner.lost == 1
        ending = client.session.seen.ending
        assert ending is not None
        assert ending.cause is Cause.CLIENT
        assert str(code or "without a code") in ending.text
        client.session.connection_lost(client.now)
        client.raw(frame(TEXT, b"behind the end"))
        assert client.built.inner.came == STOMP

    def test_what_was_said_before_the_peers_close_is_answered_first(self) -> None:
        client = Client()
        came = client.say(frame(TEXT, STOMP) + close(1000))
        assert [type(one) for one in came] == [TextMessage, CloseConnection]

    def test_a_stop(self) -> None:
        client = Client()
        client.say(frame(TEXT, STOMP))
        client.session.stop(client.now)
        client.read(client.turn())
        assert client.built.inner.stopped == 1
        assert client.ends() == [(1001, "gateway-stopping")]
        client = Client()
        client.session.stop(client.now)
        client.read(client.turn())
        said = "The gateway is shutting down; connect again later, retry-after 5"
        assert client.ends() == [(1001, said)]

    def test_a_cut(self) -> None:
        client = Client()
        client.say(frame(TEXT, STOMP))
        client.session.connection_lost(client.now)
        assert client.built.inner.lost == 1
        client = Client()
        client.session.connection_lost(client.now)
        assert client.session.seen.ending is not None
        assert client.session.seen.ending.cause is Cause.CUT


class TestPressure:
    def test_what_the_shell_sets_is_set_inside(self) -> None:
        client = Client()
        client.session.write_room = False
        client.session.choked = True
        woken: list[bool] = []
        client.session.wake = lambda: woken.append(True)
        assert (client.session.write_room, client.session.choked) == (False, True)
        client = Client()
        client.say(frame(TEXT, STOMP))
        inner = client.built.inner
        client.session.write_room = False
        client.session.choked = True
        assert (inner.write_room, inner.choked) == (False, True)
        client.session.write_resumed()
        assert (inner.resumed, client.session.choked) == (1, False)
        inner.retick = True
        assert client.session.retick
        client.session.retick = False
        assert not inner.retick

    def test_what_was_set_before_is_there_from_the_beginning(self) -> None:
        built = Built()
        built.session.write_room = False
        built.session.choked = True
        built.session.write_resumed()
        client = Client(built)
        client.session.choked = True
        client.say(frame(TEXT, STOMP))
        assert (client.built.inner.write_room, client.built.inner.choked) == (False, True)

    def test_reading_pauses_and_waits_as_what_is_inside_does(self) -> None:
        client = Client()
        assert not client.session.paused_reading
        client.say(frame(TEXT, STOMP))
        inner = client.built.inner
        inner.paused_reading = True
        assert client.session.paused_reading, "a login is not listened to while it is checked"
        inner.seen.on_login()
        assert not client.session.paused_reading
        client.say(frame(BINARY, b"m" * HELD_BYTES_MAX))
        assert client.session.paused_reading
        inner.end(Cause.REFUSED)
        client.turn()
        assert not client.session.paused_reading, "a Close is to be heard"
        assert not client.session.behind

    def test_while_what_is_inside_is_held_up_pings_and_a_close_are_heard(self) -> None:
        client = Client()
        client.say(frame(TEXT, STOMP))
        inner = client.built.inner
        inner.seen.on_login()
        inner.paused_reading = True
        for number in range(3):
            (came, pong) = client.say(frame(TEXT, b"\n") + frame(PING, b"%d" % number))
            assert isinstance(came, Pong)
            assert came.payload == b"%d" % number
            assert isinstance(pong, TextMessage)
        assert not client.session.paused_reading
        assert client.tick(25.0)[-1] == Ping(payload=b""), "and it is asked as ever"
        came = client.say(close(1001))
        assert [type(one) for one in came] == [CloseConnection]
        assert inner.lost == 1

    def test_what_comes_while_it_is_held_up_is_little_each_time(self) -> None:
        client = Client()
        client.say(frame(TEXT, STOMP))
        inner = client.built.inner
        inner.seen.on_login()
        for _ in range(2):
            inner.paused_reading = True
            client.say(frame(TEXT, b"m" * (HELD_BYTES_MAX - 1)))
            assert not client.session.paused_reading
            client.say(frame(TEXT, b"m"))
            assert client.session.paused_reading
            inner.paused_reading = False
            assert not client.session.paused_reading
            client.say(frame(TEXT, b"\n"))

    def test_frames_wait_for_another_turn_when_this_one_is_over(self) -> None:
        client = Client(hurried=True)
        zeros, ones = b"0\n" * AT_ONCE, b"1\n" * AT_ONCE
        said = frame(TEXT, b"0\n") * AT_ONCE + frame(TEXT, b"1\n") * AT_ONCE + frame(TEXT, b"2\n")
        client.session.receive_data(said, 100.0)
        inner = client.built.inner
        assert inner.came == zeros
        assert client.session.behind
        inner.behind = True
        client.session.go_on(100.0)
        assert inner.came == zeros + ones, "first what is inside goes on, then there is more of it"
        client.turn()
        assert inner.came == zeros + ones + b"2\n"

    def test_a_turn_of_one_that_has_ended(self) -> None:
        client = Client()
        client.say(frame(TEXT, STOMP) + close())
        client.session.go_on(client.now)
        assert client.built.inner.came == STOMP


class TestPeer:
    def test_before_anything_is_inside(self) -> None:
        client = Client()
        seen = client.session.seen
        assert (seen.state().protocol, seen.sessions(), seen.consumers()) == ("WebSocket", [], [])
        assert list(seen.addresses()) == []
        assert not seen.end_consumer(1, Refusal(code=Code.OPERATOR, text="enough"))
        seen.dismiss(Refusal(code=Code.OPERATOR, text="enough"))
        client.read(client.turn())
        assert client.ends() == [(1008, "enough")]
        assert seen.ending is not None
        assert seen.ending.cause is Cause.OPERATOR

    def test_before_the_request_is_whole(self) -> None:
        session = Built().session
        session.seen.dismiss(Refusal(code=Code.OPERATOR, text="enough"))
        answer = session.data_to_send()
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After" not in answer, "an operator's word is no matter of time"

    def test_a_request_that_a_stop_meets_is_told_when_to_come_again(self) -> None:
        session = Built().session
        session.stop(100.0)
        head, _, body = session.data_to_send().partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b"\r\nRetry-After: 5\r\n" in head
        assert body == b"The gateway is shutting down; connect again later.\n"

    def test_what_is_inside_is_seen(self) -> None:
        client = Client()
        said: list[str] = []
        client.session.seen.on_login = lambda: said.append("in")
        client.say(frame(TEXT, STOMP))
        inner, seen = client.built.inner, client.session.seen
        inner.seen.on_login()
        assert said == ["in"]
        assert seen.state().protocol == "STOMP"
        assert (seen.sessions(), seen.consumers()) == (["session"], ["consumer"])
        assert list(seen.addresses()) == ["a"]
        refusal = Refusal(code=Code.OPERATOR, text="enough")
        assert seen.end_consumer(1, refusal)
        seen.dismiss(refusal)
        assert inner.seen.dismissed == [refusal]


def test_facts_go_inside() -> None:
    facts = PeerFacts(address="192.0.2.9", loopback=False, tls=True, name="c9")
    assert Client(Built(facts=facts)).built.session is not None
