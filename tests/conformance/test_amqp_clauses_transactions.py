"""Clauses of AMQP 1.0, part 4: the coordinator, posting, retirement, discharge."""

from __future__ import annotations

import pytest

from protocols.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    Declare,
    Declared,
    Discharge,
    Disposition,
    Modified,
    Rejected,
    Source,
    Target,
    TransactionalState,
)
from tests.conformance.clauses import BODY, Talk, begin, detach, encoded, end, flow, settle
from tests.protocols.amqp.peer import Frame, data_message, frame, of

pytestmark = pytest.mark.timeout(60)

CONTROL = 9
UNKNOWN = "amqp:transaction:unknown-id"
ROLLBACK = "amqp:transaction:rollback"
NAME = bytes(7) + b"\1"
NEXT = bytes(7) + b"\2"
DURABLE = data_message(b"kept", durable=True)


def asked(talk: Talk, command: Declare | Discharge, **fields: object) -> bytes:
    """Return the transfer that asks the coordinator for something."""
    return talk.transfer(b"\x00\x53\x77" + encoded(command), CONTROL, **fields)


def commit(talk: Talk, name: bytes = NAME) -> bytes:
    return asked(talk, Discharge(txn_id=name, fail=False))


def roll_back(talk: Talk, name: bytes = NAME) -> bytes:
    return asked(talk, Discharge(txn_id=name, fail=True))


def within(outcome: object = None, name: bytes = NAME) -> TransactionalState:
    return TransactionalState(txn_id=name, outcome=outcome)  # type: ignore[arg-type]


def controlling(talk: Talk, *, declared: bool = True, held: int = 0, **fields: object) -> None:
    """Attach a coordinator (9) and a sender (0); a receiver (1) holds deliveries 1...

    Ids 0... are those of what was sent for it; the declare has the next one.
    """
    talk.begun().sender()
    if held:
        talk.receiver()
        talk.says(flow(1, held), *[talk.transfer(settled=True) for _ in range(held)])
        talk.hears(*[f"transfer {i + 1}" for i in range(held)])
    talk.coordinator(CONTROL, **fields)
    if declared:
        came = talk.says(asked(talk, Declare())).hears(f"declared {held}")
        (told,) = of(came, Disposition)
        assert told.settled
        assert told.state == Declared(txn_id=NAME)


def count(talk: Talk) -> int:
    """Return how many messages the queue gives to another session of this connection."""
    talk.says(begin(99)).hears("begin")
    talk.says(frame(talk.receiving(1, name="count", snd_settle_mode=1), 99)).hears("attach")
    talk.says(frame(flow(1, 1000, drain=True), 99), frame(flow(None, echo=True), 99))
    found: list[Frame] = []
    while not any(one.name == "flow" and one.performative.handle is None for one in found):
        came, gone = talk.wire.read()
        found += came
        assert not gone
    talk.says(end(99)).hears("end")
    return sum(one.name == "transfer" for one in found)


# ---- declare [4.2]


def test_4_2_a_declare_has_an_id_of_its_own(talk: Talk):
    controlling(talk)
    (told,) = of(talk.says(asked(talk, Declare())).hears("declared 1"), Disposition)
    assert told.state == Declared(txn_id=NEXT)


def test_4_2_a_declare_for_a_global_transaction_is_rejected(talk: Talk):
    controlling(talk, declared=False)
    talk.says(asked(talk, Declare(global_id=b"xid"))).hears("rejected 0 amqp:not-implemented")


@pytest.mark.parametrize(
    ("body", "condition"),
    [
        pytest.param(BODY, "amqp:invalid-field", id="data"),
        pytest.param(b"\x00\x53\x77\x40", "amqp:invalid-field", id="null"),
        pytest.param(b"\x00\x53\x77\x00\x53\x24\x45", "amqp:invalid-field", id="an outcome"),
        pytest.param(b"\x00\x53\x77\x00\x53\x32\x45", "amqp:decode-error", id="without an id"),
        pytest.param(b"\x00\x53\x77\x00\x53\x31\xff", "amqp:decode-error", id="broken"),
        pytest.param(b"junk", "amqp:decode-error", id="junk"),
        pytest.param(b"", "amqp:invalid-field", id="nothing"),
    ],
)
def test_4_2_what_is_no_command_is_rejected(talk: Talk, body, condition):
    controlling(talk, declared=False)
    talk.says(talk.transfer(body, CONTROL)).hears(f"rejected 0 {condition}")
    talk.says(asked(talk, Declare())).hears("declared 1")


