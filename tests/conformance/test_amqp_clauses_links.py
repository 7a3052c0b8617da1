"""Clauses of AMQP 1.0, parts 2.5-2.7.4: sessions, handles, windows, links and their credit."""

from __future__ import annotations

import pytest

from gateway.model.amqp_types import Described, ULong
from protocols.amqp.performatives import (
    ACCEPTED,
    Attach,
    Coordinator,
    DeleteOnClose,
    Detach,
    End,
    Error,
    Flow,
    Open,
    Source,
    Target,
    Transfer,
)
from tests.conformance.clauses import BODY, Talk, begin, detach, end, flow, settle
from tests.protocols.amqp.peer import AMQP_HEADER, frame, of

pytestmark = pytest.mark.timeout(60)

FRAMING = "close amqp:connection:framing-error"
ILLEGAL = "close amqp:illegal-state"
NOT_ALLOWED = "close amqp:not-allowed"
UNATTACHED = "end amqp:session:unattached-handle"
INVALID = "detach amqp:invalid-field"


# ---- sessions [2.5, 2.7.2, 2.7.8]


def test_2_7_2_a_begin_is_answered_on_the_channel_it_came_on(talk: Talk):
    talk.opened().says(begin(7), begin(200))
    came = talk.hears("begin", "begin")
    assert [(one.channel, one.performative.remote_channel) for one in came] == [(7, 7), (200, 200)]
    for one in came:
        assert one.performative.incoming_window > 0
        assert one.performative.outgoing_window > 0


def test_2_7_2_a_begin_that_answers_nothing(talk: Talk):
    talk.opened().says(begin(remote_channel=0)).hears(NOT_ALLOWED)


def test_2_5_1_a_channel_has_one_session(talk: Talk):
    talk.begun().says(begin()).hears(ILLEGAL)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(flow(None), id="flow"),
        pytest.param(Attach(name="x", handle=0, role=True), id="attach"),
        pytest.param(Transfer(handle=0, delivery_id=0, delivery_tag=b"t"), id="transfer"),
        pytest.param(settle(0, ACCEPTED), id="disposition"),
        pytest.param(detach(0), id="detach"),
        pytest.param(End(), id="end"),
    ],
)
@pytest.mark.parametrize("begun", [False, True])
def test_2_5_1_a_frame_on_a_channel_without_session_closes_the_connection(talk: Talk, said, begun):
    if begun:
        talk.begun().says(end()).hears("end")
    else:
        talk.opened()
    talk.says(said).hears(NOT_ALLOWED)


def test_2_5_3_an_end_is_answered_and_its_channel_is_free_again(talk: Talk):
    talk.begun()
    for _ in range(3):
        talk.sender()
        talk.says(frame(End(error=Error(condition="x:mine", description="x")))).hears("end")
        talk.says(begin()).hears("begin")


def test_2_5_4_what_comes_behind_our_end_is_ignored_until_the_peers(talk: Talk):
    talk.begun().sender()
    talk.says(talk.transfer(handle=5)).hears(UNATTACHED)
    talk.says(
        talk.transfer(), flow(0, 1, echo=True), talk.sending(3), settle(0, ACCEPTED), detach(9)
    )
    talk.says(end(), begin()).hears("begin")


def test_2_5_5_the_fault_of_one_session_leaves_another_alone(talk: Talk):
    talk.begun().says(begin(1)).hears("begin")
    talk.sender()
    talk.says(frame(detach(9), 1)).hears(UNATTACHED)
    talk.says(talk.transfer()).hears("accepted 0")


# ---- windows [2.5.6]


def test_2_5_6_transfers_beyond_the_window_end_the_session(engine_talk: Talk):
    talk = engine_talk
    talk.begun().sender()
    parts = talk.transfer(b"", more=True) + talk.further(more=True) * 4096
    talk.says(parts).hears("end amqp:session:window-violation")


def test_2_5_6_the_window_of_the_peer_is_kept(talk: Talk):
    talk.begun()
    talk.sender()
    talk.says(*[talk.transfer(settled=True) for _ in range(5)])
    talk.receiver()
    talk.says(flow(1, 5, incoming_window=2)).hears("transfer 1", "transfer 2")
    talk.says(flow(1, 3, delivery_count=2, seen=2, incoming_window=0)).hears()
    talk.says(flow(1, 3, delivery_count=2, seen=2, incoming_window=1)).hears("transfer 3")
    talk.says(flow(1, 2, delivery_count=3, seen=3)).hears("transfer 4", "transfer 5")


