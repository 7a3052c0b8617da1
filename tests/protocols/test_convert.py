"""Conversion: scenario by scenario, what maps both ways, and that nothing makes it raise.

C1 ... C18 are the scenarios of the behaviour tables; rows about other protocols have no test.
"""

from __future__ import annotations

import json
import uuid

import proton
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.model import stomp_form
from gateway.model.amqp_types import (
    AmqpDecimal,
    AmqpMap,
    Byte,
    Described,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    encode,
)
from gateway.model.message import DURABLE, EXPIRES, STOMP, TEXT
from gateway.model.plain_text import id_text, parse_id
from gateway.model.sections import scan, with_annotations
from protocols import convert
from protocols.convert import amqp_to_stomp, stomp_to_amqp
from tests.costs import costs
from tests.lanes import examples
from tests.model.amqp_strategies import symbols, values

PLAIN = 4
#: How Proton shows a symbol that is not there.
ABSENT = "None"


def section(code: int, value) -> bytes:
    return encode(Described(ULong(code), value))


def sent(**facts) -> bytes:
    return bytes(proton.Message(**facts).encode())


def to_stomp(raw: bytes, flags: int = PLAIN, address: str = "q", **more):
    """Return headers as a dict, checking that none is there twice, and the body."""
    stored = amqp_to_stomp(raw, flags, address, **more)
    pairs, body = stomp_form.unpack(stored)
    headers = dict(pairs)
    assert len(headers) == len(pairs)
    assert headers["content-length"] == str(len(body))
    return headers, body


def received(stored: bytes, flags: int = PLAIN | STOMP, address: str = "q", **more):
    message = proton.Message()
    message.decode(stomp_to_amqp(stored, flags, address, **more))
    return message


def from_stomp(body: bytes = b"x", *, flags: int = PLAIN | STOMP, now_ms: int = 0, **more):
    """Return what an AMQP receiver sees of a SEND; header names with `_` for `-`."""
    content_type = more.pop("content_type", None)
    expires = more.pop("expires", 0)
    destination = more.pop("destination", "q")
    headers = [(name.replace("_", "-"), value) for name, value in more.pop("std", {}).items()]
    headers += more.items()
    stored = stomp_form.pack(
        destination, body, content_type=content_type, expires=expires, headers=headers
    )
    return received(stored, flags, now_ms=now_ms)


# ---- AMQP to STOMP


def test_c1_a_text():
    raw = sent(body="mine", durable=True, priority=7)
    headers, body = to_stomp(raw, 7 | DURABLE)
    assert body == b"mine"
    assert headers["persistent"] == "true"
    assert headers["priority"] == "7"
    assert "content-type" not in headers
    assert headers["destination"] == "q"


def test_c1_expiry_from_the_queue_or_the_message():
    assert to_stomp(sent(body="x", ttl=5.0), expires=1234)[0]["expires"] == "1234"
    assert to_stomp(sent(body="x", expiry_time=5.0))[0]["expires"] == "5000"
    assert to_stomp(sent(body="x", expiry_time=5.0), expires=1234)[0]["expires"] == "1234"
    assert to_stomp(sent(body="x"))[0]["expires"] == "0"
    assert to_stomp(section(0x73, [None] * 8 + [Timestamp(-5)]))[0]["expires"] == "0"


@pytest.mark.parametrize(
    ("content_type", "data"),
    [
        ("application/octet-stream", bytes(range(256))),
        ("text/plain", "é".encode()),
        ("text/plain", b"\xff\xfe not UTF-8"),
        ("text/plain;charset=iso-8859-1", b"\xe9"),
        (None, b"\0\n\0"),
        ("application/json", b"{}"),
    ],
)
def test_c2_c3_data_arrives_as_it_is(content_type, data):
    raw = sent(body=data, inferred=True, content_type=content_type)
    headers, body = to_stomp(raw)
    assert body == data
    assert headers.get("content-type") == content_type


def test_several_data_sections_are_joined():
    assert to_stomp(section(0x75, b"one") + section(0x75, b"two"))[1] == b"onetwo"


_UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


