"""Wildcard addresses (row A11) and diverts, in the core and through clients of both protocols."""

from __future__ import annotations

import pytest

from gateway.addresses.settings import FullPolicy
from gateway.model.amqp_encode import encode
from gateway.model.amqp_types import Symbol
from gateway.model.definitions import DivertDefinition, DivertRouting
from gateway.model.errors import Code, RefusedError
from gateway.model.message import DURABLE, EXPIRES
from gateway.model.run import MixedRun, Run
from gateway.model.sections import peek, scan
from gateway.model.stomp_form import pack, unpack
from protocols.amqp.performatives import Accepted, Rejected, Source
from tests.broker.core import ANYCAST, MULTICAST, Core, body_of, entry, flags_of, stomp
from tests.conformance.clients import Amqp, Stomp, plain, took


def with_queues(*entries, **queues: str) -> Core:
    """A core with queues; `queue=address`, multicast where the address has a wildcard."""
    core = Core(*entries)
    for name, address in queues.items():
        kind = MULTICAST if name.startswith("s") else ANYCAST
        core.administration.create_queue(name, address, kind)
    return core


def divert(core: Core, name: str, address: str, *to: str, **how) -> None:
    core.gateway.branches.create(DivertDefinition(name=name, address=address, forwarding=to, **how))


def counts(core: Core, *names: str) -> list[int]:
    core.turn()
    core.check()
    return [core.queue(name).message_count for name in names]


# ---- A11


def test_a11_a_subscription_on_a_wildcard_gets_what_fits():
    core = with_queues(s1="test.address", s2="test.#")
    core.send("test.address", b"1")
    assert counts(core, "s1", "s2") == [1, 1]
    core.administration.create_queue("s3", "test.*", MULTICAST)
    core.send("test.address", b"2")
    assert counts(core, "s1", "s2", "s3") == [2, 2, 1]


def test_a11_addresses_that_come_later_count_too():
    core = with_queues(s1="test.#")
    producers = [core.producer(name, MULTICAST)[0] for name in ("test", "test.a.b", "other")]
    for producer in producers:
        producer.send(Run([stomp(b"x")], flags_of()))
    assert counts(core, "s1") == [2]
    assert core.gateway.addresses["test.a.b"].unrouted == 0
    assert core.gateway.addresses["test.a.b"].routed == 1
    assert core.gateway.addresses["other"].unrouted == 1


def test_a11_producers_that_are_there_see_a_new_subscription_and_its_end():
    core = with_queues(s1="test.a")
    producer, _ = core.producer("test.a")
    taker = core.consume("test.#", routing=MULTICAST)
    producer.send(Run([stomp(b"1")], flags_of()))
    core.turn()
    assert taker.bodies() == [b"1"]
    taker.leave()
    producer.send(Run([stomp(b"2")], flags_of()))
    assert counts(core, "s1") == [2]
    assert not core.gateway.addresses["test.a"].branched


def test_a11_an_anycast_send_reaches_no_subscription():
    core = with_queues(q="test.a", s1="test.#")
    core.send("test.a", b"1", routing=ANYCAST)
    assert counts(core, "q", "s1") == [1, 0]
    core.send("test.a", b"2")
    assert counts(core, "q", "s1") == [2, 1]
    assert "test.#" not in core.gateway.queues


def test_a11_durable_subscriptions_over_a_restart():
    core = Core()
    taker = core.consume("test.#", routing=MULTICAST, durable_name="sub")
    taker.leave()
    core.send("test.a", b"1", routing=MULTICAST)
    core.sync()
    core.restart()
    core.send("test.b", b"2", routing=MULTICAST)
    assert core.waiting("sub") == [b"1", b"2"]
    core.check()


def test_a11_over_stomp_and_amqp():
    core = Core()
    reader, writer = Stomp(core), Stomp(core)
    assert reader.subscribe("/topic/orders.*") == []
    peer = Amqp.at(core)
    topic = Source(address="orders.#", capabilities=(Symbol("topic"),))
    peer.receiver(source=topic, credit=10)
    peer.sender(address="orders.eu")
    writer.send("/topic/orders.eu", "a")
    assert peer.give(plain("b")) == [Accepted()]
    writer.send("/topic/orders.eu.new", "c")
    assert [f[2] for f in reader.more()] == [b"a", b"b"]
    assert len(took(peer.more())) == 1  # the others came with the outcomes
    assert sorted(queue.delivering for queue in core.gateway.queues.values()) == [0, 0, 3]


