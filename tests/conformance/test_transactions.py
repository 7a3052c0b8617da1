"""The scenario rows of AMQP transactions over the real broker, and what a power cut leaves of one.

What real clients see of them is in tests/interop.
"""

from __future__ import annotations

import pytest

from gateway.addresses.settings import DiskFullPolicy, FullPolicy
from gateway.model.budget import Budget
from gateway.model.message import COUNT_SHIFT
from gateway.model.sections import header_facts, scan
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    Detach,
    Disposition,
    Modified,
    Rejected,
    Source,
    TransactionalState,
)
from tests.broker.core import ANYCAST, MULTICAST, Core, entry
from tests.broker.test_power import states
from tests.conformance.clients import Amqp, Stomp, bodies, data, plain, read, took
from tests.conformance.test_disk import Site
from tests.conformance.test_paging import paged, paging
from tests.protocols.amqp.controlling import CONTROL, Controlling, told
from tests.protocols.amqp.peer import Frame, names, of


@pytest.fixture
def core() -> Core:
    return Core()


class Client(Controlling):
    """A peer at a real broker: its own answers come with those that wait for the disk."""

    peer: Amqp

    @classmethod
    def at(cls, core: Core, **options) -> Client:
        return cls(Amqp.at(core, **options))

    def end(self, name: bytes, *, fail: bool = False) -> list[Frame]:
        """Discharge; returns all that came."""
        return self.discharge(name, fail=fail) + self.peer.more()


def outcome(came: list[Frame]) -> str:
    """Return what the discharge was answered."""
    (line,) = [line for line in told(came) if line.startswith("receiver")]
    return line.split(" ", 2)[2]


def numbered(core: Core, count: int, *, durable: bool = True) -> None:
    """Put so many messages into `q`."""
    peer = Amqp.at(core)
    peer.sender()
    assert peer.give(*[plain(str(i), durable=durable) for i in range(count)]) == [ACCEPTED] * count
    peer.cut()


def mc(core: Core, name: str = "q") -> int:
    core.check()
    return core.queue(name).message_count


# ---- the rows


@pytest.mark.parametrize("settled", [True, False])
def test_q7_a_commit_into_a_full_address_is_rejected(settled):
    core = Core(entry("#", address_full_policy=FullPolicy.FAIL, max_size_bytes=1000))
    one = Client.at(core)
    one.peer.sender()
    name = one.declare()
    for _ in range(5):
        one.post(name, b"x" * 300, settled=settled)
    came = one.end(name)
    assert outcome(came) == "rejected amqp:transaction:rollback"
    error = of(came, Disposition)[-1].state.error
    assert "'q'" in error.description
    assert error.info == {"x-reason": "address-full", "x-retry-after": 5}
    assert mc(core) == 0
    # What fits is committed.
    name = one.declare()
    one.post(name, b"x" * 300, settled=settled)
    assert outcome(one.end(name)) == "accepted"
    assert mc(core) == 1


@pytest.mark.parametrize("commit", [True, False])
def test_q26_three_receivers_on_three_sessions_accept_in_one_transaction(core, commit):
    numbered(core, 3)
    one = Client.at(core)
    name = one.declare()
    for channel in (1, 2, 3):
        one.peer.begin(channel)
        one.peer.receiver(1, channel=channel, credit=1)
    one.peer.more()
    for channel in (1, 2, 3):
        one.retire(name, 1, channel=channel)
    assert mc(core) == 3
    assert outcome(one.end(name, fail=not commit)) == "accepted"
    assert mc(core) == (0 if commit else 3)


