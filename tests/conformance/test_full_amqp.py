"""A full address and AMQP senders: what credit promised is taken, and nothing more.

Its counterpart over STOMP, which has no credit, is tests/interop/test_full_senders.py; its
transactions are here.
"""

from __future__ import annotations

import pytest
from proton import Message

from gateway.addresses.settings import FullPolicy
from protocols.amqp.limits import AmqpLimits
from protocols.amqp.performatives import Accepted, Close, Detach, Disposition, Flow, Rejected
from tests.broker.core import Core, entry
from tests.conformance.clients import Amqp, Stomp, credit_of, plain
from tests.conformance.test_branches import divert
from tests.conformance.test_transactions import Client, outcome
from tests.protocols.amqp.peer import of

ONE = AmqpLimits(amqp_credits=1, amqp_low_credits=1)
LIMIT = 5


def blocking() -> Core:
    return Core(
        entry("#", address_full_policy=FullPolicy.BLOCK, max_size_messages=LIMIT),
    )


def held(core: Core, name: str = "q") -> int:
    core.check()
    return core.queue(name).message_count


@pytest.mark.parametrize("settled", [False, True])
def test_p11_each_message_is_given_one_credit_and_never_two(settled):
    core = Core(entry("#", address_full_policy=FullPolicy.BLOCK, max_size_messages=100))
    peer = Amqp.at(core, limits=ONE)
    came = peer.sender() + peer.more()
    for sent in range(20):
        flows = [f for f in of(came, Flow) if f.handle is not None]
        assert flows, f"no credit after {sent} messages"
        # Both numbers say what a sender may use: the credit counts from the delivery-count.
        assert {f.link_credit for f in flows} == {1}
        assert flows[-1].delivery_count == sent
        came = peer.say(peer.transfer(plain("x"), settled=settled)) + peer.more()
    assert held(core) == 20


@pytest.mark.parametrize("settled", [False, True])
def test_p11_what_comes_at_once_beyond_the_one_is_not_stored(settled):
    """Blocked, so that the one is not given again between the transfers."""
    core = blocking()
    peer = Amqp.at(core, limits=ONE)
    assert credit_of(peer.sender()) == 1
    core.gateway.block_address("q", blocked=True)
    came = peer.say(b"".join(peer.transfer(plain("x"), settled=settled) for _ in range(10)))
    came += peer.more()
    (detach,) = of(came, Detach)
    assert detach.error.condition == "amqp:link:transfer-limit-exceeded"
    assert not of(came, Close)
    assert held(core) == 1


@pytest.mark.parametrize("settled", [False, True])
def test_senders_that_attach_to_a_full_address_have_no_credit_and_store_nothing(settled):
    core = blocking()
    peer = Amqp.at(core, limits=ONE)
    given = credit_of(peer.sender())
    sent = 0
    while given:
        given = credit_of(peer.say(peer.transfer(plain("x"), settled=settled)) + peer.more())
        sent += 1
    assert sent == LIMIT
    for _ in range(20):
        late = Amqp.at(core, limits=ONE)
        assert credit_of(late.sender() + late.more()) in (None, 0)
        late.say(late.transfer(plain("x"), settled=settled))
        late.more()
        late.cut()
    assert held(core) == LIMIT


def test_credit_in_flight_is_the_bound_for_those_that_attached_before():
    core = blocking()
    peers = [Amqp.at(core, limits=ONE) for _ in range(20)]
    for peer in peers:
        assert credit_of(peer.sender()) == 1
    for peer in peers:
        assert peer.give(plain("x")) == [Accepted()]
    # Each had one, given when there was room; nobody is given another.
    assert held(core) == 20
    assert all(credit_of(peer.more()) in (None, 0) for peer in peers)


@pytest.mark.parametrize("settled", [False, True])
def test_the_anonymous_relay_stores_nothing_beyond_the_limit(settled):
    core = blocking()
    core.send("q", *[b"x"] * LIMIT)
    for _ in range(20):
        peer = Amqp.at(core)
        peer.sender(address=None)
        came = (
            peer.say(peer.transfer(Message(address="q", body=b"x").encode(), settled=settled))
            + peer.more()
        )
        states = [told.state for told in of(came, Disposition)]
        if not settled:
            (state,) = states
            assert isinstance(state, Rejected)
            assert state.error is not None
            assert state.error.info["x-reason"] == "address-full"
        peer.cut()
    assert held(core) == LIMIT


