"""STOMP and AMQP over WebSocket at the management listener of a real gateway, and HTTP beside."""

from __future__ import annotations

import contextlib
import os
import signal
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.trial.scratch import ScratchGateway
from tests.certificates import Authority
from tests.gateway.test_websocket import AMQP, CONNECT, OPEN, OPENED, STOMP
from tests.gateway.websocket_peer import ClosedError, WebSocketClient
from tests.logs import wait_log, wait_records
from tests.secure import connected

pytestmark = pytest.mark.timeout(120)

LIVE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
UPGRADE = (
    b"GET /stomp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
Where = tuple[ScratchGateway, ssl.SSLContext | None]


@pytest.fixture(scope="module", params=["tcp", "tls"])
def where(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Where]:
    folder = tmp_path_factory.mktemp(request.param)
    settings = ('management.allowed-origins=["https://shop.example"]',)
    if request.param == "tcp":
        with ScratchGateway(folder, settings=settings) as running:
            yield running, None
        return
    authority = Authority(folder)
    tls = authority.issue()
    with ScratchGateway(folder, settings=settings, tls=tls, tls_management=True) as running:
        yield running, authority.client()


def test_stomp_goes_there_and_back_and_is_a_connection_as_any_other(where: Where) -> None:
    gateway, context = where
    with WebSocketClient(
        gateway.management_port, "/stomp", subprotocols=STOMP, context=context
    ) as client:
        client.say(CONNECT + "SUBSCRIBE\nid:s\ndestination:there\nreceipt:1\n\n\0")
        assert b"RECEIPT\nreceipt-id:1\n" in client.until(b"receipt-id:1\n")
        body = "x" * 200_000
        client.say(f"SEND\ndestination:there\nreceipt:2\n\n{body}\0")
        came = client.until(body.encode())
        while b"receipt-id:2\n" not in came:
            came += client.read()
        port = client.peer.socket.getsockname()[1]
        (found,) = wait_records(gateway, "login.accepted", peer=f"127.0.0.1:{port}")
        assert found["protocol"] == "STOMP 1.2"
        status, listed = gateway.request("GET", f"/api/v1/connections/{found['connection']}")
        assert (status, listed["acceptor"]) == (200, "management")
        assert (listed["tls"] is None) is (context is None)
        gateway.request("DELETE", f"/api/v1/connections/{found['connection']}")
        with pytest.raises(ClosedError, match="1008 "):
            client.until(b"no such bytes")
    wait_log(gateway, "connection.closed", found["connection"])


def test_amqp_opens(where: Where) -> None:
    gateway, context = where
    with WebSocketClient(
        gateway.management_port, "/amqp", subprotocols=("amqp",), context=context
    ) as client:
        client.say(AMQP + OPEN)
        assert client.until(OPENED).startswith(AMQP)
        assert client.close(1001) == 1001
        assert client.peer.rest() == b""


def test_a_kept_alive_connection_stays_https(where: Where) -> None:
    gateway, context = where
    with connected(gateway.management_port, context) as peer:
        peer.sendall(LIVE)
        assert b"alive" in peer.until(b"}")
        peer.sendall(UPGRADE)
        answer = peer.until(b"}")
        assert answer.startswith(b"HTTP/1.1 426 Upgrade Required\r\n")
        assert b"first request of a connection" in answer
        peer.sendall(LIVE)
        assert b"alive" in peer.until(b"}")


def test_other_paths_and_methods_are_the_apis(where: Where) -> None:
    gateway, context = where
    for line, status in ((b"GET /ws", 404), (b"GET /", 404), (b"POST /stomp", 405)):
        with connected(gateway.management_port, context) as peer:
            peer.sendall(line + UPGRADE.partition(b"/stomp")[2])
            answer = peer.until(b"}")
            assert answer.startswith(b"HTTP/1.1 %d " % status), answer


def test_a_browser_that_looks_gets_a_page(where: Where) -> None:
    gateway, context = where
    with connected(gateway.management_port, context) as peer:
        peer.sendall(b"GET /stomp HTTP/1.1\r\nHost: localhost\r\nAccept: text/html,*/*\r\n\r\n")
        answer = peer.rest()
    assert answer.startswith(b"HTTP/1.1 426 Upgrade Required\r\n")
    assert b"Content-Type: text/html; charset=utf-8\r\n" in answer
    assert b"Content-Security-Policy: default-src 'none';" in answer
    assert b"<h1>Sluicegate</h1>" in answer
    assert b"at /stomp /amqp," in answer


@pytest.mark.parametrize(
    ("origin", "let_in"),
    [
        ("https://shop.example", True),
        ("http://localhost:3000", True),
        ("https://evil.example", False),
        ("null", False),
    ],
)
def test_pages_are_judged_by_the_listeners_own_list(
    where: Where, origin: str, *, let_in: bool
) -> None:
    gateway, context = where
    port = gateway.management_port
    if let_in:
        with WebSocketClient(port, "/stomp", origin=origin, context=context) as client:
            assert client.close() == 1000
        return
    with pytest.raises(ClosedError, match="403"):
        WebSocketClient(port, "/stomp", origin=origin, context=context)
    wait_log(gateway, "connection.closed", f"403: Pages of {origin} may not connect; management.")


def test_it_can_be_switched_off_and_on_while_the_gateway_runs(tmp_path: Path) -> None:
    config = tmp_path / "sluicegate.toml"
    config.write_text("[management]\nwebsocket = false\n")
    with ScratchGateway(tmp_path, config=config) as gateway:
        with pytest.raises(ClosedError, match="426"):
            WebSocketClient(gateway.management_port, "/stomp")
        config.write_text('[management]\nallowed-origins = ["https://shop.example"]\n')
        status, _ = gateway.request("POST", "/api/v1/config:reload")
        assert status == 200
        port = gateway.management_port
        with WebSocketClient(port, "/stomp", origin="https://shop.example") as client:
            assert client.close() == 1000


def test_limits_and_clocks_of_an_acceptor_hold(tmp_path: Path) -> None:
    """A hundred that have not logged in may be there; the oldest makes room for one more."""
    with ScratchGateway(tmp_path) as gateway, contextlib.ExitStack() as stack:
        port = gateway.management_port
        first = stack.enter_context(WebSocketClient(port, "/stomp"))
        for _ in range(100):
            stack.enter_context(WebSocketClient(port, "/stomp"))
        with pytest.raises(ConnectionResetError):
            first.peer.recv()
        wait_log(gateway, "connection.dismissed", "unauthenticated-connections-allowed is 100")
        assert gateway.request("GET", "/livez")[0] == 200


def test_a_stop_says_good_bye_here_too(tmp_path: Path) -> None:
    with ScratchGateway(tmp_path) as gateway:
        client = WebSocketClient(gateway.management_port, "/stomp", subprotocols=STOMP)
        client.say(CONNECT)
        client.until(b"\0\n")
        os.kill(gateway.pid, signal.SIGTERM)
        assert client.until(b"\0\n").startswith(b"ERROR\n")
        with pytest.raises(ClosedError, match="1001 gateway-stopping"):
            client.read()
        client.peer.socket.close()
        while gateway.running():
            time.sleep(0.01)
