"""The calls on diverts: making, listing, deleting, and what is refused."""

from __future__ import annotations

import pytest

from gateway.model.definitions import DivertDefinition
from tests.management.core import Core

DIVERTS = "/api/v1/diverts"
PLAIN = {"name": "d", "address": "q", "forwardingAddress": "b, c"}


def test_a_divert_is_made_shown_and_deleted():
    core = Core()
    status, made = core.ask("POST", DIVERTS, PLAIN)
    assert (status, made["forwardingAddress"], made["exclusive"]) == (201, "b,c", False)
    assert made["filter"] is None
    assert made["routingType"] == "STRIP"
    core.send("q", b"1", b"2")
    assert core.ask("GET", DIVERTS + "/d")[1]["divertedMessageCount"] == 4
    assert [core.queue(n)["messageCount"] for n in "qbc"] == [2, 2, 2]
    assert [one["name"] for one in core.ask("GET", DIVERTS)[1]["items"]] == ["d"]
    assert core.ask("DELETE", DIVERTS + "/d") == (204, None)
    core.send("q", b"3")
    assert [core.queue(n)["messageCount"] for n in "qbc"] == [3, 2, 2]
    assert core.ask("GET", DIVERTS + "/d")[0] == 404
    assert core.ask("DELETE", DIVERTS + "/d")[0] == 404


def test_the_same_divert_again_is_as_good():
    core = Core()
    whole = PLAIN | {
        "exclusive": True,
        "filterString": "x = 1",
        "routingType": "PASS",
        "forwardingAddress": ["b"],
    }
    first = core.ask("POST", DIVERTS, whole)
    assert core.ask("POST", DIVERTS, whole) == first == (201, first[1])
    assert (first[1]["filter"], first[1]["routingType"]) == ("x = 1", "PASS")
    status, told = core.ask("POST", DIVERTS, PLAIN)
    assert (status, told["code"]) == (409, "already-exists")


@pytest.mark.parametrize(
    ("change", "status", "named"),
    [
        ({"transformer": "x"}, 501, "transformer"),
        ({"transformerClassName": "a.B"}, 501, "transformerClassName"),
        ({"routingType": "SOME"}, 422, "STRIP, PASS, ANYCAST, MULTICAST"),
        ({"filter": "x ="}, 422, "x ="),
        ({"filter": "x = 1", "filterString": "x = 2"}, 422, "two names"),
        ({"forwardingAddress": "q"}, 422, "back to it"),
        ({"forwardingAddress": []}, 422, "forwardingAddress"),
        ({"forwardingAddress": "b,,c"}, 422, "empty"),
        ({"address": ""}, 422, "address name is empty"),
        ({"name": "$x"}, 422, "'$'"),
        ({"unknown": 1}, 422, "unknown"),
    ],
)
def test_what_is_refused_changes_nothing(change, status, named):
    core = Core()
    answer, told = core.ask("POST", DIVERTS, PLAIN | change)
    assert (answer, named in told["message"]) == (status, True), told
    assert core.ask("GET", DIVERTS)[1] == {"items": [], "total": 0, "cursor": None}


def test_one_of_the_configuration_stays():
    core = Core()
    wanted = DivertDefinition(name="d", address="q", forwarding=("b",))
    core.gateway.branches.create(wanted, configured=True)
    assert core.ask("GET", DIVERTS + "/d")[1]["configured"] is True
    status, told = core.ask("DELETE", DIVERTS + "/d")
    assert (status, told["code"]) == (409, "in-use")
    assert core.gateway.branches.definitions() == []


def test_a_leg_is_no_producer_of_its_target():
    core = Core()
    core.ask("POST", DIVERTS, PLAIN)
    core.send("q", b"1")
    assert core.address("b")["producerCount"] == 0
    assert core.ask("DELETE", "/api/v1/addresses/b?force=true")[0] == 204
