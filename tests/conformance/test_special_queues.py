"""Queues with attributes: exclusive, purge-on-no-consumers, consumers- and delay-before-dispatch.

Rows A12 to A15 and R32.
"""

from __future__ import annotations

import pytest

from gateway.model.errors import Code, RefusedError
from gateway.model.run import Run
from tests.broker.core import ANYCAST, MULTICAST, Core, entry


def special(*entries, queue: str = "q", **attributes) -> Core:
    core = Core(*entries)
    core.administration.create_queue(queue, "q", ANYCAST, attributes=attributes)
    return core


# ---- purge-on-no-consumers


def test_a12_without_consumers_nothing_enters_and_nothing_stays():
    core = special(purge_on_no_consumers=True)
    queue = core.queue("q")
    core.send("q", b"none there")
    assert (queue.message_count, queue.added) == (0, 0)
    taker = core.consume("q", room=0)
    core.send("q", b"kept while somebody is there")
    assert queue.message_count == 1
    taker.leave()
    assert (queue.message_count, queue.killed) == (0, 1)
    core.send("q", *[b"x"] * 5)
    assert (queue.message_count, queue.added) == (0, 1)
    assert core.gateway.addresses["q"].unrouted == 6
    core.check()


@pytest.mark.parametrize(("size", "killed", "replaced"), [(1, 1, 2), (2, 2, 1), (-1, 3, 0)])
def test_r32_what_comes_back_meets_the_ring_and_then_goes(size, killed, replaced):
    core = Core()
    core.administration.create_queue(
        "q", "q", ANYCAST, ring_size=size, attributes={"purge_on_no_consumers": True}
    )
    taker = core.consume("q", room=3)
    core.send("q", b"A", b"B", b"C")
    taker.leave()
    queue = core.queue("q")
    assert (queue.message_count, queue.killed, queue.replaced) == (0, killed, replaced)
    core.check()


def test_of_two_consumers_the_last_one_counts():
    core = special(purge_on_no_consumers=True)
    one, other = core.consume("q", room=0), core.consume("q", room=0)
    core.send("q", b"x")
    one.leave()
    assert core.waiting("q") == [b"x"]
    other.leave()
    assert core.waiting("q") == []


def test_a_subscription_that_purges_leaves_the_others_alone():
    core = Core()
    core.administration.create_queue(
        "a", "t", MULTICAST, attributes={"purge_on_no_consumers": True}
    )
    core.administration.create_queue("b", "t", MULTICAST)
    core.send("t", b"1")
    taker = core.consume("t::a", room=0)
    core.send("t", b"2")
    assert (core.waiting("a"), core.waiting("b")) == ([b"2"], [b"1", b"2"])
    taker.leave()
    assert (core.waiting("a"), core.waiting("b")) == ([], [b"1", b"2"])
    core.check()


def test_what_is_scheduled_goes_as_well():
    core = special(purge_on_no_consumers=True)
    taker = core.consume("q")
    core.send("q", b"later", delay=50)
    taker.leave()
    assert core.queue("q").message_count == 0


def test_changed_while_it_runs_it_counts_from_the_next_send():
    core = special()
    route, _ = core.producer("q")
    route.send(Run([b"destination:q\n\n1"], 0x34))
    core.administration.update_queue("q", attributes={"purge_on_no_consumers": True})
    route.send(Run([b"destination:q\n\n2"], 0x34))
    core.turn()
    assert core.waiting("q") == [b"1"]
    core.administration.update_queue("q", attributes={"purge_on_no_consumers": False})
    route.send(Run([b"destination:q\n\n3"], 0x34))
    core.turn()
    assert core.waiting("q") == [b"1", b"3"]


# ---- consumers-before-dispatch, delay-before-dispatch


@pytest.mark.parametrize("delay", [-1, 2000])
def test_a13_nothing_is_delivered_before_the_second_consumer(delay):
    core = special(consumers_before_dispatch=2, delay_before_dispatch=delay)
    one = core.consume("q")
    core.send("q", b"x", b"y")
    core.pass_time(1999)
    assert one.got == []
    other = core.consume("q")
    core.turn()
    assert sorted(one.bodies() + other.bodies()) == [b"x", b"y"]


def test_a14_a_lone_consumer_is_served_when_the_delay_ends():
    core = special(consumers_before_dispatch=2, delay_before_dispatch=2000)
    core.send("q", b"x")
    taker = core.consume("q")
    core.pass_time(1999)
    assert taker.got == []
    core.pass_time(1)
    assert taker.bodies() == [b"x"]


def test_a_lone_consumer_waits_for_ever_without_a_delay():
    core = special(consumers_before_dispatch=2)
    core.send("q", b"x")
    taker = core.consume("q")
    core.pass_time(10_000_000)
    assert taker.got == []


