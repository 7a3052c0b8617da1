"""TLS on a real gateway: what is said last arrives, and what is no TLS, or stands still, is let go.

Three listeners have their certificate in each of the ways there are: `ssl:`, `tls:` and a table of
keys. Every one must end each connection with all that it had to say, and a close_notify behind it.
"""

from __future__ import annotations

import shutil
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.trial.scratch import HOST, ScratchGateway, free_ports
from protocols.amqp.performatives import (
    Begin,
    Close,
    Composite,
    Open,
    SaslInit,
    encode_performative,
)
from tests.certificates import Authority, serial_in, serial_of
from tests.interop.support import add_user, wait_until
from tests.logs import records, wait_records, whole_log
from tests.protocols.key_updates import KeyUpdates
from tests.secure import PATIENCE, Peer, connected

AMQP = b"AMQP\x00\x01\x00\x00"
SASL = b"AMQP\x03\x01\x00\x00"
CONNECT = b"CONNECT\naccept-version:1.2\nhost:h\n\n\0"
LOGIN = b"CONNECT\naccept-version:1.2\nhost:h\nlogin:ann\npasscode:se:cret\n\n\0"
KINDS = ["ssl", "tls", "table"]
#: A frame's descriptor [AMQP 2.7, SASL 5.3.3].
CLOSE = b"\x00\x53\x18"
OUTCOME = b"\x00\x53\x44"


def frame(performative: Composite, kind: int = 0) -> bytes:
    body = encode_performative(performative)
    return struct.pack(">IBBH", 8 + len(body), 2, kind, 0) + body


@dataclass
class Running:
    """A gateway, its ports by kind of endpoint, and what its clients trust."""

    gateway: ScratchGateway
    ports: dict[str, int]
    client: ssl.SSLContext

    def events(self, name: str) -> list[dict[str, object]]:
        return records(self.gateway, name)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder / "made")
    pair = authority.issue()
    certificates = folder / "certificates"
    certificates.mkdir()
    for file in pair:
        shutil.copy(file, certificates)
    names = ["tls", "table", "amqp", "stomp"]
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    reach = f"interface={HOST}"
    settings = [
        f"acceptors.tls.endpoint='tls:{certificates}:port={ports['tls']}:{reach}'",
        f"acceptors.table.endpoint='tcp:{ports['table']}:{reach}'",
        f"acceptors.table.tls.certificate='{pair.certificate}'",
        f"acceptors.table.tls.key='{pair.key}'",
    ]
    for one in ("amqp", "stomp"):
        name = f"acceptors.only-{one}"
        settings += [
            f"{name}.endpoint='tcp:{ports[one]}:{reach}'",
            f"{name}.protocols=['{one.upper()}']",
            f"{name}.tls.directory='{certificates}'",
        ]
    gateway = ScratchGateway(folder, settings=settings, tls=pair, tls_management=True)
    add_user(gateway, "ann", "se:cret")
    with gateway:
        ports |= {"ssl": gateway.port, "management": gateway.management_port}
        yield Running(gateway, ports, authority.client())


@pytest.fixture(params=KINDS)
def peer(request: pytest.FixtureRequest, running: Running) -> Iterator[Peer]:
    with connected(running.ports[request.param], running.client) as one:
        yield one


# ---- what is said last arrives


def logged_in(peer: Peer) -> None:
    secret = SaslInit(mechanism="PLAIN", initial_response=b"\0ann\0se:cret")
    peer.sendall(SASL + frame(secret, kind=1))
    peer.until(OUTCOME)


def test_an_amqp_close_is_answered_before_the_end(peer: Peer) -> None:
    logged_in(peer)
    peer.sendall(
        AMQP
        + frame(Open(container_id="c"))
        + frame(Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9))
        + frame(Close())
    )
    assert CLOSE in peer.rest()


def test_an_amqp_error_is_told_before_the_end(peer: Peer) -> None:
    logged_in(peer)
    peer.sendall(AMQP + frame(Open(container_id="c")) + b"\0\0\0\x09\x01\0\0\0x")
    said = peer.rest()
    assert CLOSE in said
    assert b"amqp:connection:framing-error" in said


def test_a_refused_sasl_login_is_told_before_the_end(peer: Peer) -> None:
    secret = SaslInit(mechanism="PLAIN", initial_response=b"\0ann\0wrong")
    peer.sendall(SASL + frame(secret, kind=1))
    said = peer.rest()
    at = said.index(OUTCOME)
    assert b"\x50\x01" in said[at:]  # code 1: auth [SASL 5.3.3.6]


