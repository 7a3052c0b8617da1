"""The bench over WebSocket: frames judged by wsproto, and rows against the real gateway."""

from __future__ import annotations

import json
import os
import socket
import threading
from typing import Any

import pytest
from click.testing import CliRunner
from stomp import utils
from wsproto import ConnectionType, WSConnection
from wsproto.connection import Connection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Message,
    Ping,
    Pong,
    RejectConnection,
    Request,
    TextMessage,
)

from gateway.bench import stomp, tabs
from gateway.bench.amqp import PeerError
from gateway.bench.command import bench
from gateway.bench.cpu import resident_bytes
from gateway.bench.run import BenchError
from gateway.bench.shapes import mixed
from gateway.bench.websocket import BINARY, WebSocket, framed
from gateway.trial.scratch import free_ports


def heard(data: bytes) -> list[Message[Any]]:
    """Return the messages that a server takes bytes for."""
    server = Connection(ConnectionType.SERVER)
    server.receive_data(data)
    return [one for one in server.events() if isinstance(one, Message)]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536])
def test_a_message_is_a_masked_frame(size: int) -> None:
    payload = bytes(range(256)) * (size // 256 + 1)
    data, start = framed(payload[:size], BINARY)
    assert len(data) - start == size
    (said,) = heard(data)
    assert isinstance(said, BytesMessage)
    assert bytes(said.data) == payload[:size]


def test_each_stomp_frame_is_a_message_with_its_receipt_and_its_stamp() -> None:
    frames = stomp.Frames("q", mixed(), receipts=True, expires=5, websocket=True)
    data = b""
    for first in (0, 7):
        view, count = frames.take(first, 7, b"%016x" % 0xABC)
        assert count == 7
        data += bytes(view)
    messages = heard(data)
    assert all(isinstance(one, TextMessage) for one in messages)
    plain = [utils.parse_frame(one.data.rstrip("\0").encode()) for one in messages]
    assert [int(one.headers["receipt"]) for one in plain] == list(range(14))
    assert {one.body[-16:] for one in plain} == {b"%016x" % 0xABC}


class Server:
    """The other end of a WebSocket of the bench, by wsproto, on a pair of sockets."""

    def __init__(self) -> None:
        self.near, self.far = socket.socketpair()
        self.wsproto = WSConnection(ConnectionType.SERVER)

    def shake(self, answer: Any) -> WebSocket:
        """Return the client's side once its handshake was answered."""
        thread = threading.Thread(target=self._answer, args=(answer,))
        thread.start()
        try:
            return WebSocket(self.far, None, "localhost", "stomp")
        finally:
            thread.join()

    def _answer(self, answer: Any) -> None:
        self.wsproto.receive_data(self.near.recv(4096))
        (request,) = self.wsproto.events()
        assert isinstance(request, Request)
        assert (request.target, request.subprotocols) == ("/stomp", ["v12.stomp"])
        self.say(answer)

    def say(self, event: Any) -> None:
        self.near.sendall(self.wsproto.send(event))

    def hear(self) -> list[Any]:
        self.wsproto.receive_data(self.near.recv(1 << 20))
        return list(self.wsproto.events())


def test_what_is_said_arrives_both_ways_and_a_ping_is_answered() -> None:
    server = Server()
    tab = server.shake(AcceptConnection(subprotocol="v12.stomp"))
    tab.sendall(b"frame")
    assert [one.data for one in server.hear()] == ["frame"]
    server.say(Ping(payload=b"well?"))
    server.say(TextMessage(data="x" * 70_000))
    came = b""
    while len(came) < 70_000:
        came += tab.recv() or b""
    assert came == b"x" * 70_000
    assert [bytes(one.payload) for one in server.hear() if isinstance(one, Pong)] == [b"well?"]
    server.say(CloseConnection(code=1013, reason="later"))
    with pytest.raises(PeerError, match="later"):
        tab.recv()


def test_a_refused_handshake_is_told() -> None:
    with pytest.raises(PeerError, match="403"):
        Server().shake(RejectConnection(status_code=403))


@pytest.mark.slow
def test_every_kind_of_row_is_measured_over_websocket_beside_plain_tcp() -> None:
    rows = "amqp-in,amqp-out,amqp-both,stomp-in,stomp-out,stomp-both-durable,stomp-fan-1000"
    arguments = ["--ws", "--rows", rows, "--scale", "0.01", "--json"]
    result = CliRunner().invoke(bench, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)["rows"]
    assert [one["key"] for one in found] == rows.split(",")
    for one in found:
        for side in (one["median"], one["peer"]["median"]):
            assert side["rate"] > 0
            assert side["cpu"] is not None


@pytest.mark.slow
def test_rows_are_measured_over_websocket_within_tls() -> None:
    arguments = ["--ws", "--tls", "--rows", "amqp-both,stomp-both", "--scale", "0.01", "--json"]
    result = CliRunner().invoke(bench, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    assert all(one["ratio"] > 0 for one in json.loads(result.stdout)["rows"])


@pytest.mark.slow
def test_idle_tabs_are_weighed_and_those_beside_them_timed() -> None:
    arguments = ["--tabs", "30", "--active", "3", "--seconds", "0.5", "--json"]
    result = CliRunner().invoke(tabs.main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["tabs"] == 30
    assert found["bytesEach"] is not None
    for side in (found["alone"], found["beside"]):
        assert 3 <= side["count"] <= 3 * tabs.RATE
        assert 0 < side["p50"] <= side["p99"] <= side["worst"]


def test_a_gateway_that_refuses_a_tab_is_told() -> None:
    with pytest.raises(BenchError, match="refused"), tabs.held(free_ports(1)[0], 1):
        pass


def test_memory_of_a_process_that_is_not_there_is_not_known() -> None:
    assert resident_bytes(None) is None
    assert (resident_bytes(os.getpid()) or 0) > 1 << 20
