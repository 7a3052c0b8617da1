"""The type codec: round trips, odd encodings, and whatever else may come in over a socket."""

from __future__ import annotations

import struct
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.model.amqp_types import (
    DEPTH_MAX,
    NODES_MAX,
    AmqpArray,
    AmqpDecimal,
    AmqpMap,
    Byte,
    Char,
    DecodeError,
    Described,
    EncodeError,
    Float32,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    decode,
    encode,
    skip,
)
from tests.costs import costs
from tests.lanes import examples
from tests.model.amqp_strategies import same, values

_UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


def whole(raw: bytes):
    value, end = decode(raw, 0, len(raw))
    assert end == len(raw)
    assert skip(raw, 0, len(raw)) == len(raw)
    return value


def unhex(text: str) -> bytes:
    return bytes.fromhex(text)


# ---- round trips


@given(values)
@settings(max_examples=examples(600), deadline=None)
def test_a_value_comes_back_with_its_types(value):
    raw = encode(value)
    found = whole(raw)
    assert same(found, value)
    assert encode(found) == raw


@given(values, st.binary(max_size=8), st.binary(max_size=8))
@settings(max_examples=examples(200), deadline=None)
def test_a_value_is_read_in_the_middle_of_a_buffer(value, before, behind):
    raw = encode(value)
    start, end = len(before), len(before) + len(raw)
    found, at = decode(before + raw + behind, start, end)
    assert at == end
    assert same(found, value)
    assert skip(before + raw + behind, start, end) == end


@given(values)
@settings(max_examples=examples(150), deadline=None)
def test_a_value_cut_anywhere_is_a_decode_error(value):
    raw = encode(value)
    for cut in range(len(raw)):
        with pytest.raises(DecodeError):
            decode(raw[:cut], 0, cut)
        with pytest.raises(DecodeError):
            decode(raw, 0, cut)


# ---- every encoding of the standard, canonical or not [AMQP 1.6]

ENCODINGS = [
    ("40", None),
    ("41", True),
    ("42", False),
    ("5600", False),
    ("5601", True),
    ("50ff", UByte(255)),
    ("60ffff", UShort(65535)),
    ("43", UInt(0)),
    ("5200", UInt(0)),
    ("52ff", UInt(255)),
    ("7000000005", UInt(5)),
    ("70ffffffff", UInt(2**32 - 1)),
    ("44", ULong(0)),
    ("5300", ULong(0)),
    ("8000000000000000ff", ULong(255)),
    ("80ffffffffffffffff", ULong(2**64 - 1)),
    ("5180", Byte(-128)),
    ("618000", Short(-32768)),
    ("54ff", Int(-1)),
    ("71ffffffff", Int(-1)),
    ("7180000000", Int(-(2**31))),
    ("55ff", -1),
    ("81ffffffffffffffff", -1),
    ("818000000000000000", -(2**63)),
    ("723f800000", Float32(1.0)),
    ("823ff0000000000000", 1.0),
    ("82fff0000000000000", float("-inf")),
    ("7422500001", AmqpDecimal(unhex("22500001"))),
    ("84" + "00" * 8, AmqpDecimal(bytes(8))),
    ("94" + "01" * 16, AmqpDecimal(b"\x01" * 16)),
    ("730010ffff", Char("\U0010ffff")),
    ("7300000000", Char("\0")),
    ("838000000000000000", Timestamp(-(2**63))),
    ("837fffffffffffffff", Timestamp(2**63 - 1)),
    ("9800112233445566778899aabbccddeeff", _UUID),
    ("a000", b""),
    ("a003010203", b"\x01\x02\x03"),
    ("b000000003010203", b"\x01\x02\x03"),
    ("a102c3a9", "é"),
    ("b100000002c3a9", "é"),
    ("a30161", Symbol("a")),
    ("b30000000161", Symbol("a")),
    ("45", []),
    ("c00100", []),
    ("d00000000400000000", []),
    ("c0030240" + "41", [None, True]),
    ("d0000000060000000240" + "41", [None, True]),
    ("c10100", {}),
    ("d10000000400000000", {}),
    ("c1050240a10161", {None: "a"}),
    ("d1000000080000000240a10161", {None: "a"}),
    ("e0040252" + "0102", AmqpArray(0x52, (UInt(1), UInt(2)))),
    ("f00000000d00000002" + "700000000100000002", AmqpArray(0x70, (UInt(1), UInt(2)))),
    ("e00200" + "a1", AmqpArray(0xA1, ())),
    ("e0020340", AmqpArray(0x40, (None, None, None))),
    ("e005020053" + "0540", AmqpArray(0x40, (None, None), (ULong(5),))),
    ("e00a0100a3016100a3016240", AmqpArray(0x40, (None,), (Symbol("a"), Symbol("b")))),
    ("00531045", Described(ULong(0x10), [])),
    ("0080000000000000001045", Described(ULong(0x10), [])),
    ("00a3016145", Described(Symbol("a"), [])),
    ("00" + "00" + "4041" + "42", Described(Described(None, True), False)),
    ("00" + "c0020140" + "42", Described([None], False)),
    ("00" + "c10100" + "42", Described({}, False)),
]


