"""STOMP and AMQP over WebSocket at a real gateway's port, in the clear and over TLS."""

from __future__ import annotations

import os
import re
import signal
import ssl
import struct
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from wsproto.events import BytesMessage, Ping, TextMessage
from wsproto.extensions import PerMessageDeflate

from gateway.trial.scratch import ScratchGateway
from tests.certificates import Authority
from tests.gateway.stomp_peer import StompPeer
from tests.gateway.websocket_peer import ClosedError, WebSocketClient
from tests.logs import wait_log, wait_records
from tests.secure import connected

pytestmark = pytest.mark.timeout(120)

STOMP = ("v12.stomp", "v11.stomp", "v10.stomp")
CONNECT = "CONNECT\naccept-version:1.2\nhost:x\n\n\0"
AMQP = b"AMQP\x00\x01\x00\x00"
OPEN = struct.pack(">IBBH", 17, 2, 0, 0) + b"\x00\x53\x10\xc0\x04\x01\xa1\x01x"
#: A begin: incoming and outgoing windows of 10, next-outgoing-id 0.
BEGIN_BODY = b"\x00\x53\x11\xc0\x07\x04\x40\x43\x52\x0a\x52\x0a"
BEGIN = struct.pack(">IBBH", 8 + len(BEGIN_BODY), 2, 0, 0) + BEGIN_BODY
#: The descriptors of open and begin, as they are answered.
OPENED, BEGUN = b"\x00\x53\x10", b"\x00\x53\x11"

Where = tuple[ScratchGateway, ssl.SSLContext | None]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScratchGateway]:
    settings = (
        'acceptors.all.allowed-origins=["https://shop.example"]',
        "acceptors.all.stomp-max-frame-payload-length=256KiB",
    )
    with ScratchGateway(tmp_path_factory.mktemp("plain"), settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Where]:
    folder = tmp_path_factory.mktemp("secure")
    authority = Authority(folder)
    with ScratchGateway(folder, tls=authority.issue()) as running:
        yield running, authority.client()


@pytest.fixture(params=["tcp", "tls"])
def where(request: pytest.FixtureRequest) -> Where:
    if request.param == "tcp":
        return request.getfixturevalue("plain"), None
    return request.getfixturevalue("secure")


@pytest.mark.parametrize("subprotocols", [STOMP, ()])
@pytest.mark.parametrize("text", [True, False])
def test_stomp_goes_there_and_back(
    where: Where, subprotocols: tuple[str, ...], *, text: bool
) -> None:
    gateway, context = where

    def as_sent(said: str) -> str | bytes:
        return said if text else said.encode()

    with WebSocketClient(gateway.port, subprotocols=subprotocols, context=context) as client:
        assert client.subprotocol == (STOMP[0] if subprotocols else None)
        client.say(as_sent(CONNECT))
        assert client.until(b"\0\n").startswith(b"CONNECTED\nversion:1.2\n")
        client.say(as_sent("SUBSCRIBE\nid:s\ndestination:there\nreceipt:1\n\n\0"))
        assert b"RECEIPT\nreceipt-id:1\n" in client.until(b"\0\n")
        # One frame of STOMP over three messages.
        send = "SEND\ndestination:there\nreceipt:2\n\nÄpfel\0"
        for part in (send[:10], send[10:38], send[38:]):
            client.say(as_sent(part))
        came = client.read()
        while not ("Äpfel\0".encode() in came and b"RECEIPT" in came):
            came += client.read()
        assert set(client.kinds) == {TextMessage if text else BytesMessage}
        client.say(as_sent("DISCONNECT\nreceipt:3\n\n\0"))
        assert b"receipt-id:3\n" in client.until(b"\0\n")
        with pytest.raises(ClosedError, match="1000 client-closed"):
            client.read()
        assert client.peer.rest() == b""


@pytest.mark.parametrize("subprotocols", [("amqp",), ("binary", "AMQPWSB10"), ()])
def test_amqp_opens_and_begins(where: Where, subprotocols: tuple[str, ...]) -> None:
    gateway, context = where
    path = "/$servicebus/websocket"
    with WebSocketClient(gateway.port, path, subprotocols=subprotocols, context=context) as client:
        client.say(AMQP + OPEN)
        came = client.until(OPENED)
        assert came.startswith(AMQP)
        client.say(BEGIN[:7], finished=False)
        client.say(BEGIN[7:])
        assert BEGUN in client.until(BEGUN)
        assert client.close(1001) == 1001
        assert client.peer.rest() == b""


