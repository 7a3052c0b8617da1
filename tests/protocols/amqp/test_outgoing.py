"""Links on which the peer reads: credit, drain, windows, long deliveries, outcomes, names."""

from __future__ import annotations

import pytest

from gateway.model.address import RoutingType
from gateway.model.amqp_types import Described, Symbol, UInt, ULong
from gateway.model.errors import Code, Refusal
from gateway.model.message import DURABLE, EXPIRES, MAYBE_SEEN, STOMP
from gateway.model.sections import header_facts, scan
from gateway.model.serial import MASK
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    Attach,
    Close,
    Declared,
    Detach,
    Disposition,
    End,
    Flow,
    Modified,
    Received,
    Rejected,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from tests.protocols.amqp.peer import (
    FRESH,
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

BODY = data_message(b"x")


def bodies(frames: list[Frame]) -> list[bytes]:
    """Return the messages that came whole, in the order of their last frames."""
    found, parts = [], {}
    for one in frames:
        if isinstance(one.performative, Transfer):
            handle = one.performative.handle
            parts[handle] = parts.get(handle, b"") + one.payload
            if not one.performative.more:
                found.append(parts.pop(handle))
    return found


def ids(frames: list[Frame]) -> list[int]:
    return [t.delivery_id for t in of(frames, Transfer) if t.delivery_id is not None]


def reading(credit: int | None = 10, **fields) -> Peer:
    """Return a peer with a receiving link on handle 1 that has credit."""
    own = {key: fields.pop(key) for key in ("window", "limits", "max_frame_size") if key in fields}
    peer = Peer.begun(**own)
    assert names(peer.receiver(1, credit=credit, **fields))[0] == "attach"
    return peer


def offered(peer: Peer, *messages: bytes, **fields) -> list[Frame]:
    peer.broker.offer("q", *messages, **fields)
    return peer.hear()


def settle(peer: Peer, first: int, last: int | None = None, **fields) -> list[Frame]:
    fields.setdefault("settled", True)
    fields.setdefault("state", ACCEPTED)
    return peer.tell(Disposition(role=RECEIVER, first=first, last=last, **fields))


# ---- the answer to attach


def test_attach_is_answered_with_what_holds():
    peer = Peer.begun()
    source = Source(address="q", filter={"unknown": "x"}, capabilities=("queue",))
    came = peer.receiver(4, name="mine", source=source, rcv_settle_mode=1, snd_settle_mode=0)
    ours = of(came, Attach)[0]
    assert names(came) == ["attach"]
    assert (ours.name, ours.handle, ours.role) == ("mine", 4, SENDER)
    assert (ours.snd_settle_mode, ours.rcv_settle_mode) == (0, 0)
    assert ours.source == Source(address="q", capabilities=("queue",))  # no filter applies
    assert ours.initial_delivery_count == 0
    assert peer.broker.of("subscribe") == [("q", RoutingType.ANYCAST, {})]


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"source": None}, "amqp:not-found", "Unknown subscription link: receiver-0-1"),
        ({"source": Source()}, "amqp:invalid-field", "has no address"),
        ({"source": Source(address="a", dynamic=True)}, "amqp:invalid-field", "'a'"),
        ({"source": Source(address="a\x7f")}, "amqp:invalid-field", "control character"),
        (
            {"source": Source(dynamic=True, dynamic_node_properties={"lifetime-policy": 1})},
            "amqp:invalid-field",
            "lifetime-policy",
        ),
        ({"properties": {"priority": "high"}}, "amqp:invalid-field", "'high'"),
        ({"properties": {"priority": True}}, "amqp:invalid-field", "True"),
    ],
)
def test_sources_that_are_refused(fields, error, text):
    peer = Peer.begun()
    came = peer.receiver(1, **fields)
    assert names(came) == ["attach", "detach"]
    assert of(came, Attach)[0].source is None
    assert of(came, Detach)[0].closed
    assert condition(came) == f"detach {error}"
    assert text in of(came, Detach)[0].error.description
    assert peer.engine.links == 0


def test_refusal_of_the_broker_takes_the_temporary_queue_back():
    peer = Peer.begun()
    peer.broker.refuse_subscribe = Refusal(code=Code.MAX_CONSUMERS, text="One is the limit.")
    came = peer.receiver(1, source=Source(dynamic=True))
    assert condition(came) == "detach amqp:resource-limit-exceeded"
    assert peer.broker.temporaries == set()


