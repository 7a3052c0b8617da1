"""Qpid JMS against the gateway: transactions, selectors, browsers, subscriptions, message kinds."""

from __future__ import annotations

import json
import queue as queues
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from gateway.trial.scratch import ScratchGateway
from gateway.trial.self_signed import KeyPair
from tests.interop.conftest import SETTINGS
from tests.interop.qpid_jms import NoJmsError, install
from tests.interop.support import add_user, amqp_url, queue, wait_until
from tests.logs import wait_records

# One worker, for one installation and one Java.
pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("jms"), pytest.mark.timeout(240)]

SECONDS = 40.0
FULL = (
    *SETTINGS,
    'address-settings."full.#".address-full-policy=FAIL',
    'address-settings."full.#".max-size-messages=5',
)


PASSWORD = "the store's password"
#: Scenarios over WebSocket: frames of AMQP that are small, large, many, and those of a transaction.
OVER_WEBSOCKET = ["transacted", "large", "listener", "request", "bodies"]


def url(gateway: ScratchGateway, *, websocket: bool = False, **options: str) -> str:
    """Where AMQP is spoken; over TLS with the one certificate that is trusted."""
    where = amqp_url(gateway)
    if websocket:
        where = where.replace("amqps:", "amqpwss:").replace("amqp:", "amqpws:")
    if gateway.certificate is not None:
        trusted = x509.load_pem_x509_certificate(gateway.certificate.read_bytes())
        store = gateway.certificate.with_suffix(".p12")
        protection = serialization.BestAvailableEncryption(PASSWORD.encode())
        store.write_bytes(
            pkcs12.serialize_java_truststore(
                [pkcs12.PKCS12Certificate(trusted, b"gateway")], protection
            )
        )
        options |= {
            "transport.trustStoreLocation": str(store),
            "transport.trustStorePassword": PASSWORD,
            "transport.trustStoreType": "PKCS12",
        }
    return f"{where}?{urlencode(options)}" if options else where


