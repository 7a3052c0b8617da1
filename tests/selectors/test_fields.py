"""What each identifier means, in both stored forms."""

from __future__ import annotations

from uuid import UUID

import pytest

from gateway.model.amqp_types import (
    AmqpDecimal,
    Byte,
    Char,
    Described,
    Float32,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
)
from gateway.model.message import DURABLE, ONE_DELIVERY, STOMP, Message
from gateway.selectors import compile_selector
from gateway.selectors.fields import reader
from gateway.selectors.values import OPAQUE, Scalar
from gateway.selectors.view import Plan, View
from tests.selectors.messages import ADDRESS, amqp, outcome, stomp

UUID_1 = UUID("00112233-4455-6677-8899-aabbccddeeff")


def read(name: str, message: Message) -> Scalar:
    """The value of a field: straight, and through a view that has to find others as well."""
    alone = reader(name, ADDRESS)(message)
    plan = Plan([name, "other", "JMSType"], ADDRESS)
    view = View(message, plan)
    get = plan.getter(name)
    for _ in range(2):
        assert repr(get(view)) == repr(alone)
    assert type(alone) in (type(None), bool, int, float, str, type(OPAQUE))
    return alone


@pytest.mark.parametrize(
    ("name", "message", "expected"),
    [
        ("JMSPriority", amqp(flags=7), 7),
        ("JMSPriority", stomp(flags=0), 0),
        ("AMQPriority", stomp(flags=9), 9),
        ("JMSDeliveryMode", amqp(flags=4 | DURABLE), "PERSISTENT"),
        ("JMSDeliveryMode", stomp(), "NON_PERSISTENT"),
        ("AMQDurable", stomp(flags=4 | DURABLE), "DURABLE"),
        ("AMQDurable", amqp(), "NON_DURABLE"),
        ("JMSExpiration", amqp(), 0),
        ("JMSExpiration", amqp(expires=1234), 1234),
        ("AMQExpiration", stomp(expires=99), 99),
        ("AMQExpiration", stomp(), 0),
        ("JMSXDeliveryCount", amqp(), 1),
        ("JMSXDeliveryCount", stomp(flags=4 | 3 * ONE_DELIVERY), 4),
        ("AMQAddress", amqp(to="elsewhere"), ADDRESS),
        ("AMQAddress", stomp(destination="elsewhere"), ADDRESS),
    ],
)
def test_facts_of_the_broker(name: str, message: Message, expected: Scalar) -> None:
    assert read(name, message) == expected