def test_dynamic_source_is_a_temporary_queue_that_goes_with_the_link():
    peer = Peer.begun()
    came = peer.receiver(1, source=Source(dynamic=True))
    name = of(came, Attach)[0].source.address
    assert peer.broker.of("create temporary") == [(name, RoutingType.ANYCAST)]
    peer.tell(Detach(handle=1, closed=False))
    assert peer.broker.temporaries == set()


@pytest.mark.parametrize("value", [7, UInt(7), ULong(7), -7])
def test_priority_is_any_integer(value):
    peer = Peer.begun()
    peer.receiver(1, properties={"priority": value})
    assert peer.broker.of("subscribe")[0][2] == {"priority": int(value)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (Source(address="t", durable=2), {"durable": "me.sub"}),
        (Source(address="t", durable=1), {"durable": "me.sub"}),
        (
            Source(address="t", durable=2, capabilities=("shared",)),
            {"durable": "me.sub", "shared": True},
        ),
        (
            Source(address="t", durable=2, capabilities=("shared", "global")),
            {"durable": "sub:global", "shared": True},
        ),
        (
            Source(address="t", capabilities=("shared",)),
            {"durable": "me.sub:shared-volatile", "shared": True, "temporary": True},
        ),
        (
            Source(address="t", capabilities=("shared", "global")),
            {"durable": "sub:shared-volatile:global", "shared": True, "temporary": True},
        ),
        (Source(address="t", durable=2, capabilities=("global",)), {"durable": "me.sub|1"}),
        (Source(address="t", distribution_mode="copy"), {"browse": True}),
        (Source(address="t"), {}),
    ],
)
def test_subscriptions_have_the_names_that_clients_know(source, expected):
    peer = Peer.begun(container="me")
    name = expected.get("durable", "")
    peer.receiver(
        1, name="sub|1" if "shared" in source.capabilities or "|" in name else "sub", source=source
    )
    assert peer.broker.of("subscribe") == [("t", None, expected)]


@pytest.mark.parametrize("closed", [False, True])
def test_durable_subscription_outlives_a_detach_and_no_close(closed):
    peer = Peer.begun(container="me")
    peer.receiver(1, name="sub", source=Source(address="t", durable=2))
    assert names(peer.tell(Detach(handle=1, closed=closed))) == ["detach"]
    assert peer.broker.of("delete subscription") == ([("me.sub",)] if closed else [])


@pytest.mark.parametrize(
    ("code", "told"), [(Code.IN_USE, False), (Code.NOT_FOUND, False), (Code.NOT_AUTHORIZED, True)]
)
def test_subscription_that_cannot_be_deleted(code, told):
    """Others still read from a shared one: that is no fault of the one who leaves."""
    peer = Peer.begun()
    peer.receiver(1, source=Source(address="t", durable=2))
    peer.broker.refuse_delete = Refusal(code=code, text="No.")
    (detach,) = of(peer.tell(Detach(handle=1, closed=True)), Detach)
    assert detach.closed
    assert (detach.error is not None) is told


def test_end_and_close_keep_durable_subscriptions():
    peer = Peer.begun()
    peer.receiver(1, source=Source(address="t", durable=2))
    peer.tell(End())
    assert peer.broker.of("delete subscription") == []
    assert peer.broker.subscriptions == []


# ---- credit [AMQP 2.6.7]


def test_nothing_without_credit_and_no_more_than_credit():
    peer = reading(credit=None)
    assert offered(peer, *[BODY] * 5) == []
    assert len(bodies(peer.credit(2))) == 2
    assert peer.hear() == []
    assert len(bodies(peer.credit(2))) == 2
    assert len(bodies(peer.credit(100))) == 1


def test_credit_counts_from_what_the_peer_has_seen():
    peer = reading(credit=3)
    assert len(bodies(offered(peer, *[BODY] * 10))) == 3
    # A flow that crossed our three deliveries: 3 + 5 minus 3 that are under way.
    assert len(bodies(peer.credit(5, delivery_count=0))) == 2
    assert peer.credit(0, delivery_count=0) == []


def test_credit_may_be_taken_back():
    peer = reading(credit=10)
    peer.credit(0)
    assert offered(peer, BODY) == []
    assert peer.broker.queues["q"]


def test_credit_of_a_flow_without_a_count_begins_at_0():
    peer = reading(credit=None)
    offered(peer, *[BODY] * 5)
    assert len(bodies(peer.credit(3, delivery_count=None))) == 3


