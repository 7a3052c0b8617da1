"""Retroactive addresses: rows A22 and A23, restarts, filters, and what nobody else sees of it."""

from __future__ import annotations

import pytest

from gateway.broker.routing.retro import home_of, ring_of
from gateway.model.errors import RefusedError
from tests.broker.core import ANYCAST, MULTICAST, Core, entry
from tests.conformance.clients import Stomp, bodies


def keeping(count: int, *entries) -> Core:
    return Core(entry("t", retroactive_message_count=count), *entries)


def numbers(start: int, stop: int) -> list[bytes]:
    return [b"%d" % n for n in range(start, stop)]


@pytest.mark.parametrize("kind", [ANYCAST, MULTICAST])
def test_a22_each_new_queue_begins_with_the_last_ones(kind):
    core = keeping(15)
    core.directory.make_address("t", frozenset({kind}))
    ring = ring_of("t", kind)
    for turn in range(25):
        core.send("t", *numbers(15 * turn, 15 * turn + 15), routing=kind)
        name = f"late{turn}"
        core.administration.create_queue(name, "t", kind)
        assert core.waiting(name) == numbers(15 * turn, 15 * turn + 15)
        assert core.figures(ring) == (15, 0, 15 * turn)
        core.check()
        core.directory.drop_queue(core.queue(name))
        core.turn()


def test_a23_a_new_subscriber_gets_the_last_ten_only():
    core = keeping(10)
    writer, reader = Stomp(core), Stomp(core)
    writer.send("/topic/t", *[str(n) for n in range(20)])
    assert bodies(reader.subscribe("/topic/t")) == [str(n) for n in range(10, 20)]
    writer.send("/topic/t", "20")
    assert bodies(reader.more()) == ["20"]


def test_a23_where_topics_wait_for_the_disk():
    core = Core(entry("t", retroactive_message_count=3), serialized=(MULTICAST,))
    core.send("t", *numbers(0, 3), routing=MULTICAST)
    core.sync()
    core.restart()
    core.send("t", *numbers(3, 5), routing=MULTICAST)
    taker = core.consume("t", routing=MULTICAST)
    core.sync()
    assert taker.bodies() == numbers(2, 5)
    core.check()


def test_a23_a_durable_subscription_gets_them_once():
    core = keeping(3)
    core.send("t", *numbers(0, 5), routing=MULTICAST)
    taker = core.consume("t", routing=MULTICAST, durable_name="sub")
    assert taker.bodies() == numbers(2, 5)
    taker.ack()
    taker.leave()
    assert core.consume("t", routing=MULTICAST, durable_name="sub").bodies() == []


@pytest.mark.parametrize("clean", [False, True])
def test_the_last_ones_are_there_after_a_restart(clean):
    core = keeping(3)
    core.send("t", *numbers(0, 5), routing=MULTICAST)
    core.sync()
    core.restart(clean=clean)
    core.send("t", b"5", routing=MULTICAST)
    core.administration.create_queue("late", "t", MULTICAST)
    assert core.waiting("late") == numbers(3, 6)
    core.sync()
    core.restart(clean=clean)
    assert core.waiting("late") == numbers(3, 6)
    core.check()


def test_a_queue_is_durable_with_what_it_begins_with():
    core = keeping(3)
    core.send("t", *numbers(0, 3), routing=MULTICAST)
    core.sync()
    core.administration.create_queue("late", "t", MULTICAST)
    late = core.queue("late").queue_id
    core.sync()
    for batches in range(len(core.store.batches) + 1):
        _, held, _ = core.store.kept(batches)
        assert len(held.get(late, {})) in (0, 3)


def test_filters_types_and_order():
    core = keeping(10)
    core.directory.make_address("t", frozenset({ANYCAST, MULTICAST}))
    for n, priority in enumerate((4, 9, 1, 9)):
        core.send("t", b"%d" % n, priority=priority, routing=MULTICAST)
    core.administration.create_queue("s", "t", MULTICAST, selector="JMSPriority = 9")
    assert core.waiting("s") == [b"1", b"3"]
    core.administration.create_queue("q", "t", ANYCAST)
    assert core.waiting("q") == []  # none of them was for a queue
    core.send("t", b"4")
    core.administration.create_queue("q2", "t", ANYCAST)
    core.administration.create_queue("s2", "t", MULTICAST)
    assert core.waiting("q2") == [b"4"]
    assert sorted(core.waiting("s2")) == numbers(0, 5)