@pytest.mark.parametrize("message", [amqp({"a": 1}), stomp({"a": "1"})])
def test_size_is_that_of_the_stored_message(message: Message) -> None:
    assert read("AMQSize", message) == len(message.body)


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("JMSMessageID", {}, None),
        ("JMSMessageID", {"message_id": "ID:a-1"}, "ID:a-1"),
        ("AMQUserID", {"message_id": "a"}, "a"),
        # Not escaped, though it looks like a typed id: a client compares with what it sent.
        ("JMSMessageID", {"message_id": "ID:AMQP_ULONG:5"}, "ID:AMQP_ULONG:5"),
        ("JMSMessageID", {"message_id": "ID:YWJj"}, "ID:YWJj"),
        ("JMSMessageID", {"message_id": ULong(5)}, "ID:AMQP_ULONG:5"),
        ("JMSMessageID", {"message_id": UUID_1}, f"ID:AMQP_UUID:{UUID_1}"),
        ("JMSMessageID", {"message_id": b"abc"}, "ID:YWJj"),
        ("JMSCorrelationID", {"correlation_id": "c"}, "c"),
        ("JMSCorrelationID", {"correlation_id": ULong(7)}, "ID:AMQP_ULONG:7"),
        ("JMSCorrelationID", {"message_id": "only"}, None),
        ("JMSType", {"subject": "kind"}, "kind"),
        ("JMSType", {"subject": ""}, ""),
        ("JMSType", {}, None),
        ("JMSReplyTo", {"reply_to": "answers"}, "answers"),
        ("JMSReplyTo", {}, None),
        ("JMSDestination", {"to": "somewhere"}, "somewhere"),
        ("JMSDestination", {}, ADDRESS),
        ("JMSTimestamp", {"creation_time": Timestamp(5_000)}, 5_000),
        ("AMQTimestamp", {"creation_time": Timestamp(-1)}, -1),
        ("JMSTimestamp", {}, 0),
        ("JMSXGroupID", {"group_id": "g"}, "g"),
        ("AMQGroupID", {"group_id": "g"}, "g"),
        ("JMSXGroupID", {}, None),
        ("JMSXGroupSeq", {"group_sequence": UInt(3)}, 3),
        ("JMSXGroupSeq", {"group_sequence": UInt(0xFFFFFFFF)}, 4_294_967_295),
        ("JMSXUserID", {"user_id": b"anna"}, "anna"),
        ("JMSXUserID", {"user_id": b"\xff"}, "\N{REPLACEMENT CHARACTER}"),
        ("JMSXUserID", {}, None),
        ("JMS_AMQP_ContentType", {"content_type": Symbol("text/plain")}, "text/plain"),
        ("JMS_AMQP_ContentEncoding", {"content_encoding": Symbol("gzip")}, "gzip"),
        ("JMS_AMQP_ReplyToGroupID", {"reply_to_group_id": "r"}, "r"),
        # A type that the standard does not allow there is read all the same.
        ("JMSType", {"subject": 5}, 5),
        ("JMSType", {"subject": 2.5}, 2.5),
        ("JMSMessageID", {"message_id": UInt(5)}, 5),
        ("JMSTimestamp", {"creation_time": "soon"}, "soon"),
    ],
)
def test_amqp_properties(name: str, fields: dict[str, Value], expected: Scalar) -> None:
    message = amqp({"a": 1}, annotations={"x": 1}, **fields)
    assert read(name, message) == expected
    assert read(name, amqp(**fields)) == expected


@pytest.mark.parametrize(
    ("name", "headers", "expected"),
    [
        ("JMSMessageID", {}, None),
        ("JMSMessageID", {"NATIVE_MESSAGE_ID": "ID:1"}, "ID:1"),
        ("AMQUserID", {"NATIVE_MESSAGE_ID": "ID:1"}, "ID:1"),
        ("JMSCorrelationID", {"correlation-id": "c:1\\"}, "c:1\\"),
        ("JMSType", {"type": "kind"}, "kind"),
        ("JMSReplyTo", {"reply-to": "/queue/answers"}, "answers"),
        ("JMSReplyTo", {"reply-to": "/topic/answers"}, "answers"),
        ("JMSReplyTo", {"reply-to": "answers"}, "answers"),
        ("JMSReplyTo", {"reply-to": "/queue/"}, "/queue/"),
        ("JMSReplyTo", {}, None),
        ("JMSDestination", {}, "orders"),
        ("JMSTimestamp", {"timestamp": "5000"}, 5_000),
        ("JMSTimestamp", {"timestamp": "soon"}, 0),
        ("JMSTimestamp", {}, 0),
        ("JMSXGroupID", {"JMSXGroupID": "g"}, "g"),
        ("AMQGroupID", {"JMSXGroupID": "g"}, "g"),
        ("JMSXGroupSeq", {"JMSXGroupSeq": "3"}, 3),
        ("JMSXGroupSeq", {"JMSXGroupSeq": "-1"}, -1),
        ("JMSXGroupSeq", {"JMSXGroupSeq": "--1"}, None),
        ("JMSXGroupSeq", {"JMSXGroupSeq": "3.5"}, None),
        ("JMSXGroupSeq", {"JMSXGroupSeq": "9" * 30}, None),
        # Anybody could write it.
        ("JMSXUserID", {"JMSXUserID": "root"}, None),
        ("JMS_AMQP_ContentEncoding", {"content-encoding": "gzip"}, "gzip"),
        ("JMS_AMQP_ReplyToGroupID", {"JMS_AMQP_ReplyToGroupID": "r"}, "r"),
    ],
)
def test_stomp_headers_with_a_jms_name(
    name: str, headers: dict[str, str], expected: Scalar
) -> None:
    assert read(name, stomp(headers)) == expected


