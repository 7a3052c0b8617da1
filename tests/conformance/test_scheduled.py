"""Scheduled messages: rows R7, R8 and R31 of rings, Q14 and Q15, by what the core does."""

from __future__ import annotations

import pytest

from gateway.addresses.settings import FullPolicy
from gateway.model.message import EXPIRES
from gateway.model.run import Run
from tests.broker.core import ANYCAST, MULTICAST, Core, body_of, entry
from tests.conformance.test_ring import ring


def counts(core: Core, name: str = "q") -> tuple[int, int, int]:
    """Return (message count, scheduled, replaced), after all has been checked."""
    core.check()
    queue = core.queue(name)
    return queue.message_count, queue.scheduled_count, queue.replaced


def test_r7_of_two_that_are_due_at_once_a_ring_of_one_keeps_the_later_sent():
    core = ring(1)
    core.send("q", b"h0", delay=500)
    assert counts(core) == (1, 1, 0)
    core.send("q", b"h1", delay=500)
    assert counts(core) == (2, 2, 0)
    assert core.waiting("q") == []
    core.pass_time(499)
    assert counts(core) == (2, 2, 0)
    core.pass_time(1)
    assert counts(core) == (1, 0, 1)
    assert core.waiting("q") == [b"h1"]


def test_r8_what_comes_due_to_a_full_ring_is_replaced():
    core = ring(3)
    core.send("q", b"A", delay=300_000)
    assert counts(core) == (1, 1, 0)
    for number, body in enumerate([b"B", b"C", b"D"], 2):
        core.send("q", body)
        assert counts(core) == (number, 1, 0)
    core.pass_time(300_000)
    assert counts(core) == (3, 0, 1)
    assert core.waiting("q") == [b"B", b"C", b"D"]


def test_r31_in_runs_of_their_own_the_earlier_one_stays():
    core = ring(2)
    core.send("q", b"P")
    core.send("q", b"e", delay=100)
    core.send("q", b"l", delay=500)
    core.pass_time(100)
    assert core.waiting("q") == [b"e", b"P"]
    core.pass_time(400)
    assert core.waiting("q") == [b"e", b"P"]
    assert counts(core) == (2, 0, 1)


@pytest.mark.parametrize("durable", [False, True])
def test_q14_q15_nothing_comes_before_its_time(durable):
    core = Core()
    taker = core.consume("q")
    core.send("q", b"later", delay=6000, durable=durable)
    assert counts(core) == (1, 1, 0)
    assert core.gateway.addresses["q"].size_bytes > 0
    core.pass_time(5999)
    assert taker.got == []
    core.pass_time(1)
    assert taker.bodies() == [b"later"]
    assert counts(core) == (1, 0, 0)
    taker.ack()
    assert core.gateway.addresses["q"].size_bytes == 0


def test_due_order_with_ties_in_sending_order():
    core = Core()
    for body, delay in ((b"c", 30), (b"a1", 10), (b"b", 20), (b"a2", 10)):
        core.send("q", body, delay=delay)
    core.send("q", b"now")
    core.pass_time(100)
    assert core.waiting("q") == [b"a1", b"a2", b"b", b"c", b"now"]


def test_a_priority_comes_before_a_time():
    core = Core()
    core.send("q", b"low", delay=10, priority=4)
    core.send("q", b"high", delay=20, priority=9)
    core.send("q", b"now", priority=9)
    core.pass_time(30)
    assert core.waiting("q") == [b"high", b"now", b"low"]


def test_a_time_in_the_past_is_now():
    core = Core()
    core.send("q", b"1", delay=0)
    core.send("q", b"2", delay=-5)
    assert counts(core) == (2, 0, 0)
    assert core.waiting("q") == [b"1", b"2"]


@pytest.mark.parametrize("clean", [False, True])
def test_times_survive_a_restart(clean):
    core = Core()
    for body, delay in ((b"late", 5000), (b"soon", 1000)):
        core.send("q", body, delay=delay)
    core.send("q", b"now")
    core.sync()
    core.restart(clean=clean)
    assert counts(core) == (3, 2, 0)
    assert core.waiting("q") == [b"now"]
    taker = core.consume("q")
    core.pass_time(1000)
    assert taker.bodies() == [b"now", b"soon"]
    core.pass_time(4000)
    assert taker.bodies() == [b"now", b"soon", b"late"]


