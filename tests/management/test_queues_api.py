"""The calls on queues: fields, statuses, durable before the answer, nothing changed on refusal."""

from __future__ import annotations

import base64
from urllib.parse import quote

import pytest

from gateway.addresses.match import SettingsEntry
from gateway.broker.directory.administration import Administration
from gateway.management.messages_api import BROWSE_MAX, OFFSET_MAX
from gateway.management.views import BODY_SHOWN_MAX
from gateway.model.address import Destination, RoutingType
from gateway.model.errors import Code, RefusedError
from gateway.model.message import DURABLE, EXPIRES, MAYBE_SEEN, STOMP
from gateway.model.run import Run
from tests.management.core import Core

QUEUES = "/api/v1/queues"
#: The promise of the API: these names stay.
FIELDS = (
    "name address routingType durable temporary autoCreated internal filter enabled paused "
    "consumerCount "
    "maxConsumers messageCount deliveringCount scheduledCount messagesAdded messagesAcknowledged "
    "storingCount reason "
    "messagesExpired messagesKilled messagesReplaced persistentSize ringSize exclusive lastValue "
    "lastValueKey nonDestructive purgeOnNoConsumers consumersBeforeDispatch delayBeforeDispatch "
    "groupBuckets groupRebalance groupRebalancePauseDispatch groupFirstKey groupCount "
    "consumerPriority autoDelete autoDeleteDelay autoDeleteMessageCount firstMessageAge"
)


def state(core: Core) -> tuple:
    """All that a refused call must leave alone."""
    queues = [core.queue(name) for name in sorted(core.gateway.queues)]
    return queues, sorted(core.gateway.addresses), list(core.store.told)


# ---- making


def test_a_queue_is_made_with_its_address():
    core = Core()
    status, shown = core.ask(
        "POST",
        QUEUES,
        {"name": "q", "address": "a", "routingType": "MULTICAST", "ringSize": 5, "maxConsumers": 2},
    )
    assert status == 201
    assert sorted(shown) == sorted(FIELDS.split())
    assert shown == core.queue("q")
    expected = {"name": "q", "address": "a", "routingType": "MULTICAST", "ringSize": 5}
    expected |= {"maxConsumers": 2, "durable": True, "temporary": False, "autoCreated": False}
    assert {key: shown[key] for key in expected} == expected
    assert core.address("a")["queueNames"] == ["q"]
    assert core.address("a")["routingTypes"] == ["MULTICAST"]


def test_what_is_not_given_has_its_default():
    core = Core(
        SettingsEntry(
            match="m.#",
            values={
                "default_queue_routing_type": RoutingType.MULTICAST,
                "default_ring_size": 7,
                "default_max_consumers": 3,
            },
        )
    )
    assert core.ask("POST", QUEUES, {"name": "q"})[0] == 201
    plain = core.queue("q")
    assert (plain["address"], plain["routingType"]) == ("q", "ANYCAST")
    assert (plain["ringSize"], plain["maxConsumers"]) == (-1, -1)
    core.ask("POST", QUEUES, {"name": "m.q"})
    set_up = core.queue("m.q")
    assert (set_up["routingType"], set_up["ringSize"], set_up["maxConsumers"]) == (
        "MULTICAST",
        7,
        3,
    )


@pytest.mark.parametrize("durable", [True, False])
def test_the_answer_waits_for_the_disk(durable):
    core = Core()
    answers = []
    core.start("POST", QUEUES, {"name": "q", "durable": durable}).addCallback(answers.append)
    core.turn()
    # The address is remembered even where the queue is not.
    assert answers == []
    core.sync()
    assert [answer.status for answer in answers] == [201]


def test_an_earlier_batch_is_not_enough():
    core = Core()
    answers = []
    core.store.batches = [[("earlier",)]] * 7
    core.start("POST", QUEUES, {"name": "q"}).addCallback(answers.append)
    core.turn()
    core.gateway.durable_up_to(7)
    assert answers == []
    core.gateway.durable_up_to(8)
    assert [answer.status for answer in answers] == [201]


