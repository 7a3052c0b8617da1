"""What the interop tests share: the management API as a witness, users, Proton connections."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from proton.utils import BlockingConnection

from gateway.cli.scratch import HOST, ScratchGateway, importing_environment

SECONDS = 10.0


def add_user(gateway: ScratchGateway, name: str, password: str, *options: str) -> None:
    """Put a user into the users file, by the command that people use; before the start."""
    gateway.data.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "gateway", "user", "add", name, "--password-stdin"]
    subprocess.run(
        [*command, *options, "--data", str(gateway.data)],
        input=password + "\n",
        text=True,
        check=True,
        capture_output=True,
        env=importing_environment(),
        timeout=30,
    )


def queue(gateway: ScratchGateway, name: str) -> dict[str, Any]:
    """Return the management API's view of a queue, which must exist."""
    status, facts = gateway.request("GET", f"/api/v1/queues/{name}")
    assert status == 200, f"{name}: {status} {facts}"
    assert isinstance(facts, dict)
    return facts


def wait_until(condition: Callable[[], bool], seconds: float = SECONDS) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


@contextmanager
def connected(gateway: ScratchGateway, **options: Any) -> Iterator[BlockingConnection]:
    """A blocking Proton connection, closed at the end."""
    options.setdefault("timeout", SECONDS)
    connection = BlockingConnection(f"{HOST}:{gateway.port}", **options)
    try:
        yield connection
    finally:
        connection.close()