@pytest.mark.parametrize(("raw", "value"), ENCODINGS)
def test_an_encoding_of_the_standard_is_read(raw, value):
    assert same(whole(unhex(raw)), value)


def test_an_array_of_arrays_keeps_the_constructor_of_each():
    raw = unhex("e00b02" + "e0" + "020140" + "04025201" + "02")
    found = whole(unhex("e0" + "0a" + "02" + "e0" + "020140" + "0402520102"))
    assert same(
        found,
        AmqpArray(0xE0, (AmqpArray(0x40, (None,)), AmqpArray(0x52, (UInt(1), UInt(2))))),
    )
    with pytest.raises(DecodeError):
        whole(raw)  # one byte more in the size than there is content


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (UInt(0), "43"),
        (UInt(7), "5207"),
        (UInt(256), "7000000100"),
        (ULong(0), "44"),
        (ULong(255), "53ff"),
        (ULong(256), "800000000000000100"),
        (Int(-128), "5480"),
        (Int(128), "7100000080"),
        (127, "557f"),
        (128, "810000000000000080"),
        (True, "41"),
        ([], "45"),
        ([None], "c0020140"),
        ({}, "c10100"),
        (b"x" * 255, "a0ff" + "78" * 255),
        (b"x" * 256, "b000000100" + "78" * 256),
        ([None] * 255, "d0" + "00000103" + "000000ff" + "40" * 255),
        ([None] * 254, "c0" + "ff" + "fe" + "40" * 254),
        (AmqpArray(0xA3, (Symbol("a"),)), "e00401a30161"),
    ],
)
def test_the_shortest_encoding_is_written(value, raw):
    assert encode(value) == unhex(raw)


def test_numbers_show_as_digits_in_texts():
    assert f"{UInt(5)} {Timestamp(-7)} {Float32(0.5)}" == "5 -7 0.5"
    assert repr([UInt(5), Symbol("a")]) == "[UInt(5), Symbol('a')]"


# ---- what must be refused

BAD = {
    "empty": "",
    "boolean 2": "5602",
    "char above Unicode": "7300110000",
    "char that is half a pair": "730000d800",
    "string that is not UTF-8": "a102c328",
    "string with an overlong NUL": "a102c080",
    "string with a surrogate": "a103eda080",
    "symbol that is not ASCII": "a302c3a9",
    "list without room for its count": "c000",
    "list32 without room for its count": "d00000000300000000",
    "list that lies about its size": "c0050140",
    "list with bytes left over": "c003014040",
    "list of more than its bytes": "c0020240",
    "list32 of 2**32-1": "d000000005ffffffff40",
    "map of odd count": "c1020140",
    "map of 2**32-2": "d100000005fffffffe40",
    "array without constructor": "e00100",
    "array with bytes left over": "e003014040",
    "array of an unknown constructor": "e0020057",
    "array of described, without descriptor": "e0020000",
    "array of described, descriptor cut": "e0030100a3",
    "array of uint32, too many": "f000000009000000027000000001",
    "array of binary, too many": "f00000000affffffffa00000000000",
    "array whose item leaves it": "e00401a1ff61",
    "described without value": "005310",
    "described without anything": "00",
    "string longer than the rest": "a1ff61",
    "binary32 of 2**32-1": "b0ffffffff61",
    "list whose item leaves it": "c00301a1ff",
    "value that is a hole in the code table": "46",
}


@pytest.mark.parametrize("raw", BAD.values(), ids=BAD.keys())
def test_a_broken_value_is_a_decode_error_that_says_where(raw):
    data = unhex(raw)
    with pytest.raises(DecodeError) as caught:
        decode(data, 0, len(data))
    assert 0 <= caught.value.offset <= len(data)
    assert caught.value.reason