@pytest.mark.parametrize("command", [Declare(), Discharge(txn_id=NAME)])
def test_4_2_a_settled_command_ends_the_coordinator(talk: Talk, command):
    controlling(talk)
    talk.says(asked(talk, command, settled=True)).hears("detach amqp:not-allowed")


# ---- discharge [4.3]


@pytest.mark.parametrize("fail", [False, True])
def test_4_3_a_discharge_is_accepted_once(talk: Talk, fail):
    controlling(talk)
    talk.says(asked(talk, Discharge(txn_id=NAME, fail=fail))).hears("accepted 1")
    talk.says(asked(talk, Discharge(txn_id=NAME, fail=fail))).hears(f"rejected 2 {UNKNOWN}")


@pytest.mark.parametrize("name", [b"", b"\0", b"not declared", NEXT, bytes(64)])
def test_4_3_a_discharge_of_an_unknown_transaction_is_rejected(talk: Talk, name):
    controlling(talk, source=Source(outcomes=("amqp:accepted:list", "amqp:rejected:list")))
    talk.says(commit(talk, name)).hears(f"rejected 1 {UNKNOWN}")


def test_4_3_the_coordinator_is_detached_where_rejected_is_not_listed(talk: Talk):
    controlling(talk, source=Source(outcomes=("amqp:accepted:list", "amqp:declared:list")))
    talk.says(commit(talk, b"?")).hears(f"detach {UNKNOWN}")


@pytest.mark.parametrize("how", ["detach", "close the link", "end"])
def test_4_3_what_was_not_discharged_is_rolled_back_with_its_coordinator(talk: Talk, how):
    controlling(talk)
    talk.says(talk.transfer(state=within(), settled=True))
    said = {"detach": detach(CONTROL, closed=False), "close the link": detach(CONTROL)}.get(how)
    talk.says(said or end()).hears("detach" if said else "end")
    assert count(talk) == 0


# ---- posting [4.4.4]


@pytest.mark.parametrize("body", [BODY, DURABLE])
def test_4_4_4_a_posted_message_is_there_when_it_was_committed(talk: Talk, body):
    controlling(talk)
    talk.says(talk.transfer(body, state=within())).hears("in transaction accepted 1")
    assert count(talk) == 0
    talk.says(commit(talk)).hears("accepted 2")
    assert count(talk) == 1


def test_4_4_4_the_outcome_of_a_post_names_its_transaction(talk: Talk):
    controlling(talk)
    (told,) = of(
        talk.says(talk.transfer(state=within())).hears("in transaction accepted 1"), Disposition
    )
    assert told.settled
    assert told.state == within(ACCEPTED)


def test_4_4_4_what_was_rolled_back_is_not_there(talk: Talk):
    controlling(talk)
    talk.says(talk.transfer(state=within(), settled=True), roll_back(talk)).hears("accepted 2")
    assert count(talk) == 0


def test_4_4_4_an_unknown_transaction_takes_no_post(talk: Talk):
    controlling(talk)
    talk.says(talk.transfer(state=within(name=b"?"))).hears(f"rejected 1 {UNKNOWN}")
    talk.says(talk.transfer(state=within(name=b"?"), settled=True)).hears(f"detach {UNKNOWN}")
    talk.says(commit(talk)).hears("accepted 3")
    assert count(talk) == 0


def test_4_4_4_a_post_that_cannot_be_rejected_ends_its_link(talk: Talk):
    controlling(talk)
    talk.sender(3, source=Source(outcomes=("amqp:accepted:list",)))
    talk.says(talk.transfer(BODY, 3, state=within(name=b"?"))).hears(f"detach {UNKNOWN}")
    talk.says(commit(talk)).hears("accepted 2")


