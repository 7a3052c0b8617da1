"""Connections of one container: sole connections, and links that are stolen [AMQP 2.6.1]."""

from __future__ import annotations

import pytest

from gateway.model.amqp_types import Symbol, UInt
from gateway.model.principal import Principal
from protocols.amqp.containers import CLOSE_EXISTING, POLICY, REFUSE_CONNECTION, Containers
from protocols.amqp.performatives import (
    Accepted,
    Close,
    Detach,
    Disposition,
    Open,
    Source,
    TransactionalState,
)
from tests.broker.core import ANYCAST, MULTICAST, Core
from tests.conformance.clients import Amqp, plain, took
from tests.protocols.amqp.controlling import Controlling
from tests.protocols.amqp.peer import AMQP_HEADER, RECEIVER, Peer, condition, frame, names, of

SOLE = ("sole-connection-for-container",)


def sole(policy: object = None) -> dict[str, object]:
    properties = None if policy is None else {POLICY: policy}
    return {"desired_capabilities": SOLE, "properties": properties}


def opening(containers: Containers, *, user: str | None = None, **fields) -> tuple[Peer, list]:
    """Return a peer that says open, and what came."""
    peer = Peer(containers=containers)
    peer.engine.principal = Principal(user)
    fields.setdefault("container_id", "me")
    return peer, peer.say(AMQP_HEADER + frame(Open(**fields)))


# ---- the only connection of a container


@pytest.mark.parametrize("policy", [None, UInt(REFUSE_CONNECTION)])
def test_a_second_connection_that_is_to_be_the_only_one_is_refused(policy):
    containers = Containers()
    first, _ = opening(containers)
    second, came = opening(containers, **sole(policy))
    assert names(came) == ["header", "open", "close"]
    assert of(came, Open)[0].properties["amqp:connection-establishment-failed"] is True
    error = of(came, Close)[0].error
    assert error.condition == "amqp:invalid-field"
    assert error.info == {"invalid-field": "container-id"}
    assert second.gone
    assert first.hear() == []
    first.tell(Close())
    _, came = opening(containers, **sole(policy))
    assert names(came) == ["header", "open"]


def test_the_connection_before_is_closed_where_the_new_one_says_so():
    containers = Containers()
    first, _ = opening(containers)
    second, _ = opening(containers)
    other, _ = opening(containers, container_id="other")
    third, came = opening(containers, **sole(UInt(CLOSE_EXISTING)))
    assert names(came) == ["header", "open"]
    for peer in (first, second):
        assert peer._woken, "something to send and nobody was told"
        peer._read()
        error = of(peer.hear(), Close)[0].error
        assert error.condition == "amqp:resource-locked"
        assert error.info == {"sole-connection-enforcement": True}
    assert not other.gone
    assert not third.gone


def test_who_does_not_desire_it_may_have_many():
    containers = Containers()
    opening(containers, **sole())
    for _ in range(3):
        _, came = opening(containers, properties={POLICY: UInt(CLOSE_EXISTING)})
        assert names(came) == ["header", "open"]


def test_another_users_connection_is_not_closed():
    containers = Containers()
    first, _ = opening(containers, user="ann")
    second, came = opening(containers, user="bob", **sole(UInt(CLOSE_EXISTING)))
    assert condition(came) == "close amqp:invalid-field"
    assert second.gone
    assert not first.gone
    assert first.hear() == []


@pytest.mark.parametrize("policy", [UInt(2), True, False, "close-existing", Symbol("1"), [1], None])
def test_a_policy_that_is_none_is_refused(policy):
    containers = Containers()
    peer, came = opening(containers, desired_capabilities=SOLE, properties={POLICY: policy})
    assert condition(came) == "close amqp:invalid-field"
    assert POLICY in of(came, Close)[0].error.description
    assert peer.gone
    assert names(opening(containers, **sole())[1]) == ["header", "open"]


# ---- links that are stolen

DURABLE = {"name": "sub", "source": Source(address="t", durable=2, capabilities=("topic",))}


