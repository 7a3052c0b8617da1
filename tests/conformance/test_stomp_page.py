"""docs/stomp-clauses.md and docs/stomp.md cannot lie: each line is tried."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.model.errors import Code, RefusedError
from protocols.stomp.limits import StompLimits
from protocols.stomp.styles import Place, read_destination
from tests.conformance import page, stomp_page
from tests.conformance.stomp_page import Clause

TESTS = page.collect(page.ROOT)
STOMP = page.ROOT / "docs" / "stomp.md"


def test_every_clause_has_tests_that_exist_or_a_reason() -> None:
    assert stomp_page.problems(stomp_page.current(TESTS), TESTS) == []


def test_the_page_is_current() -> None:
    """`make scenarios` writes it."""
    assert stomp_page.PAGE.read_text("utf-8") == stomp_page.render(stomp_page.current(TESTS))


def test_every_must_is_proved() -> None:
    clauses = stomp_page.current(TESTS)
    assert [c.text for c in clauses if c.level.startswith("MUST") and not c.tests] == []
    assert len(clauses) > 80


@pytest.mark.parametrize(
    ("clause", "problem"),
    [
        (Clause(section="SEND", level="MUST", text="A."), "neither tests nor a reason"),
        (
            Clause(section="SEND", level="MUST", text="A.", tests=("a::b",), without="B."),
            "neither tests nor a reason, or both",
        ),
        (Clause(section="SEND", level="MUST", text="A.", tests=("a::b",)), "does not exist"),
        (Clause(section="Send", level="MUST", text="A.", without="B."), "no section"),
        (Clause(section="SEND", level="must", text="A.", without="B."), "no level"),
        (Clause(section="SEND", level="MUST", text="A", without="B."), "no sentence of a table"),
        (Clause(section="SEND", level="MUST", text="A.", without="B"), "no sentence"),
    ],
)
def test_what_is_wrong_with_a_clause_is_said(clause: Clause, problem: str) -> None:
    assert any(problem in one for one in stomp_page.problems([clause], []))


def test_what_is_missing_is_said() -> None:
    mine = f"{stomp_page.OWN}frames.py::test_x"
    two = [
        Clause(section="SEND", level="MAY", text="A.", without="B."),
        Clause(section="Body", level="MAY", text="A.", without="B."),
    ]
    said = stomp_page.problems(two, [mine])
    assert f"{mine} is named by no clause" in said
    assert "the sections are not in the order of the specification" in said
    assert "section 'ACK' has no clause" in said


def test_a_key_that_means_nothing_is_refused() -> None:
    with pytest.raises(TypeError):
        stomp_page.read("[[clause]]\nsection='SEND'\nlevel='MAY'\ntext='A.'\nwhy='B.'\n", [])


# ---- docs/stomp.md


def styles() -> list[tuple[str, str]]:
    """Return (example, what the page says of it) of the table of destinations."""
    text = STOMP.read_text("utf-8").partition("## Destinations")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    found = []
    for written, _, verdict, _ in rows:
        found += [(example, verdict) for example in re.findall(r"`([^`]+)`", written)]
    assert len(found) > 25
    return found


@pytest.mark.parametrize(("written", "verdict"), styles())
def test_the_table_of_destinations_is_true(written: str, verdict: str) -> None:
    """Each example is read as the page says: supported, or refused with what to write instead."""
    if verdict == "refused":
        with pytest.raises(RefusedError) as caught:
            read_destination(written, StompLimits())
        assert caught.value.refusal.code is Code.NOT_IMPLEMENTED
        return
    assert verdict == "supported"
    named = read_destination(written, StompLimits())
    plain = named.place is Place.ADDRESS and named.routing is None
    assert plain == (not written.startswith(("/", "queue:", "topic:"))), "or it is only a name"


def test_every_style_of_the_code_is_in_the_table() -> None:
    source = Path(page.ROOT / "protocols" / "stomp" / "styles.py").read_text("utf-8")
    begins = set(re.findall(r'"((?:/[a-z.-]+/(?:[a-z.]+/)?|[a-z-]+://|jms\.[a-z]+\.))"', source))
    written = [example for example, _ in styles()]
    assert len(begins) >= 12
    assert [one for one in begins if not any(one in example for example in written)] == []