def test_4_4_4_posts_in_several_frames_settled_and_not(talk: Talk):
    controlling(talk)
    talk.says(
        talk.transfer(BODY[:3], state=within(), more=True),
        talk.further(BODY[3:]),
        talk.transfer(BODY[:3], state=within(), more=True),
        talk.further(BODY[3:], state=within(), settled=True),
    )
    talk.hears("in transaction accepted 1")
    talk.says(commit(talk)).hears("accepted 3")
    assert count(talk) == 2


@pytest.mark.parametrize("first", [None, within(name=NEXT)])
def test_4_4_4_a_further_frame_may_name_no_other_transaction(talk: Talk, first):
    controlling(talk)
    talk.says(talk.transfer(BODY[:3], state=first, more=True), talk.further(state=within()))
    talk.hears("detach amqp:invalid-field")


def test_4_4_4_a_discharge_amid_a_post_rolls_back(talk: Talk):
    controlling(talk)
    talk.says(talk.transfer(BODY[:3], state=within(), more=True), commit(talk))
    talk.hears(f"detach {ROLLBACK}")
    talk.says(talk.further(BODY[3:])).hears(f"rejected 1 {UNKNOWN}")
    assert count(talk) == 0


def test_4_4_4_an_aborted_post_is_none(talk: Talk):
    controlling(talk)
    talk.says(talk.transfer(BODY[:3], state=within(), more=True), talk.further(aborted=True))
    talk.says(commit(talk)).hears("accepted 2")
    assert count(talk) == 0


def test_4_4_4_a_sender_that_left_leaves_its_posts(talk: Talk):
    controlling(talk)
    talk.says(talk.transfer(state=within())).hears("in transaction accepted 1")
    talk.says(detach(0)).hears("detach")
    talk.says(commit(talk)).hears("accepted 2")
    assert count(talk) == 1


NOWHERE = data_message(b"without an address")


@pytest.mark.parametrize("settled", [False, True])
def test_4_4_4_a_post_that_leads_nowhere_fails_its_transaction(talk: Talk, settled):
    controlling(talk)
    talk.sender(3, target=Target(address=None))
    talk.says(talk.transfer(NOWHERE, 3, state=within(), settled=settled, delivery_tag=b"mine"))
    if not settled:
        (told,) = of(talk.hears(f"in transaction rejected 1 {ROLLBACK}"), Disposition)
        assert told.state.outcome.error.info["delivery-tag"] == b"mine"
    talk.says(commit(talk)).hears(f"rejected 2 {ROLLBACK}")


def test_anonymous_terminus_a_post_that_cannot_be_rejected_ends_its_link(talk: Talk):
    controlling(talk)
    talk.sender(3, target=Target(address=None), source=Source(outcomes=("amqp:accepted:list",)))
    talk.says(talk.transfer(NOWHERE, 3, state=within(), delivery_tag=b"mine"))
    came = talk.hears("detach amqp:invalid-field")
    assert came[-1].performative.error.info["delivery-tag"] == b"mine"
    talk.says(commit(talk)).hears(f"rejected 2 {ROLLBACK}")


def test_3_2_a_post_with_a_stray_section_fails_its_transaction(talk: Talk):
    controlling(talk)
    talk.says(talk.transfer(b"\xa1\x05stray" + BODY, state=within()))
    talk.hears(f"in transaction rejected 1 {ROLLBACK}")
    talk.says(talk.transfer(state=within())).hears(f"in transaction rejected 2 {ROLLBACK}")
    talk.says(commit(talk)).hears(f"rejected 3 {ROLLBACK}")
    assert count(talk) == 0


# ---- retirement [4.4.2, 4.4.3]