@pytest.mark.parametrize(
    ("value", "body", "content_type"),
    [
        (None, b"", None),
        (b"raw\0", b"raw\0", None),
        (Symbol("s"), b"s", None),
        (5, b"5", "application/json"),
        (True, b"true", "application/json"),
        (2.5, b"2.5", "application/json"),
        (ULong(2**64 - 1), b"18446744073709551615", "application/json"),
        ({"a": 1, "b": [None, "é"]}, '{"a":1,"b":[null,"é"]}'.encode(), "application/json"),
        ([], b"[]", "application/json"),
        (
            [Timestamp(0), _UUID],
            f'["1970-01-01T00:00:00.000Z","{_UUID}"]'.encode(),
            "application/json",
        ),
        ({"n": b"abc"}, b'{"n":"YWJj"}', "application/json"),
        (AmqpMap(((1, 2), (1, 3))), b'{"1":3}', "application/json"),
    ],
)
def test_c6_values_without_a_text_form_are_json(value, body, content_type):
    headers, found = to_stomp(section(0x77, value))
    assert found == body
    assert headers.get("content-type") == content_type


def test_c14_sequences_are_one_json_list():
    headers, body = to_stomp(section(0x76, [1, "a"]) + section(0x76, []) + section(0x76, [None]))
    assert json.loads(body) == [1, "a", None]
    assert headers["content-type"] == "application/json"


def test_a_content_type_that_is_set_stays():
    raw = section(0x73, [None] * 6 + [Symbol("application/x-map")]) + section(0x77, {"a": 1})
    assert to_stomp(raw)[0]["content-type"] == "application/x-map"


def test_a_message_without_body():
    assert to_stomp(b"")[1] == b""
    assert to_stomp(section(0x78, {}))[1] == b""


def test_every_property_has_its_header():
    raw = sent(
        id="an id",
        user_id=b"me",
        address="elsewhere",
        subject="order",
        reply_to="answers",
        correlation_id="c1",
        content_type="text/plain",
        content_encoding="gzip",
        creation_time=1.5,
        group_id="g",
        group_sequence=3,
        reply_to_group_id="h",
        body="x",
    )
    headers, _ = to_stomp(raw, address="the queue")
    assert headers == {
        "destination": "the queue",
        "content-type": "text/plain",
        "content-length": "1",
        "priority": "4",
        "persistent": "false",
        "expires": "0",
        "correlation-id": "c1",
        "reply-to": "answers",
        "type": "order",
        "NATIVE_MESSAGE_ID": "an id",
        "content-encoding": "gzip",
        "timestamp": "1500",
        "JMSXGroupID": "g",
        "JMSXGroupSeq": "3",
        "JMS_AMQP_ReplyToGroupID": "h",
        "JMSXUserID": "me",
    }


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (UByte(5), "5"),
        (UByte(200), "200"),
        (UInt(3_000_000_000), "3000000000"),
        (ULong(2**64 - 1), "18446744073709551615"),
        (Byte(-1), "-1"),
        (True, "true"),
        (None, ""),
        (0.5, "0.5"),
        (AmqpDecimal(bytes.fromhex("318004d2")), "12.34"),
        ("tab\there", "tab\there"),
        (Symbol("s"), "s"),
        (b"abc", "YWJj"),
        (_UUID, str(_UUID)),
        (Timestamp(0), "1970-01-01T00:00:00.000Z"),
        ({"a": [1]}, '{"a":[1]}'),
        ([1, "b"], '[1,"b"]'),
    ],
)
def test_c9_properties_of_every_type_are_text(value, shown):
    assert to_stomp(section(0x74, {"name": value}) + section(0x77, "x"))[0]["name"] == shown


FRAME_HEADERS = [
    "destination",
    "content-length",
    "content-type",
    "priority",
    "persistent",
    "expires",
    "receipt",
    "transaction",
    "message-id",
    "subscription",
    "redelivered",
    "ack",
    "id",
    "destination-type",
    "JMSXUserID",
    "_AMQ_ORIG_ADDRESS",
    "_AMQ_SOMETHING",
    "JMS_AMQP_MA_x",
]


