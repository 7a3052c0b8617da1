"""Clients that come in by a certificate: Proton, Qpid JMS, stomp.py, curl, a WebSocket."""

from __future__ import annotations

import http.client
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import stomp
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from proton import ConnectionException, Message, SSLDomain
from proton.utils import BlockingConnection

from gateway.trial.scratch import HOST, ScratchGateway, importing_environment
from tests.certificates import Authority
from tests.client_certificates import Maker, Shown, named
from tests.gateway.websocket_peer import WebSocketClient
from tests.interop.qpid_jms import NoJmsError, install
from tests.interop.support import SECONDS, add_user, wait_until
from tests.interop.test_qpid_jms import PASSWORD, Peer
from tests.logs import wait_records
from tests.secure import CutError, connected

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

CLIENTS = """
client-certificates = "{wanted}"
client-ca = "{ca}"
client-crl = "{crl}"
"""
FILE = """
[[certificate-users]]
subject-matches = 'CN=([a-z]{{1,20}}),O=Example'
user = '\\1'

[acceptors.all.tls]{required}
[acceptors.stomp.tls]{asked}
[management.tls]{asked}
"""


@dataclass
class Running:
    """A gateway that asks for certificates, who makes them, and whom clients trust."""

    gateway: ScratchGateway
    server: Authority
    maker: Maker

    def client(self, common: str, **more: object) -> Shown:
        return self.maker.client(named(common), **more)

    def events(self, name: str, **facts: object) -> list[dict[str, object]]:
        return wait_records(self.gateway, name, **facts)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("certified")
    server, maker = Authority(folder / "server"), Maker(folder / "clients")
    file = folder / "gate.toml"
    both = {
        wanted: CLIENTS.format(wanted=wanted, ca=maker.authorities, crl=maker.lists)
        for wanted in ("asked", "required")
    }
    file.write_text(FILE.format(**both), "utf-8")
    pair = server.issue()
    gateway = ScratchGateway(folder, config=file, tls=pair, tls_management=True)
    add_user(gateway, "bob", "se:cret")
    # What clients are given to trust is the authority, not the certificate itself.
    gateway.certificate = server.root
    with gateway:
        yield Running(gateway, server, maker)


def domain(running: Running, shown: Shown | None) -> SSLDomain:
    made = SSLDomain(SSLDomain.MODE_CLIENT)
    made.set_trusted_ca_db(str(running.server.root))
    made.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    if shown is not None:
        made.set_credentials(str(shown.certificate), str(shown.key), None)
    return made


def proton(running: Running, shown: Shown | None, **more: object) -> BlockingConnection:
    return BlockingConnection(
        f"amqps://localhost:{running.gateway.port}",
        ssl_domain=domain(running, shown),
        timeout=SECONDS,
        **more,
    )


def test_proton_comes_in_by_external(running: Running) -> None:
    connection = proton(running, running.client("carol"), allowed_mechs="EXTERNAL")
    try:
        connection.create_sender("by.proton").send(Message("x"))
        received = connection.create_receiver("by.proton").receive(timeout=SECONDS)
        assert received.body == "x"
    finally:
        connection.close()
    assert running.events("login.accepted", user="carol", protocol="AMQP 1.0")


def test_proton_chooses_external_by_itself(running: Running) -> None:
    connection = proton(running, running.client("dora"))
    connection.close()
    assert running.events("login.accepted", user="dora", protocol="AMQP 1.0")


def test_proton_with_a_password_beside_its_certificate(running: Running) -> None:
    connection = proton(
        running, running.client("erin"), allowed_mechs="PLAIN", user="bob", password="se:cret"
    )
    connection.close()
    assert running.events("login.accepted", user="bob", protocol="AMQP 1.0")


@pytest.mark.parametrize("what", ["none", "a stranger's", "revoked"])
def test_proton_without_a_good_certificate_is_refused(
    what: str, running: Running, tmp_path: Path
) -> None:
    if what == "none":
        shown = None
    elif what == "revoked":
        shown = running.client("carol")
        running.maker.revoke(shown.made.serial_number)
        wait_revoked(running, shown)
    else:
        shown = Maker(tmp_path / "strangers", "Strangers").client(named("carol"))
    with pytest.raises(ConnectionException):
        proton(running, shown, allowed_mechs="EXTERNAL")
    running.maker.revoke()