def test_every_constructor_alone():
    taken = set()
    for code in range(256):
        raw = bytes((code,))
        try:
            value = whole(raw)
        except DecodeError:
            with pytest.raises(DecodeError):
                skip(raw, 0, 1)
            continue
        taken.add(code)
        assert encode(value) == raw
    assert taken == {0x40, 0x41, 0x42, 0x43, 0x44, 0x45}


@pytest.mark.parametrize("code", range(256))
def test_every_constructor_before_all_bytes_of_one_kind(code):
    for fill in (0x00, 0x01, 0x40, 0x7F, 0x80, 0xFF):
        raw = bytes((code,)) + bytes((fill,)) * 40
        for end in range(len(raw) + 1):
            try:
                _, behind = decode(raw, 0, end)
            except DecodeError:
                continue
            assert 0 < behind <= end
            assert skip(raw, 0, end) == behind


# ---- depth

NESTINGS = {
    "list": lambda raw: b"\xd0" + struct.pack(">II", len(raw) + 4, 1) + raw,
    "map value": lambda raw: b"\xd1" + struct.pack(">II", len(raw) + 5, 2) + b"\x40" + raw,
    "map key": lambda raw: b"\xd1" + struct.pack(">II", len(raw) + 5, 2) + raw + b"\x40",
    "described value": lambda raw: b"\x00\x40" + raw,
    "descriptor": lambda raw: b"\x00" + raw + b"\x40",
    "array's descriptor": lambda raw: (
        b"\xf0" + struct.pack(">II", len(raw) + 6, 0) + b"\x00" + raw + b"\x40"
    ),
}


def nested(wrap, depth: int) -> bytes:
    raw = b"\x40"
    for _ in range(depth):
        raw = wrap(raw)
    return raw


def nested_arrays(depth: int) -> bytes:
    """Array of array of ... of null: the constructor stands in the outer one."""
    raw = struct.pack(">II", 5, 1) + b"\x40"
    for _ in range(depth - 1):
        raw = struct.pack(">II", len(raw) + 5, 1) + b"\xf0" + raw
    return b"\xf0" + raw


@pytest.mark.parametrize("name", NESTINGS)
@pytest.mark.parametrize("depth", [7, 8, 9, 31, 32, 33, 500])
def test_depth_is_bounded(name, depth):
    raw = nested(NESTINGS[name], depth)
    # The description in an array's constructor is a level inside the array.
    levels = depth + 1 if name == "array's descriptor" else depth
    for limit in (8, DEPTH_MAX):
        if levels <= limit:
            decode(raw, 0, len(raw), depth_max=limit)
        else:
            with pytest.raises(DecodeError, match="deeper"):
                decode(raw, 0, len(raw), depth_max=limit)


@pytest.mark.parametrize("depth", [8, 9, 32, 33, 500])
def test_depth_of_arrays_is_bounded(depth):
    raw = nested_arrays(depth)
    if depth <= DEPTH_MAX:
        assert encode(whole(raw)) == encode(whole(encode(whole(raw))))
    else:
        with pytest.raises(DecodeError, match="deeper"):
            decode(raw, 0, len(raw))


def test_a_very_deep_value_is_refused_at_once():
    # Built from the inside of one buffer: sizes claim all that follows.
    count = 65_000
    lists = (
        b"".join(b"\xd0" + struct.pack(">II", (count - i) * 9 - 5, 1) for i in range(count))
        + b"\x40"
    )
    described = b"\x00\x40" * count + b"\x40"
    constructors = b"\xf0" + struct.pack(">II", 2 * count + 5, 1) + b"\x00\x40" * count + b"\x40"
    for raw in (lists, described, b"\x00" * count, constructors):
        with costs(), pytest.raises(DecodeError):
            decode(raw, 0, len(raw))


def test_skip_bounds_descriptions():
    raw = b"\x00" * 33 + b"\x40" * 34
    with pytest.raises(DecodeError, match="deeper"):
        skip(raw, 0, len(raw))
    with pytest.raises(DecodeError):
        skip(b"\x00" * 1_000_000, 0, 1_000_000)


# ---- counts and nodes


@pytest.mark.parametrize("code", [0x40, 0x41, 0x42, 0x43, 0x44, 0x45])
@pytest.mark.parametrize("count", [0, 1, 256, 257, 65_536, 2**32 - 1])
def test_arrays_of_nothing_are_bounded(code, count):
    raw = b"\xf0" + struct.pack(">IIB", 5, count, code)
    if count <= 256:
        assert len(whole(raw).items) == count
    else:
        with pytest.raises(DecodeError, match="no bytes"):
            decode(raw, 0, len(raw))


