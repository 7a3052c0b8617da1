"""Ring queues: the scenario rows R1 to R34 that this version has, by their numbers.

Not here: R7, R8, R31 (scheduled messages), R14, R15 (non-destructive), R28 (last value), R32
(purge-on-no-consumers).
"""

from __future__ import annotations

import pytest

from gateway.addresses.settings import FullPolicy, RingVictim
from gateway.model.errors import Code, RefusedError
from gateway.model.run import Run
from tests.broker.core import ANYCAST, MULTICAST, Core, body_of, entry


def ring(size: int, *entries, queue: str = "q", **attributes) -> Core:
    """A core with a ring queue `queue` on an address of its name."""
    core = Core(*entries)
    core.administration.create_queue(queue, queue, ANYCAST, ring_size=size, **attributes)
    return core


def counts(core: Core) -> tuple[int, int, int]:
    """Return (message count, delivering, replaced) of q, after all has been checked."""
    core.check()
    return core.figures("q")


def test_r1_the_newer_one_replaces_the_older():
    core = ring(1)
    for pair in range(250):
        core.send("q", b"h0", b"h1")
        assert counts(core) == (1, 0, pair + 1)
        taker = core.consume("q")
        assert taker.bodies() == [b"h1"]
        taker.ack()
        taker.leave()
    assert core.queue("q").added == 500


@pytest.mark.parametrize("together", [False, True])
def test_r2_the_newest_stay_in_order(together):
    core = ring(3)
    core.send("q", b"A", b"B", b"C", b"D", together=together)
    assert core.waiting("q") == [b"B", b"C", b"D"]
    assert counts(core) == (3, 0, 1)


def test_r3_what_a_transaction_acknowledged_is_in_delivery_and_safe():
    core = ring(1)
    core.send("q", b"h0")
    taker = core.consume("q", room=1)
    work = core.gateway.begin()
    work.acknowledge(taker.hold, taker.got)
    core.send("q", b"h1")
    assert counts(core) == (2, 1, 0)
    work.commit()
    assert counts(core) == (1, 0, 0)


def test_r4_rolled_back_it_meets_a_full_ring():
    core = ring(1)
    core.send("q", b"h0")
    taker = core.consume("q", room=1)
    work = core.gateway.begin()
    work.acknowledge(taker.hold, taker.got)
    core.send("q", b"h1")
    work.rollback()
    taker.got.clear()
    taker.leave()
    assert counts(core) == (1, 0, 1)
    again = core.consume("q")
    assert again.bodies() == [b"h1"]
    work = core.gateway.begin()
    work.acknowledge(again.hold, again.got)
    work.commit()
    assert core.queue("q").acknowledged == 1
    assert counts(core) == (0, 0, 1)


@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_r5_a_waiting_consumer_gets_what_the_ring_has_no_room_for(failed, together):
    core = ring(1)
    taker = core.consume("q", room=10)
    core.send("q", b"h0", b"h1", together=together)
    assert counts(core) == (2, 2, 0)
    taker.leave(failed=failed)
    assert counts(core) == (1, 0, 1)
    assert core.waiting("q") == [b"h1"]


@pytest.mark.parametrize("failed", [False, True])
def test_r6_in_delivery_counts_but_is_not_evicted(failed):
    core = ring(3)
    taker = core.consume("q", room=10)
    for number, body in enumerate([b"A", b"B", b"C", b"D"], 1):
        core.send("q", body)
        assert counts(core) == (number, number, 0)
    taker.leave(failed=failed)
    assert core.waiting("q") == [b"B", b"C", b"D"]
    assert counts(core) == (3, 0, 1)


def test_r9_the_default_is_of_the_matching_addresses():
    core = Core(entry("a.#", default_ring_size=100), entry("a.small.*", default_ring_size=2))
    core.send("a.q", b"x")
    core.send("a.small.q", b"1", b"2", b"3")
    core.consume("other")
    core.consume("a.topic", routing=MULTICAST, durable_name="c.sub")
    sizes = {name: core.queue(name).ring_size for name in core.gateway.queues}
    assert sizes == {"a.q": 100, "a.small.q": 2, "other": -1, "c.sub": 100}
    assert core.waiting("a.small.q") == [b"2", b"3"]


def consume_some(core: Core, amount: int) -> None:
    taker = core.consume("q", room=amount)
    assert len(taker.got) == amount
    taker.ack()
    taker.leave()