def test_2_5_6_a_window_counts_from_what_the_peer_has_seen(talk: Talk):
    """A flow that was written before two transfers came leaves room for the rest of its window."""
    talk.begun()
    talk.sender()
    talk.says(*[talk.transfer(settled=True) for _ in range(5)])
    talk.receiver()
    talk.says(flow(1, 2)).hears("transfer 1", "transfer 2")
    talk.says(flow(1, 9, seen=0, incoming_window=3)).hears("transfer 3")


def test_2_7_4_an_echo_of_the_session_is_answered_without_echo(talk: Talk):
    talk.begun().says(flow(None, echo=True))
    (answer,) = of(talk.hears("flow", flows=True), Flow)
    assert (answer.handle, answer.echo, answer.next_incoming_id) == (None, False, 0)
    assert (answer.link_credit, answer.delivery_count) == (None, None)


def test_2_7_4_a_flow_without_echo_needs_no_answer(talk: Talk):
    talk.begun().says(flow(None)).hears(flows=True)


# ---- handles [2.6.2, 2.7.3, 2.7.7]


def test_2_6_2_a_handle_in_use_ends_the_session(talk: Talk):
    talk.begun().sender(0)
    talk.says(talk.sending(0, name="another")).hears("end amqp:session:handle-in-use")


@pytest.mark.parametrize("handle", [256, 2**32 - 1])
def test_2_7_2_a_handle_above_the_handle_max_is_a_framing_error(talk: Talk, handle):
    talk.begun().says(talk.sending(handle)).hears(FRAMING)


def test_2_7_2_a_handle_above_the_handle_max_of_the_peer_is_not_used(talk: Talk):
    talk.opened().says(begin(handle_max=0)).hears("begin")
    talk.sender(0)
    talk.says(talk.sending(1)).hears(FRAMING)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(detach(3), id="detach"),
        pytest.param(flow(3, 1), id="flow"),
        pytest.param(Transfer(handle=3, delivery_id=0, delivery_tag=b"t"), id="transfer"),
    ],
)
@pytest.mark.parametrize("before", [False, True])
def test_2_6_2_a_frame_on_a_handle_without_link_ends_the_session(talk: Talk, said, before):
    talk.begun()
    if before:
        talk.sender(3)
        talk.says(detach(3)).hears("detach")
    talk.says(said).hears(UNATTACHED)


def test_2_6_2_a_transfer_on_a_receivers_handle_ends_the_session(talk: Talk):
    talk.begun().receiver(1)
    talk.says(talk.transfer(handle=1)).hears(UNATTACHED)


def test_2_6_6_a_detach_is_answered_in_kind_and_the_handle_is_free(talk: Talk):
    talk.begun()
    for closed in (True, False):
        talk.sender(2)
        talk.says(Detach(handle=2, closed=closed))
        assert talk.hears("detach")[-1].performative.closed is closed
        talk.receiver(2)
        talk.says(Detach(handle=2, closed=closed))
        assert talk.hears("detach")[-1].performative.closed is closed


def test_2_6_5_what_was_under_way_to_a_link_that_we_detached_is_passed_over(talk: Talk):
    """Transfers, flows and the answering detach are no fault; their ids and frames count."""
    talk.begun().sender()
    talk.says(talk.transfer(delivery_tag=None)).hears(INVALID)
    talk.says(talk.transfer(), talk.transfer(more=True), talk.further(), flow(0, 1), detach(0))
    talk.sender()
    talk.says(talk.transfer(delivery_id=3)).hears("accepted 3")


# ---- attach [2.6.3, 2.7.3]


@pytest.mark.parametrize(
    ("fields", "condition"),
    [
        pytest.param({"target": None}, "invalid-field", id="no target"),
        pytest.param(
            {"target": Target(address="x", dynamic=True)},
            "invalid-field",
            id="dynamic with address",
        ),
        pytest.param(
            {
                "target": Target(
                    dynamic=True, dynamic_node_properties={"lifetime-policy": 2**32 - 1}
                )
            },
            "invalid-field",
            id="3.5.9 lifetime-policy that is a number",
        ),
        pytest.param(
            {"target": Target(dynamic=True, dynamic_node_properties={"supported-dist-modes": 0})},
            "invalid-field",
            id="3.5.9 supported-dist-modes that is a number",
        ),
    ],
)
def test_2_6_3_a_sender_that_is_refused_is_attached_to_nothing_and_detached(
    talk: Talk, fields, condition
):
    talk.begun().says(talk.sending(**fields))
    came = talk.hears("attach null", f"detach amqp:{condition}")
    assert came[-1].performative.closed is True
    assert came[0].performative.name == "sender-0"
    talk.says(detach(0))
    talk.sender()


