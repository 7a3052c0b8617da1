"""Tabs of a headless Chromium with `chromium/page.html` in them, and the server of that page.

The page comes from a port of this process, so that its origin is another one than the gateway's.
Chromium is driven by Puppeteer in Node (`chromium/drive.js`); what is here speaks to that in lines.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import itertools
import json
import os
import queue as queues
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gateway.trial.scratch import HOST
from tests.interop.browser import NoBrowserError, find_browser
from tests.interop.node import CHROMIUM, NoNodeError, install

#: A machine with two busy cores takes long to start a browser.
START_SECONDS = 90.0
SECONDS = 30.0
#: Names that the browser takes for this machine: pages of other origins.
ELSEWHERE = ("shop.example", "evil.example")

_FILES = {
    "/": (CHROMIUM / "page.html", "text/html"),
    "/page.js": (CHROMIUM / "page.js", "text/javascript"),
    "/stomp.js": (
        CHROMIUM / "node_modules" / "@stomp" / "stompjs" / "bundles" / "stomp.umd.js",
        "text/javascript",
    ),
    "/rhea.js": (CHROMIUM / "node_modules" / "rhea" / "dist" / "rhea-umd.js", "text/javascript"),
}


class _Pages(http.server.BaseHTTPRequestHandler):
    """Gives the page and its scripts."""

    def do_GET(self) -> None:
        path, kind = _FILES.get(self.path, (None, ""))
        body = b"" if path is None else path.read_bytes()
        self.send_response(404 if path is None else 200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Say nothing."""


@contextlib.contextmanager
def page_server() -> Iterator[int]:
    """Serve the page; gives the port."""
    server = http.server.ThreadingHTTPServer((HOST, 0), _Pages)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Tab:
    """One tab with the page."""

    def __init__(self, browser: Browser, name: str) -> None:
        self._browser = browser
        self._name = name

    def run(self, function: str, **argument: Any) -> Any:
        """Call a function of `page.js`."""
        return self._browser.ask("run", tab=self._name, name=function, argument=argument)

    @property
    def seen(self) -> dict[str, Any]:
        """What the page has seen so far."""
        found: dict[str, Any] = self.run("seen")
        return found

    def wait(self, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Return what the page has seen, once that fulfils a condition."""
        end = time.monotonic() + SECONDS
        while not condition(seen := self.seen):
            assert time.monotonic() < end, f"waited in vain; the page has seen {seen}"
            time.sleep(0.05)
        return seen

    def front(self) -> None:
        """Bring it to the front: the others are in the background then."""
        self._browser.ask("front", tab=self._name)

    def freeze(self) -> None:
        """Have no script of it run until `thaw`, as browsers do with tabs to save power."""
        self._browser.ask("lifecycle", tab=self._name, state="frozen")

    def thaw(self) -> None:
        self._browser.ask("lifecycle", tab=self._name, state="active")

    def close(self) -> None:
        """Close it; its scripts must have made no mistake."""
        assert self._browser.ask("close", tab=self._name) == []


class Browser:
    """A Chromium process; `open` gives tabs."""

    def __init__(
        self, folder: Path, port: int, *, trusted: Path | None = None, throttled: bool = False
    ) -> None:
        """Start it; skips the test where there is no Chromium.

        Args:
            folder: for its profile.
            port: where the page is served.
            trusted: PEM of the one certificate that need not be an authority's.
            throttled: tabs in the background are slowed down as in people's browsers, and soon.
        """
        self._port = port
        self._numbers = itertools.count(1)
        self._answers: queues.Queue[str] = queues.Queue()
        try:
            node, chromium = install(CHROMIUM), find_browser()
        except NoBrowserError as error:
            pytest.skip(str(error))
        except NoNodeError as error:
            pytest.fail(str(error))
        given = {
            "chromium": chromium,
            "folder": str(folder),
            "throttled": throttled,
            "flags": _flags(trusted, throttled=throttled),
        }
        self._process = subprocess.Popen(
            [*node, str(CHROMIUM / "drive.js"), json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()
        self.version = self._answer(START_SECONDS)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)

    def _answer(self, seconds: float) -> Any:
        answer = json.loads(self._answers.get(timeout=seconds))
        assert "failed" not in answer, answer["failed"]
        return answer["value"]

    def ask(self, action: str, **more: Any) -> Any:
        """Have `drive.js` do something."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": action, **more}) + "\n")
        self._process.stdin.flush()
        return self._answer(SECONDS)

    @contextlib.contextmanager
    def open(self, host: str = "localhost") -> Iterator[Tab]:
        """A tab with the page of `http://HOST:PORT`, closed at the end."""
        name = f"tab-{next(self._numbers)}"
        self.ask("open", tab=name, url=f"http://{host}:{self._port}/")
        tab = Tab(self, name)
        try:
            yield tab
        except BaseException:
            with contextlib.suppress(Exception):
                tab.close()
            raise
        tab.close()

    def origin(self, host: str) -> str:
        """The origin of a page that is opened with `host`."""
        return f"http://{host}:{self._port}"

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _flags(trusted: Path | None, *, throttled: bool) -> Sequence[str]:
    rules = ", ".join(f"MAP {name} {HOST}" for name in ELSEWHERE)
    flags = [f"--host-resolver-rules={rules}", "--disable-gpu", "--disable-dev-shm-usage"]
    if os.geteuid() == 0:
        flags.append("--no-sandbox")  # Chromium's sandbox refuses to run for root
    if trusted is not None:
        flags.append(f"--ignore-certificate-errors-spki-list={_spki(trusted)}")
    if throttled:
        # Minutes of grace are shortened to seconds; what comes after them is the browser's own.
        flags.append("--enable-features=IntensiveWakeUpThrottling:grace_period_seconds/5")
    return flags


def _spki(certificate: Path) -> str:
    """Return the hash of a certificate's key, as Chromium writes it."""
    key = x509.load_pem_x509_certificate(certificate.read_bytes()).public_key()
    encoded = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(encoded).digest()).decode()
