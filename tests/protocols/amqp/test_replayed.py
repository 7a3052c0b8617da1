"""Replays over AMQP: the filter of the attach, its answer, and the offset of each delivery."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.model.amqp_types import Described, Int, Symbol, Timestamp, ULong, Value, encode
from gateway.model.message import REPLAYED, STOMP, Message
from gateway.model.sections import header_facts, scan
from gateway.model.stomp_form import pack
from gateway.model.stream_start import At, StreamStart
from protocols.amqp.performatives import ACCEPTED, RELEASED, Attach, Disposition, Flow, Source
from protocols.amqp.replayed import shown_offset, start_of, with_offset
from tests.protocols.amqp.peer import RECEIVER, Peer, condition, data_message, of
from tests.protocols.amqp.test_outgoing import bodies

RABBITMQ = "rabbitmq:stream-offset-spec"
OWN = "sluicegate:stream-offset"
BODY = data_message(b"x")


def section(code: int, value: Any) -> bytes:
    return encode(Described(ULong(code), value))


def annotations(message: bytes) -> dict[Any, Any]:
    return dict(scan(message).message_annotations)


def shown(offset: int) -> dict[str, Value]:
    return {"x-opt-stream-offset": ULong(offset), "x-stream-offset": ULong(offset)}


# ---- the offset in a message


@pytest.mark.parametrize("header", [b"", section(0x70, [True]), section(0x70, [None, None, None])])
@pytest.mark.parametrize(
    "before",
    [
        {},
        {"x-opt-mine": 5},
        {f"x-{n}": "v" * 20 for n in range(6)},
        {f"x-{n}": None for n in range(126)},
        {"x-opt-mine": "v" * 300},
        {"x-opt-stream-offset": ULong(3), "x-opt-mine": 5, "x-stream-offset": ULong(3)},
    ],
    ids=["none", "one", "near-full", "many", "long", "replayed-before"],
)
def test_the_offset_is_added_and_all_else_stays(header: bytes, before: dict[str, Value]) -> None:
    rest = section(0x73, ["id"]) + section(0x74, {"n": 1}) + section(0x75, b"body")
    written = {Symbol(name): value for name, value in before.items()}
    front = section(0x72, written) if before else b""
    found = with_offset(header + front + rest, 2**40)
    assert found.startswith(header)
    assert found.endswith(rest)
    assert annotations(found) == before | shown(2**40)


@given(
    st.dictionaries(st.text(max_size=40), st.integers(0, 2**63 - 1), max_size=12),
    st.integers(0, 2**63 - 1),
    st.booleans(),
)
def test_any_annotations(before: dict[str, int], offset: int, has_header: bool) -> None:
    written = {
        Symbol(name): ULong(value) for name, value in before.items() if name.isascii() and name
    }
    header = section(0x70, [True]) if has_header else b""
    message = header + (section(0x72, written) if written else b"") + section(0x75, b"x")
    assert annotations(with_offset(message, offset)) == written | shown(offset)


@pytest.mark.parametrize("broken", [b"\x00\x53\x70", b"\x00\x53\x72\xc1\x09\x02\xa3", b"\x01"])
def test_what_cannot_be_read_goes_out_as_it_came(broken: bytes) -> None:
    assert shown_offset(broken, 7) == broken


# ---- the filter


@pytest.mark.parametrize(
    ("value", "at", "number"),
    [
        ("first", At.FIRST, 0),
        (Symbol("last"), At.LAST, 0),
        ("offset=5", At.OFFSET, 5),
        (ULong(5), At.OFFSET, 5),
        (Int(5), At.OFFSET, 5),
        (5, At.OFFSET, 5),
        (Timestamp(1500), At.TIME, 1500),
        (Timestamp(-5), At.TIME, -5),
    ],
)
@pytest.mark.parametrize("name", [RABBITMQ, OWN])
@pytest.mark.parametrize("described", [True, False])
def test_a_source_begins_at_a_place(
    value: Value, at: At, number: int, name: str, described: bool
) -> None:
    assert start_of(value) == StreamStart(at=at, value=number)
    key = Symbol(name)
    sent = {key: Described(key, value) if described else value}
    peer = Peer.begun()
    source = Source(address="q", filter=sent, distribution_mode="move", durable=2)
    came = peer.receiver(source=source)
    assert peer.broker.of("subscribe") == [
        ("q", None, {"start": StreamStart(at=at, value=number)})
    ]  # fmt: skip
    (answer,) = of(came, Attach)
    assert dict(answer.source.filter) == sent
    assert (answer.source.distribution_mode, answer.source.durable) == ("copy", 0)


def test_a_replay_has_neither_browser_nor_subscription_nor_no_local() -> None:
    key, selector = Symbol(OWN), Symbol("apache.org:selector-filter:string")
    no_local = Symbol("apache.org:no-local-filter:list")
    peer = Peer.begun()
    filters: dict[str, Value] = {
        key: Described(key, "next"),
        selector: Described(selector, "a = 1"),
        no_local: Described(no_local, []),
    }
    source = Source(
        address="q", filter=filters, distribution_mode="copy", capabilities=("topic", "shared")
    )
    (answer,) = of(peer.receiver(source=source), Attach)
    start = StreamStart(at=At.NEXT)
    assert peer.broker.of("subscribe") == [("q", None, {"selector": "a = 1", "start": start})]
    assert set(answer.source.filter) == {key, selector}
    assert answer.source.capabilities == ()


@pytest.mark.parametrize(
    "filters",
    [
        {OWN: "middle"},
        {OWN: True},
        {OWN: -1},
        {OWN: None},
        {OWN: [1]},
        {OWN: 1.5},
        {OWN: "first", RABBITMQ: "first"},
    ],
)
def test_bad_places_are_refused(filters: dict[str, Value]) -> None:
    sent = {Symbol(n): Described(Symbol(n), value) for n, value in filters.items()}
    peer = Peer.begun()
    came = peer.receiver(source=Source(address="q", filter=sent))
    assert condition(came) == "detach amqp:invalid-field"
    assert peer.broker.of("subscribe") == []


# ---- deliveries


def replayed(*offsets: int, body: bytes = BODY, flags: int = 4) -> list[Message]:
    return [Message(body, offset, flags | REPLAYED) for offset in offsets]


def reading(**fields: Any) -> Peer:
    key = Symbol(OWN)
    peer = Peer.begun(window=fields.pop("window", 2048))
    peer.receiver(source=Source(address="q", filter={key: Described(key, "first")}), **fields)
    return peer


def offer(peer: Peer, messages: list[Message]) -> list[Any]:
    return peer.outside(lambda: peer.broker.put("q", messages))


@pytest.mark.parametrize("header", [b"", section(0x70, [True, None, ULong(0)][:1])])
def test_each_delivery_says_its_offset_and_is_fresh(header: bytes) -> None:
    peer = reading(credit=10)
    came = bodies(offer(peer, replayed(7, 9, 1 << 40, body=header + section(0x75, b"x"))))
    assert [annotations(message) for message in came] == [shown(7), shown(9), shown(1 << 40)]
    assert all(header_facts(message).first_acquirer for message in came)
    assert [scan(message).data() for message in came] == [b"x"] * 3


def test_what_stomp_sent() -> None:
    peer = reading(credit=10)
    stored = pack("q", b"body", headers=[("kind", "k"), ("x-stream-offset", "forged")])
    (message,) = bodies(offer(peer, replayed(5, body=stored, flags=4 | STOMP)))
    assert annotations(message).items() >= shown(5).items()
    assert "x-opt-jms-dest" in annotations(message)
    assert scan(message).application_properties["kind"] == "k"


def test_long_deliveries_in_frames_and_a_shut_window() -> None:
    key = Symbol(OWN)
    peer = Peer.opened(max_frame_size=512)
    peer.begin(window=3)
    peer.receiver(source=Source(address="q", filter={key: Described(key, "first")}))
    offer(peer, replayed(0, 1, body=data_message(b"y" * 1000)))
    came = peer.credit(10, incoming_window=3)
    came += peer.credit(10, incoming_window=3)
    came += peer.credit(10, incoming_window=9)
    assert [annotations(message) for message in bodies(came)] == [shown(0), shown(1)]


def test_max_message_size_counts_what_is_delivered() -> None:
    peer = reading(credit=10, max_message_size=len(BODY) + 20)
    came = offer(peer, replayed(0))
    assert condition(came) == "detach amqp:link:message-size-exceeded"


def test_settled_links_and_any_outcome() -> None:
    for state in (ACCEPTED, RELEASED):
        peer = reading(credit=10)
        peer.broker.redelivers = False
        offer(peer, replayed(0, 1))
        peer.tell(Disposition(role=RECEIVER, first=1, last=2, settled=True, state=state))
        said = "acknowledge" if state is ACCEPTED else "release"
        assert [seq for _, seqs in peer.broker.of(said) for seq in seqs] == [0, 1]
    peer = reading(credit=10, snd_settle_mode=1)
    offer(peer, replayed(0))
    assert peer.broker.of("acknowledge") == [("q", [0])]


def test_drain_gives_the_rest_of_the_credit_back() -> None:
    peer = reading()
    offer(peer, replayed(0, 1))
    came = peer.credit(10, drain=True)
    assert len(bodies(came)) == 2
    (flow,) = of(came, Flow)
    assert (flow.link_credit, flow.delivery_count) == (0, 10)
