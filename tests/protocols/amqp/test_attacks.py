"""Peers that mean harm: bounded memory, bounded steps, a condition, and nobody else feels it.

The threats have numbers in the project's threat list: AMQP before login, deep nesting, arrays that
cost nothing to send, messages without end, credit, floods of sessions and links, ranges over all
ids. Sizes that lie are in `test_connection`; single inputs of every kind in the corpus.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.model.budget import Budget
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslInit,
    Source,
    Target,
    Transfer,
)
from tests.costs import costs
from tests.lanes import examples
from tests.protocols.amqp.peer import (
    AMQP_HEADER,
    RECEIVER,
    SASL_HEADER,
    SENDER,
    Peer,
    condition,
    data_message,
    frame,
    names,
    of,
    raw_frame,
)
from tests.protocols.scripted_broker import ScriptedAuthenticator

MIB = 1 << 20
BEGIN = Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9)


# ---- AMQP before login

EARLY = [
    frame(Open(container_id="x")),
    frame(BEGIN),
    frame(
        Attach(
            name="n",
            handle=0,
            role=SENDER,
            source=Source(),
            target=Target(address="q"),
            initial_delivery_count=0,
        )
    ),
    frame(Transfer(handle=0, delivery_id=0, delivery_tag=b"t"), 0, data_message(b"x")),
    frame(Close()),
    frame(SaslInit(mechanism="ANONYMOUS"), kind=1),
    frame(SaslInit(mechanism="PLAIN", initial_response=b"\0me\0wrong"), kind=1),
    frame(SaslInit(mechanism="PLAIN"), kind=1),
    frame(SaslInit(mechanism="EXTERNAL", initial_response=b""), kind=1),
    AMQP_HEADER,
    SASL_HEADER,
    raw_frame(b""),
]


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(st.sampled_from(EARLY), max_size=8),
    st.lists(st.integers(1, 40), max_size=5),
    st.booleans(),
)
def test_nothing_reaches_the_broker_before_login(said, cuts, wrong):
    peer = Peer(authenticator=ScriptedAuthenticator(is_open=False))
    came = peer.say(b"".join([SASL_HEADER, *said]), chunks=cuts)
    if wrong and peer.authenticator.answer is not None:
        came += peer.outside(lambda: peer.authenticator.answer(False))
        assert peer.gone
    assert peer.broker.calls == []
    assert peer.engine.container == ""
    assert peer.engine.sessions == {}
    assert of(came, Open) == []


# ---- nesting


def nested(depth: int) -> bytes:
    """Return a list in a list ... `depth` of them."""
    body = b"\x45"
    for _ in range(depth - 1):
        size = len(body) + 4
        body = b"\xd0" + size.to_bytes(4, "big") + b"\0\0\0\1" + body
    return body


def in_list(descriptor: int, *fields: bytes) -> bytes:
    body = b"".join(fields)
    count = len(fields).to_bytes(4, "big")
    return bytes((0, 0x53, descriptor, 0xD0)) + (len(body) + 4).to_bytes(4, "big") + count + body


NULL, ZERO, ONE = b"\x40", b"\x43", b"\x52\x01"
NAME = b"\xa1\x01n"


def mapped(value: bytes) -> bytes:
    body = b"\xa3\x01k" + value
    return b"\xd1" + (len(body) + 4).to_bytes(4, "big") + b"\0\0\0\2" + body


#: Performatives with a place for anything: (name, how to make its body).
PLACES: dict[str, Callable[[bytes], bytes]] = {
    "bare": lambda v: v,
    "descriptor": lambda v: b"\x00" + v + b"\x45",
    "open-properties": lambda v: in_list(0x10, NAME, *[NULL] * 8, mapped(v)),
    "begin-properties": lambda v: in_list(0x11, NULL, ZERO, ONE, ONE, *[NULL] * 3, mapped(v)),
    "attach-source": lambda v: in_list(0x12, NAME, ZERO, b"\x41", NULL, NULL, v),
    "attach-filter": lambda v: in_list(
        0x12, NAME, ZERO, b"\x41", NULL, NULL, in_list(0x28, *[NULL] * 7, mapped(v))
    ),
    "attach-unsettled": lambda v: in_list(0x12, NAME, ZERO, b"\x41", *[NULL] * 4, mapped(v)),
    "attach-properties": lambda v: in_list(0x12, NAME, ZERO, b"\x41", *[NULL] * 10, mapped(v)),
    "flow-properties": lambda v: in_list(0x13, NULL, ONE, ONE, ONE, *[NULL] * 6, mapped(v)),
    "transfer-state": lambda v: in_list(0x14, ZERO, ZERO, b"\xa0\x01t", *[NULL] * 4, v),
    "disposition-state": lambda v: in_list(0x15, b"\x41", ZERO, NULL, NULL, v),
    "detach-error": lambda v: in_list(0x16, ZERO, NULL, in_list(0x1D, NAME, NULL, mapped(v))),
    "close-error": lambda v: in_list(0x18, v),
}


@pytest.mark.parametrize("depth", [8, 9, 32, 33, 500, 5_000])
@pytest.mark.parametrize("place", sorted(PLACES))
def test_nesting_in_every_field(place, depth):
    data = raw_frame(PLACES[place](nested(depth)))
    for state in (Peer.begun, opening):
        peer = state()
        with costs(peak=2 * MIB):
            came = peer.say(data)
        if depth > 10:
            assert names(came)[-1] == "close"
            assert condition(came) in ("close amqp:decode-error", "close amqp:illegal-state")
        assert peer.gone is ("close" in names(came))


def opening() -> Peer:
    peer = Peer()
    peer.say(AMQP_HEADER)
    return peer


@pytest.mark.parametrize("depth", [33, 5_000])
@pytest.mark.parametrize("section", [0x70, 0x71, 0x72, 0x73, 0x74, 0x77, 0x78])
def test_nesting_in_every_section(section, depth):
    """Bodies are bytes to the engine: nothing of them is read that deep.

    A header is read, and its fields are no lists; the annotations of a delivery are a map.
    """
    peer = Peer.begun()
    peer.sender(0)
    deep = nested(depth)
    message = bytes((0, 0x53, section)) + (mapped(deep) if section in (0x72, 0x74) else deep)
    with costs(peak=2 * MIB):
        came = peer.say(peer.transfer(message))
    assert names(came) == ["disposition"]
    assert len(peer.broker.sent) == (0 if section in (0x70, 0x71) else 1)


# ---- arrays, lists and maps that lie


@pytest.mark.parametrize("count", [0, 1, 256, 257, 2**16, 2**32 - 1])
@pytest.mark.parametrize("code", [0x40, 0x41, 0x42, 0x43, 0x44, 0x45])
@pytest.mark.parametrize("place", ["open-properties", "flow-properties", "close-error"])
def test_arrays_of_nothing(place, code, count):
    array = b"\xf0\0\0\0\x05" + count.to_bytes(4, "big") + bytes([code])
    peer = opening() if place == "open-properties" else Peer.begun()
    with costs(peak=MIB):
        came = peer.say(raw_frame(PLACES[place](array)))
    if count > 256:
        assert condition(came) == "close amqp:decode-error"


def test_many_small_arrays_in_one_frame():
    array = b"\xf0\0\0\0\x05\0\0\x01\x00\x40"
    body = in_list(0x13, NULL, ONE, ONE, ONE, *[NULL] * 6, mapped(in_list(0x99, *[array] * 10_000)))
    peer = Peer.begun()
    with costs(peak=2 * MIB):
        came = peer.say(raw_frame(body))
    assert condition(came) == "close amqp:decode-error"


@pytest.mark.parametrize("code", range(256))
def test_every_constructor_alone_and_cut_short(code):
    peer = Peer.begun()
    for tail in (b"", b"\x00" * 20, b"\xff" * 20, b"\x01\x01\xa1" + b"x" * 9):
        value = bytes([code]) + tail
        for body in (value, PLACES["flow-properties"](value)):
            came = peer.say(raw_frame(body))
            if peer.gone:
                assert condition(came).startswith("close amqp:")
                peer = Peer.begun()


# ---- messages without end


def test_message_without_end_stops_at_its_limit():
    limits = AmqpLimits(max_message_size=MIB)
    peer = Peer.begun(limits=limits)
    peer.sender(0)
    part = frame(Transfer(handle=0, more=True), 0, bytes(100_000))
    came = peer.say(peer.transfer(bytes(100_000), more=True))
    sent = 1
    with costs(peak=4 * MIB):
        while not came:
            came = peer.say(part)
            sent += 1
        for _ in range(50):  # and goes on as if nothing had been said
            came += peer.say(part)
    assert sent == 11
    assert condition(came) == "detach amqp:link:message-size-exceeded"
    assert peer.engine._unfinished == 0
    assert not peer.gone


@pytest.mark.parametrize("size", [0, 1, 5_000])
def test_unfinished_deliveries_of_a_connection_are_bounded(size):
    most = 1 << 17
    peer = Peer.begun(limits=AmqpLimits(max_message_size=most, unfinished_max=most))
    peer.begin(1)
    handles = [(channel, handle) for channel in (0, 1) for handle in range(20)]
    for channel, handle in handles:
        peer.sender(handle, channel=channel)
        peer.say(peer.transfer(b"", handle, channel=channel, more=True))
    parts = b"".join(frame(Transfer(handle=h, more=True), c, bytes(size)) for c, h in handles)
    came = []
    for _ in range(150):
        came += peer.say(parts)
        if any(one.name == "end" for one in came):
            break
    if size:
        ended = [one for one in came if one.name == "end"]
        assert condition(ended) == "end amqp:resource-limit-exceeded"
    assert peer.engine._unfinished <= 2 * most
    peer.engine.connection_lost(peer.now)
    assert peer.engine._unfinished == 0


def test_unfinished_deliveries_of_all_connections_are_bounded():
    limits = AmqpLimits(unfinished=Budget(5 * MIB))
    peers = [Peer.begun(limits=limits) for _ in range(20)]
    ended = 0
    for peer in peers:
        peer.sender(0)
        came = peer.say(peer.transfer(bytes(100_000), more=True))
        for _ in range(9):
            came += peer.say(frame(Transfer(handle=0, more=True), 0, bytes(100_000)))
        if came:
            assert condition(came) == "end amqp:resource-limit-exceeded"
            ended += 1
        assert limits.unfinished.held <= limits.unfinished.maximum
    assert ended == 15
    bystander = Peer.begun(limits=limits)
    bystander.sender(0)
    bystander.send(b"whole in one frame")
    assert len(bystander.broker.bodies()) == 1
    for peer in peers:
        peer.engine.connection_lost(peer.now)
    assert limits.unfinished.held == 0


def test_one_byte_at_a_time_costs_no_square():
    peer = Peer.begun()
    peer.sender(0)
    data = peer.transfer(data_message(b"x" * 120_000))
    engine = peer.engine
    with costs():
        for at in range(len(data)):
            engine.receive_data(data[at : at + 1], peer.now)
    assert len(peer.broker.sent) == 1


# ---- floods


def test_sessions_are_bounded():
    peer = Peer.opened()
    with costs(peak=4 * MIB):
        came = peer.say(b"".join(frame(BEGIN, channel) for channel in range(257)))
    assert names(came) == ["begin"] * 256 + ["close"]
    assert condition(came) == "close amqp:connection:framing-error"


def test_links_are_bounded():
    peer = Peer.begun()
    for channel in range(1, 5):
        peer.begin(channel)
    attaches = [
        frame(
            Attach(
                name=f"{channel}-{handle}",
                handle=handle,
                role=RECEIVER,
                source=Source(address="q"),
                target=Target(),
            ),
            channel,
        )
        for channel in range(5)
        for handle in range(256)
    ]
    came = peer.say(b"".join(attaches))
    assert peer.engine.links == 1024
    assert names(came).count("detach") == 256
    assert condition(came) == "detach amqp:resource-limit-exceeded"


def churned(peer: Peer, data: bytes, rounds: int) -> int:
    """Say something again and again; returns the bytes that are held more than after the first.

    The less of two measurements: a thread of the test's runner may take a buffer meanwhile.
    """
    for _ in range(20):
        peer.engine.receive_data(data, peer.now)
        peer.engine.data_to_send()
    return min(_grown(peer, data, rounds), _grown(peer, data, rounds))


def _grown(peer: Peer, data: bytes, rounds: int) -> int:
    gc.collect()
    tracemalloc.start()
    first = tracemalloc.get_traced_memory()[0]
    for _ in range(rounds):
        peer.engine.receive_data(data, peer.now)
        peer.broker.calls.clear()
        peer.broker.producers.clear()
        peer.broker.queues.clear()
        peer.broker.turn()
        peer.engine.data_to_send()
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] - first
    tracemalloc.stop()
    assert not peer.gone
    return held


ATTACH = Attach(
    name="n",
    handle=0,
    role=SENDER,
    source=Source(),
    target=Target(address="q"),
    initial_delivery_count=0,
)
CHURNS = {
    "sessions": frame(BEGIN, 3) + frame(End(), 3),
    "links": frame(ATTACH) + frame(Detach(handle=0, closed=True)),
    "refused": frame(
        Attach(name="n", handle=0, role=SENDER, source=Source(), target=Target(address="$x"))
    )
    + frame(Detach(handle=0, closed=True)),
    "dynamic": frame(
        Attach(name="n", handle=0, role=RECEIVER, source=Source(dynamic=True), target=Target())
    )
    + frame(Detach(handle=0, closed=True)),
    "aborted": frame(ATTACH)
    + frame(Transfer(handle=0, delivery_id=1, delivery_tag=b"t", more=True), 0, b"x" * 999)
    + frame(Transfer(handle=0, aborted=True))
    + frame(Detach(handle=0, closed=True)),
    "ended-inside": frame(BEGIN, 5)
    + frame(ATTACH, 5)
    + frame(Transfer(handle=0, delivery_id=1, delivery_tag=b"t", more=True), 5, b"x" * 999)
    + frame(End(), 5),
    "flows": frame(
        Flow(
            next_incoming_id=1, incoming_window=9, next_outgoing_id=0, outgoing_window=9, echo=True
        )
    ),
    "dispositions": frame(
        Disposition(role=RECEIVER, first=0, last=2**31 - 2, settled=True, state=ACCEPTED)
    ),
    "empty": raw_frame(b""),
}


@pytest.mark.parametrize("what", sorted(CHURNS))
def test_coming_and_going_leaves_nothing(what):
    if what == "aborted":
        # Delivery-ids must go up: each round in a session of its own.
        data = frame(BEGIN, 5) + CHURNS[what].replace(b"\x02\x00\x00\x00", b"\x02\x00\x00\x05")
        data += frame(End(), 5)
    else:
        data = CHURNS[what]
    assert churned(Peer.begun(), data, 150) < 8_000


def test_shapes_are_bounded():
    """A sender that writes each transfer in another way teaches us nothing for ever."""
    peer = Peer.begun()
    for handle in range(40):
        peer.sender(handle, f"q{handle}")
    for handle in range(40):
        for size in range(4):
            peer.say(
                peer.transfer(data_message(b"x"), handle, delivery_tag=b"t" * size)
                + peer.transfer(data_message(b"x"), handle, delivery_tag=b"t" * size)
            )
    assert len(peer.broker.sent) == 320
    assert len(peer.engine.shapes.known) <= 16


# ---- ranges over all ids


def unsettled(count: int) -> Peer:
    """Return a peer that holds deliveries 1 to `count`."""
    peer = Peer.begun(window=2**31 - 1)
    peer.receiver(1, credit=count)
    peer.broker.offer("q", *[b"x"] * count)
    peer.hear()
    assert len(peer.engine.sessions[0].unsettled) == count
    return peer


def accepting(number: int) -> bytes:
    return frame(Disposition(role=RECEIVER, first=number, settled=True, state=ACCEPTED))


@pytest.mark.parametrize(
    ("first", "last"),
    [(0, 2**31 - 1), (1, 2**31), (2**32 - 5, 2**31 - 6), (2**31 + 5, 2), (2**31 + 1, 0)],
)
def test_huge_ranges_cost_what_they_cover(first, last):
    peer = unsettled(2_000)
    # Every second one: as many holes as there can be.
    peer.say(b"".join(map(accepting, range(2, 2_001, 2))))
    data = frame(Disposition(role=RECEIVER, first=first, last=last, settled=True, state=ACCEPTED))
    with costs(peak=4 * MIB):
        came = peer.say(data * 100)
    assert came == [] or condition(came) == "end amqp:invalid-field"


def test_small_ranges_among_many_holes_stay_cheap():
    peer = unsettled(2_000)
    with costs():
        for numbers in (range(1, 2_001, 2), range(2_000, 0, -2)):
            peer.say(b"".join(map(accepting, numbers)))
    assert len(peer.engine.sessions[0].unsettled) == 0


# ---- output


def test_a_peer_that_does_not_read_holds_a_bounded_answer():
    """The queue keeps what it does not take."""
    peer = Peer.begun()
    peer.receiver(1, credit=2**32 - 1)
    peer.broker.offer("q", *[data_message(b"x" * 60_000)] * 200)
    peer.broker.turn()
    peer.engine.write_room = False
    out = len(peer.engine.data_to_send())
    for _ in range(100):
        peer.broker.turn()
        out += len(peer.engine.data_to_send())
    assert out < 2 * MIB
    assert len(peer.broker.queues["q"]) > 170


def test_a_peer_that_is_not_read_for_its_answers_is_not_cut_as_silent():
    peer = Peer.begun(limits=AmqpLimits(idle_ms=1_000))
    peer.engine.choked = True  # the shell: it reads none of its answers
    peer.engine.write_room = False
    for _ in range(5):
        peer.tick(0.9)
    assert not peer.gone
    # It reads at last: its time begins anew.
    peer.engine.write_room = True
    peer.engine.write_resumed()
    assert not peer.engine.choked
    peer.tick(0.9)
    peer.tick(0.9)
    assert not peer.gone
    peer.tick(0.2)
    assert peer.gone
