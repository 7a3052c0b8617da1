"""Wrong bytes on every port of a real gateway: answered in the protocol's own words where it has
any, closed, and nobody else notices.

An AMQP and a STOMP connection stay open through all of it and must go on; the memory of the process
is measured around a flood.
"""

from __future__ import annotations

import random
import re
import select
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import stomp
from proton import Link, Message
from proton.utils import BlockingConnection, LinkDetached

from gateway.trial.scratch import HOST, ScratchGateway
from tests.certificates import Authority
from tests.logs import wait_log, wait_records
from tests.secure import connected

pytestmark = pytest.mark.timeout(120)

AMQP = b"AMQP\x00\x01\x00\x00"
SASL = b"AMQP\x03\x01\x00\x00"
CONNECT = b"CONNECT\naccept-version:1.2\nhost:x\n\n\x00"
HTTP = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
WEBSOCKET = (
    b"GET /stomp HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
HTTP_2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
TLS = (
    b"\x16\x03\x01\x00\x2f\x01\x00\x00\x2b\x03\x03" + bytes(range(32)) + b"\x00\x00\x04"
    b"\x13\x01\x13\x02\x01\x00"
)
NOISE = random.Random(7).randbytes(4096)
#: An open with the container-id `x`, and what follows the header.
OPEN = struct.pack(">IBBH", 17, 2, 0, 0) + b"\x00\x53\x10\xc0\x04\x01\xa1\x01x"
#: What a peer may have to wait until it is given up: login and first bytes take 10 s.
PATIENCE = 14.0


def frame(body: bytes, *, kind: int = 0, doff: int = 2, size: int | None = None) -> bytes:
    return struct.pack(">IBBH", 8 + len(body) if size is None else size, doff, kind, 0) + body


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScratchGateway]:
    with ScratchGateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running


class Witness(stomp.ConnectionListener):
    """Two connections that were there before and stay: one of each protocol."""

    def __init__(self, gateway: ScratchGateway) -> None:
        self.gateway = gateway
        self.amqp = BlockingConnection(f"{HOST}:{gateway.port}", timeout=10)
        self.sender = self.amqp.create_sender("witness")
        self.stomp = stomp.Connection12([(HOST, gateway.stomp_port)])
        self.stomp.set_listener("", self)
        self.stomp.connect(wait=True)
        self.stomp.subscribe("witness", "w")
        self.bodies: list[str] = []
        self.sent = 0

    def on_message(self, frame: stomp.utils.Frame) -> None:
        self.bodies.append(frame.body)

    def check(self) -> None:
        """What AMQP sends now STOMP gets, and the management API answers."""
        self.sent += 1
        self.sender.send(Message(body=f"still here {self.sent}"))
        end = time.monotonic() + 10
        while len(self.bodies) < self.sent:
            assert time.monotonic() < end, "the STOMP connection has gone deaf"
            time.sleep(0.01)
        assert self.bodies[-1] == f"still here {self.sent}"
        assert self.gateway.request("GET", "/readyz")[0] == 200

    def close(self) -> None:
        self.amqp.close()
        self.stomp.disconnect()


@pytest.fixture(scope="module")
def witness(gateway: ScratchGateway) -> Iterator[Witness]:
    made = Witness(gateway)
    yield made
    made.check()
    made.close()


def port_of(gateway: ScratchGateway, name: str) -> int:
    ports = {"all": gateway.port, "stomp": gateway.stomp_port, "http": gateway.management_port}
    return ports[name]


def talk(port: int, data: bytes, *, seconds: float = 5.0) -> bytes:
    """Send, then return all that comes until the gateway closes; fails when it does not.

    An HTTP answer that announces its end is followed by silence: the gateway takes in what is
    still under way, so that the answer is not lost, until we end our side too.
    """
    with socket.create_connection((HOST, port), timeout=seconds) as peer:
        with suppress(BrokenPipeError, ConnectionResetError):
            peer.sendall(data)
        answer = b""
        try:
            while data := peer.recv(65536):
                answer += data
                if answer.startswith(b"HTTP/1.1 ") and b"Connection: close\r\n" in answer:
                    with suppress(OSError):
                        peer.shutdown(socket.SHUT_WR)
        except ConnectionResetError:
            pass
        except TimeoutError:
            pytest.fail(f"not closed after {seconds} s; the answer so far is {answer!r}")
        return answer


