"""Sections: found in every encoding, read on demand, changed without touching anything else."""

from __future__ import annotations

import uuid

import proton
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.model.amqp_types import (
    AmqpMap,
    Byte,
    DecodeError,
    Described,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    decode,
    encode,
)
from gateway.model.sections import (
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SECTIONS_MAX,
    BodyKind,
    HeaderFacts,
    Sections,
    expiry_and_group,
    header_facts,
    header_fields,
    peek,
    scan,
    strip_delivery_annotations,
    with_annotations,
    with_header,
    without_expiry,
)
from tests.costs import costs
from tests.lanes import examples

NAMES = {
    0x70: "amqp:header:list",
    0x71: "amqp:delivery-annotations:map",
    0x72: "amqp:message-annotations:map",
    0x73: "amqp:properties:list",
    0x74: "amqp:application-properties:map",
    0x75: "amqp:data:binary",
    0x76: "amqp:amqp-sequence:list",
    0x77: "amqp:amqp-value:*",
    0x78: "amqp:footer:map",
}
DESCRIPTORS = {
    "smallulong": lambda code: b"\x53" + bytes((code,)),
    "ulong": lambda code: b"\x80" + code.to_bytes(8, "big"),
    "symbol8": lambda code: encode(Symbol(NAMES[code])),
    "symbol32": lambda code: (
        b"\xb3" + len(NAMES[code]).to_bytes(4, "big") + NAMES[code].encode("ascii")
    ),
}


def absolute_expiry(body: bytes, start: int = 0) -> int:
    return expiry_and_group(body, start)[0]


def section(code: int, value, how: str = "smallulong") -> bytes:
    return b"\x00" + DESCRIPTORS[how](code) + encode(value)


BODY = section(0x75, b"body")


def proton_message(**facts) -> bytes:
    return bytes(proton.Message(**facts).encode())


def read_by_proton(raw: bytes) -> proton.Message:
    message = proton.Message()
    message.decode(raw)
    return message


# ---- the header


@pytest.mark.parametrize("how", DESCRIPTORS)
@pytest.mark.parametrize(
    ("fields", "facts"),
    [
        ([], (False, 4, None, False, 0)),
        ([True], (True, 4, None, False, 0)),
        ([False, UByte(9)], (False, 9, None, False, 0)),
        ([None, UByte(99)], (False, 9, None, False, 0)),
        ([None, None, UInt(0)], (False, 4, 0, False, 0)),
        ([True, UByte(0), UInt(2**32 - 1), True, UInt(7)], (True, 0, 2**32 - 1, True, 7)),
        ([None, None, None, None, None, None], (False, 4, None, False, 0)),
    ],
)
def test_header_facts(how, fields, facts):
    head = section(HEADER, fields, how)
    assert header_facts(head + BODY) == HeaderFacts(*facts, len(head))


@pytest.mark.parametrize("raw", ["005370d0000000070000000241" + "5007", "005370c0040241" + "5007"])
def test_header_facts_of_both_lists(raw):
    head = bytes.fromhex(raw)
    assert header_facts(head + BODY) == (True, 7, None, False, 0, len(head))


@pytest.mark.parametrize("body", [b"", BODY, section(0x73, []), section(0x77, None, "ulong")])
def test_a_message_without_header_has_the_defaults(body):
    assert header_facts(body) == (False, 4, None, False, 0, 0)


@pytest.mark.parametrize(
    "fields",
    [
        [UByte(1)],
        [True, UInt(4)],
        [True, None, ULong(5)],
        [None, None, None, UByte(1)],
        [None] * 4 + [-1],
        [None] * 5 + [True],
    ],
)
def test_a_header_of_other_types_is_a_decode_error(fields):
    with pytest.raises(DecodeError):
        header_facts(section(HEADER, fields) + BODY)


@pytest.mark.parametrize("raw", ["00", "005370", "005370c0", "005370c00a01", "005370d000"])
def test_a_header_cut_short_is_a_decode_error(raw):
    with pytest.raises(DecodeError):
        header_facts(bytes.fromhex(raw))


def test_header_fields_are_of_one_section():
    assert header_fields(section(HEADER, [True])) == [True, None, None, None, None]
    for wrong in (section(HEADER, []) + b"x", section(HEADER, []) * 2, encode([]), BODY):
        with pytest.raises(DecodeError):
            header_fields(wrong)


def test_header_facts_of_what_proton_writes():
    raw = proton_message(body="x", durable=True, priority=7, ttl=3.0, delivery_count=2)
    assert header_facts(raw)[:5] == (True, 7, 3000, False, 2)