def test_q27_rolled_back_and_not_settled_they_stay_and_may_be_accepted_again(core):
    numbered(core, 11)
    one = Client.at(core)
    came = one.peer.receiver(1, credit=10) + one.peer.more()
    assert data(came) == [b"%d" % i for i in range(10)]
    name = one.declare()
    one.retire(name, 1, 5, settled=False)
    assert outcome(one.end(name)) == "accepted"
    assert mc(core) == 6
    name = one.declare()
    one.retire(name, 6, 10, settled=False)
    assert outcome(came := one.end(name, fail=True)) == "accepted"
    assert data(came) == []
    came = one.peer.credit(1) + one.peer.more()
    assert data(came) == [b"10"]
    name = one.declare()
    one.retire(name, 6, 10, settled=False)
    assert told(one.end(name))[-1].endswith("accepted")
    assert mc(core) == 1
    one.peer.settle(11, ACCEPTED)
    assert mc(core) == 0


@pytest.mark.parametrize("settled", [True, False])
def test_q28_q29_a_rolled_back_accept_keeps_its_place(core, settled):
    numbered(core, 10)
    one = Client.at(core)
    one.peer.sender(0)
    first = one.peer.receiver(1, credit=2) + one.peer.more()
    assert data(first) == [b"0", b"1"]
    name = one.declare()
    one.retire(name, 1)
    one.post(name, b"10")
    assert outcome(one.end(name)) == "accepted"
    name = one.declare()
    one.retire(name, 2, settled=settled)
    one.post(name, b"11")
    assert outcome(one.end(name, fail=True)) == "accepted"
    came = one.peer.credit(10) + one.peer.more()
    if settled:
        assert data(came) == [b"%d" % i for i in range(1, 11)]
    else:
        assert data(came) == [b"%d" % i for i in range(2, 11)]
        came = one.peer.settle(2, RELEASED)
        assert data(came) == [b"1"]
    assert next(header_facts(message).delivery_count for _, message in took(came)) == 1


def test_q30_a_coordinator_does_not_run_out_of_credit(core):
    one = Client.at(core)
    for _ in range(1000):
        assert outcome(one.end(one.declare())) == "accepted"


def ring_with_one_delivered():
    """Return a core whose ring of one message has delivered it, to whom, and a transaction."""
    core = Core()
    core.administration.create_queue("q", "q", ANYCAST, ring_size=1)
    numbered(core, 1)
    one = Client.at(core)
    one.peer.sender()
    one.peer.receiver(1, credit=1)
    one.peer.more()
    return core, one, one.declare()


@pytest.mark.parametrize("settled", [True, False])
def test_r3_what_a_transaction_acknowledged_is_in_delivery_and_safe(settled):
    core, one, name = ring_with_one_delivered()
    one.retire(name, 1, settled=settled)
    assert one.peer.give(plain("h1")) == [ACCEPTED]
    queue = core.queue("q")
    assert (queue.message_count, queue.delivering, queue.replaced) == (2, 1, 0)
    assert outcome(one.end(name)) == "accepted"
    assert (queue.message_count, queue.delivering, queue.replaced) == (1, 0, 0)
    core.check()


def test_r4_rolled_back_it_meets_a_full_ring():
    core, one, name = ring_with_one_delivered()
    one.retire(name, 1)
    one.peer.give(plain("h1"))
    assert outcome(one.end(name, fail=True)) == "accepted"
    queue = core.queue("q")
    assert (queue.message_count, queue.delivering, queue.replaced) == (1, 0, 1)
    came = one.peer.credit(1) + one.peer.more()
    assert data(came) == [b"h1"]
    name = one.declare()
    one.retire(name, 2)
    one.end(name)
    assert queue.acknowledged == 1
    core.check()


def test_p26_a_transaction_that_is_rolled_back_leaves_nothing():
    core = paged(max_size_messages=10)
    numbered(core, 12)
    assert paging(core)
    one = Client.at(core)
    one.peer.sender()
    name = one.declare()
    one.post(name, *[b"never"] * 10, durable=True)
    assert outcome(one.end(name, fail=True)) == "accepted"
    came = one.peer.receiver(1, credit=100) + one.peer.more()
    assert data(came) == [b"%d" % i for i in range(12)]
    # And what was read back from pages is acknowledged with others, whole or not at all.
    name = one.declare()
    one.retire(name, 1, 12)
    one.post(name, b"after")
    one.end(name)
    assert data(one.peer.more()) in ([b"after"], [])
    core.sync()
    core.restart()
    assert core.queue("q").message_count <= 1
    core.check()