#: Port, what is sent, what must be in the answer before the end; nothing: silence or an error.
WRONG = {
    "noise": ("all", NOISE, b""),
    "nul": ("all", b"\x00" * 64, b""),
    "line ends": ("all", b"\n" * 64, b""),
    "http": ("all", HTTP, b"HTTP/1.1 426 Upgrade Required\r\n"),
    "http/2": ("all", HTTP_2, b"HTTP/1.1 505 HTTP Version Not Supported\r\n"),
    "http post": ("all", b"POST" + HTTP[3:], b"HTTP/1.1 405 Method Not Allowed\r\n"),
    "http: long head": ("all", HTTP[:-2] + b"A: b\r\n" * 5000, b"HTTP/1.1 431 "),
    "websocket: noise": ("all", WEBSOCKET + NOISE, b"HTTP/1.1 101 "),
    "websocket: unmasked": ("all", WEBSOCKET + b"\x81\x01x", b"\x88"),
    "tls": ("all", TLS, b"\x15\x03\x01\x00\x02\x02\x28"),
    "amqp 0-9-1": ("all", b"AMQP\x00\x00\x09\x01", SASL),
    "amqp 0-10": ("all", b"AMQP\x01\x01\x00\x0a", SASL),
    "amqp 2.0": ("all", b"AMQP\x00\x02\x00\x00", SASL),
    "amqp tls": ("all", b"AMQP\x02\x01\x00\x00", SASL),
    "noise after header": ("all", AMQP + NOISE, b"amqp:connection:framing-error"),
    "short frame": ("all", AMQP + frame(b"", size=4), b"amqp:connection:framing-error"),
    "huge frame": ("all", AMQP + frame(b"", size=0xFFFFFFFF), b"amqp:connection:framing-error"),
    "bad doff": ("all", AMQP + frame(b"1234", doff=1), b"amqp:connection:framing-error"),
    "bad type": ("all", AMQP + OPEN + frame(b"", kind=9), b"amqp:connection:framing-error"),
    "no performative": ("all", AMQP + OPEN + frame(b"\xff\xff\xff"), b"amqp:decode-error"),
    "begin first": ("all", AMQP + frame(b"\x00\x53\x11\x45"), b"amqp:"),
    "noise in sasl": ("all", SASL + NOISE, b""),
    "stomp then noise": ("all", CONNECT + NOISE, b"ERROR\n"),
    "stomp then http": ("all", CONNECT + HTTP, b"ERROR\n"),
    "unknown command": ("stomp", CONNECT + b"JUMP\n\n\x00", b"ERROR\n"),
    "stomp: noise": ("stomp", NOISE, b""),
    # What browsers can be talked into sending gets no answer from STOMP.
    "stomp: http": ("stomp", HTTP, b""),
    "stomp: tls": ("stomp", TLS, b""),
    "stomp: amqp": ("stomp", AMQP + OPEN, b""),
    "stomp: before connect": ("stomp", b"SEND\ndestination:a\n\n\x00", b"ERROR\n"),
    "stomp: endless header": ("stomp", b"CONNECT\n" + b"a" * 100_000, b"ERROR\n"),
    "stomp: endless headers": ("stomp", CONNECT + b"SEND\n" + b"a:b\n" * 5000, b"ERROR\n"),
    "stomp: huge body": ("stomp", CONNECT + b"SEND\ncontent-length:9999999999\n\n", b"ERROR\n"),
    "stomp: bad escape": ("stomp", CONNECT + b"SEND\ndestination:a\\x\n\n\x00", b"ERROR\n"),
    "http: noise": ("http", NOISE + b"\r\n\r\n", b"HTTP/1.1 400 "),
    "http: tls": ("http", TLS + b"\r\n\r\n", b"HTTP/1.1 400 "),
    "http: amqp": ("http", AMQP + OPEN + b"\r\n\r\n", b"HTTP/1.1 400 "),
    "http: stomp": ("http", b"CONNECT\naccept-version:1.2\n\n\x00\r\n\r\n", b"HTTP/1.1 400 "),
    "http: long line": ("http", b"GET /" + b"a" * 100_000, b"HTTP/1.1 4"),
    "http: many headers": ("http", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 5000, b"HTTP/1.1 4"),
}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_wrong_bytes_are_answered_and_the_connection_closed(
    gateway: ScratchGateway, witness: Witness, name: str
) -> None:
    where, data, expected = WRONG[name]
    answer = talk(port_of(gateway, where), data)
    assert expected in answer, answer
    assert expected or not answer or answer.startswith((b"AMQP", b"ERROR\n")), answer
    witness.check()


