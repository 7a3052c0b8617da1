"""Who gets what a producer sends: queues made on demand, names of queues, taps, what is deleted."""

from __future__ import annotations

import pytest

from gateway.addresses.settings import FullPolicy
from gateway.model.address import Destination
from gateway.model.errors import Code, RefusedError
from gateway.model.message import DURABLE
from gateway.model.run import MixedRun, Run
from tests.broker.core import ANYCAST, MULTICAST, Core, Owner, Taker, entry, flags_of, stomp


def refused(call) -> Code:
    with pytest.raises(RefusedError) as caught:
        call()
    return caught.value.refusal.code


class Tap:
    stream_id = 900

    def __init__(self) -> None:
        self.bodies = []
        self.tickets = []

    def record(self, run, now_ms) -> int:
        self.bodies += run.bodies
        return len(self.bodies) - run.count

    def recorded(self, base, count, ticket) -> None:
        self.tickets.append((base, count, ticket))

    def durable_up_to(self, ticket) -> None:
        """The registry is told."""


def test_a_send_makes_address_and_queue_and_an_attach_too():
    core = Core()
    core.send("sent", b"x")
    core.consume("read")
    for name in ("sent", "read"):
        assert core.queue(name).auto_created
        assert core.gateway.addresses[name].auto_created
        assert core.gateway.addresses[name].routing_types == {ANYCAST}
    core.sync()
    core.restart()
    assert sorted(core.gateway.queues) == ["read", "sent"]
    assert core.waiting("sent") == [b"x"]


def test_what_may_not_be_made_is_refused_by_name():
    core = Core(entry("no.#", auto_create_addresses=False), entry("half", auto_create_queues=False))
    assert refused(lambda: core.producer("no.q")) is Code.NOT_FOUND
    assert refused(lambda: core.consume("no.q")) is Code.NOT_FOUND
    assert refused(lambda: core.consume("half")) is Code.NOT_FOUND
    assert refused(lambda: core.producer("half::q")) is Code.NOT_FOUND
    core.send("half", b"x")
    assert core.gateway.addresses["half"].unrouted == 1
    assert core.gateway.queues == {}


def test_unrouted_is_accepted_and_counted():
    core = Core()
    assert core.send("t", b"1", b"2", routing=MULTICAST) == [True, True]
    address = core.gateway.addresses["t"]
    assert (address.unrouted, address.routed, address.messages) == (2, 0, 0)
    core.check()


def test_a_fqqn_reaches_one_queue_only():
    core = Core()
    for name, kind in (("q1", ANYCAST), ("q2", ANYCAST), ("s1", MULTICAST)):
        core.administration.create_queue(name, "a", kind)
    core.send("a::q2", b"x")
    core.send("a::s1", b"y")
    assert [core.waiting(n) for n in ("q1", "q2", "s1")] == [[], [b"x"], [b"y"]]
    assert core.consume("a::s1").bodies() == [b"y"]
    core.send("a::new", b"z")
    assert core.queue("new").address == "a"
    assert refused(lambda: core.producer("other::q1")) is Code.NOT_FOUND


def test_a_queue_of_the_same_name_on_another_address_is_not_taken():
    core = Core()
    core.administration.create_queue("x", "elsewhere", ANYCAST)
    core.administration.create_queue("q1", "x", ANYCAST)
    core.send("elsewhere", b"secret")
    core.send("x", b"mine")
    assert core.consume("x").bodies() == [b"mine"]


def test_a_tap_is_a_route_and_sees_each_message_once():
    core = Core(entry("q", max_size_messages=2, address_full_policy=FullPolicy.FAIL))
    core.send("q")
    tap = Tap()
    core.gateway.addresses["q"].taps = (tap,)
    core.gateway.addresses["q"].version += 1
    for name in ("s1", "s2"):
        core.administration.create_queue(name, "q", MULTICAST)
    assert core.send("q", b"1", b"2", b"3", together=True) == [True, True, False]
    assert tap.bodies == [stomp(b"1"), stomp(b"2")]
    assert [(base, count) for base, count, _ in tap.tickets] == [(0, 1), (1, 1)]
    assert all(ticket for _, _, ticket in tap.tickets)
    for name in ("q", "s1", "s2"):
        core.administration.delete_queue(name)
    # Without a queue it is a route still, and nothing is held in memory for it.
    route, _ = core.producer("q", MULTICAST)
    assert route.send(Run([stomp(b"4")], flags_of(durable=False))).ticket == 0
    assert route.send(Run([stomp(b"5")], flags_of())).ticket == core.store.ticket
    assert tap.bodies[2:] == [stomp(b"4"), stomp(b"5")]
    assert core.gateway.addresses["q"].unrouted == 0
    assert core.gateway.load.memory == 0