@pytest.mark.parametrize("name", FRAME_HEADERS)
def test_no_property_becomes_a_header_of_the_frame_or_the_broker(name):
    plain = to_stomp(section(0x77, "x"))[0]
    assert to_stomp(section(0x74, {name: "evil"}) + section(0x77, "x"))[0] == plain


def test_a_property_has_the_name_of_a_standard_header_only_while_that_is_free():
    own = section(0x74, {"type": "mine", "reply-to": "r"})
    assert to_stomp(own + section(0x77, "x"))[0]["type"] == "mine"
    raw = section(0x73, [None, None, None, "subject"]) + own + section(0x77, "x")
    assert to_stomp(raw)[0]["type"] == "subject"


def test_nothing_breaks_out_of_its_header():
    evil = {
        "a\nadmin": "1",
        "b\0": "1",
        "": "nameless",
        "c:d\\": "v\r\nadmin:1\n\nbody\0\x1b[2J",
    }
    stored = amqp_to_stomp(section(0x74, evil) + section(0x75, b"body"), PLAIN, "q\nadmin:1")
    block, _, body = stored.partition(b"\n\n")
    assert body == b"body"
    names = [line.partition(b":")[0] for line in block.split(b"\n")]
    assert b"admin" not in names
    assert not any(c < 32 and c != 10 for c in block)
    headers = dict(stomp_form.unpack(stored)[0])
    assert headers["c:d\\"] == "v\r\nadmin:1\n\nbody\ufffd\ufffd[2J"


@pytest.mark.parametrize("field", [3, 4, 5, 10])
def test_no_standard_header_carries_control_characters(field):
    fields = [None] * 13
    fields[field] = "a\0b\x1bc\nd"
    stored = amqp_to_stomp(section(0x73, fields) + section(0x77, "x"), PLAIN, "q")
    assert not any(c < 32 and c != 10 for c in stored)
    assert b"a\xef\xbf\xbdb\xef\xbf\xbdc\\nd" in stored


def test_annotations():
    annotations = {
        "x-opt-ORIG-ADDRESS": "first",
        "x-opt-ORIG-QUEUE": "first.q",
        "x-opt-ORIG-MESSAGE-ID": 17,
        "x-opt-ACTUAL-EXPIRY": 5,
        "x-opt-jms-dest": Byte(0),
        "x-opt-mine": UInt(3),
    }
    headers, _ = to_stomp(with_annotations(section(0x77, "x"), annotations))
    assert headers["_AMQ_ORIG_ADDRESS"] == "first"
    assert headers["_AMQ_ORIG_QUEUE"] == "first.q"
    assert headers["_AMQ_ORIG_MESSAGE_ID"] == "17"
    assert headers["_AMQ_ACTUAL_EXPIRY"] == "5"
    assert headers["JMS_AMQP_MA_x-opt-mine"] == "3"
    assert not [name for name in headers if "jms-dest" in name]


def test_a_property_cannot_pose_as_a_fact_of_the_gateway():
    raw = section(0x74, {"_AMQ_ORIG_ADDRESS": "forged", "JMS_AMQP_MA_x": "forged"})
    raw = with_annotations(raw + section(0x77, "x"), {"x-opt-ORIG-ADDRESS": "true one"})
    headers, _ = to_stomp(raw)
    assert headers["_AMQ_ORIG_ADDRESS"] == "true one"
    assert "JMS_AMQP_MA_x" not in headers


@pytest.mark.parametrize(
    ("reply_to", "kind", "shown"),
    [
        ("r", None, "r"),
        ("r", Byte(0), "/queue/r"),
        ("r", Byte(1), "/topic/r"),
        ("r", Byte(2), "/reply-queue/r"),
        ("r", Byte(3), "/remote-temp-topic/r"),
        ("r", Byte(4), "r"),
        ("r", UByte(1), "/topic/r"),
        ("r", "queue", "r"),
        ("/topic/r", Byte(0), "/topic/r"),
        ("a::q", Byte(0), "/queue/a::q"),
    ],
)
def test_c18_reply_to_is_a_destination(reply_to, kind, shown):
    raw = section(0x73, [None] * 4 + [reply_to]) + section(0x77, "x")
    if kind is not None:
        raw = with_annotations(raw, {"x-opt-jms-reply-to": kind})
    assert to_stomp(raw)[0]["reply-to"] == shown


