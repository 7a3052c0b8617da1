"""Redelivery delay and dead letters: rows A33, A35, R20 and what lies between."""

from __future__ import annotations

import pytest

from gateway.model.sections import header_facts
from protocols.amqp.performatives import Modified
from tests.broker.core import ANYCAST, Core, body_of, entry
from tests.conformance.clients import Amqp, Stomp, took
from tests.conformance.test_ring import ring

DELAYS = {
    "redelivery_delay": 5000,
    "redelivery_delay_multiplier": 2.0,
    "max_redelivery_delay": 15_000,
}


def delayed(**settings) -> Core:
    core = Core(entry("#", dead_letter_address="dead", **{**DELAYS, **settings}))
    for name in ("q", "dead"):
        core.administration.create_queue(name, name, ANYCAST)
    return core


def roll_back(core: Core, taker) -> None:
    work = core.gateway.begin()
    work.acknowledge(taker.hold, list(taker.got))
    taker.got.clear()
    work.rollback()
    core.turn()


WAITS = (5000, 10_000, 15_000, 15_000)


def waits(core: Core, wait: int) -> bool:
    """Whether the message is scheduled now, and due after `wait`; it is due then."""
    queue = core.queue("q")
    counted = (queue.scheduled_count, queue.message_count, queue.delivering) == (1, 1, 0)
    core.pass_time(wait - 1)
    return counted and queue.scheduled_count == 1


def test_a35_rolled_back_it_waits_longer_each_time():
    core = delayed()
    core.send("q", b"x")
    taker = core.consume("q")
    for wait in WAITS:
        assert taker.bodies() == [b"x"]
        roll_back(core, taker)
        assert waits(core, wait)
        assert taker.got == []
        core.pass_time(1)
    assert taker.got[0].delivery_count == 4
    core.check()


def test_a35_modified_over_amqp_it_waits_longer_each_time():
    core = delayed()
    core.send("q", b"x")
    peer = Amqp.at(core)
    came = peer.receiver(credit=10) + peer.more()
    for wait in WAITS:
        ((number, _),) = took(came)
        assert took(peer.settle(number, Modified(delivery_failed=True))) == []
        assert waits(core, wait)
        assert took(peer.more()) == []
        core.pass_time(1)
        came = peer.more()
    assert header_facts(took(came)[0][1]).delivery_count == 4
    core.check()


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_a35_refused_over_stomp_it_waits_longer_each_time(version):
    core = delayed()
    core.send("q", b"x")
    client = Stomp(core, version)
    came = client.subscribe("q", "client-individual")
    for wait in WAITS:
        (message,) = came
        assert message[2] == b"x"
        assert client.settle(message, "NACK") == []
        assert waits(core, wait)
        assert client.more() == []
        core.pass_time(1)
        came = client.more()
    assert came[0][1]["redelivered"] == "true"
    core.check()


def test_released_it_waits_too_and_no_attempt_counts():
    core = delayed()
    core.send("q", b"x")
    taker = core.consume("q")
    for _ in range(3):
        taker.release(delayed=True)
        core.pass_time(4999)
        assert taker.got == []
        core.pass_time(1)
        assert taker.got[0].delivery_count == 0


@pytest.mark.parametrize("failed", [False, True])
def test_a_consumer_that_leaves_delays_nothing(failed):
    core = delayed()
    core.send("q", b"x")
    core.consume("q").leave(failed=failed)
    assert core.waiting("q") == [b"x"]
    assert core.queue("q").scheduled_count == 0


@pytest.mark.parametrize("attempts", [1, 2])
def test_a33_the_last_attempt_goes_to_the_dead_letters_at_once(attempts):
    core = delayed(max_delivery_attempts=attempts)
    core.send("q", b"x")
    taker = core.consume("q")
    for _ in range(attempts):
        roll_back(core, taker)
        core.pass_time(5000)
    assert core.queue("q").message_count == 0
    assert core.queue("q").killed == 1
    assert core.waiting("dead") == [b"x"]
    (letter,) = core.queue("dead").browse(0, 1)
    assert letter.delivery_count == 0
    assert b"_AMQ_ORIG_ADDRESS:q\n_AMQ_ORIG_QUEUE:q\n" in letter.body
    core.check()


@pytest.mark.parametrize("clean", [False, True])
def test_the_wait_and_the_attempts_survive_a_restart(clean):
    core = delayed()
    core.send("q", b"x")
    taker = core.consume("q")
    ticket = taker.release(failed=True, delayed=True)
    assert ticket == core.store.ticket
    core.sync()
    core.restart(clean=clean)
    assert core.queue("q").scheduled_count == 1
    taker = core.consume("q")
    core.pass_time(4999)
    assert taker.got == []
    core.pass_time(1)
    assert taker.got[0].delivery_count == 1


def test_after_its_wait_it_comes_before_what_is_newer():
    core = delayed()
    core.send("q", b"old")
    taker = core.consume("q", room=1)
    taker.release(failed=True, delayed=True)
    core.send("q", b"new")
    core.pass_time(5000)
    assert core.waiting("q") == [b"old", b"new"]


def test_a_full_ring_replaces_it_before_it_waits():
    core = ring(1, entry("q", **DELAYS))
    taker = core.consume("q", room=1)
    core.send("q", b"A", b"B")
    taker.release(failed=True, delayed=True)
    assert core.figures("q") == (1, 0, 1)
    assert core.waiting("q") == [b"B"]


def test_with_room_all_that_come_back_wait():
    core = ring(2, entry("q", **DELAYS))
    taker = core.consume("q", room=3)
    core.send("q", b"A", b"B", b"C", b"D")
    taker.release(failed=True, delayed=True)
    assert core.queue("q").scheduled_count == 3
    core.pass_time(5000)
    assert core.figures("q") == (2, 0, 2)
    assert core.waiting("q") == [b"C", b"D"]


def test_rejected_as_modified_waits():
    core = delayed(reject_as_modified=True)
    core.send("q", b"x")
    taker = core.consume("q")
    taker.reject()
    core.turn()
    assert core.queue("q").scheduled_count == 1
    core.pass_time(5000)
    assert [body_of(m) for m in taker.got] == [b"x"]


def test_chance_is_asked_for_each_message():
    core = delayed(redelivery_collision_avoidance_factor=0.5)
    core.send("q", b"1", b"2", b"3")
    chances = iter([0.9, 0.1, 0.5])
    core.gateway.operations.effects.chance = lambda: next(chances)
    taker = core.consume("q")
    taker.release(failed=True, delayed=True)
    core.pass_time(10_000)
    assert sorted(taker.bodies()) == [b"1", b"2", b"3"]
    assert taker.bodies() != [b"1", b"2", b"3"]


def test_time_counts_from_now_however_long_nothing_happened():
    core = delayed()
    core.send("q", b"x")
    taker = core.consume("q")
    core.now += 60_000
    taker.release(failed=True, delayed=True)
    core.pass_time(4999)
    assert taker.got == []
    core.pass_time(1)
    assert taker.bodies() == [b"x"]
