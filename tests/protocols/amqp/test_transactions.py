"""Transactions on one connection [AMQP 4]: what each frame does to one in each state."""

from __future__ import annotations

import pytest

from gateway.model.budget import Budget
from gateway.model.errors import Code, Refusal
from protocols.amqp.coordinator import CAPABILITIES, MESSAGE_BYTES_MAX
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    Attach,
    Close,
    Coordinator,
    Declare,
    Detach,
    Discharge,
    Disposition,
    End,
    Flow,
    Modified,
    Rejected,
    Source,
    Target,
    TransactionalState,
)
from tests.protocols.amqp.controlling import CONTROL, Controlling, asked, told
from tests.protocols.amqp.peer import RECEIVER, Peer, condition, data_message, names, of
from tests.protocols.scripted_broker import FULL

BODY = data_message(b"m")


def controlling(**options) -> Controlling:
    """Return a peer that sends to `q` on handle 0 and receives from `q` on handle 1."""
    peer = Peer.begun(**options)
    peer.sender(0)
    peer.receiver(1, credit=100)
    return Controlling(peer)


def waiting(one: Controlling) -> list[bytes]:
    """Return what was posted and is in no queue."""
    return [run.bodies[0] for work in one.peer.broker.works for run in work.waiting]


def offered(one: Controlling, count: int, **options) -> None:
    one.peer.broker.offer("q", *[BODY] * count, **options)
    assert names(one.peer.hear()) == ["transfer"] * count


def held(one: Controlling) -> list[int]:
    """Return what the receiver has not settled, as far as the session knows."""
    return [m.seq for c in one.peer.engine.sessions[0].unsettled._chunks for m in c.messages]


# ---- the coordinator


@pytest.mark.parametrize("wanted", [(), ("amqp:local-transactions",), ("amqp:distributed",)])
def test_a_coordinator_says_what_it_can_do(wanted):
    peer = Peer.begun()
    one = Controlling(peer, target=Coordinator(capabilities=wanted))
    assert names(one.attached) == ["attach", "flow"]
    answer = of(one.attached, Attach)[0]
    assert answer.target == Coordinator(capabilities=CAPABILITIES)
    assert answer.max_message_size == MESSAGE_BYTES_MAX
    assert of(one.attached, Flow)[0].link_credit == 1000


def test_a_declare_has_an_id_that_nobody_had():
    one = controlling()
    ids = [one.declare() for _ in range(3)]
    one.discharge(ids[0])
    assert len({*ids, one.declare()}) == 4


def test_messages_around_a_declare_are_passed_over():
    one = controlling()
    header = b"\x00\x53\x70\xc0\x02\x01\x41"
    properties = b"\x00\x53\x73\xc0\x04\x01\xa1\x01x"
    body = header + properties + asked(Declare())
    came = one.peer.say(one.peer.transfer(body, CONTROL))
    assert told(came) == ["receiver: 0 declared"]


def test_commands_may_come_in_several_frames_and_in_one_read():
    one = controlling()
    body = asked(Declare())
    peer = one.peer
    data = peer.transfer(body[:2], CONTROL, more=True)
    data += peer.transfer(body[2:], CONTROL, delivery_id=None)
    data += b"".join(peer.transfer(body, CONTROL) for _ in range(3))
    assert [line.split()[2] for line in told(peer.say(data))] == ["declared"] * 4


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "amqp:invalid-field"),
        (b"\x00", "amqp:decode-error"),
        (BODY, "amqp:invalid-field"),
        (b"\x00\x53\x77\x40", "amqp:invalid-field"),
        (b"\x00\x53\x77\x00\x53\x99\x45", "amqp:invalid-field"),
        (asked(ACCEPTED), "amqp:invalid-field"),
        (b"\x00\x53\x77\x00\x53\x32\x45", "amqp:decode-error"),
        (b"\x00\x53\x77\x00\x53\x32\xc0\x03\x01\xa1\x00", "amqp:decode-error"),
        (asked(Declare(global_id=b"g")), "amqp:not-implemented"),
        (asked(Discharge(txn_id=b"none")), "amqp:transaction:unknown-id"),
        (asked(Discharge(txn_id=b"none", fail=True)), "amqp:transaction:unknown-id"),
    ],
)
def test_what_a_coordinator_does_not_understand_is_rejected(body, error):
    one = controlling()
    assert told(one.peer.say(one.peer.transfer(body, CONTROL))) == [f"receiver: 0 rejected {error}"]
    assert one.declare()


