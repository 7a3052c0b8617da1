"""Outcomes in a transaction for deliveries that their session does not hold [AMQP 4.4.3]."""

from __future__ import annotations

import pytest

from gateway.model.serial import MASK
from protocols.amqp.performatives import ACCEPTED, RELEASED, Detach, Disposition
from tests.protocols.amqp.controlling import Controlling, told
from tests.protocols.amqp.peer import RECEIVER, names, of
from tests.protocols.amqp.test_transactions import controlling, offered, waiting

ROLLED_BACK = "rejected amqp:transaction:rollback"


def cause(came) -> str:
    """Return why a discharge was rejected."""
    (told,) = of(came, Disposition)
    return told.state.error.description


@pytest.mark.parametrize(
    ("first", "last", "missing"),
    [(3, None, 3), (0, 2, 0), (1, 1000, 3), (50, 60, 50), (0, 2**31 - 1, 0), (2**32 - 1, 1, MASK)],
)
@pytest.mark.parametrize("settled", [True, False])
def test_an_outcome_for_a_delivery_that_never_was_fails_the_transaction(
    first, last, missing, settled
):
    one: Controlling = controlling()
    offered(one, 2)
    name = one.declare()
    one.post(name, b"sent")
    one.retire(name, first, last, settled=settled)
    came = one.discharge(name)
    assert told(came) == [f"receiver: 2 {ROLLED_BACK}"]
    assert f"delivery {missing}," in cause(came)
    assert one.peer.broker.of("acknowledge") == []
    assert waiting(one) == []


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("again", [False, True])
def test_an_outcome_for_what_was_taken_back_with_its_link_fails_the_transaction(
    closed, settled, again
):
    """The message comes again: a commit that was accepted would have promised that it does not."""
    one = controlling()
    offered(one, 1)
    name = one.declare()
    one.peer.tell(Detach(handle=1, closed=closed))
    if again:
        assert names(one.peer.receiver(2, credit=10)) == ["attach", "transfer"]
    one.retire(name, 1, 2 if again else None, settled=settled)
    came = one.discharge(name)
    assert told(came) == [f"receiver: 1 {ROLLED_BACK}"]
    assert "delivery 1," in cause(came)
    assert one.peer.broker.of("acknowledge") == []
    assert [m.seq for m in one.peer.broker.queues["q"]] == ([] if again else [1])


@pytest.mark.parametrize("outcome", [ACCEPTED, RELEASED])
def test_an_outcome_for_what_was_settled_outside_fails_the_transaction(outcome):
    one = controlling()
    offered(one, 2)
    name = one.declare()
    one.peer.tell(Disposition(role=RECEIVER, first=1, settled=True, state=outcome))
    one.retire(name, 1, 2)
    assert told(one.discharge(name)) == [f"receiver: 1 {ROLLED_BACK}"]


def test_what_a_transaction_has_may_be_told_once_more():
    one = controlling()
    offered(one, 3)
    name = one.declare()
    one.retire(name, 1, settled=True)
    one.retire(name, 3, settled=True)
    one.retire(name, 1, settled=True)
    one.retire(name, 1, 3, settled=True)
    assert told(one.discharge(name)) == ["receiver: 1 accepted"]
    assert one.peer.broker.of("acknowledge") == [("q", [1, 3, 2])]


def test_what_a_transaction_has_is_settled_behind_the_end_of_its_link():
    one = controlling()
    offered(one, 2)
    name = one.declare()
    one.retire(name, 1, 2, settled=False)
    one.peer.tell(Detach(handle=1))
    one.retire(name, 1, 2, settled=True)
    assert told(one.discharge(name)) == ["receiver: 1 accepted"]
    assert one.peer.broker.of("acknowledge") == [("q", [1, 2])]
