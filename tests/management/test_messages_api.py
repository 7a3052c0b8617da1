"""The calls on the messages of a queue, over the real core: filters, one, many, moving."""

from __future__ import annotations

import json

import pytest
from twisted.python.failure import Failure

from gateway.addresses.match import SettingsEntry
from gateway.addresses.settings import FullPolicy
from gateway.broker.operations import errand
from gateway.management.http import error_response
from gateway.model.address import Destination, RoutingType
from gateway.model.message import DURABLE, EXPIRES, SCHEDULED, STOMP
from gateway.model.run import Run
from gateway.model.sections import with_annotations
from gateway.model.stomp_form import pack
from tests.broker.core import Owner
from tests.management.core import Core, limited

Q = "/api/v1/queues/q"
FLAGS = DURABLE | STOMP | 4
RED = "?filter=colour = 'red'"


def send(core: Core, *colours: str, name: str = "q", expires: int = 0, due: int = 0) -> None:
    """Send messages whose header `colour` and whose body say what they are."""
    route = core.gateway.open_producer(Destination(name), None, Owner())
    flags = FLAGS | (EXPIRES if expires else 0)
    for number, colour in enumerate(colours):
        headers = [("colour", colour), ("number", str(number))]
        body = pack(name, colour.encode(), persistent=True, headers=headers)
        if due:
            route.send(Run([body], flags, expires, due))
        else:
            route.send(Run([body], flags, expires))
    route.close()


def made(core: Core, *names: str) -> None:
    for name in names:
        assert core.ask("POST", "/api/v1/queues", {"name": name})[0] == 201


def bodies(core: Core, name: str = "q", query: str = "") -> list[str]:
    status, shown = core.ask("GET", f"/api/v1/queues/{name}/messages{query}")
    assert status == 200, shown
    return [item["body"] for item in shown["items"]]


def check(core: Core) -> None:
    """Counts and accounts add up."""
    gateway = core.gateway
    for queue in gateway.queues.values():
        queue.check_invariants()
    assert gateway.load.messages == sum(q.message_count for q in gateway.queues.values())
    assert gateway.load.memory == sum(a.size_bytes for a in gateway.addresses.values())
    if not gateway.load.messages:
        assert gateway.load.memory == 0


def long_ask(core: Core, path: str, body: object, method: str = "POST"):
    """Ask for what takes more than one turn; returns status, answer and the turns that it took."""
    results = []
    core.start(method, path, body).addBoth(results.append)
    turns = 0
    while not results:
        core.sync()
        turns += 1
        assert turns < 200
    (answer,) = results
    if isinstance(answer, Failure):
        answer = error_response(answer.value)
    return answer.status, json.loads(answer.body), turns


# ---- looking


@pytest.mark.parametrize(("most", "shown"), [(None, 256), (0, 0), (3, 3), (-1, None), (300, None)])
def test_a_browse_shows_so_much_of_a_property_and_one_message_all(most, shown):
    settings = {} if most is None else {"management_message_attribute_size_limit": most}
    core = Core(SettingsEntry(match="q", values=settings))
    made(core, "q")
    text = "\N{RABBIT}" * 300
    route = core.gateway.open_producer(Destination("q"), None, Owner())
    form = pack("q", b"b" * 400, headers=[("long", text), ("correlation-id", text), ("short", "")])
    route.send(Run([form], STOMP | 4))
    noted = with_annotations(b"\x00\x53\x75\xa0\x01b", {"x-a": text})
    route.send(Run([noted], 4))
    core.sync()
    cut = text if shown is None else f"{text[:shown]}, + {300 - shown} more"
    for query in ("", "?filter=JMSPriority = 4"):
        first, second = core.ask("GET", f"{Q}/messages{query}")[1]["items"]
        assert first["headers"] == {"long": cut, "short": ""}
        assert (first["correlationId"], first["body"]) == (cut, "b" * 400)
        assert second["annotations"] == {"x-a": cut}
        assert (second["subject"], second["messageId"]) == (None, None)
    whole = core.ask("GET", f"{Q}/messages/{first['sequence']}")[1]
    assert (whole["headers"]["long"], whole["correlationId"]) == (text, text)


