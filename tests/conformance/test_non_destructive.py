"""Non-destructive queues over the core: rows R14 and R15, and what meets them."""

from __future__ import annotations

import pytest

from gateway.model.address import parse_destination
from gateway.model.message import ACQUIRED, DURABLE
from gateway.model.run import Run
from gateway.queues.queue import Gone
from tests.broker.core import ANYCAST, MULTICAST, Core, Owner, body_of, entry, flags_of
from tests.conformance.test_last_value import send as send_values
from tests.conformance.test_last_value import waiting


def kept(*entries, ring_size: int | None = None, **attributes) -> Core:
    core = Core(*entries)
    attributes = {"non_destructive": True, **attributes}
    core.administration.create_queue("q", "q", ANYCAST, ring_size=ring_size, attributes=attributes)
    core.sync()
    return core


def send(core: Core, *bodies: bytes, **how) -> None:
    core.send("q", *bodies, **how)
    core.sync()
    core.check()


# ---- the rows


def test_r14_a_non_destructive_ring_shows_its_newest_message():
    core = kept(ring_size=1)
    send(core, b"h0")
    for number in range(1, 6):
        taker = core.consume("q", room=1)
        assert taker.bodies() == [b"h%d" % (number - 1)]
        taker.ack()
        taker.leave()
        assert core.figures("q") == (1, 0, number - 1)
        send(core, b"h%d" % number)
    assert core.figures("q") == (1, 0, 5)
    assert core.queue("q").acknowledged == 0
    assert core.consume("q").bodies() == [b"h5"]


def test_r15_in_delivery_on_a_non_destructive_ring_counts_once():
    core = kept(ring_size=1)
    send(core, b"h0")
    taker = core.consume("q", room=1)
    assert core.figures("q") == (1, 1, 0)
    taker.leave()
    assert core.figures("q") == (1, 0, 0)
    taker = core.consume("q", room=1)
    send(core, b"h1")
    assert core.waiting("q") == [b"h1"]
    assert core.figures("q") == (1, 0, 1)
    taker.ack()
    core.check()
    assert core.figures("q") == (1, 0, 1)


# ---- consumers


def test_each_consumer_sees_all_from_the_start_and_what_arrives():
    core = kept()
    send(core, b"1", b"2")
    one, other = core.consume("q"), core.consume("q")
    send(core, b"3")
    late = core.consume("q")
    for taker in (one, other, late):
        assert taker.bodies() == [b"1", b"2", b"3"]
        taker.ack()
        core.turn()
        assert taker.bodies() == []
    assert core.figures("q") == (3, 0, 0)
    core.check()


def test_what_several_hold_is_in_delivery_once():
    core = kept()
    send(core, b"1", b"2")
    one, other = core.consume("q", room=2), core.consume("q", room=1)
    assert core.figures("q") == (2, 2, 0)
    one.ack()
    assert core.figures("q") == (2, 1, 0)
    other.leave()
    assert core.figures("q") == (2, 0, 0)
    core.check()


def test_priorities_scheduled_and_expired_messages():
    core = kept(entry("#", expiry_address=""))
    send(core, b"4")
    taker = core.consume("q")
    send(core, b"later", delay=10)
    send(core, b"9", priority=9)
    send(core, b"gone", ttl=5)
    assert taker.bodies() == [b"4", b"9", b"gone"]
    core.pass_time(10)
    assert taker.bodies() == [b"4", b"9", b"gone", b"later"]
    assert core.consume("q").bodies() == [b"9", b"later", b"4"]
    assert (core.queue("q").expired, core.queue("q").message_count) == (1, 3)
    taker.ack()
    core.check()


def test_nothing_is_shown_before_it_is_on_disk():
    core = kept()
    taker = core.consume("q")
    core.send("q", b"1")
    core.send("q", b"2", durable=False)
    assert taker.bodies() == []
    core.sync()
    assert taker.bodies() == [b"1", b"2"]
    core.send("q", b"3", delay=5)
    core.pass_time(5)
    assert taker.bodies() == [b"1", b"2"]
    core.sync()
    assert taker.bodies() == [b"1", b"2", b"3"]
    core.send("q", b"4", durable=False)
    assert taker.bodies()[-1] == b"4"
    core.check()


def test_credit_is_kept_to_and_dispatch_is_fair():
    core = kept()
    send(core, *[b"%d" % i for i in range(300)], together=True)
    takers = [core.consume("q", room=0) for _ in range(3)]
    for taker in takers:
        taker.left = 300
    core.queue("q").dispatch(core.now, 100)
    assert 33 <= len(takers[0].got) < 100
    core.gateway.touch(core.queue("q"))
    core.turn()
    assert [taker.bodies() for taker in takers] == [[b"%d" % i for i in range(300)]] * 3