def test_a_disk_that_fails_is_told_and_no_call_changes_anything_after():
    core = Core()
    core.send("q", b"x")
    core.ask("POST", "/api/v1/addresses", {"name": "a"})
    failures = []
    core.start("PATCH", QUEUES + "/q", {"ringSize": 3}).addErrback(failures.append)
    core.gateway.store_failed("the disk said no")
    assert failures[0].value.refusal.code is Code.STORE_FAILED
    before = state(core)
    for method, path, body in [
        ("POST", QUEUES, {"name": "new"}),
        ("PATCH", QUEUES + "/q", {"ringSize": 4}),
        ("DELETE", QUEUES + "/q", None),
        ("POST", QUEUES + "/q/pause", None),
        ("POST", QUEUES + "/q/resume", None),
        ("POST", QUEUES + "/q/removeAllMessages", None),
        ("POST", QUEUES + "/q/trim", None),
        ("POST", "/api/v1/addresses", {"name": "b"}),
        ("DELETE", "/api/v1/addresses/a", None),
    ]:
        status, error = core.ask(method, path, body)
        assert (status, error["code"]) == (503, "store-failed"), path
        assert "the disk said no" in error["message"]
    assert state(core) == before


def test_the_same_queue_again_is_no_error_and_durable_when_it_answers():
    core = Core()
    body = {"name": "q", "address": "a", "ringSize": 5}
    core.start("POST", QUEUES, body)
    answers = []
    core.start("POST", QUEUES, body).addCallback(answers.append)
    core.turn()
    assert answers == []
    core.sync()
    assert [answer.status for answer in answers] == [201]
    assert core.ask("POST", QUEUES, {"name": "q", "address": "a"})[0] == 201
    assert core.queue("q")["ringSize"] == 5


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("address", "b"),
        ("routingType", "MULTICAST"),
        ("durable", False),
        ("ringSize", 6),
        ("maxConsumers", 1),
    ],
)
def test_another_queue_of_that_name_is_a_conflict(key, value):
    core = Core()
    body = {"name": "q", "address": "a", "ringSize": 5}
    core.ask("POST", QUEUES, body)
    before = state(core)
    status, error = core.ask("POST", QUEUES, body | {key: value})
    assert (status, error["code"]) == (409, "already-exists")
    assert key in error["message"]
    assert state(core) == before


IMPOSSIBLE = [
    ({}, 422, "name"),
    ({"name": ""}, 422, "empty"),
    ({"name": None}, 422, "name"),
    ({"name": 5}, 422, "name"),
    ({"name": "a\0b"}, 422, "control character"),
    ({"name": "a\r\nb"}, 422, "control character"),
    ({"name": "a\x7fb"}, 422, "control character"),
    ({"name": "x" * 256}, 422, "255"),
    ({"name": "\u00e4" * 128}, 422, "255"),
    ({"name": "$sys"}, 422, "'$'"),
    ({"name": "q", "address": "$sys"}, 422, "'$'"),
    ({"name": "q", "address": ""}, 422, "empty"),
    ({"name": "q", "routingType": "TOPIC"}, 422, "'ANYCAST' or 'MULTICAST'"),
    ({"name": "q", "routingType": "anycast"}, 422, "routingType"),
    ({"name": "q", "routingType": 1}, 422, "routingType"),
    ({"name": "q", "durable": "yes"}, 422, "durable"),
    ({"name": "q", "ringSize": 0}, 422, "ringSize"),
    ({"name": "q", "ringSize": -2}, 422, "ringSize"),
    ({"name": "q", "ringSize": "5"}, 422, "ringSize"),
    ({"name": "q", "ringSize": 5.5}, 422, "ringSize"),
    ({"name": "q", "ringSize": True}, 422, "ringSize"),
    ({"name": "q", "ringSize": None}, 422, "ringSize"),
    ({"name": "q", "ringSize": 1 << 64}, 400, "64 bits"),
    ({"name": "q", "maxConsumers": -2}, 422, "maxConsumers"),
    ({"name": "q", "ringsize": 5}, 422, "did you mean 'ringSize'"),
    ({"name": "q", "nonsense": 5}, 422, "nonsense"),
    ({"name": "q", "messageCount": 5}, 422, "messageCount"),
]


