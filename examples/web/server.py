"""The order board's page server: serves the files of this folder on loopback, and gives the login.

    ORDER_BOARD_PASSCODE=... python examples/web/server.py --port 8080 --gateway-port 5672

The page has no password in it. It asks for one by `POST /login` each time before it connects. Only
a page of this very origin gets an answer, so that no other site that the browser has open does. The
order board makes a new password with each start. A shop would ask for its session's cookie here,
and answer a token that ends within minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from twisted.internet import task
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTCP
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

HOST = "127.0.0.1"
FOLDER = Path(__file__).resolve().parent
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
LOGIN = "/login"


def served_files(folder: Path) -> dict[str, Path]:
    """Return path of the URL -> file, for what a page may load: nothing else is served."""
    found = [*folder.glob("*"), *folder.glob("vendor/*")]
    files = {f"/{one.relative_to(folder)}": one for one in found if one.suffix in TYPES}
    return {**files, "/": folder / "index.html"}


def content_security_policy(gateway: str) -> str:
    """Return the rule that the browser holds the page to: its own files, and the gateway.

    `worker-src blob:` is for stompjs, which runs the clock of its heart-beats in a worker.
    """
    return "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self'",
            f"connect-src 'self' {gateway}",
            "worker-src blob:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


class Board(Resource):
    """Every URL of the page server."""

    isLeaf = True

    def __init__(self, *, gateway: str, login: str, passcode: str, hosts: frozenset[str]) -> None:
        """Serve the folder; `gateway` is `ws://host:port`, `hosts` how browsers may call this."""
        super().__init__()
        self._files = served_files(FOLDER)
        self._answer = {"url": f"{gateway}/stomp", "login": login, "passcode": passcode}
        self._hosts = hosts
        self._headers = {
            "Content-Security-Policy": content_security_policy(gateway),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
        }

    def render(self, request: Request) -> bytes:
        """Answer any request."""
        for name, value in self._headers.items():
            request.setHeader(name, value)
        method, path = request.method.decode(), request.path.decode("utf-8", "replace")
        if request.getHeader("host") not in self._hosts:
            # Somebody's name that points at this machine: their page would be of this origin.
            return _text(request, 421, f"This is served as {' and '.join(sorted(self._hosts))}.")
        if path == LOGIN:
            return self._login(request, method)
        file = self._files.get(path)
        if file is None:
            return _text(request, 404, f"There is nothing at {path[:100]}.")
        if method not in ("GET", "HEAD"):
            request.setHeader("Allow", "GET, HEAD")
            return _text(request, 405, "This is a file: GET it.")
        return _body(request, TYPES[file.suffix], file.read_bytes())

    def _login(self, request: Request, method: str) -> bytes:
        if method != "POST":
            request.setHeader("Allow", "POST")
            return _text(request, 405, "A login is asked for by POST.")
        headers = {name: request.getHeader(name) or "" for name in ("origin", "sec-fetch-site")}
        if not same_origin(headers, request.getHeader("host") or ""):
            return _text(request, 403, "Only the page that is served here is given a login.")
        return _body(request, TYPES[".json"], json.dumps(self._answer).encode())


def same_origin(headers: Mapping[str, str], host: str) -> bool:
    """Whether a page of `http://host` asks: browsers write both headers, and no page can."""
    site = headers.get("sec-fetch-site") or "same-origin"
    return headers.get("origin") == f"http://{host}" and site == "same-origin"


def _text(request: Request, status: int, text: str) -> bytes:
    request.setResponseCode(status)
    return _body(request, TYPES[".txt"], f"{text}\n".encode())


def _body(request: Request, kind: str, data: bytes) -> bytes:
    request.setHeader("Content-Type", kind)
    request.setHeader("Content-Length", str(len(data)))
    return b"" if request.method == b"HEAD" else data


def main(reactor: IReactorTCP, *arguments: str) -> Deferred[None]:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--gateway-port", type=int, default=5672)
    parser.add_argument("--login", default="page")
    given = parser.parse_args(arguments)
    board = Board(
        gateway=f"ws://{HOST}:{given.gateway_port}",
        login=given.login,
        passcode=os.environ.get("ORDER_BOARD_PASSCODE", ""),
        hosts=frozenset(f"{name}:{given.port}" for name in (HOST, "localhost")),
    )
    reactor.listenTCP(given.port, Site(board), interface=HOST)
    print("ready", flush=True)
    ended: Deferred[None] = Deferred()

    def wait() -> None:
        while sys.stdin.readline():
            pass
        reactor.callFromThread(ended.callback, None)

    threading.Thread(target=wait, daemon=True, name="standard input").start()
    return ended


if __name__ == "__main__":
    task.react(main, sys.argv[1:])
