"""Clauses of AMQP 1.0, parts 2.6.12-14, 2.7.5-6, 3.4: deliveries, their frames and outcomes."""

from __future__ import annotations

import pytest

from protocols.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    Accepted,
    Detach,
    Disposition,
    Error,
    Modified,
    Received,
    Rejected,
    Source,
    Target,
    Transfer,
)
from tests.conformance.clauses import (
    BODY,
    FALSE,
    NULL,
    TRUE,
    ZERO,
    Talk,
    begin,
    detach,
    end,
    flow,
    listed,
    settle,
    text,
    uint,
)
from tests.protocols.amqp.peer import SENDER, again, data_message, frame, fresh, of, raw_frame

pytestmark = pytest.mark.timeout(60)

INVALID = "detach amqp:invalid-field"
SESSION_INVALID = "end amqp:invalid-field"
HEAD, TAIL = BODY[:3], BODY[3:]
DURABLE = data_message(b"kept", durable=True)


def kept(talk: Talk) -> list[bytes]:
    """Return what is in the queue: all of it is taken by a receiver of its own."""
    talk.says(talk.receiving(50, snd_settle_mode=1)).hears("attach")
    talk.says(flow(50, 100, drain=True), flow(None, echo=True))
    bodies: list[bytes] = []
    while True:
        came, gone = talk.wire.read()
        bodies += [one.payload for one in came if one.name == "transfer"]
        if gone or any(one.name == "flow" and one.performative.handle is None for one in came):
            return bodies


# ---- the frames of a delivery [2.6.14, 2.7.5]


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        pytest.param({"delivery_id": None, "delivery_tag": b"t"}, SESSION_INVALID, id="no id"),
        pytest.param({"delivery_tag": None}, INVALID, id="no tag"),
        pytest.param({"rcv_settle_mode": 1}, INVALID, id="rcv-settle-mode second"),
        pytest.param({"message_format": 1}, "rejected 0 amqp:not-implemented", id="format 1"),
        pytest.param({"message_format": 2**32 - 1}, "rejected 0 amqp:not-implemented", id="format"),
        pytest.param({"message_format": None}, "accepted 0", id="no format"),
        pytest.param({"rcv_settle_mode": 0}, "accepted 0", id="rcv-settle-mode first"),
        pytest.param({"delivery_tag": b""}, "accepted 0", id="an empty tag"),
        pytest.param({"delivery_tag": bytes(32)}, "accepted 0", id="a tag of 32 bytes"),
        pytest.param({"batchable": True}, "accepted 0", id="batchable"),
        pytest.param({"state": ACCEPTED}, "accepted 0", id="a state"),
        pytest.param(
            {"state": Received(section_number=0, section_offset=0)}, "accepted 0", id="received"
        ),
    ],
)
@pytest.mark.parametrize("in_frames", [False, True])
def test_2_7_5_what_a_first_transfer_says(talk: Talk, fields, answer, in_frames):
    talk.begun().sender()
    if in_frames:
        talk.says(talk.transfer(HEAD, more=True, **fields))
        if answer in (INVALID, SESSION_INVALID):
            talk.hears(answer)
        else:
            talk.says(talk.further(TAIL)).hears(answer)
    else:
        talk.says(talk.transfer(**fields)).hears(answer)
    if answer == INVALID:
        talk.says(detach(0))
    if answer != SESSION_INVALID:
        assert kept(talk) == ([fresh(BODY)] if answer == "accepted 0" else [])


def test_2_7_5_a_tag_above_32_bytes_is_refused(talk: Talk):
    talk.begun().sender()
    tag = b"\xa0\x21" + bytes(33)
    talk.says(raw_frame(listed(0x14, ZERO, ZERO, tag) + BODY)).hears("close amqp:invalid-field")