@pytest.mark.parametrize(("body", "status", "text"), IMPOSSIBLE)
def test_what_cannot_be_is_refused_and_nothing_is_made(body, status, text):
    core = Core()
    found, error = core.ask("POST", QUEUES, body)
    assert found == status, error
    assert text in error["message"]
    assert state(core) == ([], [], [])


def reaping(core: Core, name: str = "q") -> tuple:
    shown = core.queue(name)
    return tuple(shown["autoDelete" + key] for key in ("", "Delay", "MessageCount"))


def test_when_a_queue_goes_by_itself_is_said_with_it_or_by_its_address():
    settings = {"auto_delete_created_queues": True, "auto_delete_queues_delay": 50}
    core = Core(SettingsEntry(match="s.#", values=settings))
    body = {"name": "q", "autoDelete": True, "autoDeleteDelay": 7, "autoDeleteMessageCount": -1}
    for _ in range(2):
        status, shown = core.ask("POST", QUEUES, body)
        assert status == 201, shown
        assert {**shown, **body} == shown
    status, error = core.ask("POST", QUEUES, {**body, "autoDeleteDelay": 8})
    assert (status, "auto_delete_delay 7" in error["message"]) == (409, True)
    assert core.ask("PATCH", QUEUES + "/q", {"autoDelete": False})[0] == 200
    assert reaping(core) == (False, 7, -1)
    for name, expected in (("p", (False, 0, 0)), ("s.p", (True, 50, 0))):
        assert core.ask("POST", QUEUES, {"name": name, "autoDelete": None})[0] == 201
        assert reaping(core, name) == expected
        assert core.ask("POST", QUEUES, {"name": name, "autoDelete": expected[0]})[0] == 201
        assert core.ask("POST", QUEUES, {"name": name, "autoDelete": not expected[0]})[0] == 409
    core.gateway.reaper.kept = frozenset({"s.p"})
    assert reaping(core, "s.p") == (False, 50, 0)


@pytest.mark.parametrize(
    "name",
    [
        "a/b", "..", ".", "../../etc/passwd", "a b", "a?b", "a#b", "%2F", "q\u00fc\U0001f407",
        "<script>", "a::b", "CON", "C:\\x", "x" * 255, "'; DROP", "a+b", "a&b=c",
    ],
)  # fmt: skip
def test_odd_names_live_a_whole_life(name):
    core = Core()
    path = f"{QUEUES}/{quote(name, safe='')}"
    assert core.ask("POST", QUEUES, {"name": name, "address": "a"})[0] == 201
    assert core.ask("GET", path)[1]["name"] == name
    assert core.ask("PATCH", path, {"ringSize": 2})[1]["ringSize"] == 2
    assert core.ask("POST", path + "/pause")[1]["paused"] is True
    assert core.ask("GET", path + "/messages") == (200, {"items": [], "total": 0, "cursor": None})
    assert core.ask("DELETE", path) == (204, None)
    assert core.ask("GET", path)[0] == 404


# ---- looking


def test_lists_are_sorted_and_filtered():
    core = Core()
    for name, address in (("b", "x"), ("a.1", "x"), ("a.2", "y"), ("a.2.z", "y")):
        core.ask("POST", QUEUES, {"name": name, "address": address})

    def names(query: str) -> list[str]:
        return [item["name"] for item in core.ask("GET", QUEUES + query)[1]["items"]]

    assert names("") == ["a.1", "a.2", "a.2.z", "b"]
    assert names("?address=y") == ["a.2", "a.2.z"]
    assert names("?pattern=a.*") == ["a.1", "a.2"]
    assert names("?pattern=a.#") == ["a.1", "a.2", "a.2.z"]
    assert names("?pattern=a.*&address=y") == ["a.2"]
    assert names("?address=nobody") == []


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("?patern=a", "did you mean 'pattern'"),
        ("?pattern=a*", "whole words"),
        ("?pattern=", "empty"),
    ],
)
def test_impossible_questions_are_refused(query, text):
    status, error = Core().ask("GET", QUEUES + query)
    assert (status, error["code"]) == (422, "bad-value")
    assert text in error["message"]


