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

from gateway.trial.scratch import ScratchGateway, importing_environment
from gateway.trial.self_signed import self_signed

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


def limited(policy: str) -> tuple[str, ...]:
    setting = 'address-settings."q".'
    return (f"{setting}max-size-messages=3", f'{setting}address-full-policy="{policy}"')


@pytest.mark.parametrize("secure", [False, True])
def test_a_send_that_waits_says_for_what_and_gives_up_over_tls_too(tmp_path, secure):
    tls = self_signed(tmp_path) if secure else None
    with ScratchGateway(tmp_path / "gateway", settings=limited("BLOCK"), tls=tls) as gateway:
        url = f"amqp{'s' if secure else ''}://127.0.0.1:{gateway.port}"
        trust = ["--cafile", str(tls[0])] if tls else []
        done = send(url, "--count", "5000", "--timeout", "4", "--json", *trust)
    assert done.returncode == 124, done.stderr
    told = json.loads(done.stdout)
    assert (told["address"], told["error"]) == ("q", "timed-out")
    assert told["confirmed"] >= 3
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("waiting: ")]
    assert "s the gateway gives no credit for q: " in line
    assert "/readyz" in line


@pytest.mark.parametrize(("policy", "confirmed"), [("DROP", 50), ("PAGE", 50), ("FAIL", 3)])
def test_under_other_policies_nobody_waits(tmp_path, policy, confirmed):
    with ScratchGateway(tmp_path, settings=limited(policy)) as gateway:
        url = f"amqp://127.0.0.1:{gateway.port}"
        done = send(url, "--count", "50", "--rate", "200", "--timeout", "50", "--json")
    told = json.loads(done.stdout)
    if policy == "FAIL":  # its refusal may pass what waits for the disk
        assert told["confirmed"] <= confirmed, done.stderr
    else:
        assert told["confirmed"] == confirmed, done.stderr
    assert "waiting: " not in done.stderr
    assert (done.returncode == 0) == (policy != "FAIL")
    assert ("error" in told) == (policy == "FAIL")