@pytest.mark.parametrize("settled", [False, True])
def test_2_7_5_an_unknown_format_that_cannot_be_rejected_ends_the_link(talk: Talk, settled):
    talk.begun().sender(source=Source(outcomes=() if settled else ("amqp:accepted:list",)))
    talk.says(talk.transfer(message_format=7, settled=settled))
    talk.hears("detach amqp:not-implemented")


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        pytest.param({}, "accepted 0", id="nothing"),
        pytest.param({"delivery_id": 0}, "accepted 0", id="the id again"),
        pytest.param({"delivery_tag": b"\0\0\0\0"}, "accepted 0", id="the tag again"),
        pytest.param({"message_format": 0}, "accepted 0", id="the format again"),
        pytest.param({"delivery_id": 1}, SESSION_INVALID, id="another id"),
        pytest.param({"delivery_tag": b"other"}, INVALID, id="another tag"),
        pytest.param({"delivery_tag": b""}, INVALID, id="an empty tag"),
        pytest.param({"message_format": 1}, INVALID, id="another format"),
        pytest.param({"rcv_settle_mode": 1}, INVALID, id="rcv-settle-mode second"),
        pytest.param({"settled": True}, "", id="settled now"),
        pytest.param({"aborted": True}, None, id="aborted"),
        pytest.param({"aborted": True, "settled": True}, None, id="aborted and settled"),
        pytest.param({"aborted": True, "more": True}, None, id="aborted, more"),
    ],
)
@pytest.mark.parametrize("at_last", [False, True])
def test_2_7_5_what_a_further_transfer_says(talk: Talk, fields, answer, at_last):
    talk.begun().sender()
    talk.says(talk.transfer(HEAD, more=True))
    if at_last or answer is None:
        talk.says(talk.further(TAIL, **fields))
    else:
        talk.says(talk.further(TAIL[:1], **{**fields, "more": True}), talk.further(TAIL[1:]))
    if answer:
        talk.hears(answer)
    if answer == INVALID:
        talk.says(detach(0))
    if answer != SESSION_INVALID:
        assert kept(talk) == ([fresh(BODY)] if answer in ("", "accepted 0") else [])


@pytest.mark.parametrize("settled", [(True, None), (True, False), (None, True), (True, True)])
def test_2_7_5_a_delivery_is_settled_when_one_of_its_frames_says_so(talk: Talk, settled):
    talk.begun().sender()
    talk.says(
        talk.transfer(HEAD, more=True, settled=settled[0]),
        talk.further(TAIL, settled=settled[1]),
        talk.transfer(),
    )
    talk.hears("accepted 1")
    assert kept(talk) == [fresh(BODY)] * 2


def test_2_6_14_an_aborted_delivery_leaves_nothing_and_the_next_is_whole(talk: Talk):
    talk.begun().sender()
    talk.says(talk.transfer(HEAD, more=True), talk.further(aborted=True))
    talk.says(talk.transfer(b"", aborted=True), talk.transfer()).hears("accepted 2")
    assert kept(talk) == [fresh(BODY)]


def test_2_6_14_frames_of_two_links_may_be_mixed(talk: Talk):
    talk.begun().sender(0)
    talk.sender(1)
    talk.says(
        talk.transfer(HEAD, 0, more=True),
        talk.transfer(HEAD, 1, more=True),
        talk.further(TAIL, 1),
        talk.further(TAIL, 0),
    )
    talk.hears("accepted 1", "accepted 0")
    assert kept(talk) == [fresh(BODY)] * 2


def test_2_6_14_frames_of_one_link_may_not_be_mixed(talk: Talk):
    talk.begun().sender()
    talk.says(talk.transfer(HEAD, more=True), talk.transfer(HEAD, more=True)).hears(SESSION_INVALID)


@pytest.mark.parametrize("closed", [False, True])
def test_2_6_14_a_detach_amid_a_delivery_takes_it_along(talk: Talk, closed):
    talk.begun().sender()
    talk.says(talk.transfer(HEAD, more=True), detach(0, closed=closed)).hears("detach")
    talk.sender()
    talk.says(talk.transfer()).hears("accepted 1")
    assert kept(talk) == [fresh(BODY)]