def test_a_long_list_leaves_in_pieces_that_join_to_the_same_json():
    core = Core()
    for number in range(1001):
        core.gateway.directory.make_queue(f"q{number:04}", "a", RoutingType.ANYCAST)
    answer = core.start("GET", QUEUES)
    assert not isinstance(answer.body, bytes)
    items = core.ask("GET", QUEUES)[1]["items"]
    assert [item["name"] for item in items] == [f"q{number:04}" for number in range(1001)]


@pytest.mark.parametrize("count", [249, 250, 251, 499, 500, 501])
def test_lists_of_any_length_are_json(count):
    core = Core()
    for number in range(count):
        core.gateway.directory.make_queue(f"q{number}", "a", RoutingType.ANYCAST)
    assert len(core.ask("GET", QUEUES)[1]["items"]) == count


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("PATCH", "", {"ringSize": 1}),
        ("DELETE", "", None),
        ("POST", "/pause", None),
        ("POST", "/resume", None),
        ("POST", "/removeAllMessages", {}),
        ("POST", "/trim", {}),
        ("GET", "/messages", None),
    ],
)
def test_a_queue_that_is_not_there(method, path, body):
    status, error = Core().ask(method, f"{QUEUES}/nobody{path}", body)
    assert (status, error["code"]) == (404, "not-found")
    assert "nobody" in error["message"]


def test_counts_are_exact_at_every_step():
    core = Core()
    keys = "messageCount deliveringCount messagesAdded messagesAcknowledged messagesKilled "
    keys += "consumerCount"

    def counts() -> list[int]:
        shown = core.queue("q")
        assert shown["scheduledCount"] == 0
        return [shown[key] for key in keys.split()]

    core.send("q", b"1", b"2", b"3", b"4")
    assert counts() == [4, 0, 4, 0, 0, 0]
    taker = core.take("q", 3)
    assert counts() == [4, 3, 4, 0, 0, 1]
    taker.hold.acknowledge([taker.got.pop(0)])
    assert counts() == [3, 2, 4, 1, 0, 1]
    taker.hold.reject([taker.got.pop(0)])
    assert counts() == [2, 1, 4, 1, 1, 1]
    taker.hold.release([taker.got.pop(0)])
    taker.hold.close()
    assert counts() == [2, 0, 4, 1, 1, 0]
    core.ask("PATCH", QUEUES + "/q", {"ringSize": 2})
    core.send("q", b"5")
    assert counts()[:3] == [2, 0, 5]
    assert core.queue("q")["messagesReplaced"] == 1
    assert core.queue("q")["persistentSize"] == core.gateway.queues["q"].size_bytes > 0
    core.send("q", b"6", flags=DURABLE | STOMP | EXPIRES | 4, expires=core.now + 1)
    core.now += 2
    core.gateway.expire()
    assert core.queue("q")["messagesExpired"] == 1
    assert core.queue("DLQ")["messageCount"] == 1


# ---- changing


def test_a_change_is_shown_and_durable():
    core = Core()
    core.ask("POST", QUEUES, {"name": "q"})
    answers = []
    core.start("PATCH", QUEUES + "/q", {"ringSize": 5}).addCallback(answers.append)
    core.turn()
    assert answers == []
    core.sync()
    assert [answer.status for answer in answers] == [200]
    assert core.queue("q")["ringSize"] == 5
    kind, definition = core.store.told[-1]
    assert (kind, definition.ring_size, definition.max_consumers) == ("define", 5, -1)
    assert core.ask("PATCH", QUEUES + "/q", {"maxConsumers": 1, "ringSize": -1})[0] == 200
    assert (core.queue("q")["ringSize"], core.queue("q")["maxConsumers"]) == (-1, 1)


