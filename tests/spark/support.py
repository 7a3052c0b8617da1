"""A server process for tests of the Spark source, and calls to it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from gateway.trial.scratch import free_ports

ROOT = Path(__file__).resolve().parents[2]


def readme_programs() -> list[str]:
    """Return the Python programs of the package's README."""
    page = (ROOT / "gateway" / "spark" / "README.md").read_text("utf-8")
    return re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


class Server:
    """`tests.spark.server` over a folder, on a port that stays the same over restarts."""

    def __init__(self, directory: Path, **facts: Any) -> None:
        self.facts = facts
        self.directory = directory
        (self.port,) = free_ports(1)
        self.process: subprocess.Popen[str] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.spark.server", str(self.directory), str(self.port)]
        command.append(json.dumps(self.facts))
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("ready"), "the server process did not start"

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {} if data is None else {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as response:
            content = response.read()
        return json.loads(content) if content else None

    def make(self, stream: str) -> None:
        self.call("POST", "/api/v1/streams", {"name": stream, "address": stream})

    def fill(self, stream: str, count: int, kind: str = "stomp") -> None:
        self.call("POST", "/test/fill", {"stream": stream, "count": count, "kind": kind})

    def cut_answers(self, every: int) -> None:
        self.call("POST", "/test/faults", {"cutEvery": every})

    def stream(self, name: str) -> Any:
        return self.call("GET", f"/api/v1/streams/{name}")

    def floor(self, stream: str, subscription: str) -> int:
        found = self.stream(stream)["subscriptions"]
        return next(s["floor"] for s in found if s["name"] == subscription)
