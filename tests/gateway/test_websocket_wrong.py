"""Bad input over WebSocket at a real gateway: each ends its own connection, and nobody else's.

All of it is there at the same time, over TCP and over TLS, at a port for messages and at that of
management, while an honest client sends to itself.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection

from tests.gateway.hostile import GROWTH_MAX, Exposed, resident
from tests.gateway.stomp_peer import StompPeer
from tests.gateway.websocket_peer import WebSocketClient
from tests.interop.support import queue, wait_until
from tests.protocols.websocket.bad_input import (
    CONNECT,
    FRAMES,
    NOT_AT_THE_DOOR,
    REQUESTS,
    Bad,
    asked,
)
from tests.protocols.websocket.client import BINARY, TEXT, close, frame
from tests.protocols.websocket.test_deflate import BOMB, MANY
from tests.secure import CutError, Peer, connected

pytestmark = pytest.mark.timeout(180)

STEP = 65_536
OFFER = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"
#: Behind a handshake that has agreed on compression.
PRESSED = {
    "a bomb": Bad(frame(BINARY, BOMB, reserved=4), 1009, "larger than 1048576 bytes"),
    "a bomb in parts": Bad(
        frame(BINARY, BOMB[:99], reserved=4, fin=False) + frame(0, BOMB[99:]), 1009, "larger than"
    ),
    "damaged": Bad(frame(BINARY, b"\xff" * 99, reserved=4), 1002, "cannot be inflated"),
    # 30 MiB of heart-beats, which nobody forbids.
    "line ends in masses": Bad(frame(BINARY, MANY, reserved=4) * 30 + close(1000), 1000, ""),
    "an error, and more bombs": Bad(
        frame(TEXT, b"HELLO\n\n\0") + frame(BINARY, BOMB, reserved=4) * 20, 1002, ""
    ),
}


@pytest.fixture(scope="module", params=["tcp", "tls"])
def exposed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Exposed]:
    folder: Path = tmp_path_factory.mktemp(request.param)
    made = Exposed(folder, request.param, "acceptors.all.ws-compression=deflate")
    with made.gateway:
        yield made


class Honest:
    """A client that gets each message that it sends."""

    def __init__(self, exposed: Exposed, port: int) -> None:
        self.client = WebSocketClient(port, "/stomp", context=exposed.context)
        self.client.say(CONNECT.decode())
        self.client.say(f"SUBSCRIBE\nid:s\ndestination:honest.{port}\nreceipt:s\n\n\0")
        self.client.until(b"receipt-id:s\n")
        self._where = f"honest.{port}"
        self._count = 0

    def goes_on(self) -> None:
        self._count += 1
        told = f"{self._where} {self._count}"
        self.client.say(f"SEND\ndestination:{self._where}\n\n{told}\0")
        self.client.until(told.encode())


def poured(peer: Peer, data: bytes) -> None:
    """Send it all, as far as it is taken."""
    with contextlib.suppress(OSError):
        for at in range(0, len(data), STEP):
            peer.sendall(data[at : at + STEP])


def answer_of(peer: Peer) -> bytes:
    """Return all that is said up to the end; a cut behind it does not matter."""
    came = b""
    with contextlib.suppress(ConnectionError, CutError):
        while part := peer.recv():
            came += part
    return came


def close_of(answer: bytes) -> tuple[int, str]:
    """Return code and reason of the Close behind a handshake."""
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 "), answer[:200]
    wsproto = Connection(ConnectionType.CLIENT)
    wsproto.receive_data(rest)
    for event in wsproto.events():
        if isinstance(event, CloseConnection):
            return int(event.code), event.reason or ""
    raise AssertionError(f"no Close in {rest[-200:]!r}")


def play(exposed: Exposed, port: int, data: dict[str, bytes]) -> dict[str, bytes]:
    """Send each on a connection of its own, all open at once; returns the answers."""
    honest = Honest(exposed, port)
    answers = {}
    with contextlib.ExitStack() as stack:
        peers = {}
        for name, one in data.items():
            peers[name] = stack.enter_context(connected(port, exposed.context))
            poured(peers[name], one)
            honest.goes_on()
        for name, peer in peers.items():
            answers[name] = answer_of(peer)
            honest.goes_on()
    assert honest.client.close() == 1000
    return answers


@pytest.mark.parametrize("listener", ["messages", "management"])
def test_requests(exposed: Exposed, listener: str) -> None:
    gateway = exposed.gateway
    at_door = listener == "management"
    port = gateway.management_port if at_door else gateway.port
    bad = {n: one for n, one in REQUESTS.items() if not (at_door and n in NOT_AT_THE_DOOR)}
    before = resident(gateway)
    answers = play(exposed, port, {name: one.data for name, one in bad.items()})
    for name, (_, status, words) in bad.items():
        answer = answers[name].decode("latin-1")
        assert answer.startswith(f"HTTP/1.1 {status} "), (name, answer)
        assert words in answer, (name, answer)
    assert resident(gateway) - before < GROWTH_MAX


@pytest.mark.parametrize("listener", ["messages", "management"])
def test_frames(exposed: Exposed, listener: str) -> None:
    gateway = exposed.gateway
    port = gateway.management_port if listener == "management" else gateway.port
    hello = asked() + frame(TEXT, CONNECT)
    before = resident(gateway)
    answers = play(exposed, port, {name: hello + one.data for name, one in FRAMES.items()})
    for name, (_, code, words) in FRAMES.items():
        found, reason = close_of(answers[name])
        assert (found, words in reason) == (code, True), (name, found, reason)
    assert resident(gateway) - before < GROWTH_MAX


def test_compressed_frames(exposed: Exposed) -> None:
    gateway = exposed.gateway
    hello = asked("/stomp", OFFER) + frame(TEXT, CONNECT)
    before = resident(gateway)
    answers = play(exposed, gateway.port, {name: hello + one.data for name, one in PRESSED.items()})
    for name, (_, code, words) in PRESSED.items():
        found, reason = close_of(answers[name])
        assert (found, words in reason) == (code, True), (name, found, reason)
    assert resident(gateway) - before < GROWTH_MAX


@pytest.mark.parametrize("name", ["opcode 3", "a large message", "close 1001"])
def test_who_reads_nothing_and_breaks_a_rule_is_gone_soon(exposed: Exposed, name: str) -> None:
    """Its Close finds no room; what it was sent goes back all the same."""
    gateway, where, count = exposed.gateway, f"unread.{name.replace(' ', '-')}", 800
    peer = StompPeer(gateway.port, context=exposed.context)
    for number in range(count):
        peer.send(where, b"b" * 10_240, "all" if number == count - 1 else "")
    assert peer.read()[1]["receipt-id"] == "all"
    peer.close()
    subscribe = f"SUBSCRIBE\nid:s\ndestination:{where}\nack:client\nconsumer-window-size:-1\n\n\0"
    wrong = close(1001) if name == "close 1001" else FRAMES[name].data
    with connected(gateway.port, exposed.context) as rude:
        rude.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        poured(rude, asked() + frame(TEXT, CONNECT) + frame(TEXT, subscribe.encode()))
        wait_until(lambda: int(queue(gateway, where)["deliveringCount"]) > 0)
        poured(rude, wrong)
        wait_until(lambda: queue(gateway, where)["deliveringCount"] == 0, 20)
        port = rude.socket.getsockname()[1]
        listed = f"/api/v1/connections?remote=127.0.0.1:{port}"
        wait_until(lambda: gateway.request("GET", listed)[1]["items"] == [], 20)
        assert queue(gateway, where)["messageCount"] == count


def test_requests_that_drip(exposed: Exposed) -> None:
    gateway = exposed.gateway
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(connected(gateway.port, exposed.context)) for _ in range(30)]
        for peer in peers:
            peer.sendall(asked()[:20])
        while time.monotonic() - began < 9:
            for peer in peers:
                peer.sendall(b"x")
            time.sleep(0.5)
        for peer in peers:
            assert b"HTTP/1.1 408 " in answer_of(peer)
    assert time.monotonic() - began < 30