def test_a15_once_open_it_stays_open_until_the_last_has_left():
    core = special(consumers_before_dispatch=2, delay_before_dispatch=500)
    one, other = core.consume("q"), core.consume("q")
    other.leave()
    core.send("q", b"1")
    assert one.bodies() == [b"1"]
    one.ack()
    one.leave()
    third = core.consume("q")
    core.send("q", b"2")
    assert third.got == []
    core.pass_time(499)
    assert third.got == []
    core.pass_time(1)
    assert third.bodies() == [b"2"]


def test_the_delay_runs_from_the_first_consumer_and_stops_with_it():
    core = special(consumers_before_dispatch=2, delay_before_dispatch=1000)
    core.send("q", b"x")
    core.consume("q").leave()
    core.pass_time(900)
    taker = core.consume("q")
    core.pass_time(999)
    assert taker.got == []
    core.pass_time(1)
    assert taker.bodies() == [b"x"]


def test_a_delay_and_a_scheduled_message_do_not_hide_each_other():
    core = special(consumers_before_dispatch=2, delay_before_dispatch=1000)
    core.send("q", b"soon", delay=300)
    core.send("q", b"late", delay=1500)
    taker = core.consume("q")
    core.pass_time(999)
    assert taker.got == []
    core.pass_time(1)
    assert taker.bodies() == [b"soon"]
    core.pass_time(500)
    assert taker.bodies() == [b"soon", b"late"]


# ---- exclusive


def test_one_consumer_gets_everything_until_it_leaves():
    core = special(exclusive=True)
    one = core.consume("q", room=2)
    other = core.consume("q", room=10)
    core.send("q", b"1", b"2", b"3")
    assert (one.bodies(), other.bodies()) == ([b"1", b"2"], [])
    one.ack()
    one.leave()
    core.turn()
    assert other.bodies() == [b"3"]


def test_the_next_one_is_of_the_highest_priority():
    core = special(exclusive=True)
    one = core.consume("q", room=1)
    low = core.consume("q", priority=-1)
    high = core.consume("q", priority=9)
    core.send("q", b"1", b"2")
    assert (one.bodies(), high.bodies()) == ([b"1"], [])
    one.ack()
    one.leave()
    core.turn()
    assert (high.bodies(), low.bodies()) == ([b"2"], [])


# ---- where they come from, and that they stay


def test_settings_give_them_to_new_queues():
    core = Core(
        entry(
            "a.#",
            default_exclusive_queue=True,
            default_purge_on_no_consumers=True,
            default_consumers_before_dispatch=3,
            default_delay_before_dispatch=70,
        )
    )
    core.consume("a.q")
    core.send("b.q", b"x")
    given = core.queue("a.q").attributes
    assert (given.exclusive, given.purge_on_no_consumers) == (True, True)
    assert (given.consumers_before_dispatch, given.delay_before_dispatch) == (3, 70)
    assert core.queue("b.q").attributes.exclusive is False


@pytest.mark.parametrize("clean", [False, True])
def test_they_survive_a_restart(clean):
    core = special(exclusive=True, consumers_before_dispatch=2)
    core.administration.update_queue("q", attributes={"purge_on_no_consumers": True})
    core.sync()
    core.restart(clean=clean)
    queue = core.queue("q")
    assert queue.exclusive
    assert queue.attributes.consumers_before_dispatch == 2
    core.send("q", b"x")
    assert queue.added == 0


@pytest.mark.parametrize(
    ("name", "value", "key"),
    [
        ("exclusive", 1, "exclusive"),
        ("purge_on_no_consumers", "yes", "purgeOnNoConsumers"),
        ("consumers_before_dispatch", -1, "consumersBeforeDispatch"),
        ("consumers_before_dispatch", True, "consumersBeforeDispatch"),
        ("delay_before_dispatch", -2, "delayBeforeDispatch"),
        ("delay_before_dispatch", 1 << 31, "delayBeforeDispatch"),
    ],
)
def test_impossible_values_are_named_and_change_nothing(name, value, key):
    core = special()
    with pytest.raises(RefusedError, match=key) as refused:
        core.administration.update_queue("q", ring_size=5, attributes={name: value})
    assert refused.value.refusal.code is Code.BAD_VALUE
    assert core.queue("q").ring_size == -1


def test_q41_what_was_not_accepted_goes_and_stays_gone():
    core = special(purge_on_no_consumers=True)
    taker = core.consume("q")
    core.send("q", *[b"%d" % i for i in range(5)])
    taker.ack(4)
    taker.leave()
    for _ in range(2):
        assert core.queue("q").message_count == 0
        assert core.gateway.addresses["q"].size_bytes == 0
        core.sync()
        core.restart()