def test_symbolic_descriptors_are_understood():
    one = controlling()
    name = b"amqp:declare:list"
    body = b"\x00\x53\x77\x00\xa3" + bytes([len(name)]) + name + b"\x45"
    assert told(one.peer.say(one.peer.transfer(body, CONTROL))) == ["receiver: 0 declared"]


@pytest.mark.parametrize("fields", [{"message_format": 7}, {"state": ACCEPTED}])
def test_transfers_to_the_coordinator_are_plain(fields):
    one = controlling()
    (line,) = told(one.peer.say(one.peer.transfer(asked(Declare()), CONTROL, **fields)))
    assert line.startswith("receiver: 0 rejected amqp:")


@pytest.mark.parametrize("command", [Declare(), Discharge(txn_id=b"x")])
def test_a_settled_command_ends_the_link(command):
    one = controlling()
    came = one.ask(command, settled=True)
    assert condition(came) == "detach amqp:not-allowed"


def test_a_long_message_to_the_coordinator_ends_the_link():
    one = controlling()
    came = one.peer.say(one.peer.transfer(b"x" * (MESSAGE_BYTES_MAX + 1), CONTROL))
    assert condition(came) == "detach amqp:link:message-size-exceeded"


@pytest.mark.parametrize(
    ("outcomes", "answer"),
    [
        ((), "receiver: 0 rejected amqp:transaction:unknown-id"),
        (("amqp:accepted:list", "amqp:rejected:list"), "receiver: 0 rejected amqp:transaction:"),
        (("amqp:accepted:list",), "detach amqp:transaction:unknown-id"),
    ],
)
def test_who_cannot_be_rejected_is_detached(outcomes, answer):
    peer = Peer.begun()
    one = Controlling(peer, source=Source(outcomes=outcomes))
    came = one.discharge(b"none")
    assert (told(came) or [condition(came)])[0].startswith(answer)
    assert (of(came, Detach) or of(came, Disposition))[0]


def test_too_many_transactions_are_rejected_and_one_less_is_not():
    one = controlling(limits=AmqpLimits(transactions_max=2))
    first, _ = one.declare(), one.declare()
    (line,) = told(one.ask(Declare()))
    assert line.endswith("rejected amqp:resource-limit-exceeded")
    one.discharge(first, fail=True)
    assert one.declare()


def test_credit_of_a_coordinator_never_runs_out():
    one = controlling()
    for _ in range(1000):
        assert "accepted" in told(one.discharge(one.declare()))[0]


# ---- what each thing does in each state


def declared(one: Controlling) -> bytes:
    return one.declare()


def committed(one: Controlling) -> bytes:
    name = one.declare()
    one.discharge(name)
    return name


def undone(one: Controlling) -> bytes:
    name = one.declare()
    one.discharge(name, fail=True)
    return name


def failed(one: Controlling) -> bytes:
    """A part was refused."""
    name = one.declare()
    one.peer.broker.disk = Refusal(code=Code.DISK_FULL, text="Disk.", transient=True)
    assert "rejected" in told(one.post(name, b"refused"))[0]
    one.peer.broker.disk = None
    return name


def idle(one: Controlling) -> bytes:
    name = one.declare()
    one.post(name, b"late")
    one.peer.tick(31.0)
    return name


