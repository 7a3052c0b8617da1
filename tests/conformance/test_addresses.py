"""Addresses, queues and dead letters: the scenario rows A that this version has, by their numbers.

A1 to A6 (matching) are in tests/addresses. Not here: A11 (wildcard addresses), A12
(purge-on-no-consumers), A13 to A15 (dispatch held back), A16 to A21 (last value), A22, A23
(retroactive), A27, A28 (duplicates), A29, A30 (slow consumers), A31, A32 (auto-delete), A35
(redelivery delay).
"""

from __future__ import annotations

import pytest

from gateway.model.address import RoutingType
from gateway.model.stomp_form import unpack
from tests.broker.core import ANYCAST, MULTICAST, Core, entry

MIXED = ("qA", ANYCAST), ("qB", ANYCAST), ("qC", MULTICAST), ("qD", MULTICAST)


def mixed() -> Core:
    core = Core()
    for name, kind in MIXED:
        core.administration.create_queue(name, "a", kind)
    return core


@pytest.mark.parametrize(
    ("routing", "anycast", "multicast"),
    [(None, 1, 1), (RoutingType.ANYCAST, 1, 0), (RoutingType.MULTICAST, 0, 1)],
)
def test_a7_a8_a9_a_routing_type_says_who_takes_part(routing, anycast, multicast):
    core = mixed()
    for sent in range(1, 5):
        core.send("a", b"m", routing=routing)
        counts = {name: core.queue(name).added for name, _ in MIXED}
        assert counts["qA"] + counts["qB"] == anycast * sent
        assert counts["qC"] == counts["qD"] == multicast * sent
        assert abs(counts["qA"] - counts["qB"]) <= 1
        core.check()
    assert core.gateway.addresses["a"].messages == 4
    assert core.gateway.addresses["a"].routed == 4


@pytest.mark.parametrize("together", [False, True])
def test_a10_anycast_queues_take_turns(together):
    core = Core()
    for name in ("q1", "q2", "q3"):
        core.administration.create_queue(name, "a", ANYCAST)
    takers = [core.consume(f"a::{name}") for name in ("q1", "q2", "q3")]
    core.send("a", b"1", b"2", b"3", together=together)
    assert sorted(b for t in takers for b in t.bodies()) == [b"1", b"2", b"3"]
    assert [len(t.got) for t in takers] == [1, 1, 1]


def test_a10_those_with_consumers_come_first():
    core = Core()
    for name in ("q1", "q2", "q3"):
        core.administration.create_queue(name, "a", ANYCAST)
    taker = core.consume("a::q2")
    core.send("a", b"1", b"2", b"3")
    assert taker.bodies() == [b"1", b"2", b"3"]
    taker.leave()
    core.send("a", b"4", b"5", b"6")
    assert [core.queue(n).ready_count for n in ("q1", "q2", "q3")] == [1, 4, 1]


def test_a24_the_least_time_to_live_is_given_to_who_has_none():
    core = Core(entry("#", min_expiry_delay=200))
    core.send("q", b"x")
    core.now += 199
    assert core.gateway.expire() == 0
    core.now += 1
    assert core.gateway.expire() == 1
    assert core.queue("q").expired == 1


def test_a25_the_least_time_to_live_lengthens_a_shorter_one():
    core = Core(entry("#", min_expiry_delay=200))
    core.send("q", b"x", ttl=100)
    core.now += 199
    assert core.gateway.expire() == 0
    core.now += 1
    assert core.gateway.expire() == 1


@pytest.mark.parametrize("ttl", [None, 3_600_000])
def test_a26_the_most_time_to_live_ends_all(ttl):
    core = Core(entry("#", max_expiry_delay=500))
    core.send("q", b"x", ttl=ttl)
    core.now += 499
    assert core.gateway.expire() == 0
    core.now += 1
    assert core.gateway.expire() == 1


@pytest.mark.parametrize("attempts", [1, 2])
def test_a33_after_the_last_attempt_it_is_a_dead_letter(attempts):
    core = Core(entry("#", max_delivery_attempts=attempts, dead_letter_address="dead"))
    core.administration.create_queue("dlq", "dead", ANYCAST)
    core.send("q", b"x", priority=7)
    for number in range(attempts):
        assert core.waiting("dlq") == []
        taker = core.consume("q")
        assert [m.delivery_count for m in taker.got] == [number]
        work = core.gateway.begin()
        work.acknowledge(taker.hold, taker.got)
        work.rollback()
        taker.got.clear()
        taker.leave()
    assert core.figures("q") == (0, 0, 0)
    assert core.queue("q").killed == 1
    (dead,) = core.queue("dlq").browse(0, 9)
    headers = dict(unpack(dead.body)[0])
    assert headers["_AMQ_ORIG_ADDRESS"] == headers["_AMQ_ORIG_QUEUE"] == "q"
    assert (dead.priority, dead.delivery_count) == (7, 0)
    core.check()


@pytest.mark.parametrize("exists", [False, True])
def test_a34_without_a_binding_a_dead_letter_is_lost_and_counted(exists):
    core = Core(
        entry("#", max_delivery_attempts=1, dead_letter_address="dead"),
        entry("dead", default_address_routing_type=MULTICAST),
    )
    if exists:
        core.directory.make_address("dead", frozenset({MULTICAST}))
    core.send("q", b"x")
    core.consume("q").leave(failed=True)
    assert core.figures("q") == (0, 0, 0)
    assert core.queue("q").killed == 1
    assert core.gateway.figures.lost_dead_letters == 1
    assert core.gateway.addresses["dead"].unrouted == 1
    core.check()


@pytest.mark.parametrize("scan", [False, True])
def test_a36_what_is_expired_when_it_comes_goes_to_all_expiry_queues(scan):
    core = Core(entry("#", expiry_address="late"))
    for name in ("late.1", "late.2"):
        core.administration.create_queue(name, "late", MULTICAST)
    core.send("q", b"x", ttl=0)
    if scan:
        core.gateway.expire()
    assert core.consume("q").got == []
    for name in ("late.1", "late.2"):
        (message,) = core.queue(name).browse(0, 9)
        headers = dict(unpack(message.body)[0])
        assert headers["_AMQ_ORIG_ADDRESS"] == "q"
        assert headers["_AMQ_ACTUAL_EXPIRY"] == str(core.now)
    assert core.queue("q").expired == 1
    core.check()


def test_a36_who_waits_on_the_expiry_queue_gets_it_in_the_same_turn():
    core = Core(entry("#", expiry_address="late"))
    waiting = core.consume("late")
    core.send("q", b"x", ttl=5)
    core.now += 5
    core.consume("q")
    assert waiting.bodies() == [b"x"]
