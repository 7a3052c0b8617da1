"""Links on which the peer sends: credit, windows, deliveries of many frames, outcomes, targets."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gateway.model.address import RoutingType
from gateway.model.amqp_types import AmqpArray, Symbol
from gateway.model.errors import Code, Refusal
from gateway.model.message import DURABLE, EXPIRES
from gateway.model.serial import MASK
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.performatives import (
    ACCEPTED,
    Attach,
    DeleteOnClose,
    DeleteOnNoMessages,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from protocols.amqp.session import INCOMING_WINDOW
from tests.protocols.amqp.peer import (
    RECEIVER,
    SENDER,
    Frame,
    Peer,
    condition,
    data_message,
    frame,
    names,
    of,
)

SMALL = AmqpLimits(amqp_credits=10, amqp_low_credits=3)
BODY = data_message(b"x")
HALF = len(BODY) // 2


def accepted(frames: list[Frame]) -> list[tuple[int, int]]:
    """Return the ranges that were accepted, all of them settled."""
    ranges = []
    for one in of(frames, Disposition):
        if one.state == ACCEPTED:
            assert one.role is RECEIVER
            assert one.settled
            ranges.append((one.first, one.first if one.last is None else one.last))
    return ranges


def rejected(frames: list[Frame]) -> list[tuple[int, int, str]]:
    return [
        (one.first, one.last, one.state.error.condition)
        for one in of(frames, Disposition)
        if isinstance(one.state, Rejected)
    ]


def refusals(frames: list[Frame]) -> list[Disposition]:
    return [one for one in of(frames, Disposition) if isinstance(one.state, Rejected)]


def rejections(frames: list[Frame]) -> list[Error]:
    """Return the errors of what was rejected."""
    return [one.state.error for one in refusals(frames)]


def linked(**fields) -> Peer:
    peer = Peer.begun(**fields)
    assert names(peer.sender(0)) == ["attach", "flow"]
    return peer


def node(name: str, value: object) -> Target:
    """Return a target that asks for a node with this property."""
    return Target(dynamic=True, dynamic_node_properties={name: value})


# ---- the answer to attach


def test_attach_is_answered_with_what_holds():
    peer = Peer.begun()
    came = peer.sender(
        3,
        name="mine",
        snd_settle_mode=0,
        rcv_settle_mode=1,
        source=Source(address="here"),
        target=Target(address="q", capabilities=("queue",)),
        initial_delivery_count=7,
    )
    ours = of(came, Attach)[0]
    assert (ours.name, ours.handle, ours.role) == ("mine", 3, RECEIVER)
    assert (ours.snd_settle_mode, ours.rcv_settle_mode) == (0, 0)
    assert ours.source == Source(address="here")
    assert ours.target == Target(address="q", capabilities=("queue",))
    assert ours.max_message_size == 16 << 20
    flow = of(came, Flow)[0]
    assert (flow.handle, flow.delivery_count, flow.link_credit) == (3, 7, 1000)
    assert flow.incoming_window == INCOMING_WINDOW
    assert peer.broker.of("open producer") == [("q", RoutingType.ANYCAST)]


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_snd_settle_mode_is_the_peers(mode):
    came = Peer.begun().sender(snd_settle_mode=mode)
    assert of(came, Attach)[0].snd_settle_mode == mode


@pytest.mark.parametrize(
    ("capabilities", "routing"),
    [
        ((), None),
        (("queue",), RoutingType.ANYCAST),
        (("temporary-queue",), RoutingType.ANYCAST),
        (("topic",), RoutingType.MULTICAST),
        (("temporary-topic",), RoutingType.MULTICAST),
        (("x", "topic", "queue"), RoutingType.MULTICAST),
    ],
)
def test_capabilities_name_the_routing_type(capabilities, routing):
    peer = Peer.begun()
    peer.sender(target=Target(address="a", capabilities=capabilities))
    assert peer.broker.of("open producer") == [("a", routing)]


def test_prefix_names_the_routing_type_and_is_not_part_of_the_address():
    limits = AmqpLimits(prefixes=(("queue://", RoutingType.ANYCAST),))
    peer = Peer.begun(limits=limits)
    peer.sender(address="queue://a")
    assert peer.broker.of("open producer") == [("a", RoutingType.ANYCAST)]


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"target": None}, "amqp:invalid-field", "needs a target"),
        ({"target": Target(address="a", dynamic=True)}, "amqp:invalid-field", "'a'"),
        ({"target": Target(address="$sys")}, "amqp:invalid-field", "'$sys'"),
        ({"target": Target(address="x" * 256)}, "amqp:invalid-field", "255"),
        ({"target": Target(address="a\nb")}, "amqp:invalid-field", "control character"),
        ({"target": Target(address="a::")}, "amqp:invalid-field", "queue name is empty"),
        ({"target": node("lifetime-policy", 1)}, "amqp:invalid-field", "'lifetime-policy'"),
        ({"target": node("lifetime-policy", ACCEPTED)}, "amqp:invalid-field", "lifetime-policy"),
        ({"target": node("supported-dist-modes", "x")}, "amqp:invalid-field", "dist-modes"),
    ],
)
def test_targets_that_are_refused(fields, error, text):
    peer = Peer.begun()
    came = peer.sender(**fields)
    assert names(came) == ["attach", "detach"]
    assert of(came, Attach)[0].target is None
    detach = of(came, Detach)[0]
    assert detach.closed
    assert detach.error.condition == error
    assert text in detach.error.description
    assert peer.engine.links == 0
    assert peer.tell(Detach(handle=0, closed=True)) == []
    assert names(peer.sender(0, name="again")) == ["attach", "flow"]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (Code.NOT_FOUND, "amqp:not-found"),
        (Code.NOT_AUTHORIZED, "amqp:unauthorized-access"),
        (Code.ROUTING_MISMATCH, "amqp:illegal-state"),
        (Code.MAX_CONSUMERS, "amqp:resource-limit-exceeded"),
        (Code.SHUTTING_DOWN, "amqp:connection:forced"),
        (Code.CONVERSION, "amqp:internal-error"),
    ],
)
def test_refusals_of_the_broker_keep_code_and_text(code, error):
    peer = Peer.begun()
    peer.broker.refuse_open = Refusal(code=code, text="Because.")
    detach = of(peer.sender(), Detach)[0]
    assert detach.error.condition == error
    assert detach.error.description == "Because."
    assert detach.error.info == {"x-reason": code.value}


def test_dynamic_target_is_a_temporary_queue_that_goes_with_the_link():
    peer = Peer.begun()
    for capabilities, kind in [
        ((), RoutingType.ANYCAST),
        (("temporary-topic",), RoutingType.MULTICAST),
    ]:
        came = peer.sender(target=Target(dynamic=True, capabilities=capabilities))
        target = of(came, Attach)[0].target
        assert target.dynamic
        assert peer.broker.of("create temporary")[-1] == (target.address, kind)
        assert peer.broker.temporaries == {target.address}
        peer.tell(Detach(handle=0, closed=True))
        assert peer.broker.temporaries == set()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lifetime-policy", DeleteOnClose()),
        ("lifetime-policy", DeleteOnNoMessages()),
        ("supported-dist-modes", Symbol("move")),
        ("supported-dist-modes", AmqpArray(0xA3, (Symbol("move"), Symbol("copy")))),
        ("x-mine", 1),
    ],
)
def test_node_properties_that_are_taken(name, value):
    peer = Peer.begun()
    assert names(peer.sender(target=node(name, value))) == ["attach", "flow"]
    source = Source(dynamic=True, dynamic_node_properties={name: value})
    assert names(peer.receiver(1, source=source)) == ["attach"]


def test_temporary_node_of_a_refused_link_goes():
    peer = Peer.begun()
    peer.broker.refuse_open = Refusal(code=Code.NOT_AUTHORIZED, text="No.")
    assert names(peer.sender(target=Target(dynamic=True))) == ["attach", "detach"]
    assert peer.broker.temporaries == set()


# ---- credit [AMQP 2.6.7]


def test_credit_is_topped_up_at_the_low_mark():
    peer = linked(limits=SMALL)
    assert names(peer.send(*[b"x"] * 6)) == ["disposition"]
    came = peer.send(b"x")
    assert names(came) == ["disposition", "flow"]
    flow = of(came, Flow)[0]
    assert (flow.handle, flow.delivery_count, flow.link_credit) == (0, 7, 10)


def test_default_credit_is_1000_topped_up_after_700():
    peer = linked()
    assert names(peer.send(*[b"x"] * 699)) == ["disposition"]
    assert names(peer.send(b"x")) == ["disposition", "flow"]


@pytest.mark.parametrize("pieces", [1, 11], ids=["at-once", "one-by-one"])
def test_eleventh_of_ten_is_detached(pieces):
    """Credit counts from the flow that tells it, also inside one read [AMQP 2.8.16]."""
    limits = AmqpLimits(amqp_credits=10, amqp_low_credits=0)
    peer = linked(limits=limits)
    peer.engine.sessions[0].links[0].blocked = True  # no more credit is given
    data = [peer.transfer(data_message(b"x")) for _ in range(11)]
    came = []
    step = len(data) // pieces
    for at in range(0, len(data), step):
        came += peer.say(b"".join(data[at : at + step]))
    assert condition(came) == "detach amqp:link:transfer-limit-exceeded"
    assert "'sender-0-0'" in of(came, Detach)[0].error.description
    assert len(peer.broker.sent) == 10
    assert accepted(came)[-1][1] == 9
    # What was under way is passed over, and the handle is free after the peer's detach.
    assert peer.say(peer.transfer(BODY)) == []
    assert peer.tell(Detach(handle=0, closed=True)) == []
    peer.engine.sessions[0].broker.producers[-1].full = None
    assert names(peer.sender(0)) == ["attach", "flow"]
    assert names(peer.send(b"y")) == ["disposition"]


def test_credit_is_held_back_while_the_address_is_blocked():
    peer = Peer.begun(limits=SMALL)
    peer.broker.full_addresses.add("q")
    assert names(peer.sender(0)) == ["attach"]
    peer.broker.full_addresses.clear()
    producer = peer.broker.producers[0]
    came = peer.outside(producer.unblock)
    assert [flow.link_credit for flow in of(came, Flow)] == [10]
    peer.outside(producer.block)
    assert names(peer.send(*[b"x"] * 10)) == ["disposition"]
    assert len(peer.broker.sent) == 10
    came = peer.outside(producer.unblock)
    assert [flow.link_credit for flow in of(came, Flow)] == [10]
    assert peer.outside(producer.unblock) == []


def test_credit_waits_for_the_disk():
    """Deliveries that wait for the journal hold credit back once they are very many."""
    limits = AmqpLimits(amqp_credits=26_000, amqp_low_credits=15_000)
    peer = linked(limits=limits)
    body = data_message(b"x", durable=True)
    came = []
    for _ in range(12):
        came += peer.say(b"".join([peer.transfer(body) for _ in range(1_000)]))
    assert all(flow.handle is None for flow in of(came, Flow))
    came = peer.sync()
    assert accepted(came) == [(0, 11_999)]
    assert [flow.link_credit for flow in of(came, Flow)] == [26_000]


def test_sender_gives_credit_up_by_its_delivery_count():
    peer = linked(limits=SMALL)
    flow = Flow(
        next_incoming_id=1,
        incoming_window=10,
        next_outgoing_id=0,
        outgoing_window=10,
        handle=0,
        delivery_count=6,
        link_credit=4,
    )
    assert peer.tell(flow) == []
    assert peer.engine.sessions[0].links[0].credit == 4
    came = peer.send(b"x")
    assert of(came, Flow)[0].delivery_count == 7
    # A count behind ours changes nothing: those transfers have come.
    assert peer.tell(flow) == []
    assert peer.engine.sessions[0].links[0].delivery_count == 7


def test_echo_on_a_sending_link():
    peer = linked(limits=SMALL)
    came = peer.tell(
        Flow(
            next_incoming_id=1,
            incoming_window=10,
            next_outgoing_id=0,
            outgoing_window=10,
            handle=0,
            delivery_count=0,
            link_credit=10,
            echo=True,
        )
    )
    assert [(f.handle, f.link_credit, f.delivery_count) for f in of(came, Flow)] == [(0, 10, 0)]


def test_delivery_count_wraps():
    peer = Peer.begun(limits=SMALL)
    peer.sender(0, initial_delivery_count=MASK - 2)
    came = peer.send(*[b"x"] * 7)
    flow = of(came, Flow)[0]
    assert (flow.delivery_count, flow.link_credit) == (4, 10)


# ---- the session's window [AMQP 2.5.6]


def test_window_is_opened_again_at_half():
    peer = linked(limits=AmqpLimits(amqp_credits=100_000, amqp_low_credits=0))
    half = INCOMING_WINDOW // 2
    came = peer.send(*[b"x"] * half)
    assert of(came, Flow) == []
    came = peer.send(b"x")
    (flow,) = of(came, Flow)
    assert (flow.next_incoming_id, flow.incoming_window) == (half + 1, INCOMING_WINDOW)
    assert flow.handle is None


@pytest.mark.parametrize("body", [BODY, b""], ids=["runs", "parts"])
def test_frames_beyond_the_window_end_the_session(body):
    peer = linked(limits=AmqpLimits(amqp_credits=100_000, amqp_low_credits=0))
    if body:
        data = [peer.transfer(body) for _ in range(INCOMING_WINDOW + 1)]
    else:
        data = [peer.transfer(b"", more=True, settled=True)]
        data += [frame(Transfer(handle=0, more=True)) for _ in range(INCOMING_WINDOW)]
    came = peer.say(b"".join(data))
    assert condition(came) == "end amqp:session:window-violation"
    assert str(INCOMING_WINDOW) in of(came, End)[0].error.description
    assert not peer.gone
    assert len(peer.broker.sent) == (INCOMING_WINDOW if body else 0)


def test_transfer_id_wraps():
    peer = linked(next_id=MASK, limits=AmqpLimits(amqp_credits=100_000, amqp_low_credits=0))
    half = INCOMING_WINDOW // 2
    came = peer.send(*[b"x"] * (half + 1))
    assert [flow.next_incoming_id for flow in of(came, Flow)] == [half]
    assert accepted(came) == [(0, half)]


# ---- delivery-ids [AMQP 2.6.12]


def test_delivery_id_wraps_and_ranges_stay_whole():
    peer = linked()
    first = MASK - 2
    data = b"".join(peer.transfer(BODY, delivery_id=(first + i) & MASK) for i in range(6))
    came = peer.say(data)
    ids = []
    for low, high in accepted(came):
        ids += [(low + i) & MASK for i in range(((high - low) & MASK) + 1)]
    assert ids == [MASK - 2, MASK - 1, MASK, 0, 1, 2]
    assert len(peer.broker.sent) == 6


@pytest.mark.parametrize("second", [0, 5, MASK])
def test_delivery_id_that_was_used_ends_the_session(second):
    peer = linked()
    peer.say(peer.transfer(BODY, delivery_id=5))
    came = peer.say(peer.transfer(BODY, delivery_id=second))
    assert condition(came) == "end amqp:invalid-field"
    assert f"delivery-id {second} was used before; 6 is next." in (
        of(came, End)[0].error.description
    )


def test_gaps_between_delivery_ids_are_taken():
    """Gaps take the general path every time, and must not wear the hot one out."""
    peer = linked()
    for delivery in range(0, 100, 10):
        came = peer.say(peer.transfer(BODY, delivery_id=delivery))
        assert accepted(came) == [(delivery, delivery)]
    assert len(peer.engine.shapes.known) == 1
    data = b"".join(peer.transfer(BODY, delivery_id=i) for i in (200, 201, 210, 211, 300))
    assert accepted(peer.say(data)) == [(200, 201), (210, 211), (300, 300)]


def test_first_transfer_needs_a_delivery_id():
    came = linked().tell(Transfer(handle=0, delivery_tag=b"t"), payload=BODY)
    assert condition(came) == "end amqp:invalid-field"


@pytest.mark.parametrize("size", [0, 1, 32])
def test_tags_up_to_32_bytes(size):
    peer = linked()
    assert accepted(peer.say(peer.transfer(BODY, delivery_tag=b"t" * size))) == [(0, 0)]


def test_tags_above_32_bytes_are_no_transfer():
    came = linked().tell(Transfer(handle=0, delivery_id=0, delivery_tag=b"t" * 33))
    assert condition(came) == "close amqp:invalid-field"
    assert "32" in came[-1].performative.error.description


# ---- deliveries of several frames [AMQP 2.6.14]


def test_frames_of_a_delivery_are_joined():
    peer = linked()
    assert peer.say(peer.transfer(BODY[:HALF], more=True)) == []
    assert peer.tell(Transfer(handle=0, more=True)) == []
    came = peer.tell(Transfer(handle=0), payload=BODY[HALF:])
    assert accepted(came) == [(0, 0)]
    assert peer.broker.bodies() == [BODY]
    assert peer.engine.sessions[0].links[0].credit == 999


def test_frames_may_repeat_their_delivery_id_and_no_other():
    peer = linked()
    peer.say(peer.transfer(BODY[:HALF], more=True))
    came = peer.say(peer.transfer(BODY[HALF:], delivery_id=0))
    assert accepted(came) == [(0, 0)]
    peer.say(peer.transfer(BODY[:HALF], delivery_id=1, more=True))
    came = peer.say(peer.transfer(BODY[HALF:], delivery_id=2))
    assert condition(came) == "end amqp:invalid-field"
    assert peer.broker.bodies() == [BODY]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"message_format": 1}, "message-format"),
        ({"delivery_tag": b"other"}, "delivery-tag"),
        ({"rcv_settle_mode": 1}, "rcv-settle-mode"),
    ],
)
@pytest.mark.parametrize("given", [0, None])
def test_a_further_frame_that_says_something_else_ends_the_link(fields, text, given):
    peer = linked()
    first = peer.transfer(BODY[:2], more=True, message_format=given)
    further = peer.transfer(BODY[2:], delivery_id=None, **{"message_format": None, **fields})
    came = peer.say(first + further)
    assert condition(came) == "detach amqp:invalid-field"
    assert text in of(came, Detach)[0].error.description
    assert peer.broker.sent == []
    assert peer.engine._unfinished == 0


@pytest.mark.parametrize(
    ("fields", "text"),
    [({"delivery_tag": None}, "delivery-tag"), ({"rcv_settle_mode": 1}, "rcv-settle-mode")],
)
@pytest.mark.parametrize("before", [0, 2])
def test_a_first_frame_that_cannot_begin_a_delivery_ends_the_link(fields, text, before):
    peer = linked()
    good = b"".join(peer.transfer(BODY) for _ in range(before))
    bad = peer.transfer(BODY, **fields)
    came = peer.say(good + bad + bad)
    assert condition(came) == "detach amqp:invalid-field"
    assert text in of(came, Detach)[0].error.description
    assert len(peer.broker.sent) == before
    # What was learned of the old link counts for nothing on a new one.
    peer.tell(Detach(handle=0, closed=True))
    peer.sender()
    assert condition(peer.say(peer.transfer(BODY, **fields))) == "detach amqp:invalid-field"


@pytest.mark.parametrize("fields", [{"message_format": 0}, {"rcv_settle_mode": 0}])
def test_a_further_frame_may_repeat_what_the_first_one_said(fields):
    peer = linked()
    first = peer.transfer(BODY[:2], more=True, delivery_tag=b"tag", **fields)
    further = peer.transfer(BODY[2:], delivery_id=None, delivery_tag=b"tag", **fields)
    assert accepted(peer.say(first + further)) == [(0, 0)]
    assert peer.broker.bodies() == [BODY]


def test_two_links_may_mix_their_frames():
    peer = linked()
    peer.sender(1, "p")
    one, two = data_message(b"1" * 99), data_message(b"2" * 99)
    peer.say(peer.transfer(one[:50], 0, more=True))
    peer.say(peer.transfer(two[:70], 1, more=True))
    assert accepted(peer.say(frame(Transfer(handle=0), 0, one[50:]))) == [(0, 0)]
    assert accepted(peer.say(peer.transfer(one, 0))) == [(2, 2)]
    assert accepted(peer.say(frame(Transfer(handle=1), 0, two[70:]))) == [(1, 1)]
    assert [(a, b) for a, b, _, _ in peer.broker.sent] == [("q", one), ("q", one), ("p", two)]


def test_aborted_delivery_leaves_nothing_and_counts():
    peer = linked(limits=SMALL)
    peer.say(peer.transfer(BODY[:HALF], more=True))
    assert peer.tell(Transfer(handle=0, aborted=True), payload=b"junk") == []
    assert peer.broker.sent == []
    link = peer.engine.sessions[0].links[0]
    assert (link.credit, link.delivery_count) == (9, 1)
    assert peer.engine._unfinished == 0
    assert accepted(peer.send(b"next")) == [(1, 1)]
    peer.say(peer.transfer(b"", aborted=True))
    assert link.delivery_count == 3
    assert len(peer.broker.sent) == 1


def test_credit_of_aborted_deliveries_comes_back():
    peer = linked(limits=SMALL)
    came = []
    for _ in range(20):
        came += peer.say(peer.transfer(b"", more=True))
        came += peer.tell(Transfer(handle=0, aborted=True))
    assert [f.delivery_count for f in of(came, Flow)] == [7, 14]


def test_detach_in_the_middle_forgets_the_delivery():
    peer = linked()
    peer.say(peer.transfer(b"x" * 1000, more=True))
    assert peer.engine._unfinished > 1000
    assert names(peer.tell(Detach(handle=0))) == ["detach"]
    assert peer.engine._unfinished == 0
    assert peer.broker.sent == []


def test_settled_may_come_with_any_frame():
    for first, last in [(True, None), (None, True), (True, True), (True, False)]:
        peer = linked()
        peer.say(peer.transfer(BODY[:HALF], more=True, settled=first))
        assert peer.tell(Transfer(handle=0, settled=last), payload=BODY[HALF:]) == []
        assert len(peer.broker.sent) == 1


# ---- settling


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_settled_and_unsettled_mix(mode):
    """Settled deliveries get no answer, whatever mode the link said."""
    peer = Peer.begun()
    peer.sender(snd_settle_mode=mode)
    data = b"".join(peer.transfer(BODY, settled=i % 3 == 0) for i in range(9))
    assert accepted(peer.say(data)) == [(1, 2), (4, 5), (7, 8)]
    assert len(peer.broker.sent) == 9


def test_durable_is_accepted_only_after_its_batch():
    peer = linked()
    mixed = [data_message(b"x", durable=i % 2 == 0) for i in range(6)]
    early = accepted(peer.say(b"".join(map(peer.transfer, mixed))))
    assert peer.say(peer.transfer(mixed[0], settled=True)) == []
    early = {i for low, high in early for i in range(low, high + 1)}
    assert early <= {1, 3, 5}
    late = {i for low, high in accepted(peer.sync()) for i in range(low, high + 1)}
    assert late == {0, 1, 2, 3, 4, 5} - early
    assert [flags & DURABLE for _, _, flags, _ in peer.broker.sent] == [16, 0] * 3 + [16]


def test_batches_are_confirmed_in_their_order():
    peer = linked()
    durable = data_message(b"x", durable=True)
    peer.say(peer.transfer(durable) + peer.transfer(durable))
    broker = peer.broker
    ticket = broker.ticket
    broker.ticket, broker.recorded = ticket + 1, False  # the first batch was taken
    peer.say(peer.transfer(durable))
    listener = broker.listeners.pop()
    assert accepted(peer.outside(lambda: listener.durable_up_to(ticket))) == [(0, 1)]
    assert broker.listeners == [listener]
    assert accepted(peer.sync()) == [(2, 2)]


def test_outcomes_of_a_closed_link_still_come_and_of_a_session_not():
    durable = data_message(b"x", durable=True)
    peer = linked()
    peer.say(peer.transfer(durable))
    peer.tell(Detach(handle=0))
    assert accepted(peer.sync()) == [(0, 0)]
    peer.sender(0)
    peer.say(peer.transfer(durable))
    peer.tell(End())
    assert peer.sync() == []


def test_answers_come_before_the_detach_that_follows_them():
    peer = linked()
    came = peer.say(peer.transfer(BODY) + frame(Detach(handle=0, closed=True)))
    assert names(came) == ["disposition", "detach"]
    peer = linked(limits=AmqpLimits(max_message_size=100))
    came = peer.say(peer.transfer(BODY) + peer.transfer(data_message(b"x" * 200)))
    assert names(came) == ["disposition", "detach"]


def test_peer_that_settles_by_itself_is_no_fault():
    peer = linked()
    peer.say(peer.transfer(data_message(b"x", durable=True)))
    assert peer.tell(Disposition(role=SENDER, first=0, settled=True)) == []
    assert accepted(peer.sync()) == [(0, 0)]


def test_what_is_not_taken_is_rejected_and_the_rest_accepted():
    peer = linked()
    peer.send(b"shape")
    peer.broker.producers[0].capacity = 3
    came = peer.send(*[b"x"] * 5)
    assert accepted(came) == [(1, 3)]
    assert rejected(came) == [(4, 5, "amqp:resource-limit-exceeded")]
    text = of(came, Disposition)[-1].state.error.description
    assert text == peer.broker.refusal.text
    assert len(peer.broker.sent) == 4


def test_what_is_not_taken_of_settled_deliveries_is_not_told():
    peer = linked()
    peer.broker.producers[0].capacity = 1
    assert peer.send(b"1", b"2", settled=True) == []
    assert len(peer.broker.sent) == 1


def test_full_disk_gives_messages_back():
    peer = linked()
    peer.broker.refusal = Refusal(code=Code.DISK_FULL, text="Disk.", transient=True)
    peer.broker.producers[0].capacity = 0
    came = peer.send(b"1")
    assert [one.state for one in of(came, Disposition)] == [Released()]
    peer.broker.refusal = Refusal(code=Code.DISK_FULL, text="Disk.", transient=False)
    assert rejected(peer.send(b"2")) == [(1, 1, "amqp:resource-limit-exceeded")]


def test_transaction_that_does_not_exist():
    peer = linked()
    came = peer.say(peer.transfer(BODY, state=TransactionalState(txn_id=b"\x01")))
    assert rejected(came) == [(0, 0, "amqp:transaction:unknown-id")]
    assert "'01'" in of(came, Disposition)[0].state.error.description
    assert peer.broker.sent == []
    # Nothing answers a settled one, so that its link goes.
    came = peer.say(peer.transfer(BODY, state=TransactionalState(txn_id=b"1"), settled=True))
    assert condition(came) == "detach amqp:transaction:unknown-id"
    assert peer.broker.sent == []


def test_message_formats_that_are_not_known():
    peer = linked()
    came = peer.say(peer.transfer(BODY, message_format=1))
    assert rejected(came) == [(0, 0, "amqp:not-implemented")]
    assert peer.broker.sent == []


# ---- what is stored


def test_header_says_durability_priority_and_expiry():
    peer = linked()
    header = b"\x00\x53\x70\xc0\x09\x03\x41\x50\x63\x70\x00\x00\x03\xe8"
    peer.say(peer.transfer(header + BODY))
    peer.say(peer.transfer(header + BODY) * 1)
    for _, body, flags, expires in peer.broker.sent:
        assert body == header + BODY
        assert flags == 9 | DURABLE | EXPIRES
        assert expires == peer.broker.clock_ms + 1000


@pytest.mark.parametrize("count", [1, 3])
def test_absolute_expiry_wins(count):
    header = b"\x00\x53\x70\xc0\x09\x03\x41\x50\x04\x70\x00\x00\x03\xe8"
    at = (2_000_000).to_bytes(8, "big")
    properties = b"\x00\x53\x73\xc0\x12\x09" + b"\x40" * 8 + b"\x83" + at
    peer = linked()
    peer.say(b"".join(peer.transfer(header + properties + BODY) for _ in range(count)))
    assert [expires for *_, expires in peer.broker.sent] == [2_000_000] * count


@pytest.mark.parametrize("count", [1, 3])
def test_delivery_annotations_go_no_further(count):
    annotations = b"\x00\x53\x71\xc1\x05\x02\xa3\x01x\x41"
    peer = linked()
    peer.say(b"".join(peer.transfer(annotations + BODY) for _ in range(count)))
    assert peer.broker.bodies() == [BODY] * count


# ---- sizes


def test_message_of_the_largest_size_and_one_byte_more():
    limits = AmqpLimits(max_message_size=1000)
    for more in (0, 1):
        peer = linked(limits=limits)
        body = data_message(b"x" * (1000 - 8 + more))
        came = peer.say(peer.transfer(body))
        if more:
            assert condition(came) == "detach amqp:link:message-size-exceeded"
            assert "1000 bytes" in of(came, Detach)[0].error.description
        else:
            assert accepted(came) == [(0, 0)]
        peer = linked(limits=limits)
        came = peer.say(peer.transfer(body[:600], more=True))
        came += peer.tell(Transfer(handle=0), payload=body[600:])
        assert bool(accepted(came)) is not bool(more)
        assert peer.engine._unfinished == 0


def test_the_others_have_a_turn_between_runs_of_different_links():
    peer = Peer.begun()
    for handle in range(2):
        peer.sender(handle, f"q{handle}")
        peer.say(peer.transfer(BODY, handle))
    data = b"".join(peer.transfer(BODY, handle) for handle in (0, 0, 1, 1, 0))
    peer.engine.spent = lambda: True
    peer.engine.receive_data(data, peer.now)
    taken = []
    while peer.engine.behind:
        taken.append(len(peer.broker.sent))
        peer.engine.go_on(peer.now)
    assert len(taken) >= 2
    assert all(1 <= after - before <= 2 for before, after in pairwise([2, *taken, 7]))
    assert peer.broker.bodies() == [BODY] * 7