def test_a_wildcard_has_limits_of_its_own():
    core = with_queues(
        entry("test.#", max_size_messages=1, address_full_policy=FullPolicy.FAIL),
        entry("test.a", max_size_messages=-1),
        s1="test.a",
        s2="test.#",
    )
    assert core.send("test.a", b"1", b"2", routing=MULTICAST) == [True, False]
    assert counts(core, "s1", "s2") == [1, 1]


def test_a_full_wildcard_holds_senders_back_until_there_is_room():
    core = with_queues(
        entry("test.#", max_size_messages=1, address_full_policy=FullPolicy.BLOCK),
        entry("test.a", max_size_messages=-1),
        s1="test.a",
        s2="test.#",
    )
    producer, owner = core.producer("test.a")
    producer.send(Run([stomp(b"1")], flags_of()))
    core.turn()
    assert owner.blocked
    assert producer.blocked() is not None
    late, _ = core.producer("test.a")
    assert late.blocked() is not None
    taker = core.consume("test.#::s2")
    taker.ack()
    core.turn()
    assert not owner.blocked
    assert producer.blocked() is None
    producer.close()
    assert len(core.gateway.addresses["test.#"].producers) == 1
    assert core.gateway.addresses["test.#"].sender_count == 0
    late.close()
    assert not core.gateway.addresses["test.#"].producers


def test_wildcards_can_be_switched_off():
    core = Core()
    core.gateway.branches.wildcards = False
    core.administration.create_queue("s1", "test.#", MULTICAST)
    core.send("test.a", b"1", routing=MULTICAST)
    assert counts(core, "s1") == [0]


def test_without_a_fitting_wildcard_a_send_asks_nothing():
    core = with_queues(q="other", s1="test.#")
    assert not core.gateway.addresses["other"].branched
    assert not core.gateway.addresses["other"].guarded


# ---- diverts


def test_a_divert_copies_and_an_exclusive_one_takes():
    core = with_queues(q="q", b="b", c="c")
    divert(core, "copy", "q", "b")
    core.send("q", b"1")
    assert counts(core, "q", "b", "c") == [1, 1, 0]
    divert(core, "take", "q", "c", exclusive=True)
    core.send("q", b"2", b"3", together=True)
    assert counts(core, "q", "b", "c") == [1, 1, 2]
    assert core.gateway.addresses["q"].unrouted == 0
    core.gateway.branches.delete("take")
    core.send("q", b"4")
    assert counts(core, "q", "b", "c") == [2, 2, 2]


def test_the_copy_says_where_it_comes_from():
    core = with_queues(q="q", b="b")
    divert(core, "copy", "q", "b")
    core.send("q", b"1", priority=7)
    core.producer("q")[0].send(Run([plain("x")], 4 | DURABLE))
    first, second = core.queue("b").browse(0, 9)
    facts = dict(unpack(first.body)[0])
    assert (facts["_AMQ_ORIG_ADDRESS"], facts["_AMQ_ORIG_QUEUE"]) == ("q", "copy")
    assert first.priority == 7
    notes = {str(k): v for k, v in peek(second.body).message_annotations.items()}
    assert (notes["x-opt-ORIG-ADDRESS"], notes["x-opt-ORIG-QUEUE"]) == ("q", "copy")
    kept = core.queue("q").browse(0, 9)
    assert "_AMQ_ORIG_ADDRESS" not in dict(unpack(kept[0].body)[0])
    assert kept[1].body == plain("x")


def test_a_filter_decides_message_by_message_and_order_stays():
    core = with_queues(q="q", b="b")
    divert(core, "high", "q", "b", exclusive=True, filter="JMSPriority > 5")
    route, _ = core.producer("q")
    bodies = [stomp(b"%d" % n) for n in range(6)]
    route.send_mixed(MixedRun(bodies, [flags_of(p) for p in (4, 9, 4, 9, 9, 4)], [0] * 6))
    core.turn()
    core.check()
    assert core.waiting("q") == [b"0", b"2", b"5"]
    assert core.waiting("b") == [b"1", b"3", b"4"]
    assert core.gateway.branches.diverts["high"].diverted == 3


def test_several_addresses_expiry_and_time_are_kept():
    core = with_queues(q="q", b="b", c="c")
    divert(core, "two", "q", "b", "c")
    core.send("q", b"1", ttl=50, delay=20)
    assert counts(core, "q", "b", "c") == [1, 1, 1]
    assert [core.queue(n).scheduled_count for n in "qbc"] == [1, 1, 1]
    core.pass_time(20)
    (message,) = core.queue("c").browse(0, 1)
    assert message.flags & EXPIRES
    core.pass_time(30)
    core.gateway.expire()
    assert counts(core, "q", "b", "c") == [0, 0, 0]