def test_what_cannot_change_may_be_repeated():
    core = Core()
    core.ask("POST", QUEUES, {"name": "q", "address": "a"})
    same = {"name": "q", "address": "a", "routingType": "ANYCAST", "durable": True}
    assert core.ask("PATCH", QUEUES + "/q", same | {"ringSize": 9})[1]["ringSize"] == 9


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"ringSize": 0}, 422),
        ({"ringSize": -2, "maxConsumers": 1}, 422),
        ({"maxConsumers": -5, "ringSize": 1}, 422),
        ({"ringSize": 1, "name": "other"}, 422),
        ({"ringSize": 1, "address": "other"}, 422),
        ({"ringSize": 1, "routingType": "MULTICAST"}, 422),
        ({"ringSize": 1, "durable": False}, 422),
        ({"ringSize": 1, "unknown": 1}, 422),
        ({"ringSize": 1, "paused": True}, 422),
        ({"ringSize": 1, "nonDestructive": True}, 422),
        ({"ringSize": 1, "lastValue": True}, 422),
        ({"ringSize": 1, "groupBuckets": -2}, 422),
        ({"ringSize": 1, "autoDelete": 1}, 422),
        ({"ringSize": 1, "autoDeleteDelay": -1}, 422),
        ({"ringSize": 1, "autoDeleteMessageCount": -2}, 422),
        ({"ringSize": 1, "exclusive": 1}, 422),
        ({"ringSize": 1, "consumersBeforeDispatch": -1}, 422),
        ({"ringSize": "1"}, 422),
        ([1], 400),
    ],
)
def test_a_refused_change_changes_nothing(change, status):
    core = Core()
    core.ask("POST", QUEUES, {"name": "q", "address": "a", "ringSize": 3})
    before = state(core)
    found, error = core.ask("PATCH", QUEUES + "/q", change)
    assert found == status, error
    assert state(core) == before


def test_a_lowered_ring_is_trimmed_when_asked():
    core = Core()
    core.send("q", b"1", b"2", b"3", b"4")
    core.ask("PATCH", QUEUES + "/q", {"ringSize": 1})
    assert core.queue("q")["messageCount"] == 4
    assert core.ask("POST", QUEUES + "/q/trim", {}) == (200, {"messages": 3})
    assert core.ask("POST", QUEUES + "/q/trim") == (200, {"messages": 0})
    shown = core.queue("q")
    assert (shown["messageCount"], shown["messagesReplaced"]) == (1, 3)


def test_a_paused_queue_delivers_nothing_until_it_is_resumed():
    core = Core()
    core.send("q", b"x")
    status, shown = core.ask("POST", QUEUES + "/q/pause", {})
    assert (status, shown["paused"]) == (200, True)
    assert core.store.told[-1][1].paused is True
    taker = core.take("q", 5)
    assert taker.got == []
    assert core.ask("POST", QUEUES + "/q/resume")[1]["paused"] is False
    assert [message.body[-1:] for message in taker.got] == [b"x"]


def test_calls_without_a_body_take_none():
    core = Core()
    core.send("q", b"x")
    for method, path in (("POST", "/pause"), ("POST", "/resume"), ("DELETE", "")):
        assert core.ask(method, QUEUES + "/q" + path, {"filter": None})[0] == 422
    assert core.queue("q")["paused"] is False


# ---- emptying and deleting


def test_emptying_counts_and_waits_for_the_disk():
    core = Core()
    core.send("q", b"1", b"2", b"3")
    core.sync()
    taker = core.take("q", 1)
    answers = []
    core.start("POST", QUEUES + "/q/removeAllMessages", {}).addCallback(answers.append)
    core.turn()
    assert answers == []
    core.sync()
    assert answers[0].body == b'{"messages":2}'
    # What a consumer holds stays its own.
    assert core.queue("q")["messageCount"] == 1
    taker.hold.acknowledge(taker.got)
    assert core.queue("q")["messageCount"] == 0


@pytest.mark.parametrize(
    ("flags", "durable"), [(STOMP | 4, True), (DURABLE | STOMP | 4, False), (STOMP | 4, False)]
)
def test_emptying_what_was_never_stored_waits_for_nothing(flags, durable):
    core = Core()
    core.ask("POST", QUEUES, {"name": "q", "durable": durable})
    core.send("q", b"1", b"2", flags=flags)
    told = len(core.store.told)
    assert core.ask("POST", QUEUES + "/q/removeAllMessages") == (200, {"messages": 2})
    assert len(core.store.told) == told