def test_selectors_choose_what_is_shown():
    core = kept()
    send(core, b"1", priority=4)
    send(core, b"2", priority=7)
    chosen = core.consume("q", selector="JMSPriority > 5")
    everything = core.consume("q", room=1000)
    send(core, *[b"x"] * 600, priority=1, together=True)
    send(core, b"3", priority=8)
    assert chosen.bodies() == [b"2", b"3"]
    assert sorted(everything.bodies())[:3] == [b"1", b"2", b"3"]


def test_no_local_and_exclusive():
    core = kept()
    mine = core.consume("q", no_local="me")
    route = core.gateway.open_producer(parse_destination("q"), None, Owner(), origin="me")
    route.send(Run([b"destination:q\n\nown"], flags_of()))
    core.sync()
    send(core, b"other")
    assert mine.bodies() == [b"other"]
    core = kept(exclusive=True)
    first, second = core.consume("q"), core.consume("q")
    send(core, b"1")
    assert (first.bodies(), second.bodies()) == ([b"1"], [])
    first.leave()
    core.turn()
    assert second.bodies() == [b"1"]


def test_a_paused_queue_shows_nothing_and_then_all():
    core = kept()
    core.administration.update_queue("q", paused=True)
    taker = core.consume("q")
    send(core, b"1")
    assert taker.bodies() == []
    core.administration.update_queue("q", paused=False)
    core.sync()
    assert taker.bodies() == [b"1"]


# ---- settling


def test_what_is_given_back_comes_again_to_who_gave_it_back():
    core = kept()
    send(core, b"1", b"2", b"3")
    taker, other = core.consume("q", room=3), core.consume("q", room=3)
    taker.release(2)
    taker.take(5)
    core.turn()
    assert taker.bodies() == [b"3", b"1", b"2"]
    assert other.bodies() == [b"1", b"2", b"3"]
    core.check()


def test_attempts_count_for_the_consumer_and_end_in_a_copy_of_a_dead_letter():
    core = kept(entry("#", max_delivery_attempts=3, dead_letter_address="dead"))
    core.administration.create_queue("dead", "dead", ANYCAST)
    send(core, b"1")
    taker, other = core.consume("q", room=1), core.consume("q", room=1)
    for attempt in range(3):
        assert [m.delivery_count for m in taker.got] == [attempt]
        taker.release(failed=True)
        taker.take(1)
        core.turn()
    assert taker.got == []
    assert (core.waiting("dead"), core.waiting("q")) == ([b"1"], [b"1"])
    assert [m.delivery_count for m in other.got] == [0]
    other.reject()
    assert core.waiting("dead") == [b"1", b"1"]
    assert (core.queue("q").killed, core.queue("q").message_count) == (0, 1)
    core.check()
    core.sync()
    core.restart()
    assert (core.waiting("dead"), core.waiting("q")) == ([b"1", b"1"], [b"1"])


def test_undeliverable_here_is_not_shown_there_again():
    core = kept()
    send(core, b"1", b"2")
    taker = core.consume("q", room=2)
    taker.release(1, undeliverable_here=True)
    taker.take(5)
    core.turn()
    assert taker.bodies() == [b"2"]


def test_in_a_transaction_nothing_is_removed_either():
    core = kept()
    send(core, b"1")
    taker = core.consume("q", room=1)
    work = core.gateway.begin()
    work.acknowledge(taker.hold, taker.got)
    work.rollback()
    taker.got = []
    taker.take(1)
    core.turn()
    assert taker.bodies() == [b"1"]
    work = core.gateway.begin()
    work.acknowledge(taker.hold, taker.got)
    work.commit()
    assert core.figures("q") == (1, 0, 0)
    core.check()


# ---- what removes


@pytest.mark.parametrize("how", ["purge", "take_out", "expire", "trim", "delete"])
def test_operators_and_time_remove_what_is_in_delivery_as_well(how):
    core = kept(entry("#", expiry_address=""))
    send(core, b"1", b"2", ttl=5)
    taker = core.consume("q")
    queue = core.queue("q")
    assert core.figures("q") == (2, 2, 0)
    if how == "purge":
        assert queue.purge() == 2
    elif how == "take_out":
        assert len(queue.take_out({1, 2}, Gone.REMOVED)) == 2
    elif how == "expire":
        core.now += 5
        assert core.gateway.expire() == 2
    elif how == "trim":
        queue.ring_size = 1
        assert queue.trim() == 1
    else:
        core.administration.delete_queue("q", remove_consumers=True)
        assert taker.refusals
    assert queue.message_count == queue.delivering == (how == "trim")
    core.check()
    taker.ack()
    queue.check_invariants()
    assert queue.message_count == (how == "trim")
    assert core.gateway.load.memory == sum(a.size_bytes for a in core.gateway.addresses.values())


def test_purged_with_the_last_consumer():
    core = kept(purge_on_no_consumers=True)
    taker = core.consume("q")
    send(core, b"1")
    taker.ack()
    assert core.figures("q") == (1, 0, 0)
    taker.leave()
    assert core.figures("q") == (0, 0, 0)
    core.check()


