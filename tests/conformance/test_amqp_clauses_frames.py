"""Clauses of AMQP 1.0, parts 1 and 2.2-2.4: headers, frames, types, open and close."""

from __future__ import annotations

import pytest

from protocols.amqp.performatives import Close, Error, Open, Source
from tests.conformance.clauses import (
    FALSE,
    NULL,
    TRUE,
    ZERO,
    Talk,
    begin,
    detach,
    encoded,
    end,
    listed,
    symbol,
    text,
    uint,
)
from tests.protocols.amqp.peer import AMQP_HEADER, SASL_HEADER, frame, fresh, raw_frame

pytestmark = pytest.mark.timeout(60)

FRAMING = "close amqp:connection:framing-error"
DECODE = "close amqp:decode-error"
INVALID = "close amqp:invalid-field"
ILLEGAL = "close amqp:illegal-state"
REFUSED = "close amqp:not-allowed"
OPEN = encoded(Open(container_id="c"))


# ---- protocol headers [2.2]


@pytest.mark.parametrize(
    "header",
    [
        b"AMQP\x00\x01\x00\x01",
        b"AMQP\x00\x00\x09\x01",
        b"AMQP\x01\x01\x00\x0a",
        b"AMQP\x02\x01\x00\x00",
        b"AMQP\x04\x01\x00\x00",
        b"AMQP\x03\x01\x00\x01",
    ],
)
def test_2_2_another_header_is_answered_with_one_that_is_spoken_and_the_end(talk: Talk, header):
    talk.says(header).hears("header SASL", "cut")


def test_2_2_a_header_comes_in_pieces(talk: Talk):
    talk.says(AMQP_HEADER[:3]).says(AMQP_HEADER[3:] + frame(OPEN)[:5]).says(frame(OPEN)[5:])
    talk.hears("header AMQP", "open")


def test_2_2_a_second_header_is_no_frame(talk: Talk):
    talk.says(AMQP_HEADER, AMQP_HEADER).hears("header AMQP", "open", FRAMING)


def test_2_4_1_frames_may_be_pipelined_from_the_header_to_the_close(talk: Talk):
    talk.says(
        AMQP_HEADER,
        frame(Open(container_id="c")),
        begin(37),
        frame(talk.sending(), 37),
        talk.transfer(channel=37, settled=True),
        frame(detach(0), 37),
        end(37),
        frame(Close()),
    )
    talk.hears("header AMQP", "open", "begin", "attach", "detach", "end", "close")


# ---- frames [2.3]


@pytest.mark.parametrize(
    ("size", "doff"),
    [(7, 2), (0, 2), (8, 0), (8, 1), (8, 3), (12, 4), (1 << 31, 2), (0xFFFFFFFF, 2)],
)
@pytest.mark.parametrize("before_open", [False, True])
def test_2_3_1_a_frame_whose_size_or_offset_cannot_be_is_a_framing_error(
    talk: Talk, size, doff, before_open
):
    head = raw_frame(b"\0" * 24, size=size, doff=2)
    lying = head[:4] + bytes([doff]) + head[5:]
    if before_open:
        talk.says(AMQP_HEADER, lying).hears("header AMQP", "open", FRAMING)
    else:
        talk.opened().says(lying).hears(FRAMING)


@pytest.mark.parametrize("doff", [2, 3, 10, 255])
def test_2_3_1_an_extended_header_is_ignored(talk: Talk, doff):
    talk.says(AMQP_HEADER, raw_frame(OPEN, doff=doff)).hears("header AMQP", "open")
    body = begin()[8:]
    talk.says(raw_frame(body, doff=doff)).hears("begin")


@pytest.mark.parametrize("kind", [1, 2, 255])
@pytest.mark.parametrize("body", [b"", OPEN], ids=["empty", "open"])
def test_2_3_2_a_frame_of_another_type_is_a_framing_error(talk: Talk, kind, body):
    talk.opened().says(raw_frame(body, kind=kind)).hears(FRAMING)


@pytest.mark.parametrize("channel", [0, 1, 255, 65535])
def test_2_3_2_an_empty_frame_says_only_that_the_peer_is_alive(talk: Talk, channel):
    talk.opened().says(raw_frame(b"", channel=channel) * 3, raw_frame(b"", doff=4)).says(begin())
    talk.hears("begin")


