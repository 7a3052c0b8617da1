"""Ten rounds of deaths; `python -m tests.spark.archive.rounds` runs as many as one likes."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from tests.spark.archive.rounds import run_rounds


@pytest.mark.timeout(120)
def test_nothing_is_lost_or_doubled_in_ten_rounds(tmp_path: Path) -> None:
    done = run_rounds(tmp_path, 10, seed=7)
    assert sum(done.tally.values()) == 10
    assert min(done.sent.values()) > 500
