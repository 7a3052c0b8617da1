"""Features that meet: what was found by sending everything through everything, one test each."""

from __future__ import annotations

import pytest

from gateway.model.address import parse_destination
from gateway.model.definitions import DivertDefinition
from gateway.model.errors import RefusedError
from gateway.model.message import EXPIRES, GROUPED
from gateway.model.run import Run
from gateway.model.stomp_form import pack
from gateway.queues.queue import Gone
from tests.broker.core import ANYCAST, MULTICAST, Core, Taker, entry, flags_of
from tests.conformance.clients import Stomp


@pytest.mark.parametrize("clean", [False, True])
def test_what_a_durable_subscription_begins_with_waits_for_the_disk_and_comes(clean):
    core = Core(entry("t", retroactive_message_count=3), serialized=(MULTICAST,))
    core.send("t", b"1", b"2", routing=MULTICAST)
    core.sync()
    taker = core.consume("t", routing=MULTICAST, durable_name="s")
    assert taker.bodies() == []
    core.sync()
    assert taker.bodies() == [b"1", b"2"]
    taker.leave()
    core.restart(clean=clean)
    core.check()
    assert core.waiting("s") == [b"1", b"2"]


def test_a_dead_letter_that_a_divert_takes_to_where_no_queue_is_ends_there():
    """`send-to-dla-on-no-route` everywhere, and dead letters that are diverted to nobody."""
    core = Core(
        entry("#", send_to_dla_on_no_route=True, dead_letter_address="DLQ"),
        entry("nobody", auto_create_queues=False),
    )
    core.gateway.branches.create(
        DivertDefinition(name="d", address="DLQ", forwarding=("nobody",), exclusive=True)
    )
    assert core.send("nobody", b"1") == [True]
    assert core.gateway.figures.lost_dead_letters == 1
    core.administration.create_queue("late", "nobody", ANYCAST)
    core.send("nobody", b"2")
    assert core.waiting("late") == [b"2"]
    core.sync()
    core.check()


def test_a_divert_of_a_client_still_makes_dead_letters():
    core = Core(
        entry("#", send_to_dla_on_no_route=True, dead_letter_address="DLQ"),
        entry("nobody", auto_create_queues=False),
    )
    core.gateway.branches.create(
        DivertDefinition(name="d", address="a", forwarding=("nobody",), exclusive=True)
    )
    core.send("a", b"1", b"2")
    assert core.waiting("DLQ") == [b"1", b"2"]


def test_a_reader_sees_what_comes_due_after_it_has_seen_the_pages():
    """Read back before its time, behind which a non-destructive queue's reader looked on."""
    core = Core(entry("q", max_size_messages=1, page_size_bytes=1024, max_read_page_messages=1))
    core.administration.create_queue("q", "q", ANYCAST, attributes={"non_destructive": True})
    core.send("q", b"0")
    core.send("q", b"later", delay=5)
    core.send("q", b"1", b"2")
    core.sync()
    queue = core.queue("q")
    queue.take_out({1}, Gone.REMOVED)
    core.gateway.expire()
    assert (queue.scheduled_count, queue.paged_count) == (1, 2)
    taker = core.consume("q", room=10)
    core.sync()
    assert taker.bodies() == [b"1", b"2"]
    core.pass_time(10)
    core.sync()
    core.check()
    assert taker.bodies() == [b"1", b"2", b"later"]


def test_a_ring_forgets_on_disk_what_comes_due_and_is_replaced_beside_what_has_expired():
    """What has expired comes back by a divert, and nothing is handed out while that happens."""
    core = Core(entry("q", expiry_address="late"))
    core.administration.create_queue("q", "q", ANYCAST, ring_size=1)
    core.gateway.branches.create(
        DivertDefinition(name="d", address="late", forwarding=("q",), exclusive=True)
    )
    core.send("q", b"expires", delay=5, ttl=3)
    core.send("q", b"replaced", b"last", delay=5)
    core.sync()
    taker = core.consume("q", room=10)
    taker.on_deliver = lambda messages: taker.ack()
    core.pass_time(10)
    core.sync()
    core.check()
    assert core.figures("q") == (0, 0, 2)
    core.restart()
    assert core.waiting("q") == [], "what was replaced is back"


def test_what_a_ring_lets_go_of_while_it_is_shown_is_in_delivery_to_nobody():
    """What has expired beside it comes back twice, by two diverts."""
    core = Core(entry("q", expiry_address="late"))
    core.administration.create_queue(
        "q", "q", ANYCAST, ring_size=2, attributes={"non_destructive": True}
    )
    for name in ("d", "e"):
        core.gateway.branches.create(
            DivertDefinition(name=name, address="late", forwarding=("q",), exclusive=True)
        )
    core.send("q", b"1")
    core.send("q", b"2", ttl=3)
    core.sync()
    core.now += 5
    taker = core.consume("q", room=10)
    core.check()
    core.sync()
    core.check()
    assert taker.bodies() == [b"2", b"2"]
    assert core.figures("q") == (2, 2, 1)


@pytest.mark.parametrize("address", ["orders", "other"])
def test_a_subscription_cannot_take_the_name_of_a_queue(address):
    """Its messages would be gone: a subscription that moves to another address begins anew."""
    core = Core(entry("#"))
    core.send("orders", b"1", b"2")
    core.sync()
    with pytest.raises(RefusedError, match="no subscription"):
        core.consume(address, routing=MULTICAST, durable_name="orders")
    core.administration.create_queue("mine", "news", MULTICAST)
    core.send("news", b"3", routing=MULTICAST)
    with pytest.raises(RefusedError, match="no subscription"):
        core.consume("other", routing=MULTICAST, durable_name="mine")
    assert core.waiting("orders") == [b"1", b"2"]
    assert core.waiting("mine") == [b"3"]
    assert core.consume("news", routing=MULTICAST, durable_name="mine").bodies() == [b"3"]


