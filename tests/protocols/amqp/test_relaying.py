"""Links without a target: each message says where it goes, and hears when that is nowhere."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gateway.model.address import RoutingType
from gateway.model.errors import Code, Refusal
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.performatives import Detach, Flow, Source, Target
from tests.protocols.amqp.peer import Peer, condition, of
from tests.protocols.amqp.test_incoming import (
    BODY,
    SMALL,
    accepted,
    refusals,
    rejected,
    rejections,
)


def to(address: str | None, annotation: bytes = b"") -> bytes:
    """Return a message whose properties have `to`."""
    if address is None:
        return annotation + BODY
    raw = address.encode()
    properties = b"\x40\x40\xa1" + bytes([len(raw)]) + raw
    head = bytes([len(properties) + 1, 3])
    return annotation + b"\x00\x53\x73\xc0" + head + properties + BODY


def jms_dest(kind: int) -> bytes:
    return b"\x00\x53\x72\xc1\x13\x02\xa3\x0ex-opt-jms-dest\x51" + bytes([kind])


@pytest.mark.parametrize("address", [None, ""])
def test_anonymous_messages_go_where_they_say(address):
    peer = Peer.begun()
    peer.sender(target=Target(address=address))
    data = [to("a"), to("b"), to("a")]
    came = peer.say(b"".join(map(peer.transfer, data)))
    assert accepted(came) == [(0, 2)]
    assert [one[0] for one in peer.broker.sent] == ["a", "b", "a"]
    assert peer.broker.bodies() == data
    assert len(peer.broker.producers) == 2
    peer.tell(Detach(handle=0))
    assert all(producer.closed for producer in peer.broker.producers)


@pytest.mark.parametrize(
    ("kind", "routing"),
    [
        (0, RoutingType.ANYCAST),
        (1, RoutingType.MULTICAST),
        (2, RoutingType.ANYCAST),
        (3, RoutingType.MULTICAST),
        (9, None),
    ],
)
def test_jms_annotation_names_the_routing_type(kind, routing):
    peer = Peer.begun()
    peer.sender(address=None)
    assert accepted(peer.say(peer.transfer(to("a", jms_dest(kind))))) == [(0, 0)]
    assert peer.broker.of("open producer") == [("a", routing)]


def routing_type(kind: int) -> bytes:
    return b"\x00\x53\x72\xc1\x17\x02\xa3\x12x-opt-routing-type\x51" + bytes([kind])


@pytest.mark.parametrize(
    ("kind", "routing"),
    [(0, RoutingType.MULTICAST), (1, RoutingType.ANYCAST), (2, None)],
)
def test_an_anonymous_message_names_its_routing_type(kind, routing):
    peer = Peer.begun()
    peer.sender(address=None)
    assert accepted(peer.say(peer.transfer(to("a", routing_type(kind))))) == [(0, 0)]
    assert peer.broker.of("open producer") == [("a", routing)]


def test_the_routing_types_annotation_goes_before_that_of_jms_and_a_prefix_before_both():
    limits = AmqpLimits(prefixes=(("queue://", RoutingType.ANYCAST),))
    peer = Peer.begun(limits=limits)
    peer.sender(address=None)
    both = b"\x00\x53\x72\xc1\x29\x04" + routing_type(0)[6:] + jms_dest(0)[6:]
    assert accepted(
        peer.say(peer.transfer(to("a", both)) + peer.transfer(to("queue://b", both)))
    ) == [(0, 1)]
    assert peer.broker.of("open producer") == [
        ("a", RoutingType.MULTICAST),
        ("b", RoutingType.ANYCAST),
    ]


@pytest.mark.parametrize(
    ("body", "error", "text"),
    [
        (to(None), "amqp:invalid-field", "Missing 'to' field"),
        (to(""), "amqp:invalid-field", "Missing 'to' field"),
        (b"junk", "amqp:decode-error", "AMQP 3.2"),
        (to("$sys"), "amqp:invalid-field", "'$sys'"),
    ],
)
@pytest.mark.parametrize("tag", [b"mine", b""])
def test_anonymous_messages_that_lead_nowhere(body, error, text, tag):
    peer = Peer.begun()
    peer.sender(address=None, source=Source(outcomes=("amqp:rejected:list",)))
    came = peer.say(
        peer.transfer(to("a")) + peer.transfer(body, delivery_tag=tag) + peer.transfer(to("a"))
    )
    assert rejected(came) == [(1, 1, error)]
    assert accepted(came) == [(0, 0), (2, 2)]
    (refusal,) = rejections(came)
    assert text in refusal.description
    assert refusal.info["delivery-tag"] == tag
    # One that was settled has no outcome: its link ends, and says why.
    came = peer.say(peer.transfer(body, settled=True, delivery_tag=tag))
    assert condition(came) == f"detach {error}"
    assert of(came, Detach)[0].closed
    assert text in of(came, Detach)[0].error.description
    assert of(came, Detach)[0].error.info["delivery-tag"] == tag


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("wide", [False, True])
def test_the_message_of_a_run_that_led_nowhere_is_named_by_its_tag(settled, wide):
    """Messages before it are taken; what comes behind it on a link that ended is passed over."""
    peer = Peer.begun()
    peer.sender(address=None, source=Source(outcomes=("amqp:accepted:list",)))
    peer.say(peer.transfer(to("a"), settled=settled) * 1)
    bodies = [to("a"), to("a" * (60 if wide else 1)), to("b"), to("$sys"), to("a")]
    tags = [bytes([65 + i]) * 4 for i in range(len(bodies))]
    came = peer.say(
        b"".join(
            peer.transfer(body, settled=settled, delivery_tag=tag)
            for body, tag in zip(bodies, tags, strict=True)
        )
    )
    assert condition(came) == "detach amqp:invalid-field"
    assert of(came, Detach)[0].error.info == {"x-reason": "bad-name", "delivery-tag": b"DDDD"}
    assert len(peer.broker.sent) == 4
    assert accepted(came) == ([] if settled else [(1, 3)])
    assert peer.engine.sessions[0].next_delivery == 6
    # A session goes on, and so may its sender.
    peer.tell(Detach(handle=0, closed=True))
    peer.sender(address=None)
    assert accepted(peer.say(peer.transfer(to("a")))) == [(6, 6)]


def test_many_messages_of_a_run_that_lead_nowhere_have_their_own_tags():
    peer = Peer.begun()
    peer.sender(address=None)
    peer.say(peer.transfer(to("a")))
    came = peer.say(b"".join(peer.transfer(to("$sys" if i % 3 else "a")) for i in range(300)))
    tags = [one.state.error.info["delivery-tag"] for one in refusals(came)]
    assert tags == [(i + 1).to_bytes(4, "big") for i in range(300) if i % 3]


@pytest.mark.parametrize("how", ["rejected", "settled", "not listed"])
def test_a_route_that_leads_nowhere_any_more_is_told_as_one_that_never_did(how):
    peer = Peer.begun()
    outcomes = ("amqp:accepted:list",) if how == "not listed" else ()
    peer.sender(address=None, source=Source(outcomes=outcomes))
    settled = how == "settled"
    peer.say(peer.transfer(to("a"), settled=settled) + peer.transfer(to("b"), settled=settled))
    peer.broker.refusal = Refusal(code=Code.NOT_FOUND, text="Address 'a' does not exist.")
    peer.broker.producers[0].capacity = 0
    tags = {"b": b"B", "a": b"A", "c": b"C"}
    came = peer.say(
        b"".join(peer.transfer(to(x), settled=settled, delivery_tag=tags[x]) for x in tags)
    )
    if how == "rejected":
        (error,) = rejections(came)
        assert accepted(came) == [(2, 2), (4, 4)]
    else:
        assert condition(came) == "detach amqp:not-found"
        error = of(came, Detach)[0].error
        assert [one[0] for one in peer.broker.sent] == ["a", "b", "b"]
    assert error.info == {"x-reason": "not-found", "delivery-tag": b"A"}


def test_one_full_target_leaves_the_others_their_credit():
    peer = Peer.begun(limits=SMALL)
    peer.sender(address=None)
    peer.say(peer.transfer(to("a")) + peer.transfer(to("b")))
    full = peer.broker.producers[0]
    peer.outside(full.block)
    came = peer.say(b"".join(peer.transfer(to(name)) for name in "abbaabbb"))
    assert [(low, high) for low, high, _ in rejected(came)] == [(2, 2), (5, 5), (6, 6)]
    assert {error for *_, error in rejected(came)} == {"amqp:resource-limit-exceeded"}
    assert accepted(came) == [(3, 4), (7, 9)]
    assert [flow.link_credit for flow in of(came, Flow)] == [10]
    peer.outside(full.unblock)
    assert accepted(peer.say(peer.transfer(to("a")))) == [(10, 10)]


def test_routes_of_an_anonymous_link_are_bounded():
    peer = Peer.begun()
    peer.sender(address=None)
    peer.say(b"".join(peer.transfer(to(f"a{i}")) for i in range(200)))
    still = [producer for producer in peer.broker.producers if not producer.closed]
    assert len(still) == 64
    assert len(peer.broker.sent) == 200


def test_the_others_have_a_turn_while_messages_go_many_ways():
    peer = Peer.begun()
    peer.sender(target=Target(address=None))
    peer.say(peer.transfer(to("first")))
    data = b"".join(peer.transfer(to(f"a{n:03}")) for n in range(100))
    peer.engine.spent = lambda: True
    peer.engine.receive_data(data, peer.now)
    taken = []
    while peer.engine.behind:
        taken.append(len(peer.broker.sent))
        peer.engine.go_on(peer.now)
    assert all(after - before <= 32 for before, after in pairwise([1, *taken]))
    assert len(peer.broker.sent) == 101
