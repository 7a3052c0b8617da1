"""S3 servers on loopback: one that forgets, one that survives, one that keeps no conditions."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from gateway.trial.scratch import free_ports
from tests.spark.archive.versity import built

BUCKET = "lake"
#: Of nobody: the server is this machine's own.
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class S3:
    """A moto server; what it holds ends with it."""

    def __init__(self, log: Path) -> None:
        (self.port,) = free_ports(1)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        end = time.monotonic() + 60
        while not self._answers():
            assert time.monotonic() < end, self._log.read_text()
            time.sleep(0.05)
        self.request("PUT", f"/{BUCKET}")

    def _answers(self) -> bool:
        try:
            self.request("GET", "/moto-api/")
        except OSError:
            return False
        return True

    def request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        kind = {} if body is None else {"Content-Type": "text/plain"}
        request = urllib.request.Request(self.endpoint + path, body, kind, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            data: bytes = answer.read()
        return data

    def refuse_everybody(self) -> None:
        """Check credentials from the next call on; it knows nobody's."""
        self.request("POST", "/moto-api/reset-auth", b"0")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Versity:
    """A versitygw, whose objects are files below a folder: killed, it goes on with them.

    Attributes:
        root: holds a folder for each bucket; an object's name is its path there.
        kills: how often it was killed.
    """

    def __init__(self, folder: Path) -> None:
        """Start it; raises NoVersityError where there is none."""
        self.program = built()
        (self.port,) = free_ports(1)
        self.root = folder / "objects"
        (self.root / BUCKET).mkdir(parents=True)
        self.kills = 0
        self._log = folder / "versitygw.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        credentials = {
            "ROOT_ACCESS_KEY_ID": ENVIRONMENT["AWS_ACCESS_KEY_ID"],
            "ROOT_SECRET_ACCESS_KEY": ENVIRONMENT["AWS_SECRET_ACCESS_KEY"],
        }
        command = [str(self.program), "--port", f"127.0.0.1:{self.port}", "--health", "/health"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "posix", str(self.root)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **credentials},
            )  # fmt: skip
        end = time.monotonic() + 30
        while not self._answers():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < end, self._log.read_text()
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.endpoint}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def kill(self) -> None:
        """End it as a power cut would (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self.kills += 1

    def objects(self, ending: str) -> int:
        """Return how many objects there are whose name ends so."""
        return sum(1 for path in self.root.rglob(f"*{ending}") if path.is_file())


@contextmanager
def killed_amid(store: Versity, ending: str, more: int, down: float) -> Iterator[None]:
    """Kill a store when it has so many objects more, and start it again `down` seconds later.

    What is asked of the store inside is cut off in the middle; it is there again at the end.
    """
    before, over = store.objects(ending), threading.Event()

    def watch() -> None:
        while store.objects(ending) < before + more:
            if over.wait(0.001):
                return
        store.kill()
        over.wait(down)
        store.start()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def without_conditions(server: S3) -> Iterator[str]:
    """Yield the endpoint of a store that takes `If-None-Match` and does not keep it."""

    class Passing(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(length) if length else None
            dropped = ("if-none-match", "if-match")
            headers = {k: v for k, v in self.headers.items() if k.lower() not in dropped}
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                    self.send_header(name, value)
            size = answer.getheader("Content-Length") if self.command == "HEAD" else len(data)
            self.send_header("Content-Length", str(size or 0))
            self.end_headers()
            self.wfile.write(data)
            connection.close()

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Passing) as proxy:
        proxy.daemon_threads, proxy.block_on_close = True, False
        thread = threading.Thread(target=proxy.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{proxy.server_address[1]}"
        finally:
            proxy.shutdown()
            thread.join()
