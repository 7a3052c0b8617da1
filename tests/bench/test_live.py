"""The whole bench, a hundredth of its size, against the real gateway."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from gateway.bench.command import bench
from gateway.bench.rows import ROWS
from gateway.trial.scratch import HOST, ScratchGateway


@pytest.mark.slow
def test_every_row_is_measured_and_every_queue_is_left_empty(gateway: ScratchGateway) -> None:
    arguments = [
        *("--target", f"{HOST}:{gateway.port}", "--target-stomp", f"{HOST}:{gateway.stomp_port}"),
        *("--scale", "0.01", "--json"),
    ]
    result = CliRunner().invoke(bench, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    rows = json.loads(result.stdout)["rows"]
    assert [row["key"] for row in rows] == [row.key for row in ROWS]
    for row in rows:
        assert row["median"]["rate"] > 0
        # Found by its port, since the bench has not started this one.
        assert row["median"]["cpu"] is not None
    queues = gateway.request("GET", "/api/v1/queues")[1]["items"]
    assert len(queues) >= sum(row.kind != "fan" for row in ROWS), (
        "a subscription goes with its client"
    )
    assert {queue["name"]: queue["messageCount"] for queue in queues if queue["messageCount"]} == {}


@pytest.mark.slow
def test_without_a_target_one_is_started_and_stopped() -> None:
    arguments = ["--rows", "amqp-in,stomp-out", "--scale", "0.01"]
    result = CliRunner().invoke(bench, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    assert "AMQP in" in result.stdout
    assert "STOMP out" in result.stdout
    assert "scratch on " in result.stdout
