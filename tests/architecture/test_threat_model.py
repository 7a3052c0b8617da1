"""The threat model names tests that exist, and says openly which threats have none."""

from __future__ import annotations

import ast
import re

from tests.architecture.test_pages import rows
from tests.architecture.tree import ROOT

PAGE = (ROOT / "docs" / "threat-model.md").read_text("utf-8")
NAMED = re.compile(r"`(tests/[a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`")


def threats() -> dict[str, list[tuple[str, str]]]:
    return {number: NAMED.findall(shown) for number, _, _, shown in rows(PAGE)}


def _tests_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_named_test_exists() -> None:
    named = {pair for pairs in threats().values() for pair in pairs}
    assert len(named) > 80
    there = {path: _tests_of(path) for path, _ in named if (ROOT / path).is_file()}
    assert [pair for pair in sorted(named) if pair[1] not in there.get(pair[0], set())] == []
    assert len(NAMED.findall(PAGE)) == PAGE.count("::test_"), "a test that is not named in full"


def test_threats_without_a_test_are_listed_as_such() -> None:
    _, _, open_ones = PAGE.partition("## Threats without a test")
    listed = re.findall(r"^- \*\*(.+?)\*\*", open_ones, re.MULTILINE)
    assert listed == [number for number, tests in threats().items() if not tests]


def test_every_threat_of_the_design_is_there() -> None:
    numbers = [number for number, *_ in rows(PAGE)]
    assert numbers[:37] == [f"T{n}" for n in range(1, 38)]
    assert len(set(numbers)) == len(numbers)
    areas = {number.split()[0] for number in numbers[38:]}
    assert areas >= {
        "Archive", "Audit", "Certificate", "LDAP", "Permission", "Quota", "Replay", "Sink",
        "Token", "WebSocket",
    }  # fmt: skip
    assert all(held.strip() for _, _, held, _ in rows(PAGE))