def test_an_empty_queue_can_be_emptied():
    core = Core()
    core.ask("POST", QUEUES, {"name": "q"})
    assert core.ask("POST", QUEUES + "/q/removeAllMessages", {"filter": None}) == (
        200,
        {"messages": 0},
    )


def trimmed(*priorities: int) -> Core:
    """A core whose queue q holds a message of each priority, with its ring lowered to 2."""
    core = Core()
    for place, priority in enumerate(priorities):
        core.send("q", b"%d" % place, flags=STOMP | DURABLE | priority)
    core.ask("PATCH", QUEUES + "/q", {"ringSize": 2})
    return core


def left(core: Core) -> list[int]:
    return [m.seq - 1 for m in sorted(core.gateway.queues["q"].holdings(), key=lambda m: m.seq)]


def test_a_trim_with_a_filter_takes_what_that_selects_and_no_more_than_the_ring():
    trim = QUEUES + "/q/trim"
    core = trimmed(1, 9, 1, 9, 1, 9)
    assert core.ask("POST", trim, {"filter": "JMSPriority = 9"}) == (200, {"messages": 3})
    assert left(core) == [0, 2, 4]
    assert core.ask("POST", trim, {"filter": "JMSPriority = 9"}) == (200, {"messages": 0})
    assert core.ask("POST", trim, {"filter": "JMSPriority < 5"}) == (200, {"messages": 1})
    assert left(core) == [2, 4]
    assert core.queue("q")["messagesReplaced"] == 4
    core.gateway.queues["q"].check_invariants()


def test_a_trim_goes_by_the_order_of_eviction_and_knows_a_limit():
    core = trimmed(4, 4, 4, 4, 4)
    answer = core.ask("POST", QUEUES + "/q/trim", {"filter": "JMSPriority = 4", "limit": 1})
    assert answer == (200, {"messages": 1})
    assert left(core) == [1, 2, 3, 4]
    assert core.ask("POST", QUEUES + "/q/trim", {"limit": 0})[0] == 422
    assert core.ask("POST", QUEUES + "/q/trim", {"filter": "x ="})[0] == 422
    assert left(core) == [1, 2, 3, 4]


def test_without_a_ring_there_is_nothing_to_trim():
    core = Core()
    core.send("q", b"1", b"2")
    assert core.ask("POST", QUEUES + "/q/trim", {"filter": "TRUE"}) == (200, {"messages": 0})


def test_a_disabled_queue_takes_nothing_and_gives_what_it_has():
    core = Core()
    core.ask("POST", QUEUES, {"name": "q"})
    core.send("q", b"1")
    status, shown = core.ask("POST", QUEUES + "/q/disable")
    assert (status, shown["enabled"]) == (200, False)
    core.send("q", b"2")
    assert core.queue("q")["messageCount"] == 1
    assert core.address("q")["unroutedMessageCount"] == 1
    assert core.ask("PATCH", QUEUES + "/q", {"enabled": True})[1]["enabled"] is True
    core.send("q", b"3")
    assert core.queue("q")["messageCount"] == 2
    assert core.ask("PATCH", QUEUES + "/q", {"enabled": 1})[0] == 422
    assert core.ask("POST", QUEUES + "/q/enable")[1]["enabled"] is True
    made = core.ask("POST", QUEUES, {"name": "r", "enabled": False})[1]
    assert made["enabled"] is False


def test_a_queue_goes_with_what_it_holds():
    core = Core()
    core.send("q", b"1")
    core.sync()
    answers = []
    core.start("DELETE", QUEUES + "/q").addCallback(answers.append)
    core.turn()
    assert answers == []
    core.sync()
    assert [answer.status for answer in answers] == [204]
    assert core.ask("DELETE", QUEUES + "/q")[0] == 404
    assert core.gateway.load.messages == core.gateway.load.memory == 0
    assert core.store.told[-1][0] == "undefine"