@pytest.mark.parametrize(
    ("routing", "sent", "expected"),
    [
        (DivertRouting.STRIP, ANYCAST, [1, 1]),
        (DivertRouting.STRIP, None, [1, 1]),
        (DivertRouting.PASS, ANYCAST, [1, 0]),
        (DivertRouting.PASS, MULTICAST, [0, 1]),
        (DivertRouting.PASS, None, [1, 1]),
        (DivertRouting.ANYCAST, MULTICAST, [1, 0]),
        (DivertRouting.MULTICAST, ANYCAST, [0, 1]),
    ],
)
def test_the_routing_type_of_copies(routing, sent, expected):
    core = with_queues(q="q", s0="q", b="b", s1="b")
    divert(core, "d", "q", "b", routing=routing)
    core.send("q", b"1", routing=sent)
    assert counts(core, "b", "s1") == expected


def test_circles_end():
    core = with_queues(q="q", b="b", c="c")
    for name, at, to in (("1", "q", "b"), ("2", "b", "c"), ("3", "c", "q"), ("4", "b", "q")):
        divert(core, name, at, to)
    core.send("q", b"x")
    # q, b by 1, c by 2, q by 3; q by 4; and each divert once on each way.
    assert counts(core, "q", "b", "c") == [3, 1, 1]


def test_a_net_of_diverts_ends():
    core = Core()
    names = [f"n{i}" for i in range(6)]
    for at in names:
        divert(core, f"from {at}", at, *[n for n in names if n != at])
    core.send("n0", b"x")
    assert 6 <= core.gateway.load.messages < 10_000
    core.check()


def test_a_divert_that_leads_straight_back_is_refused():
    core = Core()
    with pytest.raises(RefusedError) as refused:
        divert(core, "d", "q", "b", "q")
    assert refused.value.refusal.code is Code.BAD_VALUE


def test_names_are_one_of_a_kind():
    core = with_queues(q="q")
    divert(core, "d", "q", "b")
    for name in ("d", "q"):
        with pytest.raises(RefusedError) as refused:
            divert(core, name, "q", "c")
        assert refused.value.refusal.code is Code.ALREADY_EXISTS
    assert list(core.gateway.branches.diverts) == ["d"]


@pytest.mark.parametrize("policy", [FullPolicy.FAIL, FullPolicy.DROP, FullPolicy.BLOCK])
@pytest.mark.parametrize("together", [False, True])
def test_a_full_target_counts_for_the_sender(policy, together):
    core = with_queues(entry("b", max_size_messages=2, address_full_policy=policy), q="q", b="b")
    divert(core, "d", "q", "b")
    producer, owner = core.producer("q")
    answer = core.send("q", b"1", b"2", b"3", together=together)
    core.turn()
    if policy is FullPolicy.FAIL:
        assert answer == [True, True, False]
        assert counts(core, "q", "b") == [2, 2]
    elif policy is FullPolicy.DROP:
        assert answer == [True] * 3
        assert counts(core, "q", "b") == [3, 2]
    else:
        assert owner.blocked
        assert counts(core, "q", "b") == [3, 3]
        core.consume("b").ack()
        core.turn()
        assert not owner.blocked
    producer.close()


def test_a_target_in_page_mode_pages_its_copies():
    core = with_queues(
        entry("b", max_size_messages=2, address_full_policy=FullPolicy.PAGE), q="q", b="b"
    )
    divert(core, "d", "q", "b")
    core.send("q", *[b"%d" % n for n in range(6)])
    core.sync()
    assert counts(core, "q", "b") == [6, 6]
    assert core.gateway.addresses["b"].paging is not None
    taker = core.consume("b")
    core.sync()
    assert taker.bodies() == [b"%d" % n for n in range(6)]


def test_a_source_in_page_mode_still_diverts():
    core = with_queues(
        entry("q", max_size_messages=2, address_full_policy=FullPolicy.PAGE), q="q", b="b"
    )
    divert(core, "d", "q", "b")
    core.send("q", *[b"%d" % n for n in range(6)], together=True)
    core.sync()
    assert counts(core, "q", "b") == [6, 6]


