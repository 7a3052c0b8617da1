"""Bad input ends its connection with its own code and words, however it is cut, at little cost."""

from __future__ import annotations

import tracemalloc

import pytest
from wsproto.connection import Connection, ConnectionType

from gateway.config.tree import Acceptor
from protocols.websocket.limits import WebSocketLimits
from tests.protocols.websocket.bad_input import (
    CONNECT,
    FRAMES,
    MESSAGE_BYTES,
    REQUESTS,
    asked,
)
from tests.protocols.websocket.client import TEXT, Client, frame
from tests.protocols.websocket.inner import Built
from tests.protocols.websocket.test_handshake import headers_of

#: Bytes that come at once.
STEPS = [1, 7, 1000, 65_536, 1 << 30]
#: What is cut into single bytes by these tests.
SMALL = 4000
#: What a connection may take beside a message of the largest size, decoded and encoded.
SPARE = 6 << 20


def pour(client: Client, data: bytes, step: int) -> bytes:
    return b"".join(client.raw(data[at : at + step]) for at in range(0, len(data), step))


def steps_for(data: bytes) -> list[int]:
    return [step for step in STEPS if step >= 1000 or len(data) < SMALL]


@pytest.mark.parametrize("name", REQUESTS)
def test_requests(name: str) -> None:
    data, status, words = REQUESTS[name]
    answers = set()
    for step in steps_for(data):
        session = Built().session
        said = b""
        for at in range(0, len(data), step):
            session.receive_data(data[at : at + step], 1.0)
            said += session.data_to_send()
        found, headers, text = headers_of(said)
        assert (found, words in text) == (status, True), text
        assert headers["connection"] == "close"
        answers.add(said)
        session.tick(1.0)
        session.tick(3.5)
        assert session.closing
    assert len(answers) == 1


@pytest.mark.parametrize("name", FRAMES)
def test_frames(name: str) -> None:
    data, code, words = FRAMES[name]
    if name == "nothing of STOMP":
        pytest.skip("what is inside judges it; there is a real one in tests/gateway")
    for step in steps_for(data):
        client = Client(Built(limits=WebSocketLimits(message_bytes_max=MESSAGE_BYTES)))
        client.say(frame(TEXT, CONNECT))
        client.read(pour(client, data, step))
        ((found, reason),) = client.ends()
        assert (found, words in reason) == (code, True), reason
        assert client.built.inner.lost == 1
        client.tick(2.5)
        assert client.session.closing


def test_the_limit_of_these_tests_is_that_of_an_acceptor() -> None:
    assert Acceptor.__dataclass_fields__["stomp_max_frame_payload_length"].default == MESSAGE_BYTES


@pytest.mark.parametrize(
    "name", [n for n, bad in {**REQUESTS, **FRAMES}.items() if len(bad.data) > 100_000]
)
def test_memory_is_bounded(name: str) -> None:
    bad = (REQUESTS | FRAMES)[name]
    client = Client() if name in FRAMES else None
    session = Built().session if client is None else client.session
    if client is not None:
        client.say(frame(TEXT, CONNECT))
        inner = client.built.inner
    tracemalloc.start()
    try:
        for at in range(0, len(bad.data), 65_536):
            session.receive_data(bad.data[at : at + 65_536], 100.0)
            session.data_to_send()
            if client is not None:
                inner.came = b""
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < MESSAGE_BYTES + SPARE


def test_a_request_that_comes_byte_by_byte_is_one_as_well() -> None:
    session = Built().session
    said = b""
    data = asked("/stomp", *(f"X{n}: {'y' * 100}" for n in range(90)))
    for at in range(len(data)):
        session.receive_data(data[at : at + 1], 1.0)
        said += session.data_to_send()
    assert said.startswith(b"HTTP/1.1 101 ")
    wsproto = Connection(ConnectionType.CLIENT)
    session.receive_data(frame(TEXT, CONNECT), 1.0)
    wsproto.receive_data(session.data_to_send())
    assert [one.data for one in wsproto.events()] == [CONNECT.decode()]  # type: ignore[union-attr]


def test_pings_at_a_pace_are_answered_for_ever() -> None:
    client = Client()
    for _ in range(3000):
        client.now += 0.11
        assert client.raw(frame(9, b"x")) == b"\x8a\x01x"


def test_what_waited_while_nobody_read_is_no_flood() -> None:
    """A client that says Ping each second, and was not read from for a quarter of an hour."""
    client = Client()
    client.say(frame(TEXT, CONNECT))
    client.say(frame(9, b"") * 900)
    assert not client.ends()