def test_consumers_hold_a_queue_unless_they_are_to_go():
    core = Core()
    core.send("q", b"1", b"2")
    taker = core.take("q", 1)
    before = state(core)
    status, error = core.ask("DELETE", QUEUES + "/q")
    assert (status, error["code"]) == (409, "in-use")
    assert "removeConsumers" in error["message"]
    assert core.ask("DELETE", QUEUES + "/q?removeConsumers=false")[0] == 409
    assert core.ask("DELETE", QUEUES + "/q?removeConsumers=yes")[0] == 422
    assert core.ask("DELETE", QUEUES + "/q?force=true")[0] == 422
    assert state(core) == before
    assert core.ask("DELETE", QUEUES + "/q?removeConsumers=true")[0] == 204
    assert [refusal.code for refusal in taker.refusals] == [Code.QUEUE_DELETED]
    assert core.gateway.load.messages == 0


# ---- browsing


def browse(core: Core, query: str = "") -> list[dict]:
    status, shown = core.ask("GET", f"{QUEUES}/q/messages{query}")
    assert status == 200, shown
    return shown["items"]


def test_a_browse_shows_and_touches_nothing():
    core = Core()
    core.send("q", b"one", b"two", b"three")
    before = state(core)
    shown = browse(core)
    assert [item["body"] for item in shown] == ["one", "two", "three"]
    assert [item["body"] for item in browse(core, "?offset=1&limit=1")] == ["two"]
    assert [item["body"] for item in browse(core, "?limit=2")] == ["one", "two"]
    assert browse(core, "?offset=3") == []
    assert browse(core, f"?offset={OFFSET_MAX}") == []
    assert state(core) == before
    first = shown[0]
    assert first["sequence"] < shown[1]["sequence"]
    expected = {"protocol": "STOMP", "durable": True, "priority": 4, "deliveryCount": 0}
    expected |= {"redelivered": False, "expires": None, "bodySize": 3, "bodyTruncated": False}
    assert {key: first[key] for key in expected} == expected


@pytest.mark.parametrize(
    "query",
    [
        "?limit=0",
        f"?limit={BROWSE_MAX + 1}",
        f"?offset={OFFSET_MAX + 1}",
        "?offset=-1",
        "?limit=x",
        "?offset=1e3",
        "?page=1",
    ],
)
def test_impossible_pages_are_refused(query):
    core = Core()
    core.send("q", b"x")
    assert core.ask("GET", f"{QUEUES}/q/messages{query}")[0] == 422


def test_what_is_known_of_a_message_is_shown():
    core = Core()
    flags = STOMP | EXPIRES | MAYBE_SEEN | 9
    core.send("q", b"\xff\x00\xfe", flags=flags, expires=core.now + 5000)
    (item,) = browse(core)
    assert item["body"] == base64.b64encode(b"\xff\x00\xfe").decode()
    assert item["bodyEncoding"] == "base64"
    assert (item["durable"], item["priority"], item["redelivered"]) == (False, 9, True)
    assert item["expires"] == core.now + 5000


def test_headers_and_properties_are_shown():
    core = Core()
    route = core.gateway.open_producer(Destination("q"), None, None)
    stomp = (
        b"destination:q\ncontent-type:text/plain\ncontent-length:2\npriority:4\npersistent:true\n"
    )
    stomp += b"correlation-id:c1\nreply-to:/queue/r\ncolour:a\\cb\ncolour:second\n\nhi"
    route.send(Run([stomp], STOMP | 4))
    # header, properties (message-id m1, subject s), application-properties (n = 1), data
    amqp = b"\x00\x53\x70\xc0\x02\x01\x41"
    amqp += b"\x00\x53\x73\xc0\x0a\x04\xa1\x02m1\x40\x40\xa1\x01s"
    amqp += b"\x00\x53\x74\xc1\x06\x02\xa1\x01n\x54\x01"
    amqp += b"\x00\x53\x75\xa0\x05hello"
    route.send(Run([amqp], 4))
    route.send(Run([b"\x00\x53\x99 not AMQP at all"], 4))
    route.send(Run([b"\x00\x53\x70\x45"], 4))
    first, second, third, bare = browse(core)
    assert (first["contentType"], first["correlationId"]) == ("text/plain", "c1")
    assert (first["replyTo"], first["body"]) == ("/queue/r", "hi")
    assert first["headers"]["colour"] == "a:b"
    assert (second["protocol"], second["messageId"], second["subject"]) == ("AMQP", "m1", "s")
    assert (second["headers"], second["body"]) == ({"n": "1"}, "hello")
    assert third["contentType"] == "application/vnd.amqp"
    assert third["bodyEncoding"] == "base64"
    assert (bare["body"], bare["bodyEncoding"], bare["bodySize"]) == (None, None, 0)


