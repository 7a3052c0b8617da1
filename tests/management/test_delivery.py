"""What the API shows and does of the delivery features: scheduled messages, retries."""

from __future__ import annotations

from gateway.model.message import DURABLE, STOMP
from gateway.model.run import Run
from gateway.model.stomp_form import pack
from tests.management.core import Core

QUEUES = "/api/v1/queues"


def test_what_waits_for_its_time_is_shown_and_counted():
    core = Core()
    core.send("q", b"now")
    route = core.gateway.routing.internal("q")
    route.send(Run([pack("q", b"later")], STOMP | DURABLE | 4, 0, core.now + 60_000))
    core.turn()
    _, shown = core.ask("GET", QUEUES + "/q")
    assert (shown["messageCount"], shown["scheduledCount"]) == (2, 1)
    status, page = core.ask("GET", QUEUES + "/q/messages")
    assert status == 200
    shown = [(item["body"], item["state"], item["due"]) for item in page["items"]]
    assert shown == [("now", "ready", None), ("later", "scheduled", core.now + 60_000)]
    core.now += 60_000
    core.gateway.on_time()
    core.turn()
    _, page = core.ask("GET", QUEUES + "/q/messages")
    assert [(item["body"], item["state"]) for item in page["items"]] == [
        ("later", "ready"),
        ("now", "ready"),
    ]


def test_dead_letters_go_back_at_the_apis_word():
    core = Core()
    core.send("q", b"x", b"y")
    taker = core.take("q", 2)
    for message in list(taker.got):
        taker.hold.reject([message])
    core.turn()
    assert core.ask("GET", QUEUES + "/DLQ")[1]["messageCount"] == 2
    assert core.ask("POST", QUEUES + "/DLQ/retryMessages", {}) == (200, {"messages": 2})
    assert core.ask("GET", QUEUES + "/DLQ")[1]["messageCount"] == 0
    assert core.ask("POST", QUEUES + "/DLQ/retryMessages") == (200, {"messages": 0})
    assert core.ask("POST", QUEUES + "/none/retryMessages")[0] == 404
    assert core.ask("POST", QUEUES + "/DLQ/retryMessages?all=true")[0] == 422


GIVEN = {
    "exclusive": True,
    "purgeOnNoConsumers": True,
    "consumersBeforeDispatch": 2,
    "delayBeforeDispatch": 500,
}


def test_attributes_are_made_shown_changed_and_kept():
    core = Core()
    status, shown = core.ask("POST", QUEUES, {"name": "q", **GIVEN})
    assert status == 201
    assert {key: shown[key] for key in GIVEN} == GIVEN
    assert core.ask("POST", QUEUES, {"name": "q", **GIVEN})[0] == 201
    assert core.ask("POST", QUEUES, {"name": "q", "exclusive": False})[0] == 409
    status, shown = core.ask("PATCH", QUEUES + "/q", {"consumersBeforeDispatch": 0})
    assert status == 200
    assert {key: shown[key] for key in GIVEN} == {**GIVEN, "consumersBeforeDispatch": 0}
    for wrong in ({"exclusive": "yes"}, {"delayBeforeDispatch": -2}, {"purgeOnNoConsumers": 1}):
        status, error = core.ask("PATCH", QUEUES + "/q", {"maxConsumers": 3, **wrong})
        assert status == 422
        assert next(iter(wrong)) in error["message"]
    assert core.ask("GET", QUEUES + "/q")[1]["maxConsumers"] == -1