def test_2_6_14_an_end_amid_a_delivery_takes_it_along(talk: Talk):
    talk.begun().sender()
    talk.says(talk.transfer(HEAD, more=True), end()).hears("end")
    talk.says(begin()).hears("begin")
    talk.sender()
    talk.says(talk.transfer(delivery_id=0)).hears("accepted 0")
    assert kept(talk) == [fresh(BODY)]


def test_2_6_14_empty_frames_belong_to_a_delivery_as_well(talk: Talk):
    talk.begun().sender()
    parts = [talk.further(BODY[i : i + 1], more=True) for i in range(len(BODY))]
    talk.says(talk.transfer(b"", more=True), *parts, talk.further(b"", more=True), talk.further())
    talk.hears("accepted 0")
    assert kept(talk) == [fresh(BODY)]


# ---- delivery-ids [2.6.12, 2.7.5]


@pytest.mark.parametrize(
    ("ids", "answer"),
    [
        ((0, 0), SESSION_INVALID),
        ((5, 4), SESSION_INVALID),
        ((0, 2**32 - 1), SESSION_INVALID),
        ((7, 8 + 2**31), SESSION_INVALID),
        ((2**32 - 1, 0), ""),
        ((0, 1), ""),
    ],
)
def test_2_6_12_a_delivery_id_that_was_used_ends_the_session(talk: Talk, ids, answer):
    talk.begun().sender()
    first, second = ids
    talk.says(talk.transfer(delivery_id=first)).hears(f"accepted {first}")
    talk.says(talk.transfer(delivery_id=second)).hears(answer or f"accepted {second}")


def test_2_6_12_ids_are_counted_over_all_links_of_a_session(talk: Talk):
    talk.begun().sender(0)
    talk.sender(1)
    talk.says(talk.transfer(handle=0, delivery_id=0)).hears("accepted 0")
    talk.says(talk.transfer(handle=1, delivery_id=0)).hears(SESSION_INVALID)


def test_2_6_12_deliveries_to_a_peer_are_numbered_over_all_links(talk: Talk):
    talk.begun().sender()
    talk.receiver(1, credit=1)
    talk.receiver(2, credit=1)
    talk.says(talk.transfer(settled=True), talk.transfer(settled=True))
    came = of(talk.hears("transfer 1", "transfer 2"), Transfer)
    assert {one.handle for one in came} == {1, 2}
    assert len({one.delivery_tag for one in came}) == 2


# ---- outcomes of what the peer sent [2.6.12, 3.4]


@pytest.mark.parametrize("body", [BODY, DURABLE])
def test_2_7_6_an_accepted_delivery_is_settled_by_us(talk: Talk, body):
    talk.begun().sender()
    talk.says(talk.transfer(body), talk.transfer(body))
    for told in of(talk.hears("accepted 0", "accepted 1"), Disposition):
        assert told.settled
        assert told.state == Accepted()


@pytest.mark.parametrize("mode", [0, 2])
def test_2_7_5_settled_and_unsettled_deliveries_mix(talk: Talk, mode):
    talk.begun().sender(snd_settle_mode=mode)
    talk.says(*[talk.transfer(settled=flag) for flag in (True, False, None, True, False)])
    talk.hears("accepted 1", "accepted 2", "accepted 4")
    assert kept(talk) == [fresh(BODY)] * 5


@pytest.mark.parametrize("settled", [False, True])
def test_2_7_6_a_sender_may_tell_of_its_deliveries_whatever_it_likes(talk: Talk, settled):
    talk.begun().sender()
    talk.says(talk.transfer()).hears("accepted 0")
    told = Disposition(role=SENDER, first=0, last=9, settled=settled, state=ACCEPTED)
    talk.says(told).hears()


# ---- outcomes of what we sent [2.7.6, 3.4]