def test_a_stomp_sender_is_told_of_a_full_target():
    core = with_queues(
        entry("b", max_size_messages=1, address_full_policy=FullPolicy.FAIL), q="q", b="b"
    )
    divert(core, "d", "q", "b")
    client, peer = Stomp(core), Amqp.at(core)
    peer.sender()
    client.send("q", "1")
    told = client.refused("SEND", "2", destination="q")
    assert told["error-code"] == "address-full"
    assert "'b'" in told["body"]
    assert isinstance(peer.give(plain("x"))[0], Rejected)


def test_the_copy_is_durable_with_the_message():
    core = with_queues(q="q", b="b", s1="q.#")
    divert(core, "d", "q", "b")
    core.send("q", b"1", b"2", together=True)
    core.send("q", b"3")
    core.sync()
    ids = [core.queue(n).queue_id for n in ("q", "b", "s1")]
    for batches in range(len(core.store.batches) + 1):
        _, held, _ = core.store.kept(batches)
        assert len({len(held.get(number, {})) for number in ids}) == 1
    core.restart()
    assert counts(core, "q", "b", "s1") == [3, 3, 3]


def test_in_a_transaction_all_of_it_or_nothing():
    core = with_queues(
        entry("b", max_size_messages=2, address_full_policy=FullPolicy.FAIL), q="q", b="b"
    )
    divert(core, "d", "q", "b")
    for count, fits in ((3, False), (2, True), (1, False)):
        work = core.gateway.begin()
        for n in range(count):
            assert work.send(core.producer("q")[0], Run((stomp(b"%d" % n),), flags_of())) is None
        if fits:
            assert work.commit() == core.store.ticket
        else:
            with pytest.raises(RefusedError):
                work.commit()
        core.turn()
    assert counts(core, "q", "b") == [2, 2]


@pytest.mark.parametrize("name", ["d", "b"])
def test_a_dead_letter_of_a_copy_goes_back_to_where_it_died(name):
    core = with_queues(
        entry("#", max_delivery_attempts=1, dead_letter_address="dead"), q="q", b="b", dead="dead"
    )
    divert(core, name, "q", "b", exclusive=True)
    core.send("q", b"1")
    taker = core.consume("b")
    taker.release(failed=True)
    taker.leave()
    assert counts(core, "b", "dead") == [0, 1]
    assert core.gateway.retry_messages(core.queue("dead")) == 1
    assert counts(core, "q", "b", "dead") == [0, 1, 0]
    assert core.gateway.retry_messages(core.queue("b")) == 0
    assert set(core.gateway.queues) == {"q", "b", "dead"}


def test_dead_letters_are_diverted_too():
    core = with_queues(
        entry("#", max_delivery_attempts=1, dead_letter_address="dead"), q="q", b="b", dead="dead"
    )
    divert(core, "d", "dead", "b")
    core.send("q", b"1")
    taker = core.consume("q")
    taker.release(failed=True)
    assert counts(core, "dead", "b") == [1, 1]
    (copy,) = core.queue("b").browse(0, 1)
    assert dict(unpack(copy.body)[0])["_AMQ_ORIG_QUEUE"] == "q"


def test_where_nothing_may_be_made_the_copy_is_lost_and_counted():
    core = with_queues(entry("b", auto_create_addresses=False), q="q")
    divert(core, "d", "q", "b")
    core.send("q", b"1")
    assert counts(core, "q") == [1]
    assert core.gateway.branches.diverts["d"].lost == 1
    core.administration.create_queue("b", "b", ANYCAST)
    core.send("q", b"2")
    assert counts(core, "q", "b") == [2, 1]


def test_a_target_that_is_not_there_is_made_as_a_send_would():
    core = with_queues(q="q")
    divert(core, "d", "q", "b")
    core.send("q", b"1")
    assert core.waiting("b") == [b"1"]


def test_a_queue_by_its_full_name_is_neither_source_nor_spared_as_a_target():
    core = with_queues(q="q", b="b", b2="b")
    divert(core, "d", "q", "b::b2")
    core.send("q::q", b"1")
    core.send("q", b"2")
    assert counts(core, "q", "b", "b2") == [2, 0, 1]


def test_a_divert_at_a_wildcard_stands_at_each_address():
    core = with_queues(qa="o.a", all="all")
    divert(core, "d", "o.#", "all")
    core.send("o.a", b"1")
    core.send("o.b", b"2")
    assert core.waiting("all") == [b"1", b"2"]