def test_what_was_diverted_away_was_not_sent_here():
    from gateway.model.definitions import DivertDefinition

    core = keeping(5)
    taken = DivertDefinition(name="d", address="t", forwarding=("b",), exclusive=True)
    core.gateway.branches.create(taken)
    core.send("t", b"1", routing=MULTICAST)
    core.gateway.branches.delete("d")
    core.send("t", b"2", routing=MULTICAST)
    core.administration.create_queue("late", "t", MULTICAST)
    assert core.waiting("late") == [b"2"]


def test_a_smaller_count_is_not_trimmed_and_none_forgets():
    core = keeping(5)
    core.send("t", *numbers(0, 5), routing=MULTICAST)
    core.sync()
    core.entries = (entry("t", retroactive_message_count=2),)
    core.restart()
    ring = core.queue(ring_of("t", MULTICAST))
    assert ring.ring_size == 2
    core.sync()
    core.entries = ()
    core.restart()
    assert ring_of("t", MULTICAST) not in core.gateway.queues
    assert home_of("t") not in core.gateway.addresses
    core.sync()
    core.entries = (entry("t", retroactive_message_count=2),)
    core.restart()
    core.administration.create_queue("late", "t", MULTICAST)
    assert core.waiting("late") == []
    core.check()


def test_expired_ones_go_nowhere_and_are_not_given():
    core = keeping(5, entry("#", expiry_address="late"))
    core.administration.create_queue("late", "late", ANYCAST)
    core.send("t", b"1", routing=MULTICAST, ttl=10)
    core.send("t", b"2", routing=MULTICAST)
    core.pass_time(20)
    core.gateway.expire()
    core.administration.create_queue("s", "t", MULTICAST)
    assert core.waiting("s") == [b"2"]
    assert core.waiting("late") == []
    assert core.gateway.figures.lost_dead_letters == 0


def test_scheduled_ones_are_given_when_they_were_due():
    core = keeping(5)
    core.send("t", b"later", routing=MULTICAST, delay=50)
    core.administration.create_queue("s1", "t", MULTICAST)
    assert core.queue("s1").message_count == 0
    core.pass_time(50)
    core.administration.create_queue("s2", "t", MULTICAST)
    assert core.waiting("s2") == [b"later"]


def test_limits_of_the_address_do_not_count_what_is_kept():
    core = Core(entry("#", max_size_messages=2), entry("t", retroactive_message_count=9))
    assert core.send("t", *numbers(0, 9), routing=MULTICAST) == [True] * 9
    assert core.queue(ring_of("t", MULTICAST)).message_count == 9
    core.check()


def test_an_address_that_goes_takes_it_along():
    core = keeping(5)
    core.send("t", b"1", routing=MULTICAST)
    core.administration.delete_address("t", force=True)
    assert core.gateway.load.messages == 0
    core.send("t", b"2", routing=MULTICAST)
    core.administration.create_queue("s", "t", MULTICAST)
    assert core.waiting("s") == [b"2"]
    core.sync()
    core.restart()
    assert core.waiting("s") == [b"2"]


def test_clients_cannot_name_it():
    core = keeping(5)
    core.send("t", b"1", routing=MULTICAST)
    for name in (home_of("t"), ring_of("t", MULTICAST), f"t::{ring_of('t', MULTICAST)}"):
        with pytest.raises(RefusedError):
            core.consume(name)


def test_a_wildcard_address_keeps_what_comes_by_it():
    core = Core(entry("t.#", retroactive_message_count=2))
    core.administration.create_queue("s1", "t.#", MULTICAST)
    core.send("t.a", *numbers(0, 3), routing=MULTICAST)
    core.administration.create_queue("s2", "t.#", MULTICAST)
    assert core.waiting("s2") == numbers(1, 3)
    core.check()


def test_a_tap_hears_of_nothing_twice():
    core = keeping(5)
    heard = []

    class Tap:
        stream_id = 1

        def record(self, run, now_ms) -> int:
            heard.extend(run.bodies)
            return 0

        def recorded(self, base, count, ticket) -> None: ...

    core.directory.make_address("t")
    core.gateway.addresses["t"].taps = (Tap(),)
    core.gateway.addresses["t"].version += 1
    core.send("t", b"1", routing=MULTICAST)
    core.administration.create_queue("s", "t", MULTICAST)
    assert core.waiting("s") == [b"1"]
    assert len(heard) == 1
