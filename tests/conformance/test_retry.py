"""Dead letters go back where they came from: row M5, and the first origin that stays."""

from __future__ import annotations

import pytest

from gateway.addresses.settings import FullPolicy
from gateway.broker.directory.origin import origin_of
from gateway.model.message import DURABLE, EXPIRES
from gateway.model.run import Run
from gateway.model.sections import peek, with_annotations
from gateway.model.stomp_form import unpack
from tests.broker.core import ANYCAST, MULTICAST, Core, body_of, entry

AMQP_BODY = b"\x00\x53\x77\xa1\x01x"


def dying(**settings) -> Core:
    """A core whose messages die at the first failed attempt; all queues are there."""
    core = Core(
        entry("#", max_delivery_attempts=1, dead_letter_address="dead", expiry_address="late"),
        entry("dead", max_delivery_attempts=-1, **settings),
    )
    for name in ("q", "dead", "late"):
        core.administration.create_queue(name, name, ANYCAST)
    return core


def die(core: Core, name: str = "q") -> None:
    taker = core.consume(name)
    taker.release(failed=True)
    taker.leave()
    core.turn()


def retry(core: Core, name: str = "dead") -> int:
    count = core.gateway.retry_messages(core.queue(name))
    core.turn()
    core.check()
    return count


def test_m5_back_on_the_first_queue_without_its_origin():
    core = dying()
    core.send("q", b"1", b"2", priority=7)
    before = [m.body for m in core.queue("q").browse(0, 9)]
    die(core)
    assert core.waiting("dead") == [b"1", b"2"]
    assert retry(core) == 2
    back = core.queue("q").browse(0, 9)
    assert [m.body for m in back] == before
    assert [m.priority for m in back] == [7, 7]
    assert core.queue("dead").message_count == 0
    assert core.queue("dead").acknowledged == 2


def test_m5_an_amqp_message_is_the_same_bytes_again():
    core = dying()
    sent = with_annotations(AMQP_BODY, {"x-own": 1})
    route, _ = core.producer("q")
    route.send(Run([sent], 4 | DURABLE))
    core.turn()
    die(core)
    (letter,) = core.queue("dead").browse(0, 1)
    facts = {str(k): v for k, v in peek(letter.body).message_annotations.items()}
    assert facts["x-opt-ORIG-ADDRESS"] == facts["x-opt-ORIG-QUEUE"] == "q"
    assert retry(core) == 1
    (back,) = core.queue("q").browse(0, 1)
    assert back.body == sent


@pytest.mark.parametrize("amqp", [False, True])
def test_the_first_origin_stays_over_a_second_move(amqp):
    core = dying()
    expires = core.now + 10
    if amqp:
        core.producer("q")[0].send(Run([AMQP_BODY], 4 | EXPIRES, expires))
    else:
        core.send("q", b"x", ttl=10)
    core.pass_time(10)
    core.gateway.expire()
    (late,) = core.queue("late").browse(0, 1)
    assert origin_of(late) == ("q", "q")
    assert (b"ACTUAL-EXPIRY" if amqp else b"_AMQ_ACTUAL_EXPIRY") in late.body
    die(core, "late")
    (dead,) = core.queue("dead").browse(0, 1)
    assert origin_of(dead) == ("q", "q")
    assert retry(core) == 1
    (back,) = core.queue("q").browse(0, 1)
    assert origin_of(back) is None
    assert b"ORIG" not in back.body
    assert b"EXPIRY" not in back.body


def test_of_a_topic_only_the_queue_where_it_died_gets_it_back():
    core = dying()
    for name in ("a", "b"):
        core.administration.create_queue(name, "t", MULTICAST)
    core.send("t", b"x")
    die(core, "t::a")
    assert retry(core) == 1
    assert core.waiting("a") == core.waiting("b") == [b"x"]


def test_what_did_not_come_from_elsewhere_stays():
    core = dying()
    core.send("dead", b"own")
    core.send("q", b"x")
    die(core)
    assert retry(core) == 1
    assert core.waiting("dead") == [b"own"]
    assert core.waiting("q") == [b"x"]


def test_what_has_no_way_back_stays():
    core = Core(
        entry("#", max_delivery_attempts=1, dead_letter_address="dead"),
        entry("dead", max_delivery_attempts=-1),
        entry("q", auto_create_queues=False, auto_create_addresses=False),
    )
    for name in ("q", "dead"):
        core.administration.create_queue(name, name, ANYCAST)
    core.send("q", b"x")
    die(core)
    core.administration.delete_queue("q")
    assert retry(core) == 0
    assert core.waiting("dead") == [b"x"]


def test_a_full_way_back_keeps_the_rest():
    core = Core(
        entry("#", max_delivery_attempts=1, dead_letter_address="dead"),
        entry("q", max_size_messages=2, address_full_policy=FullPolicy.FAIL),
    )
    for name in ("q", "dead"):
        core.administration.create_queue(name, name, ANYCAST)
    core.send("q", b"1", b"2")
    die(core)
    core.send("q", b"new")
    assert retry(core) == 1
    assert core.waiting("q") == [b"new", b"1"]
    assert core.waiting("dead") == [b"2"]


def test_a_retry_is_in_one_place_at_any_time():
    core = dying()
    core.send("q", b"1", b"2")
    die(core)
    core.sync()
    before = len(core.store.batches)
    retry(core)
    core.sync()
    for batches in range(before, len(core.store.batches) + 1):
        _, held, _ = core.store.kept(batches)
        bodies = [unpack(body)[1] for queue in held.values() for body, *_ in queue.values()]
        assert sorted(bodies) == [b"1", b"2"], batches


def test_retried_it_is_delivered_as_new():
    core = dying()
    core.send("q", b"x")
    die(core)
    retry(core)
    taker = core.consume("q")
    assert [(body_of(m), m.delivery_count) for m in taker.got] == [(b"x", 0)]


def test_a_retry_asks_the_filter_of_the_queue_it_goes_back_to():
    core = dying()
    core.send("q", b"1")
    core.send("q", b"2", priority=9)
    die(core)
    core.administration.update_queue("q", selector="JMSPriority = 9")
    assert retry(core) == 1
    assert core.waiting("q") == [b"2"]
    assert core.waiting("dead") == [b"1"]
