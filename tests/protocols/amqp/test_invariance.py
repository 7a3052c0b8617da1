"""The hot loop and the general codec agree on all input, and cuts of the bytes change nothing.

A conversation of transfers in every legal encoding, flows, dispositions, detaches and attaches on
three links of two sessions is told to several engines: one as it is, one that learns no shapes, one
that gets the bytes in pieces, one that gets them one by one. What the broker was given, each
delivery's outcome, all other answers and the final state of links and sessions must be the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.model.serial import MASK
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.performatives import (
    ACCEPTED,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Rejected,
    Released,
)
from protocols.amqp.shapes import Shapes
from tests.lanes import examples
from tests.protocols.amqp.peer import SENDER, Frame, Peer, data_message, frame, raw_frame

#: (channel, handle) of the links; the last one has no fixed target.
LINKS = ((0, 0), (0, 1), (7, 3))
CREDIT = 40

# ---- messages


def section(code: int, body: bytes) -> bytes:
    return b"\x00\x53" + bytes([code]) + body


def list8(count: int, items: bytes) -> bytes:
    return b"\xc0" + bytes([len(items) + 1, count]) + items


TO = b"\xa1\x01a"
HEADERS = (
    b"",
    section(0x70, b"\x45"),
    section(0x70, list8(1, b"\x41")),
    section(0x70, list8(1, b"\x42")),
    section(0x70, list8(2, b"\x41\x50\x09")),
    section(0x70, list8(3, b"\x40\x40\x70\x00\x00\x03\xe8")),
    section(0x70, list8(3, b"\x41\x50\x63\x52\x09")),
    section(0x70, list8(3, b"\x41\x50\x04\x43")),
    section(0x70, list8(5, b"\x41\x40\x40\x41\x52\x02")),
    section(0x70, b"\xd0\x00\x00\x00\x05\x00\x00\x00\x01\x41"),
    b"\x00\x80" + bytes(7) + b"\x70" + list8(1, b"\x41"),
    b"\x00\xa3\x10amqp:header:list" + list8(1, b"\x41"),
    section(0x70, list8(1, b"\xa1\x01x")),  # durable is no text
    section(0x70, b"\xc0\x40\x01\x41"),  # its size lies
)
FRONTS = (
    b"",
    section(0x71, b"\xc1\x04\x02\xa3\x00\x41"),
    section(0x72, b"\xc1\x04\x02\xa3\x00\x41"),
    section(0x71, b"\xc1\x01\x00") + section(0x72, b"\xc1\x01\x00"),
)
PROPERTIES = (
    b"",
    section(0x73, b"\x45"),
    section(0x73, list8(1, b"\xa1\x02id")),
    section(0x73, list8(3, b"\x40\x40" + TO)),
    section(0x73, list8(9, b"\x40\x40" + TO + b"\x40" * 5 + b"\x83" + bytes(5) + b"\x1f\0\0")),
    section(0x73, list8(9, b"\x40" * 8 + b"\x83" + bytes(8))),
    section(0x73, b"\xd0\x00\x00\x00\x05\x00\x00\x00\x01\x40"),
    section(0x74, b"\xc1\x07\x02\xa1\x01k\xa1\x01v"),
    section(0x73, list8(9, b"\x40" * 8 + b"\x41")),  # the expiry is no time
)
TAILS = (
    b"",
    data_message(b""),
    data_message(b"hello"),
    data_message(b"x" * 300),
    section(0x77, b"\xa1\x02hi"),
    section(0x76, b"\x45"),
    section(0x78, b"\xc1\x01\x00"),
    b"junk",
)
MESSAGES = st.one_of(
    st.tuples(
        st.sampled_from(HEADERS),
        st.sampled_from(FRONTS),
        st.sampled_from(PROPERTIES),
        st.sampled_from(TAILS),
    ).map(b"".join),
    # What clients send again and again.
    st.sampled_from(
        [
            data_message(b"hello"),
            data_message(b"hello", durable=True),
            HEADERS[5] + data_message(b"ttl"),
            HEADERS[2] + PROPERTIES[3] + data_message(b"to"),
        ]
    ),
    st.binary(max_size=12),
)

# ---- transfers in all their encodings


def uint(value: int, form: int) -> bytes:
    if value == 0 and form == 0:
        return b"\x43"
    if value < 256 and form < 2:
        return b"\x52" + bytes([value])
    return b"\x70" + value.to_bytes(4, "big")


BOOLEANS = {
    True: (b"\x41", b"\x56\x01"),
    False: (b"\x42", b"\x56\x00"),
    None: (b"\x40",),
}


@dataclass(frozen=True)
class Way:
    """How a client writes its transfers."""

    number: int = 2
    wide_tag: bool = False
    tag: int = 4
    format: bytes = b"\x43"
    boolean: int = 0
    wide_list: bool = False
    descriptor: bytes = b"\x00\x53\x14"
    doff: int = 2
    trailing: int = 0


USUAL = Way()
WAYS = st.one_of(
    st.just(USUAL),
    st.sampled_from([Way(number=1, tag=1), Way(tag=0), Way(boolean=1, format=b"\x40")]),
    st.builds(
        Way,
        number=st.sampled_from([0, 1, 2]),
        wide_tag=st.booleans(),
        tag=st.sampled_from([0, 1, 4, 32]),
        format=st.sampled_from([b"\x43", b"\x40", b"\x52\x00", b"\x70\0\0\0\0", b"\x52\x01"]),
        boolean=st.sampled_from([0, 1]),
        wide_list=st.booleans(),
        descriptor=st.sampled_from(
            [b"\x00\x53\x14", b"\x00\x80" + bytes(7) + b"\x14", b"\x00\xa3\x12amqp:transfer:list"]
        ),
        doff=st.sampled_from([2, 3]),
        trailing=st.sampled_from([0, 1, 4]),
    ),
)


def transfer(
    way: Way,
    link: tuple[int, int],
    number: int | None,
    *,
    settled: bool | None,
    more: bool = False,
    aborted: bool = False,
    payload: bytes = b"",
) -> bytes:
    """Return a transfer frame written in this way."""
    fields = [uint(link[1], way.number)]
    if number is None:
        fields += [b"\x40", b"\x40"]
    else:
        tag = (number.to_bytes(4, "big") * 8)[: way.tag]
        head = b"\xb0\0\0\0" + bytes([len(tag)]) if way.wide_tag else b"\xa0" + bytes([len(tag)])
        fields += [uint(number, way.number), head + tag]
    fields.append(way.format if number is not None else b"\x40")
    flags = [settled, more]
    if aborted or way.trailing:
        flags += [None, None, None, aborted][: 4 if aborted else way.trailing]
    for flag in flags:
        forms = BOOLEANS[flag]
        fields.append(forms[way.boolean % len(forms)])
    items = b"".join(fields)
    if way.wide_list:
        raw = b"\xd0" + (len(items) + 4).to_bytes(4, "big") + len(fields).to_bytes(4, "big") + items
    else:
        raw = list8(len(fields), items)
    return raw_frame(way.descriptor + raw + payload, channel=link[0], doff=way.doff)


# ---- conversations


@dataclass
class Told:
    """A conversation's bytes, frame by frame."""

    start: int
    frames: list[bytes] = field(default_factory=list)
    next: dict[int, int] = field(default_factory=dict)
    open: set[tuple[int, int]] = field(default_factory=set)

    def number(self, channel: int, gap: int = 0) -> int:
        number = (self.next.get(channel, self.start) + gap) & MASK
        self.next[channel] = (number + 1) & MASK
        return number