def test_durable_ones_stay_over_restarts_though_acknowledged():
    core = kept()
    send(core, b"1", b"2")
    core.consume("q").ack()
    core.sync()
    core.restart()
    assert core.waiting("q") == [b"1", b"2"]
    assert all(m.flags & DURABLE for m in core.queue("q").holdings())
    taker = core.consume("q")
    assert [body_of(m) for m in taker.got] == [b"1", b"2"]


def test_a_ring_of_last_values_that_stays():
    """A stock ticker: each reader has the last price of each share, and then what changes."""
    core = kept(last_value=True)
    send_values(core, "a1", "b1", "a2")
    early = core.consume("q")
    assert early.bodies() == [b"b1", b"a2"]
    send_values(core, "b2", "c1")
    late = core.consume("q")
    assert early.bodies() == [b"b1", b"a2", b"b2", b"c1"]
    assert late.bodies() == [b"a2", b"b2", b"c1"]
    assert core.figures("q") == (3, 3, 2)
    early.ack()
    early.leave()
    late.release()
    late.take(10)
    send_values(core, "a3")
    core.turn()
    assert late.bodies() == [b"b2", b"c1", b"a3"]
    core.check()


def test_subscriptions_may_be_non_destructive():
    core = Core(entry("t", default_non_destructive=True))
    taker = core.consume("t", routing=MULTICAST)
    core.send("t", b"1", routing=MULTICAST)
    taker.ack()
    assert core.gateway.queues[taker.hold.queue_name].message_count == 1
    taker.leave()
    core.check()
    assert core.gateway.load.messages == 0


# ---- pages


def paged(**attributes) -> Core:
    return kept(entry("#", max_size_messages=2, page_size_bytes=2000), **attributes)


def test_what_is_on_pages_is_shown_from_there_to_each_consumer():
    core = paged()
    expected = [b"%d" % i for i in range(40)]
    core.send("q", *expected[:30])
    core.sync()
    early = core.consume("q", room=12)
    assert early.bodies() == expected[:12]
    assert core.queue("q").paged_count == 28
    core.send("q", *expected[30:])
    core.sync()
    late = core.consume("q", room=100)
    early.take(100)
    core.turn()
    for taker in (early, late):
        assert taker.bodies() == expected
    assert core.figures("q") == (40, 40, 0)
    core.check()
    for taker in (early, late):
        taker.ack()
    assert core.figures("q") == (40, 0, 0)
    core.sync()
    core.restart()
    assert core.consume("q").bodies() == expected
    core.check()


def test_given_back_and_scheduled_ones_on_pages_come_in_their_time():
    core = paged()
    core.send("q", b"1", b"2", b"3")
    core.send("q", b"later", delay=20)
    core.send("q", b"5")
    core.sync()
    taker = core.consume("q")
    assert taker.bodies() == [b"1", b"2", b"3", b"5"]
    taker.release(3)
    core.turn()
    assert taker.bodies() == [b"5", b"1", b"2", b"3"]
    core.pass_time(20)
    assert taker.bodies() == [b"5", b"1", b"2", b"3", b"later"]
    core.check()


def test_purging_ends_page_mode_though_consumers_hold_what_was_there():
    core = paged()
    core.send("q", *[b"%d" % i for i in range(10)])
    core.sync()
    taker = core.consume("q")
    assert len(taker.got) == 10
    assert core.queue("q").purge() == 10
    core.sync()
    assert core.gateway.addresses["q"].paging is None
    taker.ack()
    send(core, b"new")
    assert taker.bodies() == [b"new"]
    core.check()


def test_a_ring_reads_its_pages_and_nothing_is_shown_twice():
    core = paged(ring_size=4)
    core.send("q", b"0", b"1", b"2")
    taker = core.consume("q")
    core.send("q", *[b"%d" % i for i in range(3, 20)])
    core.sync()
    core.sync()
    assert core.waiting("q") == [b"16", b"17", b"18", b"19"]
    assert taker.bodies() == sorted(set(taker.bodies()), key=int)
    assert taker.bodies()[-4:] == [b"16", b"17", b"18", b"19"]
    core.check()


def test_last_values_on_pages_are_shown_once_each():
    core = paged(last_value=True)
    taker = core.consume("q", room=1000)
    for number in range(20):
        send_values(core, f"a{number}", f"b{number}")
        core.sync()
    core.sync()
    assert waiting(core) == ["a19", "b19"]
    assert len(taker.bodies()) == len(set(taker.bodies()))
    assert taker.bodies()[-2:] == [b"a19", b"b19"]
    core.check()


def test_what_one_gives_back_was_acquired_by_nobody():
    core = kept()
    one = core.consume("q")
    send(core, b"1")
    one.release()
    other = core.consume("q")
    assert not other.got[0].flags & ACQUIRED
    core.check()
