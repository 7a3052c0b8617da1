"""Clauses of AMQP 1.0, part 3.2: the sections of a message, and what a broker may change in it."""

from __future__ import annotations

import pytest

from protocols.amqp.performatives import RELEASED, Modified
from tests.conformance.clauses import BODY, Talk, detach, flow, settle, symbol, text
from tests.protocols.amqp.peer import Frame, fresh

pytestmark = pytest.mark.timeout(60)

DECODE = "rejected 0 amqp:decode-error"


def section(code: int, value: bytes) -> bytes:
    return bytes((0, 0x53, code)) + value


def wide(code: int, value: bytes) -> bytes:
    """Return a section whose descriptor takes eight bytes."""
    return b"\x00\x80" + bytes(7) + bytes([code]) + value


def fields(*items: bytes) -> bytes:
    body = b"".join(items)
    return b"\xc0" + bytes((len(body) + 1, len(items))) + body


def pairs(*items: bytes) -> bytes:
    body = b"".join(items)
    return b"\xc1" + bytes((len(body) + 1, len(items))) + body


NULL, TRUE = b"\x40", b"\x41"
HEADER = section(0x70, fields(TRUE))
PRIORITY = section(0x70, fields(NULL, b"\x50\x07"))
DELIVERY = section(0x71, pairs(symbol("x-hop"), b"\x52\x01"))
MESSAGE = section(0x72, pairs(symbol("x-opt-mine"), text("kept")))
PROPERTIES = section(0x73, fields(text("id"), NULL, text("somewhere")))
APPLICATION = section(0x74, pairs(text("k"), text("v")))
DATA = section(0x75, b"\xa0\x01x")
SEQUENCE = section(0x76, fields(TRUE, text("x")))
VALUE = section(0x77, text("x"))
FOOTER = section(0x78, pairs(symbol("x-sum"), b"\x52\x09"))
BARE = PROPERTIES + APPLICATION + DATA
STRAY = text("string in between message sections")


def received(talk: Talk, said: bytes, **sent: object) -> bytes:
    """Send a message and take it; returns what came."""
    talk.begun().sender()
    talk.says(talk.transfer(said, **sent)).hears("accepted 0")
    talk.receiver(credit=1)
    return whole(talk.hears("transfer 1"))


def whole(came: list[Frame]) -> bytes:
    return b"".join(one.payload for one in came if one.name == "transfer")


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(BARE, id="bare"),
        pytest.param(DATA, id="data"),
        pytest.param(DATA * 3, id="data three times"),
        pytest.param(section(0x75, b"\xb0\0\0\0\x01x"), id="wide data"),
        pytest.param(section(0x75, b"\xa0\x00"), id="empty data"),
        pytest.param(SEQUENCE, id="a sequence"),
        pytest.param(SEQUENCE * 3, id="three sequences"),
        pytest.param(VALUE, id="a value"),
        pytest.param(section(0x77, NULL), id="the value null"),
        pytest.param(section(0x77, b"\x00" + symbol("x:y") + b"\x45"), id="a described value"),
        pytest.param(section(0x77, fields(*[b"\xc0\x01\x00"] * 9)), id="lists in a list"),
        pytest.param(BARE + FOOTER, id="a footer"),
        pytest.param(HEADER + MESSAGE + BARE + FOOTER, id="all that is kept"),
        pytest.param(PRIORITY + BARE, id="a priority"),
        pytest.param(section(0x70, fields(NULL, b"\x50\x63")) + BARE, id="a priority above 9"),
        pytest.param(section(0x70, b"\x45") + BARE, id="an empty header"),
        pytest.param(wide(0x72, pairs()) + wide(0x73, b"\x45") + wide(0x77, NULL), id="wide codes"),
        pytest.param(b"\x00" + symbol("amqp:data:binary") + b"\xa0\x01x", id="a symbolic code"),
        pytest.param(section(0x73, b"\x45") + DATA, id="empty properties"),
        pytest.param(section(0x74, pairs()) + DATA, id="empty application-properties"),
        pytest.param(section(0x73, fields(b"\xa0\x02id")) + DATA, id="a binary message-id"),
        pytest.param(section(0x73, fields(b"\x98" + bytes(16))) + DATA, id="a uuid message-id"),
        pytest.param(section(0x73, fields(b"\x80" + b"\xff" * 8)) + DATA, id="a ulong message-id"),
        pytest.param(
            section(0x72, pairs(b"\x53\x09", text("reserved"))) + DATA, id="a ulong annotation"
        ),
    ],
)
def test_3_2_what_was_sent_comes_as_it_was(talk: Talk, said):
    assert received(talk, said) == fresh(said)


