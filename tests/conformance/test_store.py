"""Rows of the store and of management that a broker in memory can show, by their numbers.

The journal's own rows are with the journal's tests; scenarios.toml names them.
"""

from __future__ import annotations

import pytest
from proton import Message

from gateway.model.message import MAYBE_SEEN
from tests.broker.core import Core
from tests.conformance.clients import Amqp, Stomp, bodies, took


def test_k2_acknowledged_after_it_was_written():
    core = Core()
    core.send("q", b"m")
    core.sync()
    core.consume("q").ack()
    core.sync()
    core.restart()
    assert core.waiting("q") == []


def test_k3_what_was_never_confirmed_may_be_lost_and_nothing_else():
    core = Core()
    client = Stomp(core)
    client.send("q", "confirmed")
    route, _ = core.producer("q")
    core.send("q", b"dispatched")
    taker = core.consume("q")
    assert taker.bodies() == [b"confirmed", b"dispatched"]
    route.close()
    core.restart()
    assert core.waiting("q") == [b"confirmed"]


@pytest.mark.parametrize("end", ["COMMIT", "nothing"])
def test_k6_a_send_in_a_transaction_is_seen_after_its_commit(end):
    core = Core()
    client, reader = Stomp(core), Stomp(core)
    reader.subscribe("q")
    client.do("BEGIN", transaction="t")
    client.do("SEND", "m", destination="q", transaction="t")
    assert reader.more() == []
    if end == "COMMIT":
        client.do("COMMIT", transaction="t")
        assert bodies(reader.more()) == ["m"]
    core.restart()
    assert all(not queue.message_count for queue in core.gateway.queues.values())


@pytest.mark.parametrize("clean", [True, False])
def test_k18_after_kill_9_what_may_have_been_seen_is_marked(clean):
    core = Core()
    core.send("q", b"m")
    core.sync()
    core.consume("q")
    core.restart(clean=clean)
    (message,) = core.queue("q").browse(0, 9)
    assert bool(message.flags & MAYBE_SEEN) is not clean
    ((_, headers, _),) = Stomp(core).subscribe("q")
    assert headers["redelivered"] == ("false" if clean else "true")


def test_k18_an_amqp_reader_is_told_that_it_may_not_be_the_first():
    core = Core()
    core.send("q", b"m")
    core.sync()
    core.restart()
    peer = Amqp.at(core)
    ((_, sent),) = took(peer.receiver(credit=1) + peer.more())
    message = Message()
    message.decode(sent)
    assert (message.first_acquirer, message.delivery_count) == (False, 1)


def test_m6_a_paused_queue_is_paused_after_a_restart():
    core = Core()
    core.send("q", b"m")
    core.administration.update_queue("q", paused=True)
    core.sync()
    core.restart()
    assert core.queue("q").paused
    taker = core.consume("q")
    assert taker.got == []
    core.administration.update_queue("q", paused=False)
    core.turn()
    assert taker.bodies() == [b"m"]