def test_what_is_no_utf8_goes_out_as_binary_and_other_protocols_are_beside_it(
    plain: ScratchGateway,
) -> None:
    with WebSocketClient(plain.port, "/stomp", subprotocols=STOMP) as client:
        client.say(CONNECT + "SUBSCRIBE\nid:s\ndestination:raw\nreceipt:1\n\n\0")
        client.until(b"receipt-id:1\n")
        StompPeer(plain.port).send("raw", b"\xff\x00\xfe")
        assert b"\xff\x00\xfe" in client.until(b"\xfe\0\n")
        assert client.kinds[-1] is BytesMessage
        assert TextMessage in client.kinds


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("ack", ["auto", "client"])
def test_each_frame_of_stomp_is_a_message_as_from_other_brokers(
    where: Where, version: str, ack: str
) -> None:
    """There are clients that read one frame of a message, and drop what is behind it."""
    gateway, context = where
    name, count = f"apart.{version}.{ack}", 300
    # A body that looks as an end and a beginning do.
    bodies = [b"%d\0\nRECEIPT\n\n\0\n" % n + b"\xc3\xa9" * (n % 3) for n in range(count)]
    peer = StompPeer(gateway.stomp_port, context=context)
    for body in bodies:
        peer.send(name, body)
    peer.send(name, b"last", "all")
    assert peer.read()[1]["receipt-id"] == "all"
    peer.close()
    subprotocol = f"v{version.replace('.', '')}.stomp"
    with WebSocketClient(gateway.port, subprotocols=(subprotocol,), context=context) as client:
        client.say(f"CONNECT\naccept-version:{version}\nhost:h\nheart-beat:0,500\n\n\0")
        assert client.message().startswith(b"CONNECTED\n")
        window = "consumer-window-size:-1"
        client.say(f"SUBSCRIBE\nid:s\ndestination:{name}\nack:{ack}\n{window}\nreceipt:s\n\n\0")
        assert client.message() == b"RECEIPT\nreceipt-id:s\n\n\0\n"
        for body in [*bodies, b"last"]:
            said = client.message()
            while said == b"\n":
                said = client.message()
            assert said.startswith(b"MESSAGE\n")
            assert said.endswith(b"\n\n" + body + b"\0\n")
        begin = "BEGIN\ntransaction:t\nreceipt:{}\n\n\0"
        abort = "ABORT\ntransaction:t\nreceipt:{}\n\n\0"
        client.say("".join((begin, abort)[n % 2].format(n) for n in range(40)) + "SEND\n\n\0")
        told = []
        while not told or not told[-1].startswith(b"ERROR\n"):
            told.append(client.message())
        told = [one for one in told if one != b"\n"]
        assert told[:-1] == [b"RECEIPT\nreceipt-id:%d\n\n\0\n" % n for n in range(40)]


def test_pages_of_other_origins_may_not_connect(plain: ScratchGateway) -> None:
    for origin in ("https://shop.example", "http://localhost:3000"):
        with WebSocketClient(plain.port, origin=origin) as client:
            assert client.close() == 1000
    with pytest.raises(ClosedError, match="403"):
        WebSocketClient(plain.port, origin="https://evil.example")
    wait_log(plain, "connection.closed", "403: Pages of https://evil.example may not connect")


def test_a_browser_that_looks_at_the_port_is_told_what_it_is(where: Where) -> None:
    gateway, context = where
    with connected(gateway.port, context) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = peer.rest()
    assert answer.startswith(b"HTTP/1.1 426 Upgrade Required\r\n")
    assert b"This is a port of Sluicegate" in answer


def test_a_message_beyond_the_limit_ends_the_connection_and_nobody_else_notices(
    plain: ScratchGateway,
) -> None:
    with (
        WebSocketClient(plain.port, subprotocols=STOMP) as other,
        WebSocketClient(plain.port, subprotocols=STOMP) as client,
    ):
        other.say(CONNECT)
        client.say(CONNECT)
        client.until(b"\0\n")
        client.say("SEND\ndestination:a\nreceipt:1\n\n" + "x" * 200_000 + "\0")
        assert b"receipt-id:1\n" in client.until(b"\0\n")
        client.say("SEND\ndestination:a\n\n" + "x" * 300_000 + "\0")
        with pytest.raises(ClosedError, match="1009 A message is larger than 262144 bytes"):
            client.read()
        assert b"CONNECTED" in other.until(b"\0\n")


def test_s34_frames_of_a_websocket_up_to_their_limit(plain: ScratchGateway) -> None:
    """The limit is 1 MiB where none is written; here 256 KiB are."""
    for size, fits in ((65_536, True), (131_072, True), (262_144, True), (262_145, False)):
        with WebSocketClient(plain.port, subprotocols=STOMP) as client:
            client.say(CONNECT)
            client.until(b"\0\n")
            head = "SEND\ndestination:s34\nreceipt:1\n\n"
            client.say(head + "x" * (size - len(head) - 1) + "\0")
            if fits:
                assert b"receipt-id:1\n" in client.until(b"\0\n")
                continue
            with pytest.raises(ClosedError, match="1009"):
                client.read()