STATES = {f.__name__: f for f in (declared, committed, undone, failed, idle)}
INPUTS = {
    "commit": lambda one, name: one.discharge(name),
    "rollback": lambda one, name: one.discharge(name, fail=True),
    "transfer": lambda one, name: one.post(name, b"new"),
    "settled transfer": lambda one, name: one.post(name, b"new", settled=True),
    "disposition": lambda one, name: one.retire(name, 1),
    "unsettled disposition": lambda one, name: one.retire(name, 1, settled=False),
}
UNKNOWN = "amqp:transaction:unknown-id"
ROLLBACK = "amqp:transaction:rollback"
TIMEOUT = "amqp:transaction:timeout"
OVER = {
    "commit": f"rejected {UNKNOWN}",
    "rollback": f"rejected {UNKNOWN}",
    "transfer": f"rejected {UNKNOWN}",
    "settled transfer": f"detach {UNKNOWN}",
    "disposition": f"end {UNKNOWN}",
    "unsettled disposition": f"end {UNKNOWN}",
}
TABLE = {
    "declared": {
        "commit": "accepted",
        "rollback": "accepted",
        "transfer": "in transaction accepted",
        "settled transfer": "-",
        "disposition": "-",
        "unsettled disposition": "-",
    },
    "committed": OVER,
    "undone": OVER,
    "failed": {
        "commit": f"rejected {ROLLBACK}",
        "rollback": "accepted",
        "transfer": f"in transaction rejected {ROLLBACK}",
        "settled transfer": "-",
        "disposition": "-",
        "unsettled disposition": "-",
    },
    "idle": {
        "commit": f"rejected {TIMEOUT}",
        "rollback": "accepted",
        "transfer": f"in transaction rejected {TIMEOUT}",
        "settled transfer": "-",
        "disposition": "-",
        "unsettled disposition": "-",
    },
}


@pytest.mark.parametrize("given", sorted(INPUTS))
@pytest.mark.parametrize("state", sorted(STATES))
def test_frame_in_state(state, given):
    one = controlling(limits=AmqpLimits(transaction_seconds=30.0))
    offered(one, 1)
    name = STATES[state](one)
    came = INPUTS[given](one, name)
    lines = [line.split(" ", 2)[2] for line in told(came)] or [condition(came) or "-"]
    assert lines == [TABLE[state][given]]
    one.peer.engine.connection_lost(one.peer.now)
    broker = one.peer.broker
    assert all(work.over for work in broker.works)
    assert broker.subscriptions == []
    assert one.peer.limits.unfinished.held == 0
    assert one.peer.engine.links == 0
    assert broker.bodies() == []


# ---- posting


def test_posts_are_there_when_the_commit_is_durable():
    one = controlling()
    name = one.declare()
    came = one.post(name, b"1", b"2", durable=True)
    assert told(came) == ["receiver: 1-2 in transaction accepted"]
    assert all(d.settled for d in of(came, Disposition))
    assert one.peer.broker.sent == []
    assert told(one.discharge(name)) == []
    assert [body[-1:] for body in one.peer.broker.bodies()] == [b"1", b"2"]
    assert told(one.peer.sync()) == ["receiver: 3 accepted"]


def test_transactions_take_turns_and_do_not_meet():
    one = controlling()
    first, second = one.declare(), one.declare()
    for name, body in ((first, b"1"), (second, b"2"), (first, b"3")):
        one.post(name, body, settled=True)
    one.peer.send(b"outside")
    one.discharge(second, fail=True)
    one.discharge(first)
    assert [body[-1:] for body in one.peer.broker.bodies()] == [b"e", b"1", b"3"]


def test_a_post_has_its_flags_expiry_and_time():
    one = controlling()
    name = one.declare()
    header = b"\x00\x53\x70\xc0\x06\x03\x41\x50\x07\x52\x64"  # durable, priority 7, ttl 100
    state = TransactionalState(txn_id=name)
    one.peer.say(one.peer.transfer(header + BODY, state=state))
    one.discharge(name)
    _, body, flags, expires = one.peer.broker.sent[0]
    assert (body, expires) == (header + BODY, one.peer.broker.clock_ms + 100)
    assert flags & 15 == 7
    assert flags & 16


def test_posts_to_a_relay_find_their_own_address():
    one = controlling()
    one.peer.sender(3, None)
    name = one.declare()
    to = b"\x00\x53\x73\xc0\x06\x03\x40\x40\xa1\x01"
    for address in (b"a", b"b"):
        state = TransactionalState(txn_id=name)
        one.peer.say(one.peer.transfer(to + address + BODY, 3, state=state))
    (line,) = told(one.post(name, b"no to", handle=3))
    assert line.endswith(f"in transaction rejected {ROLLBACK}")
    assert told(one.discharge(name))[0].endswith(f"rejected {ROLLBACK}")
    assert one.peer.broker.sent == []


