"""The filter of a queue over HTTP."""

from __future__ import annotations

import pytest

from tests.management.core import Core

QUEUES = "/api/v1/queues"


@pytest.mark.parametrize("name", ["filter", "filterString"])
def test_a_queue_is_made_with_a_filter_and_shows_it(name):
    core = Core()
    wanted = {"name": "q", "address": "a", "routingType": "ANYCAST", name: "JMSPriority > 4"}
    status, made = core.ask("POST", QUEUES, wanted)
    assert (status, made["filter"]) == (201, "JMSPriority > 4")
    assert core.ask("POST", QUEUES, wanted)[0] == 201
    core.send("a", b"low")
    assert core.queue("q")["messageCount"] == 0
    status, refused = core.ask("POST", QUEUES, {**wanted, name: "JMSPriority > 5"})
    assert status == 409
    assert "JMSPriority > 4" in refused["message"]


def test_a_filter_changes_and_goes():
    core = Core()
    core.ask("POST", QUEUES, {"name": "q", "routingType": "ANYCAST"})
    assert core.queue("q")["filter"] is None
    assert core.ask("PATCH", QUEUES + "/q", {"filter": "JMSPriority > 4"})[0] == 200
    core.send("q", b"low")
    assert core.ask("PATCH", QUEUES + "/q", {"ringSize": 5})[1]["filter"] == "JMSPriority > 4"
    assert core.ask("PATCH", QUEUES + "/q", {"filter": None})[1]["filter"] is None
    core.send("q", b"low")
    assert core.queue("q")["messageCount"] == 1


@pytest.mark.parametrize(
    "fields", [{"filter": "a = "}, {"filter": "a = 1", "filterString": "a = 2"}, {"filter": 5}]
)
def test_an_impossible_filter_changes_nothing(fields):
    core = Core()
    assert core.ask("POST", QUEUES, {"name": "q", **fields})[0] == 422
    assert core.ask("GET", QUEUES)[1]["items"] == []
    core.ask("POST", QUEUES, {"name": "q"})
    assert core.ask("PATCH", QUEUES + "/q", {"ringSize": 3, **fields})[0] == 422
    state = core.queue("q")
    assert (state["filter"], state["ringSize"]) == (None, -1)


def test_a_browse_with_a_filter_says_why_it_is_wrong():
    core = Core()
    core.ask("POST", QUEUES, {"name": "q"})
    status, refused = core.ask("GET", QUEUES + "/q/messages?filter=a = ")
    assert (status, refused["code"]) == (422, "bad-selector")
    assert "column 5" in refused["message"]