def test_s34_where_nothing_is_written_a_frame_may_have_a_mebibyte(tmp_path: Path) -> None:
    """In one frame and in many, also of 1.0, and what is let in arrives whole."""
    head = "SEND\ndestination:s34\nreceipt:1\n\n"
    with ScratchGateway(tmp_path) as gateway:
        for size, parts in ((65_537, 1), (1 << 20, 1), (1 << 20, 7), ((1 << 20) + 1, 1)):
            with WebSocketClient(gateway.port, subprotocols=("v10.stomp",)) as client:
                client.say("CONNECT\n\n\0")
                assert client.until(b"\0\n").startswith(b"CONNECTED\n")
                whole = head + "x" * (size - len(head) - 1) + "\0"
                step = -(-size // parts)
                for at in range(0, size, step):
                    client.say(whole[at : at + step], finished=at + step >= size)
                if size <= 1 << 20:
                    assert b"receipt-id:1\n" in client.until(b"\0\n")
                    continue
                with pytest.raises(ClosedError, match="1009 A message is larger than 1048576"):
                    client.read()
        reader = StompPeer(gateway.port)
        reader.write("SUBSCRIBE\nid:s\ndestination:s34\nack:auto\n\n")
        sizes = [len(reader.read()[2]) for _ in range(3)]
        assert sizes == [size - len(head) - 1 for size in (65_537, 1 << 20, 1 << 20)]
        assert reader.silent(0.2)
        reader.close()


def test_the_log_and_the_api_show_what_is_inside(plain: ScratchGateway) -> None:
    with WebSocketClient(plain.port, subprotocols=STOMP) as client:
        client.say(CONNECT)
        client.until(b"\0\n")
        port = client.peer.socket.getsockname()[1]
        (found,) = wait_records(plain, "login.accepted", peer=f"127.0.0.1:{port}")
        assert found["protocol"] == "STOMP 1.2"
        status, listed = plain.request("GET", "/api/v1/connections?protocol=stomp")
        assert status == 200
        assert f"'id': '{found['connection']}'" in str(listed)
        with urllib.request.urlopen(f"{plain.url}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        assert re.search(r'connections\{acceptor="all",protocol="STOMP"\} [1-9]', text)


def test_compression_and_pings_as_they_are_written(tmp_path: Path) -> None:
    """wsproto's own compression is the other end."""
    settings = ("acceptors.all.ws-compression=deflate", "acceptors.all.ws-ping-interval=1s")
    with ScratchGateway(tmp_path, settings=settings) as gateway:
        offered = PerMessageDeflate()
        with WebSocketClient(gateway.port, subprotocols=STOMP, extensions=[offered]) as client:
            assert offered.enabled()
            client.say(CONNECT + "SUBSCRIBE\nid:s\ndestination:there\nreceipt:1\n\n\0")
            client.until(b"receipt-id:1\n")
            for text in ("x" * 50_000, "Äpfel " * 3000, "y" * 500_000, "small"):
                client.say(f"SEND\ndestination:there\n\n{text}\0")
                assert text.encode() in client.until(b"\0\n")
            (listed,) = gateway.request("GET", "/api/v1/connections")[1]["items"]
            assert listed["bytesIn"] < 10_000
            # The largest goes out as it is, and the others do not.
            assert 500_000 < listed["bytesOut"] < 510_000
            client.say("SEND\ndestination:there\n\n" + "x" * 2_000_000 + "\0")
            with pytest.raises(ClosedError, match="1009 A message is larger than 1048576 bytes"):
                client.read()
        with WebSocketClient(gateway.port, subprotocols=STOMP) as silent:
            silent.say(CONNECT)
            silent.until(b"\0\n")
            assert isinstance(silent.next_event(), Ping)


def test_a_stop_says_so(tmp_path: Path) -> None:
    with ScratchGateway(tmp_path) as gateway:
        client = WebSocketClient(gateway.port, subprotocols=STOMP)
        client.say(CONNECT)
        client.until(b"\0\n")
        os.kill(gateway.pid, signal.SIGTERM)
        assert client.until(b"\0\n").startswith(b"ERROR\n")
        with pytest.raises(ClosedError, match="1001 gateway-stopping"):
            client.read()
        client.peer.socket.close()
        while gateway.running():
            time.sleep(0.01)
