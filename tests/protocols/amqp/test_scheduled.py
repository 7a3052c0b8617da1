"""AMQP senders that say when: x-opt-delivery-time and -delay [semantics: any integer type]."""

from __future__ import annotations

import pytest

from gateway.model.amqp_types import (
    Byte,
    Int,
    Symbol,
    Timestamp,
    UInt,
    ULong,
    encode,
)
from gateway.model.errors import RefusedError
from gateway.model.sections import delivery_time, with_annotations
from protocols.amqp.looking import look_into
from protocols.amqp.performatives import Attach
from tests.protocols.amqp.peer import Peer, of
from tests.protocols.amqp.test_incoming import linked

NOW = 1_000_000
BODY = b"\x00\x53\x77\xa1\x01x"
TIME, DELAY = "x-opt-delivery-time", "x-opt-delivery-delay"


def asking(**annotations) -> bytes:
    named = {name.replace("_", "-"): value for name, value in annotations.items()}
    return with_annotations(BODY, named)


@pytest.mark.parametrize("kind", [Int, int, Timestamp, UInt, ULong])
def test_q16_any_integer_type_will_do(kind):
    assert delivery_time(asking(x_opt_delivery_time=kind(NOW + 5)), 0, NOW) == NOW + 5
    assert delivery_time(asking(x_opt_delivery_delay=kind(5)), 0, NOW) == NOW + 5


def test_a_time_counts_before_a_delay():
    both = asking(x_opt_delivery_delay=50, x_opt_delivery_time=NOW + 9)
    assert delivery_time(both, 0, NOW) == NOW + 9


@pytest.mark.parametrize(
    "annotations",
    [
        {},
        {"x_opt_other": 5},
        {"x_opt_delivery_time": NOW},
        {"x_opt_delivery_time": NOW - 1},
        {"x_opt_delivery_time": -5},
        {"x_opt_delivery_time": "soon"},
        {"x_opt_delivery_time": True},
        {"x_opt_delivery_time": None},
        {"x_opt_delivery_time": ULong(2**64 - 1)},
        {"x_opt_delivery_delay": 0},
        {"x_opt_delivery_delay": Byte(-1)},
        {"x_opt_delivery_delay": 2.5},
        {"x_opt_delivery_delay": ULong(2**63)},
    ],
    ids=repr,
)
def test_what_says_no_time_is_for_now(annotations):
    assert delivery_time(asking(**annotations), 0, NOW) == 0


def test_the_value_of_another_annotation_is_no_name():
    body = with_annotations(BODY, {"x-other": "x-opt-delivery-time"})
    assert delivery_time(body, 0, NOW) == 0


def test_a_body_that_looks_like_an_annotation_is_none():
    body = b"\x00\x53\x75\xa0\x18" + encode(Symbol("x-opt-delivery-time")) + encode(9)
    assert delivery_time(body[: 5 + 0x18], 0, 0) == 0


@pytest.mark.parametrize("delay", [0, 500])
def test_annotations_behind_a_header_and_delivery_annotations(delay):
    header = b"\x00\x53\x70\xc0\x02\x01\x41"
    before = b"\x00\x53\x71\xc1\x05\x02\xa3\x01x\x41"
    body = header + before + asking(x_opt_delivery_delay=delay)
    stored, _, _, due = look_into(body, NOW)
    assert due == (NOW + delay if delay else 0)
    assert before not in stored
    assert stored.endswith(asking(x_opt_delivery_delay=delay))


def test_broken_annotations_are_opaque_and_for_now():
    broken = b"\x00\x53\x72\xc1\x17\x02\xa3\x13x-opt-delivery-time\xff"
    assert look_into(broken, NOW) == (broken, 4, 0, 0)


def test_annotations_that_are_cut_short_are_no_message():
    with pytest.raises(RefusedError, match="cut short"):
        look_into(b"\x00\x53\x72\xc1\x18\x02\xa3\x13x-opt-delivery-time\xff", NOW)


@pytest.mark.parametrize("apart", [False, True])
def test_each_of_a_run_has_its_own_time_and_one_answer(apart):
    peer = linked()
    now = peer.broker.clock_ms
    delays = (50, 0, 70, 0)
    frames = [peer.transfer(asking(x_opt_delivery_delay=delay)) for delay in delays]
    for said in frames if apart else [b"".join(frames)]:
        peer.say(said)
    assert peer.broker.of("due") == [(now + 50,), (now + 70,)]
    assert len(peer.broker.bodies()) == 4
    assert peer.broker.bodies()[0] == asking(x_opt_delivery_delay=50)


def test_a_message_in_several_frames_has_its_time_too():
    peer = linked()
    body = asking(x_opt_delivery_delay=50)
    peer.say(peer.transfer(body[:9], more=True) + peer.transfer(body[9:], delivery_id=None))
    assert peer.broker.of("due") == [(peer.broker.clock_ms + 50,)]
    assert peer.broker.bodies() == [body]


@pytest.mark.parametrize("desired", [(), ("other",), ("other", "DELAYED_DELIVERY")])
def test_a_link_offers_delays_to_who_desires_them(desired):
    came = Peer.begun().sender(0, desired_capabilities=desired)
    wanted = ("DELAYED_DELIVERY",) if "DELAYED_DELIVERY" in desired else ()
    assert of(came, Attach)[0].offered_capabilities == wanted