BROKEN = {
    "properties map cut": b"\x00\x53\x74\xc1\x05\x02\xa1\x01a",
    "property name that is no string": section(0x74, {5: 1}) + section(0x77, "x"),
    "data cut short": b"\x00\x53\x75\xa0\x05abc",
    "properties of a wrong type": section(0x73, [5]) + section(0x77, "x"),
    "broken value": b"\x00\x53\x77\xc0\x02\x05\x40",
    "broken sequence": b"\x00\x53\x76\xc0\x02\x05\x40",
    "annotations of lists": section(0x72, AmqpMap((([1], 2),))) + section(0x77, "x"),
    "sections out of order": section(0x77, "x") + section(0x70, []),
    "noise": b"\xde\xad\xbe\xef",
    "value nested too deep": b"\x00\x53\x77" + b"\x00\x40" * 40 + b"\x40",
    "value of too many nodes": section(0x77, [None] * 5000),
    "data and value": section(0x75, b"x") + section(0x77, 1),
    "data sections without end": section(0x75, b"") * 10_001,
}


@pytest.mark.parametrize("raw", BROKEN.values(), ids=BROKEN.keys())
def test_c17_what_cannot_be_read_arrives_as_raw_amqp(raw):
    headers, body = to_stomp(raw, 9 | DURABLE, "q")
    assert body == raw
    assert headers == {
        "destination": "q",
        "content-type": "application/vnd.amqp",
        "content-length": str(len(raw)),
        "priority": "9",
        "persistent": "true",
        "expires": "0",
        "timestamp": "0",
    }


def test_c16_a_large_message():
    data = bytes(range(256)) * 1200
    assert to_stomp(sent(body=data, inferred=True))[1] == data
    assert bytes(received(stomp_form.pack("q", data)).body) == data


def test_an_amqp_message_that_does_not_expire_nor_say_when_it_was_sent():
    headers, _ = to_stomp(sent(body="x"))
    assert (headers["expires"], headers["timestamp"]) == ("0", "0")


def test_creation_time_crosses_both_ways():
    headers, _ = to_stomp(sent(body="x", creation_time=1_700_000_000.123))
    assert headers["timestamp"] == "1700000000123"
    back = received(stomp_form.pack("q", b"x", headers=[("timestamp", "1700000000123")]))
    assert back.creation_time == 1_700_000_000.123
    assert back.properties is None
    none = received(stomp_form.pack("q", b"x", headers=[("timestamp", "0")]))
    assert none.creation_time == 0


def test_times_differ_and_the_rest_is_converted_once():
    """Messages of one head in different ms: each its time, and the rest as it is."""
    convert._amqp_sections.cache_clear()
    for at in range(5):
        for headers in ([("a", "\u00ff" * 9)], []):
            stamp = [("timestamp", str(1_700_000_000_000 + at))]
            form = stomp_form.pack("q", b"x", expires=99, headers=[*headers, *stamp])
            made = received(form)
            assert made.creation_time == (1_700_000_000_000 + at) / 1000
            assert made.expiry_time == 0.099
            assert made.properties == (dict(headers) or None)
    assert convert._amqp_sections.cache_info().misses == 2


# ---- STOMP to AMQP


def test_c4_a_send_without_content_length():
    message = from_stomp("é".encode(), flags=PLAIN | STOMP | TEXT)
    assert message.body == "é"
    assert not message.inferred
    assert message.content_type == ABSENT
    assert message.id is None
    assert message.annotations["x-opt-jms-msg-type"] == 5
    assert isinstance(message.annotations["x-opt-jms-msg-type"], proton.byte)
    assert (message.address, message.durable, message.priority) == ("q", False, 4)


def test_text_that_is_not_utf8_has_replacement_characters():
    assert from_stomp(b"a\xffb", flags=PLAIN | STOMP | TEXT).body == "a\ufffdb"