@pytest.mark.parametrize(
    ("fields", "condition"),
    [
        pytest.param({"source": None}, "not-found", id="no source"),
        pytest.param({"source": Source()}, "invalid-field", id="no address"),
        pytest.param(
            {"source": Source(address="x", dynamic=True)},
            "invalid-field",
            id="dynamic with address",
        ),
        pytest.param(
            {"source": Source(dynamic=True, dynamic_node_properties={"lifetime-policy": ACCEPTED})},
            "invalid-field",
            id="3.5.9 lifetime-policy that is an outcome",
        ),
    ],
)
def test_2_6_3_a_receiver_that_is_refused_is_attached_to_nothing_and_detached(
    talk: Talk, fields, condition
):
    talk.begun().says(talk.receiving(**fields))
    came = talk.hears("attach null", f"detach amqp:{condition}")
    assert came[-1].performative.closed is True
    # 2.7.3: a sender's attach has an initial-delivery-count, also this one.
    assert came[0].performative.initial_delivery_count == 0
    talk.says(detach(1))
    talk.receiver()


def test_2_7_3_an_attach_is_answered_with_its_name_and_the_other_role(talk: Talk):
    talk.begun()
    answer = talk.sender(4, name="mine", source=Source(address="from"), snd_settle_mode=0)
    assert (answer.name, answer.handle, answer.role) == ("mine", 4, True)
    assert answer.target == Target(address=talk.address)
    assert answer.source == Source(address="from")
    assert (answer.snd_settle_mode, answer.initial_delivery_count) == (0, None)
    answer = talk.receiver(5, name="mine too")
    assert (answer.name, answer.handle, answer.role) == ("mine too", 5, False)
    assert answer.source is not None
    assert answer.source.address == talk.address
    assert answer.initial_delivery_count == 0


@pytest.mark.parametrize("mode", [0, 1])
def test_2_7_3_a_receiver_settles_first_here_and_says_so(talk: Talk, mode):
    talk.begun()
    assert talk.sender(rcv_settle_mode=mode).rcv_settle_mode == 0
    assert talk.receiver(rcv_settle_mode=mode).rcv_settle_mode == 0


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_2_7_3_a_sender_settles_as_its_receiver_asked(talk: Talk, mode):
    talk.begun().sender()
    answer = talk.receiver(credit=1, snd_settle_mode=mode)
    assert answer.snd_settle_mode == mode
    talk.says(talk.transfer(settled=True))
    (transfer,) = of(talk.hears("transfer 1"), Transfer)
    assert bool(transfer.settled) is (mode == 1)


def test_2_6_1_a_name_that_is_attached_again_is_taken_from_its_link(talk: Talk):
    talk.begun().sender(0, name="mine")
    talk.says(talk.sending(1, name="mine")).hears("detach amqp:link:stolen", "attach")
    talk.says(detach(0), talk.transfer(handle=1)).hears("accepted 0")
    # The names of senders and of receivers are no neighbours.
    talk.receiver(2, name="mine")
    talk.says(talk.transfer(handle=1, settled=True)).hears()


def test_2_6_13_an_unsettled_map_is_answered_with_nothing_to_resume(talk: Talk):
    """No delivery outlives its link here: what the peer thinks unsettled is new to us."""
    talk.begun()
    state = Described(ULong(0x24), [])
    assert talk.sender(unsettled={b"tag": state}).unsettled is None
    assert talk.receiver(unsettled={b"tag": None}).unsettled is None


def test_2_7_3_a_receiver_whose_unsettled_map_is_incomplete_gets_nothing_new(talk: Talk):
    talk.begun().sender()
    talk.says(talk.receiving(unsettled={b"tag": None}, incomplete_unsettled=True))
    talk.hears("attach null", "detach amqp:not-implemented")
    talk.says(detach(1), talk.transfer(settled=True))
    talk.receiver(credit=1)
    talk.hears("transfer 1")


def test_2_7_5_resumed_deliveries_that_are_not_known_are_ignored(talk: Talk):
    talk.begun().sender(unsettled={b"tag": None})
    talk.says(talk.transfer(resume=True, delivery_tag=b"tag"))
    talk.says(talk.transfer(BODY[:3], resume=True, more=True), talk.further(BODY[3:]))
    talk.says(talk.transfer(resume=True, aborted=True))
    talk.says(talk.transfer()).hears("accepted 3")
    talk.receiver(credit=10)
    talk.hears("transfer 1")


def test_3_5_10_a_dynamic_node_goes_with_its_link(talk: Talk):
    talk.begun()
    properties = {"lifetime-policy": DeleteOnClose()}
    made = talk.receiver(1, source=Source(dynamic=True, dynamic_node_properties=properties))
    assert made.source is not None
    assert made.source.dynamic
    assert made.source.address
    talk.says(talk.receiving(2, source=Source(address=made.source.address))).hears("attach")
    talk.says(detach(1)).hears("detach amqp:resource-deleted", "detach")


