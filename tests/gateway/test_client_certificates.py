"""Certificates of clients on a real gateway: whose they are, by each protocol, and whose not."""

from __future__ import annotations

import base64
import datetime as dt
import http.client
import json
import os
import signal
import ssl
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509

from gateway.trial.scratch import HOST, ScratchGateway, free_ports
from protocols.amqp.performatives import Open, SaslInit, encode_performative
from tests.certificates import Authority
from tests.client_certificates import Maker, Shown, named, revoking
from tests.gateway.hostile_certificates import RULES, table
from tests.interop.support import add_user, wait_until
from tests.logs import log_text, records, wait_records
from tests.secure import CutError, Peer, connected

SASL = b"AMQP\x03\x01\x00\x00"
AMQP = b"AMQP\x00\x01\x00\x00"
OUTCOME = b"\x00\x53\x44"
CONNECT = b"CONNECT\naccept-version:1.2\nhost:h\n\n\0"
SEND = b"SEND\ndestination:certified\nreceipt:1\n\nx\0"
LISTENERS = """
[acceptors.asked]
endpoint = "tcp:{asked}:interface=127.0.0.1"
[acceptors.asked.tls]
certificate = "{certificate}"
key = "{key}"
client-certificates = "asked"
client-ca = "{ca}"
client-crl = "{crl}"

[acceptors.required]
endpoint = "tcp:{required}:interface=127.0.0.1"
[acceptors.required.tls]
certificate = "{certificate}"
key = "{key}"
client-certificates = "required"
client-ca = "{ca}"
client-crl = "{crl}"

[management.tls]
client-certificates = "asked"
client-ca = "{ca}"
"""


@dataclass
class Running:
    """A gateway with listeners that ask for certificates, and who makes them."""

    gateway: ScratchGateway
    file: Path
    ports: dict[str, int]
    server: Authority
    maker: Maker

    def stomp(
        self, shown: Shown | None, listener: str = "asked", connect: bytes = CONNECT
    ) -> bytes:
        """Return what a STOMP client is answered; nothing where TLS let nobody in."""
        context = self.server.client() if shown is None else shown.context(self.server)
        try:
            with connected(self.ports[listener], context) as peer:
                peer.sendall(connect)
                came = peer.recv()
                if came.startswith(b"CONNECTED"):
                    peer.end()
                return came
        except (OSError, CutError, ssl.SSLError):
            return b""

    def mechanisms(self, shown: Shown | None) -> bytes:
        """Return what SASL offers to an AMQP client; nothing where TLS let nobody in."""
        context = self.server.client() if shown is None else shown.context(self.server)
        try:
            with connected(self.ports["asked"], context) as peer:
                peer.sendall(SASL)
                came = b""
                while b"PLAIN" not in came:
                    part = peer.recv()
                    if not part:
                        break
                    came += part
                return came
        except (OSError, CutError, ssl.SSLError):
            return b""

    def get(self, path: str, shown: Shown | None = None, **headers: str) -> tuple[int, object]:
        context = self.server.client() if shown is None else shown.context(self.server)
        port = self.gateway.management_port
        connection = http.client.HTTPSConnection(HOST, port, timeout=20, context=context)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("certified")
    server, maker = Authority(folder / "server"), Maker(folder / "clients")
    pair = server.issue()
    names = ["asked", "required"]
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    text = RULES + LISTENERS.format(
        **ports,
        certificate=pair.certificate,
        key=pair.key,
        ca=maker.authorities,
        crl=maker.lists,
    )
    file = folder / "gate.toml"
    file.write_text(text, "utf-8")
    gateway = ScratchGateway(folder, config=file, tls=pair, tls_management=True)
    add_user(gateway, "bob", "se:cret")
    with gateway:
        yield Running(gateway, file, ports, server, maker)


@pytest.fixture(scope="module")
def ann(running: Running) -> Shown:
    return running.maker.client(named("ann"))


def frame(performative: object, kind: int = 0) -> bytes:
    body = encode_performative(performative)
    return struct.pack(">IBBH", 8 + len(body), 2, kind, 0) + body


