"""Producers as the API lists them, and queues that are disabled: rows M9 and M10."""

from __future__ import annotations

import json

import pytest

from gateway.addresses.settings import FullPolicy
from gateway.management.http import Request
from gateway.management.producers_api import ProducersApi
from gateway.management.router import Router
from gateway.management.views import Sources
from gateway.model.definitions import DivertDefinition
from gateway.model.message import IDENTIFIED
from gateway.model.run import MixedRun, Run
from tests.broker.core import ANYCAST, MULTICAST, Core, body_of, entry, flags_of, stomp
from tests.conformance.clients import Amqp, Stomp, plain
from tests.conformance.test_duplicates import known


def listed(core: Core) -> list[tuple[str, int]]:
    """Return (address, messages sent) of the producers that the API lists."""
    router = Router()
    ProducersApi(Sources(gateway=core.gateway, not_ready=lambda: None)).add_routes(router)
    request = Request(method="GET", path="/api/v1/producers", query={}, headers={}, body=b"")
    answer = router.dispatch(request)
    return [(one["address"], one["messagesSent"]) for one in json.loads(answer.body)["items"]]


def test_m9_what_a_connection_sent_and_nothing_when_it_is_gone():
    core = Core()
    client = Stomp(core)
    assert listed(core) == []
    client.send("q", "1")
    assert listed(core) == [("q", 1)]
    client.send("q", "2")
    client.send("r", "3")
    assert listed(core) == [("q", 2), ("r", 1)]
    client.leave()
    assert listed(core) == []


def test_m9_over_amqp_with_runs():
    core = Core()
    peer = Amqp.at(core)
    peer.sender()
    assert listed(core) == [("q", 0)]
    peer.give(plain("1"), plain("2"), plain("3"))
    peer.give(plain("4", durable=True))
    assert listed(core) == [("q", 4)]
    peer.cut()
    assert listed(core) == []


@pytest.mark.parametrize("policy", [FullPolicy.FAIL, FullPolicy.DROP, FullPolicy.PAGE])
def test_m9_counts_what_was_taken_whatever_the_limits(policy):
    core = Core(entry(max_size_messages=2, address_full_policy=policy))
    producer, _ = core.producer("q")
    producer.send(Run([stomp(b"%d" % n) for n in range(5)], flags_of()))
    producer.send_mixed(MixedRun([stomp(b"6")], [flags_of()], [0]))
    core.turn()
    expected = 6 if policy is FullPolicy.PAGE else 2
    assert core.queue("q").added == expected
    assert listed(core) == [("q", expected)]


def test_m9_with_diverts_duplicates_and_transactions():
    core = Core()
    core.gateway.branches.create(DivertDefinition(name="d", address="q", forwarding=("b",)))
    producer, _ = core.producer("q")
    producer.send(Run([known("1"), known("1")], flags_of() | IDENTIFIED))
    producer.send(Run([stomp(b"x"), stomp(b"y")], flags_of()))
    work = core.gateway.begin()
    work.send(producer, Run((stomp(b"z"),), flags_of()))
    work.commit()
    core.turn()
    assert core.queue("b").added == 4
    assert listed(core) == [("q", 5)]


# ---- M10


def test_m10_a_disabled_queue_gets_nothing_others_do():
    core = Core()
    for name in ("s1", "s2"):
        core.administration.create_queue(name, "t", MULTICAST)
    core.send("t", b"1")
    core.administration.update_queue("s1", attributes={"enabled": False})
    producer, _ = core.producer("t")
    producer.send(Run([stomp(b"2")], flags_of()))
    core.turn()
    assert [core.waiting(n) for n in ("s1", "s2")] == [[b"1"], [b"1", b"2"]]
    assert core.consume("t::s1").bodies() == [b"1"]
    core.check()


@pytest.mark.parametrize("clean", [False, True])
def test_m10_over_a_restart(clean):
    core = Core()
    core.administration.create_queue("s1", "t", MULTICAST, attributes={"enabled": False})
    core.administration.create_queue("s2", "t", MULTICAST)
    core.sync()
    core.restart(clean=clean)
    core.send("t", b"1")
    assert [core.queue(n).message_count for n in ("s1", "s2")] == [0, 1]
    core.administration.update_queue("s1", attributes={"enabled": True})
    core.sync()
    core.restart(clean=clean)
    core.send("t", b"2")
    assert core.waiting("s1") == [b"2"]


def test_m10_the_other_anycast_queues_take_its_turn():
    core = Core()
    for name in ("q1", "q2", "q3"):
        core.administration.create_queue(name, "q", ANYCAST)
    core.administration.update_queue("q2", attributes={"enabled": False})
    core.send("q", *[b"%d" % n for n in range(4)])
    assert [core.queue(n).message_count for n in ("q1", "q2", "q3")] == [2, 0, 2]


def test_m10_on_pages_in_transactions_and_by_name():
    core = Core(entry(max_size_messages=1, address_full_policy=FullPolicy.PAGE))
    for name in ("s1", "s2"):
        core.administration.create_queue(name, "t", MULTICAST)
    core.administration.update_queue("s1", attributes={"enabled": False})
    core.send("t", b"1", b"2", b"3")
    work = core.gateway.begin()
    work.send(core.producer("t")[0], Run((stomp(b"4"),), flags_of()))
    work.send(core.producer("t::s1")[0], Run((stomp(b"5"),), flags_of()))
    work.commit()
    core.sync()
    core.check()
    assert [core.queue(n).message_count for n in ("s1", "s2")] == [0, 4]
    taker = core.consume("t::s2")
    core.sync()
    assert [body_of(m) for m in taker.got] == [b"1", b"2", b"3", b"4"]


def test_a_producer_finds_the_address_that_was_deleted_and_made_again():
    core = Core()
    producer, _ = core.producer("news", MULTICAST)
    producer.send(Run([stomp(b"0")], flags_of()))
    core.administration.delete_address("news", force=True)
    taker = core.consume("news", routing=MULTICAST)
    producer.send(Run([stomp(b"1")], flags_of()))
    core.turn()
    assert taker.bodies() == [b"1"]
