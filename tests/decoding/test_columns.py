"""Columns of a stream: what is read from stored messages of both forms."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from proton import Message as ProtonMessage

from gateway.decoding.columns import (
    RAW_AMQP,
    BlockReader,
    Head,
    headers_json,
    headers_map,
)
from gateway.model import stomp_form
from gateway.model.amqp_types import Described, Symbol, Timestamp, UInt, ULong, encode
from gateway.model.message import STOMP
from tests.lanes import examples
from tests.streams.harness import amqp_message, section, stomp_message

Row = tuple[Head, bytes | None]


def read(raws: Sequence[bytes], flags: Sequence[int]) -> list[Row]:
    data, offsets = b"", [0]
    for raw in raws:
        data += raw
        offsets.append(len(data))
    heads, indices, bodies = BlockReader().read(data, offsets, flags)
    return [(heads[i], body) for i, body in zip(indices, bodies, strict=True)]


def read_amqp(raw: bytes) -> Row:
    return read([raw], [0x14])[0]


def read_stomp(raw: bytes) -> Row:
    return read([raw], [STOMP])[0]


def test_every_field_of_a_message_as_proton_sends_it() -> None:
    message = ProtonMessage(
        body="grün", id="m-1", subject="news", content_type="text/plain", correlation_id="c-1",
        reply_to="answers", group_id="g", ttl=5, creation_time=12.5, expiry_time=17.5,
        properties={"a": "b", "n": -7},
    )  # fmt: skip
    message.delivery_count = 3
    message.annotations = {"x-opt-k": 1}
    head, body = read_amqp(message.encode())
    assert body == "grün".encode()
    assert dict(head.headers) == {"a": "b", "n": -7}
    assert dict(head.annotations) == {"x-opt-k": 1}
    assert head._replace(headers=(), annotations=()) == Head(
        message_id="m-1", subject="news", content_type="text/plain", correlation_id="c-1",
        reply_to="answers", key="g", ttl_ms=5000, created_ms=12500, expires_ms=17500,
        delivery_count=3,
    )  # fmt: skip


def test_every_field_of_a_stomp_message() -> None:
    raw = stomp_form.pack(
        "orders", b"body\n\nof it", content_type="text/plain", expires=99,
        headers=[
            ("correlation-id", "c"), ("reply-to", "/queue/a"), ("type", "news"),
            ("JMSXGroupID", "g"), ("timestamp", "12"), ("NATIVE_MESSAGE_ID", "m"),
            ("colon:line\nback\\", "v:1"), ("twice", "1"), ("twice", "2"),
        ],
    )  # fmt: skip
    head, body = read_stomp(raw)
    assert body == b"body\n\nof it"
    assert head._replace(headers=()) == Head(
        message_id="m", subject="news", content_type="text/plain", correlation_id="c",
        reply_to="/queue/a", key="g", created_ms=12, expires_ms=99,
    )  # fmt: skip
    shown = dict(head.headers)
    assert shown["colon:line\nback\\"] == "v:1"
    assert shown["twice"] == ("1", "2")
    assert "destination" not in shown
    assert dict(headers_map(head.headers))["twice"] == "1"
    assert '"twice":["1","2"]' in headers_json(head.headers)


@pytest.mark.parametrize(
    ("sections", "body"),
    [
        ([section(0x75, b"one")], b"one"),
        ([section(0x75, b"")], b""),
        ([section(0x75, b"x" * 300)], b"x" * 300),
        ([section(0x75, b"one"), section(0x75, b"two")], b"onetwo"),
        ([section(0x75, b"one"), section(0x78, {})], b"one"),
        ([section(0x77, "grün")], "grün".encode()),
        ([section(0x77, b"bytes")], b"bytes"),
        ([section(0x77, None)], None),
        ([section(0x77, True)], b"true"),
        ([section(0x77, [1, "a", None])], b'[1,"a",null]'),
        ([section(0x77, {"k": UInt(1)})], b'{"k":1}'),
        ([section(0x77, Timestamp(0))], b'"1970-01-01T00:00:00.000Z"'),
        ([section(0x76, [1, 2]), section(0x76, ["x"])], b'[1,2,"x"]'),
        ([], None),
        ([section(0x78, {})], None),
        ([encode(Described(ULong(0x75), b"long form"))], b"long form"),
        ([encode(Described(Symbol("amqp:data:binary"), b"named"))], b"named"),
    ],
)
def test_bodies(sections: list[bytes], body: bytes | None) -> None:
    head, found = read_amqp(b"".join(sections))
    assert found == body
    assert head == Head()
    # The same behind properties, and the same again behind itself.
    raw = section(0x73, ["id"]) + b"".join(sections)
    assert read([raw, raw], [4, 4]) == [(Head(message_id="id"), body)] * 2


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("text", "text"),
        (ULong(7), "ID:AMQP_ULONG:7"),
        (ULong(1 << 40), "ID:AMQP_ULONG:1099511627776"),
        (uuid.UUID(int=5), "ID:AMQP_UUID:00000000-0000-0000-0000-000000000005"),
        (b"\x01\x02", "ID:AQI="),
        (None, None),
        (True, "true"),
        ([1, 2], "[1,2]"),
        (Timestamp(0), "1970-01-01T00:00:00.000Z"),
    ],
)
def test_ids_keep_their_type_in_text(written: Any, shown: str | None) -> None:
    head, _ = read_amqp(amqp_message(properties=[written, None, None, None, None, written]))
    assert (head.message_id, head.correlation_id) == (shown, shown)


def test_header_values_keep_their_type_in_json_and_are_text_in_the_map() -> None:
    app = {
        "s": "x", "i": -1, "b": True, "f": 1.5, "u": uuid.UUID(int=1), "t": Timestamp(1000),
        "bin": b"\x00", "none": None, "big": 1 << 40,
    }  # fmt: skip
    head, _ = read_amqp(amqp_message(app=app))
    uid = "00000000-0000-0000-0000-000000000001"
    assert headers_json(head.headers) == (
        f'{{"s":"x","i":-1,"b":true,"f":1.5,"u":"{uid}","t":"1970-01-01T00:00:01.000Z",'
        '"bin":"AA==","none":null,"big":1099511627776}'
    )
    assert headers_map(head.headers) == [
        ("s", "x"), ("i", "-1"), ("b", "true"), ("f", "1.5"), ("u", uid),
        ("t", "1970-01-01T00:00:01.000Z"), ("bin", "AA=="), ("none", None),
        ("big", "1099511627776"),
    ]  # fmt: skip


def test_a_map_with_half_a_pair_is_unreadable() -> None:
    raw = section(0x74, {"a": 1}).replace(b"\xc1\x06\x02", b"\xc1\x06\x03")
    for broken in (raw, b"\x00\x53\x74\xc1\x04\x01\xa1\x01a"):
        head, body = read_amqp(broken + section(0x75, b"x"))
        assert (head.content_type, body) == (RAW_AMQP, broken + section(0x75, b"x"))


def test_a_map_name_comes_once() -> None:
    assert headers_map([("a", 1), ("b", 2), ("a", 3)]) == [("a", "1"), ("b", "2")]


GOOD = [
    (amqp_message(b"a" * 30, properties=["id"], app={"k": 1}), 4),
    (amqp_message("text", properties=["id"], app={"k": 1}), 4),
    (amqp_message(b"", properties=["other"]), 4),
    (amqp_message(b"x" * 400, properties=["id"], app={"k": 1}), 4),
    (amqp_message([1, 2]), 4),
    (section(0x75, b"bare"), 4),
    (stomp_message(b"same length", a="1"), STOMP),
    (stomp_message(b"another length!", a="1"), STOMP),
    (stomp_message(b"", a="2"), STOMP),
    (stomp_message(b"\n\ncontent-length:3\n\nx"), STOMP),
    (b"destination:x\n\nno length", STOMP),
    (b"", 4),
    (b"", STOMP),
]


@given(st.lists(st.sampled_from(GOOD), max_size=12))
def test_what_came_before_changes_nothing(messages: list[tuple[bytes, int]]) -> None:
    alone = [read([raw], [flags])[0] for raw, flags in messages]
    assert read([raw for raw, _ in messages], [flags for _, flags in messages]) == alone


def test_many_different_heads_fill_the_memory_and_are_still_right() -> None:
    raws = [amqp_message(b"%d" % i, properties=[f"id-{i}"], app={"n": i}) for i in range(1500)]
    rows = read(raws + raws, [4] * 3000)
    assert [head.message_id for head, _ in rows] == [f"id-{i}" for i in range(1500)] * 2
    assert [dict(head.headers)["n"] for head, _ in rows] == list(range(1500)) * 2


@settings(max_examples=examples(300))
@given(st.sampled_from(GOOD), st.data())
@example((amqp_message(b"a"), 4), None)
def test_cut_or_flipped_messages_arrive_and_their_neighbours_are_whole(
    message: tuple[bytes, int], data: Any
) -> None:
    raw, flags = message
    if data is not None and raw:
        at = data.draw(st.integers(0, len(raw) - 1))
        if data.draw(st.booleans()):
            raw = raw[:at]
        else:
            raw = raw[:at] + bytes([data.draw(st.integers(0, 255))]) + raw[at + 1 :]
    good, good_flags = message
    rows = read([good, raw, good], [good_flags, flags, good_flags])
    assert rows[0] == rows[2] == read([good], [good_flags])[0]
    head, body = rows[1]
    if head.content_type == RAW_AMQP and head.message_id is None:
        assert body == raw


@settings(max_examples=examples(300))
@given(st.binary(max_size=60), st.sampled_from([0, STOMP]))
def test_noise_never_raises(raw: bytes, flags: int) -> None:
    ((head, body),) = read([raw], [flags])
    assert isinstance(head, Head)
    assert body is None or body in raw or flags == 0
    headers_map(head.headers)
    headers_json(head.headers)
