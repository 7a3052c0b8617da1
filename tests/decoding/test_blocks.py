"""Blocks decoded at once come to the same as messages read one after the other."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.decoding.blocks import ROWS_MIN, Decoded, decode_block
from gateway.decoding.columns import BlockReader
from gateway.decoding.shapes import Length, Shape
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


def at_once(messages: list[Message]) -> tuple[Decoded, list[tuple[Any, bytes | None]]]:
    raw = pa.array([raw for raw, _ in messages], pa.binary())
    flags = pa.array([word for _, word in messages], pa.int32())
    found = decode_block(BlockReader(), raw, flags)
    count = len(messages)
    indices = [0] * count if found.indices is None else found.indices.to_pylist()
    bodies = found.bodies.to_pylist()
    return found, [(found.heads[i], b) for i, b in zip(indices, bodies, strict=True)]


def check(messages: list[Message]) -> Decoded:
    found, rows = at_once(messages)
    assert rows == one_by_one(messages)
    return found


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
    assert (len(found.heads), found.indices) == (1, None)


@pytest.mark.parametrize("kind", ["amqp", "stomp"])
def test_bodies_of_all_sizes_share_a_head(kind: str) -> None:
    sizes = [(n * 37) % 300 for n in range(400)]
    if kind == "amqp":
        found = check([(amqp_message(b"x" * n), AMQP_WORD) for n in sizes])
    else:
        found = check([(stomp_message(b"x" * n, a="1"), STOMP_WORD) for n in sizes])
    # Lengths of one and of four bytes, or of one to three digits.
    assert len(found.heads) <= 4


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