# ---- the same over TLS


@pytest.fixture(scope="module")
def secure(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[ScratchGateway, ssl.SSLContext]]:
    folder = tmp_path_factory.mktemp("secure")
    authority = Authority(folder)
    with ScratchGateway(folder, tls=authority.issue(), tls_management=True) as running:
        yield running, authority.client()


def talk_over_tls(port: int, context: ssl.SSLContext, data: bytes) -> bytes:
    """Do as `talk` does, and fail when the end was not said by a close_notify either."""
    with connected(port, context) as peer:
        with suppress(BrokenPipeError, ConnectionResetError):
            peer.sendall(data)
        answer = b""
        with suppress(BrokenPipeError, ConnectionResetError):
            while data := peer.recv():
                answer += data
                if answer.startswith(b"HTTP/1.1 ") and b"Connection: close\r\n" in answer:
                    peer.end()
                    break
        return answer


@pytest.mark.parametrize("name", sorted(WRONG))
def test_wrong_bytes_within_tls_are_answered_as_they_are_without(
    secure: tuple[ScratchGateway, ssl.SSLContext], name: str
) -> None:
    gateway, context = secure
    where, data, expected = WRONG[name]
    if name == "tls":
        expected = b""  # an alert of a handshake would be nonsense within one that is done
    answer = talk_over_tls(port_of(gateway, where), context, data)
    assert expected in answer, answer
    assert expected or not answer or answer.startswith((b"AMQP", b"ERROR\n")), answer
    assert gateway.request("GET", "/readyz")[0] == 200


@pytest.mark.parametrize(
    ("data", "protocol", "expected"),
    [
        (TLS, "TLS", b"\x15\x03\x01\x00\x02\x02\x28"),
        (NOISE, "unknown", b""),
    ],
)
def test_a_protocol_that_is_not_spoken_here_is_named_in_the_log(
    gateway: ScratchGateway, data: bytes, protocol: str, expected: bytes
) -> None:
    assert talk(gateway.port, data).startswith(expected)
    found = wait_records(gateway, "connection.refused", protocol=protocol)
    assert found[-1]["reason"] == "protocol"
    assert found[-1]["acceptor"] == "all"
    assert found[-1]["offered"] == "AMQP STOMP WS"


@pytest.mark.parametrize(
    ("header", "name"),
    [(b"AMQP\x00\x00\x09\x01", "AMQP 0-9-1"), (b"AMQP\x01\x01\x00\x0a", "AMQP 0-10")],
)
def test_an_older_amqp_is_answered_with_our_header_and_named_in_the_log(
    gateway: ScratchGateway, header: bytes, name: str
) -> None:
    assert talk(gateway.port, header) == SASL
    wait_log(gateway, f"{name} is not spoken here; AMQP 1.0 is")


def test_any_cut_of_a_good_start_followed_by_noise_is_survived(
    gateway: ScratchGateway, witness: Witness
) -> None:
    starts = [(gateway.port, AMQP + OPEN), (gateway.port, CONNECT), (gateway.stomp_port, CONNECT)]
    starts.append((gateway.management_port, HTTP))
    chance = random.Random(11)
    for port, start in starts:
        for cut in range(1, len(start), 3):
            with socket.create_connection((HOST, port), timeout=5) as peer:
                peer.sendall(start[:cut] + chance.randbytes(chance.randrange(1, 200)))
    witness.check()


#: Begun and never ended; all of them are closed by the gateway, without another word needed.
SILENT = {
    "nothing": ("all", b""),
    "half a header": ("all", AMQP[:5]),
    "a header": ("all", AMQP),
    "half an open": ("all", AMQP + OPEN[:-3]),
    "half a sasl frame": ("all", SASL + frame(b"\x00\x53")[:9]),
    "half a word": ("all", b"CONN"),
    "half a connect": ("all", CONNECT[:20]),
    "half a request": ("all", HTTP[:-2]),
    "a handshake": ("all", WEBSOCKET),
    "stomp: nothing": ("stomp", b""),
    "stomp: half a connect": ("stomp", CONNECT[:20]),
    "stomp: drops of line ends": ("stomp", b"\n"),
}