def test_delivery_count_wraps():
    peer = reading(credit=None)
    link = peer.engine.sessions[0].links[1]
    link.delivery_count = MASK - 1
    watched = peer.watch.sessions[0].links[1]
    watched.count = watched.limit = watched.most = MASK - 1
    offered(peer, *[BODY] * 9)
    assert len(bodies(peer.credit(5))) == 5
    assert link.delivery_count == 3
    assert len(bodies(peer.credit(2))) == 2


def test_credit_without_bound_is_served_in_bounded_pieces():
    peer = reading(credit=MASK)
    big = data_message(b"x" * 100_000)
    peer.broker.offer("q", *[big] * 60)
    peer.broker.turn()
    first = len(peer.engine.data_to_send())
    assert 1 << 20 <= first < 2 << 20


def test_slow_transport_stops_deliveries():
    peer = reading(credit=100)
    peer.engine.write_room = False
    assert offered(peer, *[BODY] * 5) == []
    assert len(peer.broker.queues["q"]) == 5
    peer.engine.write_room = True
    assert (
        len(
            bodies(
                peer.outside(
                    lambda: (peer.engine.write_resumed(), peer.broker.turn(), peer.engine.wake())
                )
            )
        )
        == 5
    )


# ---- drain


def test_drain_of_an_empty_queue_gives_the_credit_back():
    peer = reading(credit=None)
    (flow,) = of(peer.credit(10, drain=True), Flow)
    assert (flow.handle, flow.delivery_count, flow.link_credit, flow.drain) == (1, 10, 0, True)
    peer.watch.sessions[0].links[1].count = 10
    assert offered(peer, BODY) == []


def test_drain_sends_what_is_there_first():
    peer = reading(credit=None)
    offered(peer, *[BODY] * 3)
    came = peer.credit(10, drain=True)
    assert names(came) == ["transfer"] * 3 + ["flow"]
    assert of(came, Flow)[0].delivery_count == 10
    assert of(came, Flow)[0].link_credit == 0


def test_drain_of_as_much_as_there_is_credit():
    peer = reading(credit=None)
    offered(peer, *[BODY] * 20)
    came = peer.credit(5, drain=True)
    assert names(came) == ["transfer"] * 5 + ["flow"]
    assert (of(came, Flow)[0].delivery_count, of(came, Flow)[0].link_credit) == (5, 0)
    assert peer.hear() == []


def test_drain_without_credit_and_echo_are_answered():
    peer = reading(credit=None)
    (flow,) = of(peer.credit(0, drain=True), Flow)
    assert (flow.link_credit, flow.drain) == (0, True)
    (flow,) = of(peer.credit(5, echo=True), Flow)
    assert (flow.link_credit, flow.delivery_count, flow.drain) == (5, 0, False)
    assert names(peer.credit(0, drain=True, echo=True)) == ["flow"]


def test_drain_waits_for_the_window():
    peer = reading(credit=None, window=4)
    offered(peer, *[BODY] * 6)
    came = peer.credit(10, drain=True, incoming_window=4)
    assert names(came) == ["transfer"] * 4
    came = peer.tell(
        Flow(next_incoming_id=5, incoming_window=4, next_outgoing_id=0, outgoing_window=1)
    )
    assert names(came) == ["transfer"] * 2 + ["flow"]
    assert of(came, Flow)[0].delivery_count == 10


def test_drain_waits_for_the_transport():
    peer = reading(credit=None)
    peer.engine.write_room = False
    offered(peer, BODY)
    assert peer.credit(10, drain=True) == []
    peer.engine.write_room = True
    assert names(peer.outside(peer.engine.write_resumed)) == ["transfer", "flow"]


def test_drain_is_over_once_answered():
    peer = reading(credit=None)
    peer.credit(10, drain=True)
    peer.watch.sessions[0].links[1].count = 10
    peer.credit(3)
    assert names(offered(peer, BODY)) == ["transfer"]


# ---- windows [AMQP 2.5.6]


def test_window_of_the_peer_is_kept():
    peer = reading(credit=None, window=3)
    offered(peer, *[BODY] * 10)
    assert len(bodies(peer.credit(10, incoming_window=3))) == 3
    assert len(peer.broker.queues["q"]) == 7
    flow = Flow(next_incoming_id=4, incoming_window=2, next_outgoing_id=0, outgoing_window=1)
    assert len(bodies(peer.tell(flow))) == 2
    # Seen only three of the five: two of this window are used.
    flow = Flow(next_incoming_id=4, incoming_window=5, next_outgoing_id=0, outgoing_window=1)
    assert len(bodies(peer.tell(flow))) == 3