@pytest.mark.parametrize(
    ("outcome", "stays"),
    [(ACCEPTED, False), (Rejected(), False), (RELEASED, True), (Modified(), True)],
)
@pytest.mark.parametrize("settled", [False, True])
def test_4_4_3_an_outcome_happens_at_the_commit(talk: Talk, outcome, stays, settled):
    controlling(talk, held=1)
    talk.says(settle(1, within(outcome), settled=settled)).hears()
    assert count(talk) == 0
    word = outcome.layout.name
    told = [] if settled else [f"settled 1 {word}"]
    came = talk.says(commit(talk))
    heard = sorted(["accepted 2", *told], key=lambda one: not one.startswith("settled"))
    came.hears(*heard)
    assert count(talk) == stays


def test_4_4_3_rolled_back_a_settled_one_goes_back_and_an_unsettled_one_stays(talk: Talk):
    controlling(talk, held=2)
    talk.says(settle(1, within(ACCEPTED)), settle(2, within(ACCEPTED), settled=False))
    talk.says(roll_back(talk)).hears("accepted 3")
    assert count(talk) == 1
    talk.says(settle(2, ACCEPTED, settled=False)).hears("settled 2 accepted")


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("settled", [False, True])
def test_4_4_3_an_outcome_behind_the_detach_fails_the_transaction(talk: Talk, closed, settled):
    """The message was taken back, and comes again: no commit may say that it will not."""
    controlling(talk, held=1)
    talk.says(detach(1, closed=closed)).hears("detach")
    talk.says(settle(1, within(ACCEPTED), settled=settled), commit(talk))
    talk.hears(f"rejected 2 {ROLLBACK}")
    assert count(talk) == 1


@pytest.mark.parametrize(
    ("first", "last"), [(5, None), (0, None), (1, 2), (0, 1), (2**32 - 1, 1), (1, 2**31)]
)
def test_4_4_3_an_outcome_for_what_never_was_fails_the_transaction(talk: Talk, first, last):
    controlling(talk, held=1)
    talk.says(talk.transfer(state=within(), settled=True))
    talk.says(settle(first, within(ACCEPTED), last), commit(talk)).hears(f"rejected 3 {ROLLBACK}")
    talk.says(detach(1)).hears("detach")
    assert count(talk) == 1


def test_4_4_3_what_was_retired_may_be_settled_behind_the_detach(talk: Talk):
    controlling(talk, held=1)
    talk.says(settle(1, within(ACCEPTED), settled=False), detach(1)).hears("detach")
    talk.says(settle(1, within(ACCEPTED)), commit(talk)).hears("accepted 2")
    assert count(talk) == 0


def test_4_4_3_a_receiver_that_left_leaves_its_work(talk: Talk):
    controlling(talk, held=1)
    talk.says(settle(1, within(ACCEPTED)), detach(1, closed=False)).hears("detach")
    talk.says(commit(talk)).hears("accepted 2")
    assert count(talk) == 0


def test_4_4_3_an_unknown_transaction_ends_the_session_of_an_outcome(talk: Talk):
    controlling(talk, held=1)
    talk.says(settle(1, within(ACCEPTED, b"?"))).hears(f"end {UNKNOWN}")


def test_4_4_3_a_delivery_is_in_one_transaction(talk: Talk):
    controlling(talk, held=1)
    talk.says(asked(talk, Declare())).hears("declared 2")
    talk.says(settle(1, within(ACCEPTED), settled=False), settle(1, within(ACCEPTED, NEXT)))
    talk.hears("end amqp:illegal-state")


def test_4_4_1_one_transaction_holds_posts_and_retirements(talk: Talk):
    controlling(talk, held=2)
    talk.says(talk.transfer(state=within(), settled=True), settle(1, within(ACCEPTED), 2))
    assert count(talk) == 0
    talk.says(roll_back(talk)).hears("accepted 4")
    assert count(talk) == 2


# ---- acquisition [4.4.5]


def test_4_4_5_transactional_acquisition_is_refused_by_name(talk: Talk):
    controlling(talk)
    talk.receiver(2)
    talk.says(flow(2, 1, properties={"txn-id": NAME})).hears("detach amqp:not-implemented")
