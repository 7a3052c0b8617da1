"""Valid conversations, damaged: no exception leaves the engine, and it goes on or closes properly.

Two kinds: bytes of a recorded conversation changed, cut, doubled and moved about; and frames that
are well formed while their fields are wrong. After each the connection is lost, and the broker must
hold nothing of it. Every failure names the seed that repeats it.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.model.serial import MASK
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    Attach,
    Begin,
    Close,
    Composite,
    Coordinator,
    Declare,
    Detach,
    Discharge,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Outcome,
    Received,
    Rejected,
    SaslInit,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from tests.lanes import examples
from tests.protocols.amqp.controlling import asked
from tests.protocols.amqp.peer import (
    AMQP_HEADER,
    FACTS,
    RECEIVER,
    SASL_HEADER,
    SENDER,
    data_message,
    frame,
    parse,
    raw_frame,
)
from tests.protocols.scripted_broker import ScriptedAuthenticator, ScriptedBroker

ROUNDS = 40
PER_ROUND = 50
LIMITS = AmqpLimits(amqp_credits=20, amqp_low_credits=5, max_message_size=2_000)


class Line:
    """An engine with its own broker, whatever is said to it; checks what it says in return."""

    def __init__(self) -> None:
        self.broker = ScriptedBroker()
        self.broker.offer("q", *[data_message(b"m" * size) for size in (1, 100, 600)])
        self.broker.offer("q", data_message(b"d", durable=True), flags=4 | 16, count=1)
        self.engine = AmqpConnection(self.broker, ScriptedAuthenticator(), LIMITS, FACTS)
        self.engine.tick(100.0)
        self.out = b""

    def say(self, data: bytes) -> None:
        self.engine.receive_data(data, 100.0)
        self.out += self.engine.data_to_send()
        self.broker.turn()
        self.out += self.engine.data_to_send()

    def end(self) -> None:
        """Check the answers, lose the connection, and see that nothing stays."""
        self.broker.sync()
        self.engine.tick(101.0)
        self.out += self.engine.data_to_send()
        frames, rest = parse(self.out)
        assert rest == b""
        closes = [i for i, one in enumerate(frames) if one.name == "close"]
        assert closes in ([], [len(frames) - 1]), "something behind close"
        assert self.engine.closing or not closes
        for one in frames:
            error = getattr(one.performative, "error", None)
            if error is not None:
                assert error.condition.startswith("amqp:")
                assert error.description
        self.engine.connection_lost(101.0)
        assert self.engine.data_to_send() == b""
        assert self.engine._unfinished == 0
        assert self.engine.links == 0
        assert LIMITS.unfinished.held == 0
        broker = self.broker
        assert all(work.over for work in broker.works)
        assert broker.subscriptions == []
        assert all(producer.closed for producer in broker.producers)
        assert broker.temporaries == set()
        assert len(broker.queues["q"]) + acknowledged(broker) == 4, "a message was lost"


def acknowledged(broker: ScriptedBroker) -> int:
    return sum(len(seqs) for kind in ("acknowledge", "reject") for _, seqs in broker.of(kind))


def transfer(number: int, body: bytes, handle: int = 0, **fields: Any) -> bytes:
    tag = number.to_bytes(4, "big")
    made = Transfer(handle=handle, delivery_id=number, delivery_tag=tag, message_format=0, **fields)
    return frame(made, 0, body)


def attach(handle: int, role: bool, **fields: Any) -> bytes:
    fields.setdefault("name", f"n{handle}")
    fields.setdefault("source", Source(address="q"))
    fields.setdefault("target", Target(address="q"))
    count = None if role is RECEIVER else 0
    return frame(Attach(handle=handle, role=role, initial_delivery_count=count, **fields))


def flow(**fields: Any) -> bytes:
    fields = {
        "next_incoming_id": 1,
        "incoming_window": 50,
        "next_outgoing_id": 0,
        "outgoing_window": 50,
        **fields,
    }
    return frame(Flow(**fields))


def accept(first: int, last: int, **fields: Any) -> bytes:
    fields = {"settled": True, "state": ACCEPTED, **fields}
    return frame(Disposition(role=RECEIVER, first=first, last=last, **fields))


#: A conversation that does a little of everything, frame by frame.
CONVERSATION = [
    SASL_HEADER,
    frame(SaslInit(mechanism="ANONYMOUS"), kind=1),
    AMQP_HEADER,
    frame(Open(container_id="fuzz", max_frame_size=512, idle_time_out=30_000)),
    frame(Begin(next_outgoing_id=0, incoming_window=50, outgoing_window=50)),
    attach(0, SENDER),
    *[transfer(number, data_message(b"x" * 9)) for number in range(4)],
    transfer(4, data_message(b"x", durable=True)),
    transfer(5, b"\x00\x53\x75\xa0\x05he", more=True),
    frame(Transfer(handle=0), 0, b"llo"),
    attach(1, RECEIVER),
    flow(handle=1, delivery_count=0, link_credit=3),
    accept(1, 1),
    flow(handle=1, delivery_count=3, link_credit=5, drain=True, echo=True),
    accept(2, 2, state=RELEASED),
    accept(3, 3, settled=False),
    attach(2, SENDER, target=Target(dynamic=True)),
    *[transfer(number, data_message(b"y"), 2, settled=True) for number in range(6, 12)],
    frame(Detach(handle=2, closed=True)),
    frame(Begin(next_outgoing_id=MASK, incoming_window=5, outgoing_window=5), 1),
    frame(End(), 1),
    raw_frame(b""),
    accept(1, 9, state=Modified(delivery_failed=True)),
    frame(Detach(handle=1, closed=False)),
    frame(End()),
    frame(Close()),
]


FIRST, SECOND, THIRD = (number.to_bytes(8, "big") for number in (1, 2, 3))


def asks(number: int, command: Composite) -> bytes:
    return transfer(number, asked(command), 3)


def inside(name: bytes, outcome: Outcome | None = None) -> TransactionalState:
    return TransactionalState(txn_id=name, outcome=outcome)


#: Three transactions: one is committed, one rolled back, one left open at the end.
TRANSACTED = [
    *CONVERSATION[:5],
    attach(0, SENDER),
    attach(1, RECEIVER),
    attach(3, SENDER, target=Coordinator()),
    asks(0, Declare()),
    flow(handle=1, delivery_count=0, link_credit=4),
    transfer(1, data_message(b"posted"), state=inside(FIRST)),
    transfer(2, data_message(b"posted", durable=True), state=inside(FIRST), settled=True),
    accept(1, 1, state=inside(FIRST, ACCEPTED)),
    asks(3, Declare()),
    accept(2, 3, state=inside(FIRST, Rejected()), settled=False),
    transfer(4, b"\x00\x53\x75\xa0\x05he", more=True, state=inside(SECOND)),
    frame(Transfer(handle=0), 0, b"llo"),
    asks(5, Discharge(txn_id=FIRST)),
    accept(4, 4, state=inside(SECOND, RELEASED)),
    asks(6, Discharge(txn_id=SECOND, fail=True)),
    asks(7, Declare()),
    flow(handle=1, delivery_count=4, link_credit=4),
    accept(5, 5, state=inside(THIRD, ACCEPTED)),
    transfer(8, data_message(b"never"), state=inside(THIRD)),
    frame(Detach(handle=1, closed=True)),
    frame(Detach(handle=3, closed=True)),
    frame(Close()),
]


def test_the_transactions_themselves_are_valid():
    line = Line()
    for one in TRANSACTED:
        line.say(one)
    assert [body[-6:] for body in line.broker.bodies()] == [b"posted"] * 2
    assert line.broker.of("acknowledge") == [("q", [1])]
    assert line.broker.of("reject") == [("q", [2, 3])]
    assert line.broker.of("release failed") == [("q", [4]), ("q", [4])]
    frames, _ = parse(line.out)
    assert [one.name for one in frames if getattr(one.performative, "error", None)] == []
    line.end()


def test_the_conversation_itself_is_valid():
    line = Line()
    line.say(b"".join(CONVERSATION))
    assert len(line.broker.sent) == 12
    frames, _ = parse(line.out)
    assert [one.name for one in frames if getattr(one.performative, "error", None)] == []
    line.end()


EXTREMES = (b"\x00", b"\xff", b"\x7f", b"\x80", b"\x45", b"\x40", b"\xf0", b"\xd1", b"\xc0")


def damaged(chance: random.Random) -> bytes:
    """Return the conversation after one to four accidents."""
    frames = list(chance.choice([CONVERSATION, TRANSACTED]))
    for _ in range(chance.randrange(3)):
        one, other = chance.randrange(len(frames)), chance.randrange(len(frames))
        match chance.randrange(4):
            case 0:
                frames[one], frames[other] = frames[other], frames[one]
            case 1:
                frames.insert(one, frames[other])
            case 2:
                del frames[one]
            case 3:
                frames[one:one] = [frames[other]] * chance.randrange(30)
    # Most accidents behind the beginning, or little would ever come that far.
    first = min(chance.choice([0, 4, 6, 6]), len(frames) - 1)
    count = chance.randrange(1, 4)
    if chance.randrange(3):
        # Inside frames, whose sizes stay right: these come deepest.
        for _ in range(count):
            index = chance.randrange(first, len(frames))
            body = bytearray(frames[index][8:])
            accident(chance, body, 0)
            frames[index] = reframed(frames[index], bytes(body))
        return b"".join(frames)
    data = bytearray(b"".join(frames))
    for _ in range(count):
        accident(chance, data, len(b"".join(frames[:first])))
    return bytes(data)


def reframed(one: bytes, body: bytes) -> bytes:
    """Return a frame with another body; protocol headers stay as they are."""
    if one[:4] == b"AMQP":
        return one
    return (8 + len(body)).to_bytes(4, "big") + one[4:8] + body


def accident(chance: random.Random, data: bytearray, start: int) -> None:
    """Change, cut, add or copy some bytes behind `start`."""
    if start >= len(data):
        return
    at = chance.randrange(start, len(data))
    match chance.randrange(8):
        case 0:
            data[at] ^= 1 << chance.randrange(8)
        case 1:
            data[at : at + 1] = chance.choice(EXTREMES)
        case 2:
            del data[at : at + chance.randrange(1, 9)]
        case 3:
            data[at:at] = chance.randbytes(chance.randrange(1, 9))
        case 4:
            data[at : at + 4] = chance.choice([0, 1, 255, MASK, 1 << 31]).to_bytes(4, "big")
        case 5:
            size = chance.randrange(1, 40)
            other = chance.randrange(len(data))
            data[at:at] = data[other : other + size]
        case _:
            # A small number behind its constructor: the frame stays well formed.
            places = [i for i in range(start, len(data) - 1) if data[i] in (0x50, 0x52, 0x53)]
            if places:
                data[chance.choice(places) + 1] = chance.randrange(256)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_damaged_conversations(seed):
    chance = random.Random(seed)
    for number in range(PER_ROUND):
        data = damaged(chance)
        line = Line()
        try:
            at = 0
            while at < len(data):
                size = chance.choice([1, 7, 100, 5_000])
                line.say(data[at : at + size])
                at += size
            line.end()
        except Exception as error:
            raise AssertionError(f"seed {seed}, number {number}: {data.hex()}") from error


# ---- well formed, and wrong

NUMBERS = st.sampled_from([0, 1, 2, 3, 5, 255, 256, 2**31 - 1, 2**31, MASK - 1, MASK])
HANDLES = st.sampled_from([0, 1, 2, 3, 255, 256, MASK])
MAYBE = st.one_of(st.none(), NUMBERS)
TEXTS = st.sampled_from(["", "q", "p", "q::q", "::", "$x", "a\0b", "é" * 200, "x" * 600])
SYMBOLS = st.sampled_from(["queue", "topic", "shared", "global", "x"])
CAPABILITIES = st.lists(SYMBOLS, max_size=3).map(tuple)
STATES = st.one_of(
    st.sampled_from([None, ACCEPTED, RELEASED, Rejected()]),
    st.builds(Modified, delivery_failed=st.booleans(), undeliverable_here=st.booleans()),
    st.builds(Received, section_number=NUMBERS, section_offset=NUMBERS),
    st.builds(
        TransactionalState,
        txn_id=st.sampled_from([FIRST, FIRST, FIRST, SECOND, b"", b"x"]),
        outcome=st.sampled_from([None, ACCEPTED, RELEASED, Rejected(), Modified()]),
    ),
    st.builds(
        Rejected, error=st.builds(Error, condition=TEXTS.filter(str.isascii), description=TEXTS)
    ),
)
OUTCOMES = st.one_of(st.sampled_from([None, ACCEPTED, RELEASED, Rejected(), Modified()]))
FIELDS = st.dictionaries(st.sampled_from(["priority", "x"]), st.sampled_from([1, -1, "x", True]))
SOURCES = st.one_of(
    st.none(),
    st.builds(
        Source,
        address=st.one_of(st.none(), TEXTS),
        durable=st.sampled_from([0, 1, 2]),
        dynamic=st.booleans(),
        distribution_mode=st.sampled_from([None, "move", "copy", "x"]),
        default_outcome=OUTCOMES,
        capabilities=CAPABILITIES,
        dynamic_node_properties=st.one_of(st.none(), FIELDS),
    ),
)
TARGETS = st.one_of(
    st.none(),
    st.builds(
        Target,
        address=st.one_of(st.none(), TEXTS),
        dynamic=st.booleans(),
        capabilities=CAPABILITIES,
        dynamic_node_properties=st.one_of(st.none(), FIELDS),
    ),
    st.builds(Coordinator, capabilities=CAPABILITIES),
)
PERFORMATIVES: st.SearchStrategy[Composite] = st.one_of(
    st.builds(
        Begin,
        remote_channel=st.sampled_from([None, None, 0]),
        next_outgoing_id=NUMBERS,
        incoming_window=NUMBERS,
        outgoing_window=NUMBERS,
        handle_max=NUMBERS,
    ),
    st.builds(
        Attach,
        name=TEXTS,
        handle=HANDLES,
        role=st.booleans(),
        snd_settle_mode=st.sampled_from([0, 1, 2]),
        rcv_settle_mode=st.sampled_from([0, 1]),
        source=SOURCES,
        target=TARGETS,
        initial_delivery_count=MAYBE,
        max_message_size=MAYBE,
        properties=st.one_of(st.none(), FIELDS),
    ),
    st.builds(
        Flow,
        next_incoming_id=MAYBE,
        incoming_window=NUMBERS,
        next_outgoing_id=NUMBERS,
        outgoing_window=NUMBERS,
        handle=st.one_of(st.none(), HANDLES),
        delivery_count=MAYBE,
        link_credit=MAYBE,
        drain=st.booleans(),
        echo=st.booleans(),
    ),
    st.builds(
        Transfer,
        handle=HANDLES,
        delivery_id=MAYBE,
        delivery_tag=st.one_of(st.none(), st.binary(max_size=33)),
        message_format=st.sampled_from([None, 0, 1]),
        settled=st.sampled_from([None, False, True]),
        more=st.booleans(),
        state=STATES,
        resume=st.booleans(),
        aborted=st.booleans(),
    ),
    st.builds(
        Disposition,
        role=st.sampled_from([True, True, False]),
        first=NUMBERS,
        last=MAYBE,
        settled=st.booleans(),
        state=STATES,
    ),
    st.builds(Detach, handle=HANDLES, closed=st.booleans()),
    st.builds(End),
)
PAYLOADS = st.sampled_from(
    [b"", data_message(b"x"), data_message(b"x", durable=True), b"junk", b"x" * 1_500]
    + [asked(Declare()), asked(Declare(global_id=b"x")), asked(ACCEPTED)]
    + [asked(Discharge(txn_id=name, fail=fail)) for name in (FIRST, b"") for fail in (True, False)]
)


@settings(max_examples=examples(400), deadline=None)
@given(
    st.lists(st.tuples(PERFORMATIVES, st.sampled_from([0, 0, 0, 1, 9]), PAYLOADS), max_size=12),
    st.booleans(),
    st.sampled_from([512, 100_000]),
)
def test_frames_whose_fields_are_wrong(said, whole, frame_max):
    line = Line()
    opened = frame(Open(container_id="fuzz", max_frame_size=frame_max))
    begun = frame(Begin(next_outgoing_id=0, incoming_window=50, outgoing_window=50))
    line.say(AMQP_HEADER + opened + begun + attach(0, SENDER) + attach(1, RECEIVER))
    line.say(attach(3, SENDER, target=Coordinator()) + asks(0, Declare()))
    line.say(flow(handle=1, delivery_count=0, link_credit=2))
    frames = []
    for performative, channel, payload in said:
        carried = payload if isinstance(performative, Transfer) else b""
        frames.append(frame(performative, channel, carried))
    for data in [b"".join(frames)] if whole else frames:
        line.say(data)
    line.end()


@settings(max_examples=examples(100), deadline=None)
@given(st.binary(max_size=300), st.sampled_from(["header", "sasl", "open", "opened"]))
def test_noise(noise, state):
    line = Line()
    line.say(
        {
            "header": b"",
            "sasl": SASL_HEADER,
            "open": AMQP_HEADER,
            "opened": AMQP_HEADER + frame(Open(container_id="x")),
        }[state]
    )
    line.say(noise)
    line.end()