@pytest.mark.parametrize("size", [1, 255, 256, 60_000, 300_000])
def test_3_2_6_a_body_of_any_size_comes_as_it_was(talk: Talk, size):
    said = PROPERTIES + section(0x75, b"\xb0" + size.to_bytes(4, "big") + bytes(size))
    talk.begun().sender()
    parts = [said[i : i + 100_000] for i in range(0, len(said), 100_000)]
    talk.says(talk.transfer(parts[0], more=len(parts) > 1))
    for index, part in enumerate(parts[1:], 2):
        talk.says(talk.further(part, more=index < len(parts)))
    talk.hears("accepted 0")
    talk.receiver(credit=1)
    frames = -(-len(said) // 131_000)
    names = [f"transfer{' 1' * (i == 0)}{' more' * (i < frames - 1)}" for i in range(frames)]
    assert whole(talk.hears(*names)) == fresh(said)


def test_3_2_2_delivery_annotations_are_of_one_hop(talk: Talk):
    assert received(talk, HEADER + DELIVERY + MESSAGE + BARE) == fresh(HEADER + MESSAGE + BARE)


def test_3_2_2_delivery_annotations_without_a_header(talk: Talk):
    assert received(talk, DELIVERY + BARE) == fresh(BARE)


def test_3_2_1_a_message_that_was_given_back_as_failed_tells_it(talk: Talk):
    talk.begun().sender()
    talk.receiver()
    talk.says(talk.transfer(PRIORITY + BARE), flow(1, 1)).hears("accepted 0", "transfer 1")
    talk.says(settle(1, Modified(delivery_failed=True)))
    talk.says(flow(1, 1, delivery_count=1, seen=1))
    again = whole(talk.hears("transfer 2"))
    assert again.endswith(BARE)
    head = again[: -len(BARE)]
    # durable null, priority as it was, no ttl, first-acquirer false, delivery-count 1
    assert head == section(0x70, fields(NULL, b"\x50\x07", NULL, b"\x42", b"\x52\x01"))


def test_3_4_4_a_message_that_was_released_comes_as_it_was(talk: Talk):
    talk.begun().sender()
    talk.receiver()
    talk.says(talk.transfer(PRIORITY + BARE), flow(1, 1)).hears("accepted 0", "transfer 1")
    talk.says(settle(1, RELEASED), flow(1, 1, delivery_count=1, seen=1))
    assert whole(talk.hears("transfer 2")).endswith(BARE)


def test_3_2_1_what_lived_too_long_does_not_come(talk: Talk):
    talk.begun().sender()
    talk.says(talk.transfer(section(0x73, fields(*[NULL] * 8, b"\x83" + bytes(7) + b"\1")) + DATA))
    talk.hears("accepted 0")
    talk.receiver(credit=1)
    talk.says(talk.transfer(BARE, settled=True))
    assert whole(talk.hears("transfer 1")) == fresh(BARE)


# ---- what is no message


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(STRAY, id="a text"),
        pytest.param(STRAY + BARE, id="a text in front"),
        pytest.param(HEADER + STRAY + DELIVERY + VALUE, id="a text behind the header"),
        pytest.param(MESSAGE + STRAY + BARE, id="a text behind the annotations"),
        pytest.param(HEADER + HEADER + BARE, id="two headers"),
        pytest.param(DELIVERY + DELIVERY + BARE, id="two delivery-annotations"),
        pytest.param(MESSAGE + MESSAGE + BARE, id="two message-annotations"),
        pytest.param(MESSAGE + DELIVERY + BARE, id="annotations out of order"),
        pytest.param(DELIVERY + HEADER + BARE, id="a header out of order"),
        pytest.param(section(0x6F, b"\x45") + BARE, id="the section before the first"),
        pytest.param(section(0x79, b"\x45") + BARE, id="the section behind the last"),
        pytest.param(section(0x70, NULL) + BARE, id="a header that is null"),
        pytest.param(section(0x70, pairs()) + BARE, id="a header that is a map"),
        pytest.param(section(0x70, fields(text("yes"))) + BARE, id="a durable that is a text"),
        pytest.param(section(0x70, fields(*[NULL] * 5, TRUE)) + BARE, id="a header of six"),
        pytest.param(section(0x70, b"\xc0\xff\x00"), id="a header cut short"),
        pytest.param(section(0x71, b"\x45") + BARE, id="delivery-annotations that are a list"),
        pytest.param(section(0x72, b"\xc1\xff\x00"), id="message-annotations cut short"),
        pytest.param(b"\x00", id="half a descriptor"),
        pytest.param(b"\x00\x53", id="a descriptor without its code"),
        pytest.param(b"\xff" * 40, id="all bits"),
        pytest.param(bytes(40), id="no bits"),
        pytest.param(b"\x00" + symbol("amqp:nothing:list") + b"\x45", id="an unknown symbol"),
    ],
)
def test_3_2_what_is_no_message_is_rejected_and_the_link_goes_on(talk: Talk, said):
    talk.begun().sender()
    talk.says(talk.transfer(said)).hears(DECODE)
    talk.says(talk.transfer(said[:1], more=True), talk.further(said[1:]))
    talk.hears("rejected 1 amqp:decode-error")
    talk.says(talk.transfer(BARE)).hears("accepted 2")
    talk.receiver(credit=5)
    assert whole(talk.hears("transfer 1")) == fresh(BARE)