# ---- scan and peek


def full(how: str = "smallulong") -> list[bytes]:
    return [
        section(0x70, [True], how),
        section(0x71, {Symbol("d"): 1}, how),
        section(0x72, {Symbol("m"): 2}, how),
        section(0x73, ["id", None, "to"], how),
        section(0x74, {"a": 3}, how),
        section(0x75, b"one", how),
        section(0x78, {Symbol("f"): 4}, how),
    ]


@pytest.mark.parametrize("how", DESCRIPTORS)
def test_scan_finds_every_section(how):
    pieces = full(how)
    found = scan(b"".join(pieces))
    at = 0
    for piece in pieces:
        code = decode(piece, 1, len(piece))[0]
        code = int(code) if type(code) is ULong else {v: k for k, v in NAMES.items()}[code]
        if code != DATA:
            assert found.spans[code][0] == at
            assert found.spans[code][2] == at + len(piece)
        at += len(piece)
    assert found.body_kind is BodyKind.DATA
    assert found.data() == b"one"
    assert found.delivery_annotations == {"d": 1}
    assert found.message_annotations == {"m": 2}
    assert (found.message_id, found.to, found.subject) == ("id", "to", None)
    assert found.application_properties == {"a": 3}
    assert found.footer == {"f": 4}


def test_peek_stops_before_the_body():
    found = peek(b"".join(full()[:5]) + b"\x00\x53\x75\xa0\x01x and noise")
    assert found.body_kind is BodyKind.DATA
    assert found.parts == []
    assert found.application_properties == {"a": 3}


@pytest.mark.parametrize(
    ("raw", "kind", "value"),
    [
        (section(0x77, "text"), BodyKind.VALUE, "text"),
        (section(0x77, {"a": 1}), BodyKind.VALUE, {"a": 1}),
        (section(0x77, None), BodyKind.VALUE, None),
        (section(0x76, [1]) + section(0x76, ["b"]), BodyKind.SEQUENCE, [1, "b"]),
        (
            BODY + section(0x75, b"") + section(0x75, b"x" * 300),
            BodyKind.DATA,
            b"body" + b"x" * 300,
        ),
        (section(0x78, {}), BodyKind.NONE, None),
        (b"", BodyKind.NONE, None),
    ],
)
def test_bodies(raw, kind, value):
    found = scan(raw)
    assert found.body_kind is kind
    if kind is BodyKind.VALUE:
        assert found.value() == value
    elif kind is BodyKind.SEQUENCE:
        assert found.sequence() == value
    elif kind is BodyKind.DATA:
        assert found.data() == value


BROKEN = {
    "header twice": section(0x70, []) * 2 + BODY,
    "properties twice": section(0x73, []) * 2 + BODY,
    "annotations behind properties": section(0x73, []) + section(0x72, {}) + BODY,
    "header behind the body": BODY + section(0x70, []),
    "data and value": BODY + section(0x77, 1),
    "value twice": section(0x77, 1) * 2,
    "sequence behind data": BODY + section(0x76, []),
    "footer twice": BODY + section(0x78, {}) * 2,
    "body behind the footer": section(0x78, {}) + BODY,
    "header that is a map": section(0x70, {}) + BODY,
    "properties that are a map": section(0x73, {}) + BODY,
    "data that is a string": section(0x75, "x"),
    "annotations that are a list": section(0x72, []) + BODY,
    "unknown section": b"\x00\x53\x79\x45",
    "unknown symbol": b"\x00" + encode(Symbol("amqp:other:list")) + b"\x45",
    "descriptor that is a string": b"\x00" + encode("amqp:header:list") + b"\x45",
    "descriptor that is a list": b"\x00\x45\x45",
    "no description": encode("text"),
    "described data": b"\x00\x53\x75\x00\x40\xa0\x00",
    "data cut short": b"\x00\x53\x75\xa0\x05abc",
    "data32 cut in its size": b"\x00\x53\x75\xb0\x00\x00",
    "descriptor alone": b"\x00\x53\x75",
    "noise behind": BODY + b"\x01",
}


