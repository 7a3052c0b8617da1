"""Rows measured with real driver processes against brokers of a few lines."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from gateway.bench.command import bench
from gateway.bench.rows import ROWS, Row
from gateway.bench.run import BenchError, Target, measure
from tests.bench.brokers import broker

CHOSEN = (
    "amqp-in",
    "amqp-in-settled",
    "amqp-out",
    "amqp-both",
    "amqp-in-w1",
    "amqp-10x100",
    "amqp-mixed-both",
    "stomp-in",
    "stomp-out",
    "stomp-in-durable",
    "stomp-both-durable",
    "stomp-mixed-both",
)


def row(key: str) -> Row:
    return next(one for one in ROWS if one.key == key)


def target(protocol: str, port: int) -> Target:
    return Target(name="broker", host="127.0.0.1", ports={protocol: port}, pids={})


@pytest.mark.parametrize("key", CHOSEN)
def test_a_row_is_measured_and_leaves_nothing_behind(key: str) -> None:
    chosen = replace(row(key), count=600)
    with broker(chosen.protocol) as (port, store):
        found = measure(chosen, target(chosen.protocol, port))
        assert store.bodies == []
        assert store.sent == 600
    assert found.rate > 0
    silent = key in ("amqp-in-settled", "stomp-in", "stomp-out")
    assert (found.p50 is None) == silent
    if not silent:
        assert found.p50 is not None
        assert found.p99 is not None
        assert found.worst is not None
        assert 0 < found.p50 <= found.p99 <= found.worst < 60_000
    assert found.cpu is None


def test_a_broker_that_is_not_there_is_named() -> None:
    with broker("amqp") as (port, _):
        pass
    with pytest.raises(BenchError, match=rf"amqp send at 127.0.0.1:{port}: .*refused"):
        measure(row("amqp-in"), target("amqp", port))


def test_a_broker_of_the_other_protocol_is_named() -> None:
    with broker("stomp") as (port, _), pytest.raises(BenchError, match="amqp send at"):
        measure(row("amqp-in"), target("amqp", port))


def test_the_command_pairs_rows_with_a_peer_and_prints_json() -> None:
    with broker("amqp") as (ours, _), broker("amqp") as (theirs, store):
        arguments = [
            *("--target", f"127.0.0.1:{ours}", "--against", f"127.0.0.1:{theirs}"),
            *("--rows", "amqp-in,amqp-out", "--rounds", "2", "--scale", "0.002"),
            *("--warm-up", "1", "--json"),
        ]
        result = CliRunner().invoke(bench, arguments, catch_exceptions=False)
        assert store.sent == 2 * 2 * 400 + 400
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert [one["key"] for one in found["rows"]] == ["amqp-in", "amqp-out"]
    for one in found["rows"]:
        assert len(one["rounds"]) == len(one["peer"]["rounds"]) == 2
        assert one["ratio"] > 0
        assert one["median"]["cpu"] >= 0
    said = result.stderr.splitlines()
    assert said[0].startswith("warming peer, run 1:")
    order = [line.split(", ")[-1].split(":")[0] for line in said[1:]]
    assert order == ["gateway", "peer", "peer", "gateway", "peer", "gateway", "gateway", "peer"]


def test_the_command_prints_a_table() -> None:
    with broker("stomp") as (port, _):
        arguments = [
            "--target-stomp",
            f"127.0.0.1:{port}",
            "--rows",
            "stomp-in",
            "--scale",
            "0.002",
        ]
        result = CliRunner().invoke(bench, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    head, line, about = result.stdout.splitlines()
    assert head.split()[:2] == ["row", "msg/s"]
    assert line.startswith("STOMP in, no receipts")
    assert "bodies 256 B" in about