def test_a_subscription_cannot_take_the_name_of_what_is_the_gateways_own():
    core = Core(entry("t", retroactive_message_count=3))
    core.send("t", b"1", routing=MULTICAST)
    ring = "$.artemis.internal.t.queue.multicast.retro"
    with pytest.raises(RefusedError, match="kept for the gateway"):
        core.consume("other", routing=MULTICAST, durable_name=ring)
    assert core.consume("t", routing=MULTICAST).bodies() == [b"1"]


def grouped(core: Core, *messages: tuple[int, bytes], ttl: int = 0) -> None:
    """Send messages of one group, with these priorities."""
    route, _ = core.producer("q")
    for priority, body in messages:
        stored = pack("q", body, persistent=True, headers=[("JMSXGroupID", "g")])
        expires = core.now + ttl if ttl else 0
        route.send(Run([stored], flags_of(priority) | GROUPED | (EXPIRES if ttl else 0), expires))
    route.close()
    core.turn()


def test_a_group_of_several_priorities_that_is_settled_at_once_is_gone_for_good():
    core = Core(entry("q"))
    grouped(core, (7, b"1"), (4, b"2"), (2, b"3"))
    core.sync()
    taker = core.consume("q", room=0)
    got = []

    def settle(messages) -> None:
        got.extend(taker.bodies())
        taker.ack()

    taker.on_deliver = settle
    taker.take(10)
    core.sync()
    core.check()
    assert got == [b"1", b"2", b"3"]
    core.restart()
    assert core.waiting("q") == [], "what was settled is back"


def test_a_group_of_several_priorities_fits_a_stomp_window():
    """The first run is larger than the subscription had thought, and there is another behind it."""
    core = Core(entry("q"))
    grouped(core, *[(priority, b"%d" % priority * 6000) for priority in (7, 7, 7, 7, 4, 4, 4)])
    core.sync()
    client = Stomp(core)
    heard = client.say("SUBSCRIBE\nid:1\ndestination:/queue/q\nack:client-individual\n\n\0")
    got = []
    while heard:
        got += [body[:1] for _, _, body in heard]
        acks = [f"ACK\nid:{headers['ack']}\n\n\0" for _, headers, _ in heard]
        heard = [frame for ack in acks for frame in client.say(ack)]
    assert got == [b"7"] * 4 + [b"4"] * 3
    assert core.figures("q") == (0, 0, 0)


def test_what_expired_of_a_group_is_counted_once_where_its_queue_goes_meanwhile():
    """A temporary subscription's only consumer leaves when it gets something."""
    core = Core(entry("q", max_delivery_attempts=1, expiry_address="", dead_letter_address=""))
    taker = core.consume("q", room=0, routing=MULTICAST)
    grouped(core, (4, b"late"), ttl=3)
    grouped(core, (4, b"1"), (4, b"2"))
    core.now += 5
    taker.on_deliver = lambda messages: taker.leave()
    taker.take(1)
    core.turn()
    core.check()
    assert core.gateway.load.memory == core.gateway.load.messages == 0


def test_a_consumer_gets_no_more_than_it_has_room_for_when_what_expired_comes_back():
    """By three diverts, into the full ring that is handing out."""
    core = Core(entry("q", expiry_address="late"))
    core.administration.create_queue("q", "q", ANYCAST, ring_size=2)
    for name in ("d", "e", "f"):
        core.gateway.branches.create(
            DivertDefinition(name=name, address="late", forwarding=("q",), exclusive=True)
        )
    core.send("q", b"1", b"2", ttl=3)
    core.sync()
    core.now += 5
    takers = [core.consume("q", room=0) for _ in range(2)]
    for taker in takers:
        taker.left = 1
    takers[0].take(0)
    core.turn()
    core.check()
    assert [len(taker.got) for taker in takers] == [1, 1]


def test_a_subscription_with_another_selector_keeps_nothing_else_on_its_pages():
    core = Core(entry("t", max_size_messages=2, page_size_bytes=1024))
    core.consume("t", routing=MULTICAST, durable_name="s").leave()
    for number in range(6):
        core.send("t", b"%d" % number, routing=MULTICAST, priority=4 + number % 2)
    core.sync()
    assert core.queue("s").paged_count == 4
    selector = "JMSPriority > 4"
    taker = core.consume("t", routing=MULTICAST, durable_name="s", selector=selector)
    assert set(taker.bodies()) <= {b"1", b"3", b"5"}
    core.sync()
    core.check()
    assert taker.bodies() == [b"1", b"3", b"5"]
    assert core.figures("s")[0] == 3
    taker.leave()
    core.restart()
    assert core.waiting("s") == [b"1", b"3", b"5"]


def test_what_expires_in_a_circle_leaves_others_their_turn(monkeypatch):
    monkeypatch.setattr("gateway.broker.dispatch.DISPATCH_TURN", 100)
    core = Core(
        entry("a", expiry_delay=0, expiry_address="b"),
        entry("b", expiry_delay=0, expiry_address="a"),
    )
    core.administration.create_queue("b", "b", ANYCAST)
    core.send("a", b"1")
    for name in ("a", "b"):
        core.gateway.subscribe(parse_destination(name), None, Taker(1))
    core.gateway.dispatch.end_turn()  # it came back from this
    core.check()
    assert core.queue("a").message_count + core.queue("b").message_count == 1