def wait_revoked(running: Running, shown: Shown) -> None:
    """Connect until TLS refuses it."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            with connected(running.gateway.port, shown.context(running.server)) as peer:
                peer.sendall(b"AMQP\x03\x01\x00\x00")
                peer.recv()
        except (OSError, CutError, ssl.SSLError):
            return
        time.sleep(0.2)
    raise AssertionError("not revoked")


# ---- Qpid JMS


def stores(running: Running, shown: Shown | None, folder: Path) -> dict[str, str]:
    """Return the options of Qpid JMS that name a trust store and a key store."""
    hidden = serialization.BestAvailableEncryption(PASSWORD.encode())
    root = x509.load_pem_x509_certificate(running.server.root.read_bytes())
    trust, keys = folder / "trust.p12", folder / "keys.p12"
    trust.write_bytes(
        pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(root, b"gateway")], hidden)
    )
    options = {
        "transport.trustStoreLocation": str(trust),
        "transport.trustStorePassword": PASSWORD,
        "transport.trustStoreType": "PKCS12",
        "amqp.saslMechanisms": "EXTERNAL",
    }
    if shown is None:
        return options
    every = x509.load_pem_x509_certificates(shown.certificate.read_bytes())
    key = serialization.load_pem_private_key(shown.key.read_bytes(), None)
    keys.write_bytes(
        pkcs12.serialize_key_and_certificates(b"client", key, every[0], every[1:], hidden)
    )
    return options | {
        "transport.keyStoreLocation": str(keys),
        "transport.keyStorePassword": PASSWORD,
        "transport.keyStoreType": "PKCS12",
    }


@pytest.fixture(scope="module")
def command() -> list[str]:
    try:
        return install()
    except NoJmsError as error:
        pytest.fail(str(error))


@pytest.mark.xdist_group("jms")
@pytest.mark.parametrize("websocket", [False, True], ids=["tls", "wss"])
def test_qpid_jms_comes_in_by_external(
    websocket: bool,
    running: Running,
    command: list[str],
    tmp_path: Path,
) -> None:
    user = "fay" if websocket else "gus"
    options = stores(running, running.client(user), tmp_path)
    peer = Peer(command, running.gateway, websocket=websocket, options=options)
    try:
        seen = peer.play("large", f"by.jms.{user}")
        assert seen == {"same": True, "left": 0}
    finally:
        peer.end()
    assert running.events("login.accepted", user=user)


@pytest.mark.xdist_group("jms")
def test_qpid_jms_without_a_certificate_is_refused(
    running: Running, command: list[str], tmp_path: Path
) -> None:
    peer = Peer(command, running.gateway, options=stores(running, None, tmp_path))
    try:
        with pytest.raises(pytest.fail.Exception):
            peer.play("large", "by.jms.nobody")
    finally:
        peer.end()


# ---- STOMP, HTTP, WebSocket


class Heard(stomp.ConnectionListener):
    def __init__(self) -> None:
        self.bodies: list[str] = []
        self.errors: list[str] = []

    def on_message(self, frame: stomp.utils.Frame) -> None:
        self.bodies.append(frame.body)

    def on_error(self, frame: stomp.utils.Frame) -> None:
        self.errors.append(frame.headers["message"])


def test_stomp_py_comes_in_by_its_certificate(running: Running) -> None:
    shown = running.client("hal")
    where = [(HOST, running.gateway.stomp_port)]
    connection = stomp.Connection12(where)
    connection.set_ssl(
        for_hosts=where,
        ca_certs=str(running.server.root),
        cert_file=str(shown.certificate),
        key_file=str(shown.key),
    )
    heard = Heard()
    connection.set_listener("", heard)
    connection.connect(wait=True)
    connection.send("by.stomp", "x", receipt="1")
    connection.subscribe("by.stomp", id="1", ack="auto")
    wait_until(lambda: heard.bodies == ["x"])
    connection.disconnect()
    assert running.events("login.accepted", user="hal", protocol="STOMP 1.2")
    assert heard.errors == []


def test_curl_asks_the_api_by_its_certificate(running: Running) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("there is no curl")
    shown = running.client("ida")
    ask = [curl, "-sS", "--max-time", "20", "--cacert", str(running.server.root)]
    where = f"https://localhost:{running.gateway.management_port}/api/v1/queues"
    told = ["-o", "/dev/null", "-w", "%{http_code}", where]
    by_certificate = ["--cert", str(shown.certificate), "--key", str(shown.key)]
    for options, status in (([], "401"), (by_certificate, "200")):
        answer = subprocess.run(
            [*ask, *options, *told], capture_output=True, text=True, timeout=60, check=True
        )
        assert answer.stdout == status


@pytest.mark.parametrize("listener", ["acceptor", "management"])
def test_a_websocket_comes_in_by_its_certificate(listener: str, running: Running) -> None:
    user = "jan" if listener == "acceptor" else "kay"
    gateway = running.gateway
    port, path = (
        (gateway.port, "/ws") if listener == "acceptor" else (gateway.management_port, "/stomp")
    )
    context = running.client(user).context(running.server)
    client = WebSocketClient(port, path, subprotocols=["v12.stomp"], context=context)
    with client:
        client.say("CONNECT\naccept-version:1.2\nhost:h\n\n\0")
        assert client.read().startswith(b"CONNECTED")
    assert running.events("login.accepted", user=user)


def test_queues_that_were_made_belong_to_the_certificates_user(running: Running) -> None:
    shown = running.client("lea")
    connection = proton(running, shown)
    try:
        connection.create_sender("by.lea").send(Message("x"))
    finally:
        connection.close()
    context = shown.context(running.server)
    api = http.client.HTTPSConnection(
        HOST, running.gateway.management_port, timeout=20, context=context
    )
    api.request("GET", "/metrics")
    told = api.getresponse().read().decode()
    api.close()
    assert 'sluicegate_user_objects{user="lea",kind="queues"} 1' in told


def test_commands_come_in_by_a_certificate(running: Running) -> None:
    gateway, shown = running.gateway, running.client("max")
    trust = ["--cafile", str(running.server.root)]
    show = ["--cert", str(shown.certificate), "--key", str(shown.key)]
    amqp = ["--url", f"amqps://localhost:{gateway.port}"]
    https = ["--url", f"https://localhost:{gateway.management_port}"]

    def ran(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "gateway", *words]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=importing_environment(),
        )

    assert ran("send", "by.max", "hi", *amqp, *trust, *show).returncode == 0
    received = ran("receive", "by.max", "--limit", "1", *amqp, *trust, *show)
    assert "hi" in received.stdout
    assert ran("reload", *https, *trust, *show).returncode == 0
    assert ran("reload", *https, *trust).returncode != 0
    wrong = ran("send", "by.max", "hi", *amqp, *trust, "--cert", str(shown.key))
    assert wrong.returncode == 64
    assert "bad-cert: --cert" in wrong.stderr
    alone = ran("send", "by.max", "hi", *amqp, *trust, "--key", str(shown.key))
    assert alone.returncode == 64
    assert running.events("login.accepted", user="max")
