"""A browse over HTTP: each message in the state that it is in, none that is late or not on disk."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred

from gateway.addresses.match import SettingsEntry
from gateway.addresses.settings import FullPolicy
from gateway.management import browsing
from gateway.model.message import DURABLE, EXPIRES, STOMP
from tests.broker.core import Core as BrokerCore
from tests.broker.core import body_of, entry
from tests.management.core import Core

PATH = "/api/v1/queues/q/messages"


def shown(core: BrokerCore, offset: int = 0, limit: int = 100) -> list[tuple[bytes, str]]:
    queue = core.queue("q")
    told = []
    browsing.Window(queue, offset, limit, core.now).read(told.append)
    assert len(told) == 1
    return [
        (body_of(message), state) for message, state in browsing.shown(queue, told[0], core.now)
    ]


def in_every_state() -> BrokerCore:
    # One in delivery is enough for nothing to be read back.
    limits = {"max_size_messages": 6, "max_read_page_messages": 1}
    core = BrokerCore(entry("#", address_full_policy=FullPolicy.PAGE, **limits))
    core.send("q", b"held")
    core.consume("q", room=1)
    core.send("q", b"later", delay=1000)
    core.send("q", b"soon", delay=500)
    core.send("q", b"late", ttl=10)
    core.send("q", b"ready", ttl=100)
    core.send("q", b"high", priority=9)
    core.send("q", b"paged 1", b"paged 2")
    core.send("q", b"paged late", ttl=10)
    core.send("q", b"paged 3")
    core.sync()
    core.now += 20
    assert core.queue("q").message_count == 10
    assert core.queue("q").paged_count == 4
    return core


ALL = [
    (b"high", "ready"),
    (b"ready", "ready"),
    (b"paged 1", "paged"),
    (b"paged 2", "paged"),
    (b"paged 3", "paged"),
    (b"soon", "scheduled"),
    (b"later", "scheduled"),
]


def test_every_state_is_told_and_the_late_are_left_out():
    core = in_every_state()
    assert shown(core) == ALL
    core.check()
    core.gateway.expire()
    core.turn()
    assert shown(core)[-2:] == ALL[-2:]


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_pages_of_a_browse_join(limit):
    core = in_every_state()
    joined = []
    for offset in range(0, 9, limit):
        joined += shown(core, offset, limit)
    # The one that expired on a page takes a place of its own.
    assert joined == ALL


def test_an_offset_behind_everything():
    assert shown(in_every_state(), 100) == []


def test_one_is_found_with_its_state_unless_it_is_late():
    core = Core(SettingsEntry(match="q", values={"max_size_messages": 2}))
    core.send("q", b"ready", b"second")
    late = DURABLE | STOMP | EXPIRES | 4
    core.send("q", b"paged late", flags=late, expires=core.now + 10)
    core.send("q", b"paged")
    core.sync()
    core.now += 20
    states = {}
    for seq in range(1, 7):
        status, one = core.ask("GET", f"{PATH}/{seq}")
        states[seq] = (one["body"], one["state"]) if status == 200 else status
    assert states == {
        1: ("ready", "ready"),
        2: ("second", "ready"),
        3: 404,
        4: ("paged", "paged"),
        5: 404,
        6: 404,
    }
    assert core.ask("DELETE", f"{PATH}/4")[0] == 204
    assert core.ask("DELETE", f"{PATH}/4")[0] == 404
    assert core.queue("q")["messageCount"] == 3


def asked(core: Core, path: str) -> list[list]:
    """Ask; returns a list of what will be answers."""
    told: list = []
    answer = core.start("GET", path)
    assert isinstance(answer, Deferred)
    answer.addCallback(told.append)
    return [told]


def test_an_answer_waits_for_the_disk():
    core = Core()
    core.send("q", b"x")
    told = asked(core, PATH) + asked(core, PATH + "/1")
    assert told == [[], []]
    core.sync()
    assert [answer.status for answers in told for answer in answers] == [200, 200]
    # With everything on disk there is nothing to wait for, nor for what never goes there.
    assert [len(answers) for answers in asked(core, PATH)] == [1]
    core.send("w", b"y", flags=STOMP | 4)
    core.send("q", b"z")
    assert [len(answers) for answers in asked(core, "/api/v1/queues/w/messages")] == [1]


def test_with_a_filter_too():
    core = Core()
    core.send("q", b"x", flags=DURABLE | STOMP | EXPIRES | 4, expires=core.now + 10)
    core.send("q", b"y")
    answer = core.start("GET", PATH + "?filter=AMQSize > 0")
    told = []
    answer.addCallback(told.append)
    core.turn()
    assert told == []
    core.sync()
    assert told[0].status == 200
    core.turn()  # the next one reads the clock anew
    core.now += 20
    _, page = core.ask("GET", PATH + "?filter=AMQSize > 0")
    assert [(item["body"], item["state"]) for item in page["items"]] == [("y", "ready")]


@pytest.mark.parametrize(("written", "shown_count"), [(None, 200), (3, 3), (1000, 250)])
def test_a_browse_shows_as_many_as_its_address_says(written, shown_count):
    values = {} if written is None else {"management_browse_page_size": written}
    core = Core(SettingsEntry(match="q", values=values))
    core.send("q", *[b"x"] * 250)
    _, page = core.ask("GET", PATH)
    assert len(page["items"]) == shown_count
    _, page = core.ask("GET", PATH + "?limit=7")
    assert len(page["items"]) == 7
