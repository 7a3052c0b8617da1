"""Messages that nobody should send: whatever is stored, every column can be made of it.

A message that raised would stop its query at the same place after each restart, so these go through
all columns, alone and among rows of their own shape, as a task on an executor has them.
"""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from gateway.decoding.view import BODY_FORMATS, STORED, TYPES, View, Viewer, columns_of
from gateway.model.message import STOMP

ROUNDS = 60
#: Encoded values of every kind, and of none: numbers at their ends, texts that are no UTF-8,
#: decimals and times beyond any calendar, containers that hold less than they say.
VALUES = [
    bytes.fromhex(text)
    for text in (
        "40", "41", "42", "5600", "5607", "50ff", "60ffff", "70ffffffff", "80ffffffffffffffff",
        "5309", "44", "5180", "618000", "7180000000", "818000000000000000", "5580", "727fc00000",
        "727f800000", "827ff0000000000000", "82ffffffffffffffff", "74ffffffff",
        "845f5f5f5f5f5f5f5f", "942f2f2f2f2f2f2f2f2f2f2f2f2f2f2f2f",
        "94ffffffffffffffffffffffffffffffff", "730010ffff", "730000d800", "837fffffffffffffff",
        "838000000000000000", "9801010101010101010101010101010101", "a002fffe", "a102fffe",
        "a103eda080", "a302fffe", "b100000001ff", "45", "c00100", "c10100", "e00402a10161",
        "f00000000a000000ff40", "00a3017a40", "c10502a1016b40", "d10000000900000002a1016b40",
        "a10b7472616365706172656e74",
    )
]  # fmt: skip
LINES = [
    b"type:x", b"subject:\xff\xfe", b"timestamp:99999999999999999", b"timestamp:-1",
    b"expires:9999999999999999999999", b"expires:\xd9\xa1", b"a:b", b"a:\\", b"a:\\q", b":",
    b"a\\c:b\\n", b"x", b"\xff:\xff", b"traceparent:00", b"NATIVE_MESSAGE_ID:\x80",
    b"JMSXGroupID:g", b"content-type:\xff", b"content-length:5", b"content-length:\xff",
    b"priority:x", b"timestamp:\xb2",
]  # fmt: skip


def _section(code: int, items: list[bytes], kind: int = 0xC0) -> bytes:
    inside = b"".join(items)
    return b"\x00\x53" + bytes([code, kind, len(inside) + 1, len(items)]) + inside


def _amqp(chance: random.Random) -> bytes:
    def some(count: int) -> list[bytes]:
        return chance.choices([v for v in VALUES if len(v) < 20], k=count)

    body = chance.choice([b"\x00\x53\x75\xa0\x01x", b"", b"\x00\x53\x77" + chance.choice(VALUES)])
    parts = [
        _section(0x70, some(chance.randrange(6))),
        _section(0x72, some(2 * chance.randrange(4)), 0xC1),
        _section(0x73, some(chance.randrange(12))),
        _section(0x74, some(2 * chance.randrange(4) + (chance.random() < 0.1)), 0xC1),
    ]
    return b"".join(part for part in parts if chance.random() < 0.6) + body


def _stomp(chance: random.Random) -> bytes:
    lines = [b"destination:q", *chance.choices(LINES, k=chance.randrange(6))]
    end = chance.choice([b"\n\n", b"\n\n", b"\n"])
    return b"\n".join(lines) + end + chance.choice([b"", b"body", b"\xff\xfe"])


def _damaged(raw: bytes, chance: random.Random) -> bytes:
    data = bytearray(raw)
    for _ in range(chance.choice([0, 0, 0, 1, 3])):
        if data:
            data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


def _look(messages: list[bytes], word: int) -> None:
    """Make every column of messages that lie in one block, in each form."""
    count = len(messages)
    stamps = pa.array([0] * count, pa.timestamp("us", tz="UTC"))
    columns = [pa.array(range(count), pa.int64()), stamps, pa.array([word] * count, pa.int32())]
    rows = pa.record_batch([*columns, pa.array(messages, pa.binary())], schema=STORED)
    for mode, body in (("map", "binary"), ("json", "string"), ("map", "amqp")):
        assert body in BODY_FORMATS
        view = View(
            names=tuple(TYPES),
            schema=columns_of(tuple(TYPES), mode, body),
            header_mode=mode,
            body_format=body,
        )
        found = Viewer(view, "q", 1).convert(rows)
        assert len(found) == count
        found.validate(full=True)


@pytest.mark.parametrize("seed", range(8))
def test_every_column_can_be_made_of_whatever_is_stored(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(ROUNDS):
        make, word = chance.choice([(_amqp, 0), (_stomp, STOMP)])
        known = [_damaged(make(chance), chance) for _ in range(chance.choice([1, 2, 30]))]
        messages = chance.choices(known, k=chance.choice([1, 30, 60]))
        if chance.random() < 0.3:  # rows of one shape, with a value of their own
            messages = [raw[:-1] + bytes([n]) if raw else raw for n, raw in enumerate(messages)]
        _look(messages, word)


@pytest.mark.parametrize(
    "number", ["80ffffffffffffffff", "818000000000000000", "838000000000000000", "5580"]
)
def test_numbers_of_a_header_that_fit_no_column_are_none(number: str) -> None:
    value = bytes.fromhex(number)
    header = _section(0x70, [b"\x41", b"\x40", value, b"\x40", value])
    _look([header + b"\x00\x53\x75\xa0\x01x"], 0)
    _look([header + b"\x00\x53\x75\xa0\x01%c" % n for n in range(40)], 0)


@pytest.mark.parametrize("value", ["map", "list", "described"])
@pytest.mark.parametrize("depth", [5, 31, 33, 3_000])
def test_nesting_without_end_arrives(value: str, depth: int) -> None:
    inner = b"\x40"
    for _ in range(depth):
        size = len(inner)
        inner = {
            "map": b"\xd1" + (size + 7).to_bytes(4, "big") + b"\0\0\0\x02\xa1\x01k",
            "list": b"\xd0" + (size + 4).to_bytes(4, "big") + b"\0\0\0\x01",
            "described": b"\x00\x53\x01",
        }[value] + inner
    pair = b"\xa1\x01p" + inner
    place = b"\xd1" + (len(pair) + 4).to_bytes(4, "big") + b"\0\0\0\x02"
    properties = b"\x00\x53\x74" + place + pair + b"\x00\x53\x75\xa0\x01x"
    for messages in ([properties], [properties] * 30, [b"\x00\x53\x77" + inner] * 30):
        _look(messages, 0)


def test_a_megabyte_of_properties_arrives() -> None:
    lines = b"".join(b"name-%d:%s\n" % (n, b"v" * 30) for n in range(25_000))
    _look([b"destination:q\n" + lines + b"\nbody"] * 2, STOMP)
    many = b"".join(b"\xa1\x05%05d\xa1\x1e%b" % (n, b"v" * 30) for n in range(2_000))
    place = b"\xd1" + (len(many) + 4).to_bytes(4, "big") + (4_000).to_bytes(4, "big")
    _look([b"\x00\x53\x74" + place + many + b"\x00\x53\x75\xa0\x01x"] * 30, 0)
