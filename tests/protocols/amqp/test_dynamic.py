"""Nodes that are made for links live as long as the expiry policy of their terminus says."""

from __future__ import annotations

import pytest

from protocols.amqp.limits import AmqpLimits
from protocols.amqp.performatives import Attach, Close, Detach, End, Source, Target
from tests.protocols.amqp.peer import Peer, condition, of


def attach(peer: Peer, policy: str, *, sends: bool) -> str:
    """Return the address of a dynamic node; the peer says policy of its terminus."""
    if sends:
        (answer,) = of(peer.sender(target=Target(dynamic=True, expiry_policy=policy)), Attach)
        terminus = answer.target
    else:
        (answer,) = of(peer.receiver(0, source=Source(dynamic=True, expiry_policy=policy)), Attach)
        terminus = answer.source
    assert terminus.expiry_policy == policy
    assert peer.broker.temporaries == {terminus.address}
    return terminus.address


@pytest.mark.parametrize("sends", [True, False])
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize(
    ("policy", "kept"),
    [("link-detach", False), ("session-end", False), ("connection-close", True), ("never", True)],
)
def test_a_node_outlives_its_link_where_its_terminus_says_so(policy, kept, sends, closed):
    peer = Peer.begun()
    name = attach(peer, policy, sends=sends)
    peer.tell(Detach(handle=0, closed=closed))
    assert peer.broker.temporaries == ({name} if kept else set())
    peer.tell(Close())
    assert peer.broker.temporaries == set()


@pytest.mark.parametrize("policy", ["connection-close", "never"])
def test_a_node_outlives_its_session_and_not_a_cut(policy):
    peer = Peer.begun()
    name = attach(peer, policy, sends=False)
    peer.tell(End())
    assert peer.broker.temporaries == {name}
    peer.engine.connection_lost(peer.now)
    assert peer.broker.temporaries == set()


def test_nodes_that_stay_have_a_limit():
    peer = Peer.begun(limits=AmqpLimits(links_max=3))
    for _ in range(3):
        peer.sender(target=Target(dynamic=True, expiry_policy="never"))
        peer.tell(Detach(handle=0, closed=True))
    came = peer.sender(target=Target(dynamic=True, expiry_policy="never"))
    assert condition(came) == "detach amqp:resource-limit-exceeded"
    assert "the limit is 3" in of(came, Detach)[0].error.description
    assert len(peer.broker.temporaries) == 3
    peer.tell(Detach(handle=0, closed=True))
    assert condition(peer.sender(target=Target(dynamic=True))) == ""