SETTLED = st.sampled_from([None, False, True])
LINK = st.sampled_from(LINKS)
OPERATIONS = st.lists(
    st.one_of(
        # A burst of like messages: what the hot loop is for.
        st.tuples(
            st.just("burst"),
            LINK,
            WAYS,
            st.lists(MESSAGES, min_size=1, max_size=3),
            st.integers(1, 12),
            SETTLED,
        ),
        st.tuples(st.just("gap"), LINK, WAYS, MESSAGES, st.sampled_from([1, 5, 300]), SETTLED),
        st.tuples(
            st.just("parts"), LINK, WAYS, MESSAGES, st.lists(st.integers(0, 9), max_size=3), SETTLED
        ),
        st.tuples(st.just("abort"), LINK, WAYS, MESSAGES),
        st.tuples(st.just("open-end"), LINK, WAYS, MESSAGES),
        st.tuples(st.just("flow"), LINK, st.booleans()),
        st.tuples(st.just("disposition"), LINK),
        st.tuples(st.just("empty")),
        st.tuples(st.just("detach"), LINK),
    ),
    min_size=1,
    max_size=8,
)


def tell(told: Told, operation: tuple[Any, ...]) -> None:
    """Append one operation's frames."""
    kind, *rest = operation
    frames = told.frames
    match kind:
        case "burst":
            link, way, messages, count, settled = rest
            for index in range(count):
                body = messages[index % len(messages)]
                number = told.number(link[0])
                frames.append(transfer(way, link, number, settled=settled, payload=body))
        case "gap":
            link, way, body, gap, settled = rest
            number = told.number(link[0], gap)
            frames.append(transfer(way, link, number, settled=settled, payload=body))
        case "parts":
            link, way, body, cuts, settled = rest
            number: int | None = told.number(link[0])
            at = 0
            for cut in cuts:
                part = body[at : at + cut]
                frames.append(transfer(way, link, number, settled=settled, more=True, payload=part))
                number, at = None, at + cut
            frames.append(transfer(way, link, number, settled=settled, payload=body[at:]))
        case "abort":
            link, way, body = rest
            number = told.number(link[0])
            frames.append(transfer(way, link, number, settled=None, more=True, payload=body))
            frames.append(transfer(way, link, None, settled=None, aborted=True))
        case "open-end":
            # What comes next on this link goes on with this delivery, or breaks its rules.
            link, way, body = rest
            number = told.number(link[0])
            frames.append(transfer(way, link, number, settled=None, more=True, payload=body))
        case "flow":
            link, echo = rest
            flow = Flow(
                next_incoming_id=1,
                incoming_window=9,
                next_outgoing_id=0,
                outgoing_window=9,
                handle=link[1],
                delivery_count=0,
                link_credit=5,
                echo=echo,
            )
            frames.append(frame(flow, link[0]))
        case "disposition":
            (link,) = rest
            frames.append(frame(Disposition(role=SENDER, first=0, last=5, settled=True), link[0]))
        case "empty":
            frames.append(raw_frame(b""))
        case "detach":
            (link,) = rest
            frames.append(frame(Detach(handle=link[1], closed=True), link[0]))