def test_stomp_headers_are_texts_under_their_own_names() -> None:
    message = stomp(
        {"n": "5", "colour": "red", "colon": "a:b", "lines": "a\nb\\c\r", "empty": "", "ä": "ö"},
        content_type="text/plain",
    )
    assert read("n", message) == "5"
    assert read("colour", message) == "red"
    assert read("colon", message) == "a:b"
    assert read("lines", message) == "a\nb\\c\r"
    assert read("empty", message) == ""
    assert read("ä", message) == "ö"
    assert read("missing", message) is None
    assert read("destination", message) == "/queue/orders"
    assert read("content-type", message) == "text/plain"
    assert read("JMS_AMQP_ContentType", message) == "text/plain"
    assert read("priority", message) == "4"
    # What looks like a header in the body is none.
    assert read("body", message) is None
    assert outcome("n = 5", message) is False


def test_names_that_need_escaping() -> None:
    assert read("a:b", stomp({"a:b": "v"})) == "v"
    assert read("a\nb", stomp({"a\nb": "v"})) == "v"
    assert read("b", stomp({"a\nb": "v"})) is None
    assert outcome("\"a:b\" = 'v'", stomp({"a:b": "v"})) is True


def test_the_first_of_repeated_headers_counts() -> None:
    message = Message(b"destination:d\na:1\na:2\n\n", 1, STOMP)
    assert read("a", message) == "1"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", None),
        (b"a:1\n", None),
        (b"a:1\n\n", "1"),
        (b"x:2\na:1\n\n", "1"),
        (b"a:\\q\n\n", "\\q"),
        (b"a:\xff\n\n", "\N{REPLACEMENT CHARACTER}"),
        (b"ba:1\n\n", None),
        (b"\n\na:1\n\n", None),
    ],
)
def test_stomp_bytes_that_nobody_packed(body: bytes, expected: Scalar) -> None:
    assert read("a", Message(body, 1, STOMP)) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (False, False),
        (UByte(200), 200),
        (UShort(60_000), 60_000),
        (UInt(0), 0),
        (UInt(200), 200),
        (UInt(4_000_000_000), 4_000_000_000),
        (ULong(0), 0),
        (ULong(200), 200),
        (ULong(2**64 - 1), 2**64 - 1),
        (Byte(-5), -5),
        (Short(-500), -500),
        (Int(-5), -5),
        (Int(-70_000), -70_000),
        (-5, -5),
        (-(2**63), -(2**63)),
        (Float32(1.5), 1.5),
        (2.25, 2.25),
        (float("inf"), float("inf")),
        ("text", "text"),
        ("", ""),
        ("x" * 300, "x" * 300),
        (Symbol("sym"), "sym"),
        (Symbol("s" * 300), "s" * 300),
        (Char("ü"), "ü"),
        (Timestamp(1_700_000_000_000), 1_700_000_000_000),
        (UUID_1, str(UUID_1)),
        # decimal32 of 12.5: coefficient 125, exponent -1.
        (AmqpDecimal(((101 - 1) << 23 | 125).to_bytes(4, "big")), 12.5),
        (b"bytes", OPAQUE),
        (b"x" * 300, OPAQUE),
        ([1, 2], OPAQUE),
        ([], OPAQUE),
        ({"a": 1}, OPAQUE),
        (Described(ULong(1), "x"), OPAQUE),
    ],
)
def test_application_properties_of_every_type(value: Value, expected: Scalar) -> None:
    message = amqp({"before": b"\x00" * 5, "a": value, "behind": 1})
    assert repr(read("a", message)) == repr(expected)
    assert read("behind", message) == 1
    assert repr(read("m.a", amqp(annotations={"z": 0, "a": value}))) == repr(expected)