@pytest.mark.parametrize("code", [0x50, 0x60, 0x70, 0x80, 0x98, 0xA1, 0xB0, 0xC0, 0xD1, 0xE0, 0xF0])
def test_a_count_is_paid_for_in_bytes(code):
    raw = b"\xf0" + struct.pack(">IIB", 5 + 20, 2**32 - 1, code) + bytes(20)
    with costs(), pytest.raises(DecodeError, match="cannot lie"):
        decode(raw, 0, len(raw))


def test_nodes_are_counted_over_the_whole_piece():
    small = b"\xe0\x02\xff\x40"  # 255 nulls in four bytes
    raw = b"\xd0" + struct.pack(">II", 4 + len(small) * 17, 17) + small * 17
    with pytest.raises(DecodeError, match="too many"):
        decode(raw, 0, len(raw))
    fits = b"\xd0" + struct.pack(">II", 4 + len(small) * 15, 15) + small * 15
    assert len(whole(fits)) == 15


def test_nodes_at_the_limit():
    def nulls(count: int) -> bytes:
        return b"\xd0" + struct.pack(">II", 4 + count, count) + b"\x40" * count

    assert len(whole(nulls(NODES_MAX - 1))) == NODES_MAX - 1
    with pytest.raises(DecodeError, match="too many"):
        decode(nulls(NODES_MAX), 0, NODES_MAX + 9)
    assert decode(nulls(3), 0, 12, nodes_max=4)[0] == [None] * 3
    with pytest.raises(DecodeError):
        decode(nulls(3), 0, 12, nodes_max=3)


def test_nodes_that_no_count_announces():
    raw = b"\x00\x40" * 10 + b"\x40"
    assert decode(raw, 0, len(raw), nodes_max=21)[1] == len(raw)
    with pytest.raises(DecodeError, match="too many"):
        decode(raw, 0, len(raw), nodes_max=20)


# ---- maps that no dict can hold


@pytest.mark.parametrize(
    "pairs",
    [
        ((1, "a"), (1, "b")),
        ((True, "a"), (1, "b")),
        ((Symbol("k"), 1), ("k", 2)),
        ((0.0, 1), (-0.0, 2)),
        (([], 1),),
        (({}, 1), (AmqpArray(0xC0, ([],)), 2)),
    ],
)
def test_a_map_that_a_dict_would_change_keeps_its_pairs(pairs):
    found = whole(encode(AmqpMap(pairs)))
    assert isinstance(found, AmqpMap)
    assert same(found, AmqpMap(pairs))


# ---- values that cannot be written


@pytest.mark.parametrize(
    "value",
    [
        UByte(256),
        UByte(-1),
        UShort(65_536),
        UInt(2**32),
        ULong(-1),
        Byte(128),
        Int(2**31),
        2**63,
        Char("ab"),
        Char("\ud800"),
        Symbol("é"),
        "\ud800",
        AmqpDecimal(b"123"),
        AmqpArray(0x50, (UByte(300),)),
        AmqpArray(0x40, (True,)),
        AmqpArray(0x70, ("x",)),
        AmqpArray(0x57, (1,)),
        AmqpArray(0xD0, ({},)),
        AmqpArray(0xC0, ([b"x" * 300],)),
        AmqpArray(0xA0, (b"x" * 300,)),
        AmqpArray(0x84, (AmqpDecimal(bytes(4)),)),
        object(),
        {1, 2},
        [[object()]],
    ],
)
def test_a_value_without_an_encoding_is_refused(value):
    with pytest.raises(EncodeError):
        encode(value)


def test_encode_is_bounded_in_depth():
    value: list = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(EncodeError, match="deeper"):
        encode(value)


# ---- noise


@given(st.binary(max_size=200))
@settings(max_examples=examples(1500), deadline=None)
def test_noise_is_a_value_or_a_decode_error(raw):
    try:
        value, end = decode(raw, 0, len(raw))
    except DecodeError:
        return
    assert 0 < end <= len(raw)
    again, _ = decode(encode(value), 0, 1 << 20)
    # A NaN differs from itself, so only its encoding is compared.
    assert encode(again) == encode(value)


@given(values, st.data())
@settings(max_examples=examples(600), deadline=None)
def test_a_changed_byte_is_a_value_or_a_decode_error(value, data):
    raw = bytearray(encode(value))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    offsets: list[int] = []
    for read in (decode, skip):
        with costs():
            try:
                read(bytes(raw), 0, len(raw))
            except DecodeError as error:
                offsets.append(error.offset)
    assert all(0 <= offset <= len(raw) for offset in offsets)