def test_diverts_come_back_with_a_restart():
    core = with_queues(q="q", b="b")
    divert(core, "d", "q", "b", filter="a = 1 OR JMSPriority = 4")
    core.sync()
    core.restart()
    core.send("q", b"1")
    assert counts(core, "q", "b") == [1, 1]
    core.gateway.branches.delete("d")
    core.sync()
    core.restart()
    core.send("q", b"2")
    assert counts(core, "q", "b") == [2, 1]


def test_an_address_that_is_made_again_has_its_divert_again():
    core = with_queues(q="q", b="b")
    divert(core, "d", "q", "b")
    producer, _ = core.producer("q")
    for name in ("b", "q"):
        core.administration.delete_address(name, force=True)
    producer.send(Run([stomp(b"1")], flags_of()))
    assert counts(core, "q", "b") == [1, 1]
    assert [body_of(m) for m in core.queue("b").browse(0, 1)] == [b"1"]


class Tap:
    """A stream that remembers."""

    stream_id = 1

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def record(self, run, now_ms) -> int:
        self.heard += [unpack(body)[1] for body in run.bodies]
        return 0

    def recorded(self, base, count, ticket) -> None: ...


def test_a_stream_keeps_all_in_order_wherever_it_goes():
    core = with_queues(q="q", b="b")
    divert(core, "high", "q", "b", exclusive=True, filter="JMSPriority > 5")
    core.gateway.addresses["q"].taps = (tap := Tap(),)
    core.gateway.addresses["q"].version += 1
    route, _ = core.producer("q")
    bodies = [stomp(b"%d" % n) for n in range(6)]
    route.send(Run(bodies[:1], flags_of(9)))
    route.send_mixed(MixedRun(bodies[1:], [flags_of(p) for p in (9, 4, 4, 9, 4)], [0] * 5))
    core.turn()
    assert tap.heard == [b"%d" % n for n in range(6)]
    assert counts(core, "q", "b") == [3, 3]
    assert core.gateway.addresses["q"].routed == 6


def test_many_subscribers_of_a_wildcard_change_nothing_for_senders():
    core = with_queues(s1="test.#")
    core.producer("test.a", MULTICAST)
    version, epoch = core.gateway.addresses["test.a"].version, core.gateway.branches.epoch
    takers = [core.consume("test.#", routing=MULTICAST) for _ in range(5)]
    core.send("test.a", b"1", routing=MULTICAST)
    assert [taker.bodies() for taker in takers] == [[b"1"]] * 5
    for taker in takers:
        taker.leave()
    assert (core.gateway.addresses["test.a"].version, core.gateway.branches.epoch) == (
        version,
        epoch,
    )


def test_who_reads_a_wildcard_is_told_where_it_was_sent():
    core = Core()
    reader, writer = Stomp(core), Stomp(core)
    reader.subscribe("/topic/orders.*")
    peer = Amqp.at(core)
    topic = Source(address="orders.#", capabilities=(Symbol("topic"),))
    peer.receiver(source=topic, credit=10)
    peer.sender(address="orders.eu")
    writer.send("/topic/orders.us", "x")
    ((_, message),) = took(peer.more())
    assert scan(message).to == "orders.us"
    ((_, headers, _),) = reader.more()
    assert headers["destination"] == "/topic/orders.us"
    named = b"\x00\x53\x73" + encode([None, None, "orders.eu"]) + plain("y")
    peer.give(named, plain("z"))
    told = [headers["destination"] for _, headers, _ in reader.more()]
    assert told == ["orders.eu", "orders.*"]  # the second one says nothing of it


@pytest.mark.parametrize("where", ["header", "body", "no"])
def test_a_copy_has_each_header_once(where):
    core = with_queues(q="q", b="b")
    divert(core, "d", "q", "b")
    more = [("_AMQ_ORIG_ROUTING_TYPE", "9"), ("k", "v")] if where == "header" else [("k", "v")]
    body = b"_AMQ_ORIG_ADDRESS:x\n\ny" if where == "body" else b"y\n\nz"
    core.producer("q", ANYCAST)[0].send(Run([pack("q", body, headers=more)], flags_of()))
    core.turn()
    (copy,) = core.queue("b").browse(0, 1)
    headers, got = unpack(copy.body)
    assert got == body
    names = [name for name, _ in headers]
    assert len(set(names)) == len(names)
    facts = dict(headers)
    assert (facts["_AMQ_ORIG_ADDRESS"], facts["_AMQ_ORIG_ROUTING_TYPE"], facts["k"]) == (
        "q",
        "1",
        "v",
    )
