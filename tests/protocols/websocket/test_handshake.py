"""The handshake: what is accepted, and what each other request is told, however it is cut."""

from __future__ import annotations

import http.client
import io
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.model.peers import Cause
from protocols.transport.speaking import PeerFacts
from protocols.websocket.limits import WebSocketLimits
from tests.lanes import examples
from tests.protocols.websocket.client import TOKEN, Client, frame, request
from tests.protocols.websocket.inner import FACTS, Built

SECURE = PeerFacts(address="192.0.2.1", loopback=False, tls=True, name="c1")


def headers_of(data: bytes) -> tuple[int, dict[str, str], str]:
    """Return status, headers and body, as an HTTP client reads them."""

    class Answered(io.BytesIO):
        def makefile(self, *_: object) -> io.BytesIO:
            return self

    response = http.client.HTTPResponse(Answered(data))  # type: ignore[arg-type]
    response.begin()
    return (
        response.status,
        {k.lower(): v for k, v in response.getheaders()},
        response.read().decode(),
    )


def ask(data: bytes, built: Built | None = None) -> tuple[int, dict[str, str], str]:
    session = (built or Built()).session
    session.receive_data(data, 1.0)
    answer = session.data_to_send()
    status, headers, text = headers_of(answer)
    if status == 101:
        assert not session.closing
        return status, headers, ""
    # Where more may come, it is read for a while before the socket goes.
    session.tick(1.0)
    session.tick(3.1)
    assert session.closing
    assert headers["connection"] == "close"
    ending = session.seen.ending
    assert ending is not None
    assert ending.text == f"{status}: {text.partition(chr(10))[0]}"
    return status, headers, text


@pytest.mark.parametrize("path", ["/", "/ws", "/stomp", "/amqp", "/$servicebus/websocket"])
@pytest.mark.parametrize("query", ["", "?a=b"])
def test_paths_of_other_brokers_are_served(path: str, query: str) -> None:
    status, headers, _ = ask(request(path + query))
    assert status == 101
    assert headers["sec-websocket-accept"] == TOKEN
    assert headers["upgrade"] == "websocket"
    assert "sec-websocket-protocol" not in headers
    assert ask(request("/%24servicebus/websocket"))[0] == 101


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ("v12.stomp, v11.stomp, v10.stomp", "v12.stomp"),
        ("v10.stomp,v11.stomp", "v11.stomp"),
        ("v10.stomp", "v10.stomp"),
        ("binary, AMQPWSB10, amqp", "amqp"),
        ("binary, AMQPWSB10", "AMQPWSB10"),
    ],
)
def test_a_subprotocol_is_chosen(offered: str, chosen: str) -> None:
    status, headers, _ = ask(request(Sec_WebSocket_Protocol=offered))
    assert (status, headers["sec-websocket-protocol"]) == (101, chosen)


def test_subprotocols_that_nobody_speaks_are_refused_with_those_that_are() -> None:
    status, _, text = ask(request(Sec_WebSocket_Protocol="mqtt"))
    assert status == 400
    assert "amqp, AMQPWSB10, v12.stomp, v11.stomp, v10.stomp" in text
    status, _, text = ask(request(Sec_WebSocket_Protocol="amqp"), Built(spoken=("STOMP",)))
    assert status == 400
    assert "these are: v12.stomp, v11.stomp, v10.stomp." in text