def test_2_4_1_a_frame_of_the_largest_size_and_one_byte_more(talk: Talk):
    most = 131072
    talk.begun().sender()
    room = most - len(talk.transfer(b"", delivery_id=1))
    head = b"\x00\x53\x75\xb0" + (room - 8).to_bytes(4, "big")
    talk.says(talk.transfer(head + bytes(room - 8), delivery_id=1)).hears("accepted 1")
    talk.says(talk.transfer(head + bytes(room - 7))).hears(FRAMING)


# ---- what a frame holds [2.3, 1.1-1.6]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\x40", id="null"),
        pytest.param(b"\x45", id="a list without descriptor"),
        pytest.param(b"\x00\x53\x09\x45", id="an unknown code"),
        pytest.param(b"\x00\xa3\x04open\x45", id="an unknown symbol"),
        pytest.param(b"\x00\x53\x11", id="no value"),
        pytest.param(b"\x00", id="no descriptor"),
        pytest.param(b"\x00\x53\x11\xc1\x01\x00", id="a map"),
        pytest.param(b"\x00\x53\x70\x45", id="a section"),
        pytest.param(b"\x00\x53\x24\x45", id="an outcome"),
        pytest.param(b"\x00\x00\x53\x11\x45\x45", id="a described descriptor"),
        pytest.param(b"\x00\x53\x11\x00\x53\x11\x45", id="described twice"),
    ],
)
def test_2_3_a_frame_that_holds_no_performative(talk: Talk, body):
    talk.opened().says(raw_frame(body)).hears(DECODE)


@pytest.mark.parametrize("code", range(0x40, 0x45))
def test_5_3_a_sasl_performative_in_an_amqp_frame_is_refused(talk: Talk, code):
    bodies = {
        0x40: listed(0x40, symbol("PLAIN")),
        0x41: listed(0x41, symbol("PLAIN")),
        0x42: listed(0x42, b"\xa0\x00"),
        0x43: listed(0x43, b"\xa0\x00"),
        0x44: listed(0x44, b"\x50\x00"),
    }
    talk.opened().says(raw_frame(bodies[code])).hears(FRAMING)


WINDOWS = (ZERO, uint(9), uint(9))


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        pytest.param((NULL, *WINDOWS), "begin", id="shortest"),
        pytest.param((NULL, *WINDOWS, *[NULL] * 4), "begin", id="nulls"),
        pytest.param((NULL, *WINDOWS, *[NULL] * 9), "begin", id="more nulls than fields"),
        pytest.param((NULL, *WINDOWS, *[NULL] * 4, TRUE), DECODE, id="more values than fields"),
        pytest.param((NULL, *WINDOWS[:2]), INVALID, id="a mandatory field is missing"),
        pytest.param((NULL, NULL, uint(1), uint(1)), INVALID, id="a mandatory field is null"),
        pytest.param((NULL, text("1"), uint(1), uint(1)), DECODE, id="a text for a number"),
        pytest.param((NULL, b"\x71\0\0\0\1", uint(1), uint(1)), DECODE, id="an int for a uint"),
        pytest.param((NULL, b"\x80" + bytes(8), uint(1), uint(1)), DECODE, id="a ulong"),
        pytest.param((NULL, *WINDOWS, text("1")), DECODE, id="a text for handle-max"),
        pytest.param((NULL, *WINDOWS, NULL, text("x")), DECODE, id="a text for a symbol"),
        pytest.param((NULL, *WINDOWS, NULL, symbol("x")), "begin", id="one symbol for many"),
        pytest.param(
            (NULL, *WINDOWS, NULL, b"\xe0\x06\x02\xa3\x01x\x01y"), "begin", id="an array of symbols"
        ),
        pytest.param(
            (NULL, *WINDOWS, NULL, b"\xe0\x06\x02\xa1\x01x\x01y"), DECODE, id="an array of texts"
        ),
        pytest.param(
            (NULL, *WINDOWS, NULL, b"\xc0\x07\x02\xa3\x01x\xa3\x01y"),
            DECODE,
            id="a list of symbols",
        ),
        pytest.param(
            (NULL, *WINDOWS, NULL, NULL, NULL, b"\xc1\x04\x01\xa3\x01k"), DECODE, id="a map of one"
        ),
        pytest.param(
            (NULL, *WINDOWS, NULL, NULL, NULL, b"\xc1\x05\x02\xa1\x01k\x41"),
            DECODE,
            id="a text as a key of fields",
        ),
        pytest.param(
            (NULL, *WINDOWS, NULL, NULL, NULL, b"\xc1\x05\x02\xa3\x01k\x41"), "begin", id="fields"
        ),
    ],
)
def test_1_3_4_the_fields_of_a_composite(talk: Talk, fields, answer):
    talk.opened().says(raw_frame(listed(0x11, *fields))).hears(answer)


