"""A sender that waits is told: in the log, by the probe, and by `sluicegate send`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

from gateway.broker.pressure.fullness import Full
from gateway.trial.scratch import ScratchGateway, importing_environment
from tests.broker.core import Core
from tests.logs import wait_log


def test_an_operator_block_is_one_edge_each_way():
    core = Core()
    core.gateway.directory.make_address("a")
    assert core.gateway.pressure.fullness.look() == []
    core.gateway.block_address("a", True)
    ((full, began),) = core.gateway.pressure.fullness.look()
    assert (full.address, full.kind, began) == ("a", "blocked", True)
    assert isinstance(full, Full)
    assert core.gateway.pressure.fullness.look() == []
    core.gateway.block_address("a", False)
    ((full, began),) = core.gateway.pressure.fullness.look()
    assert (full.address, full.kind, began) == ("a", "blocked", False)


def send(gateway: ScratchGateway, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "gateway",
        "send",
        "--url",
        f"amqp://127.0.0.1:{gateway.port}",
        *arguments,
    ]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=importing_environment(),
        timeout=60,
        check=False,
    )


def logged(gateway: ScratchGateway, event: str) -> str:
    (line,) = [line for line in wait_log(gateway, event).splitlines() if event in line]
    return line


def ready(gateway: ScratchGateway) -> dict[str, object]:
    status, body = gateway.request("GET", "/readyz")
    assert status == 200
    assert isinstance(body, dict)
    return body


def test_a_full_address_is_in_the_log_in_the_probe_and_told_by_send(tmp_path):
    settings = (
        'address-settings."full".max-size-messages=3',
        'address-settings."full".address-full-policy="BLOCK"',
    )
    with ScratchGateway(tmp_path, settings=settings) as gateway:
        done = send(gateway, "full", "x", "--count", "5000", "--timeout", "3")
        assert done.returncode == 124, done.stderr
        assert done.stderr.count("waiting: ") == 1
        assert "the gateway gives no credit" in done.stderr
        assert "error: timed-out" in done.stderr
        held = gateway.request("GET", "/api/v1/addresses/full")[1]["messageCount"]
        assert f" {held} of the messages to full were confirmed" in done.stderr
        line = logged(gateway, "address.full")
        assert "max-size-messages" in line
        assert "BLOCK" in line
        assert "--set" in line
        body = ready(gateway)
        assert body["fullCount"] == 1
        (shown,) = body["full"]
        assert (shown["address"], shown["limit"], shown["limitValue"]) == (
            "full",
            "max-size-messages",
            3,
        )
        subprocess.run(
            [
                sys.executable,
                "-m",
                "gateway",
                "receive",
                "--url",
                f"amqp://127.0.0.1:{gateway.port}",
                "full",
            ],
            capture_output=True,
            env=importing_environment(),
            timeout=60,
            check=True,
        )
        logged(gateway, "address.room_again")
        assert "full" not in ready(gateway)
        assert gateway.request("POST", "/api/v1/addresses/full/block")[0] == 200
        logged(gateway, "address.blocked")
        assert ready(gateway)["full"][0]["state"] == "blocked"
        assert gateway.request("POST", "/api/v1/addresses/full/unblock")[0] == 200
        logged(gateway, "address.unblocked")


def test_a_send_that_gives_up_or_is_stopped_says_how_much_was_confirmed(tmp_path):
    settings = (
        'address-settings."full".max-size-messages=3',
        'address-settings."full".address-full-policy="BLOCK"',
    )
    with ScratchGateway(tmp_path, settings=settings) as gateway:
        first = send(gateway, "full", "x", "--count", "5000", "--timeout", "2", "--json")
        assert first.returncode == 124
        told = json.loads(first.stdout)
        assert (told["address"], told["error"]) == ("full", "timed-out")
        assert f" {told['confirmed']} of the messages to full" in first.stderr
        assert "  try: sluicegate receive full" in first.stderr
        stopped = subprocess.Popen(
            [sys.executable, "-m", "gateway", "send", "full", "x",
             "--url", f"amqp://127.0.0.1:{gateway.port}"],
            stderr=subprocess.PIPE, text=True, env=importing_environment(),
        )  # fmt: skip
        assert stopped.stderr is not None
        assert stopped.stderr.readline().startswith("waiting: ")
        stopped.send_signal(signal.SIGINT)
        assert "interrupted: 0 confirmed" in stopped.stderr.read()
        assert stopped.wait(20) == 130
        stopped.stderr.close()