@pytest.mark.parametrize("raw", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_message_is_a_decode_error(raw):
    with pytest.raises(DecodeError):
        scan(raw)


def test_every_truncation_is_told():
    raw = b"".join(full())
    ends = {len(b"".join(full()[:n])) for n in range(8)}
    for cut in range(len(raw)):
        if cut in ends:
            scan(raw[:cut])
            continue
        with pytest.raises(DecodeError):
            scan(raw[:cut])


def test_the_number_of_sections_is_bounded():
    empty = section(0x75, b"")
    assert scan(empty * SECTIONS_MAX).data() == b""
    with costs(), pytest.raises(DecodeError, match="body sections"):
        scan(empty * 1_000_000)


# ---- properties


def test_every_property_of_a_message_that_proton_wrote():
    ident = uuid.uuid4()
    raw = proton_message(
        id=ident,
        user_id=b"me",
        address="to",
        subject="subject",
        reply_to="reply",
        correlation_id=proton.ulong(7),
        content_type="text/plain",
        content_encoding="gzip",
        expiry_time=1000.0,
        creation_time=2.0,
        group_id="group",
        group_sequence=5,
        reply_to_group_id="other",
        body="text",
    )
    found = peek(raw)
    assert found.message_id == ident
    assert found.user_id == b"me"
    assert (found.to, found.subject, found.reply_to) == ("to", "subject", "reply")
    assert found.correlation_id == ULong(7)
    assert type(found.correlation_id) is ULong
    assert (found.content_type, found.content_encoding) == ("text/plain", "gzip")
    assert (found.absolute_expiry_time, found.creation_time) == (1_000_000, 2000)
    assert (found.group_id, found.group_sequence) == ("group", 5)
    assert found.reply_to_group_id == "other"
    assert absolute_expiry(raw) == 1_000_000
    assert absolute_expiry(raw, header_facts(raw).end) == 1_000_000


@pytest.mark.parametrize("count", range(14))
def test_properties_read_at_once_are_the_same(count):
    fields = [ULong(1), b"u", "t", "s", "r", b"c", Symbol("y"), Symbol("e"), Timestamp(5)]
    fields = [*fields, Timestamp(6), "g", UInt(7), "h"][:count]
    raw = section(0x73, fields) + BODY
    one_by_one, at_once = scan(raw), scan(raw)
    at_once.read_properties()
    for name in vars(Sections):
        if isinstance(vars(Sections)[name], property):
            assert getattr(one_by_one, name) == getattr(at_once, name)
    scan(BODY).read_properties()


def test_properties_read_at_once_are_checked_as_well():
    found = scan(section(0x73, [5]) + BODY)
    found.read_properties()
    with pytest.raises(DecodeError):
        _ = found.message_id
    with pytest.raises(DecodeError):
        scan(b"\x00\x53\x73\xc0\x02\x09\x40" + BODY).read_properties()


def test_absent_properties_are_none():
    found = scan(BODY)
    assert found.message_id is None
    assert found.group_sequence is None
    assert found.application_properties == {}
    assert found.footer == {}
    assert scan(section(0x73, ["id"]) + BODY).absolute_expiry_time is None


@pytest.mark.parametrize(
    ("index", "name", "wrong"),
    [
        (0, "message_id", 5),
        (1, "user_id", "me"),
        (2, "to", b"x"),
        (3, "subject", Symbol("s")),
        (4, "reply_to", 1),
        (5, "correlation_id", UInt(5)),
        (6, "content_type", b"x"),
        (8, "absolute_expiry_time", 5),
        (9, "creation_time", ULong(5)),
        (10, "group_id", 1),
        (11, "group_sequence", 1),
    ],
)
def test_a_property_of_another_type_is_a_decode_error(index, name, wrong):
    found = scan(section(0x73, [None] * index + [wrong]) + BODY)
    with pytest.raises(DecodeError):
        getattr(found, name)


def test_a_content_type_that_is_a_string_is_taken():
    assert scan(section(0x73, [None] * 6 + ["text/plain"]) + BODY).content_type == "text/plain"


def test_a_property_list_that_lies_is_a_decode_error():
    raw = b"\x00\x53\x73\xc0\x02\x09\x40" + BODY
    found = scan(raw)
    with pytest.raises(DecodeError):
        _ = found.group_id
    with pytest.raises(DecodeError):
        absolute_expiry(raw)
    with pytest.raises(DecodeError):
        _ = scan(b"\x00\x53\x73\xd0\x00\x00\x00\x02\x00\x00" + BODY).to


def test_maps_with_repeated_keys_keep_the_last():
    twice = AmqpMap((("a", 1), ("a", 2)))
    assert scan(section(0x74, twice) + BODY).application_properties == {"a": 2}
    with pytest.raises(DecodeError):
        _ = scan(section(0x72, AmqpMap((([], 1),))) + BODY).message_annotations
    with pytest.raises(DecodeError):
        _ = scan(section(0x74, {Symbol("a"): 1}) + BODY).application_properties


def test_a_thousand_properties():
    many = {f"name-{n}": n for n in range(1000)}
    assert scan(section(0x74, many) + BODY).application_properties == many


@pytest.mark.parametrize("body", [BODY, section(0x77, 1), b"", section(0x73, [None] * 8) + BODY])
def test_no_absolute_expiry(body):
    assert absolute_expiry(body) == 0
    assert absolute_expiry(section(0x70, [True]) + body) == 0


def test_absolute_expiry_may_be_anything_a_timestamp_can_be():
    for stamp in (-(2**63), -1, 0, 2**63 - 1):
        assert absolute_expiry(section(0x73, [None] * 8 + [Timestamp(stamp)]) + BODY) == stamp
    with pytest.raises(DecodeError):
        absolute_expiry(section(0x73, [None] * 8 + [ULong(5)]) + BODY)


# ---- changes


@pytest.mark.parametrize("how", DESCRIPTORS)
def test_delivery_annotations_go_and_nothing_else(how):
    pieces = full(how)
    kept = b"".join(pieces[:1] + pieces[2:])
    assert strip_delivery_annotations(b"".join(pieces)) == kept
    assert strip_delivery_annotations(b"".join(pieces), len(pieces[0])) == kept
    assert strip_delivery_annotations(b"".join(pieces[1:])) == b"".join(pieces[2:])


@pytest.mark.parametrize(
    "body", [b"", BODY, section(0x70, [True]) + BODY, section(0x72, {}) + BODY]
)
def test_nothing_to_strip_is_the_same_object(body):
    assert strip_delivery_annotations(body) is body


def test_with_header_keeps_what_came():
    rest = b"".join(full()[2:])
    raw = section(0x70, [True, UByte(99), UInt(5000)]) + rest
    changed = with_header(raw, delivery_count=3)
    assert changed == section(0x70, [True, UByte(99), UInt(5000), None, UInt(3)]) + rest
    assert with_header(changed, delivery_count=0) == raw
    assert with_header(raw, delivery_count=1, first_acquirer=False) == (
        section(0x70, [True, UByte(99), UInt(5000), False, UInt(1)]) + rest
    )


def test_with_header_where_there_was_none():
    assert with_header(BODY, delivery_count=0) == BODY
    assert with_header(BODY, delivery_count=2) == section(0x70, [None] * 4 + [UInt(2)]) + BODY
    assert with_header(BODY, delivery_count=0, first_acquirer=True) == (
        section(0x70, [None] * 3 + [True]) + BODY
    )


def test_with_header_of_a_broken_header_is_a_decode_error():
    with pytest.raises(DecodeError):
        with_header(section(0x70, [UInt(1)]) + BODY, delivery_count=1)


def test_annotations_are_added_where_there_were_none():
    head, rest = b"".join(full()[:2]), b"".join(full()[3:])
    added = section(0x72, {Symbol("x-opt-ORIG-ADDRESS"): "q"})
    assert with_annotations(head + rest, {"x-opt-ORIG-ADDRESS": "q"}) == head + added + rest
    assert with_annotations(BODY, {"x-opt-ORIG-ADDRESS": "q"}) == added + BODY
    assert with_annotations(b"", {"x-opt-ORIG-ADDRESS": "q"}) == added
    assert with_annotations(BODY, {}) == BODY


def test_annotations_are_added_to_others_and_replace_their_own():
    # An odd encoding in the middle stays as it is.
    odd = encode(Symbol("odd")) + b"\x80" + bytes(7) + b"\x05"
    pairs = encode(Symbol("x")) + encode(1) + odd + encode(Symbol("y")) + encode(2)
    raw = b"\x00\x53\x72\xc1" + bytes((len(pairs) + 1, 6)) + pairs + BODY
    changed = with_annotations(raw, {"y": "new"}, drop=("x",))
    kept = odd + encode(Symbol("y")) + encode("new")
    assert changed == b"\x00\x53\x72\xc1" + bytes((len(kept) + 1, 4)) + kept + BODY
    assert with_annotations(raw, {}, drop=("x", "y", "odd")) == BODY


def test_many_annotations_need_the_wider_map():
    raw = section(0x72, {Symbol(f"a{n}"): n for n in range(120)}) + BODY
    changed = with_annotations(raw, {f"b{n}": n for n in range(20)})
    found = scan(changed).message_annotations
    assert len(found) == 140
    assert (found["a119"], found["b19"]) == (119, 19)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x53\x72\xc1\x02\x01\x40" + BODY,
        b"\x00\x53\x72\xc1\x03\x02\x40" + b"\xa3" + BODY,
        b"\x00\x53\x72\xc1\x04\x02\x40\x40\x40" + BODY,
        b"\x00\x53\x72\xd1\x00\x00\x20\x06\x00\x00\x20\x02" + b"\x40" * 8194 + BODY,
    ],
)
def test_broken_annotations_cannot_be_added_to(raw):
    with pytest.raises(DecodeError):
        with_annotations(raw, {"x": 1})