def test_what_only_a_tap_takes_ends_its_turn_so_that_the_store_has_it():
    core = Core()
    core.gateway.directory.make_address("t")
    core.gateway.addresses["t"].taps = (Tap(),)
    core.gateway.addresses["t"].version += 1
    route, _ = core.producer("t", MULTICAST)
    core.gateway.turn.run()
    assert not core.gateway.turn.begun
    route.send(Run([stomp(b"nobody waits")], flags_of()))
    assert core.gateway.turn.begun


def test_a_transaction_reaches_the_tap_at_its_commit_in_order():
    core = Core()
    core.send("q")
    tap = Tap()
    core.gateway.addresses["q"].taps = (tap,)
    core.gateway.addresses["q"].version += 1
    route, _ = core.producer("q")
    work, undone = core.gateway.begin(), core.gateway.begin()
    work.send(route, Run((stomp(b"in 1"),), flags_of()))
    undone.send(route, Run((stomp(b"never"),), flags_of()))
    core.send("q", b"outside")
    work.send(route, Run((stomp(b"in 2"),), flags_of(9)))
    undone.rollback()
    work.commit()
    assert tap.bodies == [stomp(b) for b in (b"outside", b"in 1", b"in 2")]


# ---- subscriptions and temporary nodes


def test_a_durable_subscription_keeps_what_came_while_nobody_was_there():
    core = Core()
    core.consume("t", routing=MULTICAST, durable_name="c.s").leave()
    core.send("t", b"1", routing=MULTICAST)
    core.sync()
    core.restart()
    back = core.consume("t", routing=MULTICAST, durable_name="c.s")
    assert back.bodies() == [b"1"]
    assert (
        refused(lambda: core.consume("t", routing=MULTICAST, durable_name="c.s"))
        is Code.MAX_CONSUMERS
    )
    assert refused(lambda: core.gateway.delete_subscription("c.s")) is Code.IN_USE
    back.ack()
    back.leave()
    core.gateway.delete_subscription("c.s")
    assert refused(lambda: core.gateway.delete_subscription("c.s")) is Code.NOT_FOUND
    core.sync()
    core.restart()
    assert core.gateway.queues == {}


def test_a_shared_subscription_is_shared_and_one_on_another_topic_starts_anew():
    core = Core()
    takers = [core.consume("t", routing=MULTICAST, durable_name="s", shared=True) for _ in range(2)]
    core.send("t", b"1", b"2", routing=MULTICAST)
    assert sorted(len(t.got) for t in takers) == [1, 1]
    assert (
        refused(lambda: core.consume("u", routing=MULTICAST, durable_name="s", shared=True))
        is Code.IN_USE
    )
    for taker in takers:
        taker.leave()
    moved = core.consume("u", routing=MULTICAST, durable_name="s", shared=True)
    assert moved.got == []
    assert core.queue("s").address == "u"
    core.check()


def test_only_a_subscription_can_be_deleted_as_one():
    core = Core()
    core.send("orders", b"x")
    assert refused(lambda: core.gateway.delete_subscription("orders")) is Code.NOT_FOUND
    assert core.waiting("orders") == [b"x"]


def test_a_temporary_subscription_goes_with_its_consumer():
    core = Core()
    taker = core.consume("t", routing=MULTICAST)
    core.send("t", b"1", b"2", routing=MULTICAST)
    assert taker.bodies() == [b"1", b"2"]
    (name,) = core.gateway.queues
    assert core.queue(name).temporary
    taker.ack(1)
    taker.leave()
    assert core.gateway.queues == {}
    core.check()
    assert (core.gateway.load.memory, core.gateway.load.messages) == (0, 0)


