"""BLOCK with a reject threshold, and drains: rows P13 to P16, P18 and P19 by their numbers."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.addresses.settings import FullPolicy
from gateway.broker.pressure.admission import Admission, Usage, judge
from gateway.model.errors import Code, RefusedError
from gateway.model.message import STOMP
from gateway.model.run import Run
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.performatives import Accepted, Detach, Disposition, Flow, Rejected
from tests.broker.core import Core, entry
from tests.conformance.clients import Amqp, Stomp, credit_of, plain
from tests.protocols.amqp.peer import condition, names, of

MIB = 1 << 20
BODY = b"x" * (50 << 10)


def blocking(**more: Any) -> Core:
    return Core(
        entry(
            "#",
            address_full_policy=FullPolicy.BLOCK,
            max_size_bytes=MIB,
            max_size_bytes_reject_threshold=2 * MIB,
            **more,
        )
    )


def failing(most: int) -> Core:
    return Core(entry("#", address_full_policy=FullPolicy.FAIL, max_size_messages=most))


def size_of(core: Core, name: str = "q") -> int:
    return core.gateway.addresses[name].size_bytes


def empty(core: Core, name: str = "q") -> None:
    taker = core.consume(name, room=1000)
    taker.ack()
    taker.leave()
    core.sync()


def test_p13_with_one_credit_a_sender_is_stuck_before_the_threshold():
    core = blocking()
    peer = Amqp.at(core, limits=AmqpLimits(amqp_credits=1, amqp_low_credits=1))
    given = credit_of(peer.sender())
    sent = 0
    while given:
        given = credit_of(peer.say(peer.transfer(plain(BODY), settled=True)) + peer.more())
        sent += 1
    assert sent == 21
    assert MIB <= size_of(core) <= 2 * MIB


def fill(core: Core, count: int = 50) -> tuple[Amqp, list[Any]]:
    peer = Amqp.at(core)
    assert credit_of(peer.sender()) >= count
    return peer, peer.give(*[plain(BODY)] * count)


def test_p14_beyond_the_threshold_sends_are_rejected():
    core = blocking()
    _, outcomes = fill(core)
    taken = [type(outcome) for outcome in outcomes]
    assert len(taken) == 50
    count = taken.index(Rejected)
    # The message that passes the threshold is taken, the next one is not.
    assert taken == [Accepted] * count + [Rejected] * (50 - count)
    assert (core.queue("q").message_count, size_of(core) > 2 * MIB) == (count, True)
    assert size_of(core) <= 2 * MIB + len(BODY) + 300
    error = outcomes[-1].error
    assert error.condition == "amqp:resource-limit-exceeded"
    assert "max-size-bytes-reject-threshold is 2097152" in error.description
    assert core.gateway.figures.refused[Code.ADDRESS_FULL] == 50 - count
    core.check()


def test_p15_a_new_sender_has_no_credit_until_there_is_room():
    core = blocking()
    fill(core)
    late = Amqp.at(core)
    assert credit_of(late.sender(handle=1) + late.more()) in (None, 0)
    empty(core)
    assert credit_of(late.more()) > 0
    core.check()


def test_p16_beyond_the_threshold_no_transaction_is_committed():
    core = blocking()
    fill(core)
    route, _ = core.producer("q")
    work = core.gateway.begin()
    assert work.send(route, Run((plain("x"),), 4)) is None
    with pytest.raises(RefusedError) as caught:
        work.commit()
    assert caught.value.refusal.code is Code.ADDRESS_FULL
    assert "reject-threshold" in caught.value.refusal.text
    work.rollback()
    before = core.queue("q").message_count
    # Of a run that would pass the threshold in its middle, nothing is committed either.
    empty(core)
    work = core.gateway.begin()
    for _ in range(50):
        work.send(route, Run((plain(BODY),), 4))
    with pytest.raises(RefusedError):
        work.commit()
    assert (before, core.queue("q").message_count) == (len(range(before)), 0)
    core.check()


def test_stomp_senders_are_not_read_instead_of_refused():
    core = blocking()
    fill(core)
    client = Stomp(core)
    before = core.queue("q").message_count
    assert client.ask("SEND", "late", destination="q") == []
    assert client.session.paused_reading
    assert core.queue("q").message_count == before


def test_presettled_ones_are_dropped_without_a_word():
    core = blocking()
    peer, _ = fill(core, 45)
    before = core.queue("q").message_count
    came = peer.say(peer.transfer(plain(BODY), settled=True)) + peer.more()
    assert (names(came), core.queue("q").message_count) == ([], before)


def test_dead_letters_pass():
    core = Core(
        entry("#", max_delivery_attempts=1),
        entry(
            "DLQ",
            address_full_policy=FullPolicy.BLOCK,
            max_size_bytes=1000,
            max_size_bytes_reject_threshold=1000,
        ),
    )
    core.producer("q")[0].send(Run([plain("x" * 900)] * 5, 4))
    core.turn()
    taker = core.consume("q")
    taker.release(failed=True)
    core.turn()
    assert core.queue("DLQ").message_count == 5
    assert core.gateway.figures.lost_dead_letters == 0


@pytest.mark.parametrize("policy", list(FullPolicy))
@pytest.mark.parametrize("flags", [4, 4 | STOMP])
@pytest.mark.parametrize("size", [99, 100, 200, 201])
def test_each_combination(policy, flags, size):
    core = Core(
        entry(
            "#",
            address_full_policy=policy,
            max_size_bytes=100,
            max_size_bytes_reject_threshold=200,
        )
    )
    settings = core.gateway.settings.for_address("a")
    usage = Usage(size_bytes=size, messages=1, global_bytes=0, global_bytes_max=1 << 40)
    decision, refusal = judge("a", usage, settings, flags)
    wanted = Admission.STORE if size < 100 else Admission[policy.name]
    if policy is FullPolicy.BLOCK and size > 200 and not flags & STOMP:
        wanted = Admission.FAIL
    assert decision is wanted
    assert (refusal is None) == (decision is Admission.STORE)


# ---- drains


def test_p18_the_drain_comes_before_the_rejection():
    core = failing(1)
    peer = Amqp.at(core, limits=AmqpLimits(amqp_credits=3, amqp_low_credits=1, idle_ms=0))
    assert credit_of(peer.sender()) == 3
    assert [type(o) for o in peer.give(plain("1"))] == [Accepted]
    came = peer.say(peer.transfer(plain("2"))) + peer.more()
    assert names(came) == ["flow", "disposition"]
    flow = came[0].performative
    assert (flow.link_credit, flow.drain, flow.delivery_count) == (1, True, 2)
    assert isinstance(came[1].performative.state, Rejected)
    # What still comes on the credit is refused, without another word about draining.
    came = peer.say(peer.transfer(plain("3"))) + peer.more()
    assert names(came) == ["disposition"]
    assert isinstance(came[0].performative.state, Rejected)
    # It has given up its credit by using it, and gets new one when there is room.
    empty(core)
    assert credit_of(peer.more()) == 3
    assert peer.tick(700) == (None, [])
    assert [type(o) for o in peer.give(plain("4"))] == [Accepted]


def draining(core: Core, **limits: Any) -> Amqp:
    """Return a sender with 8 of 10 credits left that was asked to drain."""
    peer = Amqp.at(core, limits=AmqpLimits(amqp_credits=10, amqp_low_credits=3, **limits))
    peer.sender()
    outcomes = peer.give(plain("1"), plain("2"))
    assert [type(o) for o in outcomes] == [Accepted, Rejected]
    return peer


def drained(peer: Amqp, count: int) -> None:
    """Give all credit up [AMQP 2.6.7]."""
    flow = Flow(
        next_incoming_id=1,
        incoming_window=2048,
        next_outgoing_id=2,
        outgoing_window=2048,
        handle=0,
        delivery_count=count,
        link_credit=0,
        drain=True,
    )
    assert peer.tell(flow) == []


def test_p19_a_sender_that_ignores_the_drain_is_detached():
    core = failing(1)
    peer = draining(core, quiesce_ms=5000, idle_ms=0)
    following, came = peer.tick(0)
    assert (following, came) == (peer.now + 5, [])
    assert peer.tick(4.9)[1] == []
    _, came = peer.tick(0.2)
    assert condition(came) == "detach amqp:link:detach-forced"
    (detach,) = of(came, Detach)
    assert detach.closed
    assert "Timed out waiting for remote sender to drain" in detach.error.description
    assert "amqp-link-quiesce-timeout" in detach.error.description
    assert not peer.gone
    assert core.gateway.addresses["q"].producers == {}


@pytest.mark.parametrize("way", ["drained", "used", "room"])
def test_p19_one_that_does_what_it_was_asked_stays(way):
    core = failing(1)
    peer = draining(core, quiesce_ms=5000, idle_ms=0)
    peer.tick(0)
    if way == "drained":
        drained(peer, 10)
    elif way == "used":
        came = peer.say(b"".join(peer.transfer(plain("x")) for _ in range(8)))
        told = of(came, Disposition)
        assert {type(d.state) for d in told} == {Rejected}
        assert sum((d.last or d.first) - d.first + 1 for d in told) == 8
    else:
        empty(core)
        assert credit_of(peer.more()) == 10
    following, came = peer.tick(20)
    assert (following, came) == (None, [])
    if way != "room":
        empty(core)
        assert credit_of(peer.more()) == 10
    # Full again: it is asked again.
    assert [type(o) for o in peer.give(plain("1"))] == [Accepted]
    came = peer.say(peer.transfer(plain("2"))) + peer.more()
    assert [f.drain for f in of(came, Flow)] == [True]
    peer.tick(0)
    assert condition(peer.tick(5.1)[1]) == "detach amqp:link:detach-forced"


def test_p19_nobody_is_asked_where_that_is_switched_off():
    core = failing(1)
    peer = draining(core, drain_on_refusal=False, quiesce_ms=5, idle_ms=0)
    assert peer.tick(9) == (None, [])
    core = failing(1)
    peer = draining(core, quiesce_ms=-1, idle_ms=0)
    assert peer.tick(9000) == (None, [])


def test_p19_a_link_that_left_is_forgotten():
    core = failing(1)
    peer = draining(core, quiesce_ms=5000, idle_ms=0)
    peer.tick(0)
    peer.tell(Detach(handle=0, closed=True))
    assert peer.tick(6) == (None, [])