def test_without_expiry():
    properties = ["id", None, "to", *[None] * 5, Timestamp(5), Timestamp(6), "group"]
    raw = section(0x70, [True, None, UInt(9), None, UInt(4)]) + section(0x73, properties) + BODY
    properties[8] = None
    assert without_expiry(raw) == section(0x70, [True]) + section(0x73, properties) + BODY
    assert without_expiry(BODY) == BODY
    short = section(0x73, ["id"]) + BODY
    assert without_expiry(short) == short


def test_proton_reads_a_message_changed_in_every_way():
    raw = proton_message(
        body={"a": 1},
        id="id",
        ttl=5.0,
        expiry_time=77.0,
        priority=8,
        annotations={"x": 1},
        instructions={"gone": True},
        properties={"p": "v"},
    )
    changed = with_annotations(
        with_header(strip_delivery_annotations(without_expiry(raw)), delivery_count=6),
        {"x-opt-ORIG-ADDRESS": "q", "x-opt-ORIG-MESSAGE-ID": 5},
    )
    message = read_by_proton(changed)
    assert (message.ttl, message.expiry_time, message.priority) == (0.0, 0.0, 8)
    assert message.delivery_count == 6
    assert message.annotations == {"x": 1, "x-opt-ORIG-ADDRESS": "q", "x-opt-ORIG-MESSAGE-ID": 5}
    assert not message.instructions
    assert (message.id, message.body, message.properties) == ("id", {"a": 1}, {"p": "v"})


