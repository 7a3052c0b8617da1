"""`send-to-dla-on-no-route`: what a client sends and no queue wants is a dead letter."""

from __future__ import annotations

import pytest

from gateway.addresses.settings import FullPolicy
from gateway.model.amqp_types import Symbol
from gateway.model.errors import Code, Refusal
from gateway.model.run import Run
from protocols.amqp.performatives import Accepted
from tests.broker.core import ANYCAST, MULTICAST, Core, body_of, entry, flags_of, stomp
from tests.conformance.clients import Amqp, Stomp, plain, read


def core_of(**more) -> Core:
    return Core(
        entry("#", send_to_dla_on_no_route=True, default_address_routing_type=MULTICAST, **more),
        entry("DLQ", default_address_routing_type=ANYCAST),
    )


def letters(core: Core) -> list:
    return core.queue("DLQ").browse(0, 100) if "DLQ" in core.gateway.queues else []


def test_an_amqp_message_without_a_queue_is_a_dead_letter():
    core = core_of()
    peer = Amqp.at(core)
    peer.sender(address="nobody")
    outcomes = peer.give(plain("x", durable=True), plain("y"))
    assert [type(o) for o in outcomes] == [Accepted, Accepted]
    assert core.gateway.addresses["nobody"].unrouted == 2
    one, two = letters(core)
    annotations = read(one.body).message_annotations
    assert annotations[Symbol("x-opt-ORIG-ADDRESS")] == "nobody"
    assert Symbol("x-opt-ORIG-QUEUE") not in annotations
    assert (read(one.body).data(), read(two.body).data()) == (b"x", b"y")
    core.check()
    core.restart()
    # What was confirmed is there, as lasting as it was sent.
    assert [read(m.body).data() for m in letters(core)] == [b"x"]


def test_a_stomp_message_too_and_its_receipt_waits_for_the_disk():
    core = core_of(auto_create_dead_letter_resources=True)
    client = Stomp(core)
    client.session.receive_data(b"SEND\ndestination:/topic/no\nreceipt:r\n\nhello\0", client.now)
    core.turn()
    assert client.session.data_to_send() == b""
    assert [name for name, _, _ in client.more()] == ["RECEIPT"]
    (letter,) = core.queue("DLQ.no").browse(0, 9)
    assert b"_AMQ_ORIG_ADDRESS:no\n" in letter.body
    assert body_of(letter) == b"hello"
    core.check()


def test_only_where_it_is_set_and_not_of_the_gateways_own():
    core = Core(entry("#", default_address_routing_type=MULTICAST))
    core.send("nobody", b"x")
    assert (letters(core), core.gateway.addresses["nobody"].unrouted) == ([], 1)
    # The dead-letter address itself has nobody here: lost and counted, not sent in a circle.
    core = Core(entry("#", send_to_dla_on_no_route=True, default_address_routing_type=MULTICAST))
    core.send("nobody", b"x", b"y")
    assert core.gateway.figures.lost_dead_letters == 2
    core.send("DLQ", b"z")
    assert core.gateway.figures.lost_dead_letters == 3
    core.check()


def test_what_a_filter_keeps_out_and_what_would_go_to_pages():
    core = core_of(address_full_policy=FullPolicy.PAGE, max_size_messages=2)
    core.administration.create_queue("red", "t", MULTICAST, selector="AMQPriority = 9")
    core.send("t", *[b"%d" % n for n in range(6)], priority=9)
    assert core.queue("red").paged_count == 4
    core.send("t", b"blue", priority=4)
    core.sync()
    assert [body_of(m) for m in letters(core)] == [b"blue"]
    assert core.queue("red").message_count == 6
    core.check()


@pytest.mark.parametrize("commit", [False, True])
def test_in_a_transaction(commit):
    core = core_of()
    route, _ = core.producer("nobody")
    work = core.gateway.begin()
    work.send(route, Run((stomp(b"x"),), flags_of()))
    assert letters(core) == []
    if commit:
        ticket = work.commit()
        assert ticket == core.store.ticket
    else:
        work.rollback()
    core.sync()
    assert [body_of(m) for m in letters(core)] == ([b"x"] if commit else [])
    core.check()


def test_a_full_dead_letter_address_loses_and_counts():
    core = Core(
        entry("#", send_to_dla_on_no_route=True, default_address_routing_type=MULTICAST),
        entry(
            "DLQ",
            default_address_routing_type=ANYCAST,
            address_full_policy=FullPolicy.FAIL,
            max_size_messages=1,
        ),
    )
    assert core.send("nobody", b"x", b"y") == [True, True]
    assert [body_of(m) for m in letters(core)] == [b"x"]
    assert core.gateway.figures.lost_dead_letters == 1
    core.gateway.pressure.disk.set(Refusal(code=Code.DISK_FULL, text="full", transient=True))
    assert core.send("nobody", b"z") == [False]
    core.check()
