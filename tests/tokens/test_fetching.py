"""Keys over a real network of loopback, and from files: what is taken, and what is not."""

from __future__ import annotations

import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from gateway.trial.scratch import GatewayFailedError, ScratchGateway
from tests.certificates import Authority
from tests.gateway.reloading import Live
from tests.gateway.stomp_peer import StompPeer
from tests.logs import wait_records
from tests.tokens import minting
from tests.tokens.live import LiveIssuer, believing
from tests.tokens.minting import AUDIENCE, jwk, jwks, rsa
from tests.tokens.test_live import connected, frames_until_end

Start = Callable[..., ScratchGateway]


def why_not(gateway: ScratchGateway, token: str) -> str:
    """Return why keys could not be had for a token."""
    assert not connected(gateway, token)
    return str(wait_records(gateway, "keys.not_fetched")[-1]["error"])


class Odd(LiveIssuer):
    """An issuer that answers as the test says."""

    def __init__(self, respond: Callable[[BaseHTTPRequestHandler], None], **more: Any) -> None:
        self.respond = respond
        super().__init__(**more)

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        self.respond(request)


def redirect(request: BaseHTTPRequestHandler) -> None:
    request.send_response(302)
    request.send_header("Location", "http://127.0.0.1:1/keys")
    request.send_header("Content-Length", "0")
    request.end_headers()


def huge(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.end_headers()
    try:
        for _ in range(1000):
            request.wfile.write(b" " * 65536)
    except OSError:
        pass


def broken(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.send_header("Content-Length", "100")
    request.end_headers()
    request.wfile.write(b"{")


def said(body: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    def respond(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return respond


@pytest.mark.parametrize(
    ("respond", "text"),
    [
        (redirect, "answered 302"),
        (huge, "more than 262144 bytes"),
        (broken, "broke off"),
        (said(b"no json"), "is no JSON object"),
        (said(b'{"keys": []}'), "no key that may be used"),
        (said(jwks(jwk(rsa("weak", 1024)))), "no key that may be used"),
        (said(jwks({"kty": "oct", "k": "AAAA"})), "no key that may be used"),
    ],
)
def test_what_is_no_key_set_lets_nobody_in(
    tmp_path: Path, respond: Callable[[BaseHTTPRequestHandler], None], text: str
) -> None:
    with Odd(respond) as issuer:
        where = f"tokens.live.jwks-url='{issuer.url}/keys'"
        with believing(tmp_path, issuer, where) as gateway:
            assert text in why_not(gateway, issuer.token())


def test_a_description_is_of_its_issuer_and_names_a_safe_place(tmp_path: Path) -> None:
    with LiveIssuer() as issuer:
        for change, text in (
            ({"issuer": issuer.url + "/"}, "of another issuer"),
            ({"jwks_uri": "http://id.example/keys"}, "must begin with https://"),
            ({"jwks_uri": None}, "is missing"),
        ):
            issuer.description = change
            with believing(tmp_path / text.replace("/", ""), issuer) as gateway:
                assert text in why_not(gateway, issuer.token())


def test_https_is_vouched_for_by_the_authority_that_is_named(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path / "ca"), Authority(tmp_path / "other")
    with LiveIssuer(tls=authority.issue()) as issuer:
        good = f"tokens.live.ca-file='{authority.root}'"
        with believing(tmp_path / "good", issuer, good) as gateway:
            assert connected(gateway, issuer.token())
        for name, ca in (("other", (f"tokens.live.ca-file='{other.root}'",)), ("none", ())):
            with believing(tmp_path / name, issuer, *ca) as gateway:
                assert "certificate" in why_not(gateway, issuer.token()).lower()


def test_keys_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(jwks(jwk(rsa("live-1"))))
    with LiveIssuer() as issuer:
        with believing(tmp_path / "a", issuer, f"tokens.live.jwks-file='{path}'") as gateway:
            assert connected(gateway, issuer.token())
        assert issuer.fetched == 0


def test_a_secret_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"s" * 32 + b"\n")
    with LiveIssuer() as issuer:
        now = int(time.time())
        claims = minting.claims(iss=issuer.url, exp=now + 60, nbf=None, iat=None)
        header = {"alg": "HS256", "typ": "JWT"}
        good = minting.signed(header, claims, b"s" * 32, "HS256")
        with believing(tmp_path / "a", issuer, f"tokens.live.secret-file='{path}'") as gateway:
            assert connected(gateway, good)
            assert not connected(gateway, minting.signed(header, claims, b"t" * 32, "HS256"))
            assert not connected(gateway, issuer.token())


@pytest.mark.parametrize(
    ("key", "content", "text"),
    [
        ("jwks-file", None, "cannot be read"),
        ("jwks-file", b"{}", "no list of keys"),
        ("secret-file", b"short", "has 5 bytes; its algorithms need 32"),
        ("ca-file", b"nothing", "holds no certificate"),
    ],
)
def test_a_file_that_is_wrong_ends_the_start(
    tmp_path: Path, key: str, content: bytes | None, text: str
) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    with LiveIssuer() as issuer:
        gateway = believing(tmp_path / "a", issuer, f"tokens.live.{key}='{path}'")
        with pytest.raises(GatewayFailedError, match=text):
            gateway.start()


def test_a_reload_changes_issuers_at_once_and_ends_what_the_gone_one_let_in(
    gateway_process: Start, tmp_path: Path
) -> None:
    with LiveIssuer() as first, LiveIssuer() as second:

        def table(name: str, one: LiveIssuer, audience: str = AUDIENCE) -> str:
            return f'[tokens.{name}]\nissuer = "{one.url}"\naudience = "{audience}"\n'

        live = Live(gateway_process, tmp_path, table("a", first) + table("b", second))
        ann = StompPeer(live.gateway.stomp_port, ("", first.token()))
        bob = StompPeer(live.gateway.stomp_port, ("", second.token("bob")))
        assert (ann.greeting[0], bob.greeting[0]) == ("CONNECTED", "CONNECTED")
        token = second.token("bob")
        live.write(table("b", second, "other"))
        status = reload(live, token)
        assert status["connectionsClosed"] == 1
        assert frames_until_end(ann)[0][1]["error-code"] == "not-authorized"
        bob.send("x", b"y", "r")
        assert bob.read()[0] == "RECEIPT", "its issuer is still there"
        assert not connected(live.gateway, token), "it is for another audience"
        assert connected(live.gateway, second.token(aud="other"))
        # Without any issuer anybody would come in: a reload does not do that.
        live.write("")
        refused = reload(live, second.token(aud="other"))
        assert "without users anybody is let in" in str(refused)


def reload(live: Live, token: str) -> Any:
    from tests.tokens.test_live import asked

    return asked(live.gateway, "/api/v1/config:reload", token, method="POST", body={})[1]