class Peer:
    """A Java process that plays one scenario after the other."""

    def __init__(
        self,
        command: list[str],
        gateway: ScratchGateway,
        *,
        websocket: bool = False,
        options: dict[str, str] | None = None,
    ) -> None:
        self._process = subprocess.Popen(
            [*command, url(gateway, websocket=websocket, **(options or {}))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="ascii",
        )
        self._answers: queues.Queue[str] = queues.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)

    def play(self, scenario: str, address: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{scenario} {address}\n")
        self._process.stdin.flush()
        seen = json.loads(self._answers.get(timeout=SECONDS))
        if isinstance(seen, dict) and "failed" in seen:
            pytest.fail(f"{scenario}: {seen['failed']}")
        return seen

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@pytest.fixture(scope="module")
def gateway(
    tmp_path_factory: pytest.TempPathFactory, tls: KeyPair | None
) -> Iterator[ScratchGateway]:
    with ScratchGateway(tmp_path_factory.mktemp("gateway"), settings=FULL, tls=tls) as running:
        yield running


@pytest.fixture(scope="module")
def command() -> list[str]:
    try:
        return install()
    except NoJmsError as error:
        pytest.fail(str(error))


@pytest.fixture(scope="module")
def peer(command: list[str], gateway: ScratchGateway) -> Iterator[Peer]:
    made = Peer(command, gateway)
    yield made
    made.end()


@pytest.fixture(scope="module")
def by_websocket(command: list[str], gateway: ScratchGateway) -> Iterator[Peer]:
    made = Peer(command, gateway, websocket=True)
    yield made
    made.end()


def numbers(*which: int) -> list[str]:
    return [str(number) for number in which]


def test_a_session_in_transactions(peer: Peer, address: str) -> None:
    seen = peer.play("transacted", address)
    assert seen == {
        "before": 0,
        "undone": 0,
        "done": 3,
        "first": ["10", "11"],
        "again": [["10", True, 2], ["11", True, 2], ["12", False, 1]],
        "left": 0,
    }


def test_what_is_taken_and_answered_in_one_transaction(peer: Peer, address: str) -> None:
    seen = peer.play("answering", address)
    assert seen["undone"] >= 5
    # In order as well: what a rollback gave back comes again before what is behind it.
    assert seen["answers"] == numbers(*range(60))
    assert (seen["more"], seen["left"]) == (False, 0)


def test_q7_a_commit_into_a_full_address_is_rolled_back(peer: Peer) -> None:
    seen = peer.play("full", "full.jms")
    assert "'full.jms' is full" in seen["refused"]
    assert "rolled back" in seen["refused"]
    assert (seen["kept"], seen["later"]) == (0, 2)


def test_a_consumer_that_is_closed_in_a_transaction(peer: Peer, address: str) -> None:
    assert peer.play("closing", address) == {"came": ["0", "1", "2"], "left": 1}


def test_bodies_of_many_frames_in_a_transaction(peer: Peer, address: str) -> None:
    assert peer.play("large", address) == {"same": True, "left": 0}


def test_a_listener_that_commits_each_message(
    peer: Peer, gateway: ScratchGateway, address: str
) -> None:
    assert peer.play("listener", address) == numbers(*range(50))
    wait_until(lambda: queue(gateway, address)["messageCount"] == 0)


def test_selectors(peer: Peer, address: str) -> None:
    seen = peer.play("selector", address)
    assert seen == {"odd": ["3", "5", "7"], "more": False, "urgent": ["10", "11"]}


def test_a_browser_takes_nothing(peer: Peer, address: str) -> None:
    seen = peer.play("browser", address)
    assert seen == {"even": ["0", "2", "4"], "all": 6, "taken": numbers(*range(6))}


def test_priorities(peer: Peer, address: str) -> None:
    assert peer.play("priorities", address) == numbers(*range(9, -1, -1))


def test_a_delivery_delay(peer: Peer, address: str) -> None:
    seen = peer.play("delay", address)
    assert (seen["early"], seen["body"]) == (False, "late")
    assert 890 <= seen["millis"] < 8000


def test_what_has_expired_does_not_come(peer: Peer, address: str) -> None:
    assert peer.play("expiry", address) == ["there"]


def test_a_durable_subscription_with_a_selector(peer: Peer, address: str) -> None:
    seen = peer.play("durable", address)
    assert seen == {"live": ["1", "3"], "meanwhile": ["5", "7"], "anew": False}


def test_a_shared_durable_subscription(peer: Peer, address: str) -> None:
    assert peer.play("shared", address) == {
        "alone": numbers(*range(10)),
        "between": numbers(*range(10)),
    }


def test_the_fields_of_groups_arrive_in_order(peer: Peer, address: str) -> None:
    seen = peer.play("groups", address)
    assert sum(len(own) for own in seen) == 20
    for own in seen:
        for group in {name for name, _ in own}:
            found = [number for name, number in own if name == group]
            assert found == sorted(found)


def test_bodies_of_every_kind(peer: Peer, address: str) -> None:
    assert peer.play("bodies", address) == [
        "grün",
        [7, "bytes"],
        [1 << 40, "map"],
        [True, 0.5],
        "no body",
        "object",
    ]


def test_headers_and_properties(peer: Peer, address: str) -> None:
    assert peer.play("headers", address) == {
        "correlation": "correlation",
        "type": "type",
        "reply": "answers",
        "destination": address,
        "mode": 2,
        "priority": 7,
        "id": True,
        "expires": True,
        "yes": True,
        "half": 0.5,
    }


def test_a_request_is_answered_at_a_temporary_queue(peer: Peer, address: str) -> None:
    assert peer.play("request", address) == {"answer": "QUESTION", "same": True}


def test_a_session_that_recovers_gets_them_again(peer: Peer, address: str) -> None:
    seen = peer.play("recover", address)
    assert seen == {"first": ["0", "1"], "again": ["0", "1"], "last": "2", "left": 0}


def test_messages_of_websocket_are_no_larger_than_the_frames_that_qpid_takes(
    gateway: ScratchGateway, command: list[str]
) -> None:
    peer = Peer(command, gateway, websocket=True, options={"amqp.maxFrameSize": "4096"})
    try:
        assert peer.play("large", "ws.small.frames") == {"same": True, "left": 0}
    finally:
        peer.end()


@pytest.mark.parametrize("scenario", OVER_WEBSOCKET)
def test_websocket_does_what_tcp_does(
    peer: Peer, by_websocket: Peer, gateway: ScratchGateway, scenario: str
) -> None:
    assert by_websocket.play(scenario, f"ws.{scenario}") == peer.play(scenario, f"tcp.{scenario}")
    wait_records(gateway, "connection.opened", protocol="WebSocket")


def test_scram_lets_in_who_has_a_verifier(
    command: list[str], tmp_path: Path, tls: KeyPair | None
) -> None:
    gateway = ScratchGateway(tmp_path, tls=tls)
    add_user(gateway, "ann", "se:cret", "--scram")
    with gateway:
        peer = Peer(command, gateway)
        try:
            for mechanism in ("SCRAM-SHA-256", "PLAIN"):
                assert peer.play("login", f"ann,se:cret,{mechanism}") == "open"
                refused = "JMSSecuritySaslException"
                assert peer.play("login", f"ann,wrong,{mechanism}") == refused
                assert peer.play("login", f"eve,se:cret,{mechanism}") == refused
        finally:
            peer.end()


def test_a_login_over_websocket(guarded: ScratchGateway, command: list[str]) -> None:
    peer = Peer(command, guarded, websocket=True)
    try:
        assert peer.play("login", "ann,se:cret,PLAIN") == "open"
        assert peer.play("login", "ann,wrong,PLAIN") == "JMSSecuritySaslException"
    finally:
        peer.end()


def test_scram_is_not_offered_when_one_user_cannot_use_it(
    command: list[str], tmp_path: Path, tls: KeyPair | None
) -> None:
    gateway = ScratchGateway(tmp_path, tls=tls)
    add_user(gateway, "ann", "se:cret", "--scram")
    add_user(gateway, "bob", "hidden")
    with gateway:
        peer = Peer(command, gateway)
        try:
            assert peer.play("login", "ann,se:cret,SCRAM-SHA-256") == "JMSSecuritySaslException"
            assert peer.play("login", "bob,hidden,PLAIN") == "open"
        finally:
            peer.end()
