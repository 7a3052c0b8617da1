"""What is no message [AMQP 3.2], and what is only odd."""

from __future__ import annotations

import pytest

from protocols.amqp.performatives import Source
from tests.protocols.amqp.peer import Peer, condition
from tests.protocols.amqp.test_incoming import (
    BODY,
    accepted,
    linked,
    rejected,
    rejections,
)

HEADER = b"\x00\x53\x70\xc0\x02\x01\x41"
DELIVERY = b"\x00\x53\x71\xc1\x01\x00"
ANNOTATIONS = b"\x00\x53\x72\xc1\x01\x00"
STRAY = b"\xa1\x05stray"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(HEADER, id="no body"),
        pytest.param(HEADER + b"\x00\x53\x73\xc0\x60\x01\x40", id="properties cut short"),
        pytest.param(b"\x00\x53\x75\xa0\xffx", id="data cut short"),
        pytest.param(ANNOTATIONS + BODY + STRAY, id="something behind the body"),
        pytest.param(HEADER + BODY + b"\x00\x53\x77\x40", id="two kinds of body"),
    ],
)
@pytest.mark.parametrize("count", [1, 2])
def test_what_lies_from_the_properties_on_is_the_receivers_business(body, count):
    peer = linked()
    came = peer.say(b"".join(peer.transfer(body) for _ in range(count))) + peer.sync()
    assert accepted(came) == [(0, count - 1)]
    assert peer.broker.bodies() == [body] * count


NO_MESSAGES = [
    pytest.param(b"\x00", id="half a descriptor"),
    pytest.param(b"junk", id="text"),
    pytest.param(b"\x00\x53\x99\x45", id="an unknown section"),
    pytest.param(b"\x00\x53\x70\xc0\xff\x05", id="a header cut short"),
    pytest.param(b"\x00\x53\x70\xc0\x04\x01\xa1\x01x" + BODY, id="a header with a text"),
    pytest.param(HEADER + STRAY + BODY, id="a text behind the header"),
    pytest.param(HEADER + STRAY + DELIVERY + BODY, id="a text before the annotations"),
    pytest.param(DELIVERY + STRAY + BODY, id="a text behind the delivery-annotations"),
    pytest.param(ANNOTATIONS + STRAY + BODY, id="a text behind the message-annotations"),
    pytest.param(HEADER + HEADER + BODY, id="two headers"),
    pytest.param(ANNOTATIONS + HEADER + BODY, id="a header behind annotations"),
    pytest.param(ANNOTATIONS + DELIVERY + BODY, id="annotations in the wrong order"),
    pytest.param(ANNOTATIONS + ANNOTATIONS + BODY, id="annotations twice"),
    pytest.param(b"\x00\x53\x71\x45" + BODY, id="annotations that are a list"),
]


@pytest.mark.parametrize("body", NO_MESSAGES)
@pytest.mark.parametrize("together", [False, True])
def test_a_stray_section_is_rejected_and_its_neighbours_are_taken(body, together):
    peer = linked()
    peer.say(peer.transfer(ANNOTATIONS + BODY))  # a shape that looks into each message
    frames = [peer.transfer(one) for one in (BODY, ANNOTATIONS + BODY, body, body, BODY)]
    came = [one for said in ([b"".join(frames)] if together else frames) for one in peer.say(said)]
    assert rejected(came) == [(3, 3, "amqp:decode-error"), (4, 4, "amqp:decode-error")]
    assert "AMQP 3.2" in rejections(came)[0].description
    assert {i for a, b in accepted(came) for i in range(a, b + 1)} == {1, 2, 5}
    assert len(peer.broker.sent) == 4
    assert peer.engine.sessions[0].links[0].delivery_count == 6


@pytest.mark.parametrize("body", NO_MESSAGES)
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("outcomes", [(), ("amqp:accepted:list",)])
def test_a_stray_section_that_cannot_be_rejected_ends_the_link(body, together, outcomes):
    peer = Peer.begun()
    peer.sender(source=Source(outcomes=outcomes))
    settled = not outcomes
    peer.say(peer.transfer(ANNOTATIONS + BODY, settled=settled))
    frames = [peer.transfer(one, settled=settled) for one in (BODY, ANNOTATIONS + BODY, body, BODY)]
    came = [one for said in ([b"".join(frames)] if together else frames) for one in peer.say(said)]
    assert condition(came) == "detach amqp:decode-error"
    assert len(peer.broker.sent) == 3
    assert rejected(came) == []