def returning(core: Core, containers: Containers, user: str | None = "ann", **fields) -> Amqp:
    peer = Amqp.at(core, containers=containers, container="me", **fields)
    peer.engine.principal = Principal(user)
    return peer


def test_who_comes_back_has_its_durable_subscription_at_once():
    core, containers = Core(), Containers()
    cut = returning(core, containers)
    cut.receiver(credit=10, **DURABLE)
    core.send("t", b"1", b"2", routing=MULTICAST)
    assert len(took(cut.more())) == 2
    back = returning(core, containers)
    came = back.receiver(credit=10, **DURABLE) + back.more()
    assert names(came)[0] == "attach"
    assert len(took(came)) == 2
    assert core.queue("me.sub").consumer_count == 1
    (told,) = of(cut.more(), Detach)
    assert told.error.condition == "amqp:link:stolen"
    assert told.closed
    cut.cut()
    core.send("t", b"3", routing=MULTICAST)
    assert len(took(back.more())) == 1


@pytest.mark.parametrize(("user", "container"), [("bob", "me"), (None, "me"), ("ann", "you")])
def test_nobody_else_steals(user, container):
    core, containers = Core(), Containers()
    one = returning(core, containers)
    one.receiver(credit=10, **DURABLE)
    thief = Amqp.at(core, containers=containers, container=container)
    thief.engine.principal = Principal(user)
    came = thief.receiver(**DURABLE)
    refused = names(came) == ["attach", "detach"]
    assert refused is (container == "me")
    assert of(one.more(), Detach) == []


def test_two_clients_that_steal_in_turns_lose_nothing():
    core, containers = Core(), Containers()
    peers = [returning(core, containers) for _ in range(2)]
    for number in range(6):
        peer, other = peers[number % 2], peers[(number + 1) % 2]
        came = peer.receiver(number, credit=1, **DURABLE) + peer.more()
        assert names(came)[0] == "attach"
        if number:
            assert len(took(came)) == 1
            assert condition(other.more()) == "detach amqp:link:stolen"
            other.tell(Detach(handle=number - 1, closed=True))
        else:
            core.send("t", b"1", b"2", routing=MULTICAST)
            peer.more()
    assert core.queue("me.sub").message_count == 2


def test_what_a_transaction_of_the_stolen_link_held_comes_back_first():
    core, containers = Core(), Containers()
    cut = returning(core, containers)
    one = Controlling(cut)
    cut.receiver(5, credit=10, **DURABLE)
    core.send("t", b"1", routing=MULTICAST)
    ((number, _),) = took(cut.more())
    name = one.declare()
    cut.tell(
        Disposition(
            role=RECEIVER,
            first=number,
            settled=True,
            state=TransactionalState(txn_id=name, outcome=Accepted()),
        )
    )
    back = returning(core, containers)
    came = back.receiver(credit=10, **DURABLE) + back.more()
    assert names(came)[0] == "attach"
    assert len(took(came)) == 1
    assert core.queue("me.sub").message_count == 1


def test_on_one_connection_links_are_stolen_by_name_and_direction():
    core, containers = Core(), Containers()
    one = returning(core, containers)
    one.sender(0, name="n")
    one.receiver(1, name="n")
    came = one.sender(2, name="n")
    assert [told.handle for told in of(came, Detach)] == [0]


@pytest.mark.parametrize(
    "source",
    [
        Source(address="q"),
        Source(address="q", durable=2),
        Source(address="t", capabilities=("topic",)),
        Source(address="t", durable=2, capabilities=("topic", "shared")),
        Source(address="q", distribution_mode="copy"),
    ],
)
def test_links_of_two_connections_that_do_not_exclude_one_another_both_live(source):
    """Proton's Container names the links of all its connections to one address alike."""
    core, containers = Core(), Containers()
    core.administration.create_queue("q", "q", ANYCAST)
    peers = [returning(core, containers) for _ in range(2)]
    for peer in peers:
        assert names(peer.receiver(0, name="n", credit=10, source=source))[0] == "attach"
        peer.sender(1, name="n")
    for peer in peers:
        assert of(peer.more(), Detach) == []
        assert peer.give(plain("x"), handle=1) == [Accepted()]
