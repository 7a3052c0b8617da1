"""The page that says which test proves which clause of STOMP 1.2.

    stomp_clauses.toml   every clause, with tests or the reason why none is needed
    docs/                stomp-clauses.md, written by `python -m tests.conformance`

A name without a path is a test of `test_stomp_clauses_*.py`, each of which is named by some clause.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.page import ROOT

CLAUSES = Path(__file__).with_name("stomp_clauses.toml")
PAGE = ROOT / "docs" / "stomp-clauses.md"
OWN = "tests/conformance/test_stomp_clauses_"
LEVELS = ("MUST", "MUST NOT", "SHOULD", "MAY", "rule")
#: The headings of the specification that say something of a server, in its order.
SECTIONS = (
    "STOMP Frames",
    "Value Encoding",
    "Body",
    "Header content-length",
    "Header content-type",
    "Header receipt",
    "Repeated Header Entries",
    "Size Limits",
    "Connection Lingering",
    "Connecting",
    "CONNECT or STOMP Frame",
    "CONNECTED Frame",
    "Protocol Negotiation",
    "Heart-beating",
    "Client Frames",
    "SEND",
    "SUBSCRIBE",
    "SUBSCRIBE id Header",
    "SUBSCRIBE ack Header",
    "UNSUBSCRIBE",
    "ACK",
    "NACK",
    "BEGIN",
    "COMMIT",
    "ABORT",
    "DISCONNECT",
    "MESSAGE",
    "RECEIPT",
    "ERROR",
    "Frames and Headers",
    "Augmented BNF",
)
_INTRODUCTION = (
    "Each row is a clause of the [STOMP 1.2 specification](https://stomp.github.io/"
    "stomp-specification-1.2.html) that says something of a server, in our words: what it must, "
    "must not, should or may do, and by `rule` how things are. A clause is proved by the tests "
    "beside it, or the row says why there is nothing to prove. [STOMP](stomp.md) has the "
    "differences of 1.0 and 1.1. A test keeps this page true."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One row. `without` is why it has no tests."""

    section: str
    level: str
    text: str
    tests: tuple[str, ...] = ()
    without: str = ""


def read(text: str, tests: Sequence[str]) -> list[Clause]:
    """Return what a file says, with the paths of `tests`.

    Raises TypeError for keys that mean nothing. A name that no test has stays as it is.
    """
    own = {test.partition("::")[2]: test for test in tests if test.startswith(OWN)}
    found = []
    for values in tomllib.loads(text)["clause"]:
        named = [own.get(one, one) for one in values.pop("tests", [])]
        found.append(Clause(tests=tuple(named), **values))
    return found


def problems(clauses: Sequence[Clause], tests: Sequence[str]) -> list[str]:
    """Return what the page would get wrong."""
    known = set(tests)
    wrong = []
    for number, clause in enumerate(clauses, 1):
        wrong += [f"clause {number}: {one}" for one in _problems_of(clause, known)]
    order = [SECTIONS.index(clause.section) for clause in clauses if clause.section in SECTIONS]
    if order != sorted(order):
        wrong.append("the sections are not in the order of the specification")
    wrong += [
        f"section {name!r} has no clause"
        for name in SECTIONS
        if name not in {clause.section for clause in clauses}
    ]
    named = {test for clause in clauses for test in clause.tests}
    mine = {test for test in tests if test.startswith(OWN)}
    wrong += [f"{test} is named by no clause" for test in sorted(mine - named)]
    return wrong


def _problems_of(clause: Clause, known: set[str]) -> Iterator[str]:
    if clause.section not in SECTIONS:
        yield f"{clause.section!r} is no section"
    if clause.level not in LEVELS:
        yield f"{clause.level!r} is no level"
    if not clause.text.endswith(".") or "|" in clause.text + clause.without:
        yield f"{clause.text!r} is no sentence of a table"
    if bool(clause.tests) == bool(clause.without):
        yield f"{clause.text!r} has neither tests nor a reason, or both"
    if clause.without and not clause.without.endswith("."):
        yield f"{clause.without!r} is no sentence"
    for test in clause.tests:
        if test not in known:
            yield f"{test} does not exist"


def render(clauses: Sequence[Clause]) -> str:
    """Return the page."""
    proved = sum(bool(clause.tests) for clause in clauses)
    lines = [
        "# The clauses of STOMP 1.2",
        "",
        "<!-- Written by `make scenarios` from tests/conformance/stomp_clauses.toml. -->",
        "",
        _INTRODUCTION,
        "",
        f"{proved} of {len(clauses)} clauses are proved; the others are for clients.",
        "",
        "| row | section | level | clause | proved by |",
        "| --- | --- | --- | --- | --- |",
    ]
    for number, clause in enumerate(clauses, 1):
        said = (
            "<br>".join(_link(test) for test in clause.tests)
            or f"Nothing to prove: {clause.without}"
        )
        lines.append(f"| {number} | {clause.section} | {clause.level} | {clause.text} | {said} |")
    return "\n".join(lines) + "\n"


def _link(test: str) -> str:
    path, _, name = test.partition("::")
    return f"[`{name}`](../{path})"


def current(tests: Sequence[str]) -> list[Clause]:
    """Return the clauses of this checkout, which has these tests."""
    return read(CLAUSES.read_text("utf-8"), tests)
