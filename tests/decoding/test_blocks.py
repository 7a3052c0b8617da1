"""Blocks decoded at once come to the same as messages read one after the other."""

from __future__ import annotations

import random
import struct
import uuid
from typing import Any

import proton
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.decoding.blocks import ROWS_MIN, Decoded, decode_block
from gateway.decoding.columns import BlockReader
from gateway.decoding.shapes import Length, Shape
from gateway.decoding.view import STORED, TYPES, View, Viewer, columns_of
from gateway.model.message import STOMP
from tests.streams.harness import amqp_message, stomp_message

Message = tuple[bytes, int]
AMQP_WORD = 0x14
STOMP_WORD = STOMP | 4


def one_by_one(messages: list[Message]) -> list[tuple[Any, bytes | None]]:
    data, offsets = b"", [0]
    for raw, _ in messages:
        data += raw
        offsets.append(len(data))
    found = BlockReader().read(data, offsets, [word for _, word in messages])
    return [(found.heads[i], b) for i, b in zip(found.indices, found.bodies, strict=True)]


NAMES = [name for name in TYPES if name not in ("address", "epoch", "amqp")]


def check(messages: list[Message]) -> Decoded:
    """Compare every column with what comes out when no run is longer than one message."""
    raw = pa.array([raw for raw, _ in messages], pa.binary())
    flags = pa.array([word for _, word in messages], pa.int32())
    count = len(messages)
    stamps = pa.array([0] * count, STORED.field(1).type)
    rows = pa.record_batch([pa.array(range(count)), stamps, flags, raw], schema=STORED)
    for header_mode in ("map", "json"):
        view = View(
            names=tuple(NAMES),
            schema=columns_of(NAMES, header_mode, "binary"),
            header_mode=header_mode,
            body_format="binary",
        )
        at_once = Viewer(view, "a", 1).convert(rows)
        alone = Viewer(view, "a", 1)
        expected = [alone.convert(rows.slice(n, 1)) for n in range(count)]
        assert at_once.to_pylist() == pa.Table.from_batches(expected).to_pylist()
    assert [body for _, body in one_by_one(messages)] == at_once["body"].to_pylist()
    return decode_block(BlockReader(), raw, flags)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 3000])
@pytest.mark.parametrize("kind", ["amqp", "stomp"])
def test_messages_of_one_shape_are_one_run(kind: str, size: int) -> None:
    body = b"\x00\n\n:" * size
    made = (
        (amqp_message(body, app={"a": 1}), AMQP_WORD)
        if kind == "amqp"
        else (stomp_message(body, a="1"), STOMP_WORD)
    )
    found = check([made] * 100)
    assert found.pieces == (1, 0)


@pytest.mark.parametrize("kind", ["amqp", "stomp"])
def test_bodies_of_all_sizes_share_a_head(kind: str) -> None:
    sizes = [(n * 37) % 300 for n in range(400)]
    if kind == "amqp":
        found = check([(amqp_message(b"x" * n), AMQP_WORD) for n in sizes])
    else:
        found = check([(stomp_message(b"x" * n, a="1"), STOMP_WORD) for n in sizes])
    # Lengths of one and of four bytes, or of one to three digits; few rows are left.
    assert found.pieces[1] < ROWS_MIN


def test_senders_of_both_protocols_lie_mixed() -> None:
    kinds = [
        (amqp_message(b"a", app={"n": 1}), AMQP_WORD),
        (stomp_message(b"b", n="1"), STOMP_WORD),
        (amqp_message(b"c", app={"n": 2}), AMQP_WORD),
        (b"no message at all", AMQP_WORD),
        (b"nor this", STOMP_WORD),
    ]
    check([kinds[n * 7 % 5] for n in range(500)])


def test_each_message_with_a_head_of_its_own() -> None:
    check([(amqp_message(b"a", app={"n": n}), AMQP_WORD) for n in range(300)])
    check([(stomp_message(b"a", n=str(n)), STOMP_WORD) for n in range(300)])