def beginning(capacity: int | None) -> Peer:
    """Return a peer with the three links, each with a credit that nothing adds to."""
    peer = Peer.begun(limits=AmqpLimits(max_message_size=5_000))
    peer.begin(7)
    for (channel, handle), address in zip(LINKS, ("q", "p", None), strict=True):
        peer.sender(handle, address, channel=channel)
        link = peer.engine.sessions[channel].links[handle]
        link.credit, link.blocked = CREDIT, True
    peer.broker.producers[0].capacity = capacity
    return peer


def outcome(state: Any) -> str:
    if state == ACCEPTED:
        return "accepted"
    if isinstance(state, Rejected):
        return f"rejected {state.error.condition}"
    assert isinstance(state, Released)
    return "released"


def summary(peer: Peer, frames: list[Frame]) -> dict[str, Any]:
    """Return all that can be known from outside of what an engine did."""
    outcomes: dict[tuple[int, int], str] = {}
    others: list[Any] = []
    drained: set[int] = set()
    windows: dict[int, int] = {}
    for one in frames:
        performative = one.performative
        match performative:
            case Disposition(first=first, last=last):
                last = first if last is None else last
                for i in range(((last - first) & MASK) + 1):
                    key = one.channel, (first + i) & MASK
                    assert key not in outcomes, f"{key} was answered twice"
                    outcomes[key] = outcome(performative.state)
            case Flow(drain=True):
                # Told in the middle of a run, so where that begins is in its figures.
                assert performative.delivery_count + performative.link_credit == CREDIT
                drained.add(one.channel)
                windows[one.channel] = performative.next_incoming_id + performative.incoming_window
                others.append((one.channel, "drain", performative.handle))
            case Flow():
                windows[one.channel] = performative.next_incoming_id + performative.incoming_window
                others.append((one.channel, performative))
            case Detach() | End() | Close():
                others.append((one.channel, one.name, performative.error))
            case _:
                others.append(one.name)
    engine = peer.engine
    # Neighbours in one run wait for the disk together: those that need not are answered sooner
    # without the run. A session that ends meanwhile tells nothing more, which is a cut like any.
    for channel, told in windows.items():
        session = engine.sessions.get(channel)
        if session is not None and not session.ended:
            assert (session.next_incoming_id + session.incoming_window - told) & MASK == 0
    alive = {c for c, session in engine.sessions.items() if not (session.ended or peer.gone)}
    return {
        "sent": peer.broker.sent,
        "outcomes": {key: value for key, value in outcomes.items() if key[0] in alive},
        "others": others,
        "gone": peer.gone,
        "unfinished": engine._unfinished,
        "links": {
            (channel, handle): (link.credit, link.delivery_count, link.unsettled)
            for channel, session in engine.sessions.items()
            for handle, link in session.links.items()
        },
        "sessions": {
            channel: (
                session.next_incoming_id,
                session.next_delivery,
                None if channel in drained else session.incoming_window,
            )
            for channel, session in engine.sessions.items()
        },
        "broker": [call for call in peer.broker.calls if call[0] == "close producer"],
    }