def test_annotations_in_either_form() -> None:
    message = amqp({"note": "property"}, annotations={"note": "annotation", "n": UInt(5)})
    for name in ("m.note", "JMS_AMQP_MA_note"):
        assert read(name, message) == "annotation"
        assert read(name, stomp({"JMS_AMQP_MA_note": "header", "note": "x"})) == "header"
    assert read("note", message) == "property"
    assert read("m.missing", message) is None
    assert read("m.missing", stomp()) is None
    for name in ("m.", "JMS_AMQP_MA_"):
        assert read(name, message) is None
        assert read(name, stomp()) is None
    # An unsigned annotation equals the number that it is.
    assert outcome('"m.n" = 5 AND "m.note" LIKE \'anno%\'', message) is True


def test_facts_of_a_dead_letter_in_either_form() -> None:
    origin: dict[str, Value] = {
        "x-opt-ORIG-ADDRESS": "q",
        "x-opt-ORIG-QUEUE": "q.one",
        "x-opt-ORIG-MESSAGE-ID": 17,
        "x-opt-ACTUAL-EXPIRY": 5_000,
    }
    headers = {
        "_AMQ_ORIG_ADDRESS": "q",
        "_AMQ_ORIG_QUEUE": "q.one",
        "_AMQ_ORIG_MESSAGE_ID": "17",
        "_AMQ_ORIG_ROUTING_TYPE": "1",
        "_AMQ_ACTUAL_EXPIRY": "5000",
    }
    for message in (amqp({"kept": 1}, annotations=origin), stomp(headers)):
        assert outcome("\"m.x-opt-ORIG-ADDRESS\" = 'q'", message) is True
        assert outcome("_AMQ_ORIG_ADDRESS = 'q'", message) is True
        assert outcome("_AMQ_ORIG_QUEUE LIKE 'q.%' AND _AMQ_ORIG_MESSAGE_ID = 17", message) is True
        assert outcome('"m.x-opt-ORIG-MESSAGE-ID" = 17', message) is True
        assert outcome("_AMQ_ACTUAL_EXPIRY BETWEEN 4999 AND 5001", message) is True
    assert outcome("_AMQ_ORIG_ROUTING_TYPE = 1", stomp(headers)) is True
    assert read("_AMQ_ORIG_MESSAGE_ID", stomp({"_AMQ_ORIG_MESSAGE_ID": "x"})) is None


def test_a_property_of_a_standard_name_is_not_looked_at() -> None:
    message = amqp({"JMSPriority": 9, "AMQAddress": "x", "JMSType": "x"}, flags=3)
    assert read("JMSPriority", message) == 3
    assert read("AMQAddress", message) == ADDRESS
    assert read("JMSType", message) is None


def test_scenario_of_half_of_a_hundred_messages() -> None:
    matches = compile_selector("myNewID < 50", ADDRESS).matches
    assert sum(matches(amqp({"myNewID": UInt(n)})) for n in range(101)) == 50


def test_one_selector_over_both_forms() -> None:
    matches = compile_selector("colour = 'red' AND JMSPriority > 4 AND JMSType IS NOT NULL").matches
    assert matches(amqp({"colour": "red"}, subject="s", flags=5))
    assert matches(stomp({"colour": "red", "type": "s"}, flags=5))
    assert not matches(stomp({"colour": "red", "type": "s"}))


@pytest.mark.parametrize("message", [amqp({"a": 1, "b": 2}, subject="s"), stomp({"a": "1"})])
def test_a_view_reads_each_field_once_and_only_when_asked(message: Message) -> None:
    plan = Plan(["a", "b", "JMSType", "JMSPriority"], ADDRESS)
    view = View(message, plan)
    assert plan.getter("JMSPriority")(view) == 4
    assert view.properties is None
    assert view.others is None
    first = plan.getter("a")(view)
    found = view.properties
    assert found is not None
    plan.getter("b")(view)
    assert view.properties is found
    assert plan.getter("a")(view) is first
    plan.getter("JMSType")(view)
    assert view.others is not None
    assert list(view.others) == ["JMSType"]
    view.others["JMSType"] = "remembered"
    assert plan.getter("JMSType")(view) == "remembered"