REFUSED = {
    "path": (request("/other"), 404, "/ws /stomp /amqp"),
    "sockjs info": (request("/ws/info"), 404, "SockJS is not spoken here"),
    "sockjs": (request("/stomp/123/abc/websocket"), 404, "SockJS is not spoken here"),
    "sockjs poll": (request("/ws/1/a/xhr", method="POST"), 404, "SockJS"),
    "sockjs frame": (request("/ws/iframe.html", Upgrade=None), 404, "SockJS"),
    "http/1.0": (request(version="1.0"), 505, "HTTP/1.0 has no WebSocket here"),
    "http/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "this is no proxy"),
    "method": (request(method="POST"), 405, "not with POST"),
    "a body": (request(Content_Length="5"), 400, "has no body"),
    "chunks": (request(Transfer_Encoding="chunked"), 400, "has no body"),
    "two lengths": (request(Content_Length="5, 6"), 400, "no request of HTTP/1.1"),
    "a browser": (request(Upgrade=None, Connection="keep-alive"), 426, "a port of Sluicegate"),
    "h2c": (request(Upgrade="h2c"), 426, "a port of Sluicegate"),
    "connection": (request(Connection="close"), 400, "lacks the word Upgrade"),
    "version": (request(Sec_WebSocket_Version="8"), 426, "in version 13, not 8"),
    "no version": (request(Sec_WebSocket_Version=None), 426, "in version 13, not none"),
    "no key": (request(Sec_WebSocket_Key=None), 400, "Sec-WebSocket-Key"),
    "short key": (request(Sec_WebSocket_Key="YWJj"), 400, "Sec-WebSocket-Key"),
    "no base64": (request(Sec_WebSocket_Key="x" * 23 + "!"), 400, "Sec-WebSocket-Key"),
    "latin key": (request(Sec_WebSocket_Key="\u00e9" * 24), 400, "Sec-WebSocket-Key"),
    "no host": (request(Host=None), 400, "no request of HTTP/1.1"),
    "noise": (b"\x00\x01\x02\r\n\r\n", 400, "no request of HTTP/1.1"),
    "a fold": (request(X="a\r\n b: c\x00"), 400, "no request of HTTP/1.1"),
    "long": (request(Cookie="x" * 20_000), 431, "16384 bytes"),
    "endless": (b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000, 431, "16384 bytes"),
    "many": (request(**{f"X{n}": "y" for n in range(100)}), 431, "100 headers"),
    "foreign": (request(Origin="https://evil.example"), 403, "allowed-origins"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_each_other_request_is_told_why_it_is_refused(name: str) -> None:
    data, status, words = REFUSED[name]
    found, headers, text = ask(data)
    assert (found, words in text) == (status, True), text
    assert headers["content-type"] == "text/plain; charset=utf-8"
    if status == 426:
        assert headers["sec-websocket-version"] == "13"


@settings(max_examples=examples(100))
@given(st.sampled_from(sorted(REFUSED)), st.lists(st.integers(1, 17_000), max_size=5))
def test_an_answer_does_not_hang_on_how_the_request_was_cut(name: str, cuts: list[int]) -> None:
    data, status, words = REFUSED[name]
    session = Built().session
    ends = [0, *sorted(cuts), len(data)]
    out = b""
    for start, end in itertools.pairwise(ends):
        session.receive_data(data[start:end], 1.0)
        out += session.data_to_send()
    found, _, text = headers_of(out)
    assert (found, words in text) == (status, True), text


ORIGINS: list[tuple[str | None, str, PeerFacts, dict[str, object], bool]] = [
    (None, "gate.example", FACTS, {}, True),
    ("http://localhost:3000", "localhost:5672", FACTS, {}, True),
    ("http://app.localhost", "127.0.0.1:5672", FACTS, {}, True),
    ("https://127.0.0.2", "[::1]:5672", FACTS, {}, True),
    ("http://[::1]:8", "localhost", FACTS, {}, True),
    # A page of the visitor's machine, and a gateway elsewhere.
    ("http://localhost:3000", "gate.example", FACTS, {}, False),
    ("http://127.0.0.1", "192.0.2.7", FACTS, {}, False),
    ("http://localhost", "localhost.evil.example", FACTS, {}, False),
    ("http://localhost.evil.example", "localhost", FACTS, {}, False),
    ("http://gate.example", "gate.example", FACTS, {}, True),
    ("https://Gate.example", "gate.example:443", FACTS, {}, True),
    ("http://gate.example:8080", "gate.example:5672", FACTS, {}, False),
    ("https://gate.example", "gate.example", SECURE, {}, True),
    ("http://gate.example", "gate.example", SECURE, {}, False),
    # A name that somebody else's server points here.
    ("http://evil.example", "evil.example", FACTS, {"open_to_all": True}, False),
    ("http://192.0.2.7", "192.0.2.7", FACTS, {"open_to_all": True}, True),
    ("https://good.example", "x", FACTS, {"origins": {"https://good.example"}}, True),
    ("https://good.example.evil", "x", FACTS, {"origins": {"https://good.example"}}, False),
    ("https://good.example:8443", "x", FACTS, {"origins": {"https://good.example"}}, False),
    ("null", "x", FACTS, {}, False),
    ("null", "x", FACTS, {"origins": {"*"}}, True),
    ("file://", "x", FACTS, {}, False),
    ("https://", "x", FACTS, {}, False),
    ("http://x:99999", "x", FACTS, {}, False),
    ("http://localhost@evil.example", "evil.example", FACTS, {}, False),
    ("http://localhost/path", "x", FACTS, {}, False),
    ("http://[", "x", FACTS, {}, False),
]


@pytest.mark.parametrize(("origin", "host", "facts", "limits", "let_in"), ORIGINS)
def test_pages_are_let_in_by_their_origin(
    origin: str | None, host: str, facts: PeerFacts, limits: dict[str, object], *, let_in: bool
) -> None:
    made = WebSocketLimits(**limits)  # type: ignore[arg-type]
    status, _, text = ask(request(Origin=origin, Host=host), Built(limits=made, facts=facts))
    assert status == (101 if let_in else 403)
    assert let_in or str(origin) in text


def test_two_origins_are_none() -> None:
    data = request(Origin="http://localhost").replace(b"\r\n\r\n", b"\r\nOrigin: http://x\r\n\r\n")
    assert ask(data)[0] == 400


def test_a_request_that_does_not_end_is_answered_in_time() -> None:
    session = Built().session
    assert session.tick(100.0) == 110.0
    session.receive_data(b"GET / HTTP/1.1\r\n", 105.0)
    assert session.tick(105.0) == 110.0
    assert session.data_to_send() == b""
    assert session.tick(110.0) is None
    assert session.data_to_send().startswith(b"HTTP/1.1 408 ")
    assert session.closing
    assert session.seen.ending is not None
    assert session.seen.ending.cause is Cause.TIMED_OUT
    assert session.tick(111.0) is None
    session.receive_data(b"\r\n\r\n", 111.0)
    assert session.data_to_send() == b""


def test_what_comes_behind_the_request_are_frames() -> None:
    client = Client()
    assert client.answer.startswith(b"HTTP/1.1 101 ")
    built = Built()
    built.session.receive_data(request() + frame(1, b"CONNECT\n\n"), 1.0)
    assert built.inner.came == b"CONNECT\n\n"


def test_a_stop_and_a_loss_before_the_end_of_the_request() -> None:
    session = Built().session
    session.stop(1.0)
    assert session.data_to_send().startswith(b"HTTP/1.1 503 ")
    assert session.closing
    session.stop(2.0)
    session = Built().session
    session.connection_lost(1.0)
    assert session.seen.ending is not None
    assert session.seen.ending.cause is Cause.CUT