@pytest.mark.parametrize("again", [False, True])
def test_d15_what_was_sent_before_the_disk_was_full_is_committed(again):
    site = Site(entry("#", disk_full_policy=DiskFullPolicy.FAIL))
    one = Client.at(site.core)
    one.peer.sender()
    name = one.declare()
    one.post(name, b"before", durable=True)
    site.fill()
    if again:
        came = one.post(name, b"refused")
        assert told(came) == ["receiver: 2 in transaction rejected amqp:transaction:rollback"]
    came = one.end(name)
    if again:
        # One part was refused, so that the whole is: the sender was told which.
        assert outcome(came) == "rejected amqp:transaction:rollback"
        assert of(came, Disposition)[0].state.error.info == {
            "x-reason": "disk-full",
            "x-retry-after": 5,
        }
    else:
        assert outcome(came) == "accepted"
        assert mc(site.core) == 1


# ---- beside the rows


@pytest.mark.parametrize(
    ("state", "counts", "left"),
    [
        (ACCEPTED, (0, 0), []),
        (Rejected(), (0, 1), []),
        (RELEASED, (1, 0), [0]),
        (Modified(delivery_failed=True), (1, 0), [1]),
    ],
)
@pytest.mark.parametrize("settled", [True, False])
def test_every_outcome_is_applied_by_the_commit(state, counts, left, settled):
    core = Core(entry("#", dead_letter_address="dead"))
    core.administration.create_queue("dead", "dead", ANYCAST)
    numbered(core, 1)
    one = Client.at(core)
    one.peer.receiver(1, credit=1)
    one.peer.more()
    name = one.declare()
    one.retire(name, 1, outcome=state, settled=settled)
    assert (mc(core), mc(core, "dead")) == (1, 0)
    one.end(name)
    assert (mc(core), mc(core, "dead")) == counts
    assert [m.flags >> COUNT_SHIFT for m in core.queue("q").holdings()] == left


def test_nobody_sees_a_message_before_its_commit_and_then_in_its_place(core):
    one, reader = Client.at(core), Amqp.at(core)
    one.peer.sender()
    reader.receiver(1, credit=10)
    name = one.declare()
    one.post(name, b"1", b"2")
    assert data(reader.more()) == []
    assert one.peer.give(plain("between")) == [ACCEPTED]
    one.end(name)
    assert data(reader.more()) == [b"between", b"1", b"2"]


def test_a_message_of_stomp_is_acknowledged_in_a_transaction_of_amqp(core):
    sender = Stomp(core)
    sender.send("q", "a", "b")
    one = Client.at(core)
    one.peer.sender(0, "r")
    came = one.peer.receiver(1, credit=2) + one.peer.more()
    assert [read(message).value() for _, message in took(came)] == ["a", "b"]
    name = one.declare()
    one.retire(name, 1, 2)
    one.post(name, b"answer")
    one.end(name)
    assert mc(core) == 0
    assert bodies(sender.subscribe("r")) == ["answer"]


def test_a_cut_connection_counts_one_attempt(core):
    numbered(core, 3)
    one = Client.at(core)
    one.peer.receiver(1, credit=3)
    one.peer.more()
    name = one.declare()
    one.retire(name, 1)
    one.retire(name, 2, settled=False)
    one.peer.cut()
    assert [m.flags >> COUNT_SHIFT for m in core.queue("q").holdings()] == [1, 1, 1]
    core.check()


def test_undone_often_enough_it_is_a_dead_letter():
    core = Core(entry("#", dead_letter_address="dead", max_delivery_attempts=3))
    core.administration.create_queue("dead", "dead", ANYCAST)
    numbered(core, 1)
    one = Client.at(core)
    came = one.peer.receiver(1, credit=10) + one.peer.more()
    for attempt in (1, 2, 3):
        (number,) = [number for number, _ in took(came)]
        assert number == attempt
        name = one.declare()
        one.retire(name, number)
        came = one.end(name, fail=True)
    assert (mc(core), mc(core, "dead")) == (0, 1)


