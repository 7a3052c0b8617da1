"""A gateway process of one's own: on a scratch data directory, on free ports of loopback.

The demo, the bench and the tests start the real thing through here: `python -m gateway run`, told
its ports by `--set`, waited for by `GET /readyz`, stopped by SIGTERM. Standard library only;
imports nothing of ours, so that a client process never loads the reactor.

States of a `ScratchGateway`: new -> running (start) -> stopped (stop, or kill); it can be started
again on the same data directory and ports.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

HOST: Final = "127.0.0.1"
#: A gateway is ready within two seconds; a machine that starves it gets thirty times that.
READY_SECONDS: Final = 60.0
#: Draining and the last sync take well under a second; a busy machine gets a lot more.
STOP_SECONDS: Final = 20.0
POLL_SECONDS: Final = 0.02
LOG_TAIL_BYTES: Final = 4000
FIRST_PORT: Final = 10_000
LAST_PORT: Final = 32_000
#: Prime, so that neighbours in number are no neighbours in place.
_PLACES_EACH: Final = 131
_looked: Final = itertools.count()


class GatewayFailedError(Exception):
    """The gateway process ended, or did not become ready; the text holds the end of its log."""


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nobody listens on now; all are held until the last is known.

    They are below those that systems give to outgoing connections, one of which would otherwise
    take a port before the gateway does; and each process looks in a place of its own.
    """
    found: list[socket.socket] = []
    try:
        while len(found) < count:
            place = (os.getpid() * _PLACES_EACH + next(_looked)) % (LAST_PORT - FIRST_PORT)
            one = socket.socket()
            found.append(one)
            try:
                one.bind((HOST, FIRST_PORT + place))
            except OSError:
                found.pop().close()
        return [int(one.getsockname()[1]) for one in found]
    finally:
        for one in found:
            one.close()


class ScratchGateway:
    """One gateway process and where to reach it.

    Attributes:
        data: its data directory.
        port: AMQP and STOMP, told apart by their first bytes.
        stomp_port: STOMP only.
        management_port: HTTP.
        log: the file that its output goes to.
        certificate: PEM of what both listeners present, where they speak TLS; else None.
    """

    def __init__(
        self,
        folder: Path,
        *,
        settings: Sequence[str] = (),
        config: Path | None = None,
        tls: tuple[Path, Path] | None = None,
        tls_management: bool = False,
    ) -> None:
        """Choose ports; nothing runs yet.

        Args:
            folder: holds the data directory and the log.
            settings: more `KEY=VALUE` for `--set`.
            config: a configuration file; its ports and data directory are overruled.
            tls: PEM files of a certificate and its key: AMQP and STOMP are spoken over TLS then.
            tls_management: the management API, too.
        """
        self.data = folder / "data"
        self.log = folder / "gateway.log"
        self.port, self.stomp_port, self.management_port = free_ports(3)
        self._settings = list(settings)
        self._config = config
        self._tls = tls
        self._secure_http = tls is not None and tls_management
        self.certificate = tls[0] if tls is not None else None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The base of the management API, as Spark's option `url` takes it."""
        scheme = "https" if self._secure_http else "http"
        return f"{scheme}://{HOST}:{self.management_port}"

    @property
    def pid(self) -> int:
        """The process id; raises GatewayFailedError when none runs."""
        if self._process is None:
            raise GatewayFailedError("The gateway does not run.")
        return self._process.pid

    def start(self) -> None:
        """Start the process and return when it is ready; raises GatewayFailedError."""
        self.data.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=importing_environment(),
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def command(self) -> list[str]:
        """Return the command line that runs this gateway."""
        endpoints = {
            "acceptors.all.endpoint": self.port,
            "acceptors.stomp.endpoint": self.stomp_port,
            "management.endpoint": self.management_port,
        }
        settings = [f"{key}='{self._endpoint(key, port)}'" for key, port in endpoints.items()]
        given = [part for one in [*settings, *self._settings] for part in ("--set", one)]
        file = [] if self._config is None else ["-c", str(self._config)]
        data = ["--data", str(self.data)]
        return [sys.executable, "-m", "gateway", "run", *file, *data, *given]

    def _endpoint(self, key: str, port: int) -> str:
        if self._tls is None or (key == "management.endpoint" and not self._secure_http):
            return f"tcp:{port}:interface={HOST}"
        certificate, private = self._tls
        return f"ssl:{port}:privateKey={private}:certKey={certificate}:interface={HOST}"

    def stop(self) -> int:
        """Ask it to stop (SIGTERM); returns its exit status, raises GatewayFailedError."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut would (SIGKILL)."""
        self._end(signal.SIGKILL)

    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def request(self, method: str, path: str, body: object | None = None) -> tuple[int, object]:
        """Ask the management API; returns the status and the answer's JSON (None without one)."""
        connection = http.client.HTTPConnection(HOST, self.management_port, timeout=10)
        if self._secure_http:
            # It was started here, by whoever asks.
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            connection = http.client.HTTPSConnection(
                HOST, self.management_port, timeout=10, context=context
            )
        try:
            payload = None if body is None else json.dumps(body).encode()
            headers = {} if body is None else {"Content-Type": "application/json"}
            connection.request(method, path, body=payload, headers=headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self.running():
            return
        status = self.stop()
        if status and error is None:
            text = f"The gateway stopped with status {status}."
            raise GatewayFailedError(text + self._log_tail())

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            if not self.running():
                status = self._process.returncode if self._process else None
                text = f"The gateway ended with status {status} before it was ready."
                raise GatewayFailedError(text + self._log_tail())
            try:
                if self.request("GET", "/readyz")[0] == http.HTTPStatus.OK:
                    return
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(POLL_SECONDS)
        text = f"The gateway was not ready after {READY_SECONDS:.0f} s."
        raise GatewayFailedError(text + self._log_tail())

    def _end(self, how: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(how)
        try:
            return process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            text = f"The gateway did not stop within {STOP_SECONDS:.0f} s of {how.name}."
            raise GatewayFailedError(text + self._log_tail()) from None

    def _log_tail(self) -> str:
        try:
            text = self.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()
        except OSError:
            text = ""
        return f" Its output ended:\n{text}" if text else " It printed nothing."


def importing_environment() -> dict[str, str]:
    """Return the environment for a Python process that must find this very `gateway` package."""
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
