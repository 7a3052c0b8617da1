"""Consumers are held to their rates: no more room until something is left."""

from __future__ import annotations

import pytest

from gateway.addresses.settings import FullPolicy, SlowPolicy
from gateway.model.quota import Quotas
from gateway.quotas.ends import spares
from protocols.amqp.performatives import Accepted, Attach, Detach, Flow, Source
from tests.broker.core import entry
from tests.conformance.clients import Amqp, bodies, data
from tests.conformance.test_selecting import selecting
from tests.protocols.amqp.peer import of
from tests.quotas.house import House, Turns, table


def filled(count: int, *entries, **groups) -> House:
    house = House(*entries, **groups)
    house.core.send("q", *[b"%d" % n for n in range(count)])
    return house


@pytest.mark.parametrize("settled", [True, False])
def test_an_amqp_receiver_gets_so_many_a_second_in_order(settled):
    house = filled(100, users=table(messages_out=10))
    peer = house.amqp()
    mode = {"snd_settle_mode": 1} if settled else {}
    got = data(peer.receiver(credit=500, **mode) + peer.more())
    assert len(got) == 10
    got += data(house.wait(2.0, peer)[0])
    assert 28 <= len(got) <= 30
    assert got == [b"%d" % n for n in range(len(got))]
    peer.cut()
    assert house.nothing_held
    assert house.count("q") == (100 - len(got) if settled else 100)


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_a_stomp_subscriber_gets_so_many_a_second_in_order(ack):
    house = filled(100, users=table(messages_out=10))
    peer = house.stomp()
    got = bodies(peer.subscribe("/queue/q", ack=ack))
    got += bodies(house.wait(2.0, peer)[0])
    assert 28 <= len(got) <= 30
    assert got == [str(n) for n in range(len(got))]
    peer.cut()
    assert house.nothing_held


def test_bytes_a_second_are_a_limit_of_their_own():
    house = House(users=table(bytes_out=10_000))
    house.core.send("q", *[b"x" * 1000] * 100)
    peer = house.amqp()
    got = data(peer.receiver(credit=500, snd_settle_mode=1) + peer.more())
    # The first is let through by a guess, and then each is counted as it is.
    got += data(house.wait(3.0, peer)[0])
    assert 30 <= len(got) <= 42 or len(got) == 100
    peer.cut()


def test_a_drain_of_a_link_that_is_held_back_is_answered_at_once():
    house = filled(100, users=table(messages_out=10))
    peer = house.amqp()
    assert len(data(peer.receiver(credit=10) + peer.more())) == 10
    came = peer.credit(20, drain=True) + peer.more()
    assert data(came) == []
    (flow,) = [f for f in of(came, Flow) if f.handle is not None]
    assert flow.link_credit == 0
    assert flow.drain
    came = house.wait(0.5, peer)[0]
    assert data(came) == []  # it has no credit any more
    again = peer.credit(20, delivery_count=flow.delivery_count)
    assert 4 <= len(data(again + peer.more())) <= 6
    peer.cut()
    assert house.nothing_held


def test_a_drain_with_a_selector_is_answered_as_well():
    house = filled(100, users=table(messages_out=10))
    peer = house.amqp()
    peer.receiver(source=Source(address="q", filter=selecting("TRUE")))
    assert len(data(peer.credit(10) + peer.more())) == 10
    came = peer.credit(20, drain=True) + peer.more()
    flows = [f for f in of(came, Flow) if f.handle is not None]
    assert [f.link_credit for f in flows] == [0]
    peer.cut()


def test_browsers_and_readers_of_one_user_share_its_rate_and_take_turns():
    house = filled(200, users=table(messages_out=20))
    one, two = house.amqp(), house.stomp()
    one.receiver(source=Source(address="q", distribution_mode="copy"))
    seen = data(one.credit(500) + one.more())
    got = bodies(two.subscribe("/queue/q"))
    came = house.wait(4.0, one, two)
    seen += data(came[0])
    got += bodies(came[1])
    assert len(seen) + len(got) <= 20 + 80
    assert min(len(seen) - 20, len(got)) >= 30
    one.cut()
    two.cut()
    assert house.nothing_held


def test_a_stomp_browser_is_told_the_end_only_when_it_has_seen_all():
    house = filled(30, users=table(messages_out=10))
    peer = house.stomp()
    first = peer.subscribe("/queue/q", browser="true")
    assert len(first) == 10
    later = house.wait(3.0, peer)[0]
    assert len(later) == 21
    assert later[-1][1].get("browser") == "end"
    assert all("browser" not in headers for _, headers, _ in first + later[:-1])
    peer.cut()


def test_an_address_has_a_rate_for_all_who_read_there():
    house = filled(200, addresses=table("q", messages_out=10))
    one, two = house.stomp("ann", "10.0.0.1"), house.stomp("ben", "10.0.0.2")
    got = [bodies(peer.subscribe("/queue/q")) for peer in (one, two)]
    came = house.wait(4.0, one, two)
    both = [len(g) + len(bodies(c)) for g, c in zip(got, came, strict=True)]
    assert 45 <= sum(both) <= 50
    assert min(both) >= 15
    one.cut()
    two.cut()
    assert house.nothing_held