def test_a_delivery_of_several_frames_belongs_to_one_transaction():
    one = controlling()
    name = one.declare()
    state = TransactionalState(txn_id=name)
    parts = BODY[:3], BODY[3:]
    for behind in (state, None):
        came = one.peer.say(one.peer.transfer(parts[0], more=True, state=state))
        assert came == []
        came = one.peer.say(one.peer.transfer(parts[1], delivery_id=None, state=behind))
        assert told(came)[0].endswith("in transaction accepted")
    assert waiting(one) == [BODY, BODY]


@pytest.mark.parametrize("first", [None, TransactionalState(txn_id=b"other")])
def test_a_frame_that_names_another_transaction_than_the_first_ends_the_link(first):
    one = controlling()
    state = TransactionalState(txn_id=one.declare())
    one.peer.say(one.peer.transfer(BODY[:3], more=True, state=first))
    came = one.peer.say(one.peer.transfer(BODY[3:], delivery_id=None, state=state))
    assert condition(came) == "detach amqp:invalid-field"
    assert waiting(one) == one.peer.broker.sent == []


def test_a_discharge_amid_a_delivery_rolls_back_and_ends_the_link():
    """[AMQP 4.4.4]."""
    one = controlling()
    name, other = one.declare(), one.declare()
    one.post(name, b"whole")
    state = TransactionalState(txn_id=name)
    one.peer.say(one.peer.transfer(BODY[:3], more=True, state=state))
    assert told(one.discharge(other))[0].endswith("accepted")
    came = one.discharge(name)
    assert condition(came) == f"detach {ROLLBACK}"
    assert waiting(one) == one.peer.broker.sent == []
    came = one.peer.say(one.peer.transfer(BODY[3:], delivery_id=None))
    assert told(came)[0].endswith(f"rejected {UNKNOWN}")


def test_an_aborted_delivery_is_not_in_its_transaction():
    one = controlling()
    name = one.declare()
    state = TransactionalState(txn_id=name)
    one.peer.say(one.peer.transfer(BODY[:3], more=True, state=state))
    one.peer.say(one.peer.transfer(b"", delivery_id=None, aborted=True))
    assert told(one.discharge(name))[0].endswith("accepted")
    assert one.peer.broker.sent == []


def test_a_link_that_is_closed_leaves_its_posts():
    one = controlling()
    name = one.declare()
    one.post(name, b"1")
    one.peer.tell(Detach(handle=0, closed=True))
    one.discharge(name)
    assert len(one.peer.broker.sent) == 1


def test_a_commit_that_is_refused_does_nothing_and_says_why():
    one = controlling()
    offered(one, 2)
    name = one.declare()
    one.post(name, b"1", settled=True)
    one.retire(name, 1)
    one.retire(name, 2, settled=False)
    one.peer.broker.refuse_commit = FULL
    came = one.discharge(name)
    (answer,) = of(came, Disposition)
    assert answer.state.error.condition == ROLLBACK
    assert FULL.text in answer.state.error.description
    assert answer.state.error.info == {"x-reason": "address-full", "x-retry-after": 5}
    assert one.peer.broker.sent == []
    assert one.peer.broker.of("release failed") == [("q", [1])]
    assert sorted(held(one)) == [1, 2]  # one came again, the other was never given back


# ---- limits


def test_more_than_so_many_parts_fail_the_transaction():
    one = controlling(limits=AmqpLimits(transaction_items_max=3))
    offered(one, 4)
    name, other = one.declare(), one.declare()
    one.retire(name, 1, 2)
    one.post(name, b"1")
    assert told(one.post(name, b"2"))[0].endswith(f"in transaction rejected {ROLLBACK}")
    assert waiting(one) == []
    one.retire(other, 3, 4)
    one.retire(other, 3, 4)
    assert told(one.discharge(other))[0].endswith("accepted")
    (answer,) = of(one.discharge(name), Disposition)
    assert "the limit is 3" in answer.state.error.description