def test_a_browse_with_a_filter_shows_what_fits_in_order():
    core = Core()
    send(core, "red", "blue", "red", "green", "red")
    assert bodies(core, query=RED) == ["red"] * 3
    assert bodies(core, query="?filter=number = '3'") == ["green"]
    numbered = "?filter=colour = 'red'&offset=1&limit=1"
    status, shown = core.ask("GET", f"{Q}/messages{numbered}")
    assert (status, [i["headers"]["number"] for i in shown["items"]]) == (200, ["2"])
    assert bodies(core, query="?filter=") == ["red", "blue", "red", "green", "red"]
    assert core.queue("q")["messageCount"] == 5


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/messages?filter=colour =", None),
        ("GET", "/countMessages?filter=colour =", None),
        ("POST", "/removeAllMessages", {"filter": "colour ="}),
        ("POST", "/expireMessages", {"filter": "colour ="}),
    ],
)
def test_a_wrong_filter_is_refused_with_its_place(method, path, body):
    core = Core()
    send(core, "red")
    status, error = core.ask(method, Q + path, body)
    assert (status, error["code"]) == (422, "bad-selector")
    assert core.queue("q")["messageCount"] == 1


def test_one_message_by_its_sequence():
    core = Core()
    send(core, "red", "blue")
    sequence = core.ask("GET", Q + "/messages")[1]["items"][1]["sequence"]
    assert core.ask("GET", f"{Q}/messages/{sequence}")[1]["body"] == "blue"
    assert core.ask("DELETE", f"{Q}/messages/{sequence}") == (204, None)
    assert bodies(core) == ["red"]
    assert core.queue("q")["messagesKilled"] == 1
    for method in ("GET", "DELETE"):
        status, error = core.ask(method, f"{Q}/messages/{sequence}")
        assert (status, error["code"]) == (404, "not-found")
        assert str(sequence) in error["message"]
        for wrong in ("x", "-1", "1e3", "9" * 30):
            assert core.ask(method, f"{Q}/messages/{wrong}")[0] == 422
    check(core)


def test_a_message_in_delivery_is_not_removed():
    core = Core()
    send(core, "red")
    taker = core.take("q", 1)
    sequence = taker.got[0].seq
    assert core.ask("DELETE", f"{Q}/messages/{sequence}")[0] == 404
    assert core.ask("POST", Q + "/removeAllMessages", {"filter": "TRUE"})[1] == {"messages": 0}
    assert core.queue("q")["messageCount"] == 1


def test_counts_by_filter_and_by_group():
    core = Core()
    send(core, "red", "blue", "red")
    send(core, "red", due=core.now + 5000)
    assert core.ask("GET", Q + "/countMessages")[1] == {"messages": 4}
    assert core.ask("GET", Q + "/countMessages" + RED)[1] == {"messages": 3}
    assert core.ask("GET", Q + "/countMessages?groupByProperty=colour")[1] == {
        "messages": 4,
        "groups": {"red": 3, "blue": 1},
    }
    grouped = core.ask("GET", Q + "/countMessages" + RED + "&groupByProperty=weight")[1]
    assert grouped == {"messages": 3, "groups": {"null": 3}}
    assert core.ask("GET", Q + "/countMessages?limit=1")[0] == 422


def test_more_groups_than_are_told_apart_are_counted_together():
    core = Core()
    send(core, *map(str, range(1005)))
    _, shown, _ = long_ask(core, Q + "/countMessages?groupByProperty=colour", None, "GET")
    assert len(shown["groups"]) == 1001
    assert shown["groups"]["(others)"] == 5


# ---- removing, expiring, giving up