def test_one_remote_has_one_rate_and_another_consumer_of_the_queue_gets_the_rest():
    house = filled(200, remotes=table("10.0.0.0/24", messages_out=10))
    held, free = house.stomp("ann", "10.0.0.1"), house.stomp("ann", "10.1.0.1")
    assert len(bodies(held.subscribe("/queue/q"))) == 10
    assert len(bodies(free.subscribe("/queue/q"))) == 190
    held.cut()
    free.cut()


def test_who_is_held_back_is_not_slow():
    always = entry(
        "q",
        slow_consumer_threshold=50,
        slow_consumer_policy=SlowPolicy.KILL,
        slow_consumer_check_period=1,
    )
    house = filled(500, always, users=table(messages_out=5))
    slow = house.core.gateway.pressure.slow
    slow.spares = spares
    peer = house.amqp()
    came = peer.receiver(credit=500) + peer.more()
    for _ in range(5):
        came += house.wait(1.0, peer)[0]
        peer.settle(0, Accepted(), last=1 << 10)
        house.core.now += 1000
        house.core.turn()
        slow.look()
    assert slow.found == 0
    assert not of(came, Detach)
    peer.cut()


def test_links_are_counted_for_user_remote_and_address_over_both_protocols():
    house = House(users=table(links=2))
    amqp, stomp = house.amqp(), house.stomp()
    assert of(amqp.sender(), Attach)
    stomp.subscribe("/queue/q")
    came = amqp.receiver(3)
    (detach,) = of(came, Detach)
    assert detach.error.condition == "amqp:resource-limit-exceeded"
    assert "has 2 links and subscriptions" in detach.error.description
    assert 'quotas.users."*".links is 2 (gate.toml:7)' in detach.error.description
    assert detach.error.info["x-retry-after"] == 10
    refused = stomp.refused("SUBSCRIBE", destination="/queue/q", id="t")
    assert refused["error-code"] == "too-many"
    other = house.amqp("ben")
    assert not of(other.receiver(), Detach)
    stomp.cut()
    assert not of(amqp.receiver(4), Detach)
    amqp.cut()
    other.cut()
    assert house.nothing_held


@pytest.mark.parametrize("group", ["remotes", "addresses"])
def test_links_of_a_remote_and_of_an_address(group):
    house = House(**{group: table("*", links=1)})
    one, two = house.amqp("ann"), house.amqp("ben")
    assert not of(one.receiver(), Detach)
    assert of(two.receiver(), Detach)
    if group == "addresses":
        assert not of(two.receiver(5, "other"), Detach)
    one.cut()
    assert not of(two.receiver(6), Detach)
    two.cut()
    assert house.nothing_held


def test_a_refused_attach_counts_for_nothing():
    house = House(entry("#", auto_create_queues=False), users=table(links=1))
    peer = house.amqp()
    for handle in range(3):
        assert of(peer.receiver(handle, "nowhere"), Detach)
    assert house.meters.uses == {}
    peer.cut()


def test_rates_of_consumers_that_a_reload_sets_hold_at_once():
    house = House()
    peer = house.amqp()
    peer.receiver(credit=500)
    house.meters.use(Quotas(users=table(messages_out=10)))
    house.core.send("q", *[b"x"] * 50)
    assert len(data(peer.more())) == 10
    house.meters.use(Quotas(users=table(messages_out=20)))
    assert 20 <= len(data(house.wait(1.0, peer)[0])) <= 21
    house.meters.use(Quotas())
    assert len(data(house.wait(0.02, peer)[0])) >= 19
    peer.cut()
    assert house.nothing_held


def test_other_roles_are_other_limits_at_once():
    house = House(
        roles=table("batch", messages_out=5) | table("large", messages_out=50),
        users=table("*", messages_out=10),
    )
    plain = house.amqp("ann")
    broker = house.broker("ben", "10.0.0.9", frozenset({"batch", "large"}), senders=True)
    house.core.send("q", *[b"x"] * 200)
    assert len(data(plain.receiver(credit=500) + plain.more())) == 10
    peer = Amqp.begun(broker=Turns(house.core, broker))
    assert len(data(peer.receiver(credit=500) + peer.more())) == 50
    broker.principal.renew(frozenset({"batch"}), None)
    assert 4 <= len(data(house.wait(1.0, peer)[0])) <= 6
    plain.cut()
    peer.cut()


def test_what_is_on_pages_comes_as_fast_as_it_may_and_a_drain_is_answered():
    paging = entry(
        "q", address_full_policy=FullPolicy.PAGE, max_size_bytes=2_000, page_size_bytes=1_000
    )
    house = filled(100, paging, users=table(messages_out=10))
    assert house.core.gateway.queues["q"].paged_count > 0
    peer = house.amqp()
    got = data(peer.receiver(credit=10) + peer.more())
    got += data(house.wait(0.5, peer)[0])
    assert len(got) == 10
    came = peer.credit(30, drain=True) + peer.more()
    got += data(came)
    came += house.wait(0.1, peer)[0]
    flows = [f for f in of(came, Flow) if f.handle is not None]
    assert flows[-1].link_credit == 0
    got += data(peer.credit(500, delivery_count=flows[-1].delivery_count) + peer.more())
    for _ in range(12):
        peer.settle(0, Accepted(), last=1 << 10)
        got += data(house.wait(1.0, peer, step=0.05)[0])
    assert got == [b"%d" % n for n in range(100)]
    peer.cut()
    assert house.nothing_held