def test_a_closed_receiver_holds_its_queue_until_its_transaction_ends(core):
    numbered(core, 2)
    one = Client.at(core)
    one.peer.receiver(1, credit=1)
    one.peer.more()
    name = one.declare()
    one.retire(name, 1)
    one.peer.tell(Detach(handle=1, closed=True))
    core.check()
    reader = Amqp.at(core)
    assert data(reader.receiver(1, credit=5) + reader.more()) == [b"1"]
    one.end(name, fail=True)
    assert data(reader.more()) == [b"0"]
    assert core.queue("q").consumer_count == 1


def test_a_queue_that_is_deleted_meanwhile(core):
    numbered(core, 2)
    one = Client.at(core)
    one.peer.receiver(1, credit=1)
    one.peer.more()
    name = one.declare()
    one.retire(name, 1)
    core.administration.delete_queue("q", remove_consumers=True)
    one.peer.more()
    assert outcome(one.end(name)) == "accepted"
    assert core.gateway.load.messages == 0


def test_a_temporary_queue_that_goes_before_its_transaction(core):
    one = Client.at(core)
    one.peer.sender(0, "q")
    came = one.peer.receiver(1, None, source=Source(dynamic=True), credit=5)
    address = came[0].performative.source.address
    one.peer.sender(2, address)
    one.peer.give(plain("x"), plain("y"), handle=2)
    one.peer.more()
    name = one.declare()
    one.retire(name, 1, settled=False)
    one.peer.tell(Detach(handle=1, closed=True))
    one.peer.tell(Detach(handle=2, closed=True))
    one.post(name, b"kept")
    assert outcome(one.end(name)) == "accepted"
    assert mc(core) == 1
    assert core.gateway.load.messages == 1


@pytest.mark.parametrize("end", ["commit", "abort", "cut", "idle"])
def test_both_protocols_share_the_memory_of_open_transactions(core, end):
    shared = Budget(10_000)
    one = Client.at(core, limits=AmqpLimits(unfinished=shared))
    one.peer.sender(0, "r")
    stomp = Stomp(core, "1.1", unfinished=shared, transaction_seconds=5.0)
    stomp.do("BEGIN", transaction="t")
    stomp.send("q", "x" * 8000, transaction="t")
    name = one.declare()
    assert told(one.post(name, b"y" * 3000))[0].endswith("rejected amqp:transaction:rollback")
    assert one.end(name, fail=True)
    match end:
        case "commit":
            stomp.do("COMMIT", transaction="t")
        case "abort":
            stomp.do("ABORT", transaction="t")
        case "cut":
            stomp.cut()
        case "idle":
            stomp.session.tick(stomp.now + 6.0)
    assert shared.held == 0
    name = one.declare()
    assert told(one.post(name, b"y" * 3000))[0].endswith("in transaction accepted")
    other = Stomp(core, "1.1", unfinished=shared)
    other.do("BEGIN", transaction="t")
    told_so = other.refused("SEND", "x" * 8000, destination="q", transaction="t")
    assert told_so["error-code"] == "memory-full"
    assert other.refused("COMMIT", transaction="t")["error-code"] == "memory-full"
    one.end(name)
    assert shared.held == 0


# ---- power