def test_a_length_that_is_wrong_is_no_fit() -> None:
    good = stomp_message(b"x" * 20)
    bad = good.replace(b"content-length:20", b"content-length:21")
    odd = good.replace(b"content-length:20", b"content-length:+2")
    rows = pa.array([good, bad, odd, good[:-1], good + b"y", b""], pa.binary())
    _, shape = BlockReader().shape_of(good, STOMP_WORD)
    assert shape is not None
    assert shape.fitting(rows).to_pylist() == [True, False, False, False, False, False]


def test_what_is_behind_an_amqp_body_is_no_fit() -> None:
    good = amqp_message(b"x" * 300)
    rows = pa.array([good, good + b"\x00\x53\x78\xc1\x01\x00", good[:40], good[:-1]], pa.binary())
    _, shape = BlockReader().shape_of(good, AMQP_WORD)
    assert shape is not None
    assert (shape.length, shape.width) == (Length.BINARY, 4)
    assert shape.fitting(rows).to_pylist() == [True, False, False, False]


def test_a_front_that_is_constant_takes_every_body() -> None:
    shape = Shape(b"destination:a\n\n")
    rows = pa.array([b"destination:a\n\nx", b"destination:a\n\n", b"destination:a\n", b"d"])
    assert shape.fitting(rows).to_pylist() == [True, True, False, False]
    assert shape.bodies(rows.slice(0, 2)).to_pylist() == [b"x", b""]


def test_a_slice_of_a_block_is_read_where_it_is() -> None:
    messages = [(amqp_message(b"%d" % n), AMQP_WORD) for n in range(200)]
    raw = pa.array([raw for raw, _ in messages], pa.binary()).slice(50, 100)
    flags = pa.array([word for _, word in messages], pa.int32()).slice(50, 100)
    found = decode_block(BlockReader(), raw, flags)
    assert found.bodies.to_pylist() == [b"%d" % n for n in range(50, 150)]


def proton_message(number: int, **fields: Any) -> Message:
    message = proton.Message(
        body=b"x" * 256,
        durable=True,
        inferred=True,
        id=f"ID:7f:{number}",
        creation_time=1_700_000_000 + number / 1000,
        properties={"region": "eu", "number": number, "name": f"n{number % 7}"},
        **fields,
    )
    return bytes(message.encode()), AMQP_WORD


def test_values_of_each_message_are_holes_of_a_run() -> None:
    found = check([proton_message(number) for number in range(900, 1300)])
    # Ids of three and of four digits.
    assert found.pieces == (2, 0)


def test_many_kinds_of_values_differ() -> None:
    kinds: list[Any] = [
        lambda n: {"a": n % 2 == 0},
        lambda n: {"a": n / 7},
        lambda n: {"a": proton.timestamp(n)},
        lambda n: {"a": proton.symbol(f"s{n % 9}")},
        lambda n: {"a": proton.ulong(n), "b": proton.short(-n), "c": proton.ubyte(n % 256)},
        lambda n: {"a": uuid.UUID(int=n)},
        lambda n: {"a": bytes([n % 256]), "traceparent": f"00-{n:032x}"},
        lambda n: {"a": "é" * (n % 3), "b": [n]},
        lambda n: {f"k{n}": 1},
    ]
    for kind in kinds:
        check(
            [
                (
                    bytes(proton.Message(body=b"x", inferred=True, properties=kind(n)).encode()),
                    AMQP_WORD,
                )
                for n in range(300, 380)
            ]
        )


def test_fields_of_each_message() -> None:
    for n in range(2):
        messages = [
            proton.Message(
                body=b"x",
                inferred=True,
                id=uuid.UUID(int=m) if n else proton.ulong(m + 300),
                correlation_id=f"c{m % 10}",
                subject=f"s{m % 10}",
                content_type=f"text/{m % 10}",
                reply_to=f"q{m % 10}",
                group_id=f"g{m % 10}",
                ttl=(m + 1000) / 1000,
                expiry_time=1_700_000_000 + m,
                delivery_count=m % 3,
                annotations={proton.symbol("x-opt-a"): f"{m % 10}", proton.symbol("x-opt-b"): 1},
            )
            for m in range(120)
        ]
        check([(bytes(message.encode()), AMQP_WORD) for message in messages])