def holding(talk: Talk, count: int = 1, **fields: object) -> None:
    """Have this peer hold deliveries 1..., unsettled; it has no more credit."""
    talk.begun().sender()
    talk.receiver(1, **fields)
    talk.says(flow(1, count), *[talk.transfer(settled=True) for _ in range(count)])
    talk.hears(*[f"transfer {i + 1}" for i in range(count)])


@pytest.mark.parametrize(
    ("state", "stays"),
    [
        pytest.param(ACCEPTED, False, id="accepted"),
        pytest.param(Rejected(), False, id="rejected"),
        pytest.param(Rejected(error=Error(condition="x:y")), False, id="rejected with an error"),
        pytest.param(RELEASED, True, id="released"),
        pytest.param(Modified(), True, id="modified"),
        pytest.param(Modified(delivery_failed=True), True, id="modified, failed"),
        pytest.param(None, True, id="no state"),
        pytest.param(Received(section_number=1, section_offset=2), True, id="received"),
    ],
)
def test_3_4_a_settled_outcome(talk: Talk, state, stays):
    holding(talk)
    talk.says(settle(1, state)).hears()
    assert len(kept(talk)) == stays


@pytest.mark.parametrize("state", [ACCEPTED, Rejected(), Modified(undeliverable_here=True)])
def test_2_6_12_an_unsettled_outcome_is_settled_back_with_the_same(talk: Talk, state):
    holding(talk)
    word = type(state).__name__.lower()
    talk.says(settle(1, state, settled=False)).hears(f"settled 1 {word}")


@pytest.mark.parametrize("state", [None, Received(section_number=1, section_offset=2)])
def test_3_4_1_progress_ends_nothing(talk: Talk, state):
    holding(talk)
    talk.says(settle(1, state, settled=False)).hears()
    talk.says(settle(1, ACCEPTED, settled=False)).hears("settled 1 accepted")


def test_3_5_3_the_default_outcome_is_that_of_what_was_settled_without(talk: Talk):
    source = Source(address=talk.address, default_outcome=ACCEPTED)
    holding(talk, source=source)
    talk.says(settle(1, None)).hears()
    assert kept(talk) == []


@pytest.mark.parametrize(
    ("first", "last"), [(0, 0), (2, 9), (1000, 2000), (2, 2**31), (2**32 - 5, 0), (2**32 - 1, None)]
)
def test_2_7_6_a_range_of_unknown_deliveries_means_nothing(talk: Talk, first, last):
    holding(talk)
    talk.says(settle(first, ACCEPTED, last, settled=False)).hears()
    talk.says(settle(1, ACCEPTED, settled=False)).hears("settled 1 accepted")


def test_2_7_6_a_range_may_have_holes_and_cover_links(talk: Talk):
    holding(talk, 4)
    talk.says(settle(2, ACCEPTED)).hears()
    talk.says(settle(0, ACCEPTED, 50, settled=False))
    talk.hears("settled 1 accepted", "settled 3 accepted", "settled 4 accepted")


def test_2_7_6_a_delivery_is_settled_once(talk: Talk):
    holding(talk)
    talk.says(settle(1, ACCEPTED), settle(1, RELEASED), settle(1, None)).hears()
    assert kept(talk) == []


def test_2_7_6_a_range_that_ends_before_it_begins(talk: Talk):
    holding(talk)
    talk.says(settle(5, ACCEPTED, 4)).hears(SESSION_INVALID)


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        pytest.param((TRUE,), "close amqp:invalid-field", id="no first"),
        pytest.param((NULL, uint(1)), "close amqp:invalid-field", id="no role"),
        pytest.param((ZERO, uint(1)), "close amqp:decode-error", id="a number as role"),
        pytest.param((TRUE, uint(1), NULL, FALSE, ZERO), "close amqp:decode-error", id="a number"),
        pytest.param(
            (TRUE, uint(1), NULL, FALSE, listed(0x28)), "close amqp:invalid-field", id="a source"
        ),
        pytest.param(
            (TRUE, uint(1), NULL, TRUE, b"\x00\xa3\x03x:y\x45"), "", id="a state of another kind"
        ),
        pytest.param((TRUE, uint(1), NULL, TRUE, listed(0x24), TRUE), "", id="batchable"),
    ],
)
def test_2_7_6_what_a_disposition_says(talk: Talk, fields, answer):
    holding(talk)
    talk.says(raw_frame(listed(0x15, *fields))).hears(*filter(None, [answer]))