def test_r10_r11_r12_a_ring_that_is_changed_while_it_runs():
    core = ring(-1)
    core.send("q", *[b"%d" % i for i in range(100)])
    core.administration.update_queue("q", ring_size=10)
    assert counts(core) == (100, 0, 0)
    consume_some(core, 95)
    assert counts(core) == (5, 0, 0)
    core.send("q", *[b"a"] * 5)
    assert counts(core) == (10, 0, 0)
    for replaced in range(1, 6):
        core.send("q", b"b")
        assert counts(core) == (10, 0, replaced)
    # R11
    consume_some(core, 1)
    core.administration.update_queue("q", ring_size=5)
    consume_some(core, 4)
    assert counts(core) == (5, 0, 5)
    core.send("q", b"c")
    assert counts(core) == (5, 0, 6)
    # R12
    core.administration.update_queue("q", ring_size=10)
    core.send("q", *[b"d"] * 5)
    assert counts(core) == (10, 0, 6)
    core.send("q", b"e")
    assert counts(core) == (10, 0, 7)


@pytest.mark.parametrize("together", [False, True])
def test_r13_above_its_ring_a_send_evicts_one(together):
    core = ring(-1)
    core.send("q", *[b"%d" % i for i in range(9)])
    core.administration.update_queue("q", ring_size=5)
    core.send("q", b"a", b"b", b"c", together=together)
    assert counts(core) == (9, 0, 3)
    assert core.waiting("q")[0] == b"3"
    assert core.queue("q").trim() == 4
    assert counts(core) == (5, 0, 7)


def test_r16_many_producers_leave_exactly_the_ring():
    core = ring(25)
    routes = [core.producer("q")[0] for _ in range(25)]
    for number in range(25):
        for who, route in enumerate(routes):
            route.send(Run([b"\n%d.%d" % (who, number)], 4))
        core.turn()
    assert counts(core) == (25, 0, 600)


@pytest.mark.parametrize(
    ("priorities", "oldest", "artemis"),
    [
        ((4, 9, 4), [b"B", b"C"], [b"A", b"C"]),
        ((4, 4, 9), [b"C", b"B"], [b"A", b"B"]),
        ((0, 4, 4), [b"B", b"C"], [b"C", b"A"]),
    ],
)
def test_r17_the_victim_is_the_oldest_or_artemis_choice(priorities, oldest, artemis):
    for victim, left in ((RingVictim.OLDEST, oldest), (RingVictim.ARTEMIS, artemis)):
        core = Core(entry("q", default_ring_size=2, ring_victim=victim))
        for body, priority in zip([b"A", b"B", b"C"], priorities, strict=True):
            core.send("q", body, priority=priority)
        assert core.waiting("q") == left, victim
        assert counts(core) == (2, 0, 1)


@pytest.mark.parametrize("failed", [False, True])
def test_r18_released_one_by_one_the_ring_holds(failed):
    core = ring(2)
    taker = core.consume("q", room=3)
    core.send("q", b"A", b"B", b"C")
    assert counts(core) == (3, 3, 0)
    taker.release(failed=failed)
    assert counts(core) == (2, 0, 1)
    assert core.waiting("q") == [b"B", b"C"]


def test_r19_after_kill_9_the_ring_is_there_and_its_count_is_new():
    core = ring(2)
    core.send("q", b"A", b"B", b"C")
    core.sync()
    assert counts(core) == (2, 0, 1)
    core.restart()
    assert core.waiting("q") == [b"B", b"C"]
    assert counts(core) == (2, 0, 0)
    assert core.queue("q").added == 2
    core.send("q", b"D")
    assert core.waiting("q") == [b"C", b"D"]


@pytest.mark.parametrize("full", [False, True])
def test_r20_the_last_attempt_comes_before_the_ring(full):
    core = ring(2, entry("#", max_delivery_attempts=1, dead_letter_address="dead"))
    taker = core.consume("q", room=2)
    core.send("q", b"A", b"B")
    if full:
        core.send("q", b"C", b"D")
    work = core.gateway.begin()
    work.acknowledge(taker.hold, taker.got)
    work.rollback()
    assert counts(core) == (2 if full else 0, 0, 0)
    assert core.queue("q").killed == 2
    assert sorted(core.waiting("dead")) == [b"A", b"B"]


def test_r21_a_paused_ring_evicts():
    core = ring(3)
    core.administration.update_queue("q", paused=True)
    core.consume("q")
    core.send("q", *[b"%d" % i for i in range(5)])
    assert counts(core) == (3, 0, 2)


def test_r22_a_consumer_that_takes_nothing_does_not_count():
    core = ring(2)
    core.consume("q", room=0)
    core.send("q", *[b"%d" % i for i in range(4)])
    assert counts(core) == (2, 0, 2)