def test_c5_a_send_with_content_length():
    message = from_stomp(b"\0\n\xff")
    assert bytes(message.body) == b"\0\n\xff"
    assert message.inferred
    assert message.annotations["x-opt-jms-msg-type"] == 3


def test_header_section_only_when_something_differs():
    stored = stomp_form.pack("q", b"x")
    assert 0x70 not in scan(stomp_to_amqp(stored, PLAIN | STOMP, "q")).spans
    message = received(stored, 9 | STOMP | DURABLE)
    assert (message.durable, message.priority) == (True, 9)
    assert received(stored, STOMP).priority == 0


def test_every_header_has_its_property():
    message = from_stomp(
        content_type="text/plain",
        std={"correlation-id": "c", "reply-to": "/queue/answers", "content-encoding": "gzip"},
        type="order",
        NATIVE_MESSAGE_ID="an id",
        timestamp="1500",
        JMSXGroupID="g",
        JMSXGroupSeq="3",
        JMS_AMQP_ReplyToGroupID="h",
    )
    assert message.content_type == "text/plain"
    assert message.content_encoding == "gzip"
    assert (message.correlation_id, message.id, message.subject) == ("c", "an id", "order")
    assert (message.reply_to, message.creation_time) == ("answers", 1.5)
    assert (message.group_id, message.group_sequence) == ("g", 3)
    assert message.reply_to_group_id == "h"
    assert not message.properties


@pytest.mark.parametrize(
    ("written", "address", "kind"),
    [
        ("/queue/r", "r", 0),
        ("/topic/r", "r", 1),
        ("queue://r", "r", 0),
        ("topic://r", "r", 1),
        ("/exchange/amq.topic/r", "r", 1),
        ("/amq/queue/r", "r", 0),
        ("/reply-queue/r", "r", 2),
        ("/remote-temp-queue/r", "r", 2),
        ("/remote-temp-topic/r", "r", 3),
        ("r", "r", None),
        ("/queue/", "/queue/", None),
    ],
)
def test_c18_reply_to_is_an_address(written, address, kind):
    message = from_stomp(std={"reply-to": written})
    assert message.reply_to == address
    assert message.annotations.get("x-opt-jms-reply-to") == kind


@pytest.mark.parametrize(
    ("destination", "more", "kind"),
    [
        ("/queue/q", {}, 0),
        ("/topic/q", {}, 1),
        ("q", {}, 0),
        ("q", {"destination-type": "MULTICAST"}, 1),
        ("q", {"destination-type": "ANYCAST"}, 0),
    ],
)
def test_the_kind_of_destination(destination, more, kind):
    message = from_stomp(destination=destination, std=more)
    assert message.annotations["x-opt-jms-dest"] == kind
    assert message.address == "q"
    assert not message.properties


def test_user_headers_are_properties():
    message = from_stomp(a="1", b="x:y\n\\")
    assert message.properties == {"a": "1", "b": "x:y\n\\"}


def test_the_first_of_repeated_headers_counts():
    stored = stomp_form.pack("q", b"x", headers=[("a", "first"), ("a", "second")])
    assert received(stored).properties == {"a": "first"}


@pytest.mark.parametrize(
    "name",
    [
        *sorted(stomp_form.BROKER_HEADERS),
        *sorted(stomp_form.PLACED_HEADERS),
        "heart-beat",
        "JMSXUserID",
        "_AMQ_INTERNAL",
        "_AMQ_GROUP_ID",
    ],
)
def test_no_header_of_the_frame_becomes_a_property(name):
    # As if an older version had stored it.
    stored = b"%b:evil\ndestination:q\ncontent-length:1\n\nx" % name.encode()
    message = received(stored)
    assert not message.properties
    assert message.user_id == b""
    assert "evil" not in str(message.annotations)


