"""Tokens at a real gateway process, through every door, to their end and beyond it."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.trial.scratch import HOST, ScratchGateway
from tests.gateway.stomp_peer import StompPeer
from tests.gateway.test_strangers_live import sasl
from tests.tokens.live import LiveIssuer, believing

OK, AUTH = b"\x00\x53\x44\xc0\x03\x01\x50\x00", b"\x00\x53\x44\xc0\x03\x01\x50\x01"


@pytest.fixture(scope="module")
def issuer() -> Iterator[LiveIssuer]:
    with LiveIssuer() as one:
        yield one


@pytest.fixture(scope="module")
def gateway(
    tmp_path_factory: pytest.TempPathFactory, issuer: LiveIssuer
) -> Iterator[ScratchGateway]:
    with believing(tmp_path_factory.mktemp("tokens"), issuer) as one:
        yield one


def asked(
    gateway: ScratchGateway,
    path: str,
    token: str = "",
    *,
    method: str = "GET",
    body: Any = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, dict[str, Any]]:
    """Return status and JSON of a call of the API."""
    said = {"Authorization": f"Bearer {token}"} if token else {}
    conn = http.client.HTTPConnection(HOST, gateway.management_port, timeout=20)
    data = None if body is None else json.dumps(body)
    kind = {} if body is None else {"Content-Type": "application/json"}
    conn.request(method, path, data, {**said, **kind, **(headers or {})})
    answer = conn.getresponse()
    text = answer.read()
    conn.close()
    return answer.status, json.loads(text) if text else {}


def frames_until_end(peer: StompPeer) -> list[tuple[str, dict[str, str], bytes]]:
    found = []
    try:
        while True:
            found.append(peer.read())
    except EOFError:
        return found


class TestComingIn:
    def test_stomp_by_its_passcode(self, gateway: ScratchGateway, issuer: LiveIssuer) -> None:
        for user in ("ann", ""):
            peer = StompPeer(gateway.stomp_port, (user, issuer.token()))
            assert peer.greeting[0] == "CONNECTED", peer.greeting
            peer.close()
        for login in (("bob", issuer.token()), ("ann", issuer.token(seconds=-1)), ("ann", "tea")):
            assert StompPeer(gateway.stomp_port, login).greeting[0] == "ERROR"

    def test_many_wrong_tokens_hold_nobody_back(
        self, gateway: ScratchGateway, issuer: LiveIssuer
    ) -> None:
        for _ in range(12):
            peer = StompPeer(gateway.stomp_port, ("ann", issuer.token(aud="other")))
            assert peer.greeting[1]["error-code"] == "not-authorized"
        good = StompPeer(gateway.stomp_port, ("ann", issuer.token()))
        assert good.greeting[0] == "CONNECTED"

    @pytest.mark.parametrize("user", [b"ann", b""])
    def test_sasl_plain(self, gateway: ScratchGateway, issuer: LiveIssuer, user: bytes) -> None:
        token = issuer.token().encode()
        assert OK in long_sasl(gateway.port, "PLAIN", b"\0" + user + b"\0" + token)
        assert AUTH in long_sasl(gateway.port, "PLAIN", b"\0bob\0" + token)

    def test_sasl_oauthbearer_and_xoauth2(
        self, gateway: ScratchGateway, issuer: LiveIssuer
    ) -> None:
        good, bad = (issuer.token(**more).encode() for more in ({}, {"aud": "other"}))
        for name, before in (("OAUTHBEARER", b"n,a=ann,\x01host=x"), ("XOAUTH2", b"user=ann")):
            for token, wanted in ((good, OK), (bad, AUTH)):
                response = before + b"\x01auth=Bearer " + token + b"\x01\x01"
                came = long_sasl(gateway.port, name, response)
                assert wanted in came, (name, came)
        assert OK in long_sasl(
            gateway.port, "OAUTHBEARER", b"n,,\x01auth=Bearer " + good + b"\x01\x01"
        )
        for broken in (
            b"",
            b"n,,\x01\x01",
            b"n,,\x01auth=Basic x\x01\x01",
            b"p=tls-unique,,\x01\x01",
        ):
            assert AUTH in sasl(gateway.port, "OAUTHBEARER", broken)

    def test_http_bearer(self, gateway: ScratchGateway, issuer: LiveIssuer) -> None:
        assert asked(gateway, "/api/v1/queues")[0] == 401
        assert asked(gateway, "/api/v1/queues", issuer.token())[0] == 200
        assert asked(gateway, "/api/v1/queues", issuer.token(seconds=-1))[0] == 401
        assert asked(gateway, "/api/v1/queues", "eyJ.eyJ.x")[0] == 401
        said = {"Authorization": "Basic " + base64.b64encode(b"ann:tea").decode()}
        assert asked(gateway, "/api/v1/queues", headers=said)[0] == 401

    def test_no_token_in_a_url(self, gateway: ScratchGateway, issuer: LiveIssuer) -> None:
        token = issuer.token()
        for query in (f"access_token={token}", f"x={token}", "token=abc"):
            status, said = asked(gateway, f"/api/v1/queues?{query}", token)
            assert (status, said["code"]) == (400, "token-in-url")
            assert token not in json.dumps(said)
        assert token.split(".")[2] not in gateway.log.read_text()


class TestEnd:
    def test_stomp_ends_within_a_second_and_messages_go_back(
        self, gateway: ScratchGateway, issuer: LiveIssuer
    ) -> None:
        sender = StompPeer(gateway.stomp_port, ("bob", issuer.token("bob")))
        ends = time.time() + 2.0
        peer = StompPeer(gateway.stomp_port, ("ann", issuer.token(exp=ends)))
        peer.write("SUBSCRIBE\ndestination:ends\nid:1\nack:client\n\n")
        sender.send("ends", b"one", "r1")
        assert sender.read()[0] == "RECEIPT"
        assert peer.read()[2] == b"one"
        found = frames_until_end(peer)
        late = time.time() - ends
        assert [(command, head.get("error-code")) for command, head, _ in found] == [
            ("ERROR", "token-expired")
        ]
        assert 0 <= late < 1.0
        # Its delivery went back as of a connection that was cut: one attempt is counted.
        sender.write("SUBSCRIBE\ndestination:ends\nid:1\nack:client\n\n")
        command, head, body = sender.read()
        assert (command, body, head["redelivered"]) == ("MESSAGE", b"one", "true")
        sender.close()

    def test_nothing_is_taken_behind_the_end(
        self, gateway: ScratchGateway, issuer: LiveIssuer
    ) -> None:
        ends = time.time() + 1.5
        peer = StompPeer(gateway.stomp_port, ("ann", issuer.token(exp=ends)))
        time.sleep(max(0.0, ends + 0.25 - time.time()))
        peer.send("late", b"one", "r1")
        found = frames_until_end(peer)
        assert [head.get("error-code") for _, head, _ in found] == ["token-expired"]
        assert asked(gateway, "/api/v1/addresses/late", issuer.token())[0] == 404


class TestRenewal:
    def test_stomp_goes_on(self, gateway: ScratchGateway, issuer: LiveIssuer) -> None:
        ends = time.time() + 1.5
        peer = StompPeer(gateway.stomp_port, ("ann", issuer.token(exp=ends)))
        peer.send("$token", issuer.token(exp=ends + 2).encode(), "new")
        assert peer.read()[1]["receipt-id"] == "new"
        time.sleep(max(0.0, ends + 0.6 - time.time()))
        peer.send("on", b"x", "r")
        assert peer.read()[0] == "RECEIPT"
        found = frames_until_end(peer)
        assert [head.get("error-code") for _, head, _ in found] == ["token-expired"]
        assert 0 <= time.time() - (ends + 2) < 1.0

    @pytest.mark.parametrize(
        "change", [{"user": "bob"}, {"aud": "other"}, {"seconds": -1}, {"scope": None, "exp": "x"}]
    )
    def test_stomp_refuses_what_renews_nobody(
        self, gateway: ScratchGateway, issuer: LiveIssuer, change: dict[str, Any]
    ) -> None:
        peer = StompPeer(gateway.stomp_port, ("ann", issuer.token()))
        peer.send("$token", issuer.token(**change).encode(), "new")
        command, head, _ = peer.read()
        assert (command, head["receipt-id"]) == ("ERROR", "new")
        assert head["error-code"] in ("not-authorized", "token-expired")

    def test_over_http(self, gateway: ScratchGateway, issuer: LiveIssuer) -> None:
        ends = time.time() + 1.5
        peer = StompPeer(gateway.stomp_port, ("ann", issuer.token(exp=ends)))
        mine = {"connection": peer.greeting[1]["session"]}
        status, _ = asked(gateway, "/api/v1/token", issuer.token("bob"), method="POST", body=mine)
        assert status == 403
        status, said = asked(
            gateway, "/api/v1/token", issuer.token(scope="a b"), method="POST", body=mine
        )
        assert (status, said["roles"]) == (200, ["a", "b"])
        time.sleep(max(0.0, ends + 0.6 - time.time()))
        peer.send("on", b"x", "r")
        assert peer.read()[0] == "RECEIPT"

    def test_no_token_is_kept_anywhere(self, gateway: ScratchGateway, issuer: LiveIssuer) -> None:
        peer = StompPeer(gateway.stomp_port, ("ann", issuer.token()))
        token = issuer.token(jti="find-me-if-you-can")
        peer.send("$token", token.encode(), "new")
        assert peer.read()[0] == "RECEIPT"
        peer.send("beside", b"y", "r")
        assert peer.read()[0] == "RECEIPT"
        signature = token.split(".")[2].encode()
        files = [file for file in gateway.data.rglob("*") if file.is_file()]
        kept = [file for file in (*files, gateway.log) if signature in file.read_bytes()]
        assert kept == []
        assert any(b"beside" in file.read_bytes() for file in files), "nothing is found at all"


class TestKeys:
    def test_a_key_that_rolled_is_fetched_and_an_unknown_one_once_a_minute(
        self, tmp_path: Any
    ) -> None:
        with LiveIssuer() as mine, believing(tmp_path, mine) as gateway:
            assert connected(gateway, mine.token())
            assert mine.fetched == 1
            old = mine.token()
            mine.roll("live-2")
            assert connected(gateway, old), "its key is kept"
            assert connected(gateway, mine.token())
            assert mine.fetched == 2
            mine.roll("live-3")
            for _ in range(5):
                assert not connected(gateway, mine.token())
            assert mine.fetched == 2
            assert not connected(gateway, old), "its key has gone from the set"

    def test_an_issuer_that_is_away(self, tmp_path: Any) -> None:
        with LiveIssuer() as mine:
            mine.status = 503
            with believing(tmp_path, mine) as gateway:
                assert not connected(gateway, mine.token())
                assert '"reason": "unreachable"' in gateway.log.read_text()
                mine.status = 200
                until = time.time() + 20
                while not connected(gateway, mine.token()) and time.time() < until:
                    time.sleep(0.5)
                mine.status = 503
                assert connected(gateway, mine.token()), "keys that are there go on"


def connected(gateway: ScratchGateway, token: str) -> bool:
    peer = StompPeer(gateway.stomp_port, ("", token))
    peer.close()
    return peer.greeting[0] == "CONNECTED"


def long_sasl(port: int, mechanism: str, response: bytes) -> bytes:
    """Return what follows the offer; a challenge of a refusal is answered."""
    name = mechanism.encode()
    fields = b"\xa3" + bytes([len(name)]) + name + b"\xb0" + len(response).to_bytes(4, "big")
    fields += response
    body = b"\x00\x53\x41\xd0" + (len(fields) + 4).to_bytes(4, "big") + b"\0\0\0\2" + fields
    with socket.create_connection((HOST, port), timeout=10) as peer:
        peer.sendall(b"AMQP\x03\x01\x00\x00" + framed(body))
        came = b""
        while b"\x00\x53\x44" not in came:
            data = peer.recv(4096)
            if not data:
                break
            came += data
            if b"\x00\x53\x42" in data and b"status" in data:
                peer.sendall(framed(b"\x00\x53\x43\xc0\x04\x01\xa0\x01\x01"))
        return came


def framed(body: bytes) -> bytes:
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body