def test_outcomes_beyond_the_limit_fail_the_transaction():
    one = controlling(limits=AmqpLimits(transaction_items_max=3))
    offered(one, 4)
    name = one.declare()
    one.post(name, b"1")
    one.retire(name, 1, 4)
    assert waiting(one) == []
    assert told(one.discharge(name))[0].endswith(f"rejected {ROLLBACK}")
    assert one.peer.broker.of("release failed") == [("q", [4, 3, 2, 1])]


def test_more_than_so_many_bytes_fail_the_transaction():
    one = controlling(limits=AmqpLimits(transaction_bytes_max=1000))
    name = one.declare()
    assert "accepted" in told(one.post(name, b"x" * 600))[0]
    assert "rejected" in told(one.post(name, b"x" * 600))[0]
    assert one.peer.limits.unfinished.held == 0
    (answer,) = of(one.discharge(name), Disposition)
    assert "the limit is 1000" in answer.state.error.description


def test_transactions_share_one_budget_with_all_connections():
    shared = Budget(5000)
    limits = AmqpLimits(unfinished=shared)
    one, two = controlling(limits=limits), controlling(limits=limits)
    first, second = one.declare(), two.declare()
    assert "accepted" in told(one.post(first, b"x" * 3000))[0]
    assert "rejected" in told(two.post(second, b"x" * 3000))[0]
    two.discharge(second, fail=True)
    one.discharge(first)
    assert shared.held == 0
    third = two.declare()
    assert "accepted" in told(two.post(third, b"x" * 3000))[0]
    two.peer.engine.connection_lost(0.0)
    assert shared.held == 0


# ---- time


def test_a_transaction_with_work_in_it_is_not_idle_for_ever():
    one = controlling(limits=AmqpLimits(transaction_seconds=20.0, idle_ms=0))
    assert one.peer.tick(1.0)[0] is None
    name, empty = one.declare(), one.declare()
    assert one.peer.tick(1000.0)[0] is None  # nothing is in them
    one.peer.engine.retick = False
    offered(one, 2)
    one.retire(name, 1)
    assert one.peer.engine.retick
    assert one.peer.tick(15.0)[0] == one.peer.now + 5.0
    one.retire(name, 2, settled=False)
    assert one.peer.tick(15.0)[0] == one.peer.now + 5.0
    following, came = one.peer.tick(5.0)
    assert following is None
    assert names(came) == ["transfer"]  # what it had settled; the other one stays with it
    assert one.peer.broker.of("release failed") == [("q", [1])]
    assert sorted(held(one)) == [1, 2]
    assert told(one.discharge(empty))[0].endswith("accepted")


def test_what_comes_into_an_expired_one_goes_back_as_well():
    one = controlling(limits=AmqpLimits(transaction_seconds=20.0, idle_ms=0))
    offered(one, 1)
    name = one.declare()
    one.retire(name, 1)
    assert names(one.peer.tick(20.0)[1]) == ["transfer"]
    one.retire(name, 2)
    assert names(one.peer.tick(20.0)[1]) == ["transfer"]
    one.retire(name, 3)
    assert told(one.discharge(name))[0].endswith(f"rejected {TIMEOUT}")
    assert one.peer.broker.of("release failed") == [("q", [1])] * 3


# ---- retiring


OUTCOMES = {
    "acknowledge": ACCEPTED,
    "reject": Rejected(),
    "release": RELEASED,
    "release failed": Modified(delivery_failed=True),
}


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("call", sorted(OUTCOMES))
def test_an_outcome_happens_at_the_commit(call, settled):
    one = controlling()
    offered(one, 3)
    name = one.declare()
    assert one.retire(name, 1, 2, outcome=OUTCOMES[call], settled=settled) == []
    assert one.peer.broker.of(call) == []
    assert held(one) == ([3] if settled else [1, 2, 3])
    came = one.discharge(name)
    assert [sorted(seqs) for _, seqs in one.peer.broker.of(call)] == [[1, 2]]
    back = [line for line in told(came) if line.startswith("sender")]
    words = {"acknowledge": "accepted", "reject": "rejected", "release": "released"}
    assert back == ([] if settled else [f"sender: 1-2 {words.get(call, 'modified')}"])
    assert not set(held(one)) & ({1, 2} if "release" not in call else set())


