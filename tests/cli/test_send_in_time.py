"""`sluicegate send --timeout`: one time for connecting, login and messages."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gateway.cli.scratch import ScratchGateway, importing_environment

_HEADER = b"AMQP\x03\x01\x00\x00"  # SASL


@contextmanager
def saying(*, answer: bytes) -> Iterator[int]:
    """Listen, and say no more than `answer` to whoever comes; gives the port."""
    kept = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                kept.append(peer)
                peer.sendall(answer)

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            for peer in kept:
                peer.close()


def send(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway", "send", "--url", url, "q", "x", *arguments],
        capture_output=True,
        text=True,
        env=importing_environment(),
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(("scheme", "answer"), [("amqp", b""), ("amqp", _HEADER), ("amqps", b"")])
@pytest.mark.parametrize("as_json", [False, True])
def test_the_time_of_a_send_is_over_before_it_was_let_in(scheme, answer, as_json):
    with saying(answer=answer) as port:
        url = f"{scheme}://127.0.0.1:{port}"
        done = send(url, "--timeout", "0.7", *(["--json"] if as_json else []))
    assert done.returncode == 124, done.stderr
    assert f"timed-out: after 0.7 s {url} had not let us in" in done.stderr
    if as_json:
        assert json.loads(done.stdout) == {"address": "q", "confirmed": 0, "error": "timed-out"}


def test_who_is_not_there_is_told_of_at_once_whatever_the_time():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    done = send(f"amqp://127.0.0.1:{port}", "--timeout", "50")
    assert done.returncode == 69, done.stderr
    assert "not-connected" in done.stderr


def test_the_time_of_a_send_is_long_enough_for_what_is_taken(tmp_path):
    with ScratchGateway(tmp_path) as gateway:
        done = send(f"amqp://127.0.0.1:{gateway.port}", "--timeout", "50", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"address": "q", "confirmed": 1}
