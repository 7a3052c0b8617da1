"""Who speaks something else: named, and told the truth in bytes that hold together."""

from __future__ import annotations

import http.client
import io

import pytest

from protocols.amqp.headers import not_spoken
from protocols.transport.sniff import sniff
from protocols.transport.strangers import decline

REQUEST = b"GET /stomp HTTP/1.1\r\nHost: x\r\n"
UPGRADE = b"Connection: keep-alive, Upgrade\r\nUPGRADE:  WebSocket\r\nSec-WebSocket-Version: 13\r\n"


class Answered(io.BytesIO):
    """What `http.client` takes for a socket."""

    def makefile(self, *_: object) -> io.BytesIO:
        return self


def answer(data: bytes) -> tuple[int, str]:
    """Return status and text of what a request is answered with, as an HTTP client reads it."""
    found = decline(sniff(data).value, data)
    assert found is not None
    response = http.client.HTTPResponse(Answered(found.answer))
    response.begin()
    length = int(response.headers["Content-Length"])
    text = response.read()
    assert len(text) == length
    assert found.answer.endswith(text)
    return response.status, text.decode()


def test_a_websocket_handshake_is_told_that_there_is_none() -> None:
    status, text = answer(REQUEST + UPGRADE + b"\r\n")
    assert status == 501
    assert "WebSocket is not spoken at this port" in text


@pytest.mark.parametrize("verb", [b"GET", b"POST", b"HEAD", b"OPTIONS"])
def test_other_http_is_told_where_http_is(verb: bytes) -> None:
    status, text = answer(verb + REQUEST[3:] + b"Upgrade: h2c\r\n\r\nwebsocket")
    assert status == 400
    assert "management.endpoint" in text
    assert "WebSocket" not in text


def test_what_a_request_wants_is_known_at_the_end_of_its_head() -> None:
    data = REQUEST + UPGRADE + b"\r\n"
    for end in range(4, len(data)):
        assert decline("HTTP", data[:end]) is None
    assert decline("HTTP", data) is not None
    endless = decline("HTTP", REQUEST + b"X: " + b"x" * 9000)
    assert endless is not None
    assert endless.name == "HTTP"


def test_the_rest_is_named_and_gets_an_alert_or_nothing() -> None:
    assert decline("TLS", b"\x16\x03\x01") == ("TLS", b"\x15\x03\x01\x00\x02\x02\x28")
    assert decline("unknown", b"\x00") == ("unknown", b"")
    assert decline("AMQP", b"AMQP") == ("AMQP", b"")


@pytest.mark.parametrize(
    ("header", "name"),
    [
        (b"AMQP\x00\x00\x09\x01", "AMQP 0-9-1"),
        (b"AMQP\x01\x01\x00\x09", "AMQP 0-9"),
        (b"AMQP\x01\x01\x08\x00", "AMQP 0-8"),
        (b"AMQP\x01\x01\x00\x0a", "AMQP 0-10"),
        (b"AMQP\x00\x02\x00\x00", "AMQP 2.0.0 with protocol id 0"),
    ],
)
def test_other_versions_of_amqp_are_named(header: bytes, name: str) -> None:
    assert not_spoken(header) == f"{name} is not spoken here; AMQP 1.0 is"
