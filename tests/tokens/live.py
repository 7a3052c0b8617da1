"""A small issuer on loopback, with keys that roll, and a gateway process that believes it."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gateway.trial.scratch import HOST, ScratchGateway
from tests.tokens import minting
from tests.tokens.minting import AUDIENCE, jwk, rsa


class LiveIssuer:
    """Serves its description and its keys over HTTP, and makes tokens.

    Attributes:
        key: what it signs with now.
        keys: what it publishes.
        fetched: how often its keys were asked for.
        status: what it answers with.
    """

    def __init__(self) -> None:
        self.key = rsa("live-1")
        self.keys = [jwk(self.key)]
        self.fetched = 0
        self.status = 200
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = issuer.answer(self.path)
                body = json.dumps(found).encode()
                self.send_response(issuer.status if found is not None else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer((HOST, 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.url = f"http://{HOST}:{self._server.server_address[1]}"

    def answer(self, path: str) -> dict[str, Any] | None:
        if path == "/.well-known/openid-configuration":
            return {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
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
