"""Ten of the rounds of `kills`."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.spark.kills import run_kills

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(420)]


def test_messages_pass_through_spark_once_whatever_is_killed(tmp_path: Path) -> None:
    tally = run_kills(tmp_path, 10, seed=13)
    assert tally.clean, tally
    assert sum(tally.kills.values()) == 10
    assert tally.fed > 1000