def test_the_gateways_facts_are_annotations():
    stored = stomp_form.with_headers(
        stomp_form.pack("q", b"x"),
        [
            ("_AMQ_ORIG_ADDRESS", "first"),
            ("_AMQ_ORIG_QUEUE", "first.q"),
            ("_AMQ_ORIG_MESSAGE_ID", "17"),
            ("_AMQ_ORIG_ROUTING_TYPE", "1"),
            ("_AMQ_ACTUAL_EXPIRY", "5"),
        ],
    )
    message = received(stored)
    assert message.annotations["x-opt-ORIG-ADDRESS"] == "first"
    assert message.annotations["x-opt-ORIG-QUEUE"] == "first.q"
    assert message.annotations["x-opt-ORIG-MESSAGE-ID"] == 17
    assert message.annotations["x-opt-ORIG-ROUTING-TYPE"] == 1
    assert message.annotations["x-opt-ACTUAL-EXPIRY"] == 5
    assert not message.properties


def test_annotations_come_back_but_pose_as_nothing():
    message = from_stomp(
        **{
            "JMS_AMQP_MA_x-opt-mine": "3",
            "JMS_AMQP_MA_x-opt-ORIG-ADDRESS": "forged",
            "JMS_AMQP_MA_x-opt-jms-dest": "forged",
            "JMS_AMQP_MA_": "nameless",
        }
    )
    assert message.annotations["x-opt-mine"] == "3"
    assert "forged" not in str(message.annotations)
    assert not message.properties


@pytest.mark.parametrize(
    ("expires", "now", "ttl_ms"),
    [
        (0, 1000, 0),
        (5000, 1000, 4000),
        (1000, 1000, 1),
        (500, 1000, 1),
        (1000 + 2**33, 1000, 2**32 - 1),
        (5000, 0, 0),
    ],
)
def test_c12_c13_expires_is_absolute_expiry_and_what_is_left_of_ttl(expires, now, ttl_ms):
    message = from_stomp(expires=expires, flags=PLAIN | STOMP | EXPIRES, now_ms=now)
    assert message.expiry_time == expires / 1000
    assert message.ttl == ttl_ms / 1000


@pytest.mark.parametrize(
    ("name", "value", "attribute", "unset"),
    [
        ("timestamp", "soon", "creation_time", 0.0),
        ("timestamp", "-5", "creation_time", 0.0),
        ("timestamp", "9" * 19, "creation_time", 0.0),
        ("JMSXGroupSeq", "x", "group_sequence", 0),
        ("JMSXGroupSeq", str(2**32), "group_sequence", 0),
        ("content-encoding", "é", "content_encoding", ABSENT),
    ],
)
def test_a_header_that_its_property_cannot_hold_stays_a_property(name, value, attribute, unset):
    message = from_stomp(**{name: value})
    assert getattr(message, attribute) == unset
    assert message.properties == {name: value}


def test_a_group_is_closed_by_minus_one():
    raw = stomp_to_amqp(stomp_form.pack("q", b"x", headers=[("JMSXGroupSeq", "-1")]), PLAIN, "q")
    assert scan(raw).group_sequence == 2**32 - 1


def test_a_content_type_that_is_no_symbol_is_left_out():
    message = from_stomp(content_type="text/é")
    assert message.content_type == ABSENT
    assert not message.properties


def test_scheduled_time_is_an_annotation():
    message = from_stomp(AMQ_SCHEDULED_TIME="77")
    assert message.annotations["x-opt-delivery-time"] == 77


# ---- there and back


@pytest.mark.parametrize(
    "ident", [_UUID, ULong(7), b"\0\xff binary", "string", "ID:like:jms", "ID:YWJj", b""]
)
@pytest.mark.parametrize("index", [0, 5])
def test_c7_typed_ids_come_back(ident, index):
    raw = section(0x73, [None] * index + [ident]) + section(0x77, "x")
    back = scan(stomp_to_amqp(amqp_to_stomp(raw, PLAIN, "q"), PLAIN | STOMP | TEXT, "q"))
    found = back.message_id if index == 0 else back.correlation_id
    assert found == ident
    assert type(found) is type(ident)


def test_c11_group_ids():
    raw = sent(body="x", group_id="g")
    assert to_stomp(raw)[0]["JMSXGroupID"] == "g"
    assert from_stomp(JMSXGroupID="g").group_id == "g"


_text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)


