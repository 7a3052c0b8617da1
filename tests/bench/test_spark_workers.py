"""The bench of Spark's memory sees the processes that read, and the gateway."""

from __future__ import annotations

import pytest

from gateway.bench.spark_workers import measure

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]


def test_workers_and_gateway_are_seen_and_stay_small(spark_environment: dict[str, str]) -> None:
    found = measure(200_000, 256, lambda text: None)
    assert found["rows"] == 200_000
    assert found["worker_mib"], "no worker was seen"
    assert 20 < found["worker_mib"][-1] < 250
    assert 20 < found["gateway_mib"] < 300