def test_a_power_cut_leaves_all_of_a_commit_or_nothing():
    core = Core(entry("#", dead_letter_address="dead"))
    core.administration.create_queue("dlq", "dead", ANYCAST)
    for name in ("s1", "s2"):
        core.administration.create_queue(name, "t", MULTICAST)
    core.administration.create_queue("ring", "ring", ANYCAST, ring_size=1)
    core.send("ring", b"old")
    numbered(core, 4)
    one = Client.at(core)
    one.peer.receiver(1, credit=4)
    one.peer.sender(0, None)
    one.peer.more()
    name = one.declare()
    one.retire(name, 1, 2)
    one.retire(name, 3, settled=False)
    one.retire(name, 4, outcome=Rejected(), settled=False)
    for to in (b"t", b"ring", b"r", b"t"):
        properties = b"\x00\x53\x73\xc0" + bytes([5 + len(to), 3]) + b"\x40\x40\xa1"
        durable = b"\x00\x53\x70\xc0\x02\x01\x41"
        body = durable + properties + bytes([len(to)]) + to + b"\x00\x53\x75\xa0\x01n"
        state = TransactionalState(txn_id=name)
        came = one.peer.say(one.peer.transfer(body, state=state))
        assert told(came)[0].endswith("in transaction accepted")
    before = len(core.store.batches)
    came = one.discharge(name)
    assert told(came) == []  # nothing is said before it is durable
    assert told(one.peer.more())[-1].endswith("accepted")
    assert len(core.store.batches) == before + 1
    seen = [tuple(map(len, state)) for state in states(core, "q", "s1", "s2", "dlq", "ring", "r")]
    assert seen[-2:] == [(4, 0, 0, 0, 1, 0), (0, 2, 2, 1, 1, 1)]
    core.restart()
    assert (len(core.waiting("s1")), len(core.waiting("dlq")), core.waiting("q")) == (2, 1, [])
    core.check()


def test_what_was_not_discharged_is_not_there_after_a_cut():
    core = Core()
    numbered(core, 2)
    one = Client.at(core)
    one.peer.sender()
    one.peer.receiver(1, credit=2)
    one.peer.more()
    name = one.declare()
    one.retire(name, 1, 2)
    one.post(name, b"never", durable=True)
    core.sync()
    core.restart()
    assert [scan(m.body).data() for m in core.queue("q").holdings()] == [b"0", b"1"]


def test_a_commit_is_told_only_behind_what_it_took(core):
    numbered(core, 1)
    one = Client.at(core, limits=AmqpLimits())
    one.peer.sender(0, "r")
    one.peer.receiver(1, credit=1)
    one.peer.more()
    name = one.declare()
    one.post(name, b"x", durable=True)
    one.retire(name, 1, settled=False)
    assert names(one.discharge(name)) == []
    lines = told(one.peer.more())
    assert lines == ["sender: 1 accepted", "receiver: 2 accepted"]
    assert CONTROL in one.peer.engine.sessions[0].links


# ---- a send beyond a limit, inside a transaction


@pytest.mark.parametrize("settled", [True, False])
def test_over_amqp_a_send_beyond_a_limit_fails_the_whole_commit_with_the_cause(settled):
    core = Core(entry("#", address_full_policy=FullPolicy.FAIL, max_size_messages=2))
    one = Client.at(core)
    one.peer.sender()
    one.peer.sender(1, address="other")
    name = one.declare()
    came = one.post(name, b"elsewhere", handle=1, settled=settled)
    for _ in range(4):
        came += one.post(name, b"x", settled=settled)
    said = {type(d.state.outcome) for d in of(came, Disposition)}
    assert said == (
        set() if settled else {type(ACCEPTED)}
    )  # taken provisionally: the commit decides
    came = one.end(name)
    assert outcome(came) == "rejected amqp:transaction:rollback"
    assert of(came, Disposition)[-1].state.error.info == {
        "x-reason": "address-full",
        "x-retry-after": 5,
    }
    assert [core.queue(q).added for q in ("q", "other")] == [0, 0]


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_over_stomp_a_send_beyond_a_limit_fails_the_whole_commit_with_the_cause(version):
    core = Core(entry("#", address_full_policy=FullPolicy.FAIL, max_size_messages=2))
    client = Stomp(core, version)
    client.do("BEGIN", transaction="t")
    client.send("other", "elsewhere", transaction="t")
    client.send("q", *"xxxx", transaction="t")  # each with its receipt
    told = client.refused("COMMIT", transaction="t")
    assert told["error-code"] == "address-full"
    assert "'q'" in told["message"] + told["body"]
    assert [core.queue(q).added for q in ("q", "other")] == [0, 0]