def test_a_stomp_error_is_told_before_the_end(peer: Peer) -> None:
    peer.sendall(LOGIN)
    peer.until(b"CONNECTED")
    peer.sendall(b"NONSENSE\n\n\0")
    assert peer.rest().startswith(b"ERROR\n")


def test_receipts_of_the_last_send_and_of_the_disconnect_come(peer: Peer) -> None:
    peer.sendall(
        LOGIN
        + b"SEND\ndestination:tls.last\nreceipt:sent\n\nx\0"
        + b"DISCONNECT\nreceipt:left\n\n\0"
    )
    said = peer.rest()
    assert said.index(b"receipt-id:sent") < said.index(b"receipt-id:left")


def test_a_receipt_behind_four_megabytes_reaches_a_reader_that_takes_its_time(
    request: pytest.FixtureRequest, running: Running, peer: Peer
) -> None:
    address = request.node.name.replace("[", ".").replace("]", "").encode()
    size = 1 << 20
    body = b"x" * size
    head = b"SEND\ndestination:%s\ncontent-length:%d\nreceipt:%d\n\n"
    peer.sendall(LOGIN)
    peer.until(b"CONNECTED")
    for number in range(4):
        peer.sendall(head % (address, size, number) + body + b"\0")
        peer.until(b"receipt-id:%d" % number)
    peer.sendall(
        b"SUBSCRIBE\nid:s\nack:auto\nconsumer-window-size:-1\ndestination:%s\n\n\0" % address
    )
    peer.until(b"MESSAGE")
    time.sleep(0.3)  # what the sockets hold is full now
    peer.sendall(b"DISCONNECT\nreceipt:left\n\n\0")
    time.sleep(0.3)
    said = peer.rest()
    assert len(said) > 3 * size
    assert b"receipt-id:left" in said[-200:]


def test_http_on_a_messaging_port_is_told_where_it_belongs(peer: Peer) -> None:
    peer.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert peer.rest().startswith(b"HTTP/1.1 426")


def test_data_together_with_the_end_counts(running: Running) -> None:
    """A peer that says all in one breath, its close_notify with it."""
    with connected(running.ports["ssl"], running.client) as peer:
        peer.sendall(LOGIN)
        peer.until(b"CONNECTED")
        assert peer.tls is not None
        send = peer.tls.seal(b"SEND\ndestination:tls.breath\n\nwhole\0")
        peer.socket.sendall(send + peer.tls.close())
        peer.rest()
    with connected(running.ports["ssl"], running.client) as peer:
        peer.sendall(LOGIN + b"SUBSCRIBE\nid:s\ndestination:tls.breath\n\n\0")
        peer.until(b"whole")


# ---- who speaks no TLS, or stands still