def test_window_counts_from_1_for_a_peer_that_has_not_seen_our_begin():
    peer = reading(credit=None, window=2)
    offered(peer, *[BODY] * 5)
    peer.credit(5, incoming_window=2, next_incoming_id=None)
    flow = Flow(incoming_window=4, next_outgoing_id=0, outgoing_window=1)
    assert len(bodies(peer.tell(flow))) == 2


def test_window_shut_and_opened_again():
    peer = reading(credit=None, window=0)
    offered(peer, BODY)
    assert peer.credit(10, incoming_window=0) == []
    assert len(bodies(peer.credit(10, incoming_window=1))) == 1


def test_transfer_id_wraps():
    peer = reading(credit=None)
    session, watched = peer.engine.sessions[0], peer.watch.sessions[0]
    session.next_outgoing_id = watched.next_frame = MASK - 1
    watched.window_end = watched.window_most = 0
    assert names(peer.credit(10, incoming_window=3)) == []
    assert len(bodies(offered(peer, *[BODY] * 9))) == 3
    assert session.next_outgoing_id == 1
    flow = Flow(next_incoming_id=1, incoming_window=2, next_outgoing_id=0, outgoing_window=1)
    assert len(bodies(peer.tell(flow))) == 2


# ---- long deliveries


@pytest.mark.parametrize("frame_max", [512, 1024, 65536])
def test_long_deliveries_are_split_and_whole_again(frame_max):
    peer = reading(credit=10, max_frame_size=frame_max)
    messages = [data_message(bytes([i]) * size) for i, size in enumerate((9, 70_000, 0, 2_000))]
    came = offered(peer, *messages)
    assert bodies(came) == [FRESH + message for message in messages]
    assert ids(came) == [1, 2, 3, 4]
    assert max(one.size for one in came) <= frame_max
    assert settle(peer, 1, 4) == []
    assert acknowledged(peer) == [1, 2, 3, 4]


@pytest.mark.parametrize("size", range(440, 520))
def test_sizes_around_the_peers_frame(size):
    peer = reading(credit=1, max_frame_size=512)
    message = data_message(b"x" * size)
    assert bodies(offered(peer, message)) == [FRESH + message]


def test_rest_of_a_long_delivery_waits_for_the_window():
    peer = reading(credit=None, window=4, max_frame_size=512)
    message = data_message(b"x" * 5000)
    offered(peer, message, BODY)
    came = peer.credit(10, incoming_window=4)
    assert names(came) == ["transfer"] * 4
    assert bodies(came) == []
    more = peer.tell(
        Flow(next_incoming_id=5, incoming_window=100, next_outgoing_id=0, outgoing_window=1)
    )
    assert bodies(came + more) == [FRESH + message, FRESH + BODY]
    assert ids(came + more) == [1, 2]


def test_no_id_is_used_for_what_the_window_keeps_back():
    """A link that leaves while its deliveries wait must leave no gap in the session's ids."""
    peer = reading(credit=None, window=3, max_frame_size=512)
    offered(peer, *[data_message(b"x" * 2000)] * 4)
    assert ids(peer.credit(10, incoming_window=3)) == [1]
    assert len(peer.broker.queues["q"]) == 3
    assert names(peer.tell(Detach(handle=1, closed=True))) == ["detach"]
    assert len(peer.broker.queues["q"]) == 4
    peer.watch.sessions[0].inside = None  # a detached link's delivery ends with it
    peer.receiver(2, "p")
    peer.broker.offer("p", BODY, BODY)
    flow = {"next_incoming_id": 4, "incoming_window": 100}
    came = peer.credit(5, 2, **flow)
    assert ids(came) == [2, 3]
    assert bodies(came) == [FRESH + BODY] * 2


def test_two_links_of_a_session_share_its_window():
    peer = reading(credit=None, window=5)
    peer.receiver(2)
    offered(peer, *[BODY] * 12)
    peer.credit(10, 1, incoming_window=0)
    came = peer.credit(10, 2, incoming_window=5)
    assert len(bodies(came)) == 5
    assert ids(came) == [1, 2, 3, 4, 5]
    assert len(peer.broker.queues["q"]) == 7


