"""Clients of other projects come in by tokens, renew them, and end with them.

Proton by PLAIN and rhea by XOAUTH2, both by `$cbs`; stompjs and stomp.py by passcode,
`Authorization`, cookie and `$token`; over TCP, TLS and WebSocket.
"""

from __future__ import annotations

import json
import queue as queues
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
import stomp
from proton import ConnectionException, Message
from proton.utils import BlockingConnection

from gateway.trial.scratch import HOST, ScratchGateway
from gateway.trial.self_signed import KeyPair
from tests.interop.node import FOLDER, STOMPJS, NoNodeError, install
from tests.interop.support import SECONDS, amqp_url, over_tls, trust
from tests.tokens.live import LiveIssuer, believing

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("rhea"), pytest.mark.timeout(180)]
ORIGIN = "https://shop.example"


@pytest.fixture(scope="module")
def issuer() -> Iterator[LiveIssuer]:
    with LiveIssuer() as one:
        yield one


@pytest.fixture(scope="module")
def gateway(
    tmp_path_factory: pytest.TempPathFactory, issuer: LiveIssuer, tls: KeyPair | None
) -> Iterator[ScratchGateway]:
    folder = tmp_path_factory.mktemp("tokens")
    cookie = ("acceptors.all.ws-token-cookie='sluicegate'",)
    origins = (f"acceptors.all.allowed-origins=['{ORIGIN}']",)
    with believing(folder, issuer, *cookie, *origins, tls=tls) as one:
        yield one


@pytest.fixture(scope="module")
def node() -> list[str]:
    try:
        install(STOMPJS)
        return install()
    except NoNodeError as error:
        pytest.fail(str(error))


def blocking(gateway: ScratchGateway, **options: Any) -> BlockingConnection:
    return BlockingConnection(
        amqp_url(gateway), ssl_domain=trust(gateway), timeout=SECONDS, **options
    )


class TestProton:
    def test_comes_in(self, gateway: ScratchGateway, issuer: LiveIssuer, address: str) -> None:
        """By PLAIN: without Cyrus Proton has no XOAUTH2."""
        options = {"allowed_mechs": "PLAIN", "user": "ann"}
        connection = blocking(gateway, password=issuer.token(), **options)
        sender = connection.create_sender(address)
        sender.send(Message(body="one"))
        connection.close()
        for bad in (issuer.token("bob"), issuer.token(seconds=-1), issuer.token(aud="x"), "tea"):
            with pytest.raises(ConnectionException):
                blocking(gateway, password=bad, **options)

    def test_without_a_choice_of_its_own(self, gateway: ScratchGateway, issuer: LiveIssuer) -> None:
        blocking(gateway, user="ann", password=issuer.token()).close()

    def test_ends_with_its_token(
        self, gateway: ScratchGateway, issuer: LiveIssuer, address: str
    ) -> None:
        ends = time.time() + 2.0
        connection = blocking(
            gateway, user="ann", password=issuer.token(exp=ends), allowed_mechs="PLAIN"
        )
        receiver = connection.create_receiver(address)
        with pytest.raises(ConnectionException, match="unauthorized-access"):
            receiver.receive(timeout=SECONDS)
        assert 0 <= time.time() - ends < 1.0

    def test_renews_by_cbs(self, gateway: ScratchGateway, issuer: LiveIssuer, address: str) -> None:
        """The messages are those of Azure's libraries."""
        ends = time.time() + 2.0
        connection = blocking(
            gateway, user="ann", password=issuer.token(exp=ends), allowed_mechs="PLAIN"
        )
        receiver = connection.create_receiver("$cbs", credit=10)
        sender = connection.create_sender("$cbs")

        def put(token: str, **said: Any) -> tuple[Any, int, str]:
            properties = {"operation": "put-token", "type": "jwt", "name": f"amqp://x/{address}"}
            sender.send(Message(id="m1", reply_to="$cbs", properties=properties | said, body=token))
            answer = receiver.receive(timeout=SECONDS)
            found = answer.properties
            return answer.correlation_id, found["status-code"], found["status-description"]

        assert put(issuer.token("bob"))[:2] == ("m1", 401)
        assert put(issuer.token(seconds=-1))[:2] == ("m1", 401)
        assert put("no token at all")[:2] == ("m1", 401)
        assert put(issuer.token(), type="servicebus.windows.net:sastoken")[:2] == ("m1", 400)
        assert put(issuer.token(), operation="delete-token")[:2] == ("m1", 400)
        assert put(issuer.token())[:2] == ("m1", 202)
        time.sleep(max(0.0, ends + 0.7 - time.time()))
        connection.create_sender(address).send(Message(body="one"))
        connection.close()