def test_undeliverable_here_holds_at_the_commit():
    one = controlling()
    offered(one, 1)
    name = one.declare()
    one.retire(name, 1, outcome=Modified(undeliverable_here=True))
    assert names(one.discharge(name)) == ["disposition"]
    assert one.peer.broker.subscriptions[0].barred == {1}


@pytest.mark.parametrize("default", [None, ACCEPTED, Rejected()])
def test_settled_without_outcome_has_the_default_of_its_source(default):
    peer = Peer.begun()
    peer.receiver(1, credit=10, source=Source(address="q", default_outcome=default))
    one = Controlling(peer)
    offered(one, 1)
    name = one.declare()
    one.retire(name, 1, outcome=None)
    one.discharge(name)
    call = {None: "release", ACCEPTED: "acknowledge", Rejected(): "reject"}[default]
    assert peer.broker.of(call) == [("q", [1])]


def test_unsettled_without_outcome_is_not_in_a_transaction():
    one = controlling()
    offered(one, 1)
    name = one.declare()
    one.retire(name, 1, outcome=None, settled=False)
    one.discharge(name)
    assert one.peer.broker.of("release") == one.peer.broker.of("acknowledge") == []
    assert held(one) == [1]


def test_settling_back_waits_for_the_disk_and_covers_ranges():
    one = controlling()
    offered(one, 6, flags=4 | 16)
    name = one.declare()
    for first, last, outcome in ((1, 2, ACCEPTED), (3, 3, Rejected()), (5, 6, ACCEPTED)):
        one.retire(name, first, last, outcome=outcome, settled=False)
    assert one.discharge(name) == []
    assert told(one.peer.sync()) == [
        "sender: 1-2 accepted",
        "sender: 3 rejected",
        "sender: 5-6 accepted",
        "receiver: 1 accepted",
    ]
    assert held(one) == [4]


def test_rolled_back_and_settled_it_comes_again():
    one = controlling()
    offered(one, 3)
    name = one.declare()
    one.retire(name, 1, 2)
    came = one.discharge(name, fail=True)
    assert names(came) == ["disposition", "transfer", "transfer"]
    assert one.peer.broker.of("release failed") == [("q", [2, 1])]


def test_rolled_back_and_not_settled_it_stays_with_its_receiver():
    one = controlling()
    offered(one, 3)
    name = one.declare()
    one.retire(name, 1, 2, settled=False)
    assert names(one.discharge(name, fail=True)) == ["disposition"]
    assert held(one) == [1, 2, 3]
    # It may be accepted in another one, and counts as an attempt when it does go back.
    again = one.declare()
    one.retire(again, 1)
    one.discharge(again)
    assert one.peer.broker.of("acknowledge") == [("q", [1])]
    one.peer.tell(Disposition(role=RECEIVER, first=2, last=3, settled=True, state=RELEASED))
    assert one.peer.broker.of("release failed") == [("q", [2])]
    assert one.peer.broker.of("release") == [("q", [3])]
    assert one.peer.engine.sessions[0].links[1].attempted == set()


@pytest.mark.parametrize("outcome", [RELEASED, Modified(), Modified(delivery_failed=True)])
def test_an_undone_delivery_that_is_given_back_in_another_one_counts_once(outcome):
    one = controlling()
    offered(one, 2)
    name = one.declare()
    one.retire(name, 1, settled=False)
    one.discharge(name, fail=True)
    again = one.declare()
    one.retire(again, 1, 2, outcome=outcome)
    one.discharge(again)
    failed_ones = [s for _, seqs in one.peer.broker.of("release failed") for s in seqs]
    counts = isinstance(outcome, Modified) and outcome.delivery_failed
    assert sorted(failed_ones) == ([1, 2] if counts else [1])
    assert one.peer.engine.sessions[0].links[1].attempted == set()


def test_enlisted_unsettled_and_then_settled_it_is_the_transactions():
    one = controlling()
    offered(one, 4)
    name = one.declare()
    one.retire(name, 1, 3, settled=False)
    one.retire(name, 1, 1)  # in the transaction
    one.peer.tell(Disposition(role=RECEIVER, first=2, settled=True))  # and outside
    assert held(one) == [3, 4]
    one.discharge(name, fail=True)
    assert one.peer.broker.of("release failed") == [("q", [2, 1])]


