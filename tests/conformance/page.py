"""What is proved: the scenario rows, the tests that carry their numbers, and the page that says so.

    scenarios.toml   every row with a title; `tests` where a test of another name proves it;
                     `missing`, a key of `[reasons]`, where this version does not have it
    tests/           a test named `test_<row>_...` (or `test_<row>_<row>_...`) proves its rows
    docs/            scenarios.md, written by `python -m tests.conformance`

Names are read from the syntax trees: nothing is imported and nothing runs.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = Path(__file__).with_name("scenarios.toml")
PAGE = ROOT / "docs" / "scenarios.md"

#: Each table of rows by the letter that its numbers start with, in the order of the page.
FAMILIES: Mapping[str, str] = {
    "Q": "AMQP 1.0",
    "S": "STOMP",
    "C": "Conversion between AMQP and STOMP",
    "A": "Addresses and queues",
    "R": "Ring queues",
    "P": "Limits and paging",
    "D": "Disk",
    "K": "Store and dispatch",
    "V": "Streams replayed by consumers",
    "M": "Management",
    "U": "What users reported of other brokers",
}
#: How many rows each table has: a row that is left out of the file is noticed.
SIZES: Mapping[str, int] = dict(
    zip("QSCARPDKVMU", (45, 34, 18, 36, 34, 42, 16, 19, 18, 10, 8), strict=True)
)
_INTRODUCTION = (
    "Every row is a situation that a message broker gets into and what must come of it. A row is "
    "proved by the tests named beside it, or it says why this version does not have it. A test "
    "keeps this page true: no row without either, none with both."
)
_ROW = re.compile(rf"[{''.join(FAMILIES).lower()}][0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a table."""

    number: str
    title: str
    missing: str | None = None
    tests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenarios:
    """The file, read."""

    rows: tuple[Row, ...]
    reasons: Mapping[str, str] = field(default_factory=dict)


def read(text: str) -> Scenarios:
    """Return what a file says; raises ValueError for keys that mean nothing."""
    document = tomllib.loads(text)
    rows = []
    for number, values in document["rows"].items():
        unknown = values.keys() - {"title", "missing", "tests"}
        if unknown:
            raise ValueError(f"{number}: {', '.join(sorted(unknown))} means nothing here")
        rows.append(
            Row(
                number=number,
                title=values["title"],
                missing=values.get("missing"),
                tests=tuple(values.get("tests", ())),
            )
        )
    return Scenarios(rows=tuple(rows), reasons=document["reasons"])


def rows_of(name: str) -> list[str]:
    """Return the rows that a test's name claims: `test_q1_q2_credit` claims Q1 and Q2."""
    found = []
    for word in name.split("_")[1:]:
        if _ROW.fullmatch(word) is None:
            break
        found.append(word.upper())
    return found


def tests_in(source: str) -> Iterator[str]:
    """Yield the names of the test functions of a module."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if name.startswith("test_"):
                    yield name


def collect(root: Path) -> list[str]:
    """Return every test below `root`/tests as `tests/path.py::name`, sorted."""
    found = set()
    for path in (root / "tests").rglob("test_*.py"):
        where = path.relative_to(root).as_posix()
        found |= {f"{where}::{name}" for name in tests_in(path.read_text("utf-8"))}
    return sorted(found)


def proofs(scenarios: Scenarios, tests: Iterable[str]) -> dict[str, list[str]]:
    """Return the tests of each row, by name first, then those that the file lists."""
    found: dict[str, list[str]] = {}
    for test in tests:
        for number in rows_of(test.partition("::")[2]):
            found.setdefault(number, []).append(test)
    for row in scenarios.rows:
        known = found.setdefault(row.number, [])
        known += [test for test in row.tests if test not in known]
    return found


def problems(scenarios: Scenarios, tests: list[str], sizes: Mapping[str, int] = SIZES) -> list[str]:
    """Return what the page would get wrong: each row has a test or a reason, never both."""
    proved = proofs(scenarios, tests)
    wanted = [f"{letter}{n}" for letter, size in sizes.items() for n in range(1, size + 1)]
    numbers = [row.number for row in scenarios.rows]
    wrong = [f"{number} is not in scenarios.toml" for number in wanted if number not in numbers]
    for number in sorted(proved.keys() - set(wanted)):
        names = ", ".join(proved[number]) or "scenarios.toml"
        wrong.append(f"{number} is no row of any table, and {names} claims it")
    for row in scenarios.rows:
        wrong += _problems_of(row, proved[row.number], scenarios.reasons, tests)
    used = {row.missing for row in scenarios.rows}
    wrong += [f"reason {key!r} is used by no row" for key in scenarios.reasons if key not in used]
    return wrong


def _problems_of(
    row: Row, proved: list[str], reasons: Mapping[str, str], tests: list[str]
) -> Iterator[str]:
    named = [test for test in row.tests if row.number in rows_of(test.partition("::")[2])]
    if named:
        yield f"{row.number} lists {named[0]}, whose name says it already"
    for test in row.tests:
        if test not in tests:
            yield f"{row.number} lists {test}, which does not exist"
    if row.missing is None and not proved:
        yield f"{row.number} has neither a test nor a reason"
    if row.missing is not None and proved:
        yield f"{row.number} is proved by {proved[0]}: take its `missing` out of scenarios.toml"
    if row.missing is not None and row.missing not in reasons:
        yield f"{row.number} has the reason {row.missing!r}, which is not written"


def render(scenarios: Scenarios, tests: list[str]) -> str:
    """Return the page."""
    proved = proofs(scenarios, tests)
    have = sum(row.missing is None for row in scenarios.rows)
    lines = [
        "# Scenarios",
        "",
        "<!-- Written by `make scenarios` from tests/conformance/scenarios.toml. -->",
        "",
        _INTRODUCTION,
        "",
        f"{have} of {len(scenarios.rows)} rows are proved.",
        "",
        "| table | proved | rows |",
        "| --- | --- | --- |",
    ]
    for letter, title in FAMILIES.items():
        mine = [row for row in scenarios.rows if row.number[0] == letter]
        good = sum(row.missing is None for row in mine)
        lines.append(f"| [{title}](#{_anchor(title)}) | {good} | {len(mine)} |")
    for letter, title in FAMILIES.items():
        lines += ["", f"## {title}", "", "| row | what | proved by |", "| --- | --- | --- |"]
        for row in scenarios.rows:
            if row.number[0] == letter:
                lines.append(_line(row, proved[row.number], scenarios.reasons))
    return "\n".join(lines) + "\n"


def _line(row: Row, proved: list[str], reasons: Mapping[str, str]) -> str:
    if row.missing is None:
        said = "<br>".join(_link(test) for test in proved)
    else:
        said = f"Not in this version: {reasons[row.missing]}"
    return f"| {row.number} | {row.title} | {said} |"


def _link(test: str) -> str:
    path, _, name = test.partition("::")
    return f"[`{name}`](../{path})"


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def current() -> tuple[Scenarios, list[str]]:
    """Return the file and the tests of this checkout."""
    return read(SCENARIOS.read_text("utf-8")), collect(ROOT)


def write(page: Path, text: str) -> bool:
    """Write the page where it changed; returns whether it did."""
    if page.exists() and page.read_text("utf-8") == text:
        return False
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, "utf-8")
    return True