def test_window_taken_by_another_link_between_asking_and_giving():
    """A queue asks all its consumers for room first and hands out afterwards."""
    peer = reading(credit=None, window=4)
    peer.receiver(2)
    peer.credit(10, 1, incoming_window=4)
    peer.credit(10, 2, incoming_window=4)
    one, two = peer.broker.subscriptions
    made = peer.broker.offer("q", *[BODY] * 6)
    assert one.consumer.room() == two.consumer.room() == 4
    peer.broker.queues["q"].clear()

    def hand_out() -> None:
        for hold, part in ((one, made[:4]), (two, made[4:])):
            hold.delivering.update((m.seq, m) for m in part)
            hold.consumer.deliver(part, 4)
        peer.engine.wake()  # room() was asked outside

    came = peer.outside(hand_out)
    assert ids(came) == [1, 2, 3, 4]
    assert [m.seq for m in peer.broker.queues["q"]] == [5, 6]


def test_message_above_the_links_own_maximum_ends_it():
    peer = reading(credit=10, max_message_size=100)
    came = offered(peer, BODY, data_message(b"x" * 200))
    assert condition(came) == "detach amqp:link:message-size-exceeded"
    text = of(came, Detach)[0].error.description
    assert "205 bytes" in text
    assert "is 100" in text
    assert len(peer.broker.queues["q"]) == 2
    assert peer.broker.subscriptions == []


@pytest.mark.parametrize("most", [None, 0, 1 << 63])
def test_no_maximum(most):
    assert len(bodies(offered(reading(max_message_size=most), data_message(b"x" * 9999)))) == 1


# ---- settled by the sender


def test_settled_link_acknowledges_as_it_sends():
    peer = reading(credit=5, snd_settle_mode=1)
    came = offered(peer, *[BODY] * 3)
    assert [t.settled for t in of(came, Transfer)] == [True] * 3
    assert [seq for _, seqs in peer.broker.of("acknowledge") for seq in seqs] == [1, 2, 3]
    assert settle(peer, 1, 3) == []
    assert len(peer.engine.sessions[0].unsettled) == 0


def test_delivery_tag_is_the_delivery_id():
    came = offered(reading(), BODY, BODY)
    assert [t.delivery_tag for t in of(came, Transfer)] == [b"\0\0\0\1", b"\0\0\0\2"]
    assert [t.settled for t in of(came, Transfer)] == [False, False]
    assert [t.message_format for t in of(came, Transfer)] == [0, 0]


def test_delivery_id_wraps():
    peer = reading(credit=20)
    peer.engine.sessions[0].next_outgoing_delivery = MASK - 2
    assert ids(offered(peer, *[BODY] * 6)) == [MASK - 2, MASK - 1, MASK, 0, 1, 2]
    settle(peer, MASK - 1, 1)
    assert [s for _, seqs in peer.broker.of("acknowledge") for s in seqs] == [2, 3, 4, 5]
    settle(peer, 2)
    settle(peer, MASK - 2)
    assert [s for _, seqs in peer.broker.of("acknowledge") for s in seqs] == [2, 3, 4, 5, 6, 1]


# ---- what a delivery shows


def test_first_delivery_says_so_and_is_byte_for_byte_otherwise():
    message = b"\x00\x53\x70\xc0\x05\x03\x41\x50\x63\x40" + BODY
    fresh = b"\x00\x53\x70\xc0\x06\x04\x41\x50\x63\x40\x41" + BODY
    assert bodies(offered(reading(), message)) == [fresh]


@pytest.mark.parametrize(
    ("flags", "count", "expected"),
    [(0, 2, (2, False)), (MAYBE_SEEN, 0, (1, False)), (MAYBE_SEEN, 2, (2, False))],
)
def test_past_is_in_the_header(flags, count, expected):
    durable = data_message(b"x", durable=True)
    (body,) = bodies(offered(reading(), durable, flags=4 | flags, count=count))
    facts = header_facts(body)
    assert (facts.delivery_count, facts.first_acquirer) == expected
    assert facts.durable
    assert scan(body).data() == b"x"


def test_broken_header_goes_out_as_it_came():
    broken = b"\x00\x53\x70\xc0\xff\x05"
    assert bodies(offered(reading(), broken, count=1)) == [broken]


def test_stomp_message_is_converted():
    stored = b"destination:/queue/q\ncontent-length:5\npriority:4\npersistent:true\nkey:v\n\nhello"
    (body,) = bodies(offered(reading(), stored, flags=4 | STOMP | DURABLE))
    found = scan(body)
    assert found.data() == b"hello"
    assert found.application_properties == {"key": "v"}
    assert header_facts(body).durable
    assert header_facts(body).ttl_ms is None


