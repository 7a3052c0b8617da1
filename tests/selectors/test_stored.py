"""Fields out of bytes: the same as a full decode says, and nothing but values on broken ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.model.amqp_types import AmqpMap, Described, Symbol, ULong, Value, decode, encode
from gateway.model.message import STOMP, Message
from gateway.model.sections import (
    APPLICATION_PROPERTIES,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    scan,
)
from gateway.model.stomp_form import unpack
from gateway.selectors.fields import reader
from gateway.selectors.stored import (
    header,
    header_mark,
    map_value,
    map_values,
    property_value,
    widened,
)
from gateway.selectors.values import OPAQUE
from gateway.selectors.view import Plan, View
from tests.model.amqp_strategies import values
from tests.selectors.messages import FIELDS, amqp, section, stomp

NAMES = ("a", "b", "colour", "ä", "long" * 70)
MAPS = st.dictionaries(st.sampled_from(NAMES), values, max_size=5)
WANTED = {name.encode(): name for name in NAMES}


@given(found=MAPS, notes=MAPS)
def test_maps_as_a_full_decode(found: dict[str, Value], notes: dict[str, Value]) -> None:
    ascii_notes = {name: value for name, value in notes.items() if name.isascii()}
    message = amqp(found, annotations=ascii_notes, message_id="x")
    whole = scan(message.body)
    for code, decoded in (
        (APPLICATION_PROPERTIES, whole.application_properties),
        (MESSAGE_ANNOTATIONS, whole.message_annotations),
    ):
        expected = {str(name): repr(widened(value)) for name, value in decoded.items()}
        together = map_values(message.body, code, WANTED)
        assert {name: repr(value) for name, value in together.items()} == expected
        for name in NAMES:
            alone = map_value(message.body, code, name.encode())
            assert repr(alone) == expected.get(name, "None")


@given(fields=st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, values)))
def test_properties_as_a_full_decode(fields: dict[str, Value]) -> None:
    message = amqp({"a": 1}, annotations={"b": 2}, **fields)
    span = scan(message.body).spans.get(PROPERTIES)
    decoded = [] if span is None else decode(message.body, span[1], span[2])[0]
    assert len(decoded) >= len([value for value in fields.values() if value is not None])
    for index in range(len(FIELDS)):
        expected = decoded[index] if index < len(decoded) else None
        assert repr(property_value(message.body, index)) == repr(expected)


HEADERS = st.dictionaries(
    st.text(min_size=1, max_size=4).filter(lambda name: "\0" not in name),
    st.text(max_size=6).filter(lambda value: "\0" not in value),
    max_size=5,
)


@given(headers=HEADERS)
def test_headers_as_a_full_unpack(headers: dict[str, str]) -> None:
    message = stomp(headers)
    first: dict[str, str] = {}
    for name, value in unpack(message.body)[0]:
        first.setdefault(name, value)
    for name in [*first, *headers, "missing"]:
        assert header(message.body, header_mark(name)) == first.get(name)


ALL_NAMES = (
    "a",
    "b",
    "JMSMessageID",
    "JMSCorrelationID",
    "JMSType",
    "JMSReplyTo",
    "JMSDestination",
    "JMSTimestamp",
    "JMSXGroupID",
    "JMSXGroupSeq",
    "JMSXUserID",
    "JMS_AMQP_ContentType",
    "m.a",
    "_AMQ_ORIG_MESSAGE_ID",
    "AMQSize",
)
GOOD = amqp(
    {"x": [1, {"y": b"z"}], "a": 5, "long" * 80: "v" * 300, "b": "text"},
    annotations={"a": Symbol("s"), "x-opt-ORIG-MESSAGE-ID": 3},
    message_id="id",
    user_id=b"u",
    creation_time=ULong(4),
).body


def read_all(body: bytes, flags: int) -> None:
    """Read everything in both ways; they agree, and nothing is raised."""
    message = Message(body, 1, flags)
    plan = Plan(ALL_NAMES, "q")
    view = View(message, plan)
    for name in ALL_NAMES:
        alone = reader(name, "q")(message)
        assert repr(plan.getter(name)(view)) == repr(alone)
        assert alone is None or type(alone) in (bool, int, float, str, type(OPAQUE))


@given(cut=st.integers(0, len(GOOD)), flags=st.sampled_from([4, STOMP]))
def test_cut_messages(cut: int, flags: int) -> None:
    read_all(GOOD[:cut], flags)


@given(
    changes=st.lists(
        st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1, max_size=6
    )
)
def test_changed_bytes(changes: list[tuple[int, int]]) -> None:
    body = bytearray(GOOD)
    for at, byte in changes:
        body[at] = byte
    read_all(bytes(body), 4)


@given(body=st.binary(max_size=64), flags=st.sampled_from([4, STOMP]))
def test_any_bytes(body: bytes, flags: int) -> None:
    read_all(body, flags)
    read_all(b"\x00\x53\x74\xc1" + body, flags)
    read_all(b"\x00\x53\x73\xc0" + body, flags)
    read_all(b"\x00\x53\x74\xd1" + body, flags)


def test_sections_in_unusual_encodings() -> None:
    long_descriptor = b"\x00\x80" + (0x74).to_bytes(8, "big") + encode({"a": 5})
    name = b"amqp:application-properties:map"
    symbolic = b"\x00\xa3" + bytes([len(name)]) + name + encode({"a": 5})
    empty_list = b"\x00\x53\x73\x45"
    wide_map = b"\x00\x53\x74\xd1" + (12).to_bytes(4, "big") + (2).to_bytes(4, "big")
    wide_map += b"\xb1\x00\x00\x00\x01a\x55\x05"
    for body in (long_descriptor, symbolic, wide_map):
        size = len(body)
        assert map_value(empty_list + body, APPLICATION_PROPERTIES, b"a") == 5, size
        assert map_values(empty_list + body, APPLICATION_PROPERTIES, {b"a": "a"}) == {"a": 5}
    assert property_value(empty_list, 0) is None


def test_the_first_of_repeated_names_counts() -> None:
    body = b"\x00\x53\x74\xc1\x0b\x04\xa1\x01a\x55\x01\xa1\x01a\x55\x02"
    assert map_value(body, APPLICATION_PROPERTIES, b"a") == 1
    assert map_values(body, APPLICATION_PROPERTIES, {b"a": "a", b"b": "b"}) == {"a": 1}


def test_a_key_of_another_type_is_no_name() -> None:
    eight = ULong(int.from_bytes(b"abcdabcd", "big"))
    keys: list[Value] = [b"abcd", b"abcd" * 80, 97, eight, int(eight), ["abcd"]]
    for key in keys:
        body = section(0x72, AmqpMap(((key, 1), (Symbol("b"), 2))))
        for name in (b"abcd", b"abcd" * 80, b"dabcd", b"a"):
            assert map_value(body, MESSAGE_ANNOTATIONS, name) is None
            assert map_values(body, MESSAGE_ANNOTATIONS, {name: "x"}) == {}
        assert map_value(body, MESSAGE_ANNOTATIONS, b"b") == 2


def test_a_name_inside_a_value_is_no_name() -> None:
    inner = encode("a") + encode(666)
    body = section(0x74, {"x": inner, "y": [{"a": 667}], "a": 5})
    assert map_value(body, APPLICATION_PROPERTIES, b"a") == 5


def test_a_value_behind_its_map_is_not_read() -> None:
    # The map ends in the middle of the value; the next section follows.
    body = b"\x00\x53\x74\xc1\x06\x02\xa1\x01a\xa1\x09" + encode(
        Described(ULong(0x75), b"12345678")
    )
    assert map_value(body, APPLICATION_PROPERTIES, b"a") is None
    assert map_values(body, APPLICATION_PROPERTIES, {b"a": "a"}) == {}


A_5 = b"\xa1\x01a\x55\x05"


@pytest.mark.parametrize(
    "body",
    [
        # A list where the map belongs, and a map where the list of the properties does.
        b"\x00\x53\x74\xc0\x06\x02" + A_5,
        b"\x00\x53\x73\xc1\x01\x00\x00\x53\x74\xc1\x06\x02" + A_5,
        # Longer than the message; a section in front that is.
        b"\x00\x53\x74\xc1\x07\x02" + A_5,
        b"\x00\x53\x73\xc0\x70\x00\x00\x53\x74\xc1\x06\x02" + A_5,
        # No section of a message.
        b"\x00\x53\x10\xc1\x01\x00\x00\x53\x74\xc1\x06\x02" + A_5,
        b"\x01\x53\x74\xc1\x06\x02" + A_5,
        # A wide map whose count cannot be.
        b"\x00\x53\x74\xd1\x00\x00\x00\x09\x00\x00\x00\xff" + A_5,
        # Cut inside its head.
        b"\x00\x53\x74",
        b"\x00\x53\x74\xd1\x00",
    ],
)
def test_broken_sections_hold_nothing(body: bytes) -> None:
    assert map_value(body, APPLICATION_PROPERTIES, b"a") is None
    assert map_values(body, APPLICATION_PROPERTIES, {b"a": "a", b"b": "b"}) == {}


def test_the_sound_twin_of_those() -> None:
    assert map_value(b"\x00\x53\x74\xc1\x06\x02" + A_5, APPLICATION_PROPERTIES, b"a") == 5


def test_a_break_inside_a_value_harms_no_other() -> None:
    # A list of one item that is no value, between two sound pairs.
    body = b"\x00\x53\x74\xc1\x13\x06" + A_5
    body += b"\xa1\x01b\xc0\x02\x01\xff" + b"\xa1\x01c\x55\x06"
    body = body[:4] + bytes([len(body) - 5]) + body[5:]
    wanted = {b"a": "a", b"b": "b", b"c": "c"}
    assert map_values(body, APPLICATION_PROPERTIES, wanted) == {"a": 5, "b": OPAQUE, "c": 6}
    assert map_value(body, APPLICATION_PROPERTIES, b"b") is OPAQUE


def test_a_property_that_leaves_its_list_is_not_read() -> None:
    # The second text says 9 bytes, of which the list has one.
    body = b"\x00\x53\x73\xc0\x07\x03\xa1\x01x\xa1\x09y" + section(0x75, b"12345678")
    assert property_value(body, 0) == "x"
    assert property_value(body, 1) is None
    assert property_value(body, 2) is None