def test_3_2_a_settled_message_that_is_none_ends_the_link(talk: Talk):
    talk.begun().sender()
    talk.says(talk.transfer(HEADER + STRAY + DELIVERY + VALUE, settled=True))
    came = talk.hears("detach amqp:decode-error")
    assert came[-1].performative.closed
    talk.says(detach(0))
    talk.sender()
    talk.says(talk.transfer(BARE)).hears("accepted 1")
    talk.receiver(credit=5)
    assert whole(talk.hears("transfer 1")) == fresh(BARE)


def test_3_2_messages_around_one_that_is_none_are_taken(talk: Talk):
    """In one piece, so that they are one run, and each is judged by itself."""
    talk.begun().sender()
    said = [MESSAGE + BARE, MESSAGE + STRAY, BARE, MESSAGE + HEADER, MESSAGE + BARE]
    talk.says(talk.transfer(MESSAGE + BARE), *[talk.transfer(one) for one in said])
    rejected = [f"rejected {i} amqp:decode-error" for i in (2, 4)]
    talk.hears("accepted 0", "accepted 1", rejected[0], "accepted 3", rejected[1], "accepted 5")


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(PROPERTIES, id="no body"),
        pytest.param(FOOTER, id="only a footer"),
        pytest.param(section(0x73, b"\xc0\xff\x00"), id="properties cut short"),
        pytest.param(section(0x73, fields(TRUE)) + DATA, id="a message-id that is a boolean"),
        pytest.param(section(0x74, b"\xc1\xff\x00"), id="application-properties cut short"),
        pytest.param(section(0x75, b"\xa0\xff"), id="data cut short"),
        pytest.param(DATA + VALUE, id="data and a value"),
        pytest.param(VALUE + VALUE, id="two values"),
        pytest.param(APPLICATION + PROPERTIES + DATA, id="properties out of order"),
        pytest.param(DATA + STRAY, id="a text behind the body"),
        pytest.param(BODY + b"\x00", id="half a descriptor behind the body"),
    ],
)
def test_3_2_what_lies_from_the_properties_on_is_for_its_receiver(talk: Talk, said):
    """A broker that read all of each message would be slower for those that are right."""
    assert received(talk, said) == (fresh(said) if said else b"")


def test_2_7_3_a_message_above_the_size_of_the_link_ends_it(engine_talk: Talk):
    talk = engine_talk
    talk.begun()
    most = talk.sender().max_message_size
    assert most
    part = bytes(130_000)
    talk.says(talk.transfer(BARE, more=True))
    talk.says(*[talk.further(part, more=True) for _ in range(most // len(part) + 1)])
    talk.hears("detach amqp:link:message-size-exceeded")


def test_2_7_3_a_message_above_the_size_that_a_receiver_takes_ends_its_link(talk: Talk):
    talk.begun().sender()
    talk.says(talk.transfer(BARE, settled=True))
    talk.receiver(credit=1, max_message_size=len(BARE) - 1)
    talk.hears("detach amqp:link:message-size-exceeded")
    talk.says(detach(1))
    talk.receiver(2, credit=1, max_message_size=len(BARE))
    assert whole(talk.hears("transfer 1")) == BARE  # what it would say makes it too large