@pytest.mark.parametrize(("left", "ttl"), [(5_000, 5_000), (1, 1), (2**40, 2**32 - 1)])
def test_stomp_message_that_expires_has_what_is_left_as_ttl(left, ttl):
    peer = reading()
    expires = peer.broker.clock_ms + left
    head = b"destination:/queue/q\ncontent-length:1\npriority:4\npersistent:true\nexpires:%d\n\n"
    messages = peer.broker.offer("q", head % expires + b"x", flags=4 | STOMP | EXPIRES)
    messages[0].expires = expires
    (body,) = bodies(peer.hear())
    assert header_facts(body).ttl_ms == ttl


def test_redelivered_stomp_message_has_ttl_and_count():
    peer = reading()
    expires = peer.broker.clock_ms + 1000
    head = b"destination:/queue/q\ncontent-length:1\npriority:4\npersistent:true\nexpires:%d\n\n"
    peer.broker.offer("q", head % expires + b"x", flags=4 | STOMP | EXPIRES, count=1)
    peer.broker.clock_ms += 400
    (body,) = bodies(peer.hear())
    assert (header_facts(body).ttl_ms, header_facts(body).delivery_count) == (600, 1)


# ---- outcomes [AMQP 3.4]


@pytest.mark.parametrize(
    ("state", "call", "stays"),
    [
        (ACCEPTED, "acknowledge", False),
        (RELEASED, "release", True),
        (Rejected(), "reject", False),
        (Modified(), "release", True),
        (Modified(delivery_failed=True), "release failed", True),
        (Modified(undeliverable_here=True), "release", True),
        (None, "release", True),
        (Received(section_number=0, section_offset=0), "release", True),
        (Declared(txn_id=b"1"), "release", True),
        (Described(Symbol("no:such:list"), []), "release", True),
    ],
)
def test_outcome_of_a_settled_disposition(state, call, stays):
    peer = reading(credit=1)
    offered(peer, BODY)
    assert settle(peer, 1, state=state) == []
    assert peer.broker.of(call) == [("q", [1])]
    assert bool(peer.broker.queues["q"]) is stays
    assert len(peer.engine.sessions[0].unsettled) == 0


def test_annotations_of_modified_are_given_to_the_queue_before_the_message_goes_back():
    peer = reading(credit=1)
    offered(peer, BODY)
    add = {Symbol("x-why"): "busy"}
    assert settle(peer, 1, state=Modified(message_annotations=add)) == []
    kinds = [call[0] for call in peer.broker.calls]
    assert kinds.index("annotate") < kinds.index("release")
    most = peer.engine.limits.max_message_size
    assert peer.broker.of("annotate") == [([1], add, most)]


def test_undeliverable_here_goes_to_another():
    peer = reading(credit=5)
    offered(peer, BODY)
    assert settle(peer, 1, state=Modified(undeliverable_here=True)) == []
    assert len(bodies(peer.receiver(2, credit=5))) == 1


def test_failed_deliveries_come_again_with_their_count():
    peer = reading(credit=5)
    (first,) = bodies(offered(peer, BODY))
    for count in (1, 2):
        came = settle(peer, count, state=Modified(delivery_failed=True))
        (again,) = bodies(came)
        assert header_facts(again).delivery_count == count
        assert again[header_facts(again).end :] == BODY == first.removeprefix(FRESH)


@pytest.mark.parametrize("state", [None, Received(section_number=1, section_offset=2)])
def test_progress_settles_nothing(state):
    peer = reading(credit=1)
    offered(peer, BODY)
    assert settle(peer, 1, state=state, settled=False) == []
    assert len(peer.engine.sessions[0].unsettled) == 1
    assert settle(peer, 1) == []
    assert peer.broker.of("acknowledge") == [("q", [1])]


@pytest.mark.parametrize("state", [None, Received(section_number=1, section_offset=2)])
@pytest.mark.parametrize(
    ("default", "call"),
    [
        (ACCEPTED, "acknowledge"),
        (Rejected(), "reject"),
        (Modified(delivery_failed=True), "release failed"),
        (None, "release"),
    ],
)
def test_default_outcome_counts_where_none_was_told(default, call, state):
    peer = reading(credit=1, source=Source(address="q", default_outcome=default))
    offered(peer, BODY)
    settle(peer, 1, state=state)
    assert peer.broker.of(call) == [("q", [1])]