class Forgetful(Shapes):
    """Knows no shapes, so that everything goes the general way."""

    def add(self, shape: Any) -> None:
        pass


def run(data: bytes, capacity: int | None, *, cuts: list[int], learns: bool = True) -> Any:
    peer = beginning(capacity)
    if not learns:
        peer.engine.shapes = Forgetful()
    sizes = [after - before for before, after in zip([0, *cuts], cuts, strict=False)]
    came = peer.say(data, chunks=sizes)
    came += peer.sync()
    return summary(peer, came), peer


def test_a_refusal_in_the_middle_of_a_run_asks_for_a_drain_once() -> None:
    told = Told(0)
    for count in (5, 9):
        tell(told, ("burst", LINKS[0], USUAL, [b""], count, None))
    raw = b"".join(told.frames)
    whole, _ = run(raw, 4, cuts=[])
    assert whole["others"] == [(0, "drain", 0)]
    for cut in range(0, len(raw), 7):
        assert run(raw, 4, cuts=[cut])[0] == whole
    assert run(raw, 4, cuts=[], learns=False)[0] == whole


@settings(max_examples=examples(250), deadline=None)
@given(
    OPERATIONS,
    st.sampled_from([0, 250, MASK - 5]),
    st.sampled_from([None, None, 0, 4]),
    st.data(),
)
def test_hot_loop_general_path_and_cuts_agree(operations, start, capacity, data):
    told = Told(start)
    for operation in operations:
        tell(told, operation)
    raw = b"".join(told.frames)
    whole, _ = run(raw, capacity, cuts=[])
    general, peer = run(raw, capacity, cuts=[], learns=False)
    assert peer.engine.shapes.known == []
    assert whole == general
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    pieces, _ = run(raw, capacity, cuts=cuts)
    assert pieces == whole
    at, ends = 0, []
    for one in told.frames:
        at += len(one)
        ends.append(at)
    by_frame, _ = run(raw, capacity, cuts=ends)
    assert by_frame == whole