# ---- whose it is


def test_stomp_without_a_login_takes_the_user_of_the_certificate(
    running: Running, ann: Shown
) -> None:
    assert running.stomp(ann).startswith(b"CONNECTED")
    assert running.stomp(ann, "required").startswith(b"CONNECTED")


def test_stomp_without_certificate_or_login_is_refused(running: Running) -> None:
    assert running.stomp(None).startswith(b"ERROR")
    assert running.stomp(None, "required") == b""
    records = wait_records(running.gateway, "tls.failed")
    assert any(one["reason"] == "peer-did-not-return-a-certificate" for one in records)


def login(user: str, passcode: str | None = None) -> bytes:
    more = "" if passcode is None else f"passcode:{passcode}\n"
    return f"CONNECT\naccept-version:1.2\nhost:h\nlogin:{user}\n{more}\n\0".encode()


@pytest.mark.parametrize(
    ("connect", "answer"),
    [
        (login("ann"), b"CONNECTED"),
        (login("bob"), b"ERROR"),  # of the certificate's user there is no word
        (login("bob", "se:cret"), b"CONNECTED"),
        (login("bob", "wrong"), b"ERROR"),
        (login("ann", "anything"), b"ERROR"),  # a passcode is checked, and ann has none
    ],
)
def test_a_stomp_login_beside_a_certificate_has_to_be_right(
    connect: bytes, answer: bytes, running: Running, ann: Shown
) -> None:
    assert running.stomp(ann, connect=connect).startswith(answer)


def test_external_is_offered_to_those_only_whose_certificate_is_a_users(
    running: Running, ann: Shown
) -> None:
    assert b"EXTERNAL" in running.mechanisms(ann)
    nobodys = running.maker.client(named("nobody"))
    for shown in (None, nobodys):
        offered = running.mechanisms(shown)
        assert b"PLAIN" in offered
        assert b"EXTERNAL" not in offered


def external(peer: Peer) -> bytes:
    peer.sendall(SASL + frame(SaslInit(mechanism="EXTERNAL", initial_response=b""), kind=1))
    return peer.until(OUTCOME)


def test_external_lets_in_as_the_certificates_user(running: Running) -> None:
    shown = running.maker.client(
        named("whoever"), x509.UniformResourceIdentifier("spiffe://example/svc")
    )
    with connected(running.ports["required"], shown.context(running.server)) as peer:
        said = external(peer)
        assert b"\x50\x00" in said[said.index(OUTCOME) :]  # code 0: ok [SASL 5.3.3.6]
        peer.sendall(AMQP + frame(Open(container_id="by-certificate")))
        peer.until(b"\x00\x53\x10")
        encoded = base64.b64encode(b"bob:se:cret").decode()
        status, found = running.get("/api/v1/connections", Authorization=f"Basic {encoded}")
        assert status == 200
        users = {one["user"] for one in found["items"]}
        assert "svc" in users


def test_external_that_was_not_offered_is_refused(running: Running) -> None:
    nobodys = running.maker.client(named("nobody"))
    with connected(running.ports["asked"], nobodys.context(running.server)) as peer:
        said = external(peer)
        assert b"\x50\x01" in said[said.index(OUTCOME) :]


def test_http_takes_the_certificate_where_no_login_is_given(running: Running, ann: Shown) -> None:
    assert running.get("/api/v1/queues", ann)[0] == 200
    assert running.get("/api/v1/queues")[0] == 401
    assert running.get("/api/v1/queues", running.maker.client(named("nobody")))[0] == 401
    encoded = base64.b64encode(b"bob:wrong").decode()
    assert running.get("/api/v1/queues", ann, Authorization=f"Basic {encoded}")[0] == 401


def test_the_metric_says_how_long_each_listener_has_left(running: Running, ann: Shown) -> None:
    context = ann.context(running.server)
    port = running.gateway.management_port
    connection = http.client.HTTPSConnection(HOST, port, timeout=20, context=context)
    connection.request("GET", "/metrics")
    told = connection.getresponse().read().decode()
    connection.close()
    for listener in ("acceptors.asked", "acceptors.required", "management"):
        name = f'sluicegate_tls_certificate_expires_seconds{{listener="{listener}"}} '
        (line,) = [one for one in told.splitlines() if one.startswith(name)]
        assert float(line.removeprefix(name)) > 365 * 86_400


