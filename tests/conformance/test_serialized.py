"""Rows of dispatch that waits for the disk: switches, transactions, order, rings, page mode."""

from __future__ import annotations

import pytest

from gateway.addresses.settings import FullPolicy
from gateway.model.definitions import DivertDefinition
from gateway.model.run import MixedRun, Run
from gateway.queues.queue import Gone
from tests.broker.core import ANYCAST, MULTICAST, Core, body_of, entry, flags_of, stomp
from tests.conformance.clients import Amqp, Stomp, bodies, took

QUEUES_OFF = {"serialized": (ANYCAST,)}
TOPICS_OFF = {"serialized": (MULTICAST,)}
STRICT = entry("q", strict_dispatch=True)


def serialized(how: str) -> Core:
    return Core(STRICT) if how == "strict" else Core(serialized=(ANYCAST,))


@pytest.mark.parametrize("how", ["strict", "switch"])
@pytest.mark.parametrize("together", [False, True])
def test_k15_nothing_durable_is_dispatched_before_it_is_on_disk(how, together):
    core = serialized(how)
    taker = core.consume("q")
    core.send("q", b"1", b"2", together=together)
    assert taker.got == []
    assert core.waiting("q") == [], "a browser sees it"
    assert core.figures("q") == (2, 0, 0)
    core.sync()
    assert taker.bodies() == [b"1", b"2"]
    core.check()


def test_k15_with_the_switch_on_dispatch_does_not_wait():
    core = Core()
    taker = core.consume("q")
    core.send("q", b"1")
    assert taker.bodies() == [b"1"]


def test_k15_a_stomp_sender_is_confirmed_and_its_reader_served_after_the_sync():
    core = serialized("switch")
    reader, client = Stomp(core), Stomp(core)
    reader.subscribe("q")
    session = client.session
    session.receive_data(b"SEND\ndestination:q\nreceipt:r\n\nm\0", 1.0)
    core.turn()
    assert session.data_to_send() == reader.session.data_to_send() == b""
    core.sync()
    assert b"RECEIPT" in session.data_to_send()
    assert b"MESSAGE" in reader.session.data_to_send()


def test_k15_an_amqp_reader_is_served_after_the_sync():
    core = serialized("switch")
    peer = Amqp.at(core)
    peer.receiver(credit=9)
    core.send("q", b"m")
    assert peer.engine.data_to_send() == b""
    core.sync()
    assert len(took(peer.more())) == 1


def test_k15_each_batch_lets_go_what_is_in_it_and_no_more():
    core = serialized("switch")
    taker = core.consume("q")
    core.send("q", b"1")
    core.send("q", b"2")
    *_, first, second = core.store.sync()
    core.gateway.durable_up_to(first)
    core.turn()
    assert taker.bodies() == [b"1"]
    core.gateway.durable_up_to(second)
    core.turn()
    assert taker.bodies() == [b"1", b"2"]


def test_k15_what_need_not_wait_keeps_its_place_behind_what_must():
    core = serialized("switch")
    taker = core.consume("q")
    core.send("q", b"free", durable=False)
    core.send("q", b"held")
    core.send("q", b"behind", durable=False)
    assert taker.bodies() == [b"free"]
    core.sync()
    assert taker.bodies() == [b"free", b"held", b"behind"]


def test_k15_nothing_is_cancelled_and_a_power_cut_loses_nothing_that_was_seen():
    core = serialized("switch")
    taker = core.consume("q")
    core.send("q", b"1")
    core.sync()
    core.send("q", b"2")
    assert taker.bodies() == [b"1"]
    core.restart()
    assert core.waiting("q") == [b"1"]


def test_k15_mixed_runs_and_schedules_wait_too():
    core = serialized("switch")
    taker = core.consume("q")
    route, _ = core.producer("q")
    kinds = [flags_of(durable=False), flags_of(), flags_of(9), flags_of(durable=False)]
    assert (
        route.send_mixed(MixedRun([stomp(b"%d" % n) for n in range(4)], kinds, [0] * 4)).ticket > 0
    )
    core.send("q", b"later", delay=5)
    core.now += 10
    core.turn()
    assert taker.bodies() == [b"0"]
    core.sync()
    core.pass_time(1)
    assert [m.body[-1:] for m in taker.got] == [b"0", b"2", b"r", b"1", b"3"]
    core.check()


def test_k15_topics_have_a_switch_of_their_own():
    core = Core(**TOPICS_OFF)
    core.administration.create_queue("s", "t", MULTICAST)
    durable = core.consume("t::s")
    passing = core.consume("t", routing=MULTICAST)
    queue = core.consume("q")
    core.send("t", b"m", routing=MULTICAST)
    core.send("q", b"m")
    assert (durable.bodies(), passing.bodies(), queue.bodies()) == ([], [b"m"], [b"m"])
    core.sync()
    assert durable.bodies() == [b"m"]