class TestRhea:
    @pytest.mark.parametrize("websocket", [False, True], ids=["stream", "websocket"])
    @pytest.mark.parametrize("mechanism", ["PLAIN", "XOAUTH2"])
    def test_comes_in_and_renews(
        self,
        node: list[str],
        gateway: ScratchGateway,
        issuer: LiveIssuer,
        address: str,
        mechanism: str,
        websocket: bool,
    ) -> None:
        given = {
            "port": gateway.port,
            "certificate": None if gateway.certificate is None else str(gateway.certificate),
            "websocket": websocket,
            "mechanism": mechanism,
            "user": "ann",
            "token": issuer.token(seconds=3.0),
            "next": issuer.token(),
            "address": address,
            "wait": 3500,
        }
        command = [*node, str(FOLDER / "tokens.js"), json.dumps(given)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (ended.returncode, ended.stderr) == (0, "")
        seen = json.loads(ended.stdout)
        assert seen["statuses"] == [[1, 202], [2, 400]]
        assert (seen["accepted"], seen["error"]) == (1, None)

    def test_ends(
        self, node: list[str], gateway: ScratchGateway, issuer: LiveIssuer, address: str
    ) -> None:
        given = {
            "port": gateway.port,
            "certificate": None if gateway.certificate is None else str(gateway.certificate),
            "mechanism": "XOAUTH2",
            "user": "ann",
            "token": issuer.token(seconds=2.0),
            "next": issuer.token("bob"),
            "address": address,
            "wait": 9000,
        }
        command = [*node, str(FOLDER / "tokens.js"), json.dumps(given)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        seen = json.loads(ended.stdout)
        assert seen["statuses"] == [[1, 401], [2, 400]]
        assert (seen["accepted"], seen["error"]) == (0, "amqp:unauthorized-access")


class TestStompjs:
    @pytest.mark.parametrize("way", ["passcode", "bearer", "cookie"])
    def test_a_page_renews_its_token(
        self, node: list[str], gateway: ScratchGateway, issuer: LiveIssuer, address: str, way: str
    ) -> None:
        ends = time.time() + 3.0
        seen = tab(
            node,
            gateway,
            way=way,
            token=issuer.token(exp=ends),
            next=issuer.token(exp=ends + 3.0),
            address=address,
            wait=3600,
        )
        late = time.time() - (ends + 3.0)
        assert (seen["receipts"], seen["messages"]) == (["new"], ["later"])
        assert seen["error"] == "token-expired"
        assert 0 <= late < 1.5, "Node takes its time to end as well"

    @pytest.mark.parametrize("way", ["bearer", "cookie"])
    def test_a_bad_token_opens_no_websocket(
        self, node: list[str], gateway: ScratchGateway, issuer: LiveIssuer, address: str, way: str
    ) -> None:
        for bad in (issuer.token(seconds=-1), "tea"):
            seen = tab(node, gateway, way=way, token=bad, address=address, wait=0)
            assert not seen["connected"]

    def test_a_cookie_counts_for_pages_of_the_list_alone(
        self, node: list[str], gateway: ScratchGateway, issuer: LiveIssuer, address: str
    ) -> None:
        for origin in ("https://thief.example", None):
            seen = tab(
                node, gateway, way="cookie", origin=origin, token=issuer.token(), address=address
            )
            assert not seen["connected"], origin


def tab(node: list[str], gateway: ScratchGateway, **given: Any) -> Any:
    """Return what `stompjs/tokens.js` saw."""
    said = {
        "port": gateway.port,
        "certificate": None if gateway.certificate is None else str(gateway.certificate),
        "user": "ann",
        "origin": ORIGIN,
        "wait": 0,
        **given,
    }
    ended = subprocess.run(
        [*node, str(STOMPJS / "tokens.js")],
        input=json.dumps(said),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return json.loads(ended.stdout)


class Listener(stomp.ConnectionListener):
    """What stomp.py heard."""

    def __init__(self) -> None:
        self.heard: queues.Queue[tuple[str, Any]] = queues.Queue()

    def on_connected(self, frame: Any) -> None:
        self.heard.put(("connected", frame))

    def on_receipt(self, frame: Any) -> None:
        self.heard.put(("receipt", frame))

    def on_error(self, frame: Any) -> None:
        self.heard.put(("error", frame))


def test_stomp_py_comes_in_renews_and_ends(gateway: ScratchGateway, issuer: LiveIssuer) -> None:
    ends = time.time() + 2.0
    client = stomp.Connection12([(HOST, gateway.stomp_port)], heartbeats=(0, 0))
    over_tls(client, gateway)
    listener = Listener()
    client.set_listener("", listener)
    client.connect("ann", issuer.token(exp=ends), wait=True)
    assert listener.heard.get(timeout=SECONDS)[0] == "connected"
    client.send("$token", issuer.token(exp=ends + 1.5), headers={"receipt": "new"})
    kind, frame = listener.heard.get(timeout=SECONDS)
    assert (kind, frame.headers["receipt-id"]) == ("receipt", "new")
    kind, frame = listener.heard.get(timeout=SECONDS)
    assert (kind, frame.headers["error-code"]) == ("error", "token-expired")
    assert 0 <= time.time() - (ends + 1.5) < 1.0
