"""Management: the scenario rows M by their numbers, over the HTTP calls and the real broker."""

from __future__ import annotations

import pytest

from gateway.model.address import Destination, RoutingType
from gateway.model.errors import Code, Refusal
from gateway.model.message import DURABLE, STOMP
from gateway.model.run import Run
from gateway.model.stomp_form import pack
from tests.broker.core import Owner
from tests.management.core import Core
from tests.management.test_messages_api import FLAGS, bodies, check, made, send

QUEUES = "/api/v1/queues"


class Parts:
    """Counts what a store was told to keep together."""

    def __init__(self, core: Core) -> None:
        self.count = 0
        core.store.begin_atomic = self._begin

    def _begin(self) -> None:
        self.count += 1


def figures(core: Core, *names: str) -> list[int]:
    shown = core.queue("q")
    return [shown[name] for name in names]


def test_counts_of_what_waits_is_scheduled_and_is_out():
    core = Core()
    send(core, "a", "b", "c", "d", "e")
    send(core, "later", due=core.now + 60_000)
    core.take("q", 2)
    assert figures(core, "messageCount", "deliveringCount", "scheduledCount") == [6, 2, 1]


def test_m2_what_a_ring_replaced_is_shown():
    core = Core()
    core.ask("POST", QUEUES, {"name": "q", "ringSize": 2})
    send(core, *"abcde")
    assert figures(core, "messagesAdded", "messageCount", "messagesReplaced") == [5, 2, 3]


def test_m3_counts_by_a_filter_and_a_property():
    core = Core()
    send(core, "red", "blue", "red", "green", "red")
    call = f"{QUEUES}/q/countMessages?filter=colour <> 'green'&groupByProperty=colour"
    assert core.ask("GET", call)[1] == {"messages": 4, "groups": {"red": 3, "blue": 1}}


@pytest.mark.parametrize(("flush", "parts"), [(3, 4), (10, 1), (None, 1)])
def test_m4_ten_moved_by_a_filter_in_parts(flush, parts):
    core = Core()
    made(core, "other")
    send(core, "there", name="other")
    send(core, *["red", "blue"] * 10)
    counted = Parts(core)
    body = {"target": "other", "filter": "colour = 'red'"}
    body |= {"flushLimit": flush} if flush else {}
    results = []
    core.start("POST", f"{QUEUES}/q/moveMessages", body).addCallback(results.append)
    for _ in range(10):
        core.sync()
    assert results[0].body == b'{"messages":10}'
    assert counted.count == parts
    assert bodies(core, "other") == ["there"] + ["red"] * 10
    assert bodies(core) == ["blue"] * 10
    check(core)


def dead(core: Core) -> None:
    """Let all that waits in q go to DLQ."""
    core.ask("POST", f"{QUEUES}/q/sendMessagesToDeadLetterAddress", {})


def test_m5_retried_by_a_filter_without_its_origin():
    core = Core()
    send(core, "red", "blue", "red")
    before = core.ask("GET", f"{QUEUES}/q/messages")[1]["items"]
    dead(core)
    (first, *_) = core.ask("GET", f"{QUEUES}/DLQ/messages")[1]["items"]
    assert first["headers"]["_AMQ_ORIG_QUEUE"] == "q"
    assert core.ask("POST", f"{QUEUES}/DLQ/retryMessages", {"filter": "colour = 'red'"})[1] == {
        "messages": 2
    }
    after = core.ask("GET", f"{QUEUES}/q/messages")[1]["items"]
    assert [i["headers"] for i in after] == [i["headers"] for i in before if i["body"] == "red"]
    assert bodies(core, "DLQ") == ["blue"]
    assert core.ask("POST", f"{QUEUES}/DLQ/retryMessages", {"limit": 1})[1] == {"messages": 1}
    assert bodies(core) == ["red", "red", "blue"]
    assert core.queue("DLQ")["messageCount"] == 0
    check(core)


def test_m5_what_has_no_origin_stays():
    core = Core()
    send(core, "red")
    dead(core)
    send(core, "own", name="DLQ")
    assert core.ask("POST", f"{QUEUES}/DLQ/retryMessages", {"filter": "colour = 'own'"})[1] == {
        "messages": 0
    }
    assert "own" in bodies(core, "DLQ")


def test_m7_m8_a_blocked_address_and_its_end():
    core = Core()
    told = []

    class Told(Owner):
        def producer_blocked(self, refusal) -> None:
            told.append(refusal.code.value)

        def producer_unblocked(self) -> None:
            told.append("unblocked")

    route = core.gateway.open_producer(Destination("q"), None, Told())
    status, shown = core.ask("POST", "/api/v1/addresses/q/block")
    assert (status, shown["blocked"], shown["full"]) == (200, True, False)
    assert "operator" in shown["reason"]
    assert route.blocked() is not None
    # What was credited before is taken: nothing is lost, and it can be consumed.
    assert route.send(Run([pack("q", b"x", persistent=True)], FLAGS)).ticket > 0
    assert core.take("q", 1).got
    assert core.ask("POST", "/api/v1/addresses/q/unblock")[1]["blocked"] is False
    assert route.blocked() is None
    assert told == ["address-full", "unblocked"]
    assert core.address("q")["producerCount"] == 1
    route.close()
    assert core.address("q")["producerCount"] == 0


def test_settings_say_which_match_and_line_gave_each_value():
    core = Core()
    core.ask("POST", QUEUES, {"name": "orders.eu"})
    status, shown = core.ask("GET", "/api/v1/addresses/orders.eu/settings")
    assert (status, shown["address"], shown["exists"]) == (200, "orders.eu", True)
    keys = [item["key"] for item in shown["items"]]
    assert "disk-full-policy" in keys
    assert len(keys) == len(set(keys))
    (policy,) = [i for i in shown["items"] if i["key"] == "disk-full-policy"]
    assert (policy["value"], policy["match"]) == ("BLOCK", None)


def test_a_full_disk_does_not_stop_an_operator():
    core = Core()
    made(core, "other")
    send(core, "red", "blue")
    core.gateway.pressure.disk.set(Refusal(code=Code.DISK_FULL, text="No room.", transient=True))
    assert core.ask("POST", f"{QUEUES}/q/moveMessages", {"target": "other", "limit": 1})[1] == {
        "messages": 1
    }
    assert core.ask("POST", f"{QUEUES}/q/removeAllMessages")[1] == {"messages": 1}
    assert bodies(core, "other") == ["red"]
    shown = core.address("q")
    assert (shown["blocked"], shown["full"], shown["reason"]) == (True, False, "No room.")
    assert core.ask("GET", "/readyz")[1] == {
        "status": "ready",
        "code": "disk-full",
        "message": "No room.",
    }
    # Sending is not for management to do while others wait.
    route = core.gateway.open_producer(Destination("q"), RoutingType.ANYCAST, Owner())
    outcome = route.send(Run([pack("q", b"x", persistent=True)], DURABLE | STOMP | 4))
    assert outcome.refusal is not None
