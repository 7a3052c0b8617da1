"""The calls on addresses: fields, settings with their origin, making, blocking, deleting."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from gateway.addresses.match import SettingsEntry
from gateway.addresses.settings import FullPolicy
from gateway.broker import Limits
from gateway.model.address import Destination, RoutingType
from gateway.model.message import DURABLE, IDENTIFIED, STOMP
from gateway.model.run import Run
from gateway.model.stomp_form import pack
from tests.broker.core import Owner
from tests.management.core import Core, limited

ADDRESSES = "/api/v1/addresses"
#: The promise of the API: these names stay.
FIELDS = (
    "name routingTypes queueNames messageCount sizeBytes paging full blocked pageFiles pageBytes "
    "routedMessageCount unroutedMessageCount producerCount reason"
)


def state(core: Core) -> tuple:
    return [core.address(name) for name in sorted(core.gateway.addresses)], list(core.store.told)


def test_an_address_shows_all_its_promised_fields():
    core = Core()
    core.send("a", b"12", b"3")
    shown = core.address("a")
    assert set(FIELDS.split()) <= set(shown)
    address = core.gateway.addresses["a"]
    expected = {"routingTypes": ["ANYCAST"], "queueNames": ["a"], "messageCount": 2}
    expected |= {"sizeBytes": address.size_bytes, "routedMessageCount": 2}
    expected |= {"unroutedMessageCount": 0, "paging": False, "full": False, "blocked": False}
    expected |= {"pageFiles": 0, "pageBytes": 0, "reason": None, "producerCount": 0}
    assert {key: shown[key] for key in expected} == expected
    assert shown["sizeBytes"] > 3


def test_what_met_no_queue_is_counted():
    core = Core()
    core.ask("POST", ADDRESSES, {"name": "t", "routingTypes": ["MULTICAST"]})
    core.send("t", b"1", b"2")
    shown = core.address("t")
    assert (shown["routedMessageCount"], shown["unroutedMessageCount"]) == (0, 2)


def test_producers_are_counted():
    core = Core()
    route = core.gateway.open_producer(Destination("a"), None, Owner())
    assert core.address("a")["producerCount"] == 1
    route.close()
    assert core.address("a")["producerCount"] == 0


def test_lists_are_sorted_and_filtered():
    core = Core()
    for name in ("b", "a.2", "a.1", "a.1.x"):
        core.ask("POST", ADDRESSES, {"name": name})

    def names(query: str) -> list[str]:
        return [item["name"] for item in core.ask("GET", ADDRESSES + query)[1]["items"]]

    assert names("") == ["a.1", "a.1.x", "a.2", "b"]
    assert names("?pattern=a.*") == ["a.1", "a.2"]
    assert core.ask("GET", ADDRESSES + "?address=a")[0] == 422


# ---- full and blocked


def test_a_full_address_says_why():
    core = Core(limited("a", FullPolicy.FAIL, max_size_messages=2))
    core.send("a", b"1", b"2", b"3")
    shown = core.address("a")
    assert (shown["full"], shown["blocked"], shown["messageCount"]) == (True, False, 2)
    assert "max-size-messages is 2" in shown["reason"]


def test_a_blocking_address_that_is_full_says_both():
    core = Core(limited("a", FullPolicy.BLOCK, max_size_messages=1))
    core.send("a", b"1")
    route = core.gateway.open_producer(Destination("a"), None, Owner())
    shown = core.address("a")
    assert (shown["full"], shown["blocked"]) == (True, True)
    route.close()


def test_a_full_gateway_is_a_reason():
    core = Core(limits=Limits(global_max_size=1000))
    core.send("a", b"x" * 2000)
    assert "global-max-size is 1000" in core.address("a")["reason"]


def test_messages_that_a_full_address_drops_are_counted():
    core = Core(limited("a", FullPolicy.DROP, max_size_messages=1))
    core.send("a", b"1", b"2", b"3")
    assert core.address("a")["droppedMessageCount"] == 2


def test_an_operator_blocks_and_unblocks():
    core = Core()
    core.ask("POST", ADDRESSES, {"name": "a"})
    route = core.gateway.open_producer(Destination("a"), None, Owner())
    status, shown = core.ask("POST", ADDRESSES + "/a/block", {})
    assert (status, shown["blocked"], shown["full"]) == (200, True, False)
    assert "operator" in shown["reason"]
    assert route.blocked() is not None
    status, shown = core.ask("POST", ADDRESSES + "/a/unblock")
    assert (status, shown["blocked"], shown["reason"]) == (200, False, None)
    assert route.blocked() is None
    for path in ("/nobody/block", "/nobody/unblock"):
        assert core.ask("POST", ADDRESSES + path)[0] == 404


# ---- settings


def test_each_setting_names_the_match_and_the_line_that_gave_it():
    core = Core(
        SettingsEntry(
            match="#", values={"max_delivery_attempts": 4}, origins={"max_delivery_attempts": "f:3"}
        ),
        limited("orders.*", FullPolicy.FAIL, max_size_bytes=1000),
    )
    status, shown = core.ask("GET", ADDRESSES + "/orders.eu/settings")
    assert (status, shown["address"], shown["exists"]) == (200, "orders.eu", False)
    items = {item["key"]: item for item in shown["items"]}
    assert items["max-delivery-attempts"] == {
        "key": "max-delivery-attempts", "value": 4, "match": "#", "origin": "f:3",
    }  # fmt: skip
    policy = items["address-full-policy"]
    assert (policy["value"], policy["match"]) == ("FAIL", "orders.*")
    assert policy["origin"] == "sluicegate.toml:7"
    default = items["dead-letter-address"]
    assert (default["value"], default["match"], default["origin"]) == ("DLQ", None, None)
    core.send("orders.eu", b"x")
    assert core.ask("GET", ADDRESSES + "/orders.eu/settings")[1]["exists"] is True
    assert core.ask("GET", ADDRESSES + "/$sys/settings")[0] == 422


# ---- making


def test_an_address_is_made_and_durable_when_it_answers():
    core = Core()
    answers = []
    body = {"name": "a", "routingTypes": ["ANYCAST", "MULTICAST"]}
    core.start("POST", ADDRESSES, body).addCallback(answers.append)
    core.turn()
    assert answers == []
    core.sync()
    assert [answer.status for answer in answers] == [201]
    assert core.address("a")["routingTypes"] == ["ANYCAST", "MULTICAST"]
    assert core.address("a")["queueNames"] == []


def test_the_same_address_again_is_no_error():
    core = Core()
    core.ask("POST", ADDRESSES, {"name": "a", "routingTypes": ["MULTICAST"]})
    assert core.ask("POST", ADDRESSES, {"name": "a", "routingTypes": ["MULTICAST"]})[0] == 201
    assert core.ask("POST", ADDRESSES, {"name": "a"})[0] == 201
    before = state(core)
    status, error = core.ask("POST", ADDRESSES, {"name": "a", "routingTypes": ["ANYCAST"]})
    assert (status, error["code"]) == (409, "already-exists")
    assert "MULTICAST" in error["message"]
    assert state(core) == before


def test_a_temporary_address_is_there_already():
    core = Core()
    name = core.gateway.create_temporary(RoutingType.ANYCAST, core)
    assert core.ask("POST", ADDRESSES, {"name": name})[0] == 201
    assert core.address(name)["temporary"] is True


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({}, 422, "name"),
        ({"name": ""}, 422, "empty"),
        ({"name": "x" * 256}, 422, "255"),
        ({"name": "$x"}, 422, "'$'"),
        ({"name": "a\nb"}, 422, "control"),
        ({"name": "a", "routingTypes": "ANYCAST"}, 422, "routingTypes"),
        ({"name": "a", "routingTypes": ["TOPIC"]}, 422, "TOPIC"),
        ({"name": "a", "routingtypes": []}, 422, "did you mean 'routingTypes'"),
        ("a", 400, "object"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_made(body, status, text):
    core = Core()
    found, error = core.ask("POST", ADDRESSES, body)
    assert found == status, error
    assert text in error["message"]
    assert core.gateway.addresses == {}
    assert core.store.told == []


# ---- deleting


def test_an_address_without_queues_goes():
    core = Core()
    core.ask("POST", ADDRESSES, {"name": "a"})
    answers = []
    core.start("DELETE", ADDRESSES + "/a").addCallback(answers.append)
    core.turn()
    assert answers == []
    core.sync()
    assert [answer.status for answer in answers] == [204]
    assert core.ask("GET", ADDRESSES + "/a")[0] == 404
    assert core.ask("DELETE", ADDRESSES + "/a")[0] == 404


def test_queues_hold_an_address_unless_it_is_forced():
    core = Core()
    core.send("a", b"x")
    before = state(core)
    status, error = core.ask("DELETE", ADDRESSES + "/a")
    assert (status, error["code"]) == (409, "in-use")
    assert core.ask("DELETE", ADDRESSES + "/a?force=1")[0] == 422
    assert core.ask("DELETE", ADDRESSES + "/a?removeConsumers=true")[0] == 422
    assert state(core) == before
    assert core.ask("DELETE", ADDRESSES + "/a?force=true") == (204, None)
    assert (core.gateway.queues, core.gateway.load.messages) == ({}, 0)


def test_producers_hold_an_address_always():
    core = Core()
    route = core.gateway.open_producer(Destination("a"), None, Owner())
    for query in ("", "?force=true"):
        status, error = core.ask("DELETE", ADDRESSES + "/a" + query)
        assert (status, error["code"]) == (409, "in-use")
        assert "producers" in error["message"]
    route.close()
    assert core.ask("DELETE", ADDRESSES + "/a?force=true")[0] == 204


@pytest.mark.parametrize("name", ["a/b", "..", "%2F", "\u00fc\U0001f407", "a?b#c", "x" * 255])
def test_odd_names_live_a_whole_life(name):
    core = Core()
    path = f"{ADDRESSES}/{quote(name, safe='')}"
    assert core.ask("POST", ADDRESSES, {"name": name})[0] == 201
    assert core.ask("GET", path)[1]["name"] == name
    assert core.ask("GET", path + "/settings")[1]["address"] == name
    assert core.ask("POST", path + "/block")[1]["blocked"] is True
    assert core.ask("DELETE", path)[0] == 204


def test_what_the_gateway_keeps_for_itself_is_listed_when_asked():
    core = Core(SettingsEntry(match="t", values={"retroactive_message_count": 3}))
    core.send("t", b"1", b"2")
    for kind, own in (("addresses", 1), ("queues", 2)):
        names = [one["name"] for one in core.ask("GET", f"/api/v1/{kind}")[1]["items"]]
        assert names == ["t"]
        shown = core.ask("GET", f"/api/v1/{kind}?internal=true")[1]["items"]
        assert [one["internal"] for one in shown].count(True) == own
    assert core.address("t")["retroactiveMessageCount"] == 2


def test_duplicate_ids_are_counted_and_cleared():
    core = Core()
    body = pack("a", b"x", persistent=True, headers=[("_AMQ_DUPL_ID", "1")])
    route = core.gateway.open_producer(Destination("a"), None, Owner())
    flags = STOMP | DURABLE | IDENTIFIED | 4
    for _ in range(3):
        route.send(Run([body], flags))
    shown = core.address("a")
    assert (shown["duplicateIdCount"], shown["duplicateMessageCount"]) == (1, 2)
    status, shown = core.ask("POST", ADDRESSES + "/a/clearDuplicateIdCache")
    assert (status, shown["duplicateIdCount"]) == (200, 0)
    route.send(Run([body], flags))
    assert core.address("a")["messageCount"] == 2
    assert core.ask("POST", ADDRESSES + "/b/clearDuplicateIdCache")[0] == 404
    assert core.ask("POST", ADDRESSES + "/a/clearDuplicateIdCache", {"x": 1})[0] == 422


def test_what_is_the_gateways_own_cannot_be_changed():
    """A ring that is gone or has no end would keep nothing, or all, until the next start."""
    core = Core(SettingsEntry(match="t", values={"retroactive_message_count": 3}))
    core.gateway.open_producer(Destination("t"), RoutingType.MULTICAST, Owner())
    own = {
        kind: [
            one["name"]
            for one in core.ask("GET", f"/api/v1/{kind}?internal=true")[1]["items"]
            if one["internal"]
        ]
        for kind in ("queues", "addresses")
    }
    assert len(own["queues"]) == 2
    assert len(own["addresses"]) == 1
    ring, home = own["queues"][0], own["addresses"][0]
    calls = [
        ("PATCH", f"/api/v1/queues/{ring}", {"ringSize": -1}),
        ("DELETE", f"/api/v1/queues/{ring}?removeConsumers=true", None),
        *(("POST", f"/api/v1/queues/{ring}/{verb}", None) for verb in ("pause", "disable")),
        ("DELETE", f"/api/v1/addresses/{home}?force=true", None),
        ("POST", f"/api/v1/addresses/{home}/block", None),
    ]
    before = core.ask("GET", f"/api/v1/queues/{ring}")
    for method, path, body in calls:
        status, answer = core.ask(method, path, body)
        assert (status, answer["code"]) == (409, "in-use"), path
    assert core.ask("GET", f"/api/v1/queues/{ring}") == before