def test_removing_by_filter_and_limit():
    core = Core()
    send(core, "red", "blue", "red", "red")
    assert core.ask("POST", Q + "/removeAllMessages", {"filter": "colour = 'red'", "limit": 2}) == (
        200,
        {"messages": 2},
    )
    assert bodies(core) == ["blue", "red"]
    assert core.ask("POST", Q + "/removeAllMessages", {"limit": 1})[1] == {"messages": 1}
    assert bodies(core) == ["red"]
    assert core.queue("q")["messagesKilled"] == 3
    assert "DLQ" not in core.gateway.queues
    for wrong in (0, -1, "1"):
        assert core.ask("POST", Q + "/removeAllMessages", {"limit": wrong})[0] == 422
    check(core)


def test_what_waits_for_its_time_is_removed_too():
    core = Core()
    send(core, "red", due=core.now + 5000)
    assert core.queue("q")["scheduledCount"] == 1
    assert core.ask("POST", Q + "/removeAllMessages", {"filter": "colour = 'red'"})[1] == {
        "messages": 1
    }
    assert core.queue("q")["messageCount"] == 0
    check(core)


@pytest.mark.parametrize(
    ("call", "where", "counter"),
    [
        ("expireMessages", "ExpiryQueue", "messagesExpired"),
        ("sendMessagesToDeadLetterAddress", "DLQ", "messagesKilled"),
    ],
)
def test_messages_go_where_they_would_have_gone_in_the_end(call, where, counter):
    core = Core()
    send(core, "red", "blue", "red")
    assert core.ask("POST", f"{Q}/{call}", {"filter": "colour = 'red'"})[1] == {"messages": 2}
    assert bodies(core) == ["blue"]
    assert bodies(core, where) == ["red", "red"]
    assert core.queue("q")[counter] == 2
    assert core.ask("POST", f"{Q}/{call}", {})[1] == {"messages": 1}
    assert bodies(core, where) == ["red", "red", "blue"]
    check(core)


def test_an_answer_waits_for_the_disk():
    core = Core()
    made(core, "other")
    send(core, "red", "blue")
    core.sync()
    for path, body in (
        ("/removeAllMessages", {"filter": "colour = 'blue'"}),
        ("/moveMessages", {"target": "other"}),
    ):
        answers = []
        core.start("POST", Q + path, body).addCallback(answers.append)
        core.turn()
        assert answers == []
        core.sync()
        assert [json.loads(a.body) for a in answers] == [{"messages": 1}]


# ---- moving


def test_moving_keeps_order_bytes_and_facts():
    core = Core()
    made(core, "other")
    send(core, "red", "blue", "red", expires=core.now + 60_000)
    before = core.ask("GET", Q + "/messages" + RED)[1]["items"]
    answer = core.ask("POST", Q + "/moveMessages", {"target": "other", "filter": "colour = 'red'"})
    assert answer == (200, {"messages": 2})
    after = core.ask("GET", "/api/v1/queues/other/messages")[1]["items"]
    for item in before + after:
        del item["sequence"]
    assert after == before
    shown = core.queue("q")
    assert (shown["messageCount"], shown["messagesAcknowledged"]) == (1, 2)
    check(core)


@pytest.mark.parametrize("target", ["other", "other::other"])
def test_the_filter_of_the_target_is_asked(target):
    core = Core()
    core.ask("POST", "/api/v1/queues", {"name": "other", "filter": "colour = 'red'"})
    send(core, "red", "blue", "red")
    answer = core.ask("POST", Q + "/moveMessages", {"target": target})
    assert answer == (200, {"messages": 2})
    assert [core.queue(n)["messageCount"] for n in ("q", "other")] == [1, 2]
    assert core.address("other")["unroutedMessageCount"] <= 1
    check(core)


def test_a_disabled_target_gets_nothing_and_nothing_is_lost():
    core = Core()
    core.ask("POST", "/api/v1/queues", {"name": "other", "enabled": False})
    send(core, "red", "blue")
    answer = core.ask("POST", Q + "/moveMessages", {"target": "other"})
    assert answer == (200, {"messages": 0})
    assert core.queue("q")["messageCount"] == 2
    check(core)


