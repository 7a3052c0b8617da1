"""Parameters behind an AMQP address: no part of its name, and one of them is a priority."""

from __future__ import annotations

import pytest

from gateway.model.errors import Code, RefusedError
from protocols.amqp.parameters import split_parameters
from protocols.amqp.performatives import Attach, Source, Target
from tests.broker.core import Core
from tests.conformance.clients import Amqp, plain, took
from tests.protocols.amqp.peer import condition, of


@pytest.mark.parametrize(
    ("address", "name", "priority"),
    [
        ("q", "q", None),
        ("q?", "q", None),
        ("q?consumer-priority=10", "q", 10),
        ("a::q?consumer-priority=-3", "a::q", -3),
        ("q?x=1&consumer-priority=%2B7&y", "q", 7),
        ("q?consumer%2Dpriority=%31", "q", 1),
        ("q?consumer-priority=1&consumer-priority=2", "q", 2),
        ("q?max-consumers=abc", "q", None),
        ("q%3Fx=1", "q%3Fx=1", None),
    ],
)
def test_what_an_address_says(address, name, priority):
    assert split_parameters(address) == (name, priority)


@pytest.mark.parametrize("value", ["", "high", "1.5", "0x1", "1 ", "\u0661", "9" * 10, "9" * 5000])
def test_a_priority_that_is_no_number_is_refused(value):
    with pytest.raises(RefusedError, match="consumer-priority") as caught:
        split_parameters(f"q?consumer-priority={value}")
    assert caught.value.refusal.code is Code.BAD_VALUE


def test_a_queue_behind_parameters_is_refused():
    with pytest.raises(RefusedError, match="behind it"):
        split_parameters("a?consumer-priority=1::q")


def test_a_consumer_with_a_priority_in_its_address_is_served_first():
    core = Core()
    low, high, sender = Amqp.at(core), Amqp.at(core), Amqp.at(core)
    came = low.receiver(address="q?consumer-priority=-1&other=x", credit=10)
    (answer,) = of(came, Attach)
    assert answer.source.address == "q?consumer-priority=-1&other=x"
    high.receiver(address="q::q?consumer-priority=5", credit=2)
    sender.sender(address="q?consumer-priority=1")
    sender.give(plain("1"), plain("2"), plain("3"))
    assert [len(took(one.more())) for one in (high, low)] == [2, 1]
    assert list(core.gateway.addresses) == ["q"]


def test_the_link_property_wins_over_the_address():
    core = Core()
    one, two = Amqp.at(core), Amqp.at(core)
    one.receiver(address="q?consumer-priority=9", credit=1, properties={"priority": 1})
    two.receiver(address="q?consumer-priority=5", credit=1)
    core.send("q", b"x")
    assert [len(took(peer.more())) for peer in (one, two)] == [0, 1]


def test_a_priority_that_is_no_number_fails_the_attach_of_either_direction():
    peer = Amqp.at(Core())
    wrong = "q?consumer-priority=high"
    came = peer.receiver(source=Source(address=wrong), properties={"priority": 1})
    assert condition(came) == "detach amqp:invalid-field"
    assert condition(peer.sender(target=Target(address=wrong))) == "detach amqp:invalid-field"