@pytest.mark.parametrize("settled", [False, True])
def test_a_transaction_is_no_way_around_the_credit_of_a_full_address(settled):
    core = blocking()
    core.send("q", *[b"x"] * LIMIT)
    for _ in range(5):
        one = Client.at(core)
        assert credit_of(one.peer.sender() + one.peer.more()) in (None, 0)
        name = one.declare()
        (detach,) = of(one.post(name, b"x", settled=settled), Detach)
        assert detach.error.condition == "amqp:link:transfer-limit-exceeded"
        assert outcome(one.end(name)) == "accepted"  # of nothing
        one.peer.cut()
    assert held(core) == LIMIT


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_stomp_commit_is_whole_or_nothing_at_a_limit_that_holds_senders(version):
    core = blocking()
    for sends, told in ((100, "ERROR"), (LIMIT, "RECEIPT")):
        one = Stomp(core, version)
        one.do("BEGIN", transaction="t")
        for _ in range(sends):
            one.do("SEND", "x", destination="q", transaction="t")
        ((command, headers, _),) = one.ask("COMMIT", transaction="t")
        assert command == told
        if told == "ERROR":
            assert headers["error-code"] == "address-full"
    assert held(core) == LIMIT


@pytest.mark.parametrize("by_operator", [False, True])
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_stomp_transactions_begun_while_there_was_room_do_not_pass_the_limit(version, by_operator):
    core = blocking()
    several = [Stomp(core, version) for _ in range(20)]
    for one in several:
        one.do("BEGIN", transaction="t")
        one.do("SEND", "x", destination="q", transaction="t")
    if by_operator:
        core.gateway.block_address("q", blocked=True)
    else:
        core.send("q", *[b"x"] * LIMIT)
    for one in several:
        told = one.refused("COMMIT", transaction="t")
        assert told["error-code"]
    assert core.gateway.addresses["q"].messages == (0 if by_operator else LIMIT)


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_stomp_transaction_does_not_pass_the_limit_by_a_divert(version):
    core = blocking()
    core.gateway.directory.make_address("q")
    core.send("other", b"x")
    divert(core, "d", "q", "other")
    one = Stomp(core, version)
    one.do("BEGIN", transaction="t")
    one.do("SEND", "x", destination="q", transaction="t")
    core.send("other", *[b"x"] * (LIMIT - 1))
    assert one.refused("COMMIT", transaction="t")["error-code"] == "address-full"
    assert held(core, "other") == LIMIT


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_stomp_sends_to_a_diverted_address_wait_while_where_it_goes_is_full(version, together):
    core = blocking()
    core.gateway.directory.make_address("q")
    core.send("other", b"x")
    divert(core, "d", "q", "other", exclusive=True)
    one = Stomp(core, version)
    sends = [f"SEND\ndestination:q\nreceipt:{n}\n\n{n}\0" for n in range(2 * LIMIT)]
    came = (
        one.say("".join(sends)) if together else [told for send in sends for told in one.say(send)]
    )
    assert [headers["receipt-id"] for _, headers, _ in came] == [str(n) for n in range(LIMIT - 1)]
    assert held(core, "other") == LIMIT
    taker = core.consume("other", room=LIMIT)
    came = []
    while taker.got:
        taker.ack()
        core.sync()
        came += one.more() + one.more()
        assert held(core, "other") <= LIMIT
        taker.take(LIMIT)
        core.turn()
    told = [headers["receipt-id"] for _, headers, _ in came]
    assert told == [str(n) for n in range(LIMIT - 1, 2 * LIMIT)]


@pytest.mark.parametrize("sends", [1, LIMIT, LIMIT + 1])
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_stomp_transaction_that_makes_the_room_does_not_wait_for_it(version, sends):
    """ACKs and SENDs of one full queue in one transaction: the room comes with its COMMIT."""
    core = blocking()
    core.send("q", *[b"x"] * LIMIT)
    one = Stomp(core, version)
    came = one.do("SUBSCRIBE", destination="q", ack="client-individual", id="s")
    one.do("BEGIN", transaction="t")
    for _, headers, _ in [*came, *one.more()]:
        told = {"id": headers["ack"]} if version == "1.2" else {"message-id": headers["message-id"]}
        one.do(
            "ACK", transaction="t", **told, **({} if version == "1.2" else {"subscription": "s"})
        )
    for _ in range(sends):
        one.do("SEND", "y", destination="q", transaction="t")
    answer = [name for name, _, _ in one.ask("COMMIT", transaction="t") if name != "MESSAGE"]
    if sends <= LIMIT:
        assert answer == ["RECEIPT"]
        assert held(core) == sends
    else:
        assert answer == ["ERROR"], "whole or nothing"
        assert held(core) == LIMIT
