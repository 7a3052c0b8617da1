"""docs/scenarios.md cannot lie: it is what the tests' names say, and every row is accounted for."""

from __future__ import annotations

import re

import pytest

from gateway.config import schema
from gateway.config.schema import Table
from tests.conformance import page
from tests.conformance.page import Scenarios

REASONS = '[reasons]\nlater = "Not yet."\n[rows]\n'
TESTS = ["tests/a/test_b.py::test_r1_something", "tests/a/test_b.py::test_other"]
ONE = {"R": 1}


def scenarios(rows: str, reasons: str = REASONS) -> Scenarios:
    return page.read(reasons + rows)


def test_every_row_has_a_test_or_a_reason() -> None:
    assert page.problems(*page.current()) == []


def test_the_page_is_current() -> None:
    """`make scenarios` writes it."""
    assert page.PAGE.read_text("utf-8") == page.render(*page.current())


def test_every_reason_is_a_sentence_for_people() -> None:
    for reason in page.current()[0].reasons.values():
        assert reason.endswith("."), reason
        assert "|" not in reason
        assert len(reason) > 20


LATER = frozenset[str]().union(*(t.later for t in vars(schema).values() if isinstance(t, Table)))
REFUSED = [r for r in page.current()[0].reasons.values() if "refused at configuration" in r]


@pytest.mark.parametrize("reason", sorted(REFUSED))
def test_what_is_said_to_be_refused_at_configuration_is(reason: str) -> None:
    """A key that is implemented takes this sentence, and the rows that it stands for, with it."""
    keys = re.findall("`([^`]+)`", reason)
    assert keys
    for key in keys:
        in_values = key == "protocols"  # WS is one of its values
        assert in_values or {key, f"default-{key}"} & LATER, key


def test_every_title_is_one_line_that_a_table_takes() -> None:
    titles = [row.title for row in page.current()[0].rows]
    assert len(set(titles)) == len(titles)
    for title in titles:
        assert 10 < len(title) <= 120, title
        assert "|" not in title
        assert title == title.strip(" .")


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("test_q1_credit", ["Q1"]),
        ("test_p11_q2_q3_credit", ["P11", "Q2", "Q3"]),
        ("test_s4", ["S4"]),
        ("test_credit_of_q1", []),
        ("test_t10_of_another_table", []),
        ("test_s10x_is_none", []),
        ("test_1_0_trims", []),
    ],
)
def test_names_claim_rows(name: str, rows: list[str]) -> None:
    assert page.rows_of(name) == rows


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        ('R1 = { title = "x" }', []),
        ('R1 = { title = "x", missing = "later" }', ["R1 is proved by", "take its `missing`"]),
        ('R1 = { title = "x", tests = ["tests/no.py::test_x"] }', ["which does not exist"]),
        (f'R1 = {{ title = "x", tests = ["{TESTS[0]}"] }}', ["whose name says it already"]),
        ("", ["R1 is not in scenarios.toml"]),
        ('R2 = { title = "x" }', ["R1 is not", "R2 is no row", "R2 has neither"]),
        ('R2 = { title = "x", missing = "no" }', ["'no', which is not written"]),
    ],
)
def test_a_page_that_would_lie_is_noticed(rows: str, wrong: list[str]) -> None:
    used = 'R3 = { title = "x", missing = "later" }\n' if "later" not in rows else ""
    found = page.problems(scenarios(used + rows), TESTS, {"R": 1})
    found = [one for one in found if not one.startswith("R3 is no row")]
    assert bool(found) == bool(wrong)
    for part in wrong:
        assert any(part in one for one in found), found


def test_a_row_without_either_and_an_unused_reason_are_noticed() -> None:
    found = page.problems(scenarios('R1 = { title = "x" }'), [TESTS[1]], ONE)
    assert found == ["R1 has neither a test nor a reason", "reason 'later' is used by no row"]


def test_a_test_that_claims_a_row_of_no_table_is_noticed() -> None:
    names = [TESTS[0], "tests/test_z.py::test_r99_far"]
    rows = 'R1 = { title = "x" }\n'
    (wrong,) = page.problems(scenarios(rows, "[reasons]\n[rows]\n"), names, ONE)
    assert wrong == "R99 is no row of any table, and tests/test_z.py::test_r99_far claims it"


def test_keys_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="reason means nothing"):
        scenarios('R1 = { title = "x", reason = "later" }')


def test_a_row_links_its_tests_and_tells_its_reason() -> None:
    rows = 'R1 = { title = "first" }\nR2 = { title = "second", missing = "later" }'
    text = page.render(scenarios(rows), TESTS)
    assert "| R1 | first | [`test_r1_something`](../tests/a/test_b.py) |" in text
    assert "| R2 | second | Not in this version: Not yet. |" in text
    assert "1 of 2 rows are proved." in text
    assert "| [Ring queues](#ring-queues) | 1 | 2 |" in text


def test_tests_are_found_in_classes_too() -> None:
    source = (
        "class TestX:\n    def test_r1_a(self): ...\nasync def test_r2(): ...\ndef other(): ...\n"
    )
    assert sorted(page.tests_in(source)) == ["test_r1_a", "test_r2"]
