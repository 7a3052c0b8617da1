"""A small issuer on loopback, with keys that roll, and a gateway process that believes it."""

from __future__ import annotations

import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gateway.trial.scratch import HOST, ScratchGateway
from gateway.trial.self_signed import KeyPair
from tests.tokens import minting
from tests.tokens.minting import AUDIENCE, jwk, rsa


class LiveIssuer:
    """Serves its description and its keys over HTTP, and makes tokens.

    Attributes:
        key: what it signs with now.
        keys: what it publishes.
        fetched: how often its keys were asked for.
        status: what it answers with.
        description: what else, or otherwise, its description says.
    """

    def __init__(self, tls: KeyPair | None = None) -> None:
        self.key = rsa("live-1")
        self.keys = [jwk(self.key)]
        self.fetched = 0
        self.status = 200
        self.description: dict[str, Any] = {}
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.handle(self)

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer((HOST, 0), Handler)
        scheme = "http" if tls is None else "https"
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls.certificate, tls.key)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.url = f"{scheme}://{HOST}:{self._server.server_address[1]}"

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        """Answer a request."""
        found = self.answer(request.path)
        body = json.dumps(found).encode()
        request.send_response(self.status if found is not None else 404)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def answer(self, path: str) -> dict[str, Any] | None:
        if path == "/.well-known/openid-configuration":
            return {"issuer": self.url, "jwks_uri": f"{self.url}/keys", **self.description}
        if path == "/keys":
            self.fetched += 1
            return {"keys": self.keys}
        return None

    def roll(self, name: str) -> None:
        """Sign with another key from now on, and publish it alone."""
        self.key = rsa(name)
        self.keys = [jwk(self.key)]

    def token(self, user: str = "ann", seconds: float = 300, **changes: Any) -> str:
        """Return a token that ends in so many seconds."""
        now = time.time()
        dates = {"iat": int(now) - 1, "nbf": int(now) - 1, "exp": now + seconds}
        return minting.token(self.key, iss=self.url, sub=user, **{**dates, **changes})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def believing(folder: Path, issuer: LiveIssuer, *settings: str, **more: Any) -> ScratchGateway:
    """Return a gateway, not started, that believes an issuer; users come in by tokens alone."""
    return ScratchGateway(
        folder,
        settings=[
            f"tokens.live.issuer='{issuer.url}'",
            f"tokens.live.audience='{AUDIENCE}'",
            "tokens.live.role-claims='scope'",
            *settings,
        ],
        **more,
    )
