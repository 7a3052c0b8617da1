"""What the recorder makes of events: bounded JSON without secrets, in order, raising nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.audit.recorder import ITEMS_MAX, LINE_BYTES_MAX, TEXT_CHARS_MAX, Recorder
from gateway.model.principal import Principal


class Kept:
    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.now = 0
        self.recorder = Recorder(lambda: self.now, lambda s, f: self.timers.append((s, f)))
        self.recorder.post = self.bodies.append

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(body) for body in self.bodies]


def test_facts_are_kept_as_json_and_objects_as_text() -> None:
    kept = Kept()
    principal = Principal("ann")
    kept.recorder.note("api.changed", a=1, b="x", c=None, d=principal, e={"k": [1, {"deep": {}}]})
    (line,) = kept.lines
    assert line["time"] == "1970-01-01T00:00:00.000Z"
    assert (line["a"], line["b"], line["c"], line["d"]) == (1, "x", None, repr(principal))
    assert line["e"] == {"k": ["1", "{'deep': {}}"]} or line["e"]["k"][0] == 1


def test_what_is_called_like_a_secret_is_blotted_out_at_any_depth() -> None:
    kept = Kept()
    secrets = {"password": "pw1", "deep": {"apiKey": "pw2", "sslKeyPassphrase": "pw3"}}
    kept.recorder.note("api.changed", token="pw4", body=secrets, passcode=["pw5"])
    text = kept.bodies[0].decode()
    assert not any(f"pw{n}" in text for n in range(1, 6))
    assert "passwordChanged" not in text


def test_no_fact_takes_the_place_of_a_field_of_the_chain() -> None:
    kept = Kept()
    kept.recorder.note("api.changed", seq=9, prev="x", hash="y", time="z")
    assert kept.lines == [{"time": "1970-01-01T00:00:00.000Z", "event": "api.changed"}]


def test_personal_facts_are_left_out() -> None:
    kept = Kept()
    kept.recorder.personal = False
    kept.recorder.note("login.accepted", user="ann", remote="h:1", listener="acceptors.all")
    assert kept.lines[0].keys() == {"time", "event", "listener"}
    kept.recorder.note("user.changed", key="users.ann.roles", old=[], new=["admin"])
    kept.recorder.note("certificate.refused", subject="CN=ann", names="ann@x", serial="1", peer="h")
    assert kept.lines[1]["key"] == "users"
    assert "ann" not in str(kept.lines)


def test_a_line_is_bounded_whatever_comes() -> None:
    kept = Kept()
    kept.recorder.note("api.changed", text="x" * 10**6, many=["y" * 999] * 10**4)
    kept.recorder.note("e" * 10**5, **{f"key{n}" * 50: n for n in range(1000)})
    assert all(len(body) <= LINE_BYTES_MAX for body in kept.bodies)
    assert [line.get("shortened") for line in kept.lines] == [True, True]
    kept.recorder.note("api.changed", text="x" * (TEXT_CHARS_MAX + 7), some=list(range(99)))
    assert kept.lines[2]["text"].endswith("...[7 characters]")
    assert len(kept.lines[2]["some"]) == ITEMS_MAX


@given(st.dictionaries(st.text(min_size=1), st.text() | st.binary() | st.integers(), max_size=5))
def test_any_texts_make_one_line_of_json(facts: dict[str, Any]) -> None:
    kept = Kept()
    kept.recorder._record("api.changed", facts)
    (body,) = kept.bodies
    assert b"\n" not in body
    assert json.loads(body)["event"] == "api.changed"


def test_lone_surrogates_and_endless_numbers_raise_nothing() -> None:
    kept = Kept()
    kept.recorder.note("login.refused", user="\ud800x", inf=float("inf"), big=2**80)
    assert kept.lines[0]["user"] == "\\ud800x"


def test_a_flood_is_summed_by_a_timer_and_at_the_end() -> None:
    kept = Kept()
    for _ in range(130):
        kept.recorder.note("login.refused", user="ann", remote="h")
    assert len(kept.bodies) == 100
    ((seconds, look),) = kept.timers
    kept.now = int(seconds * 1000)
    look()
    assert (kept.lines[-1]["event"], kept.lines[-1]["count"]) == ("audit.summed", 30)
    for _ in range(101):
        kept.recorder.note("login.refused", user="ann", remote="h")
    kept.recorder.end()
    assert kept.lines[-1]["count"] == 1


def test_nothing_is_done_where_nothing_is_kept() -> None:
    kept = Kept()
    kept.recorder.post = None
    kept.recorder.note("login.refused", user="ann")
    assert kept.timers == []
    told: list[tuple[str, Any]] = []
    kept.recorder.echo = lambda event, facts: told.append((event, facts))
    kept.recorder.note("login.refused", user="ann")
    assert told == [("login.refused", {"user": "ann"})]