def properties(*pairs: bytes) -> bytes:
    """Return a begin with properties of one key, whose value is these bytes."""
    items = b"".join(symbol(f"k{i}") + value for i, value in enumerate(pairs))
    count = (2 * len(pairs)).to_bytes(4, "big")
    fields = b"\xd1" + (len(items) + 4).to_bytes(4, "big") + count + items
    return raw_frame(listed(0x11, NULL, *WINDOWS, NULL, NULL, NULL, fields))


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"\x56\x01", id="boolean in a byte"),
        pytest.param(b"\x50\xff", id="ubyte"),
        pytest.param(b"\x60\xff\xff", id="ushort"),
        pytest.param(b"\x44", id="ulong 0"),
        pytest.param(b"\x51\x80", id="byte"),
        pytest.param(b"\x55\xff", id="smalllong"),
        pytest.param(b"\x72\x7f\xc0\0\0", id="float NaN"),
        pytest.param(b"\x82" + bytes(8), id="double"),
        pytest.param(b"\x74" + bytes(4), id="decimal32"),
        pytest.param(b"\x84" + bytes(8), id="decimal64"),
        pytest.param(b"\x94" + bytes(16), id="decimal128"),
        pytest.param(b"\x73\x00\x01\xf6\x00", id="char"),
        pytest.param(b"\x83" + b"\xff" * 8, id="timestamp before 1970"),
        pytest.param(b"\x98" + bytes(16), id="uuid"),
        pytest.param(b"\xa0\x00", id="empty binary"),
        pytest.param(b"\xb0\0\0\0\0", id="empty binary, wide"),
        pytest.param(text("\u20ac\U0001f600"), id="UTF-8"),
        pytest.param(text("a\0b"), id="a NUL in a text"),
        pytest.param(b"\x45", id="empty list"),
        pytest.param(b"\xc0\x01\x00", id="empty list in list8"),
        pytest.param(b"\xe0\x02\x00\x41", id="an array of no booleans"),
        pytest.param(b"\xe0\x03\x01\x56\x01", id="an array of one boolean"),
        pytest.param(b"\xf0\0\0\0\x08\0\0\0\x03\x50\x01\x02\x03", id="array32"),
        pytest.param(b"\x00\xa3\x01d\x00\xa3\x01e\xa1\x01x", id="described twice"),
        pytest.param(b"\x00\xc0\x03\x01\x52\x01\x40", id="a list as descriptor"),
        pytest.param(b"\xc1\x0a\x02\x52\x01\xc1\x05\x02\x52\x02\xa0\x00", id="map in a map"),
    ],
)
def test_1_6_every_type_is_read_where_anything_may_stand(talk: Talk, value):
    talk.opened().says(properties(value, b"\x41")).hears("begin")


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"\x56\x02", id="a boolean of 2"),
        pytest.param(text(b"\xff"), id="no UTF-8"),
        pytest.param(text(b"\xc0\x80"), id="an overlong NUL"),
        pytest.param(text(b"\xed\xa0\x80"), id="a surrogate"),
        pytest.param(text(b"\xe2\x82"), id="a character cut short"),
        pytest.param(symbol("\u00e9"), id="a symbol beyond ASCII"),
        pytest.param(symbol(b"\x80"), id="a symbol with a high bit"),
        pytest.param(b"\x73\x00\x11\x00\x00", id="a char above Unicode"),
        pytest.param(b"\x73\x00\x00\xd8\x00", id="a char that is a surrogate"),
        pytest.param(b"\xc1\x02\x01\x40", id="a map with an odd count"),
        pytest.param(b"\xc1\x06\x03\x52\x01\x40\x52\x02", id="a map of three"),
        pytest.param(b"\xc0\x05\x02\x40", id="a list whose size lies"),
        pytest.param(b"\xc0\x02\x09\x40", id="a list whose count lies"),
        pytest.param(b"\xc0\x03\x01\x40\x40", id="a list with something left over"),
        pytest.param(b"\xd0\x00\x00\x00\x01\x00", id="a list32 without room for its count"),
        pytest.param(b"\xd0\xff\xff\xff\xff\xff\xff\xff\xff", id="a list of 4 GiB"),
        pytest.param(b"\xb1\xff\xff\xff\xff", id="a text of 4 GiB"),
        pytest.param(b"\xf0\0\0\0\x05\xff\xff\xff\xff\x40", id="4,294,967,295 nulls"),
        pytest.param(b"\xf0\0\0\0\x05\xff\xff\xff\xff\x45", id="4,294,967,295 empty lists"),
        pytest.param(b"\xe0\x04\x02\x60\x00\x01", id="an array whose count lies"),
        pytest.param(b"\xe0\x01\x00", id="an array without constructor"),
        pytest.param(b"\x00\x53", id="half a descriptor"),
        pytest.param(b"\x99", id="an unknown constructor"),
        pytest.param(b"\xff" * 8, id="all bits"),
        pytest.param(b"\xc0\x01\x00\x01", id="a byte too many"),
    ],
)
def test_1_6_a_value_that_is_none_is_a_decode_error(talk: Talk, value):
    talk.opened().says(properties(value)).hears(DECODE)