def test_settled_outside_and_committed_it_has_the_outcome_of_the_transaction():
    one = controlling()
    offered(one, 1)
    name = one.declare()
    one.retire(name, 1, settled=False)
    came = one.peer.tell(Disposition(role=RECEIVER, first=1, settled=True, state=RELEASED))
    assert came == []
    assert names(one.discharge(name)) == ["disposition"]
    assert one.peer.broker.of("acknowledge") == [("q", [1])]
    assert one.peer.broker.of("release") == []


@pytest.mark.parametrize("same", [False, True])
def test_a_second_fate_ends_the_session(same):
    one = controlling()
    offered(one, 3)
    name, other = one.declare(), one.declare()
    one.retire(name, 2, settled=False)
    came = one.retire(name if same else other, 1, 3, outcome=RELEASED)
    assert condition(came) == "end amqp:illegal-state"
    assert name.hex() in of(came, End)[0].error.description
    # Its coordinator went with it: everything is back.
    assert one.peer.broker.of("acknowledge") == []
    assert sorted(m.seq for m in one.peer.broker.queues["q"]) == [1, 2, 3]


def test_ranges_over_several_links_and_none_of_them():
    one = controlling()
    one.peer.receiver(2, "r", credit=10)
    name = one.declare()
    offered(one, 1)
    one.peer.broker.offer("r", BODY, BODY)
    one.peer.hear()
    offered(one, 1)
    one.retire(name, 1, 4)
    assert told(one.discharge(name)) == ["receiver: 1 accepted"]
    assert one.peer.broker.of("acknowledge") == [("q", [1]), ("r", [2, 3]), ("q", [4])]


def test_one_transaction_over_sessions():
    one = controlling()
    one.peer.begin(5)
    one.peer.receiver(1, "r", channel=5, credit=10)
    one.peer.sender(0, "s", channel=5)
    offered(one, 1)
    one.peer.broker.offer("r", BODY)
    one.peer.hear()
    name = one.declare()
    one.retire(name, 1)
    one.retire(name, 1, channel=5, settled=False)
    one.post(name, b"x", channel=5)
    came = one.discharge(name)
    assert [d.channel for d in came if d.name == "disposition"] == [5, 0]
    assert one.peer.broker.of("acknowledge") == [("q", [1]), ("r", [2])]
    assert one.peer.broker.sent[0][0] == "s"


# ---- ends


def worked() -> tuple[Controlling, bytes]:
    """Return one with a transaction: 1 retired and settled, 2 retired, 3 not, and a post."""
    one = controlling()
    offered(one, 3)
    name = one.declare()
    one.retire(name, 1)
    one.retire(name, 2, settled=False)
    one.post(name, b"post")
    return one, name


def test_a_coordinator_that_goes_rolls_back():
    one, name = worked()
    one.control(8)
    came = one.peer.tell(Detach(handle=CONTROL, closed=True))
    assert names(came) == ["detach", "transfer"]
    assert one.peer.broker.of("release failed") == [("q", [1])]
    assert sorted(held(one)) == [1, 2, 3]
    assert waiting(one) == one.peer.broker.sent == []
    assert told(one.discharge(name, handle=8))[0].endswith(f"rejected {UNKNOWN}")


def test_another_coordinator_of_the_connection_may_discharge():
    one, name = worked()
    one.peer.begin(4)
    one.control(2, channel=4)
    came = one.ask(Discharge(txn_id=name), 2, channel=4)
    assert told(came) == ["sender: 2 accepted", "receiver: 0 accepted"]


def test_a_receiver_that_closes_leaves_its_work_in_the_transaction():
    one, name = worked()
    one.peer.tell(Detach(handle=1, closed=True))
    assert one.peer.broker.of("release") == [("q", [3])]
    assert len(one.peer.broker.subscriptions) == 1  # until the transaction is over
    assert names(one.discharge(name)) == ["disposition"]
    assert one.peer.broker.of("acknowledge") == [("q", [1, 2])]
    assert one.peer.broker.subscriptions == []
    assert one.peer.engine.links == 2


