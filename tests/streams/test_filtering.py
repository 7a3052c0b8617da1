"""A selector over stored rows: it chooses as it does for a consumer, in fewer evaluations."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.model.amqp_types import Symbol, Timestamp, UInt
from gateway.model.message import DURABLE, EXPIRES, ONE_DELIVERY, STOMP, Message
from gateway.selectors import Selector, compile_selector
from gateway.streams.filtering import Filter
from gateway.streams.rows import rows_of
from gateway.streams.stream import Accepted
from tests.lanes import examples
from tests.streams.harness import amqp_message, section, stomp_message

NOW_MS = 1_700_000_000_000
Stored = tuple[bytes, int]


def block(messages: list[Stored]) -> pa.RecordBatch:
    bodies, flags = [raw for raw, _ in messages], [word for _, word in messages]
    return rows_of([Accepted(100, bodies, flags, NOW_MS, sum(map(len, bodies)))])


def kept(text: str, messages: list[Stored]) -> list[int]:
    """Return the places of the messages that stay."""
    rows = Filter(compile_selector(text, "orders")).keep(block(messages))
    rows.validate(full=True)
    places = [offset - 100 for offset in rows.column("offset").to_pylist()]
    assert rows.column("raw").to_pylist() == [messages[place][0] for place in places]
    assert rows.schema == block([]).schema
    return places


def counted(selector: Selector, asked: list[Message]) -> Any:
    """Return a stand-in that keeps what it is asked."""

    class Counting:
        names = selector.names

        def matches(self, message: Message) -> bool:
            asked.append(message)
            return selector.matches(message)

    return Counting()


def amqp(body: Any = b"x", word: int = 4, **fields: Any) -> Stored:
    return amqp_message(body, **fields), word


def stomp(body: bytes = b"x", word: int = 4, **headers: str) -> Stored:
    named = stomp_message(body, **headers).replace(b"NATIVE-MESSAGE-ID", b"NATIVE_MESSAGE_ID")
    return named, word | STOMP


ID: Any = [None] * 13
FIELDS = [
    ("n = 1", amqp(app={"n": 1}), amqp(app={"n": 2})),
    ("n = '1'", stomp(n="1"), stomp(n="2")),
    ("JMSPriority > 4", amqp(word=7), amqp(word=4)),
    ("JMSPriority > 4", stomp(word=5), stomp(word=1)),
    ("JMSDeliveryMode = 'PERSISTENT'", amqp(word=4 | DURABLE), amqp()),
    ("JMSTimestamp >= 7", amqp(properties=[*ID[:9], Timestamp(7)]), amqp()),
    ("JMSTimestamp >= 7", stomp(timestamp="8"), stomp(timestamp="6")),
    ("JMSMessageID = 'a'", amqp(properties=["a"]), amqp(properties=["b"])),
    ("JMSMessageID = 'a'", stomp(NATIVE_MESSAGE_ID="a"), stomp(NATIVE_MESSAGE_ID="b")),
    ("JMSCorrelationID = 'c'", amqp(properties=[*ID[:5], "c"]), amqp(properties=[*ID[:5], "d"])),
    ("JMSCorrelationID = 'c'", stomp(correlation_id="c"), stomp(correlation_id="d")),
    ("JMSType LIKE 'o%'", amqp(properties=[*ID[:3], "order"]), amqp()),
    ("JMSType LIKE 'o%'", stomp(type="order"), stomp(type="bill")),
    ("JMSXDeliveryCount = 2", amqp(word=ONE_DELIVERY | 4), amqp()),
    ("AMQAddress = 'orders' AND JMSPriority = 9", amqp(word=9), amqp()),
    ("AMQSize > 100", amqp(b"x" * 200), amqp()),
    ("AMQSize > 200", stomp(b"x" * 200), stomp()),
    ("\"content-length\" = '3'", stomp(b"abc"), stomp(b"ab")),
    ('"m.x-opt-a" = 1', (section(0x72, {Symbol("x-opt-a"): 1}) + amqp()[0], 4), amqp()),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted", "other"), FIELDS)
def test_fields_choose_as_they_do_for_a_consumer(text: str, wanted: Stored, other: Stored) -> None:
    assert kept(text, [wanted, other, wanted, wanted, other]) == [0, 2, 3]
    assert kept(f"NOT ({text})", [wanted, wanted]) == []


def test_an_expiry_is_what_the_gateway_reckoned_at_the_arrival() -> None:
    ttl = section(0x70, [True, None, UInt(5000)]) + section(0x75, b"x")
    absolute = amqp_message(b"x", properties=[*ID[:8], Timestamp(NOW_MS + 9)])
    timed = stomp_message(b"x").replace(b"\nexpires:0\n", b"\nexpires:%d\n" % (NOW_MS + 7))
    messages = [
        (ttl, 4 | EXPIRES), (absolute, 4 | EXPIRES), (timed, STOMP | 4 | EXPIRES), amqp(), stomp(),
        (b"\x00", 4 | EXPIRES), (b"no head", STOMP | EXPIRES),
    ]  # fmt: skip
    assert kept(f"JMSExpiration = {NOW_MS + 5000}", messages) == [0]
    assert kept(f"JMSExpiration = {NOW_MS + 9}", messages) == [1]
    assert kept(f"AMQExpiration = {NOW_MS + 7}", messages) == [2]
    assert kept("JMSExpiration = 0", messages) == [3, 4, 5, 6]


def test_neighbours_with_one_head_cost_one_evaluation() -> None:
    same = [amqp([n], app={"n": 1}) for n in range(500)]
    same += [amqp([n], app={"m": 1}) for n in range(50)]
    same += [amqp([n], app={"n": 1}) for n in range(500)]
    asked: list[Message] = []
    rows = Filter(counted(compile_selector("n = 1"), asked)).keep(block(same))
    assert len(rows) == 1000
    assert len(asked) == 2, "what was in between did not make the first one forgotten"


def test_values_that_no_condition_names_may_differ() -> None:
    messages = [amqp(b"%d" % n, properties=[f"{n:04}"], app={"n": 1, "k": n}) for n in range(900)]
    messages += [stomp(b"%d" % n, n="2", id=f"{n:04}") for n in range(1000, 1900)]
    asked: list[Message] = []
    rows = Filter(counted(compile_selector("n = 1"), asked)).keep(block(messages))
    assert len(rows) == 900
    assert len(asked) < 20
    assert kept("n = 1 AND JMSMessageID = '0007'", messages) == [7]
    assert kept("k >= 898 OR id = '1000'", messages) == [898, 899, 900]


@pytest.mark.parametrize("count", [2, 3, 16])
def test_senders_whose_messages_lie_mixed_cost_one_evaluation_each(count: int) -> None:
    messages = [amqp(b"%d" % n, app={"n": n % count}) for n in range(2000)]
    asked: list[Message] = []
    rows = Filter(counted(compile_selector("n = 1"), asked)).keep(block(messages))
    assert rows.column("offset").to_pylist() == list(range(101, 2100, count))
    assert len(asked) == count


def test_one_head_with_other_flags_is_asked_again() -> None:
    messages = [amqp(word=4), amqp(word=9), amqp(word=4)]
    assert kept("JMSPriority = 9", messages) == [1]


def test_a_field_of_the_row_is_asked_for_each_row() -> None:
    messages = [amqp(b"x" * n) for n in range(1, 60)]
    asked: list[Message] = []
    Filter(counted(compile_selector("AMQSize > 40"), asked)).keep(block(messages))
    assert len(asked) == 59


def test_a_slice_of_a_block_is_filtered_by_its_own_rows() -> None:
    messages = [amqp(b"%d" % n, app={"n": n % 3}) for n in range(30)]
    rows = block(messages).slice(7, 11)
    found = Filter(compile_selector("n = 0", "orders")).keep(rows)
    assert found.column("offset").to_pylist() == [109, 112, 115]


def test_nothing_to_leave_out_is_the_same_batch() -> None:
    rows = block([amqp(app={"n": 1})] * 5)
    assert Filter(compile_selector("n = 1")).keep(rows) is rows
    assert len(Filter(compile_selector("n = 1")).keep(block([]))) == 0


BODIES = st.sampled_from([b"", b"x", b"\n\n", b"\x00\x53\x75", b"a" * 300, "text", 5, None, [1]])
BROKEN = st.tuples(
    st.binary(max_size=40), st.sampled_from([4, STOMP | 4, EXPIRES, STOMP | EXPIRES])
)
AMQP = st.builds(
    amqp,
    BODIES,
    st.sampled_from([4, 9, 4 | DURABLE, ONE_DELIVERY | 4]),
    app=st.sampled_from([None, {}, {"n": 1}, {"n": 2}, {"m": "a"}]),
    properties=st.sampled_from([None, [], ["id"], [*ID[:3], "order"]]),
)
STOMPS = st.builds(
    stomp,
    st.sampled_from([b"", b"x", b"\n\nn:1\n\n", b"a" * 300]),
    st.sampled_from([4, 9, 4 | DURABLE]),
    n=st.sampled_from(["1", "2", "a\nb"]),
)
TEXTS = [
    "n = 1 OR n = '1'", "n IS NULL", "JMSPriority > 4", "JMSType = 'order'", "AMQSize < 60",
    "JMSExpiration > 0", "JMSDeliveryMode = 'PERSISTENT' AND n <> 2", "m LIKE 'a%'",
]  # fmt: skip


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(AMQP | STOMPS | BROKEN, max_size=30), st.sampled_from(TEXTS))
def test_whatever_the_bytes_are_a_row_stays_if_its_message_matches(
    messages: list[Stored], text: str
) -> None:
    # Enough of them for Arrow's kernels, in an order of their own and mixed.
    repeated = [message for message in messages for _ in range(2)] + messages * 2
    one_by_one = [
        place
        for place, message in enumerate(repeated)
        if len(Filter(compile_selector(text, "orders")).keep(block([message])))
    ]
    assert kept(text, repeated) == one_by_one
    if "Expiration" not in text:
        matches = compile_selector(text, "orders").matches
        asked = [Message(raw, 0, word & ~EXPIRES) for raw, word in repeated]
        assert one_by_one == [place for place, one in enumerate(asked) if matches(one)]