def test_a_moved_message_still_waits_for_its_time():
    core = Core()
    made(core, "other")
    send(core, "red", due=core.now + 5000)
    assert core.ask("POST", Q + "/moveMessages", {"target": "other"})[1] == {"messages": 1}
    assert core.queue("other")["scheduledCount"] == 1
    (message,) = core.gateway.queues["other"].holdings()
    assert message.flags & SCHEDULED
    assert message.due == core.now + 5000
    check(core)


def test_moving_into_one_queue_of_an_address_and_to_all_that_subscribe():
    core = Core()
    core.ask("POST", "/api/v1/queues", {"name": "s1", "address": "t", "routingType": "MULTICAST"})
    core.ask("POST", "/api/v1/queues", {"name": "s2", "address": "t", "routingType": "MULTICAST"})
    send(core, "red", "blue")
    assert core.ask("POST", Q + "/moveMessages", {"target": "t::s1", "limit": 1})[0] == 200
    assert (bodies(core, "s1"), bodies(core, "s2")) == (["red"], [])
    assert core.ask("POST", Q + "/moveMessages", {"target": "t"})[0] == 200
    assert (bodies(core, "s1"), bodies(core, "s2")) == (["red", "blue"], ["blue"])
    for queue in core.gateway.queues.values():
        queue.check_invariants()


@pytest.mark.parametrize(
    ("target", "status"),
    [("nowhere", 404), ("empty", 404), ("other::nobody", 404), ("empty::other", 404), ("q", 422)],
)
def test_a_target_that_would_lose_messages_is_refused(target, status):
    core = Core()
    made(core, "other")
    core.ask("POST", "/api/v1/addresses", {"name": "empty"})
    send(core, "red")
    assert core.ask("POST", Q + "/moveMessages", {"target": target})[0] == status
    assert bodies(core) == ["red"]
    assert core.ask("POST", Q + "/moveMessages", {})[0] == 422
    assert core.ask("POST", Q + "/moveMessages", {"target": "other", "flushLimit": 0})[0] == 422


@pytest.mark.parametrize("policy", [FullPolicy.FAIL, FullPolicy.DROP, FullPolicy.BLOCK])
def test_a_full_target_stops_the_move_and_loses_nothing(policy):
    core = Core(limited("other", policy, max_size_messages=2))
    made(core, "other")
    send(core, "red", "blue", "green")
    status, shown = core.ask("POST", Q + "/moveMessages", {"target": "other"})
    assert (status, shown["messages"], shown["stopped"]["code"]) == (200, 2, "address-full")
    assert (bodies(core), bodies(core, "other")) == (["green"], ["red", "blue"])
    status, error = core.ask("POST", Q + "/moveMessages", {"target": "other"})
    assert error["code"] == "address-full"
    assert status >= 400
    assert bodies(core) == ["green"]
    check(core)


def test_a_target_deleted_while_moving_stops_it(monkeypatch):
    monkeypatch.setattr(errand, "STEP", 2)
    core = Core()
    made(core, "other")
    send(core, *["red"] * 5)
    results = []
    core.start("POST", Q + "/moveMessages", {"target": "other"}).addBoth(results.append)
    core.gateway.administration.delete_queue("other")
    while not results:
        core.sync()
    shown = json.loads(results[0].body)
    assert (shown["messages"], shown["stopped"]["code"]) == (2, "not-found")
    assert core.queue("q")["messageCount"] == 3


# ---- pages