@pytest.mark.parametrize("settled", [False, True])
def test_outcome_in_a_transaction_that_does_not_exist(settled):
    peer = reading(credit=1)
    offered(peer, BODY)
    came = settle(
        peer, 1, state=TransactionalState(txn_id=b"\xab", outcome=ACCEPTED), settled=settled
    )
    assert condition(came) == "end amqp:transaction:unknown-id"
    assert "'ab'" in of(came, End)[0].error.description
    assert peer.broker.of("release failed") == [("q", [1])]


# ---- receiver settles second


@pytest.mark.parametrize("state", [ACCEPTED, RELEASED, Rejected(), Modified(delivery_failed=True)])
def test_unsettled_outcome_is_settled_back(state):
    peer = reading(credit=3, rcv_settle_mode=1)
    offered(peer, *[BODY] * 3)
    (back,) = of(settle(peer, 1, 3, state=state, settled=False), Disposition)
    assert (back.role, back.first, back.last, back.settled) == (SENDER, 1, 3, True)
    assert back.state == state


def test_unsettled_outcome_is_settled_back_when_it_cannot_be_undone():
    peer = reading(credit=3, rcv_settle_mode=1)
    offered(peer, data_message(b"x", durable=True), flags=4 | DURABLE)
    assert settle(peer, 1, settled=False) == []
    (back,) = of(peer.sync(), Disposition)
    assert (back.first, back.settled, back.state) == (1, True, ACCEPTED)
    assert settle(peer, 1) == []  # the second half of the peer's own settlement


def test_only_what_is_known_is_settled_back():
    peer = reading(credit=20, rcv_settle_mode=1)
    offered(peer, *[BODY] * 10)
    settle(peer, 3, 4)
    settle(peer, 8)
    came = settle(peer, 0, 2**31 - 2, settled=False)
    assert [(d.first, d.last) for d in of(came, Disposition)] == [(1, 2), (5, 7), (9, 10)]


def test_what_is_not_known_here_is_settled_back_as_what_was_done():
    peer = reading(credit=1)
    offered(peer, BODY)
    unknown = Described(Symbol("no:such:list"), [])
    (back,) = of(settle(peer, 1, state=unknown, settled=False), Disposition)
    assert back.state == RELEASED


# ---- ranges [AMQP 2.7.6]


def acknowledged(peer: Peer) -> list[int]:
    return [seq for _, seqs in peer.broker.of("acknowledge") for seq in seqs]


def test_ranges_cover_links_and_skip_holes():
    peer = reading(credit=3)
    peer.receiver(2, "p", credit=3)
    offered(peer, *[BODY] * 3)
    peer.broker.offer("p", *[BODY] * 3)
    assert ids(peer.hear()) == [4, 5, 6]
    settle(peer, 2)
    settle(peer, 5)
    settle(peer, 1, 6)
    assert acknowledged(peer) == [2, 5, 1, 3, 4, 6]
    settle(peer, 1, 6)
    assert len(acknowledged(peer)) == 6