@given(
    st.dictionaries(_text.map("x".__add__), _text, max_size=4),
    st.fixed_dictionaries({"type": _text, "correlation-id": _text, "JMSXGroupID": _text}),
    st.binary(max_size=40),
)
@settings(max_examples=examples(200), deadline=None)
def test_a_stomp_message_survives_the_way_through_amqp(user, standard, body):
    stored = stomp_form.pack(
        "q", body, content_type="text/plain", expires=77, headers=[*standard.items(), *user.items()]
    )
    back = amqp_to_stomp(stomp_to_amqp(stored, PLAIN | STOMP, "q"), PLAIN, "q")
    # A string may be written with a mark that it does not need, and comes back without.
    plainly = id_text(parse_id(standard["correlation-id"]))
    expected = [
        (name, plainly if name == "correlation-id" else value)
        for name, value in stomp_form.unpack(stored)[0]
    ]
    if "timestamp" not in dict(expected):
        expected.append(("timestamp", "0"))
    assert sorted(stomp_form.unpack(back)[0]) == sorted(expected)
    assert stomp_form.unpack(back)[1] == body


# ---- nothing raises


def whole_frame(stored: bytes) -> None:
    """Assert that a stored form is one: a frame made of it has no NUL before its body."""
    block, split, _ = stored.partition(b"\n\n")
    assert split
    assert b"\0" not in block
    assert b"\r" not in block
    assert all(b":" in line for line in block.split(b"\n"))


@given(
    st.dictionaries(st.one_of(symbols, st.text()), values, max_size=3),
    st.lists(values, max_size=13),
    st.dictionaries(st.text(), values, max_size=3),
    values,
)
@settings(max_examples=examples(200), deadline=None)
def test_any_message_reaches_a_subscriber(annotations, properties, named, value):
    raw = (
        section(0x72, annotations)
        + section(0x73, properties)
        + section(0x74, named)
        + section(0x77, value)
    )
    stored = amqp_to_stomp(raw, PLAIN, "q")
    whole_frame(stored)
    scan(stomp_to_amqp(stored, PLAIN | STOMP, "q"))


@given(st.dictionaries(st.text(), values, max_size=5), values)
@settings(max_examples=examples(300), deadline=None)
def test_any_properties_are_headers(named, value):
    stored = amqp_to_stomp(section(0x74, named) + section(0x77, value), PLAIN, "q")
    whole_frame(stored)
    headers = dict(stomp_form.unpack(stored)[0])
    assert headers.get("content-type") != "application/vnd.amqp"


@given(st.binary(max_size=200), st.integers(0, 9))
@settings(max_examples=examples(200), deadline=None)
def test_noise_is_converted_both_ways(raw, flags):
    whole_frame(amqp_to_stomp(raw, flags, "q"))
    for more in (0, TEXT):
        scan(stomp_to_amqp(raw, flags | more, "q"))
        scan(stomp_to_amqp(b"destination:q\n" + raw, flags | more, "q", now_ms=5))


@given(st.binary(max_size=40), st.data())
@settings(max_examples=examples(300), deadline=None)
def test_a_changed_message_reaches_a_subscriber(body, data):
    raw = bytearray(
        section(0x72, {Symbol("x-opt-a"): 1})
        + section(0x73, ["id", b"user", "to", "subject", "reply", _UUID, Symbol("text/plain")])
        + section(0x74, {"a": [1], "b": {"c": b"d"}})
        + section(0x75, body)
    )
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    whole_frame(amqp_to_stomp(bytes(raw), PLAIN, "q"))


def test_work_is_bounded():
    hostile = [
        section(0x74, {f"p{n}": "x" * 50 for n in range(2000)}) + section(0x77, "x"),
        section(0x77, [[None] * 100] * 40),
        b"\x00\x53\x77" + b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40",
        section(0x75, b"\0" * 1_000_000),
        b"\x00" * 1_000_000,
    ]
    for raw in hostile:
        with costs():
            amqp_to_stomp(raw, PLAIN, "q")
    with costs():
        stomp_to_amqp(b"a:b\n" * 50_000 + b"\n", PLAIN, "q")
        stomp_to_amqp(b"\\" * 1_000_000, PLAIN, "q")
