"""One transaction's states, every input; what it holds goes back exactly once."""

from __future__ import annotations

import pytest

from gateway.model.budget import Budget
from gateway.model.errors import Code, Refusal, RefusedError
from gateway.model.message import DURABLE
from gateway.model.run import Run
from protocols.stomp.limits import StompLimits
from protocols.stomp.transactions import Input, NamedTransaction, State, Transactions
from tests.protocols.scripted_broker import ScriptedBroker, ScriptedWork
from tests.protocols.scripted_ends import ScriptedProducer

REFUSAL = Refusal(code=Code.ADDRESS_FULL, text="Full.")
LEGAL = {
    (State.OPEN, Input.FAIL): State.FAILED,
    (State.OPEN, Input.EXPIRE): State.EXPIRED,
    (State.OPEN, Input.COMMIT): State.OVER,
    (State.OPEN, Input.ROLLBACK): State.OVER,
    (State.FAILED, Input.EXPIRE): State.EXPIRED,
    (State.FAILED, Input.ROLLBACK): State.OVER,
    (State.EXPIRED, Input.ROLLBACK): State.OVER,
}


class Opened:
    """A transaction that has 40 bytes of SENDs, at a state."""

    def __init__(self, state: State) -> None:
        self.broker = ScriptedBroker()
        self.budget = Budget(1000)
        self.work = ScriptedWork(self.broker)
        self.named = NamedTransaction(self.work, 0.0, self.budget)
        self.named.grow(40)
        if state is State.FAILED:
            self.named.fail(REFUSAL)
        elif state is State.EXPIRED:
            self.named.expire(5.0)
        elif state is State.OVER:
            self.named.rollback()
        assert self.named.state is state

    def send(self) -> None:
        """Send a durable message in it."""
        producer = ScriptedProducer(self.broker, "a", None)
        self.work.send(producer, Run((b"x",), DURABLE))

    @property
    def rollbacks(self) -> int:
        return len(self.broker.of("rollback"))


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("what", list(Input))
def test_a_step_outside_the_table_asserts(state: State, what: Input) -> None:
    named = Opened(state).named
    following = LEGAL.get((state, what))
    if following is not None:
        named._step(what)
        assert named.state is following
        return
    with pytest.raises(AssertionError, match=f"{what.value} in state {state.value}"):
        named._step(what)
    assert named.state is state


@pytest.mark.parametrize("state", [State.OPEN, State.FAILED, State.EXPIRED])
def test_it_is_rolled_back_once_and_gives_its_bytes_back_once(state: State) -> None:
    opened = Opened(state)
    assert opened.budget.held == (0 if state is State.EXPIRED else 40)
    opened.named.rollback()
    assert (opened.rollbacks, opened.budget.held) == (1, 0)
    assert opened.named.state is State.OVER


@pytest.mark.parametrize(
    ("state", "text"), [(State.FAILED, "Full."), (State.EXPIRED, "was idle for 5 s")]
)
def test_the_commit_of_one_that_cannot_be_says_why_and_rolls_back(state: State, text: str) -> None:
    opened = Opened(state)
    with pytest.raises(RefusedError) as caught:
        opened.named.commit()
    assert text in caught.value.refusal.text
    assert (opened.rollbacks, opened.broker.of("commit")) == (1, [])
    assert opened.named.state is State.OVER


def test_a_commit_that_the_broker_refuses_rolls_back() -> None:
    opened = Opened(State.OPEN)
    opened.send()
    opened.broker.refuse_commit = REFUSAL
    with pytest.raises(RefusedError):
        opened.named.commit()
    assert (opened.rollbacks, opened.budget.held) == (1, 0)


def test_a_commit_does_it_and_gives_the_bytes_back() -> None:
    opened = Opened(State.OPEN)
    opened.send()
    assert opened.named.commit() == opened.broker.ticket
    assert (opened.rollbacks, opened.budget.held) == (0, 0)
    assert opened.named.state is State.OVER


def test_what_failed_keeps_its_reason_when_it_expires() -> None:
    opened = Opened(State.FAILED)
    opened.named.expire(5.0)
    assert opened.named.refusal is REFUSAL
    assert opened.rollbacks == 1


def test_the_idle_ones_expire_once() -> None:
    broker = ScriptedBroker()
    transactions = Transactions(broker, StompLimits(transaction_seconds=5.0))
    transactions.begin("old", 0.0)
    transactions.begin("young", 3.0)
    for now in (4.9, 5.0, 6.0, 7.0):
        transactions.expire(now)
    assert len(broker.of("rollback")) == 1
    with pytest.raises(RefusedError, match="idle"):
        transactions.check("old", 7.0)
    transactions.check("young", 7.0)