def test_a_time_that_no_calendar_has_is_null() -> None:
    times = [0, 2**62, -(2**62), 1_700_000_000_000]
    good, _ = proton_message(900)
    at = good.index(struct.pack(">q", 1_700_000_000_900))
    check([(good[:at] + struct.pack(">q", t) + good[at + 8 :], AMQP_WORD) for t in times * 20])


def test_headers_of_each_stomp_frame_are_holes() -> None:
    frames = [
        stomp_message(
            b"%d" % n,
            number=str(n % 10),
            timestamp=str(1_700_000_000_000 + n),
            type=f"t{n % 10}",
            NATIVE_MESSAGE_ID=f"i{n % 10}",
        )
        for n in range(1000, 1200)
    ]
    found = check([(frame, STOMP_WORD) for frame in frames])
    assert found.pieces == (1, 0)


def test_stomp_values_with_escapes_twice_and_hidden_ones() -> None:
    lines = [
        b"a:%d\nb:1\na:%d\n",
        b"subject:s\ntype:%d\nz:%d\n",
        b"type:%d\nsubject:\nz:%d\n",
        b"a:\\n%d\nb:%d\n",
        b"timestamp:x%d\nb:%d\n",
        b"expires:%d\nb:%d\n",
        b"reply-to:\xff%d\nb:%d\n",
    ]
    for line in lines:
        heads = [b"destination:a\ncontent-length:1\n" + line % (n, n) for n in range(100, 180)]
        check([(head + b"\nx", STOMP_WORD) for head in heads])
    # In the place of a value: a line end, so another line.
    odd = [b"content-length:1\na:%s\n\nx" % value for value in (b"123", b"1\n:", b"1\\c", b"12:")]
    check([(frame, STOMP_WORD) for frame in odd * 20])


def amqp(body: bytes, number: int) -> Message:
    return amqp_message(body, app={"n": number}), AMQP_WORD


def stomp(body: bytes, number: int) -> Message:
    return stomp_message(body, n=str(number)), STOMP_WORD


def damaged(body: bytes, number: int) -> Message:
    raw = amqp_message(body, app={"n": number})
    return raw[: len(raw) - number - 1], AMQP_WORD


@given(
    st.lists(
        st.tuples(
            st.sampled_from([amqp, stomp, damaged]),
            st.binary(max_size=12) | st.just(b"x" * 300),
            st.integers(0, 3),
        ),
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 40),
    st.randoms(use_true_random=False),
)
def test_any_mixture_comes_to_the_same(kinds: list[Any], times: int, chance: Any) -> None:
    messages = [make(body, number) for make, body, number in kinds] * times
    chance.shuffle(messages)
    check(messages)
    if len(messages) >= ROWS_MIN:
        check(messages[: ROWS_MIN - 1])


@given(st.integers(0, 2**32), st.sampled_from(["amqp", "stomp"]), st.integers(1, 30))
def test_damaged_rows_among_good_ones_come_to_the_same(seed: int, kind: str, damages: int) -> None:
    chance = random.Random(seed)
    if kind == "amqp":
        messages = [proton_message(number, subject=f"s{number % 5}") for number in range(100, 160)]
    else:
        frames = [stomp_message(b"%d" % n, n=str(n), type=f"t{n % 3}") for n in range(100, 160)]
        messages = [(frame, STOMP_WORD) for frame in frames]
    for _ in range(damages):
        place = chance.randrange(len(messages))
        raw, word = messages[place]
        front = raw[: -256 if kind == "amqp" else None]
        at = chance.randrange(max(len(front), 1))
        by = chance.choice([b"", b"\n", b"\\", b"\x00", b"\xff", bytes([chance.randrange(256)])])
        messages[place] = (raw[:at] + by + raw[at + chance.choice([0, 1, 1, 2]) :], word)
    check(messages)
