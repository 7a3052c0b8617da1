"""Endpoint strings: who can reach them, and which are none."""

from __future__ import annotations

import pytest

from gateway.config.endpoints import read_endpoint


@pytest.mark.parametrize(
    ("text", "loopback", "tls", "shown"),
    [
        ("tcp:5672:interface=127.0.0.1", True, False, "127.0.0.1:5672"),
        ("tcp:port=5672:interface=127.0.0.9", True, False, "127.0.0.9:5672"),
        ("tcp:5672", False, False, "*:5672"),
        ("tcp:5672:interface=0.0.0.0", False, False, "0.0.0.0:5672"),
        ("tcp:5672:interface=localhost", True, False, "localhost:5672"),
        (r"tcp6:5672:interface=\:\:1", True, False, "[::1]:5672"),
        ("tcp6:5672", False, False, "[::]:5672"),
        ("ssl:5671:privateKey=k.pem:certKey=c.pem", False, True, "*:5671"),
        ("tls:/etc/certs:port=5671:interface=10.0.0.1", False, True, "10.0.0.1:5671"),
        ("unix:/run/x.sock", True, False, "unix:/run/x.sock"),
        ("unix:address=/run/x.sock:mode=660", True, False, "unix:/run/x.sock"),
        ("systemd:domain=INET:name=amqp", False, False, "systemd:domain=INET:name=amqp"),
        ("systemd:domain=UNIX:name=amqp", True, False, "systemd:domain=UNIX:name=amqp"),
        ("haproxy:tcp:5672:interface=127.0.0.1", False, False, "127.0.0.1:5672"),
    ],
)
def test_what_an_endpoint_says(text: str, loopback: bool, tls: bool, shown: str) -> None:
    endpoint = read_endpoint(text)
    assert (endpoint.text, endpoint.loopback, endpoint.tls, endpoint.shown) == (
        text,
        loopback,
        tls,
        shown,
    )


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "needs an endpoint"),
        (5672, "needs an endpoint"),
        ("5672", "no endpoint"),
        ("tcp", "the port"),
        ("tcp:", "the port"),
        ("tcp:amqp", "the port"),
        ("tcp:65536", "65535"),
        ("tcp:-1", "the port"),
        ("udp:5672", "unknown kind"),
        ("unix:", "names no path"),
        ("haproxy:udp:1", "unknown kind"),
    ],
)
def test_what_is_no_endpoint(text: object, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        read_endpoint(text)