# ---- noise


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=examples(500), deadline=None)
def test_a_changed_message_is_read_or_a_decode_error(changes):
    raw = bytearray(b"".join(full()) + section(0x78, {Symbol("g"): [1, Byte(2)]}))
    for at, byte in changes:
        raw[at % len(raw)] = byte
    body = bytes(raw)
    for use in (
        header_facts,
        absolute_expiry,
        strip_delivery_annotations,
        without_expiry,
        lambda b: with_header(b, delivery_count=2),
        lambda b: with_annotations(b, {"x": 1}),
        lambda b: (s := scan(b)).footer and s.application_properties,
        lambda b: (peek(b).message_id, peek(b).group_id, peek(b).message_annotations),
        lambda b: scan(b).delivery_annotations,
    ):
        try:
            use(body)
        except DecodeError as error:
            assert error.reason  # noqa: PT017 - either way out is right


@given(st.binary(max_size=80))
@settings(max_examples=examples(500), deadline=None)
def test_noise_is_a_decode_error_or_nothing(raw):
    for use in (scan, peek, header_facts, strip_delivery_annotations, absolute_expiry):
        try:
            use(raw)
        except DecodeError as error:
            assert error.reason  # noqa: PT017 - either way out is right


def test_described_sections_are_not_confused_with_values():
    raw = section(0x77, Described(ULong(0x75), b"inner"))
    assert scan(raw).value() == Described(ULong(0x75), b"inner")
    assert MESSAGE_ANNOTATIONS not in scan(raw).spans
    assert PROPERTIES not in scan(raw).spans


@pytest.mark.parametrize(
    ("fields", "grouped"),
    [
        ([None] * 10 + ["g"], True),
        ([None] * 10 + [""], True),
        ([None] * 11 + [UInt(3)], False),
        ([None] * 10, False),
        (["id"], False),
        ([None] * 9 + [Timestamp(5), "g", UInt(1), "r"], True),
    ],
)
def test_whether_a_message_has_a_group(fields, grouped):
    for before in (b"", section(0x70, [True])):
        body = before + section(0x73, fields) + BODY
        assert expiry_and_group(body, len(before)) == (0, grouped)
        assert expiry_and_group(body) == (0, grouped)
    assert expiry_and_group(BODY) == (0, False)