@pytest.mark.parametrize(
    ("body", "shown_size", "encoding"),
    [
        (b"x" * BODY_SHOWN_MAX, BODY_SHOWN_MAX, "text"),
        (b"x" * (BODY_SHOWN_MAX + 1), BODY_SHOWN_MAX, "text"),
        (b"x" + "\u00e4".encode() * BODY_SHOWN_MAX, BODY_SHOWN_MAX - 1, "text"),
        (b"xx" + "\U0001f407".encode() * BODY_SHOWN_MAX, BODY_SHOWN_MAX - 2, "text"),
        (b"\xff" * (BODY_SHOWN_MAX + 1), BODY_SHOWN_MAX, "base64"),
        (b"x\xc3", 2, "base64"),
    ],
)
def test_only_the_start_of_a_large_body_is_shown(body, shown_size, encoding):
    core = Core()
    core.send("q", body)
    (item,) = browse(core)
    assert item["bodyEncoding"] == encoding
    assert item["bodySize"] == len(body)
    assert item["bodyTruncated"] is (len(body) > BODY_SHOWN_MAX)
    raw = base64.b64decode(item["body"]) if encoding == "base64" else item["body"].encode()
    assert len(raw) == shown_size
    assert body.startswith(raw)


def test_a_full_page_of_large_bodies_leaves_one_by_one():
    core = Core()
    core.send("q", *[b"x" * 100_000] * 30)
    core.sync()
    answer = core.start("GET", f"{QUEUES}/q/messages?limit=30")
    pieces = list(answer.result.body)
    assert len(pieces) == 31
    assert max(map(len, pieces)) < BODY_SHOWN_MAX + 2000


def test_a_core_that_refuses_is_told_with_its_code(monkeypatch):
    core = Core()

    def refuse(*_, **__):
        raise RefusedError.of(Code.TOO_MANY, "no more queues")

    monkeypatch.setattr(Administration, "create_queue", refuse)
    status, error = core.ask("POST", QUEUES, {"name": "q"})
    assert (status, error) == (429, {"code": "too-many", "message": "no more queues"})


def test_last_value_and_non_destructive_queues_are_made_and_shown():
    core = Core()
    body = {"name": "q", "lastValue": True, "nonDestructive": True}
    status, view = core.ask("POST", QUEUES, body)
    assert status == 201
    assert (view["lastValue"], view["lastValueKey"]) == (True, "_AMQ_LVQ_NAME")
    assert view["nonDestructive"] is True
    assert core.ask("POST", QUEUES, body)[0] == 201
    assert core.ask("POST", QUEUES, {**body, "lastValueKey": "k"})[0] == 409
    assert core.ask("PATCH", QUEUES + "/q", {"lastValue": True, "ringSize": 4})[0] == 200
    assert core.ask("POST", QUEUES, {"name": "k", "lastValueKey": "k"})[1]["lastValue"] is True
    assert core.ask("POST", QUEUES, {"name": "n", "lastValueKey": None})[1]["lastValue"] is False
    status, error = core.ask("POST", QUEUES, {"name": "x", "lastValue": False, "lastValueKey": "k"})
    assert (status, "lastValueKey" in error["message"]) == (422, True)


def test_attributes_of_message_groups_are_changed_and_shown():
    core = Core()
    assert core.ask("POST", QUEUES, {"name": "q", "groupBuckets": 8})[0] == 201
    body = {
        "groupRebalance": True,
        "groupRebalancePauseDispatch": True,
        "groupFirstKey": "first",
        "consumerPriority": -3,
    }
    status, view = core.ask("PATCH", QUEUES + "/q", body)
    assert status == 200
    assert {**body, "groupBuckets": 8, "groupCount": 0}.items() <= view.items()
    assert core.ask("PATCH", QUEUES + "/q", {"groupFirstKey": ""})[1]["groupFirstKey"] is None