def test_a_temporary_queue_is_not_left_behind_by_a_refused_consumer():
    core = Core(entry("t", default_max_consumers=0))
    assert refused(lambda: core.consume("t", routing=MULTICAST)) is Code.MAX_CONSUMERS
    assert core.gateway.queues == {}


def test_a_temporary_queue_can_be_deleted_under_its_consumer():
    core = Core()
    taker = core.consume("t", routing=MULTICAST)
    core.send("t", b"1", b"2", routing=MULTICAST)
    (name,) = core.gateway.queues
    core.administration.delete_queue(name, remove_consumers=True)
    assert [r.code for r in taker.refusals] == [Code.QUEUE_DELETED]
    assert core.gateway.queues == {}
    assert core.gateway.load.messages == 0


def test_a_temporary_node_goes_with_its_messages_and_is_not_made_again():
    core = Core()
    name = core.gateway.create_temporary(ANYCAST, core)
    route, _ = core.producer(name)
    taker = core.consume(name, room=1, owner=core)
    route.send(Run([stomp(b"1"), stomp(b"2")], flags_of()))
    core.turn()
    assert taker.bodies() == [b"1"]
    core.gateway.delete_temporary(name)
    assert len(taker.refusals) == 1
    assert route.send(Run([stomp(b"3")], flags_of())).ticket == 0
    assert name not in core.gateway.addresses
    assert (core.gateway.load.memory, core.gateway.load.messages) == (0, 0)
    core.sync()
    assert core.store.kept(core.store.synced)[0] == {}


# ---- deletion under those who use it


def test_a_deleted_queue_is_made_again_by_no_open_producer_but_found_when_it_is_back():
    core = Core()
    route, _ = core.producer("q")
    named, _ = core.producer("q::q")
    route.send(Run([stomp(b"1")], flags_of()))
    core.administration.delete_queue("q")
    for producer in (route, named):
        assert producer.send(Run([stomp(b"2")], flags_of())).ticket == 0
    assert core.gateway.addresses["q"].unrouted == 2
    assert (core.gateway.load.memory, core.gateway.load.messages) == (0, 0)
    core.administration.create_queue("q", "q", ANYCAST)
    for producer in (route, named):
        assert producer.send(Run([stomp(b"3")], flags_of())).ticket > 0
    assert core.waiting("q") == [b"3", b"3"]
    core.check()


def test_a_producer_goes_on_at_the_address_that_takes_the_name():
    core = Core()
    route, owner = core.producer("q")
    core.administration.delete_address("q", force=True)
    assert route.send(Run([stomp(b"1")], flags_of())).ticket > 0
    assert core.waiting("q") == [b"1"]
    assert list(core.gateway.addresses["q"].producers.values()) == [route]
    core.gateway.block_address("q", blocked=True)
    assert owner.blocked
    route.close()
    assert not core.gateway.addresses["q"].producers


def test_a_producer_of_a_deleted_address_that_may_not_come_back_is_refused():
    core = Core(entry("q", auto_create_addresses=False))
    core.administration.create_queue("q", "q", ANYCAST)
    route, _ = core.producer("q")
    core.administration.delete_address("q", force=True)
    for send in (
        lambda: route.send(Run([stomp(b"1")], flags_of())),
        lambda: route.send_mixed(MixedRun([stomp(b"1")], [flags_of()], [0])),
    ):
        outcome = send()
        assert (outcome.taken, outcome.refusal.code) == (0, Code.NOT_FOUND)
    work = core.gateway.begin()
    work.send(route, Run((stomp(b"2"),), flags_of()))
    assert refused(work.commit) is Code.NOT_FOUND


def test_senders_held_back_at_a_deleted_address_are_let_go():
    core = Core(entry("q", max_size_messages=1, address_full_policy=FullPolicy.BLOCK))
    route, owner = core.producer("q")
    core.send("q", b"1")
    assert owner.blocked
    core.administration.delete_address("q", force=True)
    core.turn()
    assert owner.told == ["blocked", "unblocked"]
    assert route.send(Run([stomp(b"2")], flags_of())).ticket > 0
    assert owner.blocked