# ---- whose it is not


def test_of_all_hostile_certificates_none_lets_anybody_in(running: Running, ann: Shown) -> None:
    """And whoever is in meanwhile is not harmed."""
    now = dt.datetime.now(dt.UTC).replace(microsecond=0)
    rows = table(running.maker, running.server, now)
    assert len(rows) >= 200
    let_in, judged = [], 0
    with connected(running.ports["required"], ann.context(running.server)) as honest:
        honest.sendall(CONNECT)
        honest.until(b"CONNECTED")
        for number, (what, make) in enumerate(rows):
            try:
                shown = make()
                shown.context(running.server)
            except (ValueError, ssl.SSLError) as error:
                raise AssertionError(f"{what} cannot be shown: {error}") from error
            came = running.stomp(shown)
            judged += came.startswith(b"ERROR")  # TLS took it, and no rule fits
            if came.startswith(b"CONNECTED"):
                let_in.append(what)
            elif number % 5 == 0 and b"EXTERNAL" in running.mechanisms(shown):
                let_in.append(f"{what}, over AMQP")
        honest.sendall(SEND)
        assert b"RECEIPT" in honest.until(b"receipt-id:1")
    assert let_in == []
    assert judged > 50
    wait_records(running.gateway, "tls.failed", len(rows) - judged)
    log = log_text(running.gateway)
    assert "\x1b" not in log
    assert "\u202e" not in log
    told = {one["reason"] for one in records(running.gateway, "tls.failed")}
    assert {
        "certificate-has-expired",
        "certificate-is-not-yet-valid",
        "certificate-revoked",
        "certificate-signature-failure",
        "unsuitable-certificate-purpose",
        "certificate-chain-too-long",
        "unable-to-get-certificate-crl",
    } <= told
    assert not records(running.gateway, "gateway.failed")


# ---- while it runs


def test_a_list_that_is_replaced_counts_from_the_next_connection_on(running: Running) -> None:
    maker = running.maker
    shown, other = maker.client(named("ann")), maker.client(named("ann"))
    assert running.stomp(shown).startswith(b"CONNECTED")
    with connected(running.ports["asked"], shown.context(running.server)) as there:
        there.sendall(CONNECT)
        there.until(b"CONNECTED")
        maker.revoke(shown.made.serial_number)
        wait_until(lambda: running.stomp(shown) == b"")
        assert running.stomp(other).startswith(b"CONNECTED")
        there.sendall(SEND)
        there.until(b"receipt-id:1")
    (told,) = wait_records(running.gateway, "tls.failed", reason="certificate-revoked")[:1]
    assert "client-crl" in str(told["meaning"])
    maker.revoke()
    wait_until(lambda: running.stomp(shown).startswith(b"CONNECTED"))


def test_an_authority_that_is_revoked_takes_all_with_it(running: Running) -> None:
    maker = running.maker
    gone = maker.below(maker.root, "Clients gone")
    shown = maker.client(named("ann"), signer=gone)
    maker.revoke()
    wait_until(lambda: running.stomp(shown).startswith(b"CONNECTED"))
    maker.revoke(root=[gone.chain[0].serial_number])
    wait_until(lambda: running.stomp(shown) == b"")
    maker.revoke()


def test_a_list_that_is_out_of_date_lets_nobody_in_and_is_told(running: Running) -> None:
    maker = running.maker
    shown = maker.client(named("ann"))
    maker.revoke(until=dt.datetime.now(dt.UTC) - dt.timedelta(hours=1))
    wait_until(lambda: running.stomp(shown) == b"")
    assert wait_records(running.gateway, "certificate.revocations_expired")
    assert wait_records(running.gateway, "tls.failed", reason="crl-has-expired")
    maker.revoke()
    wait_until(lambda: running.stomp(shown).startswith(b"CONNECTED"))