def test_1_6_24_a_large_array_of_a_small_type_is_read(talk: Talk):
    """Up to the limit on what a field of a performative may take, whose text says so."""
    size, count = (5 + 4000).to_bytes(4, "big"), (4000).to_bytes(4, "big")
    array = b"\xf0" + size + count + b"\x50" + bytes(4000)
    talk.opened().says(properties(array)).hears("begin")


def test_1_6_a_field_above_its_limit_is_refused(talk: Talk):
    talk.opened().says(properties(b"\xb0" + (9000).to_bytes(4, "big") + bytes(9000))).hears(INVALID)


def test_1_2_descriptors_may_be_symbols_and_wide_numbers(talk: Talk):
    opening = listed(0x10, text("c"))
    talk.says(AMQP_HEADER, raw_frame(b"\x00\xa3\x0eamqp:open:list" + opening[3:]))
    talk.hears("header AMQP", "open")
    talk.says(raw_frame(b"\x00\x80" + bytes(7) + b"\x11" + begin()[11:])).hears("begin")


# ---- open [2.7.1]


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        pytest.param(listed(0x10), INVALID, id="no container-id"),
        pytest.param(listed(0x10, NULL), INVALID, id="container-id null"),
        pytest.param(listed(0x10, text("")), REFUSED, id="container-id empty"),
        pytest.param(listed(0x10, symbol("c")), DECODE, id="container-id a symbol"),
        pytest.param(listed(0x10, text(b"\xff")), DECODE, id="container-id no UTF-8"),
        pytest.param(listed(0x10, text("c"), NULL, ZERO), FRAMING, id="max-frame-size 0"),
        pytest.param(listed(0x10, text("c"), NULL, uint(511)), FRAMING, id="max-frame-size 511"),
        pytest.param(listed(0x10, text("c"), NULL, uint(512)), "", id="max-frame-size 512"),
        pytest.param(listed(0x10, text("c"), NULL, NULL, NULL, ZERO), "", id="idle-time-out 0"),
        pytest.param(
            listed(0x10, text("c"), NULL, NULL, NULL, uint(10)), REFUSED, id="idle-time-out 10 ms"
        ),
        pytest.param(listed(0x10, text("c"), text("vhost")), "", id="a hostname"),
        pytest.param(listed(0x11, NULL, ZERO, uint(1), uint(1)), ILLEGAL, id="a begin"),
        pytest.param(encoded(Close()), ILLEGAL, id="a close"),
    ],
)
def test_2_7_1_what_an_open_says(talk: Talk, said, answer):
    talk.says(AMQP_HEADER, raw_frame(said)).hears("header AMQP", "open", *filter(None, [answer]))