@pytest.mark.parametrize("closed", [False, True])
def test_2_6_6_what_was_unsettled_at_a_detach_goes_back(talk: Talk, closed):
    holding(talk, 2)
    talk.says(settle(1, ACCEPTED), detach(1, closed=closed)).hears("detach")
    talk.says(settle(2, ACCEPTED, settled=False)).hears()  # it was taken back
    assert kept(talk) == [again(BODY)]


# ---- messages that lead nowhere [anonymous terminus 2.2.2]


def relaying(talk: Talk, **fields: object) -> None:
    talk.begun().sender(target=Target(address=None), **fields)


NOWHERE = data_message(b"without an address")


def test_anonymous_terminus_2_2_2_an_unsettled_message_is_rejected_by_its_tag(talk: Talk):
    outcomes = ("amqp:accepted:list", "amqp:rejected:list")
    relaying(talk, source=Source(outcomes=outcomes))
    talk.says(talk.transfer(NOWHERE, delivery_tag=b"mine"))
    (told,) = of(talk.hears("rejected 0 amqp:invalid-field"), Disposition)
    assert told.state.error.info["delivery-tag"] == b"mine"


def to(address: str) -> bytes:
    head = b"\x00\x53\x73\xc0"
    return head + bytes((len(address) + 5, 3)) + b"\x40\x40" + text(address) + BODY


@pytest.mark.parametrize("how", ["rejected", "settled", "not listed"])
@pytest.mark.parametrize("before", [0, 1, 5])
def test_anonymous_terminus_2_2_2_an_unknown_node_is_named_by_the_tag(talk: Talk, how, before):
    """Alone, or in a run behind others: those that lead somewhere are taken."""
    outcomes = ("amqp:accepted:list",) if how == "not listed" else ("amqp:rejected:list",)
    relaying(talk, source=Source(outcomes=outcomes))
    settled = how == "settled"
    good = [talk.transfer(to(talk.address), settled=settled) for _ in range(before)]
    bad = talk.transfer(to("closed.unknown"), settled=settled, delivery_tag=b"Mine")
    talk.says(*good, bad)
    taken = [] if settled else [f"accepted {i}" for i in range(before)]
    if how == "rejected":
        came = talk.hears(*taken, f"rejected {before} amqp:not-found")
        error = of(came, Disposition)[-1].state.error
        talk.says(talk.transfer(to(talk.address))).hears(f"accepted {before + 1}")
    else:
        came = talk.hears(*taken, "detach amqp:not-found")
        error = of(came, Detach)[-1].error
    assert error.info["delivery-tag"] == b"Mine"
    assert "closed.unknown" in error.description


@pytest.mark.parametrize("settled", [False, True])
def test_anonymous_terminus_2_2_2_the_link_ends_where_nothing_else_tells(talk: Talk, settled):
    outcomes = () if settled else ("amqp:accepted:list",)
    relaying(talk, source=Source(outcomes=outcomes))
    talk.says(talk.transfer(NOWHERE, settled=settled, delivery_tag=b"mine"))
    came = talk.hears("detach amqp:invalid-field")
    assert came[-1].performative.closed
    assert came[-1].performative.error.info["delivery-tag"] == b"mine"


def test_a_frame_of_a_transfer_alone_is_no_fault_of_the_connection(talk: Talk):
    """Faults of a link leave its session, and faults of a session its connection."""
    talk.begun().sender(0)
    talk.sender(1)
    talk.says(talk.transfer(handle=0, delivery_tag=None)).hears(INVALID)
    talk.says(talk.transfer(handle=1)).hears("accepted 1")
    talk.says(frame(Transfer(handle=1))).hears(SESSION_INVALID)