def test_4_5_1_a_coordinator_is_a_target_and_no_source(talk: Talk):
    talk.begun()
    answer = talk.coordinator()
    assert isinstance(answer.target, Coordinator)
    assert "amqp:local-transactions" in answer.target.capabilities


# ---- credit [2.6.7-2.6.10, 2.7.4]


def test_2_6_7_a_transfer_beyond_the_credit_detaches_the_link(engine_talk: Talk):
    talk = engine_talk
    talk.begun().says(talk.sending())
    (granted,) = of(talk.hears("attach", "flow", flows=True), Flow)
    assert granted.link_credit
    talk.says(*[talk.transfer(settled=True) for _ in range(granted.link_credit)])
    talk.hears("flow", flows=True)
    talk.says(*[talk.transfer(settled=True) for _ in range(granted.link_credit + 1)])
    talk.hears("detach amqp:link:transfer-limit-exceeded")


def test_2_6_7_nothing_comes_without_credit_and_no_more_than_it(talk: Talk):
    talk.begun().sender()
    talk.says(*[talk.transfer(settled=True) for _ in range(5)])
    talk.receiver()
    talk.says(flow(1, 0)).hears()
    talk.says(flow(1, 2)).hears("transfer 1", "transfer 2")
    talk.says(flow(1, 1, delivery_count=2, seen=2)).hears("transfer 3")
    # Credit counts from the receiver's own count: what is under way is in it.
    talk.says(flow(1, 3, delivery_count=1, seen=3)).hears("transfer 4")


def test_2_6_7_credit_is_taken_back(talk: Talk):
    talk.begun().sender()
    talk.receiver(credit=5)
    talk.says(flow(1, 0), talk.transfer(settled=True)).hears()
    talk.says(flow(1, 1)).hears("transfer 1")


def test_2_6_7_a_drain_uses_up_the_credit_or_gives_it_back(talk: Talk):
    talk.begun().sender()
    talk.says(*[talk.transfer(settled=True) for _ in range(2)])
    talk.receiver()
    talk.says(flow(1, 10, drain=True))
    came = talk.hears("transfer 1", "transfer 2", "flow", flows=True)
    answer = of(came, Flow)[-1]
    assert (answer.handle, answer.link_credit, answer.delivery_count) == (1, 0, 10)
    assert answer.drain
    talk.says(talk.transfer(settled=True)).hears()  # there is no credit now
    talk.says(flow(1, 1, delivery_count=10, seen=2)).hears("transfer 3")


def test_2_6_7_a_drain_of_no_credit_is_answered(talk: Talk):
    talk.begun().receiver()
    talk.says(flow(1, 0, drain=True))
    (answer,) = of(talk.hears("flow", flows=True), Flow)
    assert (answer.handle, answer.link_credit, answer.delivery_count) == (1, 0, 0)


@pytest.mark.parametrize("credit", [0, 7])
def test_2_7_4_an_echo_of_a_link_tells_its_state(talk: Talk, credit):
    talk.begun().receiver()
    talk.says(flow(1, credit, echo=True))
    (answer,) = of(talk.hears("flow", flows=True), Flow)
    assert (answer.handle, answer.link_credit, answer.delivery_count) == (1, credit, 0)
    assert not answer.echo


def test_2_7_4_an_echo_of_a_senders_link_tells_the_credit(talk: Talk):
    talk.begun().says(talk.sending())
    talk.hears("attach", "flow", flows=True)
    talk.says(flow(0, None, echo=True))
    (answer,) = of(talk.hears("flow", flows=True), Flow)
    assert answer.handle == 0
    assert answer.link_credit


def test_2_7_4_a_first_flow_may_leave_out_what_it_has_not_seen(talk: Talk):
    """next-incoming-id is unset before our begin was seen, delivery-count before our attach."""
    talk.says(
        AMQP_HEADER,
        Open(container_id="c"),
        begin(),
        talk.sending(),
        talk.receiving(),
        flow(1, 1, next_incoming_id=None, delivery_count=None),
        talk.transfer(settled=True),
    )
    talk.hears("header AMQP", "open", "begin", "attach", "attach", "transfer 1")


def test_2_6_8_a_synchronous_get_waits_for_the_message(talk: Talk):
    talk.begun().receiver(credit=1)
    talk.sender()
    talk.says(talk.transfer(settled=True)).hears("transfer 1")


def test_2_7_4_a_wide_credit_is_no_number_of_bytes(talk: Talk):
    talk.begun().sender()
    talk.receiver()
    talk.says(flow(1, 2**31 - 1), talk.transfer(settled=True)).hears("transfer 1")