@pytest.mark.parametrize("channel", [1, 65535])
def test_2_4_1_the_open_is_on_channel_0(talk: Talk, channel):
    talk.says(AMQP_HEADER, raw_frame(OPEN, channel=channel)).hears("header AMQP", "open", FRAMING)


def test_2_4_1_a_connection_is_opened_once(talk: Talk):
    talk.opened().says(raw_frame(OPEN)).hears(ILLEGAL)


def test_2_7_1_no_channel_above_the_channel_max_of_the_peer_is_asked_for(talk: Talk):
    talk.opened(channel_max=0).says(begin(0)).hears("begin")
    talk.says(begin(1)).hears(FRAMING)


def test_2_7_1_no_channel_above_our_channel_max(talk: Talk):
    talk.opened().says(begin(255)).hears("begin")
    talk.says(begin(256)).hears(FRAMING)


def test_2_7_1_frames_to_a_peer_keep_to_its_max_frame_size(talk: Talk):
    talk.begun(max_frame_size=512).receiver(credit=10)
    talk.sender()
    head = b"\x00\x53\x75\xb0" + (2000).to_bytes(4, "big")
    talk.says(talk.transfer(head + bytes(2000), settled=True))
    came = talk.hears("transfer 1 more", *["transfer more"] * 3, "transfer")
    frames = [one for one in came if one.name == "transfer"]
    assert all(one.size <= 512 for one in came)
    assert b"".join(one.payload for one in frames) == fresh(head + bytes(2000))


# ---- close [2.7.9]


@pytest.mark.parametrize("error", [None, Error(condition="amqp:internal-error", description="!")])
def test_2_7_9_a_close_is_answered_with_a_close_that_has_no_error(talk: Talk, error):
    talk.begun().sender()
    talk.receiver(credit=1)
    talk.says(Close(error=error)).hears("close")


def test_2_4_6_what_comes_behind_a_close_is_not_read(talk: Talk):
    talk.begun().says(Close(), begin(1), raw_frame(b"\xff"), talk.sending()).hears("close")


def test_2_4_6_what_comes_behind_a_broken_frame_is_not_read(talk: Talk):
    talk.begun().sender()
    talk.says(raw_frame(b"\xff"), talk.transfer(), Close()).hears(DECODE)


def test_2_4_3_nothing_comes_behind_our_close_of_a_connection_with_a_temporary_node(talk: Talk):
    """The links of the node end with it, and their peer has said close: no detach [16e]."""
    talk.begun()
    made = talk.receiver(1, credit=5, source=Source(dynamic=True))
    assert made.source is not None
    talk.receiver(2, credit=5, source=Source(address=made.source.address))
    talk.says(begin(1)).hears("begin")
    there = Source(address=made.source.address)
    talk.says(frame(talk.receiving(2, name="of another session", source=there), 1))
    talk.hears("attach")
    talk.says(Close()).hears("close")


def test_2_5_3_no_link_of_an_ended_session_is_detached(talk: Talk):
    talk.begun()
    made = talk.receiver(1, credit=5, source=Source(dynamic=True))
    assert made.source is not None
    talk.receiver(2, credit=5, source=Source(address=made.source.address))
    talk.says(end()).hears("end")


def test_2_4_1_false_is_what_a_missing_boolean_means(talk: Talk):
    """A detach of three forms: closed missing, null, false; each is answered in kind."""
    talk.begun()
    for form in ((ZERO,), (ZERO, NULL), (ZERO, FALSE)):
        talk.sender()
        came = talk.says(raw_frame(listed(0x16, *form))).hears("detach")
        assert came[-1].performative.closed is False


def test_5_3_sasl_may_not_come_behind_amqp(talk: Talk):
    talk.says(AMQP_HEADER, SASL_HEADER).hears("header AMQP", "open", FRAMING)