def test_who_begins_and_falls_silent_is_given_up(gateway: ScratchGateway, witness: Witness) -> None:
    peers: dict[socket.socket, str] = {}
    for name, (where, data) in SILENT.items():
        peer = socket.create_connection((HOST, port_of(gateway, where)), timeout=5)
        peer.sendall(data)
        peers[peer] = name
    began = time.monotonic()
    answers = dict.fromkeys(peers.values(), b"")
    while peers:
        assert time.monotonic() < began + PATIENCE, f"still open: {sorted(peers.values())}"
        for peer in select.select(list(peers), [], [], 0.5)[0]:
            try:
                data = peer.recv(65536)
            except ConnectionResetError:
                data = b""
            answers[peers[peer]] += data
            if not data:
                del peers[peer]
                peer.close()
    assert time.monotonic() - began > 5, "a slow peer gets some time"
    assert answers["nothing"] == b""
    assert answers["a header"].startswith(AMQP)
    witness.check()


def resident_kib(gateway: ScratchGateway) -> int:
    status = Path(f"/proc/{gateway.pid}/status").read_text("ascii")
    found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None
    return int(found[1])


def test_a_flood_of_wrong_bytes_leaves_no_memory_behind(
    gateway: ScratchGateway, witness: Witness
) -> None:
    before = resident_kib(gateway)
    highest = before
    beginnings = [
        (gateway.port, AMQP + OPEN + frame(b"", size=131_072) + b"x" * 100_000),
        (gateway.port, AMQP + frame(b"", size=60_000) + b"x" * 50_000),
        (
            gateway.stomp_port,
            CONNECT + b"SEND\ndestination:f\ncontent-length:100001\n\n" + NOISE * 20,
        ),
        (gateway.stomp_port, CONNECT[:-1] + b"x" * 200_000),
        (
            gateway.management_port,
            b"POST /api/v1/streams HTTP/1.1\r\nContent-Length: 900000\r\n\r\n",
        ),
        (gateway.management_port, b"GET /" + b"y" * 60_000),
    ]
    for _ in range(4):
        peers = []
        for port, data in beginnings * 8:
            peer = socket.create_connection((HOST, port), timeout=5)
            with suppress(OSError):
                peer.sendall(data)
            peers.append(peer)
        witness.check()
        highest = max(highest, resident_kib(gateway))
        for peer in peers:
            peer.close()
    witness.check()
    # 48 at once, each bounded by what a frame may have; nothing of it adds up over the rounds.
    assert highest - before < 64 * 1024, f"{before} KiB rose to {highest} KiB"
    assert resident_kib(gateway) - before < 32 * 1024


def test_a_message_without_an_end_is_cut_at_the_limit(
    gateway: ScratchGateway, witness: Witness
) -> None:
    before = resident_kib(gateway)
    endless = CONNECT + b"SEND\ndestination:endless\n\n" + b"x" * (20 << 20)
    answer = talk(gateway.stomp_port, endless, seconds=20)
    assert answer.startswith(b"CONNECTED\n")
    witness.check()
    assert resident_kib(gateway) - before < 48 * 1024
    assert gateway.request("GET", "/api/v1/queues/endless")[0] == 404, "what never ends makes none"


def test_a_delivery_without_an_end_is_cut_at_the_limit(
    gateway: ScratchGateway, witness: Witness
) -> None:
    before = resident_kib(gateway)
    connection = BlockingConnection(f"{HOST}:{gateway.port}", timeout=10)
    sender = connection.create_sender("endless")
    sender.link.delivery("one")
    with pytest.raises(LinkDetached, match="amqp:link:message-size-exceeded"):
        stream(connection, sender.link, 64 << 20)
    connection.close()
    witness.check()
    assert resident_kib(gateway) - before < 64 * 1024


def stream(connection: BlockingConnection, link: Link, size: int) -> None:
    """Send so many bytes of one delivery; whatever the gateway says meanwhile is raised."""
    for _ in range(size >> 20):
        link.stream(b"x" * (1 << 20))
        connection.wait(lambda: link.current is None or link.current.pending == 0)
    connection.wait(lambda: False, timeout=5)