def test_senders_held_back_by_an_operator_are_let_go_with_an_empty_address():
    core = Core()
    route, owner = core.producer("q")
    core.gateway.block_address("q", blocked=True)
    core.administration.delete_address("q", force=True)
    assert (owner.blocked, route.blocked()) == (False, None)
    assert route.send(Run([stomp(b"1")], flags_of())).ticket > 0
    core.gateway.block_address("q", blocked=True)
    core.gateway.block_address("q", blocked=False)
    assert owner.told == ["blocked", "unblocked"] * 2


class Keeper(Taker):
    """A consumer that gives nothing back when its queue is deleted, but settles later."""

    def removed(self, refusal) -> None:
        self.refusals.append(refusal)


def test_what_is_settled_after_the_queue_and_its_address_are_gone_still_counts():
    core = Core()
    keeper = Keeper(9)
    keeper.hold = core.gateway.subscribe(Destination("q"), None, keeper)
    core.send("q", b"1", b"2", b"3", b"4")
    queue = core.queue("q")
    core.administration.delete_address("q", force=True)
    assert queue.delivering == 4
    assert core.gateway.load.messages == 4
    assert keeper.ack(1) == 0
    keeper.release(1, failed=True)
    keeper.reject(1)
    work = core.gateway.begin()
    work.acknowledge(keeper.hold, keeper.got)
    assert work.commit() == 0
    keeper.hold.close()
    queue.check_invariants()
    assert (queue.acknowledged, queue.killed) == (2, 2)
    # One was rejected: a dead letter, although its queue is gone.
    assert core.waiting("DLQ") == [b"3"]
    assert core.gateway.load.messages == 1
    core.send("q", b"new")
    core.check()


# ---- tickets


def test_a_settlement_waits_for_the_disk_only_when_it_left_a_record():
    core = Core()
    core.send("q", b"stays", b"durable")
    taker = core.consume("q", room=2)
    core.send("q", b"light", durable=False)
    taker.take(1)
    core.turn()
    core.sync()
    light = taker.got.pop()
    # Nothing is recorded about it, so no batch would ever be reported.
    assert taker.hold.release([light], failed=True) == 0
    core.turn()
    taker.take(1)
    core.turn()
    assert taker.hold.reject([taker.got.pop()]) == 0
    assert taker.hold.release([], failed=True) == taker.hold.acknowledge([]) == 0
    assert taker.release(1, failed=True) == core.store.ticket
    assert taker.ack(1) == core.store.ticket
    core.turn()
    core.sync()
    assert core.store.synced >= core.store.ticket - 1


# ---- subscriptions shared by name


def test_shared_volatile_subscription_goes_with_its_last_consumer():
    core = Core()
    how = {"routing": MULTICAST, "durable_name": "s", "shared": True, "temporary": True}
    one, two = core.consume("t", room=1, **how), core.consume("t", room=1, **how)
    assert core.queue("s").temporary
    assert not core.queue("s").durable
    core.send("t", b"1", b"2")
    assert sorted(one.bodies() + two.bodies()) == [b"1", b"2"]
    one.leave()
    assert "s" in core.gateway.queues
    two.leave()
    assert "s" not in core.gateway.queues
    core.check()


# ---- turns


def test_senders_are_let_go_when_room_comes_while_queues_hand_out():
    core = Core(entry("q", max_size_messages=2, address_full_policy=FullPolicy.BLOCK))
    core.send("q", b"1", b"2")
    route, owner = core.producer("q")
    assert route.blocked() is not None
    taker = Taker(9)
    taker.on_deliver = lambda messages: taker.ack()  # as a pre-settled link does
    taker.hold = core.gateway.subscribe(Destination("q"), None, taker)
    core.turn()
    assert owner.told == ["unblocked"]


def test_a_ring_hands_out_inside_the_send_and_the_sender_gets_its_own():
    core = Core(entry("q", default_ring_size=2))
    taker = core.consume("q", room=3)
    route = core.gateway.open_producer(Destination("q"), None, Owner())
    route.send(Run([stomp(b"%d" % n) for n in range(8)], flags_of()))
    assert taker.bodies() == [b"0", b"1", b"2"]
    assert core.waiting("q") == [b"6", b"7"]
    assert core.figures("q") == (5, 3, 3)
    assert core.gateway.figures.delivered == 3
    assert all(m.flags & DURABLE for m in taker.got)