def test_a_receiver_that_closed_gets_nothing_more():
    one, name = worked()
    one.peer.tell(Detach(handle=1, closed=True))
    one.peer.broker.offer("q", BODY)
    assert one.peer.hear() == []
    one.peer.broker.drop_queue("q")
    assert one.peer.hear() == []
    assert names(one.discharge(name, fail=True)) == ["disposition"]
    assert one.peer.broker.of("release failed") == [("q", [2, 1])]
    assert one.peer.broker.subscriptions == []


def test_a_durable_subscription_that_is_closed_goes_behind_its_transaction():
    peer = Peer.begun()
    peer.receiver(
        1, credit=10, name="sub", source=Source(address="t", durable=2, capabilities=("topic",))
    )
    one = Controlling(peer)
    peer.broker.offer("peer.sub", BODY)
    peer.hear()
    name = one.declare()
    one.retire(name, 1)
    peer.tell(Detach(handle=1, closed=True))
    assert peer.broker.of("delete subscription") == []
    one.discharge(name)
    assert peer.broker.of("delete subscription") == [("peer.sub",)]
    assert peer.broker.of("acknowledge") == [("peer.sub", [1])]


def test_a_session_that_ends_leaves_its_work_in_the_transaction():
    one = controlling()
    one.peer.begin(5)
    one.peer.receiver(1, "r", channel=5, credit=10)
    one.peer.broker.offer("r", BODY, BODY, BODY)
    one.peer.hear()
    name = one.declare()
    one.retire(name, 1, channel=5)
    one.retire(name, 2, channel=5, settled=False)
    assert names(one.peer.tell(End(), 5)) == ["end"]
    assert one.peer.broker.of("release") == [("r", [3])]
    assert told(one.discharge(name)) == ["receiver: 1 accepted"]
    assert one.peer.broker.of("acknowledge") == [("r", [1, 2])]


@pytest.mark.parametrize("how", ["end", "close", "lost", "stop", "fault"])
def test_every_other_end_rolls_back(how):
    one, _ = worked()
    peer = one.peer
    match how:
        case "end":
            peer.tell(End())
        case "close":
            assert names(peer.tell(Close())) == ["close"]
        case "lost":
            peer.engine.connection_lost(peer.now)
        case "stop":
            peer.engine.stop(peer.now)
        case "fault":
            assert "close" in names(peer.say(b"\xff" * 8))
    broker = peer.broker
    assert broker.sent == []
    back = [
        seq for kind in ("release", "release failed") for _, seqs in broker.of(kind) for seq in seqs
    ]
    assert sorted(back) == [1, 2, 3]
    counted = [seq for _, seqs in broker.of("release failed") for seq in seqs]
    # An attempt is counted once, whether it was the transaction's end or the connection's. What its
    # holder did not give back itself counts as one: it may have seen it.
    assert sorted(counted) == ([1, 2] if how in ("end", "close") else [1, 2, 3])
    assert broker.subscriptions == []
    assert all(work.over for work in broker.works)
    assert peer.limits.unfinished.held == 0
    peer.engine.connection_lost(peer.now)
    assert peer.engine.links == 0


def test_a_temporary_queue_that_goes_before_its_transaction():
    one = controlling()
    came = one.peer.receiver(4, None, source=Source(dynamic=True), credit=10)
    address = of(came, Attach)[0].source.address
    one.peer.broker.offer(address, BODY)
    one.peer.hear()
    name = one.declare()
    one.retire(name, 1)
    one.peer.tell(Detach(handle=4, closed=True))
    assert one.peer.broker.temporaries == set()
    assert names(one.discharge(name)) == ["disposition"]


def test_transactional_acquisition_is_refused_by_name():
    one = controlling()
    flow = {"properties": {"txn-id": one.declare()}}
    came = one.peer.credit(5, 1, **flow)
    assert condition(came) == "detach amqp:not-implemented"
    assert "4.4.5" in of(came, Detach)[0].error.description


def test_coordinators_with_a_target_for_messages_are_two_things():
    one = controlling()
    assert names(one.peer.sender(2, target=Target(address="q"), name="plain")) == ["attach", "flow"]
    (line,) = told(one.ask(Declare(), 2))
    assert line == "receiver: 0 accepted"  # a message like any
