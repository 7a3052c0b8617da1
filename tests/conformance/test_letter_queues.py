"""Dead-letter and expiry queues that each address gets for itself, where settings say so."""

from __future__ import annotations

import pytest

from gateway.model.address import RoutingType
from tests.broker.core import ANYCAST, MULTICAST, Core, entry

OWN = {
    "dead_letter_address": "DLA",
    "expiry_address": "EXA",
    "auto_create_dead_letter_resources": True,
    "auto_create_expiry_resources": True,
    "max_delivery_attempts": 1,
}


def own(**settings) -> Core:
    core = Core(entry("#", **{**OWN, **settings}))
    for name in ("q", "it's"):
        core.administration.create_queue(name, name, ANYCAST)
    return core


def die(core: Core, name: str) -> None:
    core.send(name, name.encode())
    taker = core.consume(name)
    taker.release(failed=True)
    taker.leave()
    core.turn()
    core.check()


def test_each_address_has_its_dead_letters_for_itself():
    core = own()
    die(core, "q")
    die(core, "it's")
    die(core, "q")
    assert core.waiting("DLQ.q") == [b"q", b"q"]
    assert core.waiting("DLQ.it's") == [b"it's"]
    queue = core.queue("DLQ.q")
    assert (queue.routing, queue.address, queue.auto_created) == (MULTICAST, "DLA", True)
    assert core.gateway.addresses["DLA"].routing_types == frozenset({RoutingType.MULTICAST})
    assert core.gateway.figures.lost_dead_letters == 0


def test_expired_ones_have_a_queue_of_their_own_too():
    core = own(expiry_queue_prefix="late.", expiry_queue_suffix=".end")
    core.send("q", b"x", ttl=10)
    core.pass_time(10)
    core.gateway.expire()
    assert core.waiting("late.q.end") == [b"x"]
    assert "DLQ.q" not in core.gateway.queues


def test_a_queue_that_is_bound_besides_gets_all():
    core = own()
    core.administration.create_queue("all", "DLA", MULTICAST)
    die(core, "q")
    die(core, "it's")
    assert core.waiting("all") == [b"q", b"it's"]


@pytest.mark.parametrize("clean", [False, True])
def test_it_is_the_same_queue_after_a_restart(clean):
    core = own()
    die(core, "q")
    core.sync()
    core.restart(clean=clean)
    die(core, "it's")
    die(core, "q")
    assert core.waiting("DLQ.q") == [b"q", b"q"]
    assert core.waiting("DLQ.it's") == [b"it's"]


def test_what_came_there_goes_back_from_there():
    core = own()
    die(core, "q")
    assert core.gateway.retry_messages(core.queue("DLQ.q")) == 1
    core.turn()
    assert core.waiting("q") == [b"q"]


def test_without_the_word_none_is_made():
    core = own(auto_create_dead_letter_resources=False)
    die(core, "q")
    assert "DLQ.q" not in core.gateway.queues
    assert core.waiting("DLA") == [b"q"]