@settings(max_examples=examples(25), deadline=None)
@given(OPERATIONS, st.sampled_from([0, MASK - 5]))
def test_byte_by_byte(operations, start):
    told = Told(start)
    for operation in operations[:4]:
        tell(told, operation)
    raw = b"".join(told.frames)
    whole, _ = run(raw, None, cuts=[])
    single, _ = run(raw, None, cuts=list(range(1, len(raw))))
    assert single == whole


def test_every_cut_of_one_conversation():
    """Two pieces, cut at each byte."""

    def conversation(peer: Peer, cut: int) -> list[Frame]:
        body = data_message(b"hello")
        data = b"".join(peer.transfer(body) for _ in range(3))
        data += peer.transfer(body[:4], more=True) + transfer(
            USUAL, (0, 0), None, settled=None, payload=body[4:]
        )
        data += frame(Detach(handle=0, closed=True))
        return peer.say(data, chunks=[cut] if cut else ())

    def begun() -> Peer:
        peer = Peer.begun()
        peer.sender(0)
        return peer

    peer = begun()
    whole = summary(peer, conversation(peer, 0))
    assert len(whole["outcomes"]) == 4
    for cut in range(1, 300):
        peer = begun()
        assert summary(peer, conversation(peer, cut)) == whole, cut


@pytest.mark.parametrize(
    "message",
    [data_message(b"hi"), HEADERS[6] + PROPERTIES[3] + TAILS[1], FRONTS[1] + TAILS[1]],
    ids=["bare", "header", "annotations"],
)
@pytest.mark.parametrize("mixed", [False, True], ids=["alike", "mixed"])
def test_every_byte_changed_behind_a_learned_shape(message, mixed):
    """Some transfers teach the shape, alone or with another; the last differs in one byte."""
    told = Told(0)
    others = [message, data_message(b"d", durable=True)] if mixed else [message]
    tell(told, ("burst", (0, 0), USUAL, others, 6, None))
    before = b"".join(told.frames)
    good = transfer(USUAL, (0, 0), 6, settled=None, payload=message)
    for at in range(4, len(good)):
        for value in {0, 1, 0x40, 0x41, 0x43, 0x52, 0xA1, 0xFF, good[at] ^ 1}:
            bad = bytearray(good)
            bad[at] = value
            data = before + bytes(bad)
            assert run(data, None, cuts=[])[0] == run(data, None, cuts=[], learns=False)[0], (
                at,
                value,
            )


@pytest.mark.parametrize("way", [USUAL, Way(number=1, tag=1), Way(boolean=1), Way(tag=32)])
def test_bursts_take_the_hot_loop(way):
    """The comparison means nothing if one side of it is never taken."""
    told = Told(0)
    tell(told, ("burst", (0, 0), way, [data_message(b"x")], 30, None))
    _, peer = run(b"".join(told.frames), None, cuts=[])
    assert max(count for _, count in peer.broker.runs) >= 20


def test_mixed_bursts_are_one_run():
    told = Told(0)
    messages = [data_message(b"a"), data_message(b"b", durable=True), HEADERS[5] + TAILS[1]]
    tell(told, ("burst", (0, 0), USUAL, messages, 30, None))
    _, peer = run(b"".join(told.frames), None, cuts=[])
    assert peer.broker.runs[-1] == ("q", 27)


def test_runs_longer_than_one_call():
    """More than a run may hold, over the wrap of the ids, in one read."""
    peer = Peer.begun(limits=AmqpLimits(amqp_credits=4096, amqp_low_credits=0))
    peer.sender(0)
    start = MASK - 2000
    body = data_message(b"x")
    data = [
        transfer(USUAL, (0, 0), (start + i) & MASK, settled=None, payload=body) for i in range(4096)
    ]
    came = peer.say(b"".join(data))
    answered = summary(peer, came)["outcomes"]
    assert len(answered) == 4096
    assert set(answered.values()) == {"accepted"}
    assert len(peer.broker.sent) == 4096