def test_what_is_on_pages_is_searched_moved_and_emptied():
    core = Core(limited("q", FullPolicy.PAGE, max_size_messages=3, max_read_page_messages=3))
    send(core, *["red"] * 8)
    core.sync()
    queue = core.gateway.queues["q"]
    assert queue.paged_count > 0
    send(core, "blue", "blue", "green")
    core.sync()
    paged = queue.paged_count
    _, shown = core.ask("GET", Q + "/countMessages?filter=colour = 'red'")
    assert shown == {"messages": 8}
    assert bodies(core, query="?filter=colour = 'green'") == ["green"]
    assert queue.paged_count == paged, "looking reads nothing into the queue"
    assert core.ask("GET", Q + "/messages/11")[0] == 200
    assert core.ask("DELETE", Q + "/messages/11")[0] == 204
    assert core.ask("GET", Q + "/messages/11")[0] == 404
    made(core, "other")
    _, shown = core.ask(
        "POST", Q + "/moveMessages", {"target": "other", "filter": "colour = 'blue'"}
    )
    assert shown == {"messages": 2}
    assert core.queue("other")["messageCount"] == 2
    assert bodies(core, query="?limit=8") == ["red"] * 8
    assert bodies(core, query="?offset=7") == ["red"]
    _, shown = core.ask("POST", Q + "/removeAllMessages", {"filter": "colour = 'blue'"})
    assert shown == {"messages": 0}
    assert queue.message_count == 8
    assert core.ask("POST", Q + "/removeAllMessages")[1] == {"messages": 8}
    assert core.queue("q")["messageCount"] == 0


# ---- long queues


def test_a_long_queue_is_worked_through_in_turns(monkeypatch):
    monkeypatch.setattr(errand, "LOOK", 100)
    core = Core()
    made(core, "other")
    send(core, *["red", "blue"] * 500)
    status, shown, turns = long_ask(
        core, Q + "/moveMessages", {"target": "other", "filter": "colour = 'red'"}
    )
    assert (status, shown) == (200, {"messages": 500})
    assert turns >= 10
    assert bodies(core, "other", "?limit=1000") == ["red"] * 500
    assert bodies(core, query="?limit=1000") == ["blue"] * 500
    check(core)


def test_what_comes_later_stays_and_what_is_taken_meanwhile_is_passed_over():
    core = Core()
    made(core, "other")
    send(core, *["red"] * 6)
    results = []
    asked = {"target": "other", "flushLimit": 2}
    core.start("POST", Q + "/moveMessages", asked).addCallback(results.append)
    taker = core.take("q", 2)
    send(core, "new")
    while not results:
        core.sync()
    # Two were moved before the consumer came and took two; the last two were moved behind them.
    assert json.loads(results[0].body) == {"messages": 4}
    assert bodies(core) == ["new"]
    assert [m.seq for m in taker.got] == [3, 4]
    assert bodies(core, "other") == ["red"] * 4
    check(core)


@pytest.mark.parametrize("ended", [False, True])
def test_a_store_that_fails_meanwhile_is_told(ended):
    core = Core()
    made(core, "other")
    send(core, *["red"] * 4)
    core.sync()
    results = []
    asked = {"target": "other", "flushLimit": 4 if ended else 2}
    core.start("POST", Q + "/moveMessages", asked).addBoth(results.append)
    core.gateway.store_failed("The disk is gone.")
    for _ in range(5):
        core.turn()
    assert [error_response(r.value).status for r in results] == [503]


def test_a_multicast_copy_is_moved_once(monkeypatch):
    core = Core()
    for name in ("s1", "s2"):
        core.ask(
            "POST", "/api/v1/queues", {"name": name, "address": "t", "routingType": "MULTICAST"}
        )
    made(core, "other")
    route = core.gateway.open_producer(Destination("t"), RoutingType.MULTICAST, Owner())
    route.send(Run([pack("t", b"x", persistent=True)], FLAGS))
    assert core.ask("POST", "/api/v1/queues/s1/moveMessages", {"target": "other"})[1] == {
        "messages": 1
    }
    assert [bodies(core, n) for n in ("s1", "s2", "other")] == [[], ["x"], ["x"]]
    for name in ("s2", "other"):
        assert core.ask("POST", f"/api/v1/queues/{name}/removeAllMessages")[1] == {"messages": 1}
    assert (core.gateway.load.messages, core.gateway.load.memory) == (0, 0)
