"""Every example runs as its first lines say, against a real gateway."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.trial.scratch import HOST, ScratchGateway, importing_environment

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def start(name: str, *arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(EXAMPLES / name), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env or importing_environment(),
    )


def run(name: str, *arguments: str, env: dict[str, str] | None = None) -> str:
    process = start(name, *arguments, env=env)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, out + err
    return out


@pytest.mark.interop
def test_what_amqp_send_sends_amqp_receive_receives(gateway: ScratchGateway) -> None:
    where = ("--url", f"amqp://{HOST}:{gateway.port}", "--address", "fruit", "--count", "25")
    assert run("amqp_send.py", *where) == "25 messages accepted at fruit\n"
    lines = run("amqp_receive.py", *where).splitlines()
    assert lines == [f'fruit-{n}: {{"number": {n}}}' for n in range(1, 26)]
    assert gateway.request("GET", "/api/v1/queues/fruit")[1]["messageCount"] == 0


@pytest.mark.interop
def test_a_line_typed_in_the_chat_reaches_the_others(gateway: ScratchGateway) -> None:
    where = ("--port", str(gateway.stomp_port), "--room", "lobby")
    with start("stomp_chat.py", "bob", *where) as bob:
        assert bob.stdout.readline() == "bob is in lobby\n"
        with start("stomp_chat.py", "ann", *where) as ann:
            assert ann.stdout.readline() == "ann is in lobby\n"
            ann.stdin.write("hello: is anyone here?\nbye\n")
            ann.stdin.close()
            assert bob.stdout.readline() == "ann: hello: is anyone here?\n"
            assert bob.stdout.readline() == "ann: bye\n"
            assert ann.stdout.read() == ""
            assert ann.wait(20) == 0
        bob.stdin.close()
        assert bob.wait(20) == 0, bob.stderr.read()


@pytest.mark.spark
@pytest.mark.interop
def test_spark_counts_what_was_sent(
    gateway: ScratchGateway, tmp_path: Path, spark_environment: dict[str, str]
) -> None:
    stream = {"name": "fruit", "address": "fruit"}
    assert gateway.request("POST", "/api/v1/streams", stream)[0] == 201
    run("amqp_send.py", "--url", f"amqp://{HOST}:{gateway.port}", "--address", "fruit")
    read = (
        *("--url", gateway.url, "--address", "fruit", "--available"),
        *("--checkpoint", str(tmp_path / "checkpoint")),
    )
    path = os.pathsep.join([importing_environment()["PYTHONPATH"], source_folder()])
    env = {**spark_environment, "PYTHONPATH": path}
    assert last_count(run("spark_stream.py", *read, env=env)) == 10


def source_folder() -> str:
    """Where Spark finds the data source when the project is not installed."""
    return str(EXAMPLES.parent / "gateway" / "spark")


def last_count(out: str) -> int:
    """Return `messages` of the last table that the console sink printed."""
    rows = re.findall(r"^\|application/json\s*\|(\d+)\s*\|\d+\s*\|$", out, re.MULTILINE)
    assert rows, out
    return int(rows[-1])


def test_the_configuration_runs_as_it_is_written(
    gateway_process: Callable[..., ScratchGateway],
) -> None:
    # Its ports and data directory are overruled; everything else is the file's.
    gateway = gateway_process(config=EXAMPLES / "sluicegate.toml")
    status, queue = gateway.request("GET", "/api/v1/queues/orders")
    assert (status, queue["durable"], queue["routingType"]) == (200, True, "ANYCAST")
    streams = json.dumps(gateway.request("GET", "/api/v1/streams")[1])
    assert '"orders"' in streams