@pytest.mark.parametrize(("first", "last"), [(7, 9), (0, 0), (2**31, 2**31 + 5), (11, MASK // 2)])
def test_ranges_of_nothing(first, last):
    peer = reading(credit=5)
    offered(peer, *[BODY] * 5)
    assert settle(peer, first, last) == []
    assert acknowledged(peer) == []


def test_last_before_first_ends_the_session():
    peer = reading(credit=5)
    offered(peer, *[BODY] * 5)
    came = settle(peer, 3, 2)
    assert condition(came) == "end amqp:invalid-field"
    assert "3 to 2" in of(came, End)[0].error.description
    assert peer.broker.of("release failed") == [("q", [1, 2, 3, 4, 5])]


def test_disposition_of_the_other_role_means_nothing_here():
    peer = reading(credit=5)
    offered(peer, BODY)
    assert peer.tell(Disposition(role=SENDER, first=1, settled=True, state=ACCEPTED)) == []
    assert acknowledged(peer) == []


# ---- the link's end


@pytest.mark.parametrize("closed", [False, True])
def test_detach_gives_messages_back_unharmed(closed):
    peer = reading(credit=5)
    offered(peer, *[BODY] * 4)
    settle(peer, 2)
    (detach,) = of(peer.tell(Detach(handle=1, closed=closed)), Detach)
    assert (detach.handle, detach.closed, detach.error) == (1, closed, None)
    assert peer.broker.of("release") == [("q", [1, 3, 4])]
    assert settle(peer, 1, 4) == []
    came = peer.receiver(1, credit=9, name="other")
    assert ids(came) == [5, 6, 7]
    assert all(header_facts(body).delivery_count == 0 for body in bodies(came))


def test_deleted_queue_detaches_with_the_reason():
    peer = reading(credit=5)
    offered(peer, BODY)
    came = peer.outside(lambda: peer.broker.drop_queue("q"))
    assert condition(came) == "detach amqp:resource-deleted"
    assert of(came, Detach)[0].error.description == "Queue 'q' was deleted."
    assert peer.tell(Detach(handle=1, closed=True)) == []
    assert not peer.gone


def test_handle_is_reused_after_both_detached():
    peer = reading(credit=5)
    for number in range(5):
        peer.broker.offer("q", BODY)
        assert ids(peer.hear()) == [number + 1]
        settle(peer, number + 1)
        assert names(peer.tell(Detach(handle=1))) == ["detach"]
        assert names(peer.receiver(1, name=f"n{number}", credit=5)) == ["attach"]


def test_name_attached_anew_is_taken_from_the_old_link():
    peer = reading(credit=5, name="mine")
    peer.begin(1)
    offered(peer, BODY)
    came = peer.receiver(3, name="mine", channel=1, credit=1)
    assert names(came) == ["detach", "attach", "transfer"]
    assert of(came, Detach)[0].error.condition == "amqp:link:stolen"
    assert "'mine'" in of(came, Detach)[0].error.description
    # The other direction is another link [AMQP 2.6.1].
    assert names(peer.sender(4, name="mine", channel=1)) == ["attach", "flow"]


def test_handle_in_use_and_handle_above_the_maximum():
    peer = reading()
    came = peer.receiver(1, name="other")
    assert condition(came) == "end amqp:session:handle-in-use"
    assert "Handle 1" in of(came, End)[0].error.description
    for handle in (256, MASK):
        peer = Peer.begun()
        came = peer.receiver(handle)
        assert condition(came) == "close amqp:connection:framing-error"
        assert f"Handle {handle} is above the handle-max of 255" in (
            came[-1].performative.error.description
        )


def test_links_of_a_connection_are_bounded():
    peer = Peer.begun(limits=AmqpLimits(links_max=3))
    peer.begin(1)
    for handle in range(3):
        peer.receiver(handle)
    came = peer.receiver(3, channel=1)
    assert condition(came) == "detach amqp:resource-limit-exceeded"
    assert "3 links; the limit is 3" in of(came, Detach)[0].error.description
    peer.tell(Detach(handle=0))
    peer.tell(Detach(handle=3), 1)
    assert names(peer.receiver(3, channel=1)) == ["attach"]


def test_no_link_waits_for_another():
    """A delivery for each of two queues in one piece; dispositions in another order."""
    peer = reading(credit=5)
    peer.receiver(2, "p", credit=5)
    peer.broker.offer("p", BODY)
    came = offered(peer, BODY)
    assert sorted(t.handle for t in of(came, Transfer)) == [1, 2]
    data = b"".join(
        frame(Disposition(role=RECEIVER, first=i, settled=True, state=ACCEPTED)) for i in (2, 1)
    )
    assert peer.say(data) == []
    assert len(acknowledged(peer)) == 2


def test_target_of_a_reading_link_is_echoed():
    came = Peer.begun().receiver(1, target=Target(address="here"))
    assert of(came, Attach)[0].target == Target(address="here")


@pytest.mark.parametrize("how", ["stop", "store", "again", "end", "close", "detach"])
def test_what_is_held_at_an_end_counts_as_seen_unless_the_peer_ended_it(how):
    """What the peer settled may be on its way: it must not come again as if nobody had had it."""
    peer = reading(credit=2)
    offered(peer, BODY)
    match how:
        case "stop":
            peer.engine.stop(peer.now)
        case "store":
            peer.engine.store_failed(Refusal(code=Code.STORE_FAILED, text="The disk is gone."))
        case "again":
            peer.receiver(7, name="receiver-0-1")
        case "end":
            peer.tell(End())
        case "close":
            peer.tell(Close())
        case "detach":
            peer.tell(Detach(handle=1, closed=True))
    by_peer = how in ("end", "close", "detach")
    assert peer.broker.of("release") == ([("q", [1])] if by_peer else [])
    assert peer.broker.of("release failed") == ([] if by_peer else [("q", [1])])