def test_k15_a_purge_takes_what_waits_for_the_disk_too():
    core = serialized("switch")
    core.send("q", b"1", b"2", b"3")
    queue = core.queue("q")
    assert [m.seq for m in queue.take_out({2}, Gone.REMOVED)] == [2]
    assert queue.purge() == 2
    core.sync()
    assert core.figures("q") == (0, 0, 0)
    core.check()
    core.restart()
    assert core.waiting("q") == []


def test_k15_a_ring_evicts_as_many_as_came_and_keeps_the_newest():
    core = serialized("switch")
    core.administration.create_queue("ring", "q", ANYCAST, ring_size=2)
    core.send("q::ring", b"1", b"2", b"3", b"4", b"5")
    core.sync()
    assert core.waiting("ring") == [b"4", b"5"]
    core.queue("ring").ring_size = 1
    core.send("q::ring", b"6")
    core.sync()
    assert core.waiting("ring") == [b"5", b"6"], "a lowered ring evicts one for each that comes"
    core.check()


def test_a_ring_whose_consumer_takes_what_was_stored_evicts_nothing():
    core = serialized("switch")
    core.administration.create_queue("ring", "q", ANYCAST, ring_size=1)
    taker = core.consume("q::ring", room=9)
    core.send("q::ring", b"1", b"2", b"3")
    core.sync()
    assert taker.bodies() == [b"1", b"2", b"3"]
    assert core.queue("ring").replaced == 0


@pytest.mark.parametrize("strict", [False, True])
def test_k6_a_commit_is_seen_whole_once_it_is_on_disk(strict):
    core = Core(entry("#", strict_dispatch=strict))
    taker, other = core.consume("q"), core.consume("p")
    core.send("q", b"0")
    core.sync()
    work = core.gateway.begin()
    for name, durable in (("q", True), ("p", False), ("q", False)):
        work.send(core.producer(name)[0], Run((stomp(name.encode()),), flags_of(durable=durable)))
    work.commit()
    core.send("q", b"9")
    assert (taker.bodies(), other.bodies()) == ([b"0"], [])
    core.sync()
    assert (taker.bodies(), other.bodies()) == ([b"0", b"q", b"q", b"9"], [b"p"])
    core.check()
    core.send("p", b"quick")
    assert strict or other.bodies() == [b"p", b"quick"], "the queue waits for ever"


def test_a_commit_of_nothing_durable_waits_for_nothing():
    core = Core()
    taker = core.consume("q")
    work = core.gateway.begin()
    work.send(core.producer("q")[0], Run((stomp(b"m"),), flags_of(durable=False)))
    assert work.commit() == 0
    core.turn()
    assert taker.bodies() == [b"m"]


def test_k17_what_memory_has_no_room_for_is_stored_before_it_is_dispatched():
    core = Core(entry("q", max_size_messages=1, address_full_policy=FullPolicy.PAGE))
    core.send("q", b"1", b"2")
    taker = core.consume("q")
    core.send("q", b"3")
    assert taker.bodies() == [b"1"], "paged messages were seen before they were on disk"
    core.sync()
    assert [body_of(m) for m in taker.got] == [b"1", b"2", b"3"]
    taker.ack()
    core.sync()
    core.send("q", b"4")
    assert taker.bodies() == [b"4"], "the backlog is gone: dispatch does not wait any more"


def test_k6_a_stomp_commit_is_seen_when_it_is_on_disk():
    core = Core()
    client = Stomp(core)
    taker = core.consume("q")
    client.do("BEGIN", transaction="t")
    client.do("SEND", "1", destination="q", transaction="t")
    client.do("SEND", "2", destination="q", transaction="t")
    client.session.receive_data(b"COMMIT\ntransaction:t\n\n\0", 1.0)
    core.turn()
    assert taker.got == []
    core.sync()
    assert taker.bodies() == [b"1", b"2"]


def test_stomp_frames_keep_their_order_over_both_kinds():
    core = serialized("strict")
    client, reader = Stomp(core), Stomp(core)
    reader.subscribe("q")
    frames = [
        f"SEND\ndestination:q\npersistent:{'true' if n % 3 else 'false'}\n\n{n}\0"
        for n in range(12)
    ]
    client.say("".join(frames))
    assert bodies(reader.more()) == [str(n) for n in range(12)]


def test_k6_what_a_commit_sends_by_a_divert_waits_with_it():
    core = Core()
    core.gateway.branches.create(DivertDefinition(name="d", address="q", forwarding=("p",)))
    taker, other = core.consume("q"), core.consume("p")
    work = core.gateway.begin()
    work.send(core.producer("q")[0], Run((stomp(b"m"),), flags_of()))
    work.commit()
    core.turn()
    assert taker.got == other.got == []
    core.sync()
    assert len(taker.got) == len(other.got) == 1
    core.check()