@pytest.mark.parametrize("size", [0, -5])
def test_r23_a_ring_of_nothing_is_refused(size):
    core = ring(3)
    for ask in (
        lambda: core.administration.create_queue("r", "r", ANYCAST, ring_size=size),
        lambda: core.administration.update_queue("q", ring_size=size),
    ):
        with pytest.raises(RefusedError) as refused:
            ask()
        assert refused.value.refusal.code is Code.BAD_VALUE
        assert "ringSize" in refused.value.refusal.text
    assert core.queue("q").ring_size == 3
    assert "r" not in core.gateway.queues


def test_r24_a_declared_queue_without_a_ring_has_the_default():
    core = Core(entry("#", default_ring_size=3))
    core.administration.create_queue("q", "q", ANYCAST)
    core.send("q", *[b"%d" % i for i in range(5)])
    assert counts(core) == (3, 0, 2)
    core.administration.create_queue("r", "r", ANYCAST, ring_size=-1)
    core.send("r", *[b"%d" % i for i in range(5)])
    assert core.figures("r") == (5, 0, 0)


def test_r25_what_comes_back_to_a_full_ring_is_the_victim():
    core = ring(2)
    taker = core.consume("q", room=2)
    core.send("q", b"A", b"B", b"C", b"D", b"E")
    assert counts(core) == (4, 2, 1)
    taker.leave()
    assert core.waiting("q") == [b"D", b"E"]
    assert counts(core) == (2, 0, 3)


@pytest.mark.parametrize("apart", [False, True])
def test_r26_a_rollback_keeps_the_newest(apart):
    core = ring(3)
    taker = core.consume("q", room=3)
    core.send("q", b"A", b"B", b"C")
    work = core.gateway.begin()
    for part in [[m] for m in taker.got] if apart else [taker.got]:
        work.acknowledge(taker.hold, part)
    core.send("q", b"D")
    work.rollback()
    assert core.waiting("q") == [b"B", b"C", b"D"]
    assert counts(core) == (3, 0, 1)


def test_r26_a_rollback_over_two_consumers_keeps_the_newest():
    core = ring(2)
    one = core.consume("q", room=2)
    other = core.consume("q", room=2)
    core.send("q", b"A", b"B", b"C", b"D")
    work = core.gateway.begin()
    for taker in (one, other):
        work.acknowledge(taker.hold, taker.got)
    work.rollback()
    assert core.waiting("q") == [b"C", b"D"]
    assert counts(core) == (2, 0, 2)


def test_r27_each_subscription_has_its_own_ring():
    core = Core()
    for name, size in (("two", 2), ("four", 4), ("all", None)):
        core.administration.create_queue(name, "t", MULTICAST, ring_size=size)
    core.send("t", *[b"%d" % i for i in range(5)])
    core.check()
    assert [core.figures(n)[0] for n in ("two", "four", "all")] == [2, 4, 5]
    assert core.gateway.addresses["t"].messages == 5


POLICIES = [FullPolicy.PAGE, FullPolicy.BLOCK, FullPolicy.FAIL, FullPolicy.DROP]


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
def test_r29_r33_a_ring_below_the_limit_never_reaches_it(policy, together):
    limits = entry("#", max_size_messages=5, address_full_policy=policy)
    core = ring(3, limits)
    route, owner = core.producer("q")
    taken = core.send("q", *[b"%d" % i for i in range(100)], together=together)
    assert taken == [True] * 100
    assert counts(core) == (3, 0, 97)
    assert route.blocked() is None
    assert owner.told == []
    assert core.gateway.addresses["q"].dropped == 0


@pytest.mark.parametrize("clean", [False, True])
def test_r30_a_lowered_ring_is_applied_at_start(clean):
    core = ring(-1)
    core.send("q", *[b"%d" % i for i in range(9)])
    core.administration.update_queue("q", ring_size=4)
    core.sync()
    core.restart(clean=clean)
    assert core.waiting("q") == [b"5", b"6", b"7", b"8"]
    assert counts(core)[0] == 4
    core.sync()
    core.restart()
    assert core.waiting("q") == [b"5", b"6", b"7", b"8"]
    assert counts(core) == (4, 0, 0)


@pytest.mark.parametrize("victim", list(RingVictim))
def test_r30_with_priorities(victim):
    core = Core(entry("q", ring_victim=victim))
    for body, priority in ((b"1", 4), (b"2", 9), (b"3", 4), (b"4", 1)):
        core.send("q", body, priority=priority)
    core.administration.update_queue("q", ring_size=2)
    core.sync()
    core.restart()
    assert core.waiting("q") == [b"3", b"4"]


@pytest.mark.parametrize(("failed", "attempts"), [(False, 0), (True, 1)])
def test_r34_a_cut_connection_counts_and_a_detach_does_not(failed, attempts):
    core = ring(5)
    core.send("q", b"A")
    core.consume("q").leave(failed=failed)
    (message,) = core.consume("q").got
    assert message.delivery_count == attempts
    assert body_of(message) == b"A"