def test_a_list_that_is_nonsense_leaves_the_old_one(running: Running) -> None:
    maker = running.maker
    shown, other = maker.client(named("ann")), maker.client(named("ann"))
    maker.revoke(shown.made.serial_number)
    wait_until(lambda: running.stomp(shown) == b"")
    before = len(records(running.gateway, "certificate.refused"))
    for text in (b"", b"nonsense", revoking(maker.between, ())):
        maker.lists.write_bytes(text)
        time.sleep(1.1)
        assert running.stomp(shown) == b""
        assert running.stomp(other).startswith(b"CONNECTED")
    told = wait_records(running.gateway, "certificate.refused", before + 3)
    assert {str(one["key"]) for one in told[before:]} <= {
        "acceptors.asked.tls.client-crl",
        "acceptors.required.tls.client-crl",
    }
    maker.revoke()
    wait_until(lambda: running.stomp(shown).startswith(b"CONNECTED"))


def test_rules_that_are_read_again_end_those_whom_no_rule_names_any_more(
    running: Running, ann: Shown
) -> None:
    text = running.file.read_text("utf-8")
    uri = x509.UniformResourceIdentifier("spiffe://example/svc")
    svc = running.maker.client(named("other"), uri)
    try:
        with (
            connected(running.ports["asked"], ann.context(running.server)) as gone,
            connected(running.ports["asked"], svc.context(running.server)) as stays,
        ):
            for peer in (gone, stays):
                peer.sendall(CONNECT)
                peer.until(b"CONNECTED")
            running.file.write_text(text.replace('user = "ann"', 'user = "anne"'), "utf-8")
            os.kill(running.gateway.pid, signal.SIGHUP)
            assert b"ERROR" in gone.rest()
            stays.sendall(SEND)
            stays.until(b"receipt-id:1")
            assert running.stomp(ann, connect=login("anne")).startswith(b"CONNECTED")
    finally:
        running.file.write_text(text, "utf-8")
        os.kill(running.gateway.pid, signal.SIGHUP)
    wait_until(lambda: running.stomp(ann, connect=login("ann")).startswith(b"CONNECTED"))


PERMISSIONS = """
[security-settings."#"]
send = ["senders"]
create-address = ["senders"]
create-durable-queue = ["senders"]
consume = ["others"]
"""


def test_roles_of_a_rule_decide_what_its_user_may_do(tmp_path: Path) -> None:
    server, maker = Authority(tmp_path / "server"), Maker(tmp_path / "clients")
    (port,) = free_ports(1)
    pair = server.issue()
    files = {"certificate": pair.certificate, "key": pair.key}
    listener = LISTENERS.partition("[acceptors.required]")[0]
    text = RULES + PERMISSIONS
    text += listener.format(asked=port, ca=maker.authorities, crl=maker.lists, **files)
    file = tmp_path / "gate.toml"
    file.write_text(text, "utf-8")
    uri = x509.UniformResourceIdentifier("spiffe://example/svc")
    svc = maker.client(named("x"), uri).context(server)
    gateway = ScratchGateway(tmp_path, config=file, tls=pair)
    add_user(gateway, "bob", "se:cret", "--role", "admin")
    with gateway:
        with connected(port, svc) as peer:
            peer.sendall(CONNECT)
            peer.until(b"CONNECTED")
            peer.sendall(SEND)
            peer.until(b"receipt-id:1")
            peer.sendall(b"SUBSCRIBE\nid:1\ndestination:certified\n\n\0")
            assert b"not-authorized" in peer.rest()
        # The same rule with another role, while it is connected.
        with connected(port, svc) as peer:
            peer.sendall(CONNECT)
            peer.until(b"CONNECTED")
            file.write_text(text.replace('roles = ["senders"]', 'roles = ["others"]'), "utf-8")
            os.kill(gateway.pid, signal.SIGHUP)
            wait_records(gateway, "config.reloaded")
            peer.sendall(b"SUBSCRIBE\nid:1\ndestination:certified\nreceipt:2\n\n\0")
            peer.until(b"receipt-id:2")
