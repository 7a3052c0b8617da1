"""The bench of growth does its work and tells what grew; how fast it is, is not judged here."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from gateway.bench.growth import ROWS, Cost, Growth, lines, main


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.title)
def test_each_row_moves_what_it_says(row: Growth) -> None:
    work = row.prepare(3)
    for _ in range(3):
        work()


def test_the_figures_come_as_json() -> None:
    found = CliRunner().invoke(main, ["--json", "--shrink", "100000"])
    assert found.exit_code == 0
    rows = json.loads(found.stdout)
    assert [row["title"] for row in rows] == [row.title for row in ROWS]
    assert all(cost > 0 for row in rows for cost in row["nanoseconds"].values())


def test_what_grows_is_marked() -> None:
    level = Cost(title="level", nanoseconds={1: 100.0, 1000: 140.0})
    steep = Cost(title="steep", nanoseconds={1: 100.0, 1000: 151.0})
    _, first, second = lines([level, steep])
    assert first.endswith("1.40")
    assert second.endswith("1.51  grows")
