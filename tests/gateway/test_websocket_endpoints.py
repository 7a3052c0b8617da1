"""WebSocket at an acceptor that has nothing else, on a UNIX socket, and behind a proxy."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Request, TextMessage

from gateway.trial.scratch import HOST, ScratchGateway, free_ports
from tests.gateway.test_websocket import CONNECT
from tests.logs import wait_records

pytestmark = pytest.mark.timeout(60)

Where = tuple[ScratchGateway, Path, int]


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Where]:
    folder = tmp_path_factory.mktemp("endpoints")
    path, (port,) = folder / "ws", free_ports(1)
    settings = (
        f"acceptors.local.endpoint='unix:{path}'",
        'acceptors.local.protocols=["WS"]',
        f"acceptors.proxied.endpoint='haproxy:tcp:{port}:interface={HOST}'",
        "allow-insecure=true",
    )
    with ScratchGateway(folder, settings=settings) as running:
        yield running, path, port


def said(skt: socket.socket, greeting: bytes = b"") -> str:
    """Shake hands, log in by STOMP, and return what is answered."""
    wsproto = WSConnection(ConnectionType.CLIENT)
    skt.sendall(greeting + wsproto.send(Request(host="localhost", target="/ws")))
    came = ""
    while "\0" not in came:
        data = skt.recv(65536)
        assert data
        wsproto.receive_data(data)
        for event in wsproto.events():
            if isinstance(event, AcceptConnection):
                skt.sendall(wsproto.send(TextMessage(data=CONNECT)))
            elif isinstance(event, TextMessage):
                came += event.data
    return came


def test_a_unix_socket_for_websocket_alone(where: Where) -> None:
    gateway, path, _ = where
    with socket.socket(socket.AF_UNIX) as skt:
        skt.settimeout(15)
        skt.connect(str(path))
        assert said(skt).startswith("CONNECTED\n")
        (found,) = wait_records(gateway, "connection.opened", acceptor="local")
        assert found["protocol"] == "WebSocket"
    for first in (CONNECT.encode(), b"\r\n\r\nAMQP\r\n\r\n"):
        with socket.socket(socket.AF_UNIX) as skt:
            skt.settimeout(15)
            skt.connect(str(path))
            skt.sendall(first)
            assert skt.recv(65536).startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_behind_a_proxy_the_client_is_who_the_proxy_says(where: Where) -> None:
    gateway, _, port = where
    with socket.create_connection((HOST, port), timeout=15) as skt:
        assert said(skt, b"PROXY TCP4 192.0.2.9 192.0.2.1 4711 443\r\n").startswith("CONNECTED\n")
        (found,) = wait_records(gateway, "login.accepted", peer="192.0.2.9:4711")
        assert found["protocol"] == "STOMP 1.2"
