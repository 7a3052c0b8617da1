"""docs/faults.md names tests that exist, events that are logged and exit statuses that are ours."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from gateway.assembly.service import EX_CONFIG, EX_IOERR, EX_RUNNING
from gateway.logs.lines import EVENTS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "faults.md").read_text("utf-8")
ROWS = [line.split("|")[1:-1] for line in PAGE.splitlines() if line.startswith("| ")][1:]
EVENT = re.compile(r"`((?:clock|disk|gateway|page|queue|scrub|store|stream)\.[a-z_]+)`")


def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_the_table_is_read() -> None:
    assert len(ROWS) > 20
    assert {len(row) for row in ROWS} == {4}


@pytest.mark.parametrize("row", ROWS, ids=[row[0].strip()[:40] for row in ROWS])
def test_a_row_is_shown_by_tests_that_exist(row: list[str]) -> None:
    named = re.findall(r"`([^`]+)::(test_[a-z0-9_]+)`", row[3])
    assert named
    assert len(named) == row[3].count("::")
    for path, name in named:
        assert name in functions_of(ROOT / path), f"{path} has no {name}"


def test_events_are_what_the_gateway_logs() -> None:
    assert sorted(set(EVENT.findall(PAGE)) - EVENTS.keys()) == []
    assert len(set(EVENT.findall(PAGE))) > 10


def test_exit_statuses_are_ours() -> None:
    named = {int(found) for found in re.findall(r"exit status (\d\d)", PAGE)}
    assert named == {EX_CONFIG, EX_IOERR, EX_RUNNING}


def test_the_readme_links_it() -> None:
    assert "(docs/faults.md)" in (ROOT / "README.md").read_text("utf-8")
