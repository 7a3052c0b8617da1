"""What a fresh delivery says of itself, and which bytes stay as they came [AMQP 3.2.1]."""

from __future__ import annotations

import random

import pytest

from gateway.model.amqp_types import Described, Symbol, UByte, UInt, ULong, encode
from gateway.model.message import EXPIRES, MAYBE_SEEN, STOMP
from gateway.model.sections import DATA, HEADER, header_facts, header_fields
from protocols.amqp.performatives import Flow, Modified
from tests.protocols.amqp.peer import FRESH, data_message
from tests.protocols.amqp.test_outgoing import bodies, offered, reading, settle

BODY = data_message(b"x")


def header(*fields: object, symbol: str = "") -> bytes:
    return encode(Described(Symbol(symbol) if symbol else ULong(HEADER), list(fields)))


def fields(message: bytes) -> list[object]:
    return header_fields(message[: header_facts(message).end])


def shown(message: bytes, **more: object) -> bytes:
    (body,) = bodies(offered(reading(**more), message))
    return body


@pytest.mark.parametrize(
    ("came", "tells"),
    [
        (b"", [None, None, None, True, None]),
        (header(), [None, None, None, True, None]),
        (header(True), [True, None, None, True, None]),
        (header(False, UByte(200), UInt(7)), [False, 200, 7, True, None]),
        (header(None, UByte(4), None, None, UInt(0)), [None, 4, None, True, None]),
        (header(True, symbol="amqp:header:list"), [True, None, None, True, None]),
        # list32, and the descriptor in eight bytes
        (b"\0\x53\x70\xd0\0\0\0\5\0\0\0\1\x41", [True, None, None, True, None]),
        (b"\0\x80\0\0\0\0\0\0\0\x70\xc0\2\1\x41", [True, None, None, True, None]),
    ],
)
def test_a_fresh_delivery_is_its_readers_alone(came, tells):
    body = shown(came + BODY)
    assert fields(body) == tells
    assert body[header_facts(body).end :] == BODY


@pytest.mark.parametrize(
    "came",
    [
        header(None, None, None, True),
        header(True, None, None, False),
        header(None, None, None, None, UInt(3)),
        b"\0\x53\x70\xc0\x50\x05" + b"\x40" * 0x4F,  # larger than a header is
        b"\0\x53\x70\xc0\2\1\xa3",  # cut short in itself
    ],
)
def test_what_a_sender_says_of_earlier_deliveries_stays(came):
    assert shown(came + BODY) == came + BODY


@pytest.mark.parametrize("message", [b"", b"\0", b"\0\x53\x70", b"\0\x53\x70\xc0", b"no sections"])
def test_what_is_no_message_goes_out_as_it_came(message):
    assert shown(message) == message


def test_a_first_section_with_a_long_descriptor_gets_a_header_before_it():
    message = b"\0\x80\0\0\0\0\0\0\0" + bytes([DATA]) + b"\xa0\1x"
    assert shown(message) == FRESH + message


def test_runs_of_all_kinds_show_what_each_would_alone():
    kinds = [
        BODY,
        header(True) + BODY,
        header(True, UByte(7)) + BODY,
        header(True, None, None, False) + BODY,
        b"\0\x53\x73\xc0\2\1\x40" + BODY,
        b"no sections",
        b"",
    ]
    alone = {kind: shown(kind) for kind in kinds}
    chance = random.Random(8)
    peer = reading(credit=1000)
    for _ in range(60):
        some = chance.sample(kinds, chance.randint(1, 2))
        run = [chance.choice(some) for _ in range(chance.randint(1, 6))]
        assert bodies(offered(peer, *run)) == [alone[message] for message in run]


def test_a_reader_of_small_messages_gets_one_that_only_its_header_would_make_too_large():
    message = data_message(b"x" * 100)
    assert shown(message, max_message_size=len(message)) == message
    assert shown(message, max_message_size=len(message) + len(FRESH) - 1) == message
    assert shown(message, max_message_size=len(message) + len(FRESH)) == FRESH + message


@pytest.mark.parametrize(("flags", "first"), [(EXPIRES, True), (MAYBE_SEEN, False)])
def test_with_a_time_to_live_too_and_never_after_a_crash(flags, first):
    (body,) = bodies(offered(reading(), header(True) + BODY, flags=4 | flags))
    assert header_facts(body).first_acquirer is first


def test_what_stomp_sent_says_so_as_well():
    (body,) = bodies(offered(reading(), b"\n\nx", flags=4 | STOMP))
    assert header_facts(body).first_acquirer


@pytest.mark.parametrize("size", [10, 70_000])
def test_what_waits_for_the_window_is_still_fresh(size):
    peer = reading(credit=None, window=1, max_frame_size=100_000)
    offered(peer, *[data_message(bytes(size))] * 2)
    came = peer.credit(2, incoming_window=1)
    came += peer.tell(
        Flow(next_incoming_id=2, incoming_window=9, next_outgoing_id=0, outgoing_window=1)
    )
    assert [header_facts(body).first_acquirer for body in bodies(came)] == [True, True]


def test_the_second_delivery_does_not():
    peer = reading()
    (first,) = bodies(offered(peer, BODY))
    (again,) = bodies(settle(peer, 1, state=Modified(delivery_failed=True)))
    assert header_facts(first).first_acquirer
    assert not header_facts(again).first_acquirer
