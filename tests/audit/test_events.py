"""The catalogue of the audit trail is what the code says, and floods are summed by its names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from gateway.audit import events
from gateway.audit.events import EVENTS, PERSONAL, WHOLE
from gateway.audit.sums import PERIOD_MS, Sums

ROOT = Path(__file__).resolve().parents[2]
#: What the trail says of itself.
OF_ITSELF = {v for v in vars(events).values() if isinstance(v, str) and v.startswith("audit.")}


def said() -> dict[str, str]:
    found = {}
    for path in [*(ROOT / "gateway").rglob("*.py"), *(ROOT / "protocols").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "note"
                and node.args
                and isinstance(node.args[0], ast.Constant)
                and isinstance(node.args[0].value, str)
                and "audit" in ast.unparse(node.func.value).lower()
            ):
                found[node.args[0].value] = f"{path.relative_to(ROOT)}:{node.lineno}"
    return found


def test_what_the_code_notes_is_in_the_catalogue() -> None:
    assert {name: place for name, place in said().items() if name not in EVENTS} == {}


def test_the_catalogue_has_nothing_that_nobody_notes() -> None:
    assert EVENTS.keys() - said().keys() - OF_ITSELF == set()
    assert EVENTS.keys() >= OF_ITSELF


def test_names_have_one_shape_and_every_flood_a_meaning() -> None:
    assert all(re.fullmatch(r"[a-z]+\.[a-z]+(_[a-z]+)*", name) for name in EVENTS)
    assert WHOLE.keys() <= EVENTS.keys()
    assert {"user", "remote", "client_id", "users", "remotes"} <= PERSONAL


def test_a_flood_is_told_whole_a_while_and_then_summed_by_minute() -> None:
    sums = Sums({"login.refused": 2})
    took = [sums.takes("login.refused", {"user": f"u{n % 2}", "remote": "h"}, n) for n in range(7)]
    assert took == [True, True, False, False, False, False, False]
    assert all(sums.takes("api.changed", {}, 1) for _ in range(500))
    assert sums.over(PERIOD_MS - 1) == []
    (one,) = sums.over(PERIOD_MS)
    assert one == {
        "of": "login.refused", "count": 5, "seconds": 60,
        "users": {"u0": 3, "u1": 2}, "remotes": {"h": 5},
    }  # fmt: skip
    # Each minute begins anew, so that an attack does not hide the refusals of others for ever.
    assert sums.takes("login.refused", {"user": "ann"}, PERIOD_MS + 5)
    assert sums.running
    assert sums.over(2 * PERIOD_MS + 5) == []
    assert not sums.running


def test_a_clock_that_goes_back_ends_the_minute() -> None:
    sums = Sums({"x": 0})
    assert not sums.takes("x", {}, 10_000_000)
    assert [one["count"] for one in sums.over(5_000_000)] == [1]


def test_users_of_a_flood_are_counted_within_bounds() -> None:
    sums = Sums({"x": 0})
    for number in range(5000):
        sums.takes("x", {"user": f"u{number}"}, 1)
    sums.takes("x", {"user": "u7"}, 1)
    (one,) = sums.over(None)
    assert one["count"] == 5001
    assert len(one["users"]) == 10
    assert one["users"]["u7"] == 2