@pytest.mark.parametrize("first", [AMQP, CONNECT, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\0"])
@pytest.mark.parametrize("kind", [*KINDS, "amqp", "stomp", "management"])
def test_who_speaks_no_tls_is_let_go_and_logged(running: Running, kind: str, first: bytes) -> None:
    before = len(running.events("tls.failed"))
    with socket.create_connection((HOST, running.ports[kind]), timeout=PATIENCE) as peer:
        peer.sendall(first)
        assert ended(peer) == b""
    wait_until(lambda: len(running.events("tls.failed")) > before)
    assert running.events("tls.failed")[-1]["reason"] == "not-tls"


@pytest.mark.parametrize("kind", [*KINDS, "management"])
def test_a_client_that_does_not_trust_the_certificate_is_named_in_the_log(
    running: Running, tmp_path: Path, kind: str
) -> None:
    stranger = Authority(tmp_path).client()
    before = len(running.events("tls.failed"))
    with pytest.raises(ssl.SSLError), connected(running.ports[kind], stranger):
        pass
    wait_until(lambda: len(running.events("tls.failed")) > before)
    event = running.events("tls.failed")[-1]
    assert event["reason"] == "tlsv1-alert-unknown-ca"
    assert event["meaning"] == "the client does not trust who signed the certificate"


def ended(peer: socket.socket) -> bytes:
    came = b""
    try:
        while part := peer.recv(65536):
            came += part
    except ConnectionResetError:
        pass
    return came


def hello(context: ssl.SSLContext) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def test_a_handshake_that_stands_still_ends_on_every_kind_of_listener(running: Running) -> None:
    """Silent from the first byte on, within the hello, and behind it: 10 s each, all at once."""
    first = hello(running.client)
    begun = time.monotonic()
    peers = []
    for kind, port in running.ports.items():
        for part in (b"", first[:1], first[:100], first):
            one = socket.create_connection((HOST, port), timeout=2 * PATIENCE)
            one.sendall(part)
            peers.append((kind, len(part), one))
    for kind, size, one in peers:
        ended(one)
        assert time.monotonic() - begun < PATIENCE, (kind, size)
        one.close()
    assert time.monotonic() - begun > 8.0
    late = wait_records(running.gateway, "tls.failed", len(peers), reason="too-slow")
    assert {e["listener"] for e in late} == {
        "acceptors.all",
        "acceptors.tls",
        "acceptors.table",
        "acceptors.only-amqp",
        "acceptors.only-stomp",
        "management",
    }


def test_who_shook_hands_and_says_nothing_more_is_let_go(running: Running) -> None:
    begun = time.monotonic()
    peers = [connected(running.ports[kind], running.client) for kind in (*KINDS, "amqp", "stomp")]
    for one in peers:
        one.socket.settimeout(2 * PATIENCE)
        ended(one.socket)
        assert time.monotonic() - begun < PATIENCE
        one.socket.close()


# ---- the management API


def ask(running: Running, request: bytes) -> bytes:
    with connected(running.ports["management"], running.client) as peer:
        peer.sendall(request)
        return peer.rest()


def test_a_malformed_request_is_answered_whole(running: Running) -> None:
    with connected(running.ports["management"], running.client) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nbad header\r\n\r\n")
        said = peer.until(b"}")
    assert said.startswith(b"HTTP/1.1 400 ")


def test_a_large_answer_arrives_whole_before_the_end(running: Running) -> None:
    login = b"Authorization: Basic YW5uOnNlOmNyZXQ=\r\n"
    request = b"GET %s HTTP/1.1\r\nHost: localhost\r\n%sConnection: close\r\n\r\n"
    said = ask(running, request % (b"/metrics", login))
    head, _, body = said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert len(body) > 1000
    assert body.endswith((b"\n", b"0\r\n\r\n"))


def test_the_management_api_takes_a_login_over_tls_and_knows_that_it_is(running: Running) -> None:
    assert running.gateway.url.startswith("https://")
    assert running.gateway.request("GET", "/livez")[0] == 200


def test_who_asks_the_api_for_new_keys_on_and_on_is_cut_and_nobody_else(
    running: Running, tmp_path: Path
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.keylog_filename = str(tmp_path / "keys")
    with (
        connected(running.ports["management"], context) as peer,
        pytest.raises((ConnectionResetError, BrokenPipeError)),
    ):
        flood(peer.socket, KeyUpdates(tmp_path / "keys"))
    wait_records(running.gateway, "tls.failed", reason="too-many-key-updates")
    assert running.gateway.request("GET", "/livez")[0] == 200


def flood(peer: socket.socket, client: KeyUpdates) -> None:
    """Ask for new keys 200,000 times, and take the answers."""
    for _ in range(200):
        peer.sendall(b"".join(client.ask() for _ in range(1000)))
        peer.setblocking(False)
        with suppress(BlockingIOError):
            peer.recv(1 << 20)
        peer.settimeout(PATIENCE)


# ---- what Twisted's own TLS is left with


def test_the_last_words_arrive_through_twisted_s_tls_behind_a_proxy_too(tmp_path: Path) -> None:
    """With `haproxy:` the proxy's line comes inside TLS, which only Twisted can take apart."""
    authority = Authority(tmp_path)
    pair = authority.issue()
    port = free_ports(1)[0]
    files = f"privateKey={pair.key}:certKey={pair.certificate}"
    settings = [
        f"acceptors.proxied.endpoint='haproxy:ssl:{port}:{files}:interface={HOST}'",
        "allow-insecure=true",
    ]
    proxy = b"PROXY TCP4 192.0.2.1 192.0.2.2 4001 4002\r\n"
    with ScratchGateway(tmp_path / "gateway", settings=settings):
        for said, wanted in (
            (b"NONSENSE\n\n\0", b"ERROR"),
            (b"DISCONNECT\nreceipt:left\n\n\0", b"receipt-id:left"),
        ):
            with connected(port, authority.client()) as peer:
                peer.sendall(proxy + CONNECT)
                peer.until(b"CONNECTED")
                peer.sendall(said)
                assert wanted in peer.rest()


# ---- what is told


def test_the_log_and_the_banner_say_which_listener_speaks_tls(running: Running) -> None:
    told = wait_records(running.gateway, "gateway.ready")
    opened = {str(e["listener"]): e["tls"] for e in running.events("listener.opened")}
    assert set(opened.values()) == {True}
    text = running.gateway.log.read_text("utf-8")
    assert f"{HOST}:{running.ports['table']}" in str(told[0]["tls"])
    assert "TLS, this machine only" in text
    assert f"https://{HOST}:{running.ports['management']}" in text


# ---- renewal and names


def presented(port: int, context: ssl.SSLContext, name: str) -> int:
    with (
        socket.create_connection((HOST, port), timeout=PATIENCE) as skt,
        context.wrap_socket(skt, server_hostname=name) as tls,
    ):
        return serial_of(tls.getpeercert(binary_form=True))


@pytest.mark.parametrize("kind", KINDS)
def test_renewed_files_are_served_without_a_restart_and_broken_ones_are_not(
    tmp_path: Path, kind: str
) -> None:
    authority = Authority(tmp_path / "made")
    folder = tmp_path / "served"
    pair = authority.issue(folder=folder, stem="server")
    port = free_ports(1)[0]
    endpoint = {
        "ssl": f"ssl:{port}:privateKey={pair.key}:certKey={pair.certificate}:interface={HOST}",
        "tls": f"tls:{folder}:port={port}:interface={HOST}",
        "table": f"tcp:{port}:interface={HOST}",
    }[kind]
    settings = [f"acceptors.new.endpoint='{endpoint}'"]
    if kind == "table":
        settings += [
            f"acceptors.new.tls.certificate='{pair.certificate}'",
            f"acceptors.new.tls.key='{pair.key}'",
        ]
    with ScratchGateway(tmp_path / "gateway", settings=settings) as gateway:
        one = Running(gateway, {"new": port}, authority.client())
        old = serial_in(pair.certificate)
        with connected(port, one.client) as before:
            before.sendall(CONNECT)
            before.until(b"CONNECTED")
            assert presented(port, one.client, "localhost") == old
            pair.certificate.write_bytes(b"-----BEGIN CERTIFICATE-----\nhalf")
            wait_until(lambda: refused(one, port))
            time.sleep(1.2)
            assert presented(port, one.client, "localhost") == old
            whole_log(gateway)
            assert len(one.events("certificate.refused")) == 1, "a broken file is told once"
            authority.issue(folder=folder, stem="server")
            new = serial_in(pair.certificate)
            wait_until(lambda: presented(port, one.client, "localhost") == new)
            renewed = wait_records(gateway, "certificate.renewed")
            assert renewed[-1]["listener"] == "acceptors.new"
            # Who was there before goes on with what it has.
            before.sendall(b"DISCONNECT\nreceipt:r\n\n\0")
            assert b"receipt-id:r" in before.rest()


def refused(one: Running, port: int) -> bool:
    presented(port, one.client, "localhost")
    return bool(one.events("certificate.refused"))


def test_a_directory_presents_the_certificate_of_the_name_that_is_asked_for(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "made", intermediate=True)
    folder = tmp_path / "served"
    first = authority.issue("a.example", folder=folder, stem="1")
    second = authority.issue("*.b.example", "b.example", folder=folder, stem="2")
    shutil.copy(authority.chain, folder / "chain.pem")
    port = free_ports(1)[0]
    settings = [f"acceptors.new.endpoint='tls:{folder}:port={port}:interface={HOST}'"]
    with ScratchGateway(tmp_path / "gateway", settings=settings):
        client = authority.client()  # trusts the root alone: the chain has to come along
        assert presented(port, client, "a.example") == serial_in(first.certificate)
        assert presented(port, client, "x.b.example") == serial_in(second.certificate)
        assert presented(port, client, "B.example") == serial_in(second.certificate)
        client.check_hostname = False
        assert presented(port, client, "unknown.example") == serial_in(first.certificate)
        assert presented(port, client, HOST) == serial_in(first.certificate)