def test_what_came_due_while_it_was_down_is_there_at_the_start():
    core = ring(2)
    for body, delay in ((b"2", 200), (b"1", 100), (b"3", 300)):
        core.send("q", body, delay=delay)
    core.sync()
    core.now += 1000
    core.restart()
    assert core.waiting("q") == [b"2", b"3"]
    assert counts(core) == (2, 0, 1)


def test_what_expires_before_its_time_goes_with_the_scan():
    core = Core(entry("q", expiry_address="late"))
    core.administration.create_queue("late", "late", ANYCAST)
    core.send("q", b"x", delay=1000, ttl=400)
    core.send("q", b"y", delay=1000, ttl=4000)
    core.pass_time(400)
    assert core.gateway.expire() == 1
    assert counts(core) == (1, 1, 0)
    assert core.queue("q").expired == 1
    assert core.waiting("late") == [b"x"]
    core.pass_time(600)
    assert core.waiting("q") == [b"y"]


def test_what_is_due_too_late_never_reaches_a_consumer():
    core = Core(entry("q", expiry_address="late"))
    core.administration.create_queue("late", "late", ANYCAST)
    taker = core.consume("q")
    core.send("q", b"x", delay=1000, ttl=1000)
    core.pass_time(1000)
    assert taker.got == []
    assert core.waiting("late") == [b"x"]
    (message,) = core.queue("late").browse(0, 1)
    assert not message.flags & EXPIRES
    core.check()


def test_each_subscription_has_it_at_the_same_time():
    core = Core()
    for name, size in (("a", -1), ("b", 1)):
        core.administration.create_queue(name, "t", MULTICAST, ring_size=size)
    core.send("t", b"1", b"2", delay=50, together=True)
    core.send("t", b"now")
    core.pass_time(50)
    assert core.waiting("a") == [b"1", b"2", b"now"]
    assert core.waiting("b") == [b"now"]
    core.check()


def test_a_purge_takes_what_is_scheduled_too():
    core = Core()
    core.send("q", b"1", delay=50)
    core.send("q", b"2")
    assert core.queue("q").purge() == 2
    assert counts(core) == (0, 0, 0)
    core.pass_time(100)
    assert core.waiting("q") == []


def test_an_earlier_one_is_not_missed_behind_a_purge():
    core = Core()
    core.send("q", b"1", delay=50)
    core.queue("q").purge()
    core.send("q", b"2", delay=80)
    taker = core.consume("q")
    core.pass_time(80)
    assert taker.bodies() == [b"2"]


@pytest.mark.parametrize("delay", [None, 100])
def test_a_commit_keeps_times(delay):
    core = Core()
    route, _ = core.producer("q")
    work = core.gateway.begin()
    due = 0 if delay is None else core.now + delay
    for body in (b"1", b"2"):
        work.send(route, Run((b"destination:q\n\n" + body,), 0x34, due=due))
    work.send(route, Run((b"destination:q\n\nnow",), 0x34))
    work.commit()
    core.sync()
    assert counts(core)[:2] == (3, 2 if delay else 0)
    core.pass_time(100)
    expected = [b"1", b"2", b"now"]
    assert core.waiting("q") == expected


def test_a_full_address_counts_what_is_scheduled():
    core = Core(entry("q", max_size_messages=2, address_full_policy=FullPolicy.FAIL))
    assert core.send("q", b"1", b"2", delay=50) == [True, True]
    assert core.send("q", b"3", delay=50) == [False]
    assert core.send("q", b"4") == [False]


def test_a_commit_of_scheduled_ones_does_not_count_on_the_ring_for_room():
    limits = entry("q", max_size_messages=4, address_full_policy=FullPolicy.FAIL)
    core = ring(2, limits)
    core.send("q", b"1", b"2")
    route, _ = core.producer("q")
    work = core.gateway.begin()
    for _ in range(3):
        work.send(route, Run((b"destination:q\n\nx",), 0x34, due=core.now + 50))
    with pytest.raises(Exception, match="max-size-messages is 4"):
        work.commit()
    assert counts(core) == (2, 0, 0)


def test_thousands_come_in_order():
    core = Core()
    taker = core.consume("q", room=20_000)
    delays = [(number * 7919) % 997 for number in range(3000)]
    for number, delay in enumerate(delays):
        core.send("q", b"%d" % number, delay=delay + 1, durable=False)
    core.pass_time(1000)
    expected = sorted(range(3000), key=lambda n: (delays[n], n))
    assert [int(body_of(m)) for m in taker.got] == expected
